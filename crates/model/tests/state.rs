//! How Nodes and NodeClaims become the nodes of a Snapshot (P §8.1).

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_example::{bound, daemon_set, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::scheduler_profiles::{
    AddedAffinity, IgnoredResources, SchedulerProfile, SchedulerProfiles,
};
use spokeshave_model::snapshot::NodeView;
use spokeshave_model::{
    Applied, Change, ClusterState, InstanceType, LiveSnapshot, Pod, ResourceName, Revocable, labels, lower,
};
use std::collections::BTreeSet;
use std::sync::Arc;

fn small() -> InstanceType {
    instance_type("small", 2, 4, &["a"])
}

fn state() -> ClusterState {
    ClusterState::default()
        .with_pool(node_pool("default"), vec![small()])
        .with_node(node("default", "n", &small(), "a", "spot"))
}

fn views(state: &ClusterState) -> Vec<NodeView> {
    lower(state).nodes
}

#[test]
fn p_140_node_and_claim_are_joined_by_provider_id() {
    let view = &views(&state())[0];
    assert_eq!(
        (view.node_name(), view.claim_name()),
        (Some("n"), Some("claim-n"))
    );
    assert_eq!(view.instance_type, Some(0));
    let mut apart = state();
    Arc::make_mut(&mut apart.nodes[0])
        .spec
        .get_or_insert_default()
        .provider_id = Some("kwok://other".to_owned());
    assert_eq!(views(&apart).len(), 2);
}

#[test]
fn p_141_managed_nodes_wait_for_provider_id_and_instance_type() {
    let mut anonymous = state();
    anonymous.node_claims.clear();
    Arc::make_mut(&mut anonymous.nodes[0])
        .spec
        .get_or_insert_default()
        .provider_id = None;
    assert!(views(&anonymous).is_empty());
    let mut untyped = state();
    untyped.node_claims.clear();
    Arc::make_mut(&mut untyped.nodes[0])
        .metadata
        .labels
        .get_or_insert_default()
        .retain(|key, _| key == labels::NODE_POOL);
    assert!(views(&untyped).is_empty());
}

#[test]
fn p_142_synced_means_that_every_claim_has_a_provider_id() {
    assert!(lower(&state()).synced);
    let mut launching = state();
    Arc::make_mut(&mut launching.node_claims[0]).status = None;
    let snapshot = lower(&launching);
    assert!(!snapshot.synced);
    assert_eq!(snapshot.nodes.len(), 1, "the Node alone stays in view");
}

#[test]
fn p_143_the_claim_speaks_until_the_node_registers() {
    let mut starting = state();
    Arc::make_mut(&mut starting.nodes[0])
        .metadata
        .labels
        .get_or_insert_default()
        .remove(labels::REGISTERED);
    let claim = Arc::make_mut(&mut starting.node_claims[0]);
    claim.spec.taints =
        vec![serde_json::from_value(json!({"key": "from-claim", "effect": "NoSchedule"})).expect("a taint")];
    claim
        .metadata
        .labels
        .get_or_insert_default()
        .insert("who".to_owned(), "claim".to_owned());
    let view = &views(&starting)[0];
    assert_eq!(view.name, "claim-n");
    assert_eq!(view.labels.get("who").map(String::as_str), Some("claim"));
    assert_eq!(view.taints[0].key, "from-claim");
    let view = &views(&state())[0];
    assert_eq!((view.name.as_str(), view.taints.len()), ("n", 0));
}

#[test]
fn p_144_what_marks_a_node_for_deletion() {
    let marked = |change: &dyn Fn(&mut ClusterState)| {
        let mut state = state();
        change(&mut state);
        views(&state)[0].marked_for_deletion
    };
    assert!(!marked(&|_| {}));
    assert!(marked(&|state| state
        .marked_for_deletion
        .extend(["kwok://n".to_owned()])));
    assert!(marked(&|state| Arc::make_mut(&mut state.node_claims[0])
        .metadata
        .deletion_timestamp = Some(Time(epoch()))));
    let node_deleting = |state: &mut ClusterState| {
        Arc::make_mut(&mut state.nodes[0]).metadata.deletion_timestamp = Some(Time(epoch()));
    };
    assert!(!marked(&node_deleting), "D-026: its NodeClaim is not deleted yet");
    assert!(marked(&|state| {
        node_deleting(state);
        state.node_claims.clear();
    }));
}

#[test]
fn p_059_a_pool_whose_class_is_of_another_cloud_launches_nothing() {
    let serves = |kinds: &[(&str, &str)]| {
        let mut state = state();
        let owned = |(group, kind): &(&str, &str)| ((*group).to_owned(), (*kind).to_owned());
        state.supported_node_classes = kinds.iter().map(owned).collect();
        let pool = &lower(&state).pools[0];
        assert_eq!(pool.supported, pool.is_provisionable());
        pool.supported
    };
    let (group, kind) = ("karpenter.kwok.sh", "KWOKNodeClass");
    assert!(serves(&[]), "nobody has said what is served");
    assert!(serves(&[("karpenter.k8s.aws", "EC2NodeClass"), (group, kind)]));
    for other in [(group, "EC2NodeClass"), ("karpenter.k8s.aws", kind)] {
        assert!(!serves(&[other]), "{other:?}");
    }
}

#[test]
fn p_145_pool_totals_leave_out_marked_nodes() {
    let two = state().with_node(node("default", "m", &small(), "a", "spot"));
    let usage = |state: &ClusterState| {
        let usage = lower(state).pools[0].usage.clone();
        (usage.get(ResourceName::CPU), usage.get(ResourceName::NODES))
    };
    assert_eq!(usage(&two), (4000, 2));
    let mut marked = two;
    marked.marked_for_deletion.insert("kwok://m".to_owned());
    assert_eq!(usage(&marked), (2000, 1));
}

/// Of a static NodePool are those whose NodeClaims bear its label, which users change to take one out; of a dynamic one those whose Nodes do.
#[test]
fn p_145_d_355_what_was_taken_out_of_a_static_pool_is_no_part_of_its_usage() {
    for (replicas, left) in [(Some(2), 1), (None, 2)] {
        let mut pool = node_pool("default");
        pool.spec.replicas = replicas;
        let state = ClusterState::default()
            .with_pool(pool.clone(), vec![small()])
            .with_node(node("default", "n", &small(), "a", "spot"))
            .with_node(node("default", "m", &small(), "a", "spot"));
        let mut claim = (*state.node_claims[0]).clone();
        let found = claim.metadata.labels.get_or_insert_default();
        found.insert(labels::NODE_POOL.to_owned(), "other".to_owned());
        let mut live = LiveSnapshot::new(state);
        let nodes = |live: &LiveSnapshot| {
            assert_eq!(**live.snapshot(), lower(&live.state()));
            live.snapshot().pools[0].usage.get(ResourceName::NODES)
        };
        assert_eq!(nodes(&live), 2);
        live.apply([Change::NodeClaim(Arc::new(claim))]);
        assert_eq!(nodes(&live), left);
        // Another NodePool of its name.
        pool.spec.replicas = None;
        live.apply([Change::NodePool(Arc::new(pool))]);
        assert_eq!(nodes(&live), 2);
    }
}

#[test]
fn invariant_15_a_command_that_may_be_taken_back_counts_as_it_may_end() {
    let usage = |leaves: &[&str], comes: &[&str]| {
        let mut state = state()
            .with_node(node("default", "m", &small(), "a", "spot"))
            .with_node(node("default", "new", &small(), "a", "spot"));
        let ids = |names: &[&str]| -> BTreeSet<String> {
            names.iter().map(|name| format!("kwok://{name}")).collect()
        };
        state.marked_for_deletion.extend(ids(leaves));
        let command = Revocable {
            leaves: ids(leaves),
            comes: ids(comes),
        };
        state.revocable.push(command);
        let usage = lower(&state).pools[0].usage.clone();
        (usage.get(ResourceName::CPU), usage.get(ResourceName::NODES))
    };
    assert_eq!(usage(&[], &[]), (6000, 3));
    assert_eq!(
        usage(&["m"], &[]),
        (6000, 3),
        "it stays if the command does not stand"
    );
    assert_eq!(
        usage(&["m"], &["new"]),
        (4000, 2),
        "one of the two is there in the end"
    );
    assert_eq!(usage(&["n", "m"], &["new"]), (4000, 2), "two for one");
}

#[test]
fn pods_of_one_shape_share_a_class_unless_a_selector_can_tell_them_apart() {
    let labelled = |name: &str, app: &str| {
        let mut pod = pending_pod(name, "1", "1Gi", &json!({}));
        pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        pod
    };
    let plain = state().with_pods([labelled("a", "web"), labelled("b", "db")]);
    assert_eq!(lower(&plain).classes.len(), 1);
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let observed = plain.with_pod(pending_pod("c", "1", "1Gi", &spread));
    assert_eq!(lower(&observed).classes.len(), 3);
}

#[test]
fn terminal_pods_release_their_requests_and_daemons_are_counted_apart() {
    let mut done = bound(pending_pod("done", "1", "1Gi", &json!({})), "n");
    done.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    let mut daemon = bound(pending_pod("daemon", "200m", "1Gi", &json!({})), "n");
    daemon.metadata.owner_references = serde_json::from_value(
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "u"}]),
    )
    .ok();
    let state = state().with_pods([
        done,
        daemon,
        bound(pending_pod("web", "300m", "1Gi", &json!({})), "n"),
    ]);
    let view = &views(&state)[0];
    assert_eq!(
        (view.requested[0], view.daemon_requested[0], view.pods.len()),
        (500, 200, 3)
    );
}

