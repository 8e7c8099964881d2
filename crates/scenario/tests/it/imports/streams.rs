//! Objects that come and go: record, audit log, kubereplay, SimKube, Prometheus.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use rmpv::Value;
use spokeshave_scenario::{Change, OwnerKind};

use super::{HOUR_MS, facts, read};

pub(super) fn deployment(name: &str, replicas: u32, cpu: &str) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": name, "managedFields": [{"manager": "x"}]},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name, "pod-template-hash": "abc"}, "annotations": {"checksum/config": "1"}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/web", "env": [{"name": "PASSWORD", "value": "x"}],
                "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]}}},
    })
}

pub(super) fn job(name: &str, owner: Option<&str>, status: serde_json::Value) -> serde_json::Value {
    let owners =
        owner.map(|owner| serde_json::json!([{"kind": "CronJob", "name": owner, "controller": true}]));
    serde_json::json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "shop", "name": name, "ownerReferences": owners},
        "spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}},
        "status": status,
    })
}

pub(super) fn recorded(lines: &[(&str, &str, serde_json::Value)]) -> String {
    let mut text = "{\"recording\": \"recording.spokeshave.dev/v1alpha1\"}\n".to_owned();
    for (at, what, object) in lines {
        let line = serde_json::json!({"at": at, "what": what, "object": object});
        text.push_str(&format!("{line}\n"));
    }
    text
}

pub(super) fn a_recording() -> String {
    let bare = serde_json::json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": "debug"},
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m"}}}]}, "status": {"phase": "Running"}});
    let of_deployment = serde_json::json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": "web-abc-1", "labels": {"pod-template-hash": "abc"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web-abc", "controller": true}]}, "spec": {"containers": []}});
    recorded(&[
        ("2026-03-02T10:00:00Z", "applied", deployment("web", 3, "500m")),
        ("2026-03-02T10:00:00Z", "applied", of_deployment),
        ("2026-03-02T10:00:00Z", "applied", bare.clone()),
        ("2026-03-02T11:00:00Z", "applied", deployment("web", 5, "500m")),
        (
            "2026-03-02T11:00:00Z",
            "applied",
            job("nightly-1", Some("nightly"), serde_json::json!({})),
        ),
        (
            "2026-03-02T11:30:00Z",
            "applied",
            job(
                "nightly-1",
                Some("nightly"),
                serde_json::json!({"completionTime": "2026-03-02T11:30:00Z"}),
            ),
        ),
        (
            "2026-03-02T11:40:00Z",
            "deleted",
            job("nightly-1", Some("nightly"), serde_json::json!({})),
        ),
        ("2026-03-02T12:00:00Z", "deleted", bare),
        ("2026-03-02T13:00:00Z", "deleted", deployment("web", 5, "500m")),
    ])
}

#[test]
fn a_recording_is_what_its_objects_did() {
    let (found, notes) = read("format: record, file: x", a_recording().as_bytes()).expect("readable");
    assert_eq!(notes, [] as [String; 0]);
    // Five of web, two of the Job, and the bare pod: 2.5 + 4 + 0.1 cores.
    assert_eq!(facts(&found), (4, 4, 8, 6_600, 3 * HOUR_MS));
    let kinds: Vec<(OwnerKind, &str)> = found
        .owners
        .iter()
        .map(|owner| (owner.kind, owner.name.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            (OwnerKind::Deployment, "web"),
            (OwnerKind::Bare, "debug"),
            (OwnerKind::Job, "nightly"),
        ]
    );
    let ends: Vec<u64> = found
        .events
        .iter()
        .filter(|event| matches!(event.change, Change::End { .. }))
        .map(|event| event.at_ms)
        .collect();
    assert_eq!(ends, [HOUR_MS * 3 / 2, HOUR_MS * 3 / 2, 2 * HOUR_MS]);
    let template = serde_json::to_string(found.owners[0].template.as_ref()).expect("JSON");
    for secret in ["PASSWORD", "registry.example", "pod-template-hash", "checksum"] {
        assert!(
            !template.contains(secret),
            "{secret} is none of a simulation's business: {template}"
        );
    }
}

#[test]
fn compressed_recordings_are_read_and_cut_ones_are_named() {
    let text = a_recording();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory");
    let compressed = encoder.finish().expect("memory");
    let (plain, _) = read("format: record, file: x", text.as_bytes()).expect("readable");
    assert_eq!(
        read("format: record, file: x", &compressed).expect("readable").0,
        plain
    );
    let error = read("format: record, file: x", &compressed[..compressed.len() - 20]).expect_err("cut off");
    assert!(
        error.to_string().contains("the file seems to be cut off"),
        "{error}"
    );
    let error = read("format: record, file: x", &text.as_bytes()[..text.len() - 20]).expect_err("cut off");
    assert_eq!(
        error.to_string(),
        "line 10: ends in the middle of a value; the file seems to be cut off"
    );
}

