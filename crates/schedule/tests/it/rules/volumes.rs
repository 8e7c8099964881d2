//! Pods with volumes: where these can be reached, and how many of them a node attaches (P §6.10).

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spokeshave_example::{bound, node, node_pool};
use spokeshave_model::snapshot::NodeId;
use spokeshave_model::{ClusterState, InstanceType, Pod, labels, lower};
use spokeshave_schedule::{PackOptions, PackRequest, pack};
use std::sync::Arc;

use super::{pod, summary, zones};
use crate::support::{run, types};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object written by hand")
}

/// A NodePool of these types, and a StorageClass `disk`.
fn state(types: Vec<InstanceType>) -> ClusterState {
    let state = ClusterState::default().with_pool(node_pool("default"), types);
    with_class(state, json!({"provisioner": "disk.example"}))
}

/// StorageClass `disk`, whose claims wait for their pod.
fn with_class(mut state: ClusterState, mut class: Value) -> ClusterState {
    class["metadata"] = json!({"name": "disk"});
    class["volumeBindingMode"] = json!("WaitForFirstConsumer");
    let classes = &mut state.volumes.storage_classes;
    classes.insert("disk".to_owned(), Arc::new(read(class)));
    state
}

/// A claim of the class, with a volume of its name where that is given.
fn with_claim(mut state: ClusterState, name: &str, volume: Option<Value>) -> ClusterState {
    let volume_name = volume.as_ref().map(|_| name);
    let claim = json!({"metadata": {"namespace": "default", "name": name}, "spec": {
        "storageClassName": "disk", "volumeName": volume_name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}},
    }});
    let claims = &mut state.volumes.claims;
    claims.insert(format!("default/{name}"), Arc::new(read(claim)));
    if let Some(mut volume) = volume {
        volume["metadata"]["name"] = json!(name);
        let volumes = &mut state.volumes.volumes;
        volumes.insert(name.to_owned(), Arc::new(read::<PersistentVolume>(volume)));
    }
    state
}

/// Whose volumes a node attaches at most so many of.
fn with_limit(mut state: ClusterState, name: &str, driver: &str, count: i32) -> ClusterState {
    let limited = json!({"name": driver, "nodeID": name, "allocatable": {"count": count}});
    let csi_node = json!({"metadata": {"name": name}, "spec": {"drivers": [limited]}});
    let csi_nodes = &mut state.volumes.csi_nodes;
    csi_nodes.insert(name.to_owned(), Arc::new(read(csi_node)));
    state
}

fn using(name: &str, cpu: &str, claims: &[&str]) -> Pod {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    pod(name, cpu, json!({"volumes": volumes}))
}

fn terms_of(key: &str, values: &[&str]) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}})
}

fn local(host: &str) -> Value {
    json!({"spec": {"local": {"path": "/x"}, "nodeAffinity": terms_of(labels::HOSTNAME, &[host])}})
}

/// Where the pods of a node go when it is taken away.
fn without(state: &ClusterState, name: &str) -> Vec<String> {
    let snapshot = lower(state);
    let node: NodeId = snapshot.find_node(name).expect("the node");
    let request = PackRequest {
        pods: snapshot.node(node).pods.clone(),
        without_nodes: [node].into(),
    };
    let packing = pack(&snapshot, &request, &PackOptions::default());
    summary(&(snapshot, packing))
}

#[test]
fn p_033_p_116_a_pod_with_a_disk_of_azure_gets_a_node_in_its_zone() {
    for key in [
        "topology.disk.csi.azure.com/zone",
        "topology.san.csi.azure.com/zone",
    ] {
        let volume = json!({"spec": {"nodeAffinity": terms_of(key, &["b"])}});
        let made = with_claim(state(types()), "data", Some(volume));
        let result = run(&made.with_pod(using("p", "1", &["data"])));
        assert_eq!(zones(&result), ["topology.kubernetes.io/zone In [b]"], "{key}");
        let allowed = json!([{"matchLabelExpressions": [{"key": key, "values": ["c"]}]}]);
        let class = json!({"provisioner": "disk.csi.azure.com", "allowedTopologies": allowed});
        let wanted = with_claim(with_class(state(types()), class), "data", None);
        let result = run(&wanted.with_pod(using("p", "1", &["data"])));
        assert_eq!(zones(&result), ["topology.kubernetes.io/zone In [c]"], "{key}");
    }
}

#[test]
fn p_116_a_volume_that_names_its_zone_by_a_label_is_reached_there_only() {
    let volume = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "c"}}, "spec": {}});
    let state = with_claim(state(types()), "data", Some(volume))
        .with_node(node("default", "n", &types()[0], "a", "spot"))
        .with_pod(using("p", "1", &["data"]));
    let result = run(&state);
    assert_eq!(
        summary(&result),
        ["default/small: p"],
        "not on the node in zone a"
    );
    assert_eq!(zones(&result), ["topology.kubernetes.io/zone In [c]"]);
}

