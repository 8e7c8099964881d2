//! Pods with scheduling gates, which a controller such as Kueue takes off one pod after the other, and which nobody takes off in a simulation.

use serde_json::{Value, json};
use spokeshave_scenario::import::Recording;
use spokeshave_scenario::{Change, Owner, Timeline};

use super::dumps::inventory;
use super::streams::{audit_event, deployment, recorded};
use super::{HOUR_MS, read, source};

const AT: &str = "2026-03-02T10:00:00Z";

/// A pod, with a gate or without, and what manages it.
fn pod(name: &str, has_gate: bool, owner: Option<&str>) -> Value {
    let gates = if has_gate {
        json!([{"name": "kueue.x-k8s.io/admission"}])
    } else {
        json!([])
    };
    let owners = owner.map(
        |owner| json!([{"apiVersion": "example.com/v1", "kind": "Gang", "name": owner, "controller": true}]),
    );
    json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name, "uid": name, "creationTimestamp": AT, "ownerReferences": owners},
        "spec": {"schedulingGates": gates, "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": if has_gate { "Pending" } else { "Running" }}})
}

fn by_minute(found: &Timeline) -> Vec<(u64, Change)> {
    let events = found.events.iter();
    events
        .map(|event| (event.at_ms / 60_000, event.change.clone()))
        .collect()
}

fn has_gates(owner: &Owner) -> bool {
    let spec = owner.template.spec.as_ref();
    let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}

const BEGIN: Change = Change::Begin {
    pod: 0,
    runs_ms: None,
};
const END: Change = Change::End { pod: 0 };

#[test]
fn a_pod_of_an_audit_log_begins_when_its_gates_are_gone() {
    let told = |time: &str, verb: &str, has_gate: bool| {
        let more = json!({"responseObject": pod("q0", has_gate, None)});
        audit_event(&format!("2026-03-02T{time}Z"), verb, "pods", "q0", more)
    };
    let web = json!({"responseObject": deployment("web", 2, "1")});
    let mut lines = vec![
        audit_event(AT, "create", "deployments", "web", web),
        told("10:00:00", "create", true),
        told("10:10:00", "update", false),
        told("10:20:00", "update", false),
        audit_event("2026-03-02T10:50:00Z", "delete", "pods", "q0", json!({})),
    ];
    // Of several servers, the later one may be read first.
    for _ in 0..2 {
        let (found, _) = read("format: audit, file: x", lines.join("\n").as_bytes()).expect("readable");
        assert_eq!(
            by_minute(&found),
            [(0, Change::Replicas(2)), (10, BEGIN), (50, END)]
        );
        assert!(!found.owners.iter().any(has_gates), "{lines:?}");
        lines.reverse();
    }
}

#[test]
fn a_pod_of_a_recording_begins_when_its_gates_are_gone() {
    let text = recorded(&[
        (AT, "applied", pod("q0", true, None)),
        (AT, "applied", pod("never", true, None)),
        ("2026-03-02T10:10:00Z", "applied", pod("q0", false, None)),
        ("2026-03-02T10:40:00Z", "deleted", pod("never", true, None)),
        ("2026-03-02T10:50:00Z", "deleted", pod("q0", false, None)),
    ]);
    let (found, _) = read("format: record, file: x", text.as_bytes()).expect("readable");
    assert_eq!(by_minute(&found), [(10, BEGIN), (50, END)]);
    assert!(!found.owners.iter().any(has_gates));
}

#[test]
fn a_pod_of_several_dumps_begins_when_its_gates_are_gone() {
    let source = source("format: dumps, file: x");
    let mut recording = Recording::new(&source);
    let web = deployment("web", 2, "1");
    for (hour, pods) in [
        (
            10,
            vec![
                pod("q0", true, None),
                pod("g0", true, Some("gang")),
                pod("g1", true, Some("gang")),
            ],
        ),
        (
            11,
            vec![
                pod("q0", false, None),
                pod("g0", true, Some("gang")),
                pod("g1", false, Some("gang")),
            ],
        ),
        (12, vec![]),
    ] {
        let objects = [vec![web.clone()], pods].concat();
        let at = format!("2026-03-02T{hour}:00:00Z").parse().expect("an instant");
        recording.dump(at, &inventory(&objects)).expect("whole");
    }
    let found = recording.finish().expect("whole").timeline;
    assert!(!found.owners.iter().any(has_gates));
    let of = |name: &str| -> Vec<(u64, Change)> {
        let events = found.events.iter();
        let own = events.filter(|event| found.owners[event.owner.0 as usize].name == name);
        own.map(|event| (event.at_ms / 60_000, event.change.clone()))
            .collect()
    };
    assert_eq!(of("q0"), [(60, BEGIN), (120, END)]);
    assert_eq!(
        of("gang"),
        [(60, Change::Replicas(1)), (120, Change::Replicas(0))]
    );
    assert_eq!(of("web"), [(0, Change::Replicas(2))]);
}

/// The dump to begin with: its pods of one owner are alike, those without a gate as they are.
#[test]
fn a_gate_of_one_pod_is_not_that_of_its_owner() {
    let start = AT.parse().expect("an instant");
    let lived = |objects: &[Value]| {
        let found = inventory(objects).constant(start, HOUR_MS).expect("small");
        let gated: Vec<bool> = found.owners.iter().map(has_gates).collect();
        let changes: Vec<Change> = found.events.into_iter().map(|event| event.change).collect();
        (gated, changes)
    };
    let gang = |gated: &[usize]| -> Vec<Value> {
        let pods = 0..4_usize;
        pods.map(|number| pod(&format!("q{number}"), gated.contains(&number), Some("gang")))
            .collect()
    };
    for gated in [0, 3] {
        assert_eq!(
            lived(&gang(&[gated])),
            (vec![false], vec![Change::Replicas(3)]),
            "{gated}"
        );
    }
    assert_eq!(
        lived(&gang(&[0, 1, 2, 3])),
        (vec![true], vec![Change::Replicas(4)])
    );
    assert_eq!(lived(&[pod("q0", true, None)]), (vec![true], vec![BEGIN]));
    let mut held = deployment("web", 3, "1");
    held["spec"]["template"]["spec"]["schedulingGates"] = json!([{"name": "example.com/queue"}]);
    assert_eq!(lived(&[held]), (vec![true], vec![Change::Replicas(3)]));
}
