//! NodeClaims that were launched and whose provider ID somebody has taken away: it is looked for, and nothing is launched for it.
//!
//! Owns who is asked, and how often. Whose word counts is decided in `plan::provider_ids`.

use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, LAUNCHED};
use spokeshave_plan::lifecycle::{self, Liveness};
use spokeshave_plan::provider_ids;
use spokeshave_ports::CloudProvider as _;
use spokeshave_runtime::{ReconcileError, Requeue};

use super::Claims;

/// Pause between two questions to the cloud for an instance that it has not listed.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl Claims {
    /// A look at a launched NodeClaim without provider ID. One whose instance is not found ends as others do: when it does not register in time, or by garbage collection.
    pub(super) async fn look_for_instance(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        if let Some(requeue) = self.restore_id(claim).await? {
            return Ok(requeue);
        }
        match lifecycle::liveness(claim, self.cluster.now()) {
            Liveness::TimedOut(reason) => {
                self.time_out(
                    claim,
                    reason,
                    "its provider ID is gone, and nobody knows its instance",
                )
                .await
            }
            Liveness::Within(left) => Ok(Requeue::After(left.min(LOOK_AGAIN))),
            Liveness::Fine => Ok(Requeue::After(LOOK_AGAIN)),
        }
    }

    /// Gives a launched NodeClaim its provider ID back; `None` when it has one, or nobody knows its instance. Its Node is asked first: the cloud may remember neither UID
    /// nor name.
    pub(super) async fn restore_id(&self, claim: &NodeClaim) -> Result<Option<Requeue>, ReconcileError> {
        if !claim.is_true(LAUNCHED) || claim.provider_id().is_some() {
            return Ok(None);
        }
        let stores = &self.cluster.stores;
        let nodes = stores.nodes.snapshot();
        let mut id = provider_ids::on_node(claim, &nodes).map(str::to_owned);
        if id.is_none() {
            let listed = self.cloud.list().await?;
            let is_taken = |id: &str| !stores.claims_by_provider_id.get(id).is_empty();
            id = provider_ids::in_list(claim, &listed, is_taken).map(str::to_owned);
        }
        let Some(id) = id else {
            tracing::warn!(
                NodeClaim = claim.name(),
                "nobody knows the instance of a nodeclaim without provider id"
            );
            return Ok(None);
        };
        let action = provider_ids::restored(claim, &id);
        if !self.write(action.as_slice()).await? {
            return Ok(Some(Requeue::Stale));
        }
        tracing::info!(
            NodeClaim = claim.name(),
            "provider-id" = id,
            "restored provider id"
        );
        Ok(Some(Self::next_step(true)))
    }
}
