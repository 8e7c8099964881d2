//! Which pod comes first, which node takes it, and which type is bought.

use serde_json::json;
use spokeshave_example::{fake_instance_types, instance_type, node, node_pool};
use spokeshave_model::{ClusterState, labels};

use super::{pod, summary, zones};
use crate::support::{ZONES, run, types};

#[test]
fn one_pod_gets_the_cheapest_type_that_holds_it() {
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "3", json!({})));
    assert_eq!(summary(&run(&state)), ["default/medium: p"]);
}

#[test]
fn p_080_largest_first_then_oldest() {
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([
            pod("small", "1", json!({})),
            pod("big", "15", json!({})),
            pod("also-small", "500m", json!({})),
        ]);
    assert_eq!(
        summary(&run(&state)),
        ["default/large: big also-small", "default/small: small"]
    );
}

#[test]
fn p_081_p_082_failed_pods_try_again_with_all_their_preferences() {
    // The follower is bigger, so it comes first and fails; once the leader has a place it gets one beside it.
    let follow = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "leader"}}}]},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}]}}]}}});
    let leader = json!({"nodeSelector": {"topology.kubernetes.io/zone": "b", "node.kubernetes.io/instance-type": "small"}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([
            pod("follower", "3", follow),
            spokeshave_example::labelled(pod("leader", "1", leader), &[("app", "leader")]),
        ]);
    let result = run(&state);
    assert_eq!(
        summary(&result),
        ["default/small: leader", "default/large: follower"]
    );
    assert_eq!(zones(&result)[1], "topology.kubernetes.io/zone In [b]");
}

#[test]
fn p_083_existing_nodes_first_initialised_first_then_by_name() {
    let types = types();
    let (mut starting, mut starting_claim) = node("default", "a-starting", &types[1], "a", "spot");
    for labels in [&mut starting.metadata.labels, &mut starting_claim.metadata.labels]
        .into_iter()
        .flatten()
    {
        labels.remove(labels::INITIALIZED);
    }
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node((starting, starting_claim))
        .with_node(node("default", "c", &types[0], "a", "spot"))
        .with_node(node("default", "b", &types[0], "a", "spot"))
        .with_pods(["p1", "p2", "p3"].map(|name| pod(name, "1500m", json!({}))));
    assert_eq!(summary(&run(&state)), ["b: p1", "c: p2", "a-starting: p3"]);
}

#[test]
fn p_083_planned_claims_with_fewest_pods_first() {
    let small = vec![instance_type("small", 2, 4, &ZONES)];
    let state = ClusterState::default()
        .with_pool(node_pool("default"), small)
        .with_pods([
            pod("p1", "900m", json!({})),
            pod("p2", "800m", json!({})),
            pod("p3", "700m", json!({})),
            pod("p4", "150m", json!({})),
        ]);
    // p1 and p2 share a node, p3 opens another, and p4 joins the node with fewer pods.
    assert_eq!(
        summary(&run(&state)),
        ["default/small: p1 p2", "default/small: p3 p4"]
    );
}

#[test]
fn p_060_example_15_weights_order_pools_ties_by_later_name() {
    let weighted = |name: &str, weight: Option<i32>| {
        let mut pool = node_pool(name);
        pool.spec.weight = weight;
        pool
    };
    let state = ClusterState::default()
        .with_pool(weighted("bare", None), types())
        .with_pool(weighted("ten", Some(10)), types())
        .with_pool(weighted("twenty", Some(20)), types());
    assert_eq!(
        summary(&run(&state.clone().with_pod(pod("p", "1", json!({}))))),
        ["twenty/small: p"]
    );
    let selecting = pod(
        "p",
        "1",
        json!({"nodeSelector": {"karpenter.sh/nodepool": "ten"}}),
    );
    assert_eq!(summary(&run(&state.with_pod(selecting))), ["ten/small: p"]);
    let equal = ClusterState::default()
        .with_pool(weighted("alpha", Some(5)), types())
        .with_pool(weighted("beta", Some(5)), types())
        .with_pod(pod("p", "1", json!({})));
    assert_eq!(summary(&run(&equal)), ["beta/small: p"]);
}

#[test]
fn the_benchmark_mix_is_placed_whole_and_repeatably() {
    let state = ClusterState::default()
        .with_pool(spokeshave_example::benchmark_pool(), fake_instance_types(400))
        .with_pods(spokeshave_example::diverse_pods(500, 42));
    let (_, first) = run(&state);
    let mut shuffled = state;
    shuffled.pods.reverse();
    let (_, second) = run(&shuffled);
    assert!(
        first.unplaced.is_empty(),
        "{:?}",
        first.unplaced.first().map(|unplaced| unplaced.reason.to_string())
    );
    assert_eq!(first, second);
}
