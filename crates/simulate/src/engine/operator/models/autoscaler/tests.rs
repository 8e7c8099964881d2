//! Which nodes the model of cluster-autoscaler finds unneeded, and how many go at once.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use spokeshave_model::Pod;
use std::sync::Arc;

use super::*;
use crate::engine::operator::models::worlds::World;

const NONE: UnderWay = UnderWay { empty: 0, drained: 0 };

/// A node with room for all, which stays.
fn host() -> World {
    World::on_demand()
        .node("host", "large")
        .firm_pod("firm", "host", "9")
}

/// Two nodes, each with a pod that asks for so much.
fn two(cpu: &str) -> World {
    World::on_demand()
        .node("a", "medium")
        .pod("p", "a", cpu)
        .node("b", "medium")
        .pod("q", "b", cpu)
}

/// What goes after ten minutes in which nothing has changed.
fn after_ten_minutes(mut world: World, under_way: UnderWay) -> Vec<String> {
    assert!(world.scan(0, None, NONE).is_empty(), "not at once");
    assert!(world.scan(UNNEEDED_MS - 1, None, NONE).is_empty());
    world.scan(UNNEEDED_MS, None, under_way)
}

/// 3.9 cores are allocatable.
#[test]
fn a_node_is_unneeded_below_half_of_what_is_allocatable() {
    let used = |cpu: &str| after_ten_minutes(host().node("a", "medium").pod("p", "a", cpu), NONE);
    assert!(used("1950m").is_empty());
    assert_eq!(used("1949m"), ["SingleNodeConsolidation delete [a]"]);
}

#[test]
fn nothing_goes_for_ten_minutes_after_a_launch_and_the_clock_runs_on_meanwhile() {
    let mut world = host().node("a", "small");
    assert!(world.scan(0, None, NONE).is_empty());
    let launched = Some(500_000);
    assert!(world.scan(700_000, launched, NONE).is_empty());
    assert!(world.scan(1_099_999, launched, NONE).is_empty());
    assert_eq!(world.scan(1_100_000, launched, NONE), ["Emptiness delete [a]"]);
}

/// What is needed in between begins anew.
#[test]
fn a_node_has_to_be_unneeded_all_the_time() {
    let mut world = host().node("a", "small");
    assert!(world.scan(0, None, NONE).is_empty());
    let (state, needed) = (world.state.clone(), world.pod("p", "a", "1500m"));
    world = needed;
    assert!(world.scan(300_000, None, NONE).is_empty());
    world.state = state;
    assert!(world.scan(600_000, None, NONE).is_empty());
    assert_eq!(world.scan(1_200_000, None, NONE), ["Emptiness delete [a]"]);
}

/// Nine empty nodes and two with pods, or more.
fn going(empty: usize, under_way: UnderWay) -> (usize, usize) {
    let mut world = host();
    for index in 0..empty {
        world = world.node(&format!("empty-{index:02}"), "small");
    }
    for name in ["a", "b"] {
        world = world.node(name, "medium").pod(&format!("p-{name}"), name, "100m");
    }
    let commands = after_ten_minutes(world, under_way);
    let is_empty = |command: &&String| command.starts_with("Emptiness");
    let count = commands.iter().filter(is_empty).count();
    (count, commands.len() - count)
}

#[test]
fn ten_nodes_go_at_once_and_one_of_them_has_pods() {
    assert_eq!(going(3, NONE), (3, 1));
    assert_eq!(going(9, NONE), (9, 1));
    assert_eq!(going(12, NONE), (10, 0));
    let with = |empty, drained| UnderWay { empty, drained };
    assert_eq!(going(12, with(4, 0)), (6, 0), "those under way count");
    assert_eq!(going(3, with(6, 0)), (3, 1));
    assert_eq!(going(3, with(0, 1)), (3, 0), "one drain at a time");
    assert_eq!(going(12, with(9, 1)), (0, 0));
    assert_eq!(going(3, with(20, 0)), (0, 0));
}

