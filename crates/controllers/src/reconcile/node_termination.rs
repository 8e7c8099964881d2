//! Nodes that are being deleted: taint, drain, volumes, instance, finalizer (D §8.3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::{Conditioned, DRAINED, INSTANCE_TERMINATING, VOLUMES_DETACHED};
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::pod::node_name;
use spokeshave_model::{Event, EventType, ObjectRef, Pod};
use spokeshave_plan::blockers::{self, BLOCKED_AFTER, Blocker};
use spokeshave_plan::lifecycle::node_ref;
use spokeshave_plan::termination::{self, NodeEnd, NodeNext, Size};
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_runtime::{ReconcileError, Requeue};
use tokio::sync::Semaphore;

use crate::act::hands::Hands;
use crate::act::instance_end::InstanceEnd;
use crate::cloud::Measured;
use crate::controller::{Controller, Looked, Triggers};
use crate::observe::decision::DecisionKind;
use crate::observe::journal::Journal;
use crate::observe::repeats::Repeats;
use crate::options::Options;
use crate::reconcile::eviction::{EvictionKey, Evictions};
use crate::reconcile::unreadable;
use crate::state::cluster::Cluster;
use crate::state::stores::Stores;

/// Nodes that are worked on at once, at one core and at sixty (D-318).
const WORKERS: (usize, usize) = (100, 5000);

/// Drained nodes whose pods the API server is asked for at once: with sixty cores, thousands may be drained in the same second.
const LISTS_AT_ONCE: usize = 20;

/// Least time between two questions to the cloud for one instance whose Node is not ready.
const ASK_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// The controller of Nodes on their way out.
#[derive(Debug)]
pub(crate) struct NodeTermination {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    evictions: Arc<Evictions>,
    cloud: Measured,
    /// When the cloud was last asked for an instance, by provider ID.
    asked: Mutex<BTreeMap<String, Timestamp>>,
    /// Nodes that the API server, too, has found drained, by name, with their UIDs.
    drained: Mutex<BTreeMap<String, String>>,
    /// Whose turn it is to ask the API server for the pods of a node.
    lists: Semaphore,
    /// Nodes whose NodeClaims cannot be read, as it was said.
    held: Mutex<Repeats>,
}