#[test]
fn p_116_a_pod_with_a_local_volume_waits_for_its_host() {
    let mut state = with_claim(state(types()), "data", Some(local("n")))
        .with_node(node("default", "n", &types()[0], "a", "spot"))
        .with_pod(bound(pod("web", "1500m", json!({})), "n"))
        .with_pod(using("db", "1", &["data"]));
    let found = summary(&run(&state));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("db: incompatible volume requirements"),
        "{found:?}"
    );
    state.nodes.clear();
    state.node_claims.clear();
    assert_eq!(
        summary(&run(&state)),
        ["default/small: db"],
        "the volume is lost, and does not keep the pod for ever"
    );
}

#[test]
fn p_116_a_node_with_a_local_volume_in_use_cannot_go() {
    let state = with_claim(state(types()), "data", Some(local("n1")))
        .with_node(node("default", "n1", &types()[0], "a", "spot"))
        .with_node(node("default", "n2", &types()[0], "a", "spot"));
    let bare = state.clone().with_pod(bound(pod("db", "1", json!({})), "n1"));
    assert_eq!(without(&bare, "n1"), ["n2: db"]);
    let found = without(&state.with_pod(bound(using("db", "1", &["data"]), "n1")), "n1");
    assert!(
        found[0].starts_with("db: incompatible volume requirements"),
        "{found:?}"
    );
}

