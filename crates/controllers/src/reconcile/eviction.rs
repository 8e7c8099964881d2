//! The eviction queue (D §8.5): one pod at a time through the Eviction API, with a back-off of its own, until it goes or its deadline comes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::Pod;
use spokeshave_model::{ObjectKind, ObjectRef};
use spokeshave_plan::blockers::Refusal;
use spokeshave_plan::termination::{self, EvictionStep, Size, Turns, deadline, takes_turn};
use spokeshave_runtime::{Change, ObjectKey, ReconcileError, Requeue, TokenBucket, WorkQueue};

use crate::act::error::{ExecuteError, Refuser};
use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::observe::journal::Journal;
use crate::options::Options;
use crate::state::cluster::Cluster;

/// How often a pod that may not be evicted now is looked at again.
const PROTECTED_POLL: Duration = Duration::from_secs(10);

/// Evictions that are worked on at once, at one core and at sixty (D-327).
const WORKERS: (usize, usize) = (100, 5000);

/// Tries a second of pods that failed, over all of them, at one core and at sixty; ten times as many at once (D-327).
const RETRIES: (usize, usize) = (100, 5000);

/// First and longest delay after a refusal.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// A pod in the queue, by identity (D-326).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EvictionKey {
    namespace: String,
    name: String,
    uid: String,
    node: String,
}

impl EvictionKey {
    pub(crate) fn new(pod: &ObjectRef, node: &str) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            node: node.to_owned(),
        }
    }

    fn of(pod: &Pod, node: &str) -> Self {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Self {
            namespace: text(&pod.metadata.namespace),
            name: text(&pod.metadata.name),
            uid: text(&pod.metadata.uid),
            node: node.to_owned(),
        }
    }
}

impl fmt::Display for EvictionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Evictions {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    queue: WorkQueue<EvictionKey>,
    /// How often each pod was refused: a refusal is no fault, so it has a back-off apart from the queue's.
    refusals: Mutex<BTreeMap<EvictionKey, (u32, Refusal)>>,
    /// Who waits for larger pods (W-63). Lost with a restart: the next leader is handed all pods anew.
    turns: Mutex<Turns>,
    /// Nodes whose machines the cloud takes back, by name, with their UIDs. Lost with a restart, after which pods wait for seconds at most.
    interrupted: Mutex<BTreeMap<String, String>>,
    /// The bound on evictions, if there is one.
    bucket: Mutex<Option<TokenBucket>>,
    /// When it is whose turn under that bound. Nobody sleeps until then: workers are there for those that may go now.
    reserved: Mutex<BTreeMap<EvictionKey, Timestamp>>,
}

