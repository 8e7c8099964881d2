//! Recordings in which workloads change the templates of their pods: what is played of it, and what is none of a scheduler's business.

use serde_json::{Value, json};
use spokeshave_scenario::import::{Recorded, Recording, bend};
use spokeshave_scenario::{Change, Timeline};

use super::streams::{audit_event, deployment, job, recorded};
use super::{HOUR_MS, facts, read, source, whole};

const NOTE: &str = "3 roll-outs of other pod templates are played, the first of them of shop/web after 360 minutes: Deployments replace a quarter of their pods at a time, StatefulSets one after the other";

/// Hour, replicas and cores of the Deployment `web`.
const STATES: [(u64, u32, &str); 5] = [
    (0, 10, "250m"),
    (1, 12, "250m"),
    (6, 10, "4"),
    (7, 10, "250m"),
    (8, 10, "4"),
];

fn at(hour: u64) -> String {
    format!("2026-03-02T0{hour}:00:00Z")
}

/// What happens, by the minute.
fn by_minute(found: &Timeline) -> Vec<(u64, Change)> {
    let events = found.events.iter();
    events
        .map(|event| (event.at_ms / 60_000, event.change.clone()))
        .collect()
}

/// Cores of each template of the only owner.
fn requests(found: &Timeline) -> Vec<String> {
    assert_eq!(found.owners.len(), 1, "{:?}", found.owners);
    let templates = found.owners[0].templates();
    templates
        .map(|template| {
            let template = serde_json::to_value(template.as_ref()).expect("JSON");
            let cpu = &template["spec"]["containers"][0]["resources"]["requests"]["cpu"];
            cpu.as_str().expect("a quantity").to_owned()
        })
        .collect()
}

fn of_record() -> Recorded {
    let times = STATES.map(|(hour, ..)| at(hour));
    let lines = times.iter().zip(STATES);
    let lines =
        lines.map(|(time, (_, replicas, cpu))| (time.as_str(), "applied", deployment("web", replicas, cpu)));
    let text = recorded(&lines.collect::<Vec<_>>());
    whole("format: record, file: x", text.as_bytes()).expect("readable")
}

fn of_dumps() -> Recorded {
    let source = source("format: dumps, file: x");
    let mut recording = Recording::new(&source);
    for (hour, replicas, cpu) in STATES {
        let dump = super::dumps::inventory(&[deployment("web", replicas, cpu)]);
        let instant = at(hour).parse().expect("an instant");
        recording.dump(instant, &dump).expect("in order");
    }
    recording.finish().expect("a timeline")
}

fn of_audit() -> Recorded {
    let events = STATES.map(|(hour, replicas, cpu)| {
        let more = json!({"responseObject": deployment("web", replicas, cpu)});
        let verb = if hour == 0 { "create" } else { "patch" };
        audit_event(&at(hour), verb, "deployments", "web", more)
    });
    whole("format: audit, file: x", events.join("\n").as_bytes()).expect("readable")
}

/// A version that comes back is the one that it was.
#[test]
fn a_workload_is_played_with_the_template_of_the_time() {
    for (format, found) in [
        ("record", of_record()),
        ("dumps", of_dumps()),
        ("audit", of_audit()),
    ] {
        let timeline = &found.timeline;
        let expected = [
            (0, Change::Replicas(10)),
            (60, Change::Replicas(12)),
            (360, Change::Template(1)),
            (360, Change::Replicas(10)),
            (420, Change::Template(0)),
            (480, Change::Template(1)),
        ];
        assert_eq!(by_minute(timeline), expected, "{format}");
        assert_eq!(requests(timeline), ["250m", "4"], "{format}");
        assert_eq!(found.notes, [NOTE], "{format}");
        // Two more after an hour; then the twelve, and twice the ten, are made anew.
        assert_eq!(facts(timeline), (10, 34, 12, 40_000, 8 * HOUR_MS), "{format}");
    }
}

/// The Deployment `web`, and it again an hour later with something else at a place of its template.
fn changed(place: &str, value: &Value) -> (Timeline, Vec<String>) {
    let first = deployment("web", 10, "1");
    let mut second = first.clone();
    let template = &mut second["spec"]["template"];
    let (above, field) = place.rsplit_once('/').expect("a pointer");
    template.pointer_mut(above).expect("it is there")[field] = value.clone();
    let (first_at, second_at) = (at(0), at(1));
    let lines = [
        (first_at.as_str(), "applied", first),
        (second_at.as_str(), "applied", second),
    ];
    read("format: record, file: x", recorded(&lines).as_bytes()).expect("readable")
}

