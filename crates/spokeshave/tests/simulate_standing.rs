//! `simulate` begins where a cluster stands: with the nodes of a dump, and with what was on them.

use std::fs;
use std::process::Output;

use serde_json::Value;

mod simulated;
use simulated::{POOLS, json_of, program, text, write};

const SCENARIO: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: before}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 2h
  seeds: 1
  cluster:
    manifests: [pools.yaml]
  workloads:
  - name: web
    deployments: {count: 3, cpu: 1, memory: 1Gi}
    replicas: 4
    ready: 8s
  policies:
  - {name: now}
";

/// Nodes of a managed node group, of which the second is not ready, and a pod that only such a node takes.
const MANAGED: &str = "\
apiVersion: v1
kind: Node
metadata: {name: system-1, creationTimestamp: 2026-03-01T00:00:00Z, labels: {group: system}}
spec: {providerID: cloud://system-1}
status:
  allocatable: {cpu: \"4\", memory: 16Gi, pods: \"110\"}
  conditions: [{type: Ready, status: \"True\"}]
---
apiVersion: v1
kind: Node
metadata: {name: system-2, creationTimestamp: 2026-03-01T00:00:00Z, labels: {group: system}}
spec: {providerID: cloud://system-2}
status: {allocatable: {cpu: \"4\"}}
---
apiVersion: v1
kind: Pod
metadata: {name: operator, namespace: system, creationTimestamp: 2026-03-01T00:00:00Z}
spec:
  nodeName: system-1
  nodeSelector: {group: system}
  containers: [{name: main, resources: {requests: {cpu: \"1\", memory: 1Gi}}}]
status: {phase: Running, startTime: 2026-03-01T00:00:10Z}
";

fn simulate(arguments: &[&str]) -> Output {
    let mut command = program();
    let output = command.arg("simulate").args(arguments).output();
    let output = output.expect("the program runs");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

fn said(output: &Output) -> String {
    text(&output.stderr)
}

/// A dump of the cluster after an hour, in a folder with its NodePools.
fn dump() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools.yaml", POOLS);
    let scenario = write(folder.path(), "before.yaml", SCENARIO);
    let dump = folder.path().join("then.json").display().to_string();
    simulate(&[&scenario, "--snapshot-at", "1h", "--snapshot", &dump]);
    (folder, dump)
}

/// How often a policy's log has a line of this kind.
fn count(log: &str, policy: &str, what: &str) -> usize {
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines
        .filter(|line| line["policy"] == policy && line["what"] == what)
        .count()
}

#[test]
fn a_dump_with_nodes_is_gone_on_with_under_every_policy() {
    let (folder, dump) = dump();
    let log = folder.path().join("log.jsonl").display().to_string();
    let arguments = [
        "-f", &dump, "--for", "1h", "--seeds", "1", "-o", "json", "--events", &log,
    ];
    let output = simulate(&arguments);
    let told = said(&output);
    assert!(told.contains("note: every policy begins with "), "{told}");
    assert!(told.contains(" and with 12 pods on them\n"), "{told}");
    assert!(!told.contains("no policy begins with these"), "{told}");
    let answer = text(&output.stdout);
    assert!(
        answer.contains("every policy begins with "),
        "it is in every report: {answer}"
    );
    let log = fs::read_to_string(&log).expect("a log");
    let nodes = count(&log, "now", "standing");
    assert!(nodes > 0);
    for policy in ["now", "never"] {
        assert_eq!(count(&log, policy, "standing"), nodes, "{policy}");
        assert_eq!(count(&log, policy, "placed"), 12, "{policy}");
    }
    assert_eq!(count(&log, "never", "launched"), 0, "everything has a place");
    let again = simulate(&arguments[..8]);
    let figures = |output: &Output| {
        let all = json_of(output);
        all["runs"].clone()
    };
    assert_eq!(figures(&output), figures(&again));
}

#[test]
fn a_scenario_begins_without_the_nodes_of_its_dump_where_it_says_so() {
    let (folder, _) = dump();
    let scenario = |more: &str| {
        let text = SCENARIO.replace(
            "[pools.yaml]",
            &format!("[pools.yaml]\n    snapshot: then.json{more}"),
        );
        let text = text.replace("name: web\n", "name: other\n");
        write(folder.path(), "scenario.yaml", &text)
    };
    let told = said(&simulate(&[&scenario(""), "--check"]));
    assert!(told.contains("every policy begins with "), "{told}");
    let told = said(&simulate(&[&scenario("\n    nodes: none"), "--check"]));
    assert!(told.contains("no node of the dump is taken over"), "{told}");
    assert!(!told.contains("every policy begins with "), "{told}");
}

/// The bill is that of the NodePools, and the operator's own pod has its place.
#[test]
fn nodes_that_no_node_pool_owns_are_there_with_their_pods_and_cost_nothing() {
    let (folder, dump) = dump();
    let managed = write(folder.path(), "managed.yaml", MANAGED);
    let log = folder.path().join("log.jsonl").display().to_string();
    let cost = |more: &[&str]| {
        let mut arguments = vec!["-f", dump.as_str(), "--for", "1h", "--seeds", "1", "-o", "json"];
        arguments.extend_from_slice(more);
        let output = simulate(&arguments);
        let answer = json_of(&output);
        let mut runs = answer["runs"].as_array().expect("runs").iter();
        let never = runs.find(|run| run["policy"] == "never").expect("a run");
        (never["values"]["cost"].as_f64().expect("a cost"), said(&output))
    };
    let (before, _) = cost(&[]);
    let (after, told) = cost(&["-f", &managed, "--events", &log]);
    assert!(before > 0.0);
    assert!((after - before).abs() < 1e-9, "{before} and {after}");
    for expected in [
        " and with 13 pods on them\n",
        "of these nodes, no NodePool owns 1 (system-1): ",
        "no policy begins with these of the dump, and pods on them begin without a node: 1 Node not ready (system-2)",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(!told.contains("takes the pods of"), "all have a place: {told}");
    let log = fs::read_to_string(&log).expect("a log");
    for policy in ["now", "never"] {
        assert_eq!(count(&log, policy, "fixed"), 1, "{policy}");
        assert_eq!(count(&log, policy, "placed"), 13, "{policy}");
    }
}

/// Of a cluster of another autoscaler it is asked what NodePools would make of it.
#[test]
fn a_dump_without_node_claims_is_packed_anew() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pools = write(folder.path(), "pools.yaml", POOLS);
    let managed = write(folder.path(), "managed.yaml", MANAGED);
    let told = said(&simulate(&[
        "-f", &pools, "-f", &managed, "--for", "1h", "--seeds", "1",
    ]));
    assert!(!told.contains("every policy begins with "), "{told}");
    assert!(
        told.contains("2 Nodes of no NodePool in a cluster without NodeClaims (system-1, system-2)"),
        "{told}"
    );
    assert!(told.contains("no node of the dump is taken over"), "{told}");
}

#[test]
fn init_writes_a_scenario_that_begins_with_the_nodes_of_its_dump() {
    let (folder, dump) = dump();
    let output = simulate(&["init", "-f", &dump]);
    let text = text(&output.stdout);
    assert!(
        text.contains("\n    nodes: snapshot ") && text.contains("\n  warmup: 0s "),
        "{text}"
    );
    let scenario = write(folder.path(), "scenario.yaml", &text);
    let told = said(&simulate(&[&scenario, "--check"]));
    assert!(told.contains("every policy begins with "), "{told}");
}