impl Evictions {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        hands: Hands,
        journal: Arc<Journal>,
        queue: WorkQueue<EvictionKey>,
    ) -> Arc<Self> {
        let rate = cluster.options.eviction_rate;
        Arc::new(Self {
            cluster,
            hands,
            journal,
            queue,
            refusals: Mutex::default(),
            turns: Mutex::default(),
            interrupted: Mutex::default(),
            bucket: Mutex::new(rate.map(|rate| TokenBucket::new(rate.per_second, rate.burst))),
            reserved: Mutex::default(),
        })
    }

    /// Hands the pods of a node over; one that waits for larger ones or for its next try keeps waiting. One that waits for its turn under the bound on evictions keeps that, but is
    /// looked at: the wait may be long, and its deadline may have come forward. `size_of_turn` tells, of a pod that does not wait yet, whether it takes turns, by its UID.
    pub(crate) fn add_all(&self, mut pods: Vec<EvictionKey>, size_of_turn: impl Fn(&str) -> Option<Size>) {
        let now = self.cluster.now();
        let is_interrupted = pods.first().is_some_and(|key| self.is_interrupted(&key.node));
        let mut turns = self.turns();
        let reserved = self.reserved();
        pods.retain(|key| {
            let waits = turns.contains(&key.uid, now)
                || self.queue.failures(key) != 0
                || self.refusals().contains_key(key);
            !waits || reserved.contains_key(key)
        });
        // All are known before the first is tried.
        for key in pods
            .iter()
            .filter(|key| !is_interrupted && !reserved.contains_key(*key))
        {
            if let Some(size) = size_of_turn(&key.uid) {
                turns.add(&key.uid, size, now);
            }
        }
        drop(reserved);
        drop(turns);
        pods.into_iter().for_each(|key| self.queue.add(key));
    }

    /// The cloud takes the machine of a node back: its pods wait for no larger ones, whether or not their NodeClaim says when it ends (W-63).
    pub(crate) fn hurry(&self, node: &Node) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let uid = node.metadata.uid.as_deref().unwrap_or_default();
        let stores = &self.cluster.stores;
        let known = {
            let mut interrupted = self.interrupted();
            interrupted.retain(|name, uid| stores.has_node(name, uid));
            interrupted.insert(name.to_owned(), uid.to_owned())
        };
        if known.as_deref() == Some(uid) {
            return;
        }
        self.waiting_on(name, self.cluster.now())
            .iter()
            .for_each(|pod| self.queue.add(EvictionKey::of(pod, name)));
    }

    /// Pods on a node that wait for larger ones.
    fn waiting_on(&self, node: &str, now: Timestamp) -> Vec<Arc<Pod>> {
        let mut pods = self.cluster.stores.pods_by_node.get(node);
        let mut turns = self.turns();
        pods.retain(|pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            !turns.wait(uid, now).is_zero()
        });
        pods
    }

    /// Whether the cloud takes the machine of the present Node of this name back.
    fn is_interrupted(&self, node: &str) -> bool {
        let uid = self.interrupted().get(node).cloned();
        uid.is_some_and(|uid| self.cluster.stores.has_node(node, &uid))
    }

    fn interrupted(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.interrupted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusals(&self) -> MutexGuard<'_, BTreeMap<EvictionKey, (u32, Refusal)>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserved(&self) -> MutexGuard<'_, BTreeMap<EvictionKey, Timestamp>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a refusal; returns how many there were before it.
    fn note_refusal(&self, key: &EvictionKey, code: u16, message: &str) -> u32 {
        let mut refusals = self.refusals();
        let (count, last) = refusals.entry(key.clone()).or_insert_with(|| {
            let message = String::new();
            (0, Refusal { code, message })
        });
        let before = *count;
        *count = count.saturating_add(1);
        *last = Refusal {
            code,
            message: message.to_owned(),
        };
        before
    }

    /// How a pod on a node was refused last, while it waits for its next try.
    pub(crate) fn refusal(&self, pod: &Pod, node: &str) -> Option<Refusal> {
        let key = EvictionKey::of(pod, node);
        self.refusals().get(&key).map(|(_, refusal)| refusal.clone())
    }

    /// Pods that wait for larger ones, and need not any more: the cloud has said when their node ends.
    fn hurried(&self, change: &Change<NodeClaim>) -> Vec<EvictionKey> {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        let Some(claim) = new.filter(|_| deadline_text(new) != deadline_text(old)) else {
            return Vec::new();
        };
        let node = claim.node_name().unwrap_or_default();
        let (deadline, now) = (deadline(claim).ok().flatten(), self.cluster.now());
        let mut pods = self.waiting_on(node, now);
        pods.retain(|pod| !takes_turn(pod, Some(claim), deadline, now));
        pods.iter().map(|pod| EvictionKey::of(pod, node)).collect()
    }

    /// How long a pod that may be evicted still waits: for larger ones, and after that for its turn under the bound on evictions. Zero when it may go now, which uses its turn up.
    fn wait(&self, key: &EvictionKey, now: Timestamp) -> Duration {
        let reserved = self.reserved().get(key).copied();
        let turn = if let Some(turn) = reserved {
            turn
        } else {
            let wait = self.turns().wait(&key.uid, now);
            if !wait.is_zero() {
                return wait;
            }
            self.next_turn(now)
        };
        let left = Duration::try_from(turn.duration_since(now)).unwrap_or(Duration::ZERO);
        if left.is_zero() {
            self.reserved().remove(key);
        } else {
            self.reserved().insert(key.clone(), turn);
        }
        left
    }

    /// Takes the next turn under the bound on evictions, which is now where there is none.
    fn next_turn(&self, now: Timestamp) -> Timestamp {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = bucket
            .as_mut()
            .map_or(Duration::ZERO, |bucket| bucket.reserve(now));
        now.saturating_add(wait).unwrap_or(Timestamp::MAX)
    }

    /// The pod of a key, unless it is gone or another one has its name.
    fn pod(&self, key: &EvictionKey) -> Option<Arc<Pod>> {
        let name = ObjectKey::namespaced(&key.namespace, &key.name);
        let pod = self.cluster.stores.pods.get(&name)?;
        (pod.metadata.uid.as_deref() == Some(&key.uid)).then_some(pod)
    }

    async fn try_once(&self, key: &EvictionKey) -> Result<Requeue, ReconcileError> {
        let Some(pod) = self.pod(key) else {
            return Ok(Requeue::Done);
        };
        let node = self.cluster.stores.nodes.get_named(&key.node);
        let claim = node
            .as_deref()
            .and_then(|node| self.cluster.stores.claim_of_node(node));
        let deadline = claim.as_deref().map(deadline).transpose()?.flatten();
        let reason = termination::eviction_reason(claim.as_deref());
        let now = self.cluster.now();
        // A pod whose deadline comes before the next try is looked at right then (D-328).
        let due = || {
            termination::delete_after(&pod, deadline).map_or(Duration::MAX, |start| {
                let left = self.cluster.clock.until(start);
                left.saturating_add(Duration::from_millis(1))
            })
        };
        let step = termination::eviction_step(&pod, deadline, now);
        if !matches!(step, EvictionStep::Evict(_)) {
            // Whoever is not evicted now gives its turn up: turns that are kept for later would all be due at once then.
            self.reserved().remove(key);
        }
        let (action, event) = match step {
            EvictionStep::Drop => return Ok(Requeue::Done),
            EvictionStep::Keep => {
                self.turns().leave(&key.uid);
                return Ok(Requeue::After(PROTECTED_POLL.min(due())));
            }
            EvictionStep::Evict(action) => {
                // Its node may have been interrupted since it began to wait.
                let is_interrupted = self.is_interrupted(&key.node);
                if is_interrupted || !takes_turn(&pod, claim.as_deref(), deadline, now) {
                    self.turns().leave(&key.uid);
                }
                let wait = self.wait(key, now);
                if !wait.is_zero() {
                    return Ok(Requeue::After(wait.min(due())));
                }
                (action, None)
            }
            EvictionStep::Delete(action, event) => (action, Some(event)),
        };
        let evicting = event.is_none();
        let target = ObjectRef::namespaced(ObjectKind::Pod, &key.namespace, &key.name, &key.uid);
        match self.hands.run(&action).await {
            Ok(()) => {
                self.turns().accept(&key.uid, self.cluster.now());
                if evicting {
                    self.journal.families.pods_eviction_requests.inc(&["200"]);
                }
                self.journal.families.pods_drained.inc(&[&reason]);
                self.hands
                    .tell(&event.unwrap_or_else(|| termination::evicted_event(&target, &reason)));
                tracing::debug!(Pod = %key, Node = key.node, "evicted pod");
                Ok(Requeue::Done)
            }
            Err(error) if error.is_not_found() || error.is_conflict() => {
                if evicting {
                    self.journal
                        .families
                        .pods_eviction_requests
                        .inc(&[if error.is_not_found() { "404" } else { "409" }]);
                }
                Ok(Requeue::Done)
            }
            Err(error @ ExecuteError::Refused { .. }) => {
                // A server that is busy refuses nobody for long.
                let is_busy = matches!(
                    &error,
                    ExecuteError::Refused {
                        by: Refuser::BusyServer,
                        ..
                    }
                );
                let wait = self.refused(key, &target, node.as_deref(), error);
                if !is_busy {
                    self.turns().leave(&key.uid);
                }
                Ok(Requeue::After(wait.min(due())))
            }
            Err(error) => {
                // It is counted and waits like any failure, but of two times the queue keeps the earlier: no outage makes it miss its deadline.
                if evicting {
                    self.queue.add_after(key.clone(), due());
                }
                Err(error.into())
            }
        }
    }

    /// Counts and tells a refusal, and returns how long to wait before the next try.
    fn refused(
        &self,
        key: &EvictionKey,
        target: &ObjectRef,
        node: Option<&Node>,
        error: ExecuteError,
    ) -> Duration {
        let ExecuteError::Refused {
            by,
            retry_after,
            code,
            message,
            ..
        } = &error
        else {
            return FIRST_DELAY;
        };
        self.journal
            .families
            .pods_eviction_requests
            .inc(&[&code.to_string()]);
        let count = self.note_refusal(key, *code, message);
        let delay = backoff(count).max(retry_after.unwrap_or_default());
        let uid = node
            .and_then(|node| node.metadata.uid.as_deref())
            .unwrap_or_default();
        let node = ObjectRef::cluster(ObjectKind::Node, &key.node, uid);
        match by {
            Refuser::Budget | Refuser::SeveralBudgets => {
                let several_budgets = *by == Refuser::SeveralBudgets;
                self.hands
                    .tell(&termination::refused_event(node, target, several_budgets));
                tracing::debug!(%error, retry_in = ?delay, "eviction refused");
            }
            Refuser::BusyServer => {}
            Refuser::Other => {
                self.hands
                    .tell(&termination::rejected_event(node, target, *code, message));
                tracing::error!(Pod = %key, Node = key.node, %error, retry_in = ?delay, "eviction failed");
            }
        }
        delay
    }
}

