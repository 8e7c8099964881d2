//! What the API server itself is asked before a command starts, because a watch may stand still (invariants 2 and 38).
//!
//! Owns these questions; what is not known for certain is decided again.

use spokeshave_api::NodePool;
use spokeshave_plan::disrupt::Command;

use crate::act::hands::Hands;
use crate::state::cluster::Cluster;

/// A command whose creation had no answer may exist, and charges budgets. False until the API server has said that it does not; one that exists is known
/// from then on.
pub(super) async fn is_last_one_settled(hands: &Hands, unanswered: &mut Option<String>) -> bool {
    let Some(name) = unanswered.as_deref() else {
        return true;
    };
    match hands.read_disruption(name).await {
        Ok(exists) => {
            *unanswered = None;
            !exists
        }
        Err(error) => {
            tracing::error!(
                command = name,
                %error,
                "disruption not started while nobody knows whether the last one was; it is decided again"
            );
            false
        }
    }
}

/// Behind a watch that stands still a budget may have been closed a while ago: whether the NodePools are those that the command was decided by.
pub(super) async fn are_budgets_known(cluster: &Cluster, hands: &Hands, command: &Command) -> bool {
    for pool in command.budget_use().into_keys() {
        let version = |pool: &NodePool| (pool.metadata.uid.clone(), pool.metadata.generation);
        let known = cluster.stores.node_pools.get_named(pool);
        let known = known.as_deref().map(version);
        match hands.get::<NodePool>(pool).await {
            Ok(current) if current.as_ref().map(version) == known => {}
            Ok(_) => {
                tracing::debug!(NodePool = pool, "has changed; its disruption is decided again");
                return false;
            }
            Err(error) => {
                tracing::error!(NodePool = pool, %error, "disruption not started; it is decided again");
                return false;
            }
        }
    }
    true
}
