//! Which of our launch templates exist, and which of them nobody has used for a while (A5.2, A-066).
//!
//! A value: time comes in with each call. What expires is to be deleted in EC2; a template that a class's finalizer waits for is found by its
//! tags instead.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::launch::TEMPLATE_NAME_PREFIX;
use crate::replies::LaunchTemplate;
use crate::requests::look_up::{Filter, LaunchTemplatesRequest};
use crate::tags;

/// How long a template that is not used stays.
pub const UNUSED_FOR: SignedDuration = SignedDuration::from_mins(1);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    id: String,
    used: Timestamp,
}

/// Templates that are known to exist, with their ID and the instant of their last use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Templates {
    known: BTreeMap<String, Known>,
}

impl Templates {
    /// Whether a template exists as far as is known. One that does is used by asking.
    pub fn find(&mut self, name: &str, now: Timestamp) -> bool {
        let known = self.known.get_mut(name);
        known.map(|known| known.used = now).is_some()
    }

    /// A template exists: it was found, or made.
    pub fn exists(&mut self, name: &str, id: &str, now: Timestamp) {
        let known = Known {
            id: id.to_owned(),
            used: now,
        };
        self.known.insert(name.to_owned(), known);
    }

    /// A launch has found that a template does not exist.
    pub fn forget(&mut self, name: &str) {
        self.known.remove(name);
    }

    /// Templates that were not used for a while, as name and ID: they are to be deleted, and are forgotten.
    pub fn expire(&mut self, now: Timestamp) -> Vec<(String, String)> {
        let is_old = |known: &Known| now.duration_since(known.used) >= UNUSED_FOR;
        let old = self.known.extract_if(.., |_, known| is_old(known));
        old.map(|(name, known)| (name, known.id)).collect()
    }

    /// When the next one expires; `None` without any.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let first = self.known.values().map(|known| known.used).min()?;
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

/// Whether a template that was found is one that we have made for a cluster: what is deleted is checked again (A14.4).
#[must_use]
pub fn is_of_cluster(template: &LaunchTemplate, cluster: &str) -> bool {
    has_tag(template, tags::CLUSTER_NAME, cluster) && template.name.starts_with(TEMPLATE_NAME_PREFIX)
}

/// The same for a class of it.
#[must_use]
pub fn is_of_class(template: &LaunchTemplate, cluster: &str, class: &str) -> bool {
    is_of_cluster(template, cluster) && has_tag(template, tags::NODE_CLASS, class)
}

fn has_tag(template: &LaunchTemplate, key: &str, value: &str) -> bool {
    template.tags.get(key).is_some_and(|it| it == value)
}