/// What a claim says of a pod that runs is about its successor; what would only keep a waiting pod is no question.
#[test]
fn p_057_p_115_a_running_pod_has_the_problem_that_its_successor_would_have() {
    let volumes = json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]});
    let runs = bound(pending_pod("db", "1", "1Gi", &volumes), "n");
    let mut ends = runs.clone();
    ends.metadata.deletion_timestamp = Some(Time(epoch()));
    let problem = |pod: &Pod, claim: Option<serde_json::Value>| {
        let mut state = state().with_pod(pod.clone());
        let claim: Option<PersistentVolumeClaim> =
            claim.map(|claim| serde_json::from_value(claim).expect("a claim"));
        let claims = claim.map(|claim| ("default/data".to_owned(), Arc::new(claim)));
        state.volumes.claims.extend(claims);
        let snapshot = lower(&state);
        snapshot.pods[0].problem().map(ToString::to_string)
    };
    let going =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"volumeName": "v"}});
    let text = Some("persistentvolumeclaim \"default/data\", is being deleted".to_owned());
    assert_eq!(problem(&runs, Some(going.clone())), text);
    assert_eq!(problem(&ends, Some(going)), None, "nobody moves it");
    let lost = json!({"metadata": {}, "spec": {"volumeName": "v"}, "status": {"phase": "Lost"}});
    assert!(problem(&runs, Some(lost)).is_some());
    // Its volume is in use: it is of no account that nobody knows the object, or that no annotation says that it is bound.
    for there in [None, Some(json!({"metadata": {}, "spec": {"volumeName": "v"}}))] {
        assert_eq!(problem(&runs, there.clone()), None);
        let waits = pending_pod("db", "1", "1Gi", &volumes);
        assert!(problem(&waits, there).is_some());
    }
}

