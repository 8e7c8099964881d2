//! What the API server itself is asked before a command starts, because a watch may stand still (invariants 2 and 38).
//!
//! Owns these questions; what is not known for certain is decided again.

use spokeshave_api::NodePool;
use spokeshave_plan::disrupt::Command;

use crate::act::hands::Hands;
use crate::state::cluster::Cluster;

/// A command whose creation had no answer may exist, and charges budgets: nothing is decided until it is known, or known not to exist.
pub(super) async fn settle(cluster: &Cluster, hands: &Hands, unanswered: &mut Option<String>) {
    let Some(name) = unanswered.as_deref() else {
        return;
    };
    if cluster.stores.disruptions.get_named(name).is_none()
        && let Err(error) = hands.read_disruption(name).await
    {
        tracing::error!(
            command = name,
            %error,
            "nothing is disrupted while nobody knows whether the last command was written down; it is asked again"
        );
        return;
    }
    *unanswered = None;
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
