//! A timeline that grows event by event while a recording is read, within limits.
//!
//! Owns the numbering of owners. It orders nothing until the end.

use std::collections::BTreeMap;

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
