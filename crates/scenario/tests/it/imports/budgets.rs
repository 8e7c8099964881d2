//! PodDisruptionBudgets of recordings: each is one object over whatever it selects, whenever it came.

use serde_json::{Value, json};
use spokeshave_scenario::import::{Recording, bend};
use spokeshave_scenario::{Budget, OwnerKind, Timeline};

use super::dumps::inventory;
use super::streams::{audit_event, deployment, recorded};
use super::{HOUR_MS, read, source, whole};

/// A budget of `shop` over the pods of an app.
fn budget(name: &str, app: &str, most: i32) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": name},
        "spec": {"maxUnavailable": most, "selector": {"matchLabels": {"app": app}}}})
}

/// The same, with the time at which it was made.
fn made(mut budget: Value, at: &str) -> Value {
    budget["metadata"]["creationTimestamp"] = at.into();
    budget
}

/// Namespace, name, how many may be away, and the app of each.
fn told(timeline: &Timeline) -> Vec<(&str, &str, &str, &str)> {
    let budgets = timeline.budgets.iter();
    let told = budgets.map(|((namespace, name), budget)| {
        let labels = budget.selector.match_labels.as_ref();
        let app = labels.and_then(|labels| labels.get("app"));
        let most = match &budget.amount {
            Some(Budget::MaxUnavailable(most)) => most,
            other => panic!("{other:?}"),
        };
        let app = app.map_or("", String::as_str);
        (namespace.as_str(), name.as_str(), most.as_str(), app)
    });
    told.collect()
}

fn note(budgets: usize, first: &str) -> String {
    format!(
        "{budgets} PodDisruptionBudgets come, change or go, the first of them shop/{first} minutes: they are taken to be there from the start to the end, as they were first"
    )
}

/// `kubectl apply -f` of a directory sends `deployment.yaml` before `pdb.yaml`.
#[test]
fn a_budget_that_comes_after_its_workload_is_there() {
    let web = budget("web", "web", 1);
    let text = recorded(&[
        ("2026-03-02T10:00:00Z", "applied", deployment("web", 3, "1")),
        ("2026-03-02T10:05:00Z", "applied", web.clone()),
        ("2026-03-02T11:00:00Z", "applied", deployment("api", 1, "1")),
    ]);
    let (found, notes) = read("format: record, file: x", text.as_bytes()).expect("readable");
    assert_eq!(told(&found), [("shop", "web", "1", "web")]);
    assert_eq!(notes, [note(1, "web after 5")]);
    assert!(
        found.owners.iter().all(|owner| owner.budget.is_none()),
        "none has one of its own"
    );
    // The order in which they come does not matter.
    let text = recorded(&[
        ("2026-03-02T10:00:00Z", "applied", web),
        ("2026-03-02T10:00:00Z", "applied", deployment("web", 3, "1")),
    ]);
    let (found, notes) = read("format: record, file: x", text.as_bytes()).expect("readable");
    assert_eq!(told(&found), [("shop", "web", "1", "web")]);
    assert_eq!(notes, [] as [String; 0]);
}

/// What changes, or goes, is taken to stay as it was first.
#[test]
fn a_budget_stays_as_it_was_first_and_a_note_says_so() {
    let text = recorded(&[
        ("2026-03-02T10:00:00Z", "applied", deployment("web", 3, "1")),
        ("2026-03-02T10:00:00Z", "applied", budget("web", "web", 1)),
        ("2026-03-02T10:00:00Z", "applied", budget("steady", "web", 3)),
        ("2026-03-02T10:00:00Z", "applied", budget("gone", "web", 2)),
        ("2026-03-02T10:10:00Z", "applied", budget("steady", "web", 3)),
        ("2026-03-02T10:20:00Z", "applied", budget("web", "web", 0)),
        ("2026-03-02T10:30:00Z", "deleted", budget("gone", "web", 2)),
        ("2026-03-02T10:40:00Z", "deleted", budget("unknown", "web", 2)),
    ]);
    let (found, notes) = read("format: record, file: x", text.as_bytes()).expect("readable");
    let expected = [("gone", "2"), ("steady", "3"), ("web", "1")];
    assert_eq!(
        told(&found),
        expected.map(|(name, most)| ("shop", name, most, "web"))
    );
    assert_eq!(notes, [note(2, "web after 20")]);
}

