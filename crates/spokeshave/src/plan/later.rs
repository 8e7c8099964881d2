//! What further passes would launch once the nodes of this one are there.
//!
//! Until a node has an instance, limits count it with the largest type that it may become (P-093); after that with what it is, and pods that limits had kept
//! away may get nodes. The operator makes such a pass by itself. Here each one is the provisioner's own function, on a Snapshot in which the planned nodes
//! count with their cheapest types. Rules between pods do not see there the pods of the passes before, so that zones are not told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_model::derivation::Blocker;
use spokeshave_model::snapshot::{PodId, PoolId, Snapshot};
use spokeshave_model::{Derivation, Price, ResourceName, Resources};
use spokeshave_plan::{Policy, Provisioned, provision_only};

use super::format::{Dollars, LaterLaunches, pod_names};

/// So many passes are made at most. Each takes a part of what the limits leave.
const MOST_PASSES: usize = 20;

/// What is launched from one NodePool.
#[derive(Default)]
struct Launched {
    nodes: usize,
    pods: Vec<PodId>,
    price: Price,
}

/// What passes after this outcome would launch for the pods that only limits keep away, by NodePool.
pub(super) fn launches(
    snapshot: &Snapshot,
    outcome: &Provisioned,
    derivations: &BTreeMap<PodId, Arc<Derivation>>,
    policy: &Policy,
    now: Timestamp,
) -> Vec<LaterLaunches> {
    let limited = derivations
        .iter()
        .filter(|(_, derivation)| derivation.minimal == [Blocker::Limits]);
    let mut waiting: BTreeSet<PodId> = limited.map(|(pod, _)| *pod).collect();
    let mut claims = outcome.placements.claims.iter();
    let gives_room = claims.any(|claim| !snapshot.pool(claim.pool).limits.is_empty());
    if waiting.is_empty() || !gives_room {
        return Vec::new();
    }
    let mut world = snapshot.clone();
    count(&mut world, outcome);
    let mut launched: BTreeMap<PoolId, Launched> = BTreeMap::new();
    for _ in 0..MOST_PASSES {
        let next = provision_only(&world, policy, now, |pod| waiting.contains(&pod));
        if next.placements.claims.is_empty() {
            break;
        }
        for claim in &next.placements.claims {
            let own = launched.entry(claim.pool).or_default();
            own.nodes += 1;
            own.pods.extend(&claim.pods);
            let price = claim.launches.first().map(|launch| launch.price.known_or_zero());
            own.price = own.price.saturating_add(price.unwrap_or_default());
            for pod in &claim.pods {
                waiting.remove(pod);
            }
        }
        count(&mut world, &next);
    }
    let told = launched.into_iter().map(|(pool, own)| LaterLaunches {
        node_pool: snapshot.pool(pool).name.clone(),
        nodes: own.nodes,
        pods: pod_names(snapshot, &own.pods),
        price: Dollars(own.price),
    });
    told.collect()
}

/// Counts what a pass has planned as if it were there.
fn count(world: &mut Snapshot, outcome: &Provisioned) {
    for claim in &outcome.placements.claims {
        let pool = &mut world.pools[claim.pool.index()];
        if let Some(launch) = claim.launches.first() {
            pool.usage
                .add(&pool.instance_types[launch.instance_type].capacity);
        }
        pool.usage
            .add(&Resources::from_amounts([(ResourceName::NODES, 1)]));
    }
    for (node, pods) in &outcome.placements.existing {
        for pod in pods {
            let requests = world.requests(*pod).clone();
            world.nodes[node.index()].requested.add(&requests);
        }
    }
}
