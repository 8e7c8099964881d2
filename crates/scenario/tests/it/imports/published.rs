//! The shapes of files as others publish and export them, cut to a few objects, with what was counted in them by hand.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use rmpv::Value as Packed;
use serde_json::{Value, json};
use spokeshave_scenario::{Change, OwnerKind, Timeline};

use super::streams::{audit_event, deployment, job, packed, recorded};
use super::{facts, read};

/// 2026-03-02T10:00:00Z
const START: u64 = 1_772_445_600;

fn at_seconds(found: &Timeline, is_meant: fn(&Change) -> bool) -> Vec<u64> {
    let events = found.events.iter().filter(|event| is_meant(&event.change));
    events.map(|event| event.at_ms / 1_000).collect()
}

fn begins(found: &Timeline) -> Vec<u64> {
    at_seconds(found, |change| matches!(change, Change::Begin { .. }))
}

fn ends(found: &Timeline) -> Vec<u64> {
    at_seconds(found, |change| matches!(change, Change::End { .. }))
}

/// A trace with the lives of pods, whose keys are pairs, which JSON cannot hold.
fn traced(trace: &Value, lives: &[(&str, &str, Value)]) -> (Timeline, Vec<String>) {
    let mut trace = packed(trace);
    let lives = lives.iter().map(|(kind, name, lives)| {
        let key = Packed::Array(vec![Packed::from(*kind), Packed::from(*name)]);
        let by_hash = vec![(Packed::from(7_u64), packed(lives))];
        (key, Packed::Map(by_hash))
    });
    let lives = Packed::Map(lives.collect());
    if let Packed::Map(entries) = &mut trace {
        entries.push((Packed::from("pod_lifecycles"), lives));
    }
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &trace).expect("memory");
    read("format: sktrace, file: x", &bytes).expect("readable")
}

fn event(second: u64, applied: &[Value], deleted: &[Value]) -> Value {
    json!({"ts": START + second, "applied_objs": applied, "deleted_objs": deleted})
}

fn bare(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "testing", "name": name},
        "spec": {"containers": [{"name": "sleeper", "resources": {"requests": {"cpu": "1"}}}]}})
}

/// As the pods of `examples/traces/bare-pods.sktrace` of SimKube, one a minute, of which the last still ran.
#[test]
fn bare_pods_of_a_trace_end_when_their_tracer_saw_it() {
    let trace = json!({"version": 2, "events": [
        event(0, &[bare("a")], &[]),
        event(60, &[bare("b")], &[]),
        // One that is changed once more after its end is not there again.
        event(100, &[bare("a")], &[]),
        event(120, &[bare("c")], &[]),
    ]});
    let finished = |from: u64, to: u64| json!([{"Finished": [START + from, START + to]}]);
    let lives = [
        ("v1.Pod", "testing/a", finished(1, 31)),
        ("v1.Pod", "testing/b", finished(62, 92)),
        ("v1.Pod", "testing/c", json!([{"Running": START + 121}])),
    ];
    let (found, notes) = traced(&trace, &lives);
    assert_eq!((begins(&found), ends(&found)), (vec![0, 60, 120], vec![31, 92]));
    assert_eq!(facts(&found), (1, 2, 1, 1_000, 120_000));
    assert_eq!(notes, [] as [String; 0]);
}

#[test]
fn a_job_that_still_ran_when_the_trace_ended_has_no_end() {
    let jobs = ["runs", "half", "unseen"].map(|name| job(name, None, json!({})));
    let trace = json!({"version": 2, "events": [event(0, &jobs, &[]), event(7_200, &[], &[])]});
    let lives = [
        ("batch/v1.Job", "shop/runs", json!([{"Running": START + 5}])),
        (
            "batch/v1.Job",
            "shop/half",
            json!([{"Finished": [START + 5, START + 65]}, {"Running": START + 5}]),
        ),
    ];
    let (found, notes) = traced(&trace, &lives);
    assert_eq!((begins(&found), ends(&found)), (vec![0; 6], vec![600; 2]));
    assert_eq!(
        notes,
        ["1 Jobs have no end in the recording: each is taken to last 10 minutes"]
    );
}