/// Each could go to the other: only one of them is unneeded.
#[test]
fn nodes_are_unneeded_together_or_not_at_all() {
    let mut world = two("1500m");
    assert!(world.scan(0, None, NONE).is_empty());
    assert_eq!(world.unneeded.keys().collect::<Vec<_>>(), ["kwok://a"]);
}

/// `a` moves to `b`, and what is there then has no place on `c` any more.
#[test]
fn pods_of_earlier_nodes_move_on_with_those_of_later_ones() {
    let mut world = two("1500m").node("c", "medium").firm_pod("firm", "c", "2");
    assert!(world.scan(0, None, NONE).is_empty());
    assert_eq!(world.unneeded.keys().collect::<Vec<_>>(), ["kwok://a"]);
}

#[test]
fn what_has_been_unneeded_for_longest_goes_first() {
    assert_eq!(
        after_ten_minutes(two("1"), NONE),
        ["SingleNodeConsolidation delete [a]"]
    );
    let mut known = two("1");
    known.unneeded.insert("kwok://b".to_owned(), 0);
    let commands = known.scan(UNNEEDED_MS, None, NONE);
    assert_eq!(commands, ["SingleNodeConsolidation delete [b]"]);
}

#[test]
fn no_node_comes_instead() {
    let alone = World::on_demand().node("a", "large").pod("p", "a", "1");
    assert!(after_ten_minutes(alone, NONE).is_empty());
}

/// Whether the node of a pod that is edited so goes.
fn goes(edit: impl Fn(&mut Pod)) -> bool {
    let world = host().node("a", "medium").pod("p", "a", "1");
    !after_ten_minutes(world.edit_pod("p", edit), NONE).is_empty()
}

fn annotated(pod: &mut Pod, value: &str) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(SAFE_TO_EVICT.to_owned(), value.to_owned());
}

#[test]
fn pods_keep_their_nodes_for_what_the_documentation_lists() {
    assert!(goes(|_| {}));
    let is_bare = |pod: &mut Pod| pod.metadata.owner_references = None;
    assert!(!goes(is_bare), "without a controller");
    assert!(!goes(|pod| annotated(pod, "false")));
    assert!(goes(|pod| {
        is_bare(pod);
        annotated(pod, "true");
    }));
    let stored = |volume: serde_json::Value| {
        goes(|pod| {
            let volumes = serde_json::from_value(json!([volume])).unwrap();
            pod.spec_mut().volumes = volumes;
        })
    };
    assert!(!stored(json!({"name": "v", "hostPath": {"path": "/data"}})));
    assert!(!stored(json!({"name": "v", "emptyDir": {}})));
    assert!(stored(json!({"name": "v", "emptyDir": {"medium": "Memory"}})));
    assert!(stored(json!({"name": "v", "configMap": {"name": "c"}})));
}

#[test]
fn pods_of_kube_system_keep_their_nodes_unless_a_budget_is_about_them() {
    let system = |pod: &mut Pod| pod.metadata.namespace = Some("kube-system".to_owned());
    assert!(!goes(system));
    let mut world = host()
        .node("a", "medium")
        .pod("p", "a", "1")
        .edit_pod("p", system);
    let budget = json!({
        "metadata": {"namespace": "kube-system", "name": "p", "uid": "uid-p"},
        "spec": {"selector": {"matchLabels": {"app": "p"}}, "maxUnavailable": 1},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1},
    });
    let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
    world.state.pod_disruption_budgets.push(Arc::new(budget));
    assert_eq!(
        after_ten_minutes(world, NONE),
        ["SingleNodeConsolidation delete [a]"]
    );
}

#[test]
fn the_next_is_due_when_it_and_the_launch_are_ten_minutes_old() {
    let known = BTreeMap::from([("x".to_owned(), 0), ("y".to_owned(), 100_000)]);
    let next = |last, now| next_unneeded_ms(&known, last, now);
    assert_eq!(next(None, 0), Some(600_000));
    assert_eq!(
        next(None, 650_000),
        Some(700_000),
        "one is due and waits its turn"
    );
    assert_eq!(next(Some(300_000), 650_000), Some(900_000));
    assert_eq!(next(None, 700_000), None);
}
