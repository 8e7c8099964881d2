//! Lives that are easily miscounted: Jobs that fail, names that come again, owners of other kinds, logs of several servers.

use spokeshave_scenario::{Change, Timeline};

use super::streams::{audit_event, deployment, job, range, recorded};
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

/// What happens in a recording of the Job `train`, by the minute, when its specification is changed like this.
fn specified(changes: &[(&str, &str, serde_json::Value)]) -> Vec<(u64, Change)> {
    let lines = changes.iter().map(|(at, field, value)| {
        let mut train = job("train", None, serde_json::json!({}));
        train["spec"][*field] = value.clone();
        (*at, "applied", train)
    });
    let done = job(
        "train",
        None,
        serde_json::json!({"completionTime": "2026-03-02T13:00:00Z"}),
    );
    let lines: Vec<_> = lines.chain([("2026-03-02T13:00:00Z", "applied", done)]).collect();
    let (found, notes) = read("format: record, file: x", recorded(&lines).as_bytes()).expect("readable");
    assert_eq!(notes, [] as [String; 0]);
    by_minute(&found)
}

fn by_minute(found: &Timeline) -> Vec<(u64, Change)> {
    let events = found.events.iter();
    events
        .map(|event| (event.at_ms / 60_000, event.change.clone()))
        .collect()
}

fn begin(pod: u64) -> Change {
    Change::Begin { pod, runs_ms: None }
}

fn end(pod: u64) -> Change {
    Change::End { pod }
}

/// The Job controller deletes the pods of a Job that is suspended, as Kueue suspends one that is preempted, and makes others when it is resumed.
#[test]
fn a_job_that_is_suspended_has_no_pods_until_it_is_resumed() {
    let found = specified(&[
        ("2026-03-02T10:00:00Z", "suspend", false.into()),
        ("2026-03-02T10:10:00Z", "suspend", true.into()),
        ("2026-03-02T10:20:00Z", "suspend", true.into()),
        ("2026-03-02T12:00:00Z", "suspend", false.into()),
    ]);
    let first = [(0, begin(0)), (0, begin(1)), (10, end(0)), (10, end(1))];
    let second = [(120, begin(2)), (120, begin(3)), (180, end(2)), (180, end(3))];
    assert_eq!(found, [first, second].concat());
}

#[test]
fn a_job_that_changes_its_parallelism_has_more_or_fewer_pods() {
    let found = specified(&[
        ("2026-03-02T10:00:00Z", "parallelism", 2.into()),
        ("2026-03-02T10:30:00Z", "parallelism", 3.into()),
        ("2026-03-02T11:00:00Z", "parallelism", 1.into()),
    ]);
    let expected = [
        (0, begin(0)),
        (0, begin(1)),
        (30, begin(2)),
        (60, end(1)),
        (60, end(2)),
        (180, end(0)),
    ];
    assert_eq!(found, expected);
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

/// There are a Job of Volcano and a StatefulSet of OpenKruise: neither is recorded itself, and no pod of theirs is counted with it.
#[test]
fn pods_of_namesakes_of_kubernetes_own_kinds_are_counted() {
    use serde_json::json;
    let owned = [
        ("volcano", "batch.volcano.sh/v1alpha1", "Job"),
        ("kruise", "apps.kruise.io/v1beta1", "StatefulSet"),
        // These are counted with their workloads, and this one comes with its node.
        ("job", "batch/v1", "Job"),
        ("set", "apps/v1", "StatefulSet"),
        ("daemon", "apps.kruise.io/v1alpha1", "DaemonSet"),
    ];
    let pods = owned.map(|(name, version, kind)| {
        json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name,
            "ownerReferences": [{"apiVersion": version, "kind": kind, "name": "train", "controller": true}]},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}, "status": {"phase": "Running"}})
    });
    let at = "2026-03-02T10:00:00Z";
    let text = recorded(&pods.clone().map(|pod| (at, "applied", pod)));
    let (found, notes) = read("format: record, file: x", text.as_bytes()).expect("readable");
    assert_eq!((facts(&found), notes), ((2, 0, 2, 2_000, 0), Vec::new()));
    // An audit log may have their owners, of which nobody could read how many pods they want.
    let reference =
        json!({"resource": "jobs", "apiGroup": "batch.volcano.sh", "namespace": "shop", "name": "train"});
    let volcano = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"namespace": "shop", "name": "train"},
        "spec": {"minAvailable": 1, "tasks": [{"replicas": 1}]}});
    let owner = json!({"objectRef": reference, "responseObject": volcano});
    let mut events = vec![audit_event(at, "create", "jobs", "train", owner)];
    for pod in pods {
        events.push(audit_event(
            at,
            "create",
            "pods",
            "",
            json!({"responseObject": pod}),
        ));
    }
    let (found, notes) = read("format: audit, file: x", events.join("\n").as_bytes()).expect("readable");
    assert_eq!((facts(&found), notes), ((2, 0, 2, 2_000, 0), Vec::new()));
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
    let found = recording.finish().expect("a timeline");
    assert_eq!(found.notes, [] as [String; 0]);
    let counts: Vec<(u64, u32)> = found
        .timeline
        .events
        .iter()
        .filter_map(|event| match event.change {
            Change::Replicas(count) => Some((event.at_ms / HOUR_MS, count)),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [(0, 1), (1, 10), (2, 3), (3, 10)]);
}

