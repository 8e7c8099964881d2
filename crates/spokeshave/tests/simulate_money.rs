//! What a simulated cluster costs, told by the log, the view and the table alike; and what an edited policy makes of it, from `simulate init` on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const POOL: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: []
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 1m}
";

/// Deployments that come and go, so that there is something to consolidate.
const WAVES: &str = "  workloads:
  - name: web
    deployments: {count: 4, cpu: [250m, 1500m], memory: 512Mi}
    replicas: {low: 2, high: 16, peakAt: \"06:00\"}
    ready: 8s
";

/// Jobs, and the rest of a scenario.
const REST: &str = "  - name: work
    jobs: {cron: \"30 2,5 * * *\", count: 10, cpu: 1, memory: 1Gi, runs: 2h}
    ready: 8s
  cloud: {boot: 40s}
  policies:
  - {name: now}
  baseline: now
";

const HEAD: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: money}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 12h
  warmup: 10m
  seeds: 1
  cluster:
    manifests: [pools.yaml]
";

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn answer(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spokeshave"));
    let output = command.args(arguments).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Dollars an hour to the nano-dollar.
fn nanos(dollars: f64) -> i64 {
    (dollars * 1e9).round() as i64
}

/// Nodes that a log has launched and not ended by a time, and what they cost together.
fn running(log: &str, until_ms: u64) -> (usize, i64) {
    let mut prices = BTreeMap::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        if line["atMs"].as_u64().expect("a time") > until_ms {
            continue;
        }
        let name = line["of"].as_str().expect("a name").to_owned();
        match line["what"].as_str().expect("a word") {
            "launched" => {
                // Type, capacity type, price, zone.
                let more = line["more"].as_str().expect("what it is");
                let price = more.split(' ').nth(2).expect("a price");
                prices.insert(name, nanos(price.parse().expect("a number")));
            }
            "ended" => {
                prices.remove(&name);
            }
            _ => {}
        }
    }
    (prices.len(), prices.into_values().sum())
}

/// The dollars an hour of a view are the sum over what runs at that time: neither what has ended nor what is only asked for.
#[test]
fn the_view_of_a_simulated_cluster_costs_what_its_instances_cost() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools.yaml", POOL);
    let text = [HEAD, WAVES, REST].concat();
    let scenario = write(folder.path(), "scenario.yaml", &text);
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (log, then) = (place("log.jsonl"), place("then.json"));
    let (mut launched, mut sums) = (0, Vec::new());
    for (at, clock, minutes) in [
        ("20m", "00:20", 20),
        ("187m", "03:07", 187),
        ("370m", "06:10", 370),
        ("584m", "09:44", 584),
        ("719m", "11:59", 719),
    ] {
        let snapshot = ["--snapshot-at", at, "--snapshot", &then, "--events", &log];
        answer(&[&["simulate", &scenario][..], &snapshot].concat());
        let now = format!("2026-03-02T{clock}:00Z");
        let view = json(&answer(&[
            "top", "--once", "-o", "json", "-f", &then, "--now", &now,
        ]));
        let header = &view["header"];
        let said = (
            header["nodes"].as_u64().expect("a count") as usize,
            nanos(header["price"].as_f64().expect("a price")),
        );
        let log = fs::read_to_string(&log).expect("the log");
        let (nodes, price) = running(&log, minutes * 60_000);
        assert_eq!(said, (nodes, price), "at {at}");
        launched = log.matches("\"what\":\"launched\"").count();
        sums.push(price);
    }
    sums.sort_unstable();
    sums.dedup();
    // Nodes come and go, or a sum over all that were ever launched would do.
    assert!(sums.len() > 2 && sums[0] > 0, "{sums:?}");
    assert!(launched > 10, "{launched}");
}

/// The figures of the runs of a scenario file, by policy: cost, evictions per pod and day, and the digest of what happened.
fn lived(scenario: &str) -> BTreeMap<String, (f64, f64, Value)> {
    let found = json(&answer(&["simulate", scenario, "-o", "json"]));
    let runs = found["runs"].as_array().expect("runs").iter();
    let figures = runs.map(|run| {
        let value = |name: &str| run["values"][name].as_f64().expect("a figure");
        let policy = run["policy"].as_str().expect("a name").to_owned();
        let figures = (value("cost"), value("evictionsPerPodDay"), run["digest"].clone());
        (policy, figures)
    });
    figures.collect()
}

/// What a new user does: writes the file, edits a policy, and reads what that makes of it.
#[test]
fn what_init_writes_is_lived_and_an_edited_policy_makes_a_difference() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let workload = "\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec: {containers: [{name: main, image: api, resources: {requests: {cpu: 500m, memory: 256Mi}}}]}
";
    let dump = write(folder.path(), "shop.yaml", &[POOL, workload].concat());
    let written = answer(&["simulate", "init", "-f", &dump]);
    let mut text = String::from_utf8(written.stdout).expect("UTF-8");
    // Half a day of a workload that comes and goes, instead of a week in which nothing does.
    let start = text
        .lines()
        .find(|line| line.starts_with("  start: "))
        .expect("a start");
    let (start, waves) = (start.to_owned(), format!("{WAVES}  cloud:\n"));
    for (from, to) in [
        (start.as_str(), "  start: 2026-03-02T00:00:00Z"),
        ("duration: 7d", "duration: 12h"),
        ("warmup: 6h", "warmup: 10m"),
        ("seeds: 5", "seeds: 1"),
        ("  cloud:\n", waves.as_str()),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from}: {text}");
        text = text.replace(from, to);
    }
    let scenario = write(folder.path(), "scenario.yaml", &text);
    let before = lived(&scenario);
    let edited = text.replace("consolidateAfter: 30m", "consolidateAfter: 6h");
    assert_ne!(edited, text);
    let after = lived(&write(folder.path(), "scenario.yaml", &edited));
    for policy in ["now", "never"] {
        assert_eq!(before[policy], after[policy], "nobody has edited {policy}");
    }
    let (cost, evictions, _) = &before["patient"];
    assert!(before["now"].1 > *evictions && *evictions > 0.0, "{before:?}");
    assert!(before["now"].0 < *cost, "{before:?}");
    let (cost_then, evictions_then, _) = &after["patient"];
    assert!(evictions_then < evictions && cost_then > cost, "{after:?}");
}
