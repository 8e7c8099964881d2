//! How launches end, for the health of their NodePool (P-182) and for what is known of their zone.
//!
//! Owns who learns of it. What follows from it is decided by `plan`.

use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_plan::registration_health::LaunchEnd;
use spokeshave_plan::unjoined_zones::avoided_event;

use crate::act::hands::Hands;
use crate::state::cluster::Cluster;

/// Takes in how a launch ended: only the NodePool that the claim was made from learns of it.
pub(crate) fn note(cluster: &Cluster, hands: &Hands, claim: &NodeClaim, end: LaunchEnd) {
    let owners = claim.metadata.owner_references.iter().flatten();
    let pool = claim
        .node_pool()
        .and_then(|name| cluster.stores.node_pools.get_named(name))
        .filter(|pool| owners.into_iter().any(|owner| owner.uid == pool.uid()));
    let Some(pool) = pool else { return };
    match end {
        LaunchEnd::Registered => cluster.cloud.zones().joined(claim, cluster.now()),
        LaunchEnd::Failed { .. } => avoid_zone(cluster, hands, claim, &pool),
    }
    cluster.memory().health_of(pool.uid()).record(end);
}

fn avoid_zone(cluster: &Cluster, hands: &Hands, claim: &NodeClaim, pool: &NodePool) {
    if let Some(until) = cluster.cloud.zones().timed_out(claim, cluster.now()) {
        let zone = claim.label(labels::ZONE).unwrap_or_default();
        tracing::warn!(NodePool = pool.name(), zone, %until, "nodes do not join in this zone; other zones come first");
        hands.tell(&avoided_event(pool, zone, until));
    }
}
