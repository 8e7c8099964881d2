//! What kube-scheduler is configured to add to pods decides where they are planned (B-60).

use serde_json::{Value, json};
use spokeshave_audit::check_placements;
use spokeshave_example::{bound, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::constraints::PodProblem;
use spokeshave_model::scheduler_profiles::{
    AddedAffinity, IgnoredResources, SchedulerProfile, SchedulerProfiles,
};
use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_model::{ClusterState, InstanceType, Pod, labels, lower};
use spokeshave_plan::{Policy, Provisioned, provision};
use std::sync::Arc;

fn small() -> InstanceType {
    instance_type("small", 2, 4, &["a", "b"])
}

/// A NodePool with a node in zone a.
fn state() -> ClusterState {
    ClusterState::default()
        .with_pool(node_pool("default"), vec![small()])
        .with_node(node("default", "n", &small(), "a", "spot"))
}

/// Pods of this scheduler are judged so.
fn judged(mut state: ClusterState, scheduler: &str, profile: SchedulerProfile) -> ClusterState {
    let profiles = SchedulerProfiles::by_name([(scheduler.to_owned(), profile)].into());
    state.scheduler_profiles = Arc::new(profiles);
    state
}

/// Nodes must meet this as well.
fn adding(key: &str, operator: &str, values: &[&str]) -> SchedulerProfile {
    let expression = json!({"key": key, "operator": operator, "values": values});
    let terms = json!([{"matchExpressions": [expression]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    let affinity = serde_json::from_value(required).expect("affinity written by hand");
    SchedulerProfile {
        added_affinity: Some(AddedAffinity::read(affinity).expect("affinity with a meaning")),
        ..SchedulerProfile::default()
    }
}

/// No node has to have this.
fn ignoring(resource: &str) -> SchedulerProfile {
    SchedulerProfile {
        ignored_resources: IgnoredResources::read(vec![resource.to_owned()], Vec::new())
            .expect("the name of a resource"),
        ..SchedulerProfile::default()
    }
}

/// The plan, which the audit has nothing against.
fn planned(state: &ClusterState) -> (Snapshot, Provisioned) {
    let snapshot = lower(state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    let violations = check_placements(&snapshot, &outcome.pods, &outcome.placements);
    assert_eq!(violations, []);
    (snapshot, outcome)
}

fn names(snapshot: &Snapshot, pods: &[PodId]) -> Vec<String> {
    pods.iter().map(|pod| snapshot.pod(*pod).key()).collect()
}

/// Those that go to the node.
fn on_the_node(snapshot: &Snapshot, outcome: &Provisioned) -> Vec<String> {
    let pods = outcome.placements.existing.values().flatten().copied();
    names(snapshot, &pods.collect::<Vec<_>>())
}

#[test]
fn b_60_pods_go_only_where_their_profile_lets_them_and_others_as_ever() {
    let elsewhere = json!({"schedulerName": "elsewhere"});
    let pods = [
        pending_pod("ours", "500m", "1Gi", &json!({})),
        pending_pod("theirs", "500m", "1Gi", &elsewhere),
    ];
    let state = judged(
        state().with_pods(pods),
        "default-scheduler",
        adding(labels::ZONE, "In", &["b"]),
    );
    let (snapshot, outcome) = planned(&state);
    assert_eq!(on_the_node(&snapshot, &outcome), ["default/theirs"]);
    let [claim] = &outcome.placements.claims[..] else {
        panic!("one node is launched")
    };
    assert_eq!(names(&snapshot, &claim.pods), ["default/ours"]);
    let zones = claim.requirements.get(labels::ZONE);
    assert!(zones.has("b") && !zones.has("a"), "{zones}");
}

#[test]
fn b_60_an_ignored_resource_keeps_no_pod_from_a_node_and_fills_none() {
    let licensed = |name: &str, spec: Value| {
        let requests = json!({"cpu": "500m", "example.com/licence": "1"});
        let mut all = json!({"containers": [{"name": "c", "resources": {"requests": requests}}]});
        json_patch::merge(&mut all, &spec);
        pending_pod(name, "0", "0", &all)
    };
    let state = state().with_pods([
        bound(licensed("runs", json!({})), "n"),
        licensed("waits", json!({})),
    ]);
    let (_, outcome) = planned(&state);
    assert_eq!(outcome.unschedulable.len(), 1, "no node has licences");
    let ignored = judged(state, "default-scheduler", ignoring("example.com/licence"));
    let (snapshot, outcome) = planned(&ignored);
    assert_eq!(on_the_node(&snapshot, &outcome), ["default/waits"]);
    assert_eq!(snapshot.resources.index("example.com/licence"), None);
    // Who is judged by another profile needs one all the same, on a node and on one to come.
    let other = licensed("other", json!({"schedulerName": "elsewhere"}));
    let (snapshot, outcome) = planned(&ignored.with_pod(other));
    let left: Vec<PodId> = outcome.unschedulable.iter().map(|one| one.pod).collect();
    assert_eq!(names(&snapshot, &left), ["default/other"]);
    assert_eq!(on_the_node(&snapshot, &outcome), ["default/waits"]);
}

#[test]
fn b_60_p_057_pods_of_a_profile_without_nodes_of_ours_are_left_alone() {
    let refusing = adding(labels::NODE_POOL, "DoesNotExist", &[]);
    let pods = ["a", "b"].map(|name| pending_pod(name, "1", "1Gi", &json!({})));
    let state = judged(state().with_pods(pods), "default-scheduler", refusing);
    let (snapshot, outcome) = planned(&state);
    let (left, problems): (Vec<PodId>, Vec<PodProblem>) = outcome.ignored.into_iter().unzip();
    assert_eq!(names(&snapshot, &left), ["default/a", "default/b"]);
    assert_eq!(problems, [PodProblem::OptedOut, PodProblem::OptedOut]);
    assert!(outcome.unschedulable.is_empty(), "so that no event tells of them");
}

#[test]
fn b_60_a_plan_that_breaks_a_profile_is_found_by_the_audit() {
    let ours: Pod = pending_pod("ours", "500m", "1Gi", &json!({}));
    let free = state().with_pod(ours);
    let (_, outcome) = planned(&free);
    assert!(
        !outcome.placements.existing.is_empty(),
        "it goes to the node in zone a"
    );
    let bound_to_b = judged(free, "default-scheduler", adding(labels::ZONE, "In", &["b"]));
    let violations = check_placements(&lower(&bound_to_b), &outcome.pods, &outcome.placements);
    let [violation] = &violations[..] else {
        panic!("one violation: {violations:?}")
    };
    assert!(
        violation.problem.contains("affinity does not match n"),
        "{violation}"
    );
}
