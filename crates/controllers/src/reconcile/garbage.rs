//! Garbage collection: NodeClaims whose instance is gone, instances that no NodeClaim names (D §7.3), and NodeClaims whose Node was taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_api::constants::GARBAGE_COLLECTION_PERIOD;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::{Action, Event, EventType};
use spokeshave_plan::garbage_collection::{
    MissingNodes, claims_without_instance, given_up_event, leaked_instances, orphaned_replacements,
};
use spokeshave_plan::lifecycle::{claim_ref, node_ref};
use spokeshave_plan::nodepool::pool_ref;
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_runtime::{ReconcileError, Requeue, SINGLETON, Singleton};

use crate::act::hands::Hands;
use crate::cloud::Measured;
use crate::controller::{Controller, Looked, Triggers};
use crate::observe::decision::DecisionKind;
use crate::observe::journal::Journal;
use crate::options::Options;
use crate::state::cluster::Cluster;

/// Period while a fresh start may have left something behind (D-252).
const FIRST_PERIOD: Duration = Duration::from_secs(10);
/// Passes with the short period.
const FIRST_PASSES: u32 = 20;

/// The collector.
#[derive(Debug)]
pub(crate) struct Garbage {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    passes: std::sync::atomic::AtomicU32,
    missing: Mutex<MissingNodes>,
    /// Provider IDs of leaked instances that were ended, while a Node of theirs may be left. Lost: it stays until somebody who knows the machine deletes it.
    ended: Mutex<BTreeSet<String>>,
    cloud: Measured,
}

/// What has failed first in a pass, all of which is done nevertheless.
#[derive(Default)]
struct Failure(Option<ReconcileError>);

impl Failure {
    fn note(&mut self, outcome: Result<(), ReconcileError>) {
        if let Err(error) = outcome {
            self.0.get_or_insert(error);
        }
    }
}

impl Garbage {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands, journal: Arc<Journal>) -> Arc<Self> {
        let cloud = cluster.cloud.of(Self::NAME);
        Arc::new(Self {
            cluster,
            hands,
            journal,
            cloud,
            passes: std::sync::atomic::AtomicU32::new(0),
            missing: Mutex::default(),
            ended: Mutex::default(),
        })
    }

    /// Tells which NodeClaims have lost their Node; returns those that have been without it for too long. The claims are read after the Nodes: one
    /// that has registered in between is looked at again in the next pass.
    fn look_for_missing_nodes(&self, nodes: &[Arc<Node>]) -> Vec<Arc<NodeClaim>> {
        let mut claims = self.cluster.stores.node_claims.snapshot();
        claims.retain(|claim| self.cluster.is_ours(claim));
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let (events, overdue) = missing.look(&claims, nodes, self.cluster.now());
        for event in &events {
            tracing::warn!(
                NodeClaim = event.object.name,
                detail = event.message,
                "node missing"
            );
            self.hands.tell(event);
        }
        overdue
    }

    /// D-249.
    async fn delete_claim(&self, claim: &NodeClaim, why: &str) -> Result<(), ReconcileError> {
        let delete = Action::delete(claim_ref(claim));
        if !self.hands.run_unless_stale(&[delete]).await? {
            return Ok(());
        }
        self.journal.count_disrupted(claim, "garbage_collected");
        self.journal.count_initiated(claim, "garbage_collected");
        tracing::info!(
            NodeClaim = claim.name(),
            reason = why,
            "garbage collecting nodeclaim"
        );
        self.journal
            .note(DecisionKind::Trouble, claim.name(), "deleted", why, None);
        Ok(())
    }

    /// D-252: instances that no NodeClaim names, neither as far as the watch has told nor by the API server. It is asked where there seem to be any: a replica
    /// that was suspended, or whose watch stands still, does not know what another one has launched meanwhile (invariants 36 and 38).
    async fn leaked(
        &self,
        instances: &[NodeClaim],
        mut claims: Vec<Arc<NodeClaim>>,
        mut unreadable: BTreeSet<String>,
    ) -> Result<Vec<NodeClaim>, ReconcileError> {
        let now = self.cluster.now();
        if leaked_instances(instances, &claims, &unreadable, now).is_empty() {
            return Ok(Vec::new());
        }
        let (present, unread) = self.hands.all_claims().await?;
        claims.extend(present.into_iter().map(Arc::new));
        unreadable.extend(unread);
        Ok(leaked_instances(instances, &claims, &unreadable, now))
    }

    /// D-252.
    async fn end_leaked(&self, instance: &NodeClaim) -> Result<(), ReconcileError> {
        match self.cloud.delete(instance).await {
            // It was listed a moment ago: one that is gone now has ended on this word, and its Node is left.
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            // No NodeClaim could say so: the log does, once a pass.
            Err(CloudError::Postponed { message, .. }) => {
                tracing::info!(
                    "provider-id" = instance.provider_id().unwrap_or_default(),
                    reason = message,
                    "instance without nodeclaim is terminated later"
                );
                return Ok(());
            }
            Err(error) => return Err(Box::new(error)),
        }
        let id = instance.provider_id().unwrap_or_default();
        tracing::info!(
            "provider-id" = id,
            "garbage collecting instance without nodeclaim"
        );
        let pool = instance
            .node_pool()
            .and_then(|pool| self.cluster.stores.node_pools.get_named(pool));
        if let Some(pool) = pool {
            let message = format!(
                "Instance {id}, made for NodeClaim {}, belongs to no NodeClaim any more and is terminated",
                instance.name()
            );
            let event = Event::new(
                pool_ref(&pool),
                EventType::Warning,
                "LeakedInstanceTerminated",
                message,
            );
            self.hands.tell(&event.deduped_by([id.to_owned()]));
        }
        self.journal.note(
            DecisionKind::Trouble,
            id,
            "ended",
            "no NodeClaim names this instance",
            None,
        );
        if !id.is_empty() {
            self.ended().insert(id.to_owned());
        }
        Ok(())
    }

    fn ended(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// D-252: the Node of a leaked instance goes with it, in this pass or in a later one: then the cloud lists the instance no more.
    async fn delete_nodes(&self, provider_id: &str) -> Result<(), ReconcileError> {
        let stores = &self.cluster.stores;
        // A NodeClaim that has this ID by now ends its Node itself.
        if stores.claims_by_provider_id.get(provider_id).is_empty() {
            for node in stores.nodes_by_provider_id.get(provider_id) {
                let delete = Action::delete(node_ref(&node));
                self.hands.run_unless_stale(&[delete]).await?;
            }
        }
        self.ended().remove(provider_id);
        Ok(())
    }

    /// D-249: registered NodeClaims whose instance is gone.
    async fn collect_without_instance(
        &self,
        claims: &[Arc<NodeClaim>],
        instances: &[NodeClaim],
        nodes: &[Arc<Node>],
        failure: &mut Failure,
    ) {
        for claim in claims_without_instance(claims, instances, nodes) {
            if self.cluster.is_ours(&claim) {
                failure.note(self.delete_claim(&claim, "its instance no longer exists").await);
            }
        }
    }

    /// What needs no list of the cloud: NodeClaims whose Node is missing for too long, and replacements whose command is no more.
    async fn collect_forsaken(&self, claims: &[Arc<NodeClaim>], nodes: &[Arc<Node>], failure: &mut Failure) {
        for claim in self.look_for_missing_nodes(nodes) {
            self.hands.tell(&given_up_event(&claim));
            let why = "its Node has been gone for too long";
            failure.note(self.delete_claim(&claim, why).await);
        }
        let (commands, unread_commands) = self.cluster.stores.disruptions.with_rejected();
        let commands = commands.into_iter().map(|one| (one.name().to_owned(), one));
        let commands: BTreeMap<String, Arc<Disruption>> = commands.collect();
        let command = |name: &str| commands.get(name).cloned();
        for claim in orphaned_replacements(claims, command, &unread_commands, self.cluster.now()) {
            if self.cluster.is_ours(&claim) {
                let why = "the command that it was to replace nodes for is no more";
                failure.note(self.delete_claim(&claim, why).await);
            }
        }
    }

    /// D-252: instances that no NodeClaim names, and their Nodes.
    async fn collect_leaked(
        &self,
        instances: &[NodeClaim],
        claims: Vec<Arc<NodeClaim>>,
        unreadable: BTreeSet<String>,
        failure: &mut Failure,
    ) {
        match self.leaked(instances, claims, unreadable).await {
            Ok(leaked) => {
                for instance in leaked {
                    failure.note(self.end_leaked(&instance).await);
                }
            }
            Err(error) => failure.note(Err(error)),
        }
    }
}

