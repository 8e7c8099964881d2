//! How launches end, for the health of their NodePool (P-182) and for what is known of their zone.
//!
//! Owns who learns of it. What follows from it is decided by `plan`.

use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, NODE_REGISTRATION_HEALTHY};
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_plan::registration_health::LaunchEnd;
use spokeshave_plan::unjoined_zones::avoided_event;

use crate::act::hands::Hands;
use crate::state::cluster::Cluster;

/// Takes in that the Node of a claim has joined, at this time. Of what came before this term, the condition of the NodePool tells what is older than itself; while it
/// is of another template, or there is none, what came before says nothing of this one.
pub(crate) fn joined(cluster: &Cluster, claim: &NodeClaim, at: Timestamp) {
    let Some(pool) = pool_of(cluster, claim) else {
        return;
    };
    cluster.cloud.zones().joined(claim, at);
    let health = pool.condition(NODE_REGISTRATION_HEALTHY);
    let is_untold = health.is_some_and(|health| {
        health.observed_generation == pool.metadata.generation && health.last_transition_time < at
    });
    if is_of_term(cluster, at) || is_untold {
        let mut memory = cluster.memory();
        memory.health_of(pool.uid()).take_in(&pool, LaunchEnd::Registered);
    }
}

/// Takes in that a claim is given up, because its launch or its Node took too long.
pub(crate) fn failed(cluster: &Cluster, hands: &Hands, claim: &NodeClaim) {
    let Some(pool) = pool_of(cluster, claim) else {
        return;
    };
    avoid_zone(cluster, hands, claim, &pool);
    let mut memory = cluster.memory();
    memory
        .health_of(pool.uid())
        .take_in(&pool, LaunchEnd::of_timed_out(claim));
}

/// Whether something happened in this term of leadership. Times of conditions are whole seconds.
pub(crate) fn is_of_term(cluster: &Cluster, at: Timestamp) -> bool {
    at.as_second() >= cluster.started.as_second()
}

/// The NodePool that a claim was made from: no other learns of its end.
fn pool_of(cluster: &Cluster, claim: &NodeClaim) -> Option<Arc<NodePool>> {
    let pool = cluster.stores.node_pools.get_named(claim.node_pool()?)?;
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == pool.uid()).then_some(pool)
}

fn avoid_zone(cluster: &Cluster, hands: &Hands, claim: &NodeClaim, pool: &NodePool) {
    if let Some(until) = cluster.cloud.zones().timed_out(claim, cluster.now()) {
        let zone = claim.label(labels::ZONE).unwrap_or_default();
        tracing::warn!(NodePool = pool.name(), zone, %until, "nodes do not join in this zone; other zones come first");
        hands.tell(&avoided_event(pool, zone, until));
    }
}