#[test]
fn p_116_a_pod_with_an_ephemeral_volume_can_move() {
    let template = json!({"spec": {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"]}});
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    let volume = json!({"spec": {"csi": {"driver": "disk.example", "volumeHandle": "h"},
        "nodeAffinity": terms_of("topology.example/node", &["n1"])}});
    let mut state = with_claim(state(types()), "db-scratch", Some(volume));
    for name in ["n1", "n2"] {
        let (mut object, claim) = node("default", name, &types()[0], "a", "spot");
        let own = object.metadata.labels.get_or_insert_default();
        own.insert("topology.example/node".to_owned(), name.to_owned());
        state = state.with_node((object, claim));
    }
    let db = pod("db", "1", json!({"volumes": volumes}));
    assert_eq!(without(&state.with_pod(bound(db, "n1")), "n1"), ["n2: db"]);
}

#[test]
fn p_116_a_claim_that_nothing_provisions_is_served_where_a_volume_is_free() {
    let class = json!({"provisioner": "kubernetes.io/no-provisioner"});
    let state = with_claim(with_class(state(types()), class), "data", None)
        .with_node(node("default", "n", &types()[0], "a", "spot"))
        .with_pod(using("p", "1", &["data"]));
    assert_eq!(summary(&run(&state)), ["default/small: p"]);
    let mut free = local("n");
    free["spec"]["storageClassName"] = json!("disk");
    free["spec"]["capacity"] = json!({"storage": "5Gi"});
    free["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    free["status"] = json!({"phase": "Available"});
    let mut served = state.clone();
    let volumes = &mut served.volumes.volumes;
    volumes.insert("v".to_owned(), Arc::new(read(free)));
    assert_eq!(summary(&run(&served)), ["n: p"]);
    let mut came = state.clone();
    let later = Time("2026-01-01T00:01:00Z".parse().expect("a time"));
    Arc::make_mut(&mut came.nodes[0]).metadata.creation_timestamp = Some(later);
    assert_eq!(summary(&run(&came)), ["n: p"], "its volumes may be on the way");
    let mut alone = state;
    (alone.nodes, alone.node_claims) = Default::default();
    assert_eq!(
        summary(&run(&alone)),
        ["default/small: p"],
        "a new node may bring one"
    );
}

/// A node that is full, and says how many volumes of `driver` are attached to one of its type.
fn full(types: &[InstanceType], kind: usize, driver: &str, limit: i32) -> ClusterState {
    let all = format!("{}m", types[kind].capacity.get("cpu") - 200);
    let state = state(types.to_vec())
        .with_node(node("default", "n", &types[kind], "a", "spot"))
        .with_pod(bound(pod("web", &all, json!({})), "n"));
    with_limit(state, "n", driver, limit)
}

#[test]
fn p_117_a_planned_node_attaches_what_nodes_of_its_type_do() {
    let large = vec![types()[2].clone()];
    let mut state = full(&large, 0, "disk.example", 3);
    for number in 1..=7 {
        let claim = format!("c{number}");
        state = with_claim(state, &claim, None);
        state = state.with_pod(using(&format!("p{number}"), "500m", &[claim.as_str()]));
    }
    // One more for a volume that is there counts no volume.
    state = state.with_pod(using("p8", "500m", &["c7"]));
    assert_eq!(
        summary(&run(&state)),
        [
            "default/large: p1 p2 p3",
            "default/large: p4 p5 p6",
            "default/large: p7 p8"
        ]
    );
    let unlimited = with_limit(state, "n", "another.example", 3);
    assert_eq!(
        summary(&run(&unlimited)),
        ["default/large: p1 p2 p3 p4 p5 p6 p7 p8"]
    );
}

#[test]
fn p_117_types_that_attach_too_few_are_left_out_and_others_are_not() {
    let state = with_claim(full(&types(), 2, "disk.example", 0), "c1", None);
    let names = |state: &ClusterState| {
        let (snapshot, packing) = run(state);
        let claim = &packing.placements.claims[0];
        let types = &snapshot.pool(claim.pool).instance_types;
        let names = claim.launches.iter();
        let names = names.map(|launch| types[launch.instance_type].name.clone());
        names.collect::<Vec<String>>()
    };
    let with = state.clone().with_pod(using("p", "1", &["c1"]));
    assert_eq!(names(&with), ["small", "medium"]);
    let without = state.with_pod(pod("p", "1", json!({})));
    assert_eq!(names(&without), ["small", "medium", "large"]);
}

#[test]
fn p_117_a_pod_with_more_volumes_than_any_node_attaches_keeps_no_other_waiting() {
    let large = vec![types()[2].clone()];
    let mut state = full(&large, 0, "disk.example", 2);
    for claim in ["c1", "c2", "c3"] {
        state = with_claim(state, claim, None);
    }
    let state = state
        .with_pod(using("p1", "1", &["c1", "c2", "c3"]))
        .with_pod(pod("p2", "1", json!({})));
    let found = summary(&run(&state));
    assert_eq!(found[0], "default/large: p2");
    let limit = "would exceed volume limit (provisioner=disk.example, volume-count=3, volume-limit=2)";
    assert!(
        found[1].starts_with("p1: ") && found[1].contains(limit),
        "{found:?}"
    );
}

#[test]
fn p_080_p_117_pods_that_other_things_than_their_volumes_keep_waiting_fail_once_for_all() {
    let mut state = full(&types(), 0, "disk.example", 3);
    for claim in ["c1", "c2", "c3"] {
        state = with_claim(state, claim, None);
        state = state.with_pod(using(claim, "100", &[claim]));
    }
    let (_, packing) = run(&state);
    assert_eq!((packing.unplaced.len(), packing.statistics.attempts), (3, 1));
}

/// Its drivers have yet to come, and until they do its CSINode says nothing. Nothing makes them come before the node is initialised.
#[test]
fn p_117_a_node_that_starts_attaches_what_others_of_its_type_do() {
    let large = vec![types()[2].clone()];
    for is_initialized in [false, true] {
        let (mut object, claim) = node("default", "new", &large[0], "a", "spot");
        if !is_initialized {
            let own = object.metadata.labels.get_or_insert_default();
            own.remove(labels::INITIALIZED);
        }
        let mut state = full(&large, 0, "disk.example", 2).with_node((object, claim));
        for number in 1..=3 {
            let claim = format!("c{number}");
            state = with_claim(state, &claim, None);
            state = state.with_pod(using(&format!("p{number}"), "500m", &[claim.as_str()]));
        }
        let found = summary(&run(&state));
        assert_eq!(
            found,
            ["new: p1 p2", "default/large: p3"],
            "initialised: {is_initialized}"
        );
    }
}

/// What no node has shown is not where pods gather, or the limit would be found out launch by launch.
#[test]
fn p_117_a_type_that_no_node_is_of_attaches_what_the_best_node_does() {
    let mut state = full(&types(), 2, "disk.example", 3);
    for number in 1..=5 {
        state = with_claim(state, &format!("c{number}"), None);
    }
    let one = state
        .clone()
        .with_pod(using("p", "1", &["c1", "c2", "c3", "c4", "c5"]));
    assert_eq!(summary(&run(&one)), ["default/small: p"], "a pod alone is tried");
    for number in 1..=5 {
        let claim = format!("c{number}");
        state = state.with_pod(using(&format!("p{number}"), "300m", &[claim.as_str()]));
    }
    assert_eq!(
        summary(&run(&state)),
        ["default/small: p1 p2 p3", "default/small: p4 p5"],
        "as far as room goes one takes all"
    );
}

#[test]
fn p_117_volumes_that_were_built_in_count_under_the_driver_that_took_over() {
    let disk = |name: &str| json!({"spec": {"azureDisk": {"diskName": name, "diskURI": name}}});
    let of = |limit: i32| {
        let mut state = state(types()).with_node(node("default", "n", &types()[0], "a", "spot"));
        for claim in ["c1", "c2"] {
            state = with_claim(state, claim, Some(disk(claim)));
        }
        let state = with_limit(state, "n", "disk.csi.azure.com", limit)
            .with_pod(bound(using("p1", "500m", &["c1"]), "n"))
            .with_pod(using("p2", "500m", &["c2"]));
        summary(&run(&state))
    };
    assert_eq!(of(2), ["n: p2"]);
    assert_eq!(of(1), ["default/small: p2"]);
}