#[test]
fn what_no_scheduler_sees_makes_no_rollout() {
    let container = "/spec/containers/0";
    for (place, value) in [
        (format!("{container}/image"), json!("registry.example/web:2")),
        (
            format!("{container}/env"),
            json!([{"name": "PASSWORD", "value": "y"}]),
        ),
        (format!("{container}/name"), json!("other")),
        (format!("{container}/ports"), json!([{"containerPort": 8080}])),
        (
            format!("{container}/resources/limits"),
            json!({"cpu": "8", "memory": "8Gi"}),
        ),
        (
            "/metadata/annotations".to_owned(),
            json!({"checksum/config": "2"}),
        ),
        (
            "/metadata/labels".to_owned(),
            json!({"app": "web", "version": "2", "pod-template-hash": "def"}),
        ),
        ("/spec/serviceAccountName".to_owned(), json!("robot")),
        ("/spec/securityContext".to_owned(), json!({"runAsUser": 1000})),
        (
            "/spec/volumes".to_owned(),
            json!([{"name": "settings", "configMap": {"name": "settings-2"}}]),
        ),
    ] {
        let (found, notes) = changed(&place, &value);
        assert_eq!(by_minute(&found), [(0, Change::Replicas(10))], "{place}");
        assert_eq!((found.owners[0].later.len(), notes), (0, Vec::new()), "{place}");
    }
}

#[test]
fn what_a_scheduler_or_a_drain_sees_makes_one() {
    let container = "/spec/containers/0";
    let spread = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]);
    for (place, value) in [
        (
            format!("{container}/resources/requests"),
            json!({"cpu": "1", "memory": "2Gi"}),
        ),
        (
            format!("{container}/ports"),
            json!([{"containerPort": 8080, "hostPort": 8080}]),
        ),
        (
            "/metadata/annotations".to_owned(),
            json!({"karpenter.sh/do-not-disrupt": "true"}),
        ),
        ("/spec/nodeSelector".to_owned(), json!({"disk": "ssd"})),
        ("/spec/tolerations".to_owned(), json!([{"operator": "Exists"}])),
        ("/spec/topologySpreadConstraints".to_owned(), spread),
        ("/spec/priorityClassName".to_owned(), json!("high")),
        (
            "/spec/schedulingGates".to_owned(),
            json!([{"name": "example.com/queue"}]),
        ),
        ("/spec/terminationGracePeriodSeconds".to_owned(), json!(600)),
        (
            "/spec/initContainers".to_owned(),
            json!([{"name": "first", "resources": {"requests": {"cpu": "2"}}}]),
        ),
    ] {
        let (found, notes) = changed(&place, &value);
        let expected = [(0, Change::Replicas(10)), (60, Change::Template(1))];
        assert_eq!(by_minute(&found), expected, "{place}");
        assert_eq!((found.owners[0].later.len(), notes.len()), (1, 1), "{place}");
    }
}

/// Of a workload that is not recorded itself, its pods tell it: by what they request, for the rest of them is in part their own.
#[test]
fn pods_that_are_recorded_one_by_one_are_what_they_request() {
    let pod = |name: &str, cpu: &str| {
        json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name, "ownerReferences": [{"kind": "Workflow", "name": "etl", "controller": true}]},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}], "hostname": name, "schedulerName": name},
            "status": {"phase": "Running"}})
    };
    let pods = [
        (0, "e1", "1"),
        (1, "e2", "1"),
        (6, "e3", "4"),
        (7, "e4", "1"),
        (8, "e5", "4"),
    ];
    let times = pods.map(|(hour, ..)| at(hour));
    let lines = times.iter().zip(pods);
    let lines = lines.map(|(time, (_, name, cpu))| (time.as_str(), "applied", pod(name, cpu)));
    let text = recorded(&lines.collect::<Vec<_>>());
    let (found, notes) = read("format: record, file: x", text.as_bytes()).expect("readable");
    let begin = |pod| Change::Begin { pod, runs_ms: None };
    let expected = [
        (0, begin(0)),
        (60, begin(1)),
        (360, Change::Template(1)),
        (360, begin(2)),
        (420, Change::Template(0)),
        (420, begin(3)),
        (480, Change::Template(1)),
        (480, begin(4)),
    ];
    assert_eq!(by_minute(&found), expected);
    assert_eq!(
        (requests(&found), notes),
        (vec!["1".to_owned(), "4".to_owned()], Vec::new())
    );
    // Nothing that runs is replaced.
    assert_eq!(facts(&found), (1, 4, 5, 11_000, 8 * HOUR_MS));
}

