//! NodeOverlays (P §13): judged together whenever one of them, a NodePool or a NodeClass changes, and every six hours.
//!
//! Owns when they are judged and what their statuses say, and what overlays said last that cannot be read any more. What is in force is kept by [`Overlays`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spokeshave_api::constants::OVERLAY_PERIOD;
use spokeshave_api::{NodeOverlay, NodePool};
use spokeshave_plan::overlays::{Evaluation, PoolTypes, Verdict, evaluate, status_action};
use spokeshave_ports::CloudError;
use spokeshave_runtime::{ReconcileError, Requeue};

use crate::act::hands::Hands;
use crate::cloud::Measured;
use crate::cloud::overlays::Overlays;
use crate::controller::{Controller, Looked, Triggers};
use crate::options::Options;
use crate::reconcile::provisioner::Provisioner;
use crate::state::cluster::Cluster;

/// All overlays are judged together: there is one key.
const ALL: &str = "all";

/// Pause between two looks while an overlay counts as it was last read: no change tells that it was deleted.
const KEPT_LOOK: Duration = Duration::from_secs(60);

/// The controller of NodeOverlays.
#[derive(Debug)]
pub(crate) struct NodeOverlays {
    cluster: Arc<Cluster>,
    hands: Hands,
    overlays: Overlays,
    provisioner: Arc<Provisioner>,
    last: Mutex<LastRead>,
}

/// The overlays at the last look, and the names of those that could not be read then.
#[derive(Debug, Default)]
struct LastRead {
    overlays: Vec<Arc<NodeOverlay>>,
    unreadable: BTreeSet<String>,
}

impl LastRead {
    /// Takes in what is there now. An overlay that cannot be read is as it was last read, so that no price changes for it; one that never was has no effect.
    /// Says once what becomes of each.
    fn take_in(&mut self, mut overlays: Vec<Arc<NodeOverlay>>, unreadable: BTreeSet<String>) {
        let kept = self.overlays.iter().filter(|overlay| {
            let name = overlay.name();
            unreadable.contains(name) && overlays.iter().all(|readable| readable.name() != name)
        });
        let kept: Vec<Arc<NodeOverlay>> = kept.cloned().collect();
        overlays.extend(kept);
        for name in unreadable.difference(&self.unreadable) {
            let name = name.as_str();
            if overlays.iter().any(|overlay| overlay.name() == name) {
                tracing::warn!(
                    NodeOverlay = name,
                    "nodeoverlay cannot be read and counts as it was last read, until a restart: correct it, or delete it"
                );
            } else {
                tracing::warn!(
                    NodeOverlay = name,
                    "nodeoverlay cannot be read and has no effect: correct it, or delete it"
                );
            }
        }
        *self = Self { overlays, unreadable };
    }
}

impl NodeOverlays {
    /// `None` when the feature gate is off.
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        hands: Hands,
        provisioner: Arc<Provisioner>,
    ) -> Option<Arc<Self>> {
        let overlays = cluster.cloud.overlays()?.clone();
        Some(Arc::new(Self {
            cluster,
            hands,
            overlays,
            provisioner,
            last: Mutex::default(),
        }))
    }

    /// All overlays, some of them as they were last read, and the names of those that cannot be read.
    fn known(&self) -> (Vec<Arc<NodeOverlay>>, BTreeSet<String>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (overlays, unreadable) = self.cluster.stores.node_overlays.with_rejected();
        last.take_in(overlays, unreadable);
        (last.overlays.clone(), last.unreadable.clone())
    }

    fn put_into_force(&self, evaluation: Evaluation, pools: &[PoolTypes]) {
        let names = pools.iter().map(|one| one.pool.name().to_owned());
        self.overlays.swap(evaluation.in_force, names.collect());
        // Pods may have waited for a NodePool.
        self.provisioner.batcher.trigger("nodeoverlays");
    }
}

impl Controller for NodeOverlays {
    const NAME: &'static str = "nodeoverlay.controller";
    type Key = String;

    /// All are judged together.
    fn workers(_: &Options) -> usize {
        1
    }

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        on.first(ALL.to_owned());
        on.change(
            |stores| &stores.node_overlays,
            |_, change| {
                // Our own status comes back this way too.
                let generation =
                    |overlay: &NodeOverlay| (overlay.metadata.uid.clone(), overlay.metadata.generation);
                let differs = change.old.as_deref().map(generation) != change.new.as_deref().map(generation);
                differs.then(|| ALL.to_owned())
            },
        );
        on.change(
            |stores| &stores.node_pools,
            |_, change| {
                let generation = |pool: &NodePool| (pool.metadata.uid.clone(), pool.metadata.generation);
                let differs = change.old.as_deref().map(generation) != change.new.as_deref().map(generation);
                differs.then(|| ALL.to_owned())
            },
        );
        on.node_classes("nodeoverlay.nodeclasses", |_| [ALL.to_owned()]);
    }

    /// Judges all overlays, writes what changed in their statuses, and puts them into force. A NodePool whose types cannot be had keeps no other
    /// from being looked at, and a status that cannot be written keeps no overlay out of force (invariant 22); both are tried again. An overlay that cannot
    /// be read counts as it was last read.
    async fn reconcile(self: Arc<Self>, _all: String) -> Looked {
        let (pools, failed) = gather(&self.cluster.cloud, self.cluster.stores.node_pools.snapshot()).await;
        let (overlays, unreadable) = self.known();
        let evaluation = evaluate(&overlays, &pools, &self.cluster.options.label_rules);
        let are_kept = overlays.iter().any(|overlay| unreadable.contains(overlay.name()));
        let mut failure = failed.map(ReconcileError::from);
        for (overlay, verdict) in &evaluation.verdicts {
            // Its status is not the one that was read.
            if unreadable.contains(overlay.name()) {
                continue;
            }
            let Some(action) = status_action(overlay, verdict, self.cluster.now()) else {
                continue;
            };
            match self.hands.run(&action).await {
                Ok(()) => tell(overlay, verdict),
                // What was judged is not what is there any more: all over again (P §13).
                Err(error) if error.is_conflict() || error.is_not_found() => return Ok(Requeue::Stale),
                Err(error) => _ = failure.get_or_insert(error.into()),
            }
        }
        self.put_into_force(evaluation, &pools);
        match failure {
            Some(error) => Err(error),
            None if are_kept => Ok(Requeue::After(KEPT_LOOK)),
            None => Ok(Requeue::After(OVERLAY_PERIOD)),
        }
    }
}