/// A pod that asks for a node by name tells that node from the others, and no others from each other.
#[test]
fn p_040_only_the_node_that_affinity_names_is_of_another_kind() {
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let affinity = json!({"affinity": {"nodeAffinity": required}});
    let pinned = bound(pending_pod("pinned", "1", "1Gi", &affinity), "n");
    let others = ["a", "b"].map(|name| node("default", name, &small(), "a", "spot"));
    let state = others.into_iter().fold(state(), ClusterState::with_node);
    let kinds = |state: ClusterState| {
        let kinds = views(&state).into_iter().map(|view| view.kind);
        kinds.collect::<BTreeSet<_>>().len()
    };
    assert_eq!(kinds(state.clone()), 1);
    assert_eq!(kinds(state.clone().with_pod(pinned.clone())), 2);
    let mut daemon = pinned;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "u"}]);
    daemon.metadata.owner_references = serde_json::from_value(owner).ok();
    assert_eq!(kinds(state.with_pod(daemon)), 1, "each has one of its own");
}

/// Pods of the default scheduler need nodes of a team, and no licence.
fn profiles() -> Arc<SchedulerProfiles> {
    let terms = json!([{"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let affinity = serde_json::from_value(required).expect("affinity written by hand");
    let profile = SchedulerProfile {
        added_affinity: Some(AddedAffinity::read(affinity).expect("affinity with a meaning")),
        ignored_resources: IgnoredResources::read(vec!["example.com/licence".to_owned()], Vec::new())
            .expect("the name of a resource"),
        ..SchedulerProfile::default()
    };
    Arc::new(SchedulerProfiles::by_name(
        [("default-scheduler".to_owned(), profile)].into(),
    ))
}

fn licensed(name: &str, scheduler: &str) -> Pod {
    let requests = json!({"cpu": "1", "example.com/licence": "1"});
    let containers = json!([{"name": "c", "resources": {"requests": requests}}]);
    let spec = json!({"schedulerName": scheduler, "containers": containers});
    pending_pod(name, "0", "0", &spec)
}

/// The controller of DaemonSets makes a pod for each node, and kube-scheduler binds it only where the profile lets it.
#[test]
fn b_60_daemons_take_room_only_where_their_profile_lets_them() {
    let of = |scheduler: &str| {
        let spec = licensed("agent", scheduler).spec.expect("it has one");
        let spec = serde_json::to_value(&*spec).expect("a spec");
        let state = state().with_daemon_set(daemon_set("agent", "1", "0", &spec));
        let with_profiles = |state: &ClusterState| ClusterState {
            scheduler_profiles: profiles(),
            ..state.clone()
        };
        // From its template, and from a pod of it, which is bound to its node by name.
        let mut pod = licensed("agent-n", scheduler);
        let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).ok();
        let live = state.clone().with_pod(bound(pod, "n"));
        [state, live].map(|state| {
            let snapshot = lower(&with_profiles(&state));
            let daemon = &snapshot.daemons[0];
            let terms = daemon.constraints.required_terms.iter();
            let terms: Vec<String> = terms.map(ToString::to_string).collect();
            let requests = snapshot.resources.resources(&daemon.requests);
            (terms.join(" or "), requests.contains("example.com/licence"))
        })
    };
    let judged = ("team In [a]".to_owned(), false);
    assert_eq!(of("default-scheduler"), [judged.clone(), judged]);
    let other = (String::new(), true);
    assert_eq!(of("elsewhere"), [other.clone(), other]);
}

/// What a profile ignores is not a resource of the Snapshot, whichever pod comes, changes its scheduler, or goes.
#[test]
fn b_60_profiles_are_taken_in_with_the_pods_that_they_judge() {
    let mut state = state();
    state.scheduler_profiles = profiles();
    let put = |state: &mut ClusterState, pod: Pod| {
        state.pods.retain(|one| one.metadata.name != pod.metadata.name);
        let pod = Arc::new(pod);
        state.pods.push(Arc::clone(&pod));
        Change::Pod(pod)
    };
    let first = put(&mut state, licensed("a", "default-scheduler"));
    let mut live = LiveSnapshot::new(state.clone());
    let width = live.snapshot().resources.width();
    let second = put(&mut state, licensed("b", "default-scheduler"));
    assert_eq!(
        live.apply([first, second]),
        Applied::InPlace,
        "no resource is new"
    );
    assert_eq!(**live.snapshot(), lower(&state));
    let other = put(&mut state, licensed("b", "elsewhere"));
    assert_eq!(
        live.apply([other]),
        Applied::Rebuilt,
        "to that one licences matter"
    );
    assert_eq!(**live.snapshot(), lower(&state));
    assert_eq!(live.snapshot().resources.width(), width + 1);
    let again = put(&mut state, licensed("b", "default-scheduler"));
    live.apply([again]);
    assert_eq!(**live.snapshot(), lower(&state));
    assert_eq!(live.snapshot().resources.width(), width);
    let class = |name: &str| {
        let snapshot = live.snapshot();
        let mut pods = snapshot.pods.iter();
        pods.find(|pod| pod.key() == name).map(|pod| pod.class)
    };
    assert_eq!(class("default/a"), class("default/b"));
}
