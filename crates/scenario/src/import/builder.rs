//! A timeline that grows event by event while a recording is read, within limits.
//!
//! Owns the numbering of owners. It orders nothing until the end.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use spokeshave_model::pod::requests_of_template;

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

    /// Notes when a workload that is known wants pods of another specification. An owner has one template, and keeps its first.
    pub(crate) fn compare(&mut self, at_ms: u64, key: &Key, now: &Owner) {
        let Some(known) = self.known(key) else {
            return;
        };
        if self.timeline.owners[known.0 as usize].template.spec != now.template.spec {
            self.changed.entry(key.clone()).or_insert(at_ms);
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

    /// What is not told about workloads that changed.
    pub(crate) fn note(&self) -> Option<String> {
        let ((_, namespace, name), at_ms) = self.changed.iter().min_by_key(|(_, at_ms)| **at_ms)?;
        Some(format!(
            "{} workloads change the specification of their pods, the first of them {namespace}/{name} after {} minutes: their pods are taken to stay as they were first",
            self.changed.len(),
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
