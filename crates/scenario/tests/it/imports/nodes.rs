//! Recordings that tell of nodes: which instances there were from when to when, and which pods were on them at the beginning.

use serde_json::{Value, json};
use spokeshave_scenario::Timeline;
use spokeshave_scenario::import::{Instance, bend};

use super::streams::{a_recording, deployment, job, recorded};
use super::{HOUR_MS, source, whole};

const START: &str = "2026-03-02T10:00:00Z";
const FORMAT: &str = "format: record, file: x";

type Line = (&'static str, &'static str, Value);

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": format!("cloud://{name}")}})
}

fn claim(name: &str, instance: Option<&str>) -> Value {
    let labels = json!({
        "karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot",
        "node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": "zone-a",
    });
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "labels": labels}, "status": {"providerID": instance}})
}

/// A pod on a node, of a controller of this version, kind and name.
fn pod(name: &str, owner: Option<(&str, &str, &str)>, node: &str) -> Value {
    let owners = owner.map(|(version, kind, name)| {
        json!([{"apiVersion": version, "kind": kind, "name": name, "controller": true}])
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "labels": {"pod-template-hash": "abc"}, "ownerReferences": owners},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "startTime": "2026-03-02T08:00:00Z"},
    })
}

#[test]
fn instances_are_there_from_when_they_are_seen_until_their_node_claims_are_gone() {
    let text = recorded(&[
        (START, "applied", node("n1")),
        (START, "applied", claim("old", Some("cloud://n1"))),
        (START, "applied", deployment("web", 3, "500m")),
        // It has no instance yet.
        ("2026-03-02T11:00:00Z", "applied", claim("new", None)),
        (
            "2026-03-02T12:00:00Z",
            "applied",
            claim("new", Some("cloud://n2")),
        ),
        ("2026-03-02T13:00:00Z", "deleted", claim("old", None)),
        // Another one of its name.
        (
            "2026-03-02T14:00:00Z",
            "applied",
            claim("old", Some("cloud://n3")),
        ),
        ("2026-03-02T15:00:00Z", "deleted", deployment("web", 3, "500m")),
    ]);
    let found = whole(FORMAT, text.as_bytes()).expect("readable");
    let instance = |from: u64, until: Option<u64>| Instance {
        node_pool: "default".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "zone-a".to_owned(),
        capacity_type: "spot".to_owned(),
        from_ms: from * HOUR_MS,
        until_ms: until.map(|until| until * HOUR_MS),
    };
    let nodes = &found.nodes;
    assert_eq!(
        nodes.instances,
        [instance(0, Some(3)), instance(2, None), instance(4, None)]
    );
    assert_eq!(nodes.begun.to_string(), START);
    let at_start = nodes.at_start.iter();
    let at_start: Vec<Value> = at_start
        .map(|json| serde_json::from_str(json).expect("JSON"))
        .collect();
    assert_eq!(at_start, [node("n1"), claim("old", Some("cloud://n1"))]);
    // As a reader that does not know them: they are no workloads.
    assert_eq!((found.timeline.owners.len(), found.recorded_ms), (1, 5 * HOUR_MS));
}

#[test]
fn a_recording_without_nodes_is_what_it_was() {
    let found = whole(FORMAT, a_recording().as_bytes()).expect("readable");
    assert!(found.nodes.is_empty());
    assert!(found.timeline.placements.is_empty());
}

#[test]
fn a_node_claim_that_cannot_be_read_is_named_by_its_line() {
    let mut broken = claim("old", None);
    broken["status"] = json!("ready");
    let text = recorded(&[
        (START, "applied", deployment("web", 3, "500m")),
        (START, "applied", broken),
    ]);
    let error = whole(FORMAT, text.as_bytes()).expect_err("no status");
    assert!(
        error.to_string().starts_with("line 3: cannot be read: "),
        "{error}"
    );
}