/// The namespace controller empties a namespace without naming what is in it.
#[test]
fn what_is_deleted_without_a_name_is_gone() {
    use serde_json::{Value, json};
    let created = |time: &str, resource: &str, object: Value| {
        let time = format!("2026-03-02T{time}Z");
        audit_event(&time, "create", resource, "", json!({"responseObject": object}))
    };
    let deleted = |time: &str, resource: &str, more: Value| {
        let time = format!("2026-03-02T{time}Z");
        audit_event(&time, "deletecollection", resource, "", more)
    };
    let report = job("report", None, json!({}));
    let pod = json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": "debug"}, "status": {"phase": "Running"},
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}});
    let chosen = "/apis/apps/v1/namespaces/shop/deployments?labelSelector=app%3Dweb";
    let web =
        json!({"kind": "DeploymentList", "items": [{"metadata": {"namespace": "shop", "name": "web"}}]});
    let events = [
        created("10:00:00", "deployments", deployment("web", 2, "1")),
        created("10:00:00", "deployments", deployment("api", 3, "1")),
        created("10:00:00", "jobs", report.clone()),
        created("10:00:00", "pods", pod.clone()),
        // Those of Deployments are made again.
        deleted("10:10:00", "replicasets", json!({})),
        // What a selector chooses is only in the answer.
        deleted("10:20:00", "deployments", json!({"requestURI": chosen})),
        deleted(
            "10:30:00",
            "deployments",
            json!({"requestURI": chosen, "responseObject": web}),
        ),
        deleted("11:00:00", "deployments", json!({})),
        deleted(
            "11:00:00",
            "jobs",
            json!({"responseObject": {"kind": "Status", "status": "Success"}}),
        ),
        deleted("11:00:00", "pods", json!({})),
        // The namespace is made again, with what was in it.
        created("12:00:00", "jobs", report),
        created("12:00:00", "pods", pod),
    ];
    let (found, _) = read("format: audit, file: x", events.join("\n").as_bytes()).expect("readable");
    assert_eq!(facts(&found), (8, 3, 8, 10_000, 2 * HOUR_MS));
    let later = found.events.iter().filter(|event| event.at_ms > 0);
    let later: Vec<(u64, Change)> = later
        .map(|event| (event.at_ms / 60_000, event.change.clone()))
        .collect();
    let begin = |pod| Change::Begin { pod, runs_ms: None };
    let end = |pod| Change::End { pod };
    assert_eq!(
        later,
        [
            (30, Change::Replicas(0)),
            (60, Change::Replicas(0)),
            (60, end(0)),
            (60, end(1)),
            (60, end(0)),
            (120, begin(2)),
            (120, begin(3)),
            (120, begin(1)),
        ]
    );
}

/// One Prometheus for several clusters has series of one namespace and name that are not one workload.
#[test]
fn series_of_two_clusters_are_refused() {
    use serde_json::json;
    let start = 1_772_445_600;
    let answer = |second: &str| {
        let series = |cluster: &str| json!({"__name__": "kube_deployment_spec_replicas", "namespace": "shop", "deployment": "web", "cluster": cluster});
        range(&[
            (series("eu"), &[(start, "40")]),
            (series("us"), &[(start, second)]),
        ])
    };
    // That their counts are the same is a coincidence.
    for second in ["3", "40"] {
        let error = read("format: prometheus, file: x", answer(second).as_bytes()).expect_err("two clusters");
        let expected = "series 2: shop/web has two series that differ in cluster \"eu\" and \"us\"; expected one for each workload";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

/// When kube-state-metrics is moved its series begin anew, under other labels, while the old ones are still told for some minutes.
#[test]
fn series_of_two_scrapes_are_one() {
    use serde_json::json;
    let start = 1_772_445_600;
    let series = |instance: &str, node: &str, replica: &str| {
        json!({"__name__": "kube_deployment_spec_replicas", "namespace": "shop", "deployment": "web",
            "instance": instance, "node": node, "pod": instance, "prometheus": "monitoring/k8s", "prometheus_replica": replica})
    };
    let old = [(start, "40"), (start + 60, "40"), (start + 120, "40")];
    let new = [(start + 120, "38"), (start + 180, "38")];
    let answer = range(&[
        (series("a", "n1", "0"), old.as_slice()),
        (series("b", "n2", "1"), new.as_slice()),
    ]);
    let (found, notes) = read("format: prometheus, file: x", answer.as_bytes()).expect("one workload");
    let changes: Vec<(u64, Change)> = found
        .events
        .iter()
        .map(|event| (event.at_ms, event.change.clone()))
        .collect();
    assert_eq!(
        changes,
        [(0, Change::Replicas(40)), (180_000, Change::Replicas(38))]
    );
    let expected = "1 workloads have series of several scrapes with different counts at one time, the first of them shop/web";
    assert!(notes.iter().any(|note| note.starts_with(expected)), "{notes:?}");
    // One series that says two things is two.
    let twice = range(&[
        (series("a", "n1", "0"), &[(start, "40")]),
        (series("a", "n1", "0"), &[(start, "3")]),
    ]);
    let error = read("format: prometheus, file: x", twice.as_bytes()).expect_err("two answers");
    let expected = "series 2: shop/web has 40 and 3 replicas at 1772445600, and one series says both";
    assert!(error.to_string().starts_with(expected), "{error}");
}
