//! Lives that are easily miscounted: Jobs that fail, names that come again, owners of other kinds, logs of several servers.

use spokeshave_scenario::Change;

use super::streams::{audit_event, deployment, job, recorded};
use super::{HOUR_MS, facts, read};

/// A Job that has failed has no completion time: its condition says when it ended, and one that had ended before runs no more.
#[test]
fn a_job_that_has_failed_has_ended() {
    let failed = |at: &str| serde_json::json!({"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": at}]});
    let text = recorded(&[
        ("2026-03-02T10:00:00Z", "applied", deployment("web", 1, "1")),
        (
            "2026-03-02T10:00:00Z",
            "applied",
            job("old", None, failed("2026-02-01T00:00:00Z")),
        ),
        (
            "2026-03-02T11:00:00Z",
            "applied",
            job("new", None, serde_json::json!({})),
        ),
        (
            "2026-03-02T12:00:00Z",
            "applied",
            job("new", None, failed("2026-03-02T12:00:00Z")),
        ),
        ("2026-03-02T14:00:00Z", "deleted", deployment("web", 1, "1")),
    ]);
    let (found, _) = read("format: record, file: x", text.as_bytes()).expect("readable");
    // One of web, and the two of the second Job for an hour.
    assert_eq!(facts(&found), (1, 2, 3, 5_000, 4 * HOUR_MS));
    let ends = found
        .events
        .iter()
        .filter(|event| matches!(event.change, Change::End { .. }));
    assert_eq!(
        ends.map(|event| event.at_ms).collect::<Vec<_>>(),
        [2 * HOUR_MS; 2]
    );
    let kept =
        spokeshave_scenario::import::redact::redacted(&job("old", None, failed("2026-02-01T00:00:00Z")));
    assert_eq!(
        kept.expect("a Job")["status"]["conditions"][0]["type"],
        "Failed",
        "a recording keeps it"
    );
}

/// The next release's Job has the name of the last one's.
#[test]
fn what_is_made_again_under_its_name_runs_again() {
    let done = serde_json::json!({"completionTime": "2026-03-02T10:30:00Z"});
    let text = recorded(&[
        (
            "2026-03-02T10:00:00Z",
            "applied",
            job("migrate", None, serde_json::json!({})),
        ),
        (
            "2026-03-02T10:30:00Z",
            "applied",
            job("migrate", None, done.clone()),
        ),
        (
            "2026-03-02T10:40:00Z",
            "deleted",
            job("migrate", None, done.clone()),
        ),
        (
            "2026-03-02T11:00:00Z",
            "applied",
            job("migrate", None, serde_json::json!({})),
        ),
        ("2026-03-02T11:30:00Z", "applied", job("migrate", None, done)),
    ]);
    let (found, _) = read("format: record, file: x", text.as_bytes()).expect("readable");
    let births = found
        .events
        .iter()
        .filter(|event| matches!(event.change, Change::Begin { .. }));
    assert_eq!(births.count(), 4, "two pods, twice");
}

/// ReplicaSets of a Rollout are counted nowhere else: their pods are.
#[test]
fn pods_of_replica_sets_that_no_deployment_manages_are_counted() {
    let owned =
        |kind: &str, name: &str| serde_json::json!([{"kind": kind, "name": name, "controller": true}]);
    let mut set = deployment("shop-7c9d", 2, "1");
    set["kind"] = "ReplicaSet".into();
    set["metadata"]["ownerReferences"] = owned("Rollout", "shop");
    let pod = |name: &str| {
        serde_json::json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name, "ownerReferences": owned("ReplicaSet", "shop-7c9d")},
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}, "status": {"phase": "Running"}})
    };
    let text = recorded(&[
        ("2026-03-02T10:00:00Z", "applied", set),
        ("2026-03-02T10:00:00Z", "applied", pod("shop-7c9d-a")),
        ("2026-03-02T10:00:00Z", "applied", pod("shop-7c9d-b")),
        ("2026-03-02T11:00:00Z", "deleted", pod("shop-7c9d-b")),
        ("2026-03-02T12:00:00Z", "deleted", pod("shop-7c9d-a")),
    ]);
    let (found, _) = read("format: record, file: x", text.as_bytes()).expect("readable");
    assert_eq!(facts(&found), (2, 0, 2, 2_000, 2 * HOUR_MS));
}

/// Each API server writes a log of its own: what they say is put in order.
#[test]
fn audit_logs_of_several_servers_are_read_in_the_order_of_time() {
    use serde_json::json;
    let scaled = |at: &str, replicas: u32| {
        let scale = json!({"subresource": "scale", "responseObject": {"kind": "Scale", "spec": {"replicas": replicas}}});
        audit_event(at, "update", "deployments", "web", scale)
    };
    let created = audit_event(
        "2026-03-02T09:00:00.000000Z",
        "create",
        "deployments",
        "",
        json!({"responseObject": deployment("web", 1, "1")}),
    );
    let first = [
        scaled("2026-03-02T10:00:00.000000Z", 10),
        scaled("2026-03-02T12:00:00.000000Z", 10),
    ];
    let second = [scaled("2026-03-02T11:00:00.000000Z", 3), created];
    let source = super::source("format: audit, files: [a, b]");
    let mut recording = spokeshave_scenario::import::Recording::new(&source);
    recording.read(first.join("\n").as_bytes()).expect("readable");
    recording.read(second.join("\n").as_bytes()).expect("readable");
    let (found, notes) = recording.finish().expect("a timeline");
    assert_eq!(notes, [] as [String; 0]);
    let counts: Vec<(u64, u32)> = found
        .events
        .iter()
        .filter_map(|event| match event.change {
            Change::Replicas(count) => Some((event.at_ms / HOUR_MS, count)),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [(0, 1), (1, 10), (2, 3), (3, 10)]);
}