/// The NodePools with their uncorrected types, and the last failure.
async fn gather(cloud: &Measured, pools: Vec<Arc<NodePool>>) -> (Vec<PoolTypes>, Option<CloudError>) {
    let (mut found, mut failed) = (Vec::new(), None);
    for pool in pools {
        match cloud.plain_instance_types(&pool).await {
            Ok(types) => found.push(PoolTypes { pool, types }),
            Err(error) => {
                let context = format!("listing instance types for nodepool {:?}", pool.name());
                failed = Some(error.context(&context));
            }
        }
    }
    (found, failed)
}

fn tell(overlay: &NodeOverlay, verdict: &Verdict) {
    let name = overlay.name();
    match verdict {
        Verdict::InForce => tracing::info!(NodeOverlay = name, "nodeoverlay is in force"),
        Verdict::Invalid(failures) => {
            tracing::error!(
                NodeOverlay = name,
                error = failures,
                "nodeoverlay is invalid and has no effect"
            );
        }
        Verdict::Conflict(conflict) => {
            tracing::error!(NodeOverlay = name, error = %conflict, "nodeoverlay conflicts with another and has no effect");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::distress::Failures;
    use futures::FutureExt as _;
    use spokeshave_api::NodeClaim;
    use spokeshave_example::{instance_type, node_pool};
    use spokeshave_model::InstanceType;
    use spokeshave_plan::overlays::InForce;
    use spokeshave_ports::{CloudFuture, CloudProvider, NodeClassKind, RepairPolicy, TokioClock};
    use spokeshave_runtime::Metrics;

    /// It knows the types of every NodePool but `broken`, and does nothing.
    #[derive(Debug)]
    struct Idle;

    impl CloudProvider for Idle {
        fn name(&self) -> &str {
            "idle"
        }
        fn supported_node_classes(&self) -> &[NodeClassKind] {
            &[]
        }
        fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
            async { Ok(claim.clone()) }.boxed()
        }
        fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
            async { Ok(()) }.boxed()
        }
        fn get<'a>(&'a self, id: &'a str) -> CloudFuture<'a, NodeClaim> {
            async { Err(CloudError::NodeClaimNotFound(id.to_owned())) }.boxed()
        }
        fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
            async { Ok(Vec::new()) }.boxed()
        }
        fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
            let found = match pool.name() {
                "broken" => Err(CloudError::Other("no NodeClass".to_owned())),
                _ => Ok(vec![instance_type("t", 2, 8, &["a"])].into()),
            };
            async { found }.boxed()
        }
        fn is_drifted<'a>(
            &'a self,
            _: &'a NodeClaim,
            _: Option<&'a kube::api::DynamicObject>,
        ) -> CloudFuture<'a, Option<String>> {
            async { Ok(None) }.boxed()
        }
        fn repair_policies(&self) -> &[RepairPolicy] {
            &[]
        }
    }

    #[tokio::test(start_paused = true)]
    async fn p_061_a_pool_that_fails_stops_no_other() {
        let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
        let families = crate::observe::metrics::ControllerFamilies::new(&Metrics::new(clock.clone()));
        let limit = std::time::Duration::from_secs(1);
        let cloud = Measured::new(
            Arc::new(Idle),
            clock.clone(),
            families,
            Failures::new(clock),
            limit,
        )
        .under(Overlays::default());
        let pools = ["a", "broken", "c"].map(|name| Arc::new(node_pool(name)));
        let (found, failed) = gather(&cloud, pools.to_vec()).await;
        let names: Vec<&str> = found.iter().map(|one| one.pool.name()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(
            failed.unwrap().to_string(),
            "listing instance types for nodepool \"broken\": no NodeClass",
            "it is tried again"
        );
        // D-365: until then nobody counts on any type, whoever asks.
        for pool in &pools {
            let error = cloud.instance_types(pool).await.unwrap_err();
            assert!(matches!(error, CloudError::UnevaluatedNodePool(_)) || pool.name() == "broken");
        }
        let names = names.into_iter().map(str::to_owned).collect();
        cloud.overlays().unwrap().swap(InForce::default(), names);
        assert!(cloud.instance_types(&pools[0]).await.is_ok());
        assert!(cloud.instance_types(&pools[1]).await.is_err());
    }
}
