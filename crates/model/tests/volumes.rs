//! What a pod's volumes say of the nodes that it can go to (P §6.10): of objects as stores keep them, and in a Snapshot that takes changes in.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spokeshave_example::{Dice, bound, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::{
    Applied, Change, ClusterState, InstanceType, LiveSnapshot, Operator, Pod, Requirement, Requirements,
    labels, lower, trim,
};
use std::sync::Arc;

const AZURE_DISK: &str = "topology.disk.csi.azure.com/zone";
const AZURE_SAN: &str = "topology.san.csi.azure.com/zone";
/// Before the nodes of these tests were created.
const EARLIER: &str = "2025-12-31T00:00:00Z";

fn small() -> InstanceType {
    instance_type("small", 2, 4, &["a"])
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object written by hand")
}

/// A node of a NodePool, and a StorageClass `disk`.
fn state() -> ClusterState {
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![small()])
        .with_node(node("default", "n1", &small(), "a", "spot"));
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

fn with_volume(mut state: ClusterState, name: &str, mut volume: Value) -> ClusterState {
    volume["metadata"]["name"] = json!(name);
    let mut volume: PersistentVolume = read(volume);
    trim::persistent_volume(&mut volume);
    state.volumes.volumes.insert(name.to_owned(), Arc::new(volume));
    state
}

fn with_claim(mut state: ClusterState, name: &str, spec: Value) -> ClusterState {
    let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let annotations = if spec["volumeName"].is_null() {
        json!({})
    } else {
        bound
    };
    let metadata = json!({"namespace": "default", "name": name, "annotations": annotations, "creationTimestamp": EARLIER});
    let mut claim: PersistentVolumeClaim = read(json!({"metadata": metadata, "spec": spec}));
    trim::persistent_volume_claim(&mut claim);
    let claims = &mut state.volumes.claims;
    claims.insert(format!("default/{name}"), Arc::new(claim));
    state
}

/// A claim of this name that is bound to a volume of this name.
fn with_bound_claim(state: ClusterState, name: &str, volume: Value) -> ClusterState {
    let state = with_volume(state, name, volume);
    with_claim(
        state,
        name,
        json!({"storageClassName": "disk", "volumeName": name}),
    )
}

/// A pod that uses a claim, and waits.
fn using(name: &str, claim: &str) -> Pod {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    pending_pod(name, "100m", "10Mi", &json!({"volumes": volumes}))
}

fn terms_of(key: &str, values: &[&str]) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}})
}

fn local(host: &str) -> Value {
    json!({"spec": {"local": {"path": "/x"}, "nodeAffinity": terms_of(labels::HOSTNAME, &[host])}})
}

/// What the volumes of a pod ask of its node, one text for each alternative.
fn terms(state: &ClusterState, pod: &str) -> Vec<String> {
    let snapshot = lower(state);
    let key = format!("default/{pod}");
    let mut pods = snapshot.pod_ids();
    let pod = pods.find(|pod| snapshot.pod(*pod).key() == key);
    let terms = &snapshot.constraints(pod.expect("the pod")).volume_terms;
    let text = |requirements: Vec<String>| requirements.join(", ");
    terms
        .iter()
        .map(|term| text(term.iter().map(ToString::to_string).collect()))
        .collect()
}

fn assert_same(live: &LiveSnapshot, state: &ClusterState, what: &str) {
    let (taken, anew) = (&**live.snapshot(), &lower(state));
    assert_eq!(taken.classes, anew.classes, "{what}: classes");
    assert_eq!(taken.pods, anew.pods, "{what}: pods");
    assert_eq!(taken, anew, "{what}");
}