impl NodeTermination {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        hands: Hands,
        journal: Arc<Journal>,
        evictions: Arc<Evictions>,
    ) -> Arc<Self> {
        let cloud = cluster.cloud.of(Self::NAME);
        Arc::new(Self {
            cluster,
            hands,
            journal,
            evictions,
            cloud,
            asked: Mutex::default(),
            drained: Mutex::default(),
            lists: Semaphore::new(LISTS_AT_ONCE),
            held: Mutex::default(),
        })
    }

    /// D-299: only Nodes of this cloud's NodeClasses are handled. One whose label somebody took away is known by its claim.
    fn is_managed(&self, node: &Node, claim: Option<&NodeClaim>) -> bool {
        let kinds = self.cluster.cloud.supported_node_classes();
        let labels = node.metadata.labels.as_ref();
        let labelled =
            labels.is_some_and(|labels| kinds.iter().any(|kind| labels.contains_key(&kind.label())));
        labelled || claim.is_some_and(|claim| self.cluster.is_ours(claim))
    }

    /// What holds up the drain or the volumes, once it does so for longer than is usual.
    fn blocker(&self, end: &NodeEnd<'_>, claim: &NodeClaim, now: Timestamp) -> Option<Blocker> {
        // The look before may have begun the wait: read the claim again.
        let claim = self.cluster.stores.node_claims.get_named(claim.name())?;
        let waits = |type_: &str| {
            claim.condition(type_).is_some_and(|condition| {
                let since = now.duration_since(condition.last_transition_time);
                condition.status == "Unknown"
                    && Duration::try_from(since).is_ok_and(|since| since >= BLOCKED_AFTER)
            })
        };
        let deadline = termination::deadline(&claim).ok().flatten();
        if waits(DRAINED) {
            let name = end.node.metadata.name.as_deref().unwrap_or_default();
            let budgets = &self.cluster.stores.pod_disruption_budgets;
            return blockers::drain_blocker(
                end.pods,
                |namespace| budgets.in_namespace(namespace),
                |pod| self.evictions.refusal(pod, name),
                deadline,
                now,
            );
        }
        if waits(VOLUMES_DETACHED) {
            return blockers::volume_blocker(&termination::blocking_attachments(end), deadline);
        }
        None
    }

    fn kept_volumes(&self, pods: &[Arc<Pod>], now: jiff::Timestamp) -> BTreeSet<String> {
        let claims = &self.cluster.stores.persistent_volume_claims;
        termination::claims_of_kept_pods(pods, now)
            .iter()
            .filter_map(|key| {
                let (namespace, name) = key.split_once('/')?;
                claims
                    .get(&spokeshave_runtime::ObjectKey::namespaced(namespace, name))?
                    .spec
                    .as_ref()?
                    .volume_name
                    .clone()
            })
            .collect()
    }

    /// Hands pods to the eviction queue. On a node that a command removes, they take turns.
    fn hand_over(&self, evict: &[ObjectRef], end: &NodeEnd<'_>, now: Timestamp) {
        let deadline = end
            .claim
            .and_then(|claim| termination::deadline(claim).ok().flatten());
        let name = end.node.metadata.name.as_deref().unwrap_or_default();
        let keys = evict.iter().map(|target| EvictionKey::new(target, name));
        self.evictions.add_all(keys.collect(), |uid| {
            let mut pods = end.pods.iter();
            let pod = pods.find(|pod| pod.metadata.uid.as_deref() == Some(uid))?;
            Size::of_turn(pod, end.claim, deadline, now)
        });
    }

    fn drained(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.drained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Invariants 1 and 38: whether a node is drained as the API server has it. A watch that stands still tells of no pod that was bound before the taint, which would end
    /// with its machine. It is asked once, and not any more when the machine is ending.
    async fn has_drained(&self, end: &NodeEnd<'_>) -> Result<bool, ReconcileError> {
        let metadata = &end.node.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let is_ending = end.claim.is_some_and(|claim| claim.is_true(INSTANCE_TERMINATING));
        if is_ending || self.drained().get(name).is_some_and(|known| known == uid) {
            return Ok(true);
        }
        let turn = self.lists.acquire().await?;
        let has_drained = self.hands.has_drained(name).await?;
        drop(turn);
        if has_drained {
            let stores = &self.cluster.stores;
            let mut drained = self.drained();
            // A Node goes without our release when somebody takes our finalizer away.
            if drained.len() > stores.nodes.len() {
                drained.retain(|name, uid| stores.has_node(name, uid));
            }
            drained.insert(name.to_owned(), uid.to_owned());
        }
        Ok(has_drained)
    }

    async fn is_gone(&self, id: &str) -> Result<bool, ReconcileError> {
        if !self.may_ask(id) {
            return Ok(false);
        }
        match self.cloud.get(id).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_not_found() => Ok(true),
            // The cloud will not say yet: the drain goes on, and its last step reports the delay (W-30).
            Err(CloudError::Postponed { .. }) => Ok(false),
            Err(error) => Err(Box::new(error)),
        }
    }

    /// A drain is looked at with every change of a pod; the cloud need not be asked as often.
    fn may_ask(&self, id: &str) -> bool {
        let now = self.cluster.now();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked
            .get(id)
            .is_some_and(|last| now.duration_since(*last) < ASK_PAUSE)
        {
            return false;
        }
        asked.insert(id.to_owned(), now);
        true
    }

    async fn terminate(&self, node: &Node, claim: Option<&NodeClaim>) -> Result<Requeue, ReconcileError> {
        // The claim may have been written by this very look: read it again.
        let claims = &self.cluster.stores.node_claims;
        let look = || claim.and_then(|claim| claims.get_named(claim.name()));
        let (current, unreadable) = unreadable::beside(claims, look);
        let unread = claim.filter(|claim| unreadable.contains(claim.name()));
        let Some(claim) = current else {
            return match unread {
                Some(claim) => Ok(self.hold(node, claim.name())),
                None => self.release(node, "it has no nodeclaim").await,
            };
        };
        match self
            .hands
            .end_instance(&self.cloud, &claim, Some(node_ref(node)))
            .await?
        {
            InstanceEnd::Gone => self.release(node, "its instance is gone").await,
            InstanceEnd::Ending(poll) => Ok(Requeue::After(poll)),
            InstanceEnd::Stale => Ok(Requeue::Stale),
        }
    }

    /// Invariants 11 and 14: a Node whose NodeClaim is there and cannot be read stays as it is. Nobody knows how long its pods may take, and without the Node
    /// its instance would run on, unseen.
    fn hold(&self, node: &Node, claim: &str) -> Requeue {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_due(name.to_owned(), self.cluster.now()) {
            let detail = format!(
                "NodeClaim {claim} cannot be read, and the Node ends once it can be: correct it, or run the version that wrote it"
            );
            tracing::warn!(Node = name, NodeClaim = claim, detail, "termination is held up");
            let event = Event::new(node_ref(node), EventType::Warning, "TerminationBlocked", detail);
            self.hands.tell(&event);
        }
        Requeue::After(unreadable::PAUSE)
    }

    async fn release(&self, node: &Node, why: &str) -> Result<Requeue, ReconcileError> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.drained().remove(name);
        let Some(current) = self.cluster.stores.nodes.get_named(name) else {
            return Ok(Requeue::Done);
        };
        let Some(action) = termination::release_node(&current) else {
            return Ok(Requeue::Done);
        };
        match self.hands.run(&action).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() => return Ok(Requeue::Done),
            Err(error) if error.is_conflict() => return Ok(Requeue::Stale),
            Err(error) => return Err(error.into()),
        }
        let label = |key: &str| {
            node.metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(key))
                .cloned()
                .unwrap_or_default()
        };
        let (pool, zone) = (label(labels::NODE_POOL), label(labels::ZONE));
        let now = self.cluster.now();
        self.journal.families.nodes_terminated.inc(&[&pool, &zone]);
        if let Some(deleted) = &node.metadata.deletion_timestamp {
            self.journal
                .families
                .nodes_termination_duration
                .observe(&[&pool], now.duration_since(deleted.0).as_secs_f64());
        }
        if let Some(created) = &node.metadata.creation_timestamp {
            self.journal
                .families
                .nodes_lifetime
                .observe(&[&pool], now.duration_since(created.0).as_secs_f64());
        }
        if let Some(id) = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) {
            self.asked
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(id);
        }
        tracing::info!(Node = name, reason = why, "deleted node");
        self.cluster.memory().nominations.remove(
            node.spec
                .as_ref()
                .and_then(|spec| spec.provider_id.as_deref())
                .unwrap_or_default(),
        );
        Ok(Requeue::Done)
    }
}

