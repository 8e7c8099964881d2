//! Nodes that are named: by a scheduler for a pod that it is about to bind or makes room for (P-056), and by the affinity of a pod (P-057).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_example::{bound, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::{ClusterState, InstanceType, Pod, lower};
use spokeshave_plan::{Policy, provision};

fn types() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 4, &["a"]),
        instance_type("large", 16, 32, &["a"]),
    ]
}

fn pod(name: &str, cpu: &str) -> Pod {
    pending_pod(name, cpu, "100Mi", &json!({}))
}

/// A pod that waits and for which a scheduler has named a node.
fn promised(name: &str, cpu: &str, node: &str) -> Pod {
    let mut pod = pod(name, cpu);
    pod.status.get_or_insert_default().nominated_node_name = Some(node.to_owned());
    pod
}

/// Names of the pods on new nodes, where none goes to a node that is there.
fn launched_for(state: &ClusterState) -> Vec<String> {
    let snapshot = lower(state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    assert!(outcome.placements.existing.is_empty(), "{:?}", outcome.placements);
    let claims = outcome.placements.claims.iter();
    let pods = claims.flat_map(|claim| claim.pods.iter());
    pods.map(|pod| snapshot.pod(*pod).key()).collect()
}

fn one_small_node() -> ClusterState {
    ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_node(node("default", "n", &types()[0], "a", "spot"))
}

/// Since Kubernetes 1.35 a scheduler names the node before it binds a pod, which takes as long as its volumes take. The pod has its place, also where it was
/// never reported unschedulable; others have what it leaves.
#[test]
fn p_056_room_that_a_scheduler_has_given_away_is_not_given_to_others() {
    let state = one_small_node().with_pods([promised("db-0", "1500m", "n"), pod("web", "1")]);
    assert_eq!(launched_for(&state), ["default/web"]);
    let mut at_the_first_try = promised("db-0", "1500m", "n");
    at_the_first_try.status.get_or_insert_default().conditions = None;
    let state = one_small_node().with_pods([at_the_first_try, pod("web", "1")]);
    assert_eq!(launched_for(&state), ["default/web"]);

    let on_port = |name: &str| {
        let container = json!({"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
            "resources": {"requests": {"cpu": "100m", "memory": "10Mi"}}});
        pending_pod(name, "100m", "10Mi", &json!({"containers": [container]}))
    };
    let mut first = on_port("first");
    first.status.get_or_insert_default().nominated_node_name = Some("n".to_owned());
    let state = one_small_node().with_pods([first, on_port("second")]);
    assert_eq!(launched_for(&state), ["default/second"]);
}

/// Pods that make room are still there, so that for a moment more is asked of the node than it has.
#[test]
fn p_056_a_node_on_which_room_is_made_takes_nobody_else() {
    let mut leaves = bound(pod("leaves", "1500m"), "n");
    leaves.metadata.deletion_timestamp = Some(Time(epoch()));
    let state = one_small_node().with_pods([leaves, promised("important", "1500m", "n"), pod("tiny", "10m")]);
    assert_eq!(launched_for(&state), ["default/tiny"]);
}

/// Nobody binds a pod to a node that is not there, or that is about to go.
#[test]
fn p_056_a_pod_whose_named_node_is_gone_or_goes_waits_like_any_other() {
    let state = one_small_node().with_pod(promised("db-0", "3", "gone"));
    assert_eq!(launched_for(&state), ["default/db-0"]);
    let mut state = one_small_node().with_pod(promised("db-0", "1", "n"));
    assert!(launched_for(&state).is_empty());
    state.marked_for_deletion.insert("kwok://n".to_owned());
    assert_eq!(launched_for(&state), ["default/db-0"]);
}

/// Affinity to the name of a node: it has room there, or none at all.
#[test]
fn p_057_a_pod_that_asks_for_a_node_by_name_goes_to_that_or_nowhere() {
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let pinned = |cpu: &str| {
        let affinity = json!({"affinity": {"nodeAffinity": required}});
        pending_pod("pinned", cpu, "10Mi", &affinity)
    };
    let of = |cpu: &str| {
        let more = node("default", "m", &types()[1], "a", "spot");
        let snapshot = lower(&one_small_node().with_node(more).with_pod(pinned(cpu)));
        let outcome = provision(&snapshot, &Policy::default(), epoch());
        assert!(outcome.placements.claims.is_empty());
        let nodes = outcome.placements.existing.keys();
        let nodes: Vec<String> = nodes.map(|node| snapshot.node(*node).name.clone()).collect();
        (nodes, outcome.failed().map(|(_, text)| text.to_string()).next())
    };
    assert_eq!(of("1"), (vec!["n".to_owned()], None));
    let (nodes, why) = of("1950m");
    assert!(nodes.is_empty());
    let why = why.expect("a reason");
    assert!(
        why.contains("only a node that is there has the name \"n\""),
        "{why}"
    );
}