#[test]
fn a_recording_out_of_order_is_refused() {
    let text = a_recording();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.swap(4, 8);
    let error = read("format: record, file: x", lines.join("\n").as_bytes()).expect_err("shuffled");
    assert!(
        error
            .to_string()
            .starts_with("line 6: is of 2026-03-02T11:00:00Z, before the line above it"),
        "{error}"
    );
    let error = read("format: record, file: x", b"{\"a\": 1}\n").expect_err("no head");
    assert!(
        error
            .to_string()
            .starts_with("line 1: is not the head of a recording"),
        "{error}"
    );
}

pub(super) fn audit_event(
    at: &str,
    verb: &str,
    resource: &str,
    name: &str,
    more: serde_json::Value,
) -> String {
    let mut event = serde_json::json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "stage": "ResponseComplete", "verb": verb,
        "objectRef": {"resource": resource, "namespace": "shop", "name": name}, "responseStatus": {"code": 200}, "stageTimestamp": at,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        match key.as_str() {
            "subresource" => event["objectRef"]["subresource"] = value.clone(),
            key => event[key] = value.clone(),
        }
    }
    event.to_string()
}

#[test]
fn an_audit_log_tells_creations_scalings_and_deletions() {
    use serde_json::json;
    let events = [
        audit_event(
            "2026-03-02T10:00:00.000000Z",
            "create",
            "deployments",
            "",
            json!({"requestObject": deployment("web", 2, "1"), "responseObject": deployment("web", 2, "1")}),
        ),
        // A stage that says nothing new, a refused request, a kind of no interest.
        audit_event(
            "2026-03-02T10:00:01.000000Z",
            "create",
            "deployments",
            "x",
            json!({"stage": "RequestReceived"}),
        ),
        audit_event(
            "2026-03-02T10:00:02.000000Z",
            "update",
            "deployments",
            "web",
            json!({"responseStatus": {"code": 409}, "requestObject": deployment("web", 90, "1")}),
        ),
        audit_event("2026-03-02T10:00:03.000000Z", "create", "secrets", "s", json!({})),
        audit_event(
            "2026-03-02T11:00:00.000000Z",
            "patch",
            "deployments",
            "web",
            json!({"subresource": "scale", "responseObject": {"kind": "Scale", "spec": {"replicas": 6}}}),
        ),
        audit_event(
            "2026-03-02T11:30:00.000000Z",
            "create",
            "jobs",
            "report",
            json!({"responseObject": job("report", None, json!({}))}),
        ),
        audit_event(
            "2026-03-02T11:31:00.000000Z",
            "create",
            "pods",
            "web-1",
            json!({"subresource": "eviction", "requestObject": {"kind": "Eviction"}}),
        ),
        audit_event(
            "2026-03-02T11:45:00.000000Z",
            "update",
            "jobs",
            "report",
            json!({"subresource": "status", "responseObject": job("report", None, json!({"completionTime": "2026-03-02T11:45:00Z"}))}),
        ),
        audit_event(
            "2026-03-02T11:50:00.000000Z",
            "patch",
            "deployments",
            "web",
            json!({"requestObject": {"spec": {"replicas": 4}}, "responseObject": deployment("web", 4, "1")}),
        ),
        audit_event(
            "2026-03-02T11:55:00.000000Z",
            "update",
            "deployments",
            "old",
            json!({"subresource": "scale", "responseObject": {"kind": "Scale", "spec": {"replicas": 9}}}),
        ),
        audit_event(
            "2026-03-02T12:00:00.000000Z",
            "delete",
            "deployments",
            "web",
            json!({}),
        ),
    ];
    let (found, notes) = read("format: audit, file: x", events.join("\n").as_bytes()).expect("readable");
    // Six of web and two of the Job, which is over when web shrinks.
    assert_eq!(facts(&found), (2, 6, 8, 10_000, 2 * HOUR_MS));
    assert_eq!(notes.len(), 1);
    assert!(
        notes[0].starts_with(
            "1 changes of replica counts are of workloads whose template is not in the recording"
        ),
        "{notes:?}"
    );
}

