//! Failed lists and watches of a provider's own copies of objects, as numbers by kind.
//!
//! Owns the numbers until whoever serves `/metrics` takes them, to count them together with those of all others that watch. It knows no registry.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What has failed and was not taken yet. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct WatchFailures(Arc<Mutex<BTreeMap<String, u32>>>);

impl WatchFailures {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list or watch of objects of this kind has failed.
    pub fn count(&self, kind: &str) {
        let mut failures = self.lock();
        let known = failures.entry(kind.to_owned()).or_default();
        *known = known.saturating_add(1);
    }

    /// How many have failed since they were last taken, by kind: each is told once.
    #[must_use]
    pub fn take(&self) -> BTreeMap<String, u32> {
        std::mem::take(&mut self.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_told_once() {
        let failures = WatchFailures::default();
        let same = failures.clone();
        failures.count("Node");
        same.count("Node");
        failures.count("Pod");
        let taken: Vec<(String, u32)> = failures.take().into_iter().collect();
        assert_eq!(taken, [("Node".to_owned(), 2), ("Pod".to_owned(), 1)]);
        assert!(same.take().is_empty());
        same.count("Pod");
        assert_eq!(failures.take().into_values().sum::<u32>(), 1);
    }
}
