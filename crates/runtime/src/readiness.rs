//! Readiness: named conditions, all of which must hold before the process calls itself ready.
//!
//! Owns the set of names. It never checks anything itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use spokeshave_watched as watch;

/// Named conditions, shared by clones. Ready when every one that was declared holds.
#[derive(Clone, Debug)]
pub struct Readiness {
    conditions: Arc<watch::Sender<BTreeMap<String, bool>>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// No condition yet, hence ready.
    #[must_use]
    pub fn new() -> Self {
        Self {
            conditions: Arc::new(watch::Sender::new(BTreeMap::new())),
        }
    }

    /// Declares a condition that does not hold yet. One that was set before keeps its value.
    pub fn declare(&self, name: &str) {
        self.conditions.send_modify(|conditions| {
            conditions.entry(name.to_owned()).or_insert(false);
        });
    }

    /// Says whether a condition holds.
    pub fn set(&self, name: &str, holds: bool) {
        self.conditions
            .send_if_modified(|conditions| conditions.insert(name.to_owned(), holds) != Some(holds));
    }

    /// Names of the conditions that do not hold, in order.
    #[must_use]
    pub fn pending(&self) -> Vec<String> {
        let conditions = self.conditions.borrow();
        conditions
            .iter()
            .filter(|(_, holds)| !**holds)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// All conditions and whether they hold, in order of their names.
    #[must_use]
    pub fn conditions(&self) -> Vec<(String, bool)> {
        self.conditions
            .borrow()
            .iter()
            .map(|(name, holds)| (name.clone(), *holds))
            .collect()
    }

    /// True when every condition holds.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions.borrow().values().all(|holds| *holds)
    }

    /// Waits until every condition holds.
    pub async fn wait(&self) {
        let mut receiver = self.conditions.subscribe();
        // The sender lives in `self`, which outlives this future.
        let _ = receiver
            .wait_for(|conditions| conditions.values().all(|holds| *holds))
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn p_204_ready_when_all_hold() {
        let readiness = Readiness::new();
        readiness.declare("pods synced");
        readiness.declare("nodes synced");
        assert_eq!(readiness.pending(), ["nodes synced", "pods synced"]);
        readiness.set("pods synced", true);
        readiness.declare("pods synced");
        assert!(!readiness.is_ready());
        let waiter = readiness.clone();
        let waiting = tokio::spawn(async move { waiter.wait().await });
        readiness.set("nodes synced", true);
        waiting.await.unwrap();
        assert!(readiness.is_ready() && readiness.pending().is_empty());
    }
}