#[test]
fn an_audit_log_without_objects_says_which_level_is_needed() {
    use serde_json::json;
    let event = audit_event(
        "2026-03-02T10:00:00Z",
        "create",
        "deployments",
        "web",
        json!({"level": "Metadata"}),
    );
    let error = read("format: audit, file: x", event.as_bytes()).expect_err("no objects");
    assert!(error.to_string().contains("set level RequestResponse"), "{error}");
    for (text, expected) in [
        ("", "holds no audit event"),
        ("{\"kind\": \"Pod\"}", "line 1: is not an audit event"),
        (
            "\n\n{\"kind\": \"Event\", ",
            "line 3: ends in the middle of a value",
        ),
        (
            "{\"kind\": \"Event\", \"verb\": \"create\", \"objectRef\": {\"resource\": \"jobs\"}}",
            "line 1: has neither stageTimestamp",
        ),
    ] {
        let error = read("format: audit, file: x", text.as_bytes()).expect_err(expected);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn kubereplay_is_taken_one_to_one() {
    use serde_json::json;
    let log = json!({"cluster": "c", "captured": "2026-03-02T12:00:00Z", "events": [
        {"type": "create", "kind": "Deployment", "key": "shop/web", "deployment": deployment("web", 2, "1"), "timestamp": "2026-03-02T10:00:00Z"},
        {"type": "create", "kind": "Job", "key": "shop/a", "job": job("a", None, json!({})), "duration": 60_000_000_000_u64, "timestamp": "2026-03-02T10:10:00Z"},
        {"type": "create", "kind": "Job", "key": "shop/b", "job": job("b", None, json!({})), "timestamp": "2026-03-02T10:20:00Z"},
        {"type": "scale", "kind": "Deployment", "key": "shop/web", "replicas": 7, "timestamp": "2026-03-02T10:30:00Z"},
        {"type": "delete", "kind": "Deployment", "key": "shop/web", "timestamp": "2026-03-02T11:00:00Z"},
    ]});
    let text = serde_json::to_string_pretty(&log).expect("JSON");
    let (found, notes) = read("format: kubereplay, file: x", text.as_bytes()).expect("readable");
    assert_eq!(facts(&found), (2, 9, 7, 7_000, HOUR_MS));
    let ends: Vec<u64> = found
        .events
        .iter()
        .filter(|event| matches!(event.change, Change::End { .. }))
        .map(|event| event.at_ms / 60_000)
        .collect();
    // One minute as recorded, and ten where nothing was recorded.
    assert_eq!(ends, [11, 11, 30, 30]);
    assert_eq!(
        notes,
        ["1 Jobs have no end in the recording: each is taken to last 10 minutes"]
    );
    let wrong = text.replace("\"scale\"", "\"resize\"");
    let error = read("format: kubereplay, file: x", wrong.as_bytes()).expect_err("unknown type");
    assert!(
        error
            .to_string()
            .contains("\"resize\" of \"Deployment\" is unknown"),
        "{error}"
    );
    let began = text[..text.find("\"resize\"").or(text.find("\"scale\"")).expect("there")]
        .rfind('{')
        .expect("there");
    let line = 1 + text[..began].matches('\n').count();
    assert!(
        error.to_string().starts_with(&format!("line {line}: ")),
        "{error}"
    );
    let cut = &text[..text.find("\"scale\"").expect("there")];
    let error = read("format: kubereplay, file: x", cut.as_bytes()).expect_err("cut off");
    assert!(
        error.to_string().contains("cut off") && error.to_string().starts_with("line "),
        "{error}"
    );
    // A capture is in no order of time.
    let mut shuffled = log;
    let events = shuffled["events"].as_array_mut().expect("a list");
    events.reverse();
    let text = shuffled.to_string();
    let (again, _) = read("format: kubereplay, file: x", text.as_bytes()).expect("readable");
    assert_eq!(again, found);
}

/// JSON as MessagePack.
pub(super) fn packed(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(value) => Value::Boolean(*value),
        serde_json::Value::Number(number) => number
            .as_i64()
            .map_or(Value::F64(number.as_f64().unwrap_or(0.0)), Value::from),
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => Value::Array(items.iter().map(packed).collect()),
        serde_json::Value::Object(map) => Value::Map(
            map.iter()
                .map(|(key, value)| (Value::from(key.as_str()), packed(value)))
                .collect(),
        ),
    }
}

pub(super) fn a_trace(version: u64) -> Vec<u8> {
    use serde_json::json;
    let start = 1_772_445_600; // 2026-03-02T10:00:00Z
    let cron = json!({"kind": "CronJob", "metadata": {"namespace": "shop", "name": "tick"}, "spec": {"schedule": "*/20 * * * *",
        "jobTemplate": {"spec": {"parallelism": 1, "template": {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "3"}}}]}}}}}});
    let trace = json!({"version": version, "config": {"trackedObjects": {}}, "events": [
        {"ts": start, "applied_objs": [deployment("web", 4, "250m"), cron], "deleted_objs": []},
        {"ts": start + 1_800, "applied_objs": [deployment("web", 8, "250m"), {"kind": "ServiceAccount", "metadata": {"name": "s"}}], "deleted_objs": []},
        {"ts": start + 3_600, "applied_objs": [], "deleted_objs": [deployment("web", 8, "250m"), {"kind": "CronJob", "metadata": {"namespace": "shop", "name": "tick"}}]},
    ], "index": {}});
    let mut packed = packed(&trace);
    // Keys that are pairs, which JSON cannot hold.
    if let Value::Map(entries) = &mut packed {
        let key = Value::Array(vec![Value::from("apps/v1.Deployment"), Value::from("shop/web")]);
        let lives = Value::Map(vec![(
            key,
            Value::Map(vec![(Value::from(7_u64), Value::Array(Vec::new()))]),
        )]);
        entries.push((Value::from("pod_lifecycles"), lives));
    }
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &packed).expect("memory");
    bytes
}

