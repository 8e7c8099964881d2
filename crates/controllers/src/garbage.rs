//! Garbage collection: NodeClaims whose instance is gone, and instances that no NodeClaim names (D §7.3).

use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::constants::GARBAGE_COLLECTION_PERIOD;
use spokeshave_model::Action;
use spokeshave_plan::garbage_collection::{claims_without_instance, leaked_instances};
use spokeshave_plan::lifecycle::claim_ref;
use spokeshave_runtime::{ReconcileError, Requeue};

use crate::decision::DecisionKind;
use crate::shared::Shared;

/// Period while a fresh start may have left something behind (D-252).
const FIRST_PERIOD: Duration = Duration::from_secs(10);
/// Passes with the short period.
const FIRST_PASSES: u32 = 20;

/// The collector.
#[derive(Debug)]
pub(crate) struct Garbage {
    shared: Arc<Shared>,
    passes: std::sync::atomic::AtomicU32,
}

impl Garbage {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared,
            passes: std::sync::atomic::AtomicU32::new(0),
        })
    }

    /// One pass in both directions.
    pub(crate) async fn collect(self: Arc<Self>) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        // D-250: claims before instances for one direction, instances before claims for the other.
        let claims_before = shared.stores.node_claims.snapshot();
        let instances = shared.provider.list().await?;
        let claims_after = shared.stores.node_claims.snapshot();
        let nodes = shared.stores.nodes.snapshot();
        for claim in claims_without_instance(&claims_before, &instances, &nodes) {
            if !shared.is_ours(&claim) {
                continue;
            }
            match shared.execute.run(&Action::delete(claim_ref(&claim))).await {
                Ok(()) => {
                    shared.count_disrupted(&claim, "garbage_collected");
                    shared.count_initiated(&claim, "garbage_collected");
                    tracing::info!(
                        NodeClaim = claim.name(),
                        "garbage collecting nodeclaim with no cloudprovider representation"
                    );
                    shared.note(
                        DecisionKind::Trouble,
                        claim.name(),
                        "deleted",
                        "its instance no longer exists",
                        None,
                    );
                }
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        for instance in leaked_instances(&instances, &claims_after, shared.now()) {
            match shared.provider.delete(&instance).await {
                Ok(()) => {
                    let id = instance.provider_id().unwrap_or_default();
                    tracing::info!(
                        "provider-id" = id,
                        "garbage collecting instance without nodeclaim"
                    );
                    shared.note(
                        DecisionKind::Trouble,
                        id,
                        "ended",
                        "no NodeClaim names this instance",
                        None,
                    );
                    self.delete_node(id).await;
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(Box::new(error)),
            }
        }
        let passes = self.passes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(Requeue::After(if passes < FIRST_PASSES {
            FIRST_PERIOD
        } else {
            GARBAGE_COLLECTION_PERIOD
        }))
    }

    /// D-252: the Node of a leaked instance goes with it.
    async fn delete_node(&self, provider_id: &str) {
        for node in self.shared.stores.nodes_by_provider_id.get(provider_id) {
            if let Err(error) = self
                .shared
                .execute
                .run(&Action::delete(spokeshave_plan::lifecycle::node_ref(&node)))
                .await
            {
                tracing::debug!(%error, "deleting the node of a leaked instance; the next pass tries again");
            }
        }
    }
}
