//! A timeline that grows event by event while a recording is read, within limits.
//!
//! Owns the numbering of owners, and what is not told of workloads and PodDisruptionBudgets that change. It orders nothing until the end.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use spokeshave_model::pod::requests_of_template;

use super::objects::Budget;
use super::versions::{Alike, Versions};
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
    /// From which templates owners make their pods, and when.
    versions: Versions,
    /// Workloads whose pods became others than at first, which is not told, and when.
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
        if count + self.versions.count() >= MOST_OWNERS {
            return Err(too_many());
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

    /// Notes that a workload has pods of another specification, in a recording without their templates: they are taken to stay as they were first.
    pub(crate) fn changes(&mut self, at_ms: u64, key: &Key) {
        self.changed.entry(key.clone()).or_insert(at_ms);
    }

    /// An owner that is known makes its pods from this template from now on, unless it is like the one that it has. A Deployment or a StatefulSet then replaces
    /// its pods; of any other owner those have it that begin from now on.
    ///
    /// # Errors
    /// There are more templates than fit into memory, or more events.
    pub(crate) fn template(
        &mut self,
        at_ms: u64,
        id: OwnerId,
        template: &Arc<PodTemplateSpec>,
        alike: Alike,
    ) -> Result<(), ImportError> {
        let owners = self.timeline.owners.len();
        let owner = &mut self.timeline.owners[id.0 as usize];
        let Some(number) = self.versions.turn(id, owner, template, alike) else {
            return Ok(());
        };
        let is_rolled = matches!(owner.kind, OwnerKind::Deployment | OwnerKind::StatefulSet);
        if owners + self.versions.count() > MOST_OWNERS {
            return Err(too_many());
        }
        match is_rolled {
            true => self.event(at_ms, id, Change::Template(number)),
            false => Ok(()),
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
        let rollouts = self.note_of_rollouts().into_iter();
        let workloads = rollouts.chain(self.note_of_workloads());
        workloads.chain(self.note_of_budgets())
    }

    /// What is told of workloads that changed.
    fn note_of_rollouts(&self) -> Option<String> {
        let events = self.timeline.events.iter();
        let rollouts = events.filter(|event| matches!(event.change, Change::Template(_)));
        let rollouts: Vec<&Event> = rollouts.collect();
        let first = rollouts.iter().min_by_key(|event| event.at_ms)?;
        let owner = &self.timeline.owners[first.owner.0 as usize];
        Some(format!(
            "{} roll-outs of other pod templates are played, the first of them of {}/{} after {} minutes: Deployments replace a quarter of their pods at a time, StatefulSets one after the other",
            rollouts.len(),
            owner.namespace,
            owner.name,
            first.at_ms / 60_000
        ))
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
        if let Change::Begin { pod, .. } = change {
            self.versions.begins(owner, pod);
        }
        self.timeline.events.push(Event { at_ms, owner, change });
        Ok(())
    }

    /// The timeline, in order of time.
    pub(crate) fn finish(mut self) -> Timeline {
        self.timeline.sort();
        self.versions.tell(&mut self.timeline);
        self.timeline
    }
}

fn too_many() -> ImportError {
    ImportError::whole(format!(
        "has more than {MOST_OWNERS} workloads and versions of their pod templates; expected a recording of one cluster"
    ))
}