#[test]
fn a_trace_of_simkube_has_its_objects_and_runs_its_cron_jobs() {
    let (found, notes) = read("format: sktrace, file: x", &a_trace(2)).expect("readable");
    // At 10:40 eight of web and the second run of tick, which is taken to last ten minutes.
    assert_eq!(facts(&found), (4, 4 + 3, 9, 5_000, HOUR_MS + 600_000));
    assert!(
        notes.iter().any(|note| note.contains("ServiceAccount")),
        "{notes:?}"
    );
    assert!(
        notes.iter().any(|note| note.starts_with("3 Jobs have no end")),
        "{notes:?}"
    );
    let error = read("format: sktrace, file: x", &a_trace(1)).expect_err("an older version");
    assert_eq!(
        error.to_string(),
        "is of version 1; expected a trace of version 2"
    );
    let bytes = a_trace(2);
    let error = read("format: sktrace, file: x", &bytes[..bytes.len() / 2]).expect_err("cut off");
    assert!(
        error.to_string().starts_with("byte ") && error.to_string().contains("cut off"),
        "{error}"
    );
    // An array that claims four thousand million items, and nesting without an end.
    for hostile in [
        vec![0xdd, 0xff, 0xff, 0xff, 0xff],
        vec![0x91; 100_000],
        Vec::new(),
    ] {
        let error = read("format: sktrace, file: x", &hostile).expect_err("hostile");
        assert!(error.to_string().starts_with("byte "), "{error}");
    }
}

#[test]
fn a_cron_job_of_a_trace_runs_by_the_clocks_of_its_time_zone() {
    use serde_json::json;
    // 2026-03-02T10:00:00Z; Tokyo is nine hours ahead.
    let start = 1_772_445_600;
    let cron = json!({"kind": "CronJob", "metadata": {"namespace": "shop", "name": "tick"}, "spec": {"schedule": "30 20 * * *", "timeZone": "Asia/Tokyo",
        "jobTemplate": {"spec": {"parallelism": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}}}});
    let trace = json!({"version": 2, "events": [
        {"ts": start, "applied_objs": [deployment("web", 1, "250m"), cron], "deleted_objs": []},
        {"ts": start + 7_200, "applied_objs": [], "deleted_objs": []},
    ]});
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &packed(&trace)).expect("memory");
    let (found, _) = read("format: sktrace, file: x", &bytes).expect("readable");
    // At 20:30 in Tokyo it is 11:30.
    let begins: Vec<u64> = found.events.iter().map(|event| event.at_ms).collect();
    assert_eq!(begins[..2], [0, 90 * 60_000]);
}

#[test]
fn an_object_of_a_trace_is_bounded_before_it_is_read() {
    let event = |objects: Vec<Value>| {
        let mut bytes = Vec::new();
        let event = vec![
            (Value::from("ts"), Value::from(1_772_445_600_u64)),
            (Value::from("applied_objs"), Value::Array(objects)),
        ];
        let trace = vec![
            (Value::from("events"), Value::Array(vec![Value::Map(event)])),
            (Value::from("version"), Value::from(2_u64)),
        ];
        rmpv::encode::write_value(&mut bytes, &Value::Map(trace)).expect("memory");
        bytes
    };
    // One byte each, and forty in memory.
    let nothing = Value::Array(vec![Value::Nil; 5 << 20]);
    let error = read("format: sktrace, file: x", &event(vec![nothing])).expect_err("too large");
    assert!(
        error
            .to_string()
            .starts_with("event 1: holds an object of more than 4 MiB"),
        "{error}"
    );
    // As many bytes in objects of their own are read, whatever comes first in the trace.
    let object = packed(&deployment("web", 4, "250m"));
    let objects = vec![object; 20_000];
    let (found, _) = read("format: sktrace, file: x", &event(objects)).expect("readable");
    assert_eq!(facts(&found).0, 4);
}

