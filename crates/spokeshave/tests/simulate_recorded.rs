//! `simulate` with a recording that tells of nodes: it begins where the recorded cluster stood, and says what really was beside what it simulates.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

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
  - {name: never, model: none}
";

/// When the recording begins, by the clock of its cluster.
const BEGUN: &str = "2026-03-02T01:00:00Z";

fn simulate(arguments: &[&str]) -> Output {
    let mut command = program();
    let output = command.arg("simulate").args(arguments).output();
    let output = output.expect("the program runs");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    output
}

fn said(output: &Output) -> String {
    text(&output.stderr)
}

/// Recordings of two hours of a small cluster with its NodePools, in a folder: `shop.jsonl`, in which one more node comes for half an hour, and
/// `old.jsonl`, which is the same without nodes. How many nodes it begins with.
fn recordings() -> (tempfile::TempDir, usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools.yaml", POOLS);
    let scenario = write(folder.path(), "before.yaml", SCENARIO);
    let dump = folder.path().join("then.json").display().to_string();
    simulate(&[&scenario, "--snapshot-at", "1h", "--snapshot", &dump]);
    let dump: Value = serde_json::from_str(&fs::read_to_string(dump).expect("a dump")).expect("JSON");
    let of = |kind: &'static str| {
        let items = dump["items"].as_array().expect("a List").iter();
        items.filter(move |item| item["kind"] == kind)
    };
    let line = |at: &str, what: &str, object: &Value| {
        json!({"at": at, "what": what, "object": object}).to_string() + "\n"
    };
    let head = "{\"recording\": \"recording.spokeshave.dev/v1alpha1\"}\n";
    let owner = |pod: &Value| pod["metadata"]["ownerReferences"][0]["name"].clone();
    let names: BTreeSet<String> = of("Pod")
        .filter_map(|pod| owner(pod).as_str().map(ToOwned::to_owned))
        .collect();
    let mut workloads = String::new();
    for name in names {
        let mut pods = of("Pod");
        let pod = pods.find(|pod| owner(pod) == name).expect("one of its pods");
        let template = json!({"metadata": {"labels": pod["metadata"]["labels"]}, "spec": {"containers": pod["spec"]["containers"]}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": pod["metadata"]["namespace"], "name": owner(pod)}, "spec": {"replicas": 4, "template": template}});
        workloads += &line(BEGUN, "applied", &deployment);
    }
    workloads.extend(of("Pod").map(|pod| line(BEGUN, "applied", pod)));
    let nodes: String = of("Node")
        .chain(of("NodeClaim"))
        .map(|item| line(BEGUN, "applied", item))
        .collect();
    let mut more = of("NodeClaim").next().expect("a node").clone();
    more["metadata"]["name"] = json!("more");
    more["status"]["providerID"] = json!("cloud://more");
    let more =
        line("2026-03-02T02:00:00Z", "applied", &more) + &line("2026-03-02T02:30:00Z", "deleted", &more);
    let end = "{\"at\": \"2026-03-02T03:00:00Z\", \"what\": \"ended\"}\n";
    write(
        folder.path(),
        "shop.jsonl",
        &format!("{head}{nodes}{workloads}{more}{end}"),
    );
    write(folder.path(), "old.jsonl", &format!("{head}{workloads}{end}"));
    (folder, of("NodeClaim").count())
}

/// A scenario with a recording, and with more of its cluster and its import.
fn scenario(folder: &Path, file: &str, cluster: &str, import: &str) -> String {
    let (before, after) = SCENARIO.split_once("    deployments:").expect("a workload");
    let (_, after) = after.split_once("    ready: 8s\n").expect("its end");
    let text = format!("{before}    import: {{format: record, file: {file}{import}}}\n{after}");
    let text = text.replace("[pools.yaml]", &format!("[pools.yaml]{cluster}"));
    write(folder, "scenario.yaml", &text)
}

#[test]
fn a_recording_with_nodes_is_gone_on_with_under_every_policy() {
    let (folder, nodes) = recordings();
    let scenario = scenario(folder.path(), "shop.jsonl", "", "");
    let log = folder.path().join("log.jsonl").display().to_string();
    let told = said(&simulate(&[&scenario, "--events", &log]));
    let expected = format!(" of the recording as of {BEGUN}, and with 12 pods on them\n");
    assert!(
        told.contains("note: every policy begins with ") && told.contains(&expected),
        "{told}"
    );
    let log = fs::read_to_string(log).expect("a log");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for policy in ["now", "never"] {
        let count = |what: &str| {
            let mut own = lines
                .iter()
                .filter(|line| line["policy"] == policy)
                .collect::<Vec<_>>();
            own.retain(|line| line["what"] == what && line["atMs"] == 0);
            own.len()
        };
        assert_eq!((count("standing"), count("placed")), (nodes, 12), "{policy}");
    }
}

#[test]
fn what_really_was_is_beside_the_policies_and_in_the_check() {
    let (folder, nodes) = recordings();
    let scenario = scenario(folder.path(), "shop.jsonl", "", "");
    let check = json_of(&simulate(&[&scenario, "--check", "-o", "json"]));
    let recorded = &check["asRecorded"];
    assert_eq!(recorded["file"], "shop.jsonl");
    assert_eq!(recorded["basis"], "measured, not simulated");
    // Two hours, and half an hour of one more.
    let hours = nodes as f64 * 2.0 + 0.5;
    assert_eq!(recorded["nodeHours"], hours);
    assert_eq!(recorded["meanNodes"], hours / 2.0);
    assert_eq!(recorded["peakNodes"], nodes + 1);
    assert!(
        recorded["cost"].as_f64().is_some_and(|cost| cost > 0.0),
        "{recorded}"
    );
    let answer = json_of(&simulate(&[&scenario, "-o", "json"]));
    assert_eq!(answer["setting"]["asRecorded"], *recorded);
    // Nothing is removed, and nothing has to be launched: what differs is the node that came and went.
    let never = answer["policies"].as_array().expect("policies");
    let never = never
        .iter()
        .find(|policy| policy["name"] == "never")
        .expect("it is simulated");
    let simulated = never["values"]["nodeHours"]["mean"].as_f64().expect("a number");
    assert!((simulated - (hours - 0.5)).abs() < 0.01, "{simulated}");
    let table = String::from_utf8(simulate(&[&scenario]).stdout).expect("text");
    let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        table.contains("As recorded in shop.jsonl (measured, not simulated): $"),
        "{table}"
    );
}