impl Controller for Evictions {
    const NAME: &'static str = "eviction-queue";
    const RETRY: (Duration, Duration) = (FIRST_DELAY, LONGEST_DELAY);
    type Key = EvictionKey;

    fn workers(options: &Options) -> usize {
        options.scaled(WORKERS.0, WORKERS.1)
    }

    fn retry_bucket(options: &Options) -> Option<(f64, u32)> {
        let per_second = u32::try_from(options.scaled(RETRIES.0, RETRIES.1)).unwrap_or(u32::MAX);
        Some((f64::from(per_second), per_second.saturating_mul(10)))
    }

    /// Pods are handed over by the drains of their nodes. Those that wait for larger ones are looked at as well when their node is interrupted.
    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, EvictionKey>) {
        // The stores hold what hears of their changes, and must not hold themselves by it.
        let evictions = Arc::downgrade(self);
        on.change(
            |stores| &stores.node_claims,
            move |_, change| {
                let evictions = evictions.upgrade();
                evictions.map_or_else(Vec::new, |evictions| evictions.hurried(change))
            },
        );
    }

    /// One try; whatever ends the waiting forgets the refusals and the turn.
    async fn reconcile(self: Arc<Self>, key: EvictionKey) -> Looked {
        let result = self.try_once(&key).await;
        if matches!(result, Ok(Requeue::Done)) {
            self.refusals().remove(&key);
            self.reserved().remove(&key);
        }
        // Nobody waits for a pod that is gone, or whose eviction fails.
        if !matches!(result, Ok(Requeue::After(_))) {
            self.turns().leave(&key.uid);
        }
        result
    }
}

fn deadline_text(claim: Option<&NodeClaim>) -> Option<&str> {
    claim?.annotation(labels::TERMINATION_TIMESTAMP)
}

/// D-327: 100 ms, doubling to 10 s.
fn backoff(refusals: u32) -> Duration {
    FIRST_DELAY
        .saturating_mul(1 << refusals.min(10))
        .min(LONGEST_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_327_refusals_are_tried_again_ever_more_slowly() {
        let delays: Vec<u128> = (0..9).map(|count| backoff(count).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(backoff(u32::MAX), LONGEST_DELAY);
    }

    #[test]
    fn d_327_tries_after_failures_grow_with_the_cores() {
        let at = |cpu_requests_milli| {
            let options = Options {
                cpu_requests_milli,
                ..Options::default()
            };
            Evictions::retry_bucket(&options)
        };
        assert_eq!(at(1000), Some((100.0, 1000)));
        assert_eq!(at(60_000), Some((5000.0, 50_000)));
    }
}
