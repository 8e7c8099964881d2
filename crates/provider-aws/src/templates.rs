//! Which of our launch templates exist, and which of them nobody has used for a while (A5.2, A-066).
//!
//! A value: time comes in with each call. What expires is to be deleted in EC2; a template that a class's finalizer waits for is found by its
//! tags instead.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::requests::look_up::{Filter, LaunchTemplatesRequest};
use crate::tags;

/// How long a template that is not used stays.
pub const UNUSED_FOR: SignedDuration = SignedDuration::from_mins(1);

/// Templates that are known to exist, with the instant of their last use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Templates {
    used: BTreeMap<String, Timestamp>,
}

impl Templates {
    /// Whether a template exists as far as is known. One that does is used by asking.
    pub fn find(&mut self, name: &str, now: Timestamp) -> bool {
        let used = self.used.get_mut(name);
        used.map(|used| *used = now).is_some()
    }

    /// A template exists: it was found, or made.
    pub fn exists(&mut self, name: &str, now: Timestamp) {
        self.used.insert(name.to_owned(), now);
    }

    /// A launch has found that a template does not exist.
    pub fn forget(&mut self, name: &str) {
        self.used.remove(name);
    }

    /// Templates that were not used for a while: they are to be deleted, and are forgotten.
    pub fn expire(&mut self, now: Timestamp) -> Vec<String> {
        let (old, used) = std::mem::take(&mut self.used)
            .into_iter()
            .partition(|(_, used)| now.duration_since(*used) >= UNUSED_FOR);
        self.used = used;
        let old: BTreeMap<String, Timestamp> = old;
        old.into_keys().collect()
    }

    /// When the next one expires; `None` without any.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let first = self.used.values().min()?;
        first.checked_add(UNUSED_FOR).ok()
    }
}

/// The templates of a cluster: asked for on becoming the leader, so that those of an earlier one expire.
#[must_use]
pub fn of_cluster(cluster: &str) -> LaunchTemplatesRequest {
    LaunchTemplatesRequest {
        filters: vec![Filter::tag(tags::CLUSTER_NAME, cluster)],
        ..LaunchTemplatesRequest::default()
    }
}

/// The templates of a class that is being deleted.
#[must_use]
pub fn of_class(cluster: &str, class: &str) -> LaunchTemplatesRequest {
    LaunchTemplatesRequest {
        filters: vec![
            Filter::tag(tags::CLUSTER_NAME, cluster),
            Filter::tag(tags::NODE_CLASS, class),
        ],
        ..LaunchTemplatesRequest::default()
    }
}