impl Controller for Garbage {
    const NAME: &'static str = "nodeclaim.garbagecollection";
    const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
    type Key = Singleton;

    fn workers(_: &Options) -> usize {
        1
    }

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, Singleton>) {
        on.first(SINGLETON);
    }

    /// One pass in all directions. What fails does not keep the rest; the pass is tried again for it.
    async fn reconcile(self: Arc<Self>, _: Singleton) -> Looked {
        // D-250: claims before instances for one direction, instances before claims for the other.
        let claims_before = self.cluster.stores.node_claims.snapshot();
        let mut failure = Failure::default();
        let mut postponed = None;
        let instances = match self.cloud.list().await {
            Ok(instances) => Some(instances),
            // Nothing has failed: the cloud has just started, and says so.
            Err(CloudError::Postponed { message, again_after }) => {
                tracing::info!(reason = message, "instances are compared with nodeclaims later");
                postponed = Some(again_after);
                None
            }
            Err(error) => {
                failure.note(Err(Box::new(error)));
                None
            }
        };
        let (claims_after, unreadable) = self.cluster.stores.node_claims.with_rejected();
        let nodes = self.cluster.stores.nodes.snapshot();
        if let Some(instances) = &instances {
            self.collect_without_instance(&claims_before, instances, &nodes, &mut failure)
                .await;
        }
        self.collect_forsaken(&claims_after, &nodes, &mut failure).await;
        if let Some(instances) = &instances {
            self.collect_leaked(instances, claims_after, unreadable, &mut failure)
                .await;
        }
        let ended: Vec<String> = self.ended().iter().cloned().collect();
        for id in &ended {
            failure.note(self.delete_nodes(id).await);
        }
        if let Some(error) = failure.0 {
            return Err(error);
        }
        if let Some(again_after) = postponed {
            return Ok(Requeue::After(again_after));
        }
        let passes = self.passes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Requeue::After(if passes < FIRST_PASSES {
            FIRST_PERIOD
        } else {
            GARBAGE_COLLECTION_PERIOD
        }))
    }
}
