//! In which order drifted nodes go where a roll-out says so, beside nodes of which none does.

use crate::rollouts::born;
use crate::support::{World, later, on_demand_pool, only};
use serde_json::json;
use spokeshave_api::DisruptionPolicy;
use spokeshave_plan::disrupt::Method;
use std::sync::Arc;

/// The nodes of a world, as one command after the other takes them.
fn sequence(mut world: World) -> Vec<String> {
    let mut sequence = Vec::new();
    while let Some(command) = world.pass().commands.first() {
        let node = command.nodes[0].node.clone();
        let is_other = |name: &str| name != node && name != format!("claim-{node}");
        let nodes = &mut world.state.nodes;
        nodes.retain(|one| is_other(one.metadata.name.as_deref().unwrap_or_default()));
        world.state.node_claims.retain(|one| is_other(one.name()));
        sequence.push(node);
    }
    sequence
}

/// Two nodes of a NodePool that goes by age, and between them, by when they drifted, one of a NodePool that nobody has ordered: whatever they are called, there
/// is one sequence. The pairs alone have none, because each goes before the next and the last before the first.
#[test]
fn d_060_orders_of_some_nodepools_are_one_order_of_all() {
    for [oldest, stranger, youngest] in [
        ["a", "b", "c"],
        ["a", "c", "b"],
        ["b", "a", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["c", "b", "a"],
    ] {
        let mut world = World::new(on_demand_pool("default"));
        world.state = world
            .state
            .with_pool(on_demand_pool("other"), world.types.clone());
        world.policy = only(Method::Drift);
        let world = world
            .node(oldest, "small")
            .node_in("other", stranger, "small", "on-demand")
            .node(youngest, "small")
            .drifted(youngest, -300)
            .drifted(stranger, -200)
            .drifted(oldest, -100);
        let world = born(world, oldest, later(-20_000));
        let mut world = born(world, youngest, later(-10_000));
        assert_eq!(sequence(world.clone()), [youngest, stranger, oldest]);
        let spec = json!({"nodePools": {"names": ["default"]}, "rollout": {"canary": 10, "order": ["Age"]}});
        let spec = serde_json::from_value(spec).expect("a spec");
        let policy = DisruptionPolicy::new("waves", spec);
        world.state.disruption_policies.push(Arc::new(policy));
        assert_eq!(sequence(world), [oldest, youngest, stranger]);
    }
}
