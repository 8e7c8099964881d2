//! Which node waiting pods name after a pass (W-62), and how a pass heeds what they name.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use spokeshave_example::{bound, epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::planned_node::{self, TakenBack};
use spokeshave_model::{Action, ClusterState, InstanceType, Pod, Snapshot, labels, lower};
use spokeshave_plan::nominations::{Nominations, after_loss, at_registration};
use spokeshave_plan::{Policy, Provisioned, provision};
use std::sync::Arc;

fn large() -> InstanceType {
    instance_type("large", 16, 32, &["a"])
}

fn pod(name: &str, cpu: &str) -> Pod {
    pending_pod(name, cpu, "100Mi", &json!({}))
}

fn later(seconds: i64) -> Timestamp {
    epoch() + SignedDuration::from_secs(seconds)
}

/// As if an action about it had been carried out.
fn naming(mut pod: Pod, node: Option<&str>, since: Timestamp) -> Pod {
    let status = pod.status.get_or_insert_default();
    status.nominated_node_name = node.map(str::to_owned);
    let condition = planned_node::names(node.unwrap_or("a"), since);
    status.conditions.get_or_insert_default().push(condition);
    pod
}

fn taken_back(mut pod: Pod, node: &str, why: TakenBack) -> Pod {
    let condition = planned_node::no_longer(node, why, epoch());
    let status = pod.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(condition);
    pod
}

/// Nodes `a`, `b` and `c` of 16 processors.
fn three_nodes(pods: impl IntoIterator<Item = Pod>) -> ClusterState {
    let mut state = ClusterState::default().with_pool(node_pool("default"), vec![large()]);
    for name in ["a", "b", "c"] {
        state = state.with_node(node("default", name, &large(), "a", "on-demand"));
    }
    state.with_pods(pods)
}

fn decided(state: &ClusterState) -> (Snapshot, Provisioned) {
    let snapshot = lower(state);
    let outcome = provision(&snapshot, &Policy::default(), epoch());
    (snapshot, outcome)
}

/// The node that a pod was planned on, if that is one that exists.
fn place(snapshot: &Snapshot, outcome: &Provisioned, name: &str) -> Option<String> {
    let mut existing = outcome.placements.existing.iter();
    let (node, _) = existing.find(|(_, pods)| pods.iter().any(|pod| snapshot.pod(*pod).key() == name))?;
    Some(snapshot.node(*node).name.clone())
}

/// What is written: pod, node, reason.
fn written(nominations: &Nominations) -> Vec<(String, Option<String>, String)> {
    let actions = nominations.actions.iter().map(|action| match action {
        Action::NominatePod {
            target,
            node,
            condition,
        } => {
            let reason = condition.reason.clone().unwrap();
            (target.name.clone(), node.clone(), reason)
        }
        other => panic!("{other:?}"),
    });
    actions.collect()
}

fn after(state: &ClusterState, now: Timestamp) -> Nominations {
    let (snapshot, outcome) = decided(state);
    Nominations::of(&snapshot, &outcome, now)
}

fn line(pod: &str, node: Option<&str>, reason: &str) -> (String, Option<String>, String) {
    (pod.to_owned(), node.map(str::to_owned), reason.to_owned())
}

#[test]
fn w_62_a_pod_goes_where_it_names_before_larger_ones_choose() {
    // Without names the first node takes the first, largest pod.
    let (small, big) = (pod("small", "1"), pod("big", "15500m"));
    let (snapshot, outcome) = decided(&three_nodes([small.clone(), big.clone()]));
    assert_eq!(place(&snapshot, &outcome, "default/big").as_deref(), Some("a"));
    let named = naming(small.clone(), Some("a"), epoch());
    let (snapshot, outcome) = decided(&three_nodes([named, big.clone()]));
    assert_eq!(place(&snapshot, &outcome, "default/small").as_deref(), Some("a"));
    assert_eq!(place(&snapshot, &outcome, "default/big").as_deref(), Some("b"));
    // Others' names are others' business: such a pod is not planned for, and nothing is written; it has its room there.
    let mut theirs = small;
    theirs.status.as_mut().unwrap().nominated_node_name = Some("a".to_owned());
    let state = three_nodes([theirs.clone(), big]);
    let (snapshot, outcome) = decided(&state);
    assert_eq!(outcome.pods.len(), 1);
    assert_eq!(place(&snapshot, &outcome, "default/big").as_deref(), Some("b"));
    assert_eq!(
        written(&after(&state, epoch())),
        [line("big", Some("b"), "Planned")]
    );
    // Also where it is planned for, because there is no such node.
    theirs.status.as_mut().unwrap().nominated_node_name = Some("gone".to_owned());
    let state = three_nodes([theirs]);
    assert_eq!(decided(&state).1.pods.len(), 1);
    assert!(written(&after(&state, epoch())).is_empty());
}

