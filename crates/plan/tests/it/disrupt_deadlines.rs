//! What a deadline for draining (terminationGracePeriod) opens: drift in spite of pods that must not be disturbed, and nothing else.

use crate::support::{World, acts, nodes_of, on_demand_pool, only, pair, pinned};
use serde_json::json;
use spokeshave_plan::disrupt::Method;

/// Node `a`, which has drifted and has a deadline, with pod `p`: as it is, the method deletes it for a reason of its own.
fn drifted_with_deadline(method: Method) -> World {
    let world = match method {
        // Not worth keeping a node for.
        Method::Emptiness => {
            pair().annotate_pod("p", "controller.kubernetes.io/pod-deletion-cost", "-2147483647")
        }
        Method::SingleNodeConsolidation => pair(),
        // Two of them, because a set has more than one node.
        _ => World::new(on_demand_pool("default"))
            .node("a", "small")
            .node("c", "small")
            .node("stay", "large")
            .pod("p", "a", "500m")
            .pod("q", "c", "500m")
            .pod_with("r", "stay", "8", &pinned("stay")),
    };
    let mut world = world.drifted("a", 0).grace("a");
    world.policy = only(method);
    world
}

/// Whether a command of the next pass deletes node `a`.
fn goes(world: &World) -> bool {
    let nodes = nodes_of(&world.pass().commands);
    nodes.iter().any(|node| node == "a")
}

#[test]
fn d_029_consolidation_asks_the_pods_also_where_a_node_has_drifted_and_has_a_deadline() {
    let annotated = |world: World| world.annotate_pod("p", "karpenter.sh/do-not-disrupt", "true");
    let budgeted = |world: World| world.budget("web", &json!({"matchLabels": {"app": "p"}}), 0);
    for method in [
        Method::Emptiness,
        Method::MultiNodeConsolidation,
        Method::SingleNodeConsolidation,
    ] {
        let name = method.as_str();
        let world = drifted_with_deadline(method);
        assert!(goes(&world), "{name}: nothing else keeps it");
        for mut kept in [annotated(world.clone()), budgeted(world)] {
            assert!(!goes(&kept), "{name}");
            kept.policy = only(Method::Drift);
            assert_eq!(acts(&kept), ["Drift delete [a]"], "{name}");
        }
    }
}