/// What makes pods, and pods on nodes at the start and an hour later.
fn with_pods() -> Vec<Line> {
    let web = |name: &str, node: &str| pod(name, Some(("apps/v1", "ReplicaSet", "web-abc")), node);
    let mut set = deployment("db", 2, "1");
    set["kind"] = json!("StatefulSet");
    let clone = |name: &str, node: &str| {
        pod(
            name,
            Some(("apps.kruise.io/v1alpha1", "CloneSet", "clones")),
            node,
        )
    };
    let at_start = [
        deployment("web", 2, "500m"),
        set,
        job("nightly-1", Some("nightly"), json!({})),
        web("web-abc-1", "n1"),
        web("web-abc-2", ""),
        web("web-abc-3", "n2"),
        // Its controller wants no third one.
        web("web-abc-4", "n3"),
        pod("db-1", Some(("apps/v1", "StatefulSet", "db")), "n1"),
        pod("db-2", Some(("apps/v1", "StatefulSet", "db")), "n1"),
        pod("nightly-1-a", Some(("batch/v1", "Job", "nightly-1")), "n2"),
        pod("nightly-1-b", Some(("batch/v1", "Job", "nightly-1")), "n1"),
        pod("agent-1", Some(("apps/v1", "DaemonSet", "agent")), "n1"),
        clone("clones-x", "n1"),
        clone("clones-y", "n2"),
        pod("alone", None, "n1"),
    ];
    let mut lines: Vec<Line> = at_start
        .into_iter()
        .map(|object| (START, "applied", object))
        .collect();
    lines.push(("2026-03-02T11:00:00Z", "applied", pod("later", None, "n1")));
    lines
}

/// Owner, number and node of each pod that has a node at the start, in order.
fn placed(timeline: &Timeline) -> Vec<(&str, u64, &str)> {
    let placements = timeline.placements.iter();
    let mut found: Vec<_> = placements
        .map(|one| {
            let owner = &timeline.owners[one.owner.0 as usize];
            (owner.name.as_str(), one.pod, one.node.as_str())
        })
        .collect();
    found.sort_unstable();
    found
}

const PLACED: [(&str, u64, &str); 8] = [
    ("alone", 0, "n1"),
    ("clones", 0, "n1"),
    ("clones", 1, "n2"),
    ("db", 1, "n1"),
    ("nightly", 0, "n2"),
    ("nightly", 1, "n1"),
    ("web", 0, "n1"),
    ("web", 1, "n2"),
];

#[test]
fn pods_are_where_they_were_when_the_recording_began() {
    let mut lines = with_pods();
    let without = whole(FORMAT, recorded(&lines).as_bytes()).expect("readable");
    let unplaced = &without.timeline.placements;
    assert!(unplaced.is_empty(), "of no node anything is known: {unplaced:?}");
    lines.insert(0, (START, "applied", node("n1")));
    let found = whole(FORMAT, recorded(&lines).as_bytes()).expect("readable");
    assert_eq!(placed(&found.timeline), PLACED);
    assert_eq!(found.timeline.events, without.timeline.events);
    let since = "2026-03-02T08:00:00Z".parse().ok();
    let mut placements = found.timeline.placements.iter();
    assert!(
        placements.all(|one| one.since == since),
        "since their kubelets have them"
    );
}

#[test]
fn pods_of_a_recording_that_is_scaled_or_copied_are_nowhere() {
    let mut lines = with_pods();
    lines.insert(0, (START, "applied", node("n1")));
    let text = recorded(&lines);
    for (more, expected) in [
        ("", &PLACED[..]),
        (", repeat: true", &PLACED[..]),
        (", speed: 2", &PLACED[..]),
        (", copies: 2", &PLACED[..0]),
        (", scaleCpu: 0.5", &PLACED[..0]),
        (", scaleMemory: 2", &PLACED[..0]),
    ] {
        let import = format!("{FORMAT}{more}");
        let found = whole(&import, text.as_bytes()).expect("readable");
        let bent = bend(found, &source(&import), 5 * HOUR_MS).expect("small");
        assert_eq!(placed(&bent), expected, "{more}");
    }
}