#[test]
fn p_116_a_local_volume_keeps_its_host_while_that_is_there() {
    let with_both = with_bound_claim(state(), "data", local("n1"))
        .with_node(node("default", "n2", &small(), "a", "spot"))
        .with_pod(bound(using("db-0", "data"), "n1"));
    assert_eq!(terms(&with_both, "db-0"), ["kubernetes.io/hostname In [n1]"]);
    let mut without = with_both.clone();
    without
        .nodes
        .retain(|node| node.metadata.name.as_deref() != Some("n1"));
    assert!(terms(&without, "db-0").is_empty(), "the volume is lost anyway");

    let mut live = LiveSnapshot::new(with_both.clone());
    live.apply([Change::NodeGone("n1".to_owned())]);
    assert_same(&live, &without, "its host goes");
    live.apply([Change::Node(Arc::clone(&with_both.nodes[0]))]);
    assert_same(&live, &with_both, "its host is back");
    let mut other = with_both.clone();
    other
        .nodes
        .retain(|node| node.metadata.name.as_deref() != Some("n2"));
    let applied = live.apply([Change::NodeGone("n2".to_owned())]);
    assert_same(&live, &other, "another node goes");
    assert_eq!(applied, Applied::InPlace, "no volume is on it");
}

/// Or one local volume would tell each node from all others.
#[test]
fn p_116_hosts_that_nothing_names_are_of_one_kind() {
    let mut state = with_bound_claim(state(), "data", local("n1"));
    for name in ["n2", "n3", "n4"] {
        state = state.with_node(node("default", name, &small(), "a", "spot"));
    }
    let state = state.with_pod(bound(using("db-0", "data"), "n1"));
    let mut live = LiveSnapshot::new(state.clone());
    let kinds = &live.snapshot().kinds;
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    for operator in [Operator::In, Operator::NotIn] {
        let wanted: Requirements = [Requirement::new(labels::HOSTNAME, operator, ["n1"])]
            .into_iter()
            .collect();
        let met = kinds.iter().filter(|kind| kind.requirements.satisfy(&wanted));
        assert_eq!(met.count(), 1, "{operator}");
    }
    let on_n3 = json!({"nodeSelector": {"kubernetes.io/hostname": "n3"}});
    let web = pending_pod("web", "100m", "10Mi", &on_n3);
    let applied = live.apply([Change::Pod(Arc::new(web.clone()))]);
    assert_eq!(applied, Applied::InPlace);
    assert_same(&live, &state.clone().with_pod(web), "another is named");
    assert_eq!(live.snapshot().kinds.len(), 3);
    let gone = Change::PodGone {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        is_virtual: false,
    };
    assert_eq!(live.apply([gone]), Applied::InPlace);
    assert_same(&live, &state, "it is named no more");
}

/// Of volumes that were made by hand or before there were drivers, labels may say all that there is to say.
#[test]
fn p_116_labels_of_a_volume_name_its_zone() {
    let zone = "topology.kubernetes.io/zone";
    let of = |volume: Value| {
        let state = with_bound_claim(state(), "data", volume);
        terms(&state.with_pod(using("db-0", "data")), "db-0")
    };
    let csi = json!({"driver": "disk.example", "volumeHandle": "h"});
    let labelled = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"csi": csi}});
    assert_eq!(
        of(labelled(json!({"topology.kubernetes.io/zone": "d"}))),
        ["topology.kubernetes.io/zone In [d]"]
    );
    let beta = json!({"failure-domain.beta.kubernetes.io/zone": "a__b", "team": "shop"});
    assert_eq!(of(labelled(beta)), ["topology.kubernetes.io/zone In [a b]"]);
    assert!(of(labelled(json!({"topology.kubernetes.io/zone": ""}))).is_empty());
    let mut both = labelled(json!({"topology.kubernetes.io/region": "r"}));
    both["spec"]["nodeAffinity"] = terms_of(zone, &["d"]);
    assert_eq!(
        of(both),
        ["topology.kubernetes.io/region In [r], topology.kubernetes.io/zone In [d]"]
    );
}

#[test]
fn p_033_p_116_zones_of_azures_drivers_are_zones() {
    for key in [AZURE_DISK, AZURE_SAN] {
        for (value, zone) in [("westeurope-1", "westeurope-1"), ("", "0")] {
            let volume = json!({"spec": {"nodeAffinity": terms_of(key, &[value])}});
            let bound = with_bound_claim(state(), "data", volume).with_pod(using("db-0", "data"));
            let expected = [format!("topology.kubernetes.io/zone In [{zone}]")];
            assert_eq!(terms(&bound, "db-0"), expected, "a volume with {key}={value:?}");
            let topologies = json!([{"matchLabelExpressions": [{"key": key, "values": [value]}]}]);
            let class = json!({"provisioner": "disk.csi.azure.com", "allowedTopologies": topologies});
            let unbound = with_claim(
                with_class(state(), class),
                "data",
                json!({"storageClassName": "disk"}),
            );
            let unbound = unbound.with_pod(using("db-0", "data"));
            assert_eq!(terms(&unbound, "db-0"), expected, "a class with {key}={value:?}");
        }
    }
}

