//! Why the scheduler refuses a pod, as it writes it on the pod: how many nodes for each reason.
//!
//! Owns what makes two refusals differ. A pod whose refusal has changed is written, and what is written is seen by others.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

/// Why one node refuses a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Why {
    /// A taint, by key and value.
    Taint(String, String),
    /// The node is not ready, and tainted so.
    NotReady,
    /// The pod does not select it.
    Unselected,
    /// Too little of a resource, by its position.
    Insufficient(usize),
    /// A spread.
    Spread,
    /// Affinity or anti-affinity.
    Neighbours,
}

/// Nodes by reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<Why, u32>);

impl Refusals {
    pub(crate) fn add(&mut self, why: Why) {
        *self.0.entry(why).or_default() += 1;
    }

    /// A number that differs where the text would.
    pub(crate) fn number(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.0.hash(&mut hasher);
        hasher.finish()
    }
}
