//! Pods that come and go restart the clock of their node (D-036): the time is written on its NodeClaim.
//!
//! Owns the events that are not written yet, and the pause between two writes for a node. Lost: the clock is not restarted for those events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_api::constants::POD_EVENT_DEDUPLICATION;
use spokeshave_plan::consolidatable::{PodEventStep, disturbed_node, pod_event_step, pod_event_time};
use spokeshave_runtime::Requeue;

use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::state::cluster::Cluster;

/// What is still to be written, by name of the Node.
#[derive(Debug, Default)]
struct Pending {
    /// The newest event of nodes that is not written yet.
    newest: BTreeMap<String, Timestamp>,
    /// Until when nothing more is written for nodes. What is written tells when the event was, which may be long before it was written: that alone would let two writes follow each
    /// other at once.
    paused: BTreeMap<String, Timestamp>,
}

impl Pending {
    fn note(&mut self, node: &str, time: Timestamp) {
        let known = self.newest.entry(node.to_owned()).or_insert(time);
        *known = (*known).max(time);
    }

    /// An event of a node was written.
    fn wrote(&mut self, node: &str, now: Timestamp) {
        let until = now.saturating_add(POD_EVENT_DEDUPLICATION);
        self.paused
            .insert(node.to_owned(), until.unwrap_or(Timestamp::MAX));
    }

    /// What is left of a node's pause.
    fn pause(&mut self, node: &str, now: Timestamp) -> Duration {
        let until = self.paused.get(node).copied().unwrap_or(now);
        let left = Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO);
        if left.is_zero() {
            self.paused.remove(node);
        }
        left
    }
}

/// The controller of pod events, by name of the Node.
#[derive(Debug)]
pub(crate) struct PodEvents {
    cluster: Arc<Cluster>,
    hands: Hands,
    pending: Mutex<Pending>,
}

impl PodEvents {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            hands,
            pending: Mutex::default(),
        })
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for PodEvents {
    const NAME: &'static str = "nodeclaim.podevents";
    type Key = String;

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        let this = self.clone();
        on.change(
            |stores| &stores.pods,
            move |_, change| {
                let (old, new) = (change.old.as_deref(), change.new.as_deref()?);
                let node = disturbed_node(old, Some(new))?;
                let time = pod_event_time(old, new, this.cluster.now());
                this.pending().note(node, time);
                Some(node.to_owned())
            },
        );
    }

    /// Writes the event of a node; one that comes too soon after another is written later (W-42).
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let now = self.cluster.now();
        let pause = self.pending().pause(&name, now);
        if !pause.is_zero() {
            return Ok(Requeue::After(pause));
        }
        let Some(time) = self.pending().newest.remove(&name) else {
            return Ok(Requeue::Done);
        };
        let stores = &self.cluster.stores;
        let Some(node) = stores.nodes.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        let id = node
            .spec
            .as_ref()
            .and_then(|spec| spec.provider_id.clone())
            .unwrap_or_default();
        let mut next = Requeue::Done;
        let mut claims = stores.claims_by_provider_id.get(&id);
        // Those of another cloud are its own operator's.
        claims.retain(|claim| self.cluster.is_ours(claim));
        for claim in claims {
            match pod_event_step(&claim, time, now) {
                PodEventStep::Known => {}
                PodEventStep::Wait(left) => {
                    self.pending().note(&name, time);
                    next = Requeue::After(left);
                }
                PodEventStep::Write(action) => match self.hands.run_unless_stale(&[action]).await {
                    Ok(false) => {
                        // Another writer was quicker, unless it is gone.
                        if stores.node_claims.get_named(claim.name()).is_some() {
                            self.pending().note(&name, time);
                            next = Requeue::Stale;
                        }
                    }
                    Ok(true) => {
                        self.pending().wrote(&name, now);
                        // The look after the pause forgets it.
                        next = Requeue::After(POD_EVENT_DEDUPLICATION);
                    }
                    Err(error) => {
                        self.pending().note(&name, time);
                        return Err(error.into());
                    }
                },
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn d_036_w_42_a_node_is_written_ten_seconds_apart_and_then_forgotten() {
        let mut pending = Pending::default();
        assert_eq!(pending.pause("n", at(0)), Duration::ZERO);
        pending.wrote("n", at(0));
        pending.note("n", at(9));
        pending.note("n", at(4));
        assert_eq!(pending.pause("n", at(9)), Duration::from_secs(1));
        assert_eq!(pending.pause("n", at(10)), Duration::ZERO);
        assert_eq!(
            pending.newest.remove("n"),
            Some(at(9)),
            "the newest, in whatever order"
        );
        // The event was at 9 s and is written at 10 s: the next is not written at 19 s.
        pending.wrote("n", at(10));
        assert_eq!(pending.pause("n", at(19)), Duration::from_secs(1));
        assert_eq!(pending.pause("n", at(20)), Duration::ZERO);
        assert!(
            pending.paused.is_empty(),
            "nothing is kept of nodes that are left alone"
        );
    }
}
