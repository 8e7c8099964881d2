//! How a plan tells of NodePools with a fixed number of nodes: of nodes that are missing, and of those that are too many.
//!
//! Which these are is known to `story::replicas`, which `explain`, `top` and the page ask as well.

use spokeshave_model::Price;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::disrupt::CommandNode;
use spokeshave_plan::report::some_of;
use spokeshave_story::prices;
use spokeshave_story::replicas::{Replicas, TooFew, TooMany};

use super::format::{Dollars, Plan, ReplicaLaunches, ScaleDown};
use super::world::plural;

/// Whether the operator does so depends on a setting of its own.
pub(super) fn note(replicas: &Replicas) -> Option<String> {
    let missing = replicas.missing.iter().map(|one| one.node_pool.as_str());
    let names: Vec<&str> = missing
        .chain(replicas.excess.iter().map(|one| one.node_pool.as_str()))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "spec.replicas of {} {} in force, as with the feature gate StaticCapacity on",
            plural(names.len(), "NodePool", "NodePools"),
            some_of(&names, 5)
        )
    })
}

/// Tells of it in a plan. `snapshot` is made of the same state.
pub(super) fn tell(replicas: Replicas, snapshot: &Snapshot, plan: &mut Plan) {
    let excess = replicas.excess.iter();
    plan.disruption.scale_down = excess.map(|one| scale_down(one, snapshot)).collect();
    plan.provisioning.replicas = replicas.missing.into_iter().map(launches).collect();
}

fn launches(one: TooFew) -> ReplicaLaunches {
    ReplicaLaunches {
        node_pool: one.node_pool,
        replicas: one.replicas,
        nodes: one.nodes,
    }
}

fn scale_down(one: &TooMany, snapshot: &Snapshot) -> ScaleDown {
    let mut told = ScaleDown {
        node_pool: one.node_pool.clone(),
        replicas: one.replicas,
        nodes: Vec::new(),
        price: Dollars(Price::ZERO),
        is_price_unknown: false,
        evictions: 0,
    };
    for (name, node) in one.nodes(snapshot) {
        told.nodes.push(name);
        if let Some(node) = node {
            let view = snapshot.node(node);
            told.price = Dollars(told.price.0.saturating_add(prices::told(snapshot, view)));
            told.is_price_unknown |= prices::is_unknown(snapshot, view);
            told.evictions += CommandNode::of(snapshot, node).reschedulable_pods;
        }
    }
    told
}
