//! The condition Drifted of NodeClaims (D §6.1). Looks when the NodeClaim, its NodePool or its NodeClass changes, and every five minutes; not when
//! pods come and go (W-21).

use std::sync::Arc;

use spokeshave_api::conditions::{Conditioned as _, DRIFTED, LAUNCHED};
use spokeshave_api::constants::DRIFT_PERIOD;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::InstanceType;
use spokeshave_plan::drift::{Finding, check, condition_action};
use spokeshave_runtime::{ReconcileError, Requeue, Shutdown, WorkQueue};

use crate::shared::Shared;

/// The controller of the condition.
#[derive(Debug)]
pub(crate) struct Drift {
    shared: Arc<Shared>,
    pub(crate) queue: WorkQueue<String>,
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
    pub(crate) fn new(shared: Arc<Shared>, queue: WorkQueue<String>) -> Arc<Self> {
        let stores = &shared.stores;
        let later = queue.clone();
        stores.node_claims.on_change(move |change| {
            let Some(claim) = change.new.as_deref() else {
                return;
            };
            if change
                .old
                .as_deref()
                .is_none_or(|old| matters(old) != matters(claim))
            {
                later.add(claim.name().to_owned());
            }
        });
        let (later, claims) = (queue.clone(), stores.claims_by_pool.clone());
        stores.node_pools.on_change(move |change| {
            let Some(pool) = change.new.as_deref() else { return };
            let matters = |pool: &NodePool| (pool.metadata.generation, pool.metadata.annotations.clone());
            if change
                .old
                .as_deref()
                .is_none_or(|old| matters(old) != matters(pool))
            {
                for claim in claims.get(pool.name()) {
                    later.add(claim.name().to_owned());
                }
            }
        });
        Arc::new(Self { shared, queue })
    }

    /// Looks at all NodeClaims when a NodeClass changes.
    pub(crate) async fn follow_node_classes(self: Arc<Self>, shutdown: Shutdown) {
        let mut changes = self.shared.node_classes.changes();
        while let Some(Ok(())) = shutdown.cut(changes.changed()).await {
            self.shared
                .stores
                .node_claims
                .for_each(|_, claim| self.queue.add(claim.name().to_owned()));
        }
    }

    /// One look at a NodeClaim.
    pub(crate) async fn reconcile(self: Arc<Self>, name: String) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        let Some(claim) = shared.stores.node_claims.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        if claim.is_deleting() || !shared.is_ours(&claim) {
            return Ok(Requeue::Done);
        }
        let pool = claim
            .node_pool()
            .and_then(|pool| shared.stores.node_pools.get_named(pool));
        let types: Option<Arc<[InstanceType]>> = match &pool {
            Some(pool) => shared.provider.instance_types(pool).await.ok(),
            None => None,
        };
        // A catalogue without a single type is a fault of the catalogue, not of every node.
        let types = types.filter(|types| !types.is_empty());
        let reason = match check(&claim, pool.as_deref(), types.as_deref(), shared.now())? {
            Finding::Leave => return Ok(Requeue::After(DRIFT_PERIOD)),
            Finding::NotLaunched => None,
            Finding::Drifted(reason) => Some(reason.to_owned()),
            Finding::AskCloud => match shared.provider.is_drifted(&claim).await {
                Ok(answer) => answer.filter(|reason| !reason.is_empty()),
                Err(error) if error.is_not_found() => return Ok(Requeue::After(DRIFT_PERIOD)),
                Err(error) => return Err(Box::new(error)),
            },
        };
        // The cloud may have taken its time: what is written is compared with what is there now.
        let Some(current) = shared.stores.node_claims.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        if current.uid() != claim.uid() || matters(&current) != matters(&claim) {
            return Ok(Requeue::After(std::time::Duration::ZERO));
        }
        if let Some(action) = condition_action(&current, reason.as_deref(), shared.now()) {
            match shared.execute.run(&action).await {
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