pub(super) fn range(series: &[(serde_json::Value, &[(u64, &str)])]) -> String {
    let result: Vec<serde_json::Value> = series
        .iter()
        .map(|(metric, values)| serde_json::json!({"metric": metric, "values": values}))
        .collect();
    serde_json::json!({"status": "success", "data": {"resultType": "matrix", "result": result}}).to_string()
}

#[test]
fn prometheus_ranges_give_replicas_and_requests() {
    use serde_json::json;
    let web = json!({"__name__": "kube_deployment_spec_replicas", "namespace": "shop", "deployment": "web"});
    let db = json!({"__name__": "kube_statefulset_replicas", "namespace": "shop", "statefulset": "db"});
    let request = |pod: &str, container: &str, resource: &str| json!({"__name__": "kube_pod_container_resource_requests", "namespace": "shop", "pod": pod, "container": container, "resource": resource});
    let start = 1_772_445_600;
    let text = range(&[
        (
            web,
            &[
                (start, "2"),
                (start + 300, "2"),
                (start + 600, "5"),
                (start + 900, "3"),
            ],
        ),
        // It ends before the others: deleted.
        (db, &[(start, "3"), (start + 300, "3")]),
        (request("web-5d4f8c7b9-abcde", "main", "cpu"), &[(start, "0.5")]),
        (request("web-5d4f8c7b9-abcde", "proxy", "cpu"), &[(start, "0.1")]),
        // Of another Deployment whose name has this one as a prefix.
        (
            request("web-admin-5d4f8c7b9-abcde", "main", "cpu"),
            &[(start, "64")],
        ),
        // Of a StatefulSet and a DaemonSet whose names go on.
        (request("web-postgres-0", "main", "cpu"), &[(start, "64")]),
        (request("web-agent-x7k2p", "main", "cpu"), &[(start, "64")]),
        (request("db-0", "main", "cpu"), &[(start, "4")]),
        (request("db-0", "main", "memory"), &[(start, "1073741824")]),
        (json!({"__name__": "up"}), &[(start, "1")]),
    ]);
    let (found, notes) = read("format: prometheus, file: x", text.as_bytes()).expect("readable");
    // Two and three at first; at 600 s the StatefulSet is gone and web has five.
    assert_eq!(facts(&found), (5, 3, 5, 2 * 600 + 3 * 4_000, 900_000));
    assert_eq!(notes, ["1 other series are left out (up)"]);
    for (text, expected) in [
        (
            "{\"status\": \"error\", \"error\": \"too many samples\"}",
            "is an answer of status \"error\": too many samples",
        ),
        (
            "{\"status\": \"success\", \"data\": {\"resultType\": \"vector\", \"result\": []}}",
            "holds a vector; expected the matrix",
        ),
        (
            "{\"status\": \"success\", \"data\": {\"resultType\": \"matrix\", \"result\": []}}",
            "holds no replica count",
        ),
        ("{\"status\":\n", "line 2: ends in the middle of a value"),
    ] {
        let error = read("format: prometheus, file: x", text.as_bytes()).expect_err(expected);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    // What was asked for with a step of milliseconds would not fit into memory.
    let points = vec![format!("[{start},\"1\"]"); 1_000_001].join(",");
    let many = format!(
        "{{\"status\":\"success\",\"data\":{{\"resultType\":\"matrix\",\"result\":[\n{{\"metric\":{{}},\"values\":[{points}]}}]}}}}"
    );
    let error = read("format: prometheus, file: x", many.as_bytes()).expect_err("too many points");
    assert!(
        error
            .to_string()
            .starts_with("line 2: cannot be read: one series has more than 1000000 points"),
        "{error}"
    );
    let wrong = text.replace("\"5\"", "\"NaN\"");
    let error = read("format: prometheus, file: x", wrong.as_bytes()).expect_err("no number");
    assert_eq!(
        error.to_string(),
        "series 1: value \"NaN\" is not a number of replicas"
    );
}
