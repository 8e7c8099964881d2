//! The eviction queue (D §8.5): one pod at a time through the Eviction API, with a back-off of its own, until it goes or its deadline comes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spokeshave_model::{ObjectKind, ObjectRef};
use spokeshave_plan::termination::{self, EvictionStep, deadline};
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue, WorkQueue};

use crate::execute::ExecuteError;
use crate::shared::Shared;

/// How often a pod that may not be evicted now is looked at again.
const PROTECTED_POLL: Duration = Duration::from_secs(10);

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
}

impl fmt::Display for EvictionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Evictions {
    shared: Arc<Shared>,
    pub(crate) queue: WorkQueue<EvictionKey>,
    /// How often each pod was refused: a refusal is no fault, so it has a back-off apart from the queue's.
    refusals: Mutex<BTreeMap<EvictionKey, u32>>,
}

impl Evictions {
    pub(crate) fn new(shared: Arc<Shared>, queue: WorkQueue<EvictionKey>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            queue,
            refusals: Mutex::default(),
        })
    }

    /// Hands a pod over; one that waits for its next try keeps waiting.
    pub(crate) fn add(&self, key: EvictionKey) {
        if self.queue.failures(&key) == 0 && !self.refusals().contains_key(&key) {
            self.queue.add(key);
        }
    }

    fn refusals(&self) -> MutexGuard<'_, BTreeMap<EvictionKey, u32>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// D-327: 100 ms, doubling to 10 s.
    fn next_delay(&self, key: &EvictionKey) -> Duration {
        let mut refusals = self.refusals();
        let count = refusals.entry(key.clone()).or_insert(0);
        let delay = FIRST_DELAY
            .saturating_mul(1 << (*count).min(10))
            .min(LONGEST_DELAY);
        *count += 1;
        delay
    }

    /// One try; whatever ends the waiting forgets the refusals.
    pub(crate) async fn reconcile(self: Arc<Self>, key: EvictionKey) -> Result<Requeue, ReconcileError> {
        let result = self.try_once(key.clone()).await;
        if matches!(result, Ok(Requeue::Done)) {
            self.refusals().remove(&key);
        }
        result
    }

    async fn try_once(&self, key: EvictionKey) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        let Some(pod) = shared
            .stores
            .pods
            .get(&ObjectKey::namespaced(&key.namespace, &key.name))
        else {
            return Ok(Requeue::Done);
        };
        if pod.metadata.uid.as_deref() != Some(&key.uid) {
            return Ok(Requeue::Done);
        }
        let node = shared.stores.nodes.get_named(&key.node);
        let id = node
            .as_ref()
            .and_then(|node| node.spec.as_ref()?.provider_id.clone())
            .unwrap_or_default();
        let claim = shared.stores.claims_by_provider_id.get(&id).into_iter().next();
        let deadline = claim.as_deref().map(deadline).transpose()?.flatten();
        let reason = termination::eviction_reason(claim.as_deref());
        let (action, event) = match termination::eviction_step(&pod, deadline, shared.now()) {
            EvictionStep::Drop => return Ok(Requeue::Done),
            EvictionStep::Keep => return Ok(Requeue::After(PROTECTED_POLL)),
            EvictionStep::Evict(action) => (action, None),
            EvictionStep::Delete(action, event) => (action, Some(event)),
        };
        let evicting = event.is_none();
        let target = ObjectRef::namespaced(ObjectKind::Pod, &key.namespace, &key.name, &key.uid);
        match shared.execute.run(&action).await {
            Ok(()) => {
                if evicting {
                    shared.families.pods_eviction_requests.inc(&["200"]);
                }
                shared.families.pods_drained.inc(&[&reason]);
                shared
                    .execute
                    .tell(&event.unwrap_or_else(|| termination::evicted_event(&target, &reason)));
                tracing::debug!(Pod = %key, Node = key.node, "evicted pod");
                Ok(Requeue::Done)
            }
            Err(error) if error.is_not_found() || error.is_conflict() => {
                if evicting {
                    shared
                        .families
                        .pods_eviction_requests
                        .inc(&[if error.is_not_found() { "404" } else { "409" }]);
                }
                Ok(Requeue::Done)
            }
            Err(error) => {
                if let ExecuteError::Refused {
                    several_budgets,
                    code,
                    ..
                } = &error
                {
                    shared.families.pods_eviction_requests.inc(&[&code.to_string()]);
                    if *code == 429 || *several_budgets {
                        let node = ObjectRef::cluster(
                            ObjectKind::Node,
                            &key.node,
                            node.as_ref()
                                .and_then(|node| node.metadata.uid.as_deref())
                                .unwrap_or_default(),
                        );
                        shared
                            .execute
                            .tell(&termination::refused_event(node, &target, *several_budgets));
                        // A pod whose deadline comes before the next try is looked at right then (D-328).
                        let due = termination::delete_after(&pod, deadline)
                            .map(|start| shared.clock.until(start).saturating_add(Duration::from_millis(1)));
                        let delay = self.next_delay(&key).min(due.unwrap_or(Duration::MAX));
                        tracing::debug!(%error, retry_in = ?delay, "eviction refused");
                        return Ok(Requeue::After(delay));
                    }
                }
                Err(error.into())
            }
        }
    }
}