/// Machines in no zone have a fault domain for one, and drivers call theirs empty: no node is in two zones, or in none.
#[test]
fn p_033_a_nodes_own_zone_counts_before_that_of_a_driver() {
    let kind_of = |labelled: &[(&str, &str)]| {
        let (mut object, claim) = node("default", "n2", &small(), "a", "spot");
        let own = object.metadata.labels.get_or_insert_default();
        own.remove(labels::ZONE);
        own.extend(
            labelled
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
        );
        let zonal = json!({"nodeSelector": {"topology.kubernetes.io/zone": "a"}});
        let state = ClusterState::default()
            .with_pool(node_pool("default"), vec![small()])
            .with_node((object, claim))
            .with_pod(pending_pod("web", "100m", "10Mi", &zonal));
        lower(&state).kinds[0].requirements.get(labels::ZONE).to_string()
    };
    let zone = labels::ZONE;
    assert_eq!(
        kind_of(&[(zone, "1"), (AZURE_DISK, ""), (AZURE_SAN, "")]),
        "topology.kubernetes.io/zone In [1]"
    );
    assert_eq!(kind_of(&[(AZURE_DISK, "")]), "topology.kubernetes.io/zone In [0]");
    assert_eq!(
        kind_of(&[(AZURE_DISK, "westeurope-1")]),
        "topology.kubernetes.io/zone In [westeurope-1]"
    );
}

/// The claim goes with the pod, and the next one is made wherever its class allows.
#[test]
fn p_116_an_ephemeral_volume_does_not_tie_a_running_pod_to_its_place() {
    let template = json!({"spec": {"storageClassName": "disk", "accessModes": ["ReadWriteOnce"]}});
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    let pod = pending_pod("db-0", "100m", "10Mi", &json!({"volumes": volumes}));
    let volume = json!({"spec": {"csi": {"driver": "disk.example", "volumeHandle": "h"},
        "nodeAffinity": terms_of("topology.example/node", &["n1"])}});
    let made = with_bound_claim(state(), "db-0-scratch", volume);
    let waits = made.clone().with_pod(pod.clone());
    assert_eq!(terms(&waits, "db-0"), ["topology.example/node In [n1]"]);
    let runs = made.with_pod(bound(pod.clone(), "n1"));
    assert!(terms(&runs, "db-0").is_empty());
    let topologies = json!([{"matchLabelExpressions": [{"key": "rack", "values": ["1"]}]}]);
    let class = json!({"provisioner": "disk.example", "allowedTopologies": topologies});
    assert_eq!(terms(&with_class(runs.clone(), class), "db-0"), ["rack In [1]"]);
    let attached = lower(&runs).pods[0].attachments().to_vec();
    let expected = ("disk.example".to_owned(), "default/db-0-scratch".to_owned());
    assert_eq!(attached, [expected], "it counts where the pod is");
    // In a Snapshot that lives on, a pod that gets its node is read again.
    let mut live = LiveSnapshot::new(waits);
    live.apply([Change::Pod(Arc::new(bound(pod, "n1")))]);
    assert_same(&live, &runs, "it runs");
}