#[test]
fn a_recording_without_nodes_begins_without_nodes_and_tells_of_none() {
    let (folder, _) = recordings();
    let scenario = scenario(folder.path(), "old.jsonl", "", "");
    let output = simulate(&[&scenario, "--check", "-o", "json"]);
    assert!(
        !said(&output).contains("every policy begins with "),
        "{}",
        said(&output)
    );
    assert_eq!(json_of(&output)["asRecorded"], Value::Null);
}

#[test]
fn a_scenario_begins_without_the_nodes_of_its_recording_where_it_says_so() {
    let (folder, _) = recordings();
    let scenario = scenario(folder.path(), "shop.jsonl", "\n    nodes: none", "");
    let output = simulate(&[&scenario, "--check", "-o", "json"]);
    assert!(
        !said(&output).contains("every policy begins with "),
        "{}",
        said(&output)
    );
    assert!(json_of(&output)["asRecorded"].is_object(), "that is as it was");
}

#[test]
fn what_is_not_the_recorded_cluster_is_not_taken_for_it() {
    let (folder, _) = recordings();
    let scaled = "so that no policy begins with the nodes of the recording";
    let not_shown = "what its nodes really cost is not shown beside the policies, because ";
    for (import, expected) in [
        (", copies: 2", vec![scaled, not_shown, "scaled or copied"]),
        (", scaleCpu: 0.5", vec![scaled, not_shown]),
        (", speed: 2", vec![not_shown, "its time runs at another speed"]),
    ] {
        let scenario = scenario(folder.path(), "shop.jsonl", "", import);
        let output = simulate(&[&scenario, "--check", "-o", "json"]);
        let told = said(&output);
        for text in expected {
            assert!(told.contains(text), "{import}: {told}");
        }
        assert_eq!(json_of(&output)["asRecorded"], Value::Null, "{import}");
    }
    let scenario = scenario(folder.path(), "shop.jsonl", "", "");
    let text = fs::read_to_string(&scenario).expect("it is there");
    let longer = write(
        folder.path(),
        "longer.yaml",
        &text.replace("duration: 2h", "duration: 3h"),
    );
    let told = said(&simulate(&[&longer, "--check"]));
    assert!(
        told.contains(not_shown) && told.contains("it is shorter than the scenario"),
        "{told}"
    );
}

#[test]
fn a_key_for_no_hashes_and_hashes_for_a_dump_that_is_only_named_are_refused() {
    let dump = ["simulate", "init", "-f", "dump.yaml", "--hash-names"];
    for (arguments, part) in [
        (&["record", "--hash-key", "key"][..], "--hash-names"),
        (&dump, "cannot be used with"),
    ] {
        let output = program().args(arguments).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(part), "{arguments:?}: {}", said(&output));
    }
}