impl Controller for NodeTermination {
    const NAME: &'static str = "node.termination";
    const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
    type Key = String;

    fn workers(options: &Options) -> usize {
        options.scaled(WORKERS.0, WORKERS.1)
    }

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        on.change(
            |stores| &stores.nodes,
            |_, change| {
                let node = change.new.as_deref().filter(|node| is_going(node))?;
                Some(node.metadata.name.clone().unwrap_or_default())
            },
        );
        let goes =
            |stores: &Stores, name: &str| stores.nodes.get_named(name).is_some_and(|node| is_going(&node));
        on.change(
            |stores| &stores.pods,
            move |stores, change| {
                let pods: [Option<&Pod>; 2] = [change.old.as_deref(), change.new.as_deref()];
                let name = pods.into_iter().flatten().find_map(node_name);
                name.filter(|name| goes(stores, name)).map(str::to_owned)
            },
        );
        on.change(
            |stores| &stores.volume_attachments,
            move |stores, change| {
                let name = change
                    .object()
                    .map(|attachment| attachment.spec.node_name.clone());
                name.filter(|name| goes(stores, name))
            },
        );
    }

    /// One look at a Node.
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let Some(node) = self.cluster.stores.nodes.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
        let held = finalizers.iter().any(|one| one == labels::TERMINATION_FINALIZER);
        let stores = &self.cluster.stores;
        let (claim, unreadable) = unreadable::beside(&stores.node_claims, || stores.claim_of_node(&node));
        if node.metadata.deletion_timestamp.is_none() || !held || !self.is_managed(&node, claim.as_deref()) {
            return Ok(Requeue::Done);
        }
        if claim.is_none()
            && let Some(unread) = unreadable::claim_of_node(&node, &unreadable)
        {
            return Ok(self.hold(&node, unread));
        }
        let pods = self.cluster.stores.pods_by_node.get(&name);
        let attachments = self.cluster.stores.attachments_by_node.get(&name);
        let now = self.cluster.now();
        let kept_volumes = self.kept_volumes(&pods, now);
        let end = NodeEnd {
            node: &node,
            claim: claim.as_deref(),
            pods: &pods,
            attachments: &attachments,
            kept_volumes: &kept_volumes,
        };
        if let Some(id) = termination::asked_for(&end)
            && self.is_gone(id).await?
        {
            let noted = match &claim {
                Some(claim) => self.hands.note_instance_gone(claim).await?,
                None => InstanceEnd::Gone,
            };
            return match noted {
                InstanceEnd::Gone => self.release(&node, "its instance was gone already").await,
                InstanceEnd::Ending(_) | InstanceEnd::Stale => Ok(Requeue::Stale),
            };
        }
        let plan = match termination::node_step(&end, now) {
            Ok(plan) => plan,
            Err(error) => {
                if let Some(claim) = &claim {
                    let blocker = blockers::deadline_blocker(&error);
                    self.hands
                        .report_blocker(claim, Some(node_ref(&node)), Some(&blocker))
                        .await;
                }
                return Err(error.into());
            }
        };
        if !matches!(plan.report.next, NodeNext::Wait(_)) && !self.has_drained(&end).await? {
            return Ok(Requeue::Stale);
        }
        // Before the writes: a NodeClaim whose status cannot be written keeps no pod on a node that may be about to end.
        self.hand_over(&plan.report.evict, &end, now);
        if !self.hands.carry_out(&plan).await? {
            return Ok(Requeue::Stale);
        }
        let step = plan.report;
        if step.drained {
            let name_of_claim = claim.as_ref().map(|claim| claim.name()).unwrap_or_default();
            tracing::info!(Node = name, NodeClaim = name_of_claim, "drained node");
            self.journal.families.nodes_drained.inc(&[claim
                .as_ref()
                .and_then(|claim| claim.node_pool())
                .unwrap_or_default()]);
        }
        if let Some(count) = step.begins {
            tracing::info!(Node = name, pods = count, "tainted node");
            let what = match count {
                0 => "nothing to evict".to_owned(),
                1 => "evicting 1 pod".to_owned(),
                count => format!("evicting {count} pods"),
            };
            self.journal
                .note(DecisionKind::Drain, &name, what, "the node is to go", None);
        }
        if let Some(claim) = &claim
            && matches!(step.next, NodeNext::Wait(_))
        {
            let blocker = self.blocker(&end, claim, now);
            self.hands
                .report_blocker(claim, Some(node_ref(&node)), blocker.as_ref())
                .await;
        }
        match step.next {
            NodeNext::Wait(duration) => Ok(Requeue::After(duration)),
            NodeNext::Release => self.release(&node, "it is drained").await,
            NodeNext::TerminateInstance => self.terminate(&node, claim.as_deref()).await,
        }
    }
}

fn is_going(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_some()
}