/// A budget that was there before is first heard of when its status changes; a namespace that is emptied takes its budgets along.
#[test]
fn an_audit_log_tells_of_a_budget_late() {
    let written = |at: &str, budget: Value| {
        let object = json!({"responseObject": budget});
        audit_event(at, "update", "poddisruptionbudgets", "web", object)
    };
    let web = audit_event(
        "2026-03-02T10:00:00.000000Z",
        "create",
        "deployments",
        "",
        json!({"responseObject": deployment("web", 3, "1")}),
    );
    let old = written(
        "2026-03-02T10:30:00.000000Z",
        made(budget("web", "web", 1), "2026-01-01T00:00:00Z"),
    );
    let lines = [web.clone(), old.clone()].join("\n");
    let (found, notes) = read("format: audit, file: x", lines.as_bytes()).expect("readable");
    assert_eq!(told(&found), [("shop", "web", "1", "web")]);
    assert_eq!(notes, [] as [String; 0]);
    let new = written(
        "2026-03-02T10:30:00.000000Z",
        made(budget("new", "web", 2), "2026-03-02T10:10:00Z"),
    );
    let emptied = audit_event(
        "2026-03-02T11:00:00.000000Z",
        "deletecollection",
        "poddisruptionbudgets",
        "",
        json!({}),
    );
    let lines = [web, old, new, emptied].join("\n");
    let (found, notes) = read("format: audit, file: x", lines.as_bytes()).expect("readable");
    assert_eq!(told(&found).len(), 2);
    assert_eq!(notes, [note(2, "new after 10")]);
}

#[test]
fn dumps_may_have_budgets_that_come_and_go() {
    let source = source("format: dumps, file: x");
    let mut recording = Recording::new(&source);
    let at = |time: &str| format!("2026-03-02T{time}Z").parse().expect("an instant");
    let web = || deployment("web", 3, "1");
    let first = inventory(&[web(), budget("gone", "web", 1)]);
    let second = inventory(&[web(), made(budget("new", "web", 2), "2026-03-02T10:20:00Z")]);
    recording.dump(at("10:00:00"), &first).expect("the first");
    recording.dump(at("11:00:00"), &second).expect("the second");
    let found = recording.finish().expect("whole");
    assert_eq!(
        told(&found.timeline),
        [("shop", "gone", "1", "web"), ("shop", "new", "2", "web")]
    );
    assert_eq!(found.notes, [note(2, "new after 20")]);
}

/// Selectors are for one namespace, so that a budget protects one copy. What is repeated is protected in each round.
#[test]
fn each_copy_has_budgets_of_its_own() {
    let mut other = budget("web", "web", 4);
    other["metadata"]["namespace"] = "empty".into();
    let text = recorded(&[
        ("2026-03-02T10:00:00Z", "applied", deployment("web", 3, "1")),
        ("2026-03-02T10:00:00Z", "applied", budget("web", "web", 1)),
        ("2026-03-02T10:00:00Z", "applied", other),
        ("2026-03-02T10:30:00Z", "applied", deployment("web", 4, "1")),
    ]);
    let import = "format: record, file: x, copies: 2, repeat: true";
    let plain = whole(import, text.as_bytes()).expect("readable");
    let found = bend(plain, &source(import), 3 * HOUR_MS).expect("small");
    assert_eq!(
        told(&found),
        [
            ("empty", "web", "4", "web"),
            ("shop", "web", "1", "web"),
            ("shop-copy2", "web", "1", "web")
        ]
    );
}

/// A budget over them asks for a scale, which a Rollout, a CloneSet and the StatefulSet of OpenKruise have, and Jobs have not, whosever they are.
#[test]
fn pods_of_other_controllers_have_a_scale_unless_these_are_jobs() {
    let pod = |version: &str, kind: &str, name: &str| {
        json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": format!("{name}-1"),
            "ownerReferences": [{"apiVersion": version, "kind": kind, "name": name, "controller": true}]},
            "spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Running"}})
    };
    let mut set = deployment("rolled-7c9d", 1, "1");
    set["kind"] = "ReplicaSet".into();
    set["metadata"]["ownerReferences"] = json!([{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "rolled", "controller": true}]);
    let at = "2026-03-02T10:00:00Z";
    let text = recorded(&[
        (at, "applied", set),
        (at, "applied", pod("apps/v1", "ReplicaSet", "rolled-7c9d")),
        (
            at,
            "applied",
            pod("apps.kruise.io/v1alpha1", "CloneSet", "cloned"),
        ),
        (at, "applied", pod("apps.kruise.io/v1beta1", "StatefulSet", "db")),
        (at, "applied", pod("batch.volcano.sh/v1alpha1", "Job", "train")),
    ]);
    let (found, _) = read("format: record, file: x", text.as_bytes()).expect("readable");
    let kinds = found.owners.iter().map(|owner| (owner.name.as_str(), owner.kind));
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        [
            ("rolled", OwnerKind::Other),
            ("cloned", OwnerKind::Other),
            ("db", OwnerKind::Other),
            ("train", OwnerKind::Job)
        ]
    );
}
