//! When a pass begins: pods and nodes that ask for one are collected for a moment (P §5.1).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use spokeshave_ports::SharedClock;
use tokio::sync::Notify;

/// Collects what asks for a pass (P §5.1): an ID that was seen already does not extend the window.
#[derive(Debug, Default)]
pub(crate) struct Batcher {
    seen: Mutex<BTreeSet<String>>,
    pub(super) fresh: Notify,
    /// Asks for a pass without a window.
    urgent: Notify,
}

impl Batcher {
    /// Asks for a pass on behalf of a pod or a node.
    pub(crate) fn trigger(&self, id: &str) {
        if self
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.to_owned())
        {
            self.fresh.notify_one();
        }
    }

    /// Asks for a pass now.
    pub(super) fn urge(&self, id: &str) {
        self.trigger(id);
        self.urgent.notify_one();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    pub(super) fn clear(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Completes when the window closes that the first trigger has opened (App. E.1): after `idle` without a new ID, after `longest` in any
    /// case, or at once when something is urgent.
    pub(super) async fn close(&self, clock: &SharedClock, idle: Duration, longest: Duration) {
        let mut end = clock.sleep(longest);
        loop {
            tokio::select! {
                biased;
                () = self.urgent.notified() => return,
                () = self.fresh.notified() => {}
                () = &mut end => return,
                () = clock.sleep(idle) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use spokeshave_ports::TokioClock;
    use std::sync::Arc;

    #[test]
    fn p_050_a_repeated_id_does_not_trigger_again() {
        let batcher = Batcher::default();
        batcher.trigger("a");
        batcher.trigger("a");
        assert_eq!(batcher.seen.lock().unwrap().len(), 1);
        batcher.clear();
        assert!(batcher.is_empty());
    }

    /// When the window closes, in milliseconds, if these IDs come at these.
    async fn closes_at(triggers: Vec<(u64, String)>) -> u128 {
        let clock = TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared();
        let batcher = Arc::new(Batcher::default());
        let (from, feeding) = (tokio::time::Instant::now(), Arc::clone(&batcher));
        tokio::spawn(async move {
            for (at, id) in triggers {
                tokio::time::sleep_until(from + Duration::from_millis(at)).await;
                feeding.trigger(&id);
            }
        });
        batcher.fresh.notified().await;
        let (idle, longest) = (Duration::from_secs(1), Duration::from_secs(10));
        batcher.close(&clock, idle, longest).await;
        from.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn p_050_example_1_batching() {
        let ids = |list: &[(u64, &str)]| list.iter().map(|(at, id)| (*at, (*id).to_owned())).collect();
        assert_eq!(closes_at(ids(&[(0, "a"), (800, "b"), (1600, "c")])).await, 2600);
        assert_eq!(
            closes_at(ids(&[(0, "a"), (800, "a")])).await,
            1000,
            "the same pod again"
        );
        let steady = (0..40).map(|nth| (nth * 500, format!("pod-{nth}"))).collect();
        assert_eq!(closes_at(steady).await, 10_000);
    }
}