/// As `examples/traces/cronjob.sktrace`, whose runs sleep for half a minute.
#[test]
fn runs_of_a_cron_job_take_as_long_as_its_pods_did_in_turn() {
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": "default", "name": "hello"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}}});
    let trace = json!({"version": 2, "events": [event(0, &[deployment("web", 1, "1"), cron.clone()], &[]), event(205, &[], &[cron])]});
    let lives = json!([{"Finished": [START + 61, START + 91]}, {"Finished": [START + 121, START + 141]}]);
    let (found, notes) = traced(&trace, &[("batch/v1.CronJob", "default/hello", lives)]);
    // The third takes as long as the first.
    assert_eq!(
        (begins(&found), ends(&found)),
        (vec![60, 120, 180], vec![90, 140, 210])
    );
    assert_eq!(notes, [] as [String; 0]);
}

#[test]
fn objects_of_other_groups_are_read_where_the_configuration_says_their_templates_are() {
    let template = json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}});
    let rollout = |replicas: u64| {
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"replicas": replicas, "template": template}})
    };
    let training = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"namespace": "shop", "name": "train"},
        "spec": {"tasks": [{"replicas": 1, "template": template}, {"replicas": 3, "template": template}]}});
    let other = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "metadata": {"namespace": "shop", "name": "db"},
        "spec": {"replicas": 50, "template": template}});
    let config = json!({"trackedObjects": {
        "argoproj.io/v1alpha1.Rollout": {"podSpecTemplatePaths": ["/spec/template"]},
        "batch.volcano.sh/v1alpha1.Job": {"podSpecTemplatePaths": ["/spec/tasks/*/template"], "trackLifecycle": true},
    }});
    let trace = json!({"version": 2, "config": config, "events": [
        event(0, &[rollout(2), training, other], &[]),
        event(60, &[rollout(1)], &[]),
        event(300, &[], &[rollout(1)]),
    ]});
    let lives = json!([{"Finished": [START, START + 90]}, {"Finished": [START, START + 120]}]);
    let (found, notes) = traced(&trace, &[("batch.volcano.sh/v1alpha1.Job", "shop/train", lives)]);
    let names: Vec<(OwnerKind, &str)> = found
        .owners
        .iter()
        .map(|owner| (owner.kind, owner.name.as_str()))
        .collect();
    let expected = ["web", "train-0", "train-1"].map(|name| (OwnerKind::Other, name));
    assert_eq!(names, expected);
    assert_eq!(begins(&found), [0; 6]);
    assert_eq!(ends(&found), [60, 120, 120, 120, 120, 300]);
    assert_eq!(
        notes,
        ["objects of kinds that are not read are left out: 1 of \"StatefulSet\""]
    );
}

/// Creations as CloudWatch streams them, what was there before in the middle, and scalings after all of them.
#[test]
fn a_capture_of_kubereplay_is_in_no_order() {
    let create = |name: &str, replicas: u32, at: &str| json!({"type": "create", "kind": "Deployment", "key": format!("shop/{name}"), "deployment": deployment(name, replicas, "1"), "timestamp": at});
    let log = json!({"events": [
        create("new", 2, "2026-03-02T10:05:00Z"),
        create("old", 3, "2026-03-02T10:00:00Z"),
        {"type": "scale", "kind": "Deployment", "key": "shop/old", "replicas": 5, "timestamp": "2026-03-02T10:03:00Z"},
    ]});
    let (found, notes) = read("format: kubereplay, file: x", log.to_string().as_bytes()).expect("readable");
    let changes: Vec<(u64, Change)> = found
        .events
        .iter()
        .map(|event| (event.at_ms / 60_000, event.change.clone()))
        .collect();
    let expected = [
        (0, Change::Replicas(3)),
        (3, Change::Replicas(5)),
        (5, Change::Replicas(2)),
    ];
    assert_eq!(changes, expected);
    assert_eq!(notes, [] as [String; 0]);
}