#[test]
fn w_62_a_name_that_cannot_be_kept_is_in_nobodys_way() {
    let full = bound(pod("other", "15"), "a");
    let late = naming(pod("late", "2"), Some("a"), epoch());
    let state = three_nodes([full, late]);
    let (snapshot, outcome) = decided(&state);
    assert_eq!(place(&snapshot, &outcome, "default/late").as_deref(), Some("b"));
    assert_eq!(
        written(&after(&state, epoch())),
        [line("late", Some("b"), "Planned")]
    );
    // The node has vanished, and no other has room: it gets a new one, which has no name yet.
    let lost = naming(pod("lost", "15500m"), Some("gone"), epoch());
    let fillers = ["a", "b", "c"].map(|node| bound(pod(&format!("on-{node}"), "15"), node));
    let state = three_nodes(fillers.into_iter().chain([lost]));
    let (_, outcome) = decided(&state);
    assert_eq!(outcome.placements.claims.len(), 1);
    assert_eq!(
        written(&after(&state, epoch())),
        [line("lost", None, "PlanChanged")]
    );
    // Nor is it kept for one that fits nowhere, or that is put aside.
    let huge = naming(pod("huge", "900"), Some("b"), epoch());
    let broken = json!({"nodeSelector": {}, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "team", "operator": "Near"}]}]}}}});
    let broken = naming(pending_pod("broken", "1", "1Gi", &broken), Some("b"), epoch());
    let state = three_nodes([huge, broken]);
    let mut lines = written(&after(&state, epoch()));
    lines.sort();
    let expected = [
        line("broken", None, "PlanChanged"),
        line("huge", None, "PlanChanged"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn w_62_a_name_is_written_once_and_taken_back_when_nobody_heeds_it() {
    let state = three_nodes([pod("p", "1")]);
    assert_eq!(
        written(&after(&state, epoch())),
        [line("p", Some("a"), "Planned")]
    );
    let named = three_nodes([naming(pod("p", "1"), Some("a"), epoch())]);
    assert!(after(&named, later(179)).actions.is_empty());
    assert_eq!(written(&after(&named, later(180))), [line("p", None, "NotTaken")]);
    let given_up = three_nodes([taken_back(pod("p", "1"), "a", TakenBack::NotTaken)]);
    assert!(after(&given_up, later(600)).actions.is_empty(), "for good");
    let changed = three_nodes([taken_back(pod("p", "1"), "a", TakenBack::PlanChanged)]);
    assert_eq!(
        written(&after(&changed, later(600))),
        [line("p", Some("a"), "Planned")],
        "the plan may come back to it"
    );
    // A scheduler has tried it in vain although the node could run pods, and emptied the field.
    let emptied = three_nodes([naming(pod("p", "1"), None, epoch())]);
    assert!(after(&emptied, later(1)).actions.is_empty());
    // It had tried it before that.
    let early = epoch() - SignedDuration::from_secs(9);
    let emptied = three_nodes([naming(pod("p", "1"), None, early)]);
    assert_eq!(
        written(&after(&emptied, later(1))),
        [line("p", Some("a"), "Planned")]
    );
}

/// A scheduler may be binding it there, and the name that it writes meanwhile is the same.
#[test]
fn w_62_a_pod_whose_volumes_take_a_while_keeps_its_name_for_longer() {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let slow = pending_pod("p", "1", "100Mi", &json!({"volumes": volumes}));
    let mut state = three_nodes([naming(slow, Some("a"), epoch())]);
    let class = json!({"metadata": {"name": "disk"}, "provisioner": "disk.example", "volumeBindingMode": "WaitForFirstConsumer"});
    let classes = &mut state.volumes.storage_classes;
    classes.insert(
        "disk".to_owned(),
        Arc::new(serde_json::from_value(class).unwrap()),
    );
    let claim =
        json!({"metadata": {"namespace": "default", "name": "data"}, "spec": {"storageClassName": "disk"}});
    let claims = &mut state.volumes.claims;
    claims.insert(
        "default/data".to_owned(),
        Arc::new(serde_json::from_value(claim).unwrap()),
    );
    assert!(after(&state, later(899)).actions.is_empty());
    assert_eq!(written(&after(&state, later(900))), [line("p", None, "NotTaken")]);
}

/// A node that cannot run pods yet keeps its name for as long as that takes.
#[test]
fn w_62_the_time_for_a_name_begins_when_the_node_can_run_pods() {
    let mut state = ClusterState::default().with_pool(node_pool("default"), vec![large()]);
    let (mut one, mut claim) = node("default", "a", &large(), "a", "on-demand");
    one.metadata.labels.as_mut().unwrap().remove(labels::INITIALIZED);
    claim
        .status
        .as_mut()
        .unwrap()
        .conditions
        .retain(|condition| condition.type_ != "Initialized");
    state = state.with_node((one, claim));
    let waiting = |node| state.clone().with_pods([naming(pod("p", "1"), node, epoch())]);
    assert!(after(&waiting(Some("a")), later(3600)).actions.is_empty());
    // A scheduler has tried the pod meanwhile, and emptied the field.
    assert_eq!(
        written(&after(&waiting(None), later(3600))),
        [line("p", Some("a"), "Planned")]
    );
}

#[test]
fn w_62_who_is_planned_on_a_node_that_comes_is_told() {
    let mut state = ClusterState::default().with_pool(node_pool("default"), vec![large()]);
    let (mut one, claim) = node("default", "a", &large(), "a", "on-demand");
    let own = one.metadata.labels.as_mut().unwrap();
    own.remove(labels::REGISTERED);
    own.remove(labels::INITIALIZED);
    state = state.with_node((one, claim));
    // The last two name it already: that is written before the Node is registered, and a scheduler may have emptied the field since.
    let pods = [
        pod("p", "1"),
        naming(pod("q", "1"), Some("b"), epoch()),
        naming(pod("r", "1"), Some("a"), epoch()),
        naming(pod("s", "1"), None, epoch()),
    ];
    let state = state.with_pods(pods);
    let (snapshot, outcome) = decided(&state);
    let nominations = Nominations::of(&snapshot, &outcome, epoch());
    let expected: Vec<(String, &str)> = nominations
        .expected
        .iter()
        .map(|(pod, claim)| (snapshot.pod(*pod).key(), claim.as_str()))
        .collect();
    let claim = "claim-a";
    assert_eq!(
        expected,
        [("default/p".to_owned(), claim), ("default/q".to_owned(), claim)]
    );
    assert_eq!(written(&nominations), [line("q", None, "PlanChanged")]);
}

#[test]
fn w_62_when_a_node_joins_only_pods_that_still_wait_name_it() {
    let names = |pod: &Pod| at_registration(pod, "a", later(5)).is_some();
    assert!(names(&pod("p", "1")));
    assert!(names(&naming(pod("p", "1"), Some("b"), epoch())), "planned anew");
    assert!(
        !names(&naming(pod("p", "1"), Some("a"), epoch())),
        "it does already"
    );
    assert!(!names(&bound(pod("p", "1"), "b")));
    assert!(!names(&taken_back(pod("p", "1"), "a", TakenBack::NotTaken)));
    let mut theirs = pod("p", "1");
    theirs.status.as_mut().unwrap().nominated_node_name = Some("b".to_owned());
    assert!(!names(&theirs), "a scheduler makes room for it");
    let mut leaving = pod("p", "1");
    leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
    assert!(!names(&leaving));
    let again = |pod: &Pod| after_loss(pod, "a", later(5)).is_some();
    assert!(again(&naming(pod("p", "1"), None, epoch())), "lost meanwhile");
    assert!(!again(&naming(pod("p", "1"), Some("a"), epoch())));
    assert!(!again(&taken_back(pod("p", "1"), "a", TakenBack::NotTaken)));
    assert!(!again(&pod("p", "1")));
}
