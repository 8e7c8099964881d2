//! Messages of the cloud about instances that will end (D §7.6): their NodeClaims go at once, and their pods are planned for at once.
//!
//! Owns the messages that are not acknowledged yet. A message is acknowledged when all that follows from it is written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::NodeClaim;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_plan::interruption::respond;
use spokeshave_ports::{CloudProvider as _, Interruption};
use spokeshave_runtime::{ReconcileError, Requeue, Shutdown, WorkQueue};

use crate::act::hands::Hands;
use crate::cloud::Measured;
use crate::controller::{Controller, Looked};
use crate::observe::decision::DecisionKind;
use crate::observe::journal::Journal;
use crate::observe::notices;
use crate::reconcile::eviction::Evictions;
use crate::reconcile::provisioner::Provisioner;
use crate::reconcile::unreadable;
use crate::state::cluster::Cluster;

/// Our own write is seen again within this time.
const SEEN_AGAIN: Duration = Duration::from_millis(50);

/// A message about an instance that no NodeClaim names is kept for so long: its launch may be on its way into the store (D-278).
const UNKNOWN_FOR: Duration = Duration::from_secs(30);
/// The same while NodeClaims cannot be read: it may be the instance of one of them. Messages about others' instances must not pile up for ever, though.
const UNREADABLE_FOR: Duration = Duration::from_secs(3600);

/// The controller of interruptions.
#[derive(Debug)]
pub(crate) struct Interruptions {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    provisioner: Arc<Provisioner>,
    evictions: Arc<Evictions>,
    queue: WorkQueue<String>,
    cloud: Measured,
    /// Messages in hand, by ID, each with the time of its first arrival.
    pending: Mutex<BTreeMap<String, (Interruption, Timestamp)>>,
}

impl Interruptions {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        hands: Hands,
        journal: Arc<Journal>,
        provisioner: Arc<Provisioner>,
        evictions: Arc<Evictions>,
        queue: WorkQueue<String>,
    ) -> Arc<Self> {
        let cloud = cluster.cloud.of(Self::NAME);
        Arc::new(Self {
            cluster,
            hands,
            journal,
            provisioner,
            evictions,
            queue,
            cloud,
            pending: Mutex::default(),
        })
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<String, (Interruption, Timestamp)>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to messages and notices of the cloud until shutdown.
    pub(crate) async fn listen(self: Arc<Self>, shutdown: Shutdown) {
        let notices = notices::publish(self.cloud.clone(), self.hands.clone(), shutdown.clone());
        futures::join!(self.listen_to_messages(shutdown), notices);
    }

    /// A cloud without messages is not listened to.
    async fn listen_to_messages(self: Arc<Self>, shutdown: Shutdown) {
        let Some(mut messages) = self.cloud.interruptions() else {
            return;
        };
        while let Some(Some(message)) = shutdown.cut(messages.next()).await {
            let id = message.id.clone();
            let known = self.keep(&message);
            if let Ok(kind) = &message.kind
                && known.is_none_or(|(known, _)| known.kind != message.kind)
            {
                self.journal.families.interruptions_received.inc(&[kind.label()]);
            }
            self.queue.add(id);
        }
    }

    /// Keeps a message, and returns it as it was known. One that is delivered again has arrived when it did first: a queue may deliver it more often than it may wait.
    fn keep(&self, message: &Interruption) -> Option<(Interruption, Timestamp)> {
        let now = self.cluster.now();
        let mut pending = self.pending();
        let arrived = pending.get(&message.id).map_or(now, |(_, arrived)| *arrived);
        pending.insert(message.id.clone(), (message.clone(), arrived))
    }

    /// How long a message took from the event to its end (D-286); from its arrival on where the cloud does not tell when that was.
    fn queued(&self, message: &Interruption, arrived: Timestamp) -> SignedDuration {
        self.cluster
            .now()
            .duration_since(message.sent_at.unwrap_or(arrived).min(arrived))
    }

    /// Whether everything that follows from a message has been done to a NodeClaim, and seen.
    async fn answered(
        &self,
        claim: &NodeClaim,
        kind: InterruptionKind,
        message: &Interruption,
    ) -> Result<bool, ReconcileError> {
        let nodes = self.cluster.stores.nodes_by_provider_id.get(&message.provider_id);
        if kind.ends_node() {
            nodes.iter().for_each(|node| self.evictions.hurry(node));
        }
        let node = nodes.first().map(|node| &**node);
        let plan = respond(claim, node, kind, message.ends_at, self.cluster.now());
        let is_stale = !self.hands.carry_out(&plan).await?;
        if plan.actions.is_empty() {
            if kind.ends_node() {
                // Its pods need another node now, not when the next window of the batch closes.
                self.provisioner.urge(claim.uid());
            }
            return Ok(true);
        }
        if is_stale || claim.is_deleting() {
            return Ok(false);
        }
        self.journal.count_disrupted(claim, kind.label());
        tracing::info!(
            NodeClaim = claim.name(),
            kind = kind.label(),
            "initiating delete from interruption message"
        );
        self.journal.note(
            DecisionKind::Trouble,
            claim.name(),
            format!("deleted ({})", kind.label()),
            "its cloud takes the instance back",
            None,
        );
        Ok(false)
    }
}

impl Controller for Interruptions {
    const NAME: &'static str = "interruption";
    const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
    type Key = String;

    /// One look at a message.
    async fn reconcile(self: Arc<Self>, id: String) -> Looked {
        let Some((message, arrived)) = self.pending().get(&id).cloned() else {
            return Ok(Requeue::Done);
        };
        match &message.kind {
            Err(text) => {
                tracing::error!(id, text, "deleting a message that cannot be read");
            }
            Ok(kind) => {
                let stores = &self.cluster.stores;
                let look = || stores.claims_by_provider_id.get(&message.provider_id);
                let (claims, unreadable) = unreadable::beside(&stores.node_claims, look);
                let wait = if unreadable.is_empty() {
                    UNKNOWN_FOR
                } else {
                    UNREADABLE_FOR
                };
                let is_named = !message.provider_id.is_empty();
                if claims.is_empty() && is_named && self.cluster.clock.since(arrived) < wait {
                    return Ok(Requeue::After(Duration::from_secs(1)));
                }
                for claim in claims {
                    if self.cluster.is_ours(&claim) && !self.answered(&claim, *kind, &message).await? {
                        return Ok(Requeue::After(SEEN_AGAIN));
                    }
                }
            }
        }
        match self.cloud.acknowledge(&message).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(Box::new(error)),
        }
        self.pending().remove(&id);
        let families = &self.journal.families;
        families.interruptions_deleted.inc(&[]);
        if message.kind.is_ok() {
            let queued = self.queued(&message, arrived);
            families
                .interruption_duration
                .observe(&[], queued.as_secs_f64().max(0.0));
        }
        Ok(Requeue::Done)
    }
}