#[test]
fn p_115_a_claim_for_one_pod_keeps_others_waiting_while_a_pod_runs_with_it() {
    let claim =
        json!({"storageClassName": "disk", "volumeName": "data", "accessModes": ["ReadWriteOncePod"]});
    let csi = json!({"spec": {"csi": {"driver": "disk.example", "volumeHandle": "h"}}});
    let with_modes = |claim: Value| with_claim(with_volume(state(), "data", csi.clone()), "data", claim);
    let (old, new) = (using("web-old", "data"), using("web-new", "data"));
    let problem = |snapshot: &spokeshave_model::Snapshot| {
        let mut pods = snapshot.pods.iter();
        let new = pods.find(|view| view.key() == "default/web-new");
        new.expect("the new pod").problem().map(ToString::to_string)
    };
    let mut leaving = bound(old.clone(), "n1");
    leaving.metadata.deletion_timestamp = Some(Time(epoch()));
    let mut ended = bound(old.clone(), "n1");
    ended.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    let mut live = LiveSnapshot::new(with_modes(claim.clone()).with_pod(new.clone()));
    for (what, old, is_kept) in [
        ("waits, too", old.clone(), false),
        ("runs", bound(old.clone(), "n1"), true),
        ("is leaving", leaving, false),
        ("runs again", bound(old.clone(), "n1"), true),
        ("has ended", ended, false),
    ] {
        let state = with_modes(claim.clone()).with_pods([new.clone(), old.clone()]);
        let applied = live.apply([Change::Pod(Arc::new(old))]);
        assert_eq!(applied, Applied::InPlace, "{what}");
        assert_same(&live, &state, what);
        let found = problem(live.snapshot());
        assert_eq!(found.is_some(), is_kept, "{what}: {found:?}");
        let says = |text: String| text.contains("in use by pod default/web-old");
        assert!(found.is_none_or(says), "{what}");
    }
    let gone = Change::PodGone {
        namespace: "default".to_owned(),
        name: "web-old".to_owned(),
        is_virtual: false,
    };
    live.apply([Change::Pod(Arc::new(bound(old.clone(), "n1"))), gone]);
    assert_eq!(problem(live.snapshot()), None, "the other pod is gone");
    let shared = json!({"storageClassName": "disk", "volumeName": "data", "accessModes": ["ReadWriteOnce"]});
    let shared = with_modes(shared).with_pods([new, bound(old, "n1")]);
    assert_eq!(problem(&lower(&shared)), None, "pods of one node share it");
}

/// A claim that nothing provisions, and one pod that waits with it.
fn ready_made(volumes: &[(&str, Value)]) -> ClusterState {
    let class = json!({"provisioner": "kubernetes.io/no-provisioner"});
    let asked = json!({"storageClassName": "disk", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}});
    let mut state = with_claim(with_class(state(), class), "data", asked);
    for (name, volume) in volumes {
        state = with_volume(state, name, volume.clone());
    }
    state.with_pod(using("db-0", "data"))
}

