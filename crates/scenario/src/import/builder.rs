//! A timeline that grows event by event while a recording is read, within limits.
//!
//! Owns the numbering of owners, and what is not told of workloads and PodDisruptionBudgets that change. It orders nothing until the end.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use k8s_openapi::api::core::v1::PodSpec;
use spokeshave_model::pod::requests_of_template;

use super::objects::Budget;
use super::{ImportError, MOST_OWNERS};
use crate::generate::MOST_EVENTS;
use crate::timeline::{Change, Event, Owner, OwnerId, OwnerKind, Timeline};

/// The identity of an owner: kind, namespace, name.
pub(crate) type Key = (OwnerKind, String, String);

/// A timeline in the making.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    index: BTreeMap<Key, OwnerId>,
    timeline: Timeline,
    /// Workloads whose pods became others than at first, and when.
    changed: BTreeMap<Key, u64>,
    /// PodDisruptionBudgets that came, changed or went, by namespace and name, and when they first did.
    unsteady: BTreeMap<(String, String), u64>,
}

impl Builder {
    /// The owner of a key, made when it is new.
    pub(crate) fn owner(&mut self, key: &Key, make: impl FnOnce() -> Owner) -> Result<OwnerId, ImportError> {
        if let Some(known) = self.index.get(key) {
            return Ok(*known);
        }
        let count = self.timeline.owners.len();
        if count >= MOST_OWNERS {
            return Err(ImportError::whole(format!(
                "has more than {MOST_OWNERS} workloads; expected a recording of one cluster"
            )));
        }
        let id = OwnerId(count as u32);
        self.timeline.owners.push(make());
        self.index.insert(key.clone(), id);
        Ok(id)
    }

    /// The owner of a key, if there is one.
    pub(crate) fn known(&self, key: &Key) -> Option<OwnerId> {
        self.index.get(key).copied()
    }

    /// Notes that a workload wants pods of another specification. An owner has one template, and keeps its first.
    pub(crate) fn changes(&mut self, at_ms: u64, key: &Key) {
        self.changed.entry(key.clone()).or_insert(at_ms);
    }

    /// The same when a workload that is known does so.
    pub(crate) fn compare(&mut self, at_ms: u64, key: &Key, now: &Owner) {
        let Some(known) = self.known(key) else {
            return;
        };
        if self.timeline.owners[known.0 as usize].template.spec != now.template.spec {
            self.changes(at_ms, key);
        }
    }

    /// Notes when a pod requests something else than the first one of its workload, for workloads of which only pods are recorded. The rest of a pod's specification
    /// is in part its own.
    pub(crate) fn compare_requests(&mut self, at_ms: u64, key: &Key, now: &PodSpec) {
        let Some(known) = self.known(key) else {
            return;
        };
        if self.changed.contains_key(key) {
            return;
        }
        let first = self.timeline.owners[known.0 as usize].template.spec.as_ref();
        if first.map(requests_of_template) != Some(requests_of_template(now)) {
            self.changed.insert(key.clone(), at_ms);
        }
    }

    /// What is not told, in sentences.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let workloads = self.note_of_workloads().into_iter();
        workloads.chain(self.note_of_budgets())
    }

    /// What is not told about workloads that changed.
    fn note_of_workloads(&self) -> Option<String> {
        let ((_, namespace, name), at_ms) = self.changed.iter().min_by_key(|(_, at_ms)| **at_ms)?;
        Some(format!(
            "{} workloads change the specification of their pods, the first of them {namespace}/{name} after {} minutes: their pods are taken to stay as they were first",
            self.changed.len(),
            at_ms / 60_000
        ))
    }

    /// A PodDisruptionBudget is seen, which was made at `made_ms`; 0 for one that was there before. It stays what it was first.
    pub(crate) fn budget(&mut self, at_ms: u64, made_ms: u64, seen: &Budget) {
        let (key, told) = seen.told();
        let unsteady_ms = match self.timeline.budgets.entry(key.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(told);
                Some(made_ms).filter(|made_ms| *made_ms > 0)
            }
            Entry::Occupied(known) => (*known.get() != told).then_some(at_ms),
        };
        if let Some(unsteady_ms) = unsteady_ms {
            self.unsteady.entry(key).or_insert(unsteady_ms);
        }
    }

    /// A PodDisruptionBudget is gone.
    pub(crate) fn budget_is_gone(&mut self, at_ms: u64, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        if self.timeline.budgets.contains_key(&key) {
            self.unsteady.entry(key).or_insert(at_ms);
        }
    }

    /// Namespace and name of each PodDisruptionBudget that was seen.
    pub(crate) fn budgets(&self) -> impl Iterator<Item = &(String, String)> {
        self.timeline.budgets.keys()
    }

    /// What is not told about PodDisruptionBudgets: there are none that come or go.
    fn note_of_budgets(&self) -> Option<String> {
        let ((namespace, name), at_ms) = self.unsteady.iter().min_by_key(|(_, at_ms)| **at_ms)?;
        Some(format!(
            "{} PodDisruptionBudgets come, change or go, the first of them {namespace}/{name} after {} minutes: they are taken to be there from the start to the end, as they were first",
            self.unsteady.len(),
            at_ms / 60_000
        ))
    }

    /// How many owners there are.
    pub(crate) fn owners(&self) -> usize {
        self.timeline.owners.len()
    }

    pub(crate) fn event(&mut self, at_ms: u64, owner: OwnerId, change: Change) -> Result<(), ImportError> {
        if self.timeline.events.len() as u64 >= MOST_EVENTS {
            return Err(ImportError::whole(format!(
                "has more than {MOST_EVENTS} events, and more do not fit into memory; cut it into pieces"
            )));
        }
        self.timeline.events.push(Event { at_ms, owner, change });
        Ok(())
    }

    /// The timeline, in order of time.
    pub(crate) fn finish(mut self) -> Timeline {
        self.timeline.sort();
        self.timeline
    }
}
