//! Garbage collection: NodeClaims whose instance is gone, instances that no NodeClaim names (D §7.3), and NodeClaims whose Node was taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_api::constants::GARBAGE_COLLECTION_PERIOD;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::{Action, Event, EventType};
use spokeshave_plan::garbage_collection::{
    MissingNodes, claims_without_instance, given_up_event, leaked_instances, orphaned_replacements,
};
use spokeshave_plan::lifecycle::claim_ref;
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
    cloud: Measured,
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
        match self.hands.run(&Action::delete(claim_ref(claim))).await {
            Ok(()) => {}
            Err(error) if error.is_not_found() || error.is_conflict() => return Ok(()),
            Err(error) => return Err(error.into()),
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
        self.delete_node(id).await;
        Ok(())
    }

    /// D-252: the Node of a leaked instance goes with it.
    async fn delete_node(&self, provider_id: &str) {
        for node in self.cluster.stores.nodes_by_provider_id.get(provider_id) {
            if let Err(error) = self
                .hands
                .run(&Action::delete(spokeshave_plan::lifecycle::node_ref(&node)))
                .await
            {
                tracing::debug!(%error, "deleting the node of a leaked instance; the next pass tries again");
            }
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
        let instances = match self.cloud.list().await {
            // Nothing has failed: the cloud has just started, and says so.
            Err(CloudError::Postponed { message, again_after }) => {
                tracing::info!(reason = message, "garbage is collected later");
                return Ok(Requeue::After(again_after));
            }
            listed => listed?,
        };
        let (claims_after, unreadable) = self.cluster.stores.node_claims.with_rejected();
        let nodes = self.cluster.stores.nodes.snapshot();
        let mut failure: Option<ReconcileError> = None;
        for claim in claims_without_instance(&claims_before, &instances, &nodes) {
            if self.cluster.is_ours(&claim)
                && let Err(error) = self.delete_claim(&claim, "its instance no longer exists").await
            {
                failure.get_or_insert(error);
            }
        }
        for claim in self.look_for_missing_nodes(&nodes) {
            self.hands.tell(&given_up_event(&claim));
            if let Err(error) = self
                .delete_claim(&claim, "its Node has been gone for too long")
                .await
            {
                failure.get_or_insert(error);
            }
        }
        let (commands, unread_commands) = self.cluster.stores.disruptions.with_rejected();
        let commands = commands.into_iter().map(|one| (one.name().to_owned(), one));
        let commands: BTreeMap<String, Arc<Disruption>> = commands.collect();
        let command = |name: &str| commands.get(name).cloned();
        for claim in orphaned_replacements(&claims_after, command, &unread_commands, self.cluster.now()) {
            if self.cluster.is_ours(&claim)
                && let Err(error) = self
                    .delete_claim(&claim, "the command that it was to replace nodes for is no more")
                    .await
            {
                failure.get_or_insert(error);
            }
        }
        let leaked = self.leaked(&instances, claims_after, unreadable).await;
        let leaked = leaked.unwrap_or_else(|error| {
            failure.get_or_insert(error);
            Vec::new()
        });
        for instance in leaked {
            if let Err(error) = self.end_leaked(&instance).await {
                failure.get_or_insert(error);
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let passes = self.passes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Requeue::After(if passes < FIRST_PASSES {
            FIRST_PERIOD
        } else {
            GARBAGE_COLLECTION_PERIOD
        }))
    }
}