/// A local volume of the class.
fn disk(host: &str, size: &str, phase: &str) -> Value {
    let mut volume = local(host);
    volume["spec"]["storageClassName"] = json!("disk");
    volume["spec"]["capacity"] = json!({"storage": size});
    volume["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    volume["status"] = json!({"phase": phase});
    volume
}

/// Its nodes are as old as the claim.
fn with_old_nodes(mut state: ClusterState) -> ClusterState {
    for node in &mut state.nodes {
        Arc::make_mut(node).metadata.creation_timestamp = Some(Time(EARLIER.parse().expect("a time")));
    }
    state
}

#[test]
fn p_116_a_claim_that_nothing_provisions_is_served_where_a_volume_is_or_may_come() {
    let planned = "kubernetes.io/hostname In [hostname-placeholder]";
    let there = "kubernetes.io/hostname In [n1]";
    let of = |volumes: &[(&str, Value)]| terms(&with_old_nodes(ready_made(volumes)), "db-0");
    assert_eq!(of(&[]), [planned], "an old node has none");
    assert_eq!(of(&[("v", disk("n1", "5Gi", "Available"))]), [planned, there]);
    assert_eq!(
        of(&[("v", disk("n1", "4Gi", "Available"))]),
        [planned],
        "too small"
    );
    assert_eq!(of(&[("v", disk("n1", "5Gi", "Bound"))]), [planned], "another's");
    for (field, value) in [
        ("storageClassName", json!("other")),
        ("volumeMode", json!("Block")),
        ("accessModes", json!(["ReadOnlyMany"])),
        ("claimRef", json!({"namespace": "default", "name": "another"})),
    ] {
        let mut volume = disk("n1", "5Gi", "Available");
        volume["spec"][field] = value;
        assert_eq!(of(&[("v", volume)]), [planned], "{field}");
    }
    let mut kept = disk("n1", "5Gi", "Available");
    kept["spec"]["claimRef"] = json!({"namespace": "default", "name": "data"});
    assert_eq!(of(&[("v", kept)]), [planned, there], "kept for this claim");
    let mut anywhere = disk("n1", "5Gi", "Available");
    if let Some(spec) = anywhere["spec"].as_object_mut() {
        spec.remove("nodeAffinity");
    }
    assert!(of(&[("v", anywhere)]).is_empty());
    let two = [
        ("v", disk("n1", "5Gi", "Available")),
        ("w", disk("n2", "5Gi", "Available")),
    ];
    assert_eq!(of(&two), [planned, "kubernetes.io/hostname In [n1 n2]"]);
}

/// Whoever makes volumes of its disks takes a while. Until then a node counts as one that is to be launched, or there would be another for the pod each time.
#[test]
fn p_116_a_node_that_came_for_a_claim_may_yet_bring_its_volume() {
    let coming = "kubernetes.io/hostname In [hostname-placeholder n1]";
    let planned = "kubernetes.io/hostname In [hostname-placeholder]";
    assert_eq!(terms(&ready_made(&[]), "db-0"), [coming], "it is younger");
    let served = ready_made(&[("v", disk("n1", "5Gi", "Bound"))]);
    assert_eq!(terms(&served, "db-0"), [planned], "it has brought its volumes");
    let mut starting = with_old_nodes(ready_made(&[]));
    let meta = &mut Arc::make_mut(&mut starting.nodes[0]).metadata;
    meta.labels.get_or_insert_default().remove(labels::INITIALIZED);
    assert_eq!(terms(&starting, "db-0"), [coming], "it starts");
    let mut launched = ready_made(&[]);
    launched.nodes.clear();
    assert_eq!(terms(&launched, "db-0"), [coming], "its Node has yet to join");
}

/// Many volumes in few places, and several claims: what is the same is asked once.
#[test]
fn p_116_free_volumes_of_one_place_are_one_alternative() {
    let in_zone = |zone: &str| {
        let mut volume = disk("n1", "5Gi", "Available");
        volume["spec"]["nodeAffinity"] = terms_of(labels::ZONE, &[zone]);
        volume
    };
    let names: Vec<String> = (0..30).map(|number| format!("v{number:02}")).collect();
    let volumes: Vec<(&str, Value)> = names
        .iter()
        .enumerate()
        .map(|(number, name)| (name.as_str(), in_zone(["a", "b"][number % 2])))
        .collect();
    let mut state = ready_made(&volumes);
    let asked = json!({"storageClassName": "disk", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}});
    for claim in ["data-2", "data-3"] {
        state = with_claim(state, claim, asked.clone());
    }
    let claims: Vec<Value> = ["data", "data-2", "data-3"]
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    let db = pending_pod("db-3", "100m", "10Mi", &json!({"volumes": claims}));
    let state = with_old_nodes(state).with_pod(db);
    let planned = "kubernetes.io/hostname In [hostname-placeholder]";
    let (a, b) = (
        "topology.kubernetes.io/zone In [a]",
        "topology.kubernetes.io/zone In [b]",
    );
    assert_eq!(terms(&state, "db-0"), [planned, a, b]);
    let found = terms(&state, "db-3");
    assert_eq!(found.len(), 5, "each, and a new node in either zone: {found:?}");
}