/// Of pods alone that are counted, as in dumps, nobody knows which version is wanted: they stay what they were first.
#[test]
fn a_workload_of_which_only_pods_are_dumped_keeps_its_first() {
    let pod = |cpu: &str| {
        json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": "e1", "ownerReferences": [{"kind": "Workflow", "name": "etl", "controller": true}]},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}, "status": {"phase": "Running"}})
    };
    let source = source("format: dumps, file: x");
    let mut recording = Recording::new(&source);
    for (hour, cpu) in [(0, "1"), (6, "4")] {
        let dump = super::dumps::inventory(&[pod(cpu)]);
        let instant = at(hour).parse().expect("an instant");
        recording.dump(instant, &dump).expect("in order");
    }
    let note = "1 workloads change the specification of their pods, the first of them shop/etl after 360 minutes: their pods are taken to stay as they were first";
    assert_eq!(recording.finish().expect("a timeline").notes, [note]);
}

/// A Job keeps the template that it began with.
#[test]
fn runs_of_a_cron_job_have_the_template_of_their_time() {
    let run = |name: &str, cpu: &str, done: Option<&str>| {
        let status = done.map_or(json!({}), |at| json!({"completionTime": at}));
        let mut run = job(name, Some("nightly"), status);
        run["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into();
        run
    };
    let text = recorded(&[
        ("2026-03-02T00:00:00Z", "applied", run("nightly-1", "2", None)),
        ("2026-03-02T01:00:00Z", "applied", run("nightly-2", "8", None)),
        (
            "2026-03-02T02:00:00Z",
            "applied",
            run("nightly-1", "2", Some("2026-03-02T02:00:00Z")),
        ),
    ]);
    let (found, _) = read("format: record, file: x", text.as_bytes()).expect("readable");
    let begin = |pod| Change::Begin { pod, runs_ms: None };
    let end = |pod| Change::End { pod };
    let expected = [
        (0, begin(0)),
        (0, begin(1)),
        (60, Change::Template(1)),
        (60, begin(2)),
        (60, begin(3)),
        (120, end(0)),
        (120, end(1)),
    ];
    assert_eq!(by_minute(&found), expected);
    assert_eq!(facts(&found), (2, 2, 4, 20_000, 2 * HOUR_MS));
}

/// All versions are scaled, each copy has them, and a round begins with the first one again.
#[test]
fn versions_are_bent_with_their_recording() {
    let asked = source("format: record, file: x, scaleCpu: 0.5, repeat: true, copies: 2");
    let found = bend(of_record(), &asked, 10 * HOUR_MS).expect("small");
    assert_eq!(found.owners.len(), 2);
    for owner in &found.owners {
        let templates = owner
            .templates()
            .map(|template| serde_json::to_value(template.as_ref()).expect("JSON"));
        let cpu = templates
            .map(|template| template["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone());
        assert_eq!(cpu.collect::<Vec<_>>(), ["125m", "2"]);
    }
    let own = found.events.iter().filter(|event| event.owner.0 == 1);
    let own: Vec<(u64, Change)> = own
        .map(|event| (event.at_ms / HOUR_MS, event.change.clone()))
        .collect();
    // Whoever recorded looked for eight hours, and saw the last version when he stopped: the next round begins then.
    let expected = [
        (0, Change::Replicas(10)),
        (1, Change::Replicas(12)),
        (6, Change::Template(1)),
        (6, Change::Replicas(10)),
        (7, Change::Template(0)),
        (8, Change::Replicas(10)),
        (9, Change::Replicas(12)),
    ];
    assert_eq!(own, expected);
    let mut long = of_record();
    long.recorded_ms = 9 * HOUR_MS;
    let found = bend(
        long,
        &source("format: record, file: x, repeat: true"),
        10 * HOUR_MS,
    )
    .expect("small");
    let tail: Vec<(u64, Change)> = found
        .events
        .iter()
        .filter(|event| event.at_ms >= 8 * HOUR_MS)
        .map(|event| (event.at_ms / HOUR_MS, event.change.clone()))
        .collect();
    let expected = [
        (8, Change::Template(1)),
        (9, Change::Template(0)),
        (9, Change::Replicas(10)),
    ];
    assert_eq!(tail, expected);
}