/// Of EKS there are audit logs only in CloudWatch, whose exports and answers wrap them.
#[test]
fn audit_logs_are_read_as_cloudwatch_exports_and_answers_them() {
    let web = |replicas: u32| json!({"responseObject": deployment("web", replicas, "1")});
    let first = audit_event("2026-03-02T10:00:00Z", "create", "deployments", "web", web(2));
    let second = audit_event("2026-03-02T10:30:00Z", "update", "deployments", "web", web(4));
    let plain = format!("{first}\n{second}\n");
    let export = format!("2026-03-02T10:00:00.123Z {first}\n2026-03-02T10:30:00.456Z {second}\n");
    // The log group has the logs of the authenticator, too, and those of webhooks.
    let told = json!({"events": [{"message": first, "timestamp": 1}, {"message": "time=\"x\" level=info"}, {"message": "{\"level\": \"info\"}"}, {"message": second}],
        "searchedLogStreams": []});
    let parsed: Vec<Value> = plain
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": parsed});
    let messages = format!("{}\n{}\n", json!({"message": first}), json!({"message": second}));
    let pretty = |value: &Value| serde_json::to_string_pretty(value).expect("JSON");
    let (expected, _) = read("format: audit, file: x", plain.as_bytes()).expect("readable");
    assert_eq!(facts(&expected).2, 4);
    for text in [
        export,
        told.to_string(),
        pretty(&told),
        list.to_string(),
        pretty(&list),
        messages,
    ] {
        let (found, _) =
            read("format: audit, file: x", text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(found, expected, "{text}");
    }
    let wrong = pretty(&json!({"events": [{"message": first}, {"message": "{\"kind\": \"Event\", "}]}));
    let error = read("format: audit, file: x", wrong.as_bytes()).expect_err("cut off");
    assert!(
        error
            .to_string()
            .starts_with("line 6: ends in the middle of a value"),
        "{error}"
    );
    let error = read("format: audit, file: x", b"{\n \"pods\": []\n}").expect_err("no events");
    assert!(error.to_string().starts_with("has no list"), "{error}");
}

/// They have kinds of the same names: a StatefulSet of OpenKruise, a Deployment of Knative.
#[test]
fn objects_of_another_group_are_not_taken_for_those_of_kubernetes() {
    let mut other = deployment("web", 50, "1");
    other["apiVersion"] = "serving.knative.dev/v1".into();
    let mut old = deployment("old", 1, "1");
    old["apiVersion"] = "extensions/v1beta1".into();
    let text = recorded(&[
        ("2026-03-02T10:00:00Z", "applied", deployment("web", 2, "1")),
        ("2026-03-02T10:00:00Z", "applied", old),
        ("2026-03-02T10:10:00Z", "applied", other.clone()),
        ("2026-03-02T10:20:00Z", "deleted", other),
    ]);
    let (found, _) = read("format: record, file: x", text.as_bytes()).expect("readable");
    assert_eq!(facts(&found), (3, 0, 3, 3_000, 0));
}

#[test]
fn a_job_of_more_pods_than_fit_is_refused_before_they_are_counted() {
    let mut much = job("much", None, json!({}));
    much["spec"]["parallelism"] = 2_000_000_000.into();
    let text = recorded(&[("2026-03-02T10:00:00Z", "applied", much)]);
    let error = read("format: record, file: x", text.as_bytes()).expect_err("too much");
    let expected = "line 2: Job shop/much has 2000000000 pods at once, and at most 1500000 fit";
    assert!(error.to_string().starts_with(expected), "{error}");
}

/// Formats of one document name how far they came, as those of lines do.
#[test]
fn a_compressed_document_that_is_cut_off_is_said_to_be() {
    let log = json!({"events": [{"type": "create", "kind": "Deployment", "key": "shop/web", "deployment": deployment("web", 2, "1"), "timestamp": "2026-03-02T10:00:00Z"}]});
    for import in ["kubereplay", "prometheus", "sktrace"] {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(log.to_string().as_bytes()).expect("memory");
        let bytes = encoder.finish().expect("memory");
        let import = format!("format: {import}, file: x");
        let error = read(&import, &bytes[..bytes.len() - 12])
            .expect_err("cut off")
            .to_string();
        let has_place = error.starts_with("line 1: ") || error.starts_with("byte ");
        assert!(
            has_place && error.ends_with("the file seems to be cut off"),
            "{import}: {error}"
        );
    }
}