/// A StatefulSet that was scaled down leaves claims for which there never was a volume.
#[test]
fn p_116_a_claim_that_no_pod_uses_makes_nothing_depend_on_nodes() {
    let mut state = ready_made(&[]);
    let db = state.pods.pop().expect("the pod");
    let mut live = LiveSnapshot::new(state.clone());
    let joins = |live: &mut LiveSnapshot, state: &mut ClusterState, name: &str| {
        let (object, claim) = node("default", name, &small(), "a", "spot");
        *state = std::mem::take(state).with_node((object, claim));
        let claim = state.node_claims.last().cloned().expect("a NodeClaim");
        let node = state.nodes.last().cloned().expect("a Node");
        let applied = live.apply([Change::NodeClaim(claim), Change::Node(node)]);
        assert_same(live, state, name);
        applied
    };
    assert_eq!(joins(&mut live, &mut state, "n2"), Applied::InPlace);
    state.pods.push(Arc::clone(&db));
    assert_eq!(live.apply([Change::Pod(db)]), Applied::Rebuilt);
    assert_same(&live, &state, "a pod asks for a volume");
    assert_eq!(joins(&mut live, &mut state, "n3"), Applied::Rebuilt);
    state.pods.clear();
    live.apply([Change::PodGone {
        namespace: "default".to_owned(),
        name: "db-0".to_owned(),
        is_virtual: false,
    }]);
    assert_same(&live, &state, "it is gone");
    assert_eq!(joins(&mut live, &mut state, "n4"), Applied::InPlace);
}

/// Pods that share claims of every sort come and go, and so do nodes that some of these depend on.
#[test]
fn p_115_p_116_any_changes_around_volumes_give_what_lowering_the_same_objects_gives() {
    let (mut in_place, mut rebuilt) = (0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut state = ready_made(&[("free", disk("n2", "5Gi", "Available"))]);
        state = with_bound_claim(state, "local", local("n1"));
        let modes =
            json!({"storageClassName": "disk", "volumeName": "local", "accessModes": ["ReadWriteOncePod"]});
        state = with_claim(state, "alone", modes);
        if seed % 2 == 1 {
            state.pods.clear();
        }
        let mut live = LiveSnapshot::new(state.clone());
        for step in 0..40 {
            let change = match dice.below(6) {
                0 => {
                    let name = format!("n{}", 1 + dice.below(3));
                    state
                        .nodes
                        .retain(|node| node.metadata.name.as_ref() != Some(&name));
                    Change::NodeGone(name)
                }
                1 | 2 => {
                    let name = format!("n{}", 1 + dice.below(3));
                    let (mut object, _) = node("default", &name, &small(), "a", "spot");
                    let own = object.metadata.labels.get_or_insert_default();
                    match dice.below(4) {
                        0 => _ = own.remove(labels::INITIALIZED),
                        1 => _ = own.insert(labels::HOSTNAME.to_owned(), "n1".to_owned()),
                        2 => _ = own.insert("seen".to_owned(), step.to_string()),
                        _ => {}
                    }
                    let object = Arc::new(object);
                    state
                        .nodes
                        .retain(|node| node.metadata.name.as_ref() != Some(&name));
                    state.nodes.push(Arc::clone(&object));
                    Change::Node(object)
                }
                3 => {
                    let name = format!("pod-{}", dice.below(5));
                    state.pods.retain(|pod| pod.metadata.name.as_ref() != Some(&name));
                    Change::PodGone {
                        namespace: "default".to_owned(),
                        name,
                        is_virtual: false,
                    }
                }
                _ => {
                    let name = format!("pod-{}", dice.below(5));
                    let mut pod = using(&name, dice.pick::<&str>(&["data", "local", "alone", "alone"]));
                    if dice.below(2) == 0 {
                        pod = bound(pod, &format!("n{}", 1 + dice.below(3)));
                    }
                    if dice.below(4) == 0 {
                        let spec = Arc::make_mut(pod.spec.get_or_insert_default());
                        let host = format!("n{}", 1 + dice.below(3));
                        spec.node_selector = Some([(labels::HOSTNAME.to_owned(), host)].into());
                    }
                    if dice.below(5) == 0 {
                        pod.metadata.deletion_timestamp = Some(Time(epoch()));
                    }
                    let pod = Arc::new(pod);
                    state.pods.retain(|one| one.metadata.name.as_ref() != Some(&name));
                    state.pods.push(Arc::clone(&pod));
                    Change::Pod(pod)
                }
            };
            let what = format!("seed {seed}, step {step}: {change:?}");
            match live.apply([change]) {
                Applied::InPlace => in_place += 1,
                Applied::Rebuilt => rebuilt += 1,
            }
            assert_same(&live, &state, &what);
        }
    }
    assert!(
        in_place > 200 && rebuilt > 200,
        "{in_place} in place, {rebuilt} rebuilt"
    );
}
