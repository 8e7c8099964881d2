//! The condition Drifted of NodeClaims (D §6.1). Looks when the NodeClaim, its NodePool or its NodeClass changes, and every five minutes; not when
//! pods come and go (W-21).

use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::conditions::{Conditioned as _, DRIFTED, LAUNCHED};
use spokeshave_api::constants::DRIFT_PERIOD;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::InstanceType;
use spokeshave_plan::drift::{Finding, check, condition_action};
use spokeshave_ports::CloudProvider as _;
use spokeshave_runtime::Requeue;

use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::state::cluster::Cluster;

/// The controller of the condition.
#[derive(Debug)]
pub(crate) struct Drift {
    cluster: Arc<Cluster>,
    hands: Hands,
}

/// What the finding depends on, of a NodeClaim.
fn matters(claim: &NodeClaim) -> impl PartialEq + use<'_> {
    (
        claim.metadata.uid.as_deref(),
        claim.metadata.labels.as_ref(),
        claim.metadata.annotations.as_ref(),
        claim.is_deleting(),
        claim.is_true(LAUNCHED),
        claim.is_true(DRIFTED),
    )
}

impl Drift {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands) -> Arc<Self> {
        Arc::new(Self { cluster, hands })
    }
}

impl Controller for Drift {
    const NAME: &'static str = "nodeclaim.disruption";
    const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
    type Key = String;

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        on.change(
            |stores| &stores.node_claims,
            |_, change| {
                let (old, claim) = (change.old.as_deref(), change.new.as_deref()?);
                let differs = old.is_none_or(|old| matters(old) != matters(claim));
                differs.then(|| claim.name().to_owned())
            },
        );
        on.change(
            |stores| &stores.node_pools,
            |stores, change| {
                let matters = |pool: &NodePool| (pool.metadata.generation, pool.metadata.annotations.clone());
                let old = change.old.as_deref();
                let pool = change.new.as_deref();
                let pool = pool.filter(|pool| old.is_none_or(|old| matters(old) != matters(pool)));
                let claims = pool.map(|pool| stores.claims_by_pool.get(pool.name()));
                claims
                    .unwrap_or_default()
                    .into_iter()
                    .map(|claim| claim.name().to_owned())
            },
        );
        on.node_classes("nodeclaim.nodeclasses", |stores| {
            stores.node_claims.keys().into_iter().map(|key| key.name)
        });
    }

    /// One look at a NodeClaim.
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let Some(claim) = self.cluster.stores.node_claims.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        if claim.is_deleting() || !self.cluster.is_ours(&claim) {
            return Ok(Requeue::Done);
        }
        let pool = claim
            .node_pool()
            .and_then(|pool| self.cluster.stores.node_pools.get_named(pool));
        let types: Option<Arc<[InstanceType]>> = match &pool {
            Some(pool) => self.cluster.cloud.instance_types(pool).await.ok(),
            None => None,
        };
        // A catalogue without a single type is a fault of the catalogue, not of every node.
        let types = types.filter(|types| !types.is_empty());
        let reason = match check(&claim, pool.as_deref(), types.as_deref(), self.cluster.now())? {
            Finding::Leave => return Ok(Requeue::After(DRIFT_PERIOD)),
            Finding::NotLaunched => None,
            Finding::Drifted(reason) => Some(reason.to_owned()),
            Finding::AskCloud => {
                // The class that is seen here: the cloud's own copy may be older than the change for which this looks.
                let reference = &claim.spec.node_class_ref;
                if !self.cluster.node_classes.has_listed(reference) {
                    // What is not known yet is not gone. This is woken when classes are listed.
                    return Ok(Requeue::After(DRIFT_PERIOD));
                }
                let class = self.cluster.node_classes.object(reference);
                match self.cluster.cloud.is_drifted(&claim, class.as_deref()).await {
                    Ok(answer) => answer.filter(|reason| !reason.is_empty()),
                    Err(error) if error.is_not_found() => return Ok(Requeue::After(DRIFT_PERIOD)),
                    Err(error) => return Err(Box::new(error)),
                }
            }
        };
        // The cloud may have taken its time: what is written is compared with what is there now.
        let Some(current) = self.cluster.stores.node_claims.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        if current.uid() != claim.uid() || matters(&current) != matters(&claim) {
            return Ok(Requeue::After(Duration::ZERO));
        }
        if let Some(action) = condition_action(&current, reason.as_deref(), self.cluster.now()) {
            match self.hands.run(&action).await {
                Ok(()) => {
                    let reason = reason.as_deref().unwrap_or("none");
                    tracing::info!(NodeClaim = name, reason, "drift of nodeclaim changed");
                }
                Err(error) if error.is_not_found() => return Ok(Requeue::Done),
                Err(error) if error.is_conflict() => {
                    return Ok(Requeue::Stale);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Requeue::After(DRIFT_PERIOD))
    }
}
