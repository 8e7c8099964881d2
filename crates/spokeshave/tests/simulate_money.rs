//! What a simulated cluster costs, told by the log, the view and the table alike; and what an edited policy makes of it, from `simulate init` on.

use std::collections::BTreeMap;
use std::fs;
use std::process::Output;

use serde_json::Value;

mod simulated;
use simulated::{POOLS, json_of, program, text, write};

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

fn answer(arguments: &[&str]) -> Output {
    let mut command = program();
    let output = command.args(arguments).output().expect("the program runs");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    output
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
    write(folder.path(), "pools.yaml", POOLS);
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
        let view = json_of(&answer(&[
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
    let found = json_of(&answer(&["simulate", scenario, "-o", "json"]));
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
    let dump = write(folder.path(), "shop.yaml", &[POOLS, workload].concat());
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

/// Jobs that come to little, and one pod that is nearly the whole bill: the second policy has no room for it. It has waited since the warm-up, so that no
/// percentile shows it.
#[test]
fn a_policy_that_leaves_a_pod_out_is_never_called_cheaper() {
    let scenario = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: left-out}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 1h
  warmup: 15m
  seeds: 5
  cluster: {manifests: [pools.yaml]}
  workloads:
  - name: jobs
    jobs: {perDay: 1440, cpu: 250m, memory: 256Mi, runs: 3m}
  - name: big
    deployments: {count: 1, cpu: 60, memory: 64Gi}
    replicas: 1
  cloud: {boot: 20s}
  policies:
  - {name: now}
  - {name: limited, merge: {NodePool: {spec: {limits: {cpu: 16}}}}}
  expect: ['limited.cost <= 1.0 * now.cost', 'limited.nodeHours < 1000']
";
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools.yaml", POOLS);
    let scenario = write(folder.path(), "scenario.yaml", scenario);
    let report = folder.path().join("report.html").display().to_string();
    let mut command = program();
    command
        .args(["simulate", &scenario, "--report", &report])
        .env("COLUMNS", "80");
    let output = command.output().expect("the program runs");
    let (said, table) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{said}{table}");
    assert!(
        said.contains("under limited no NodePool takes the pods of default/big"),
        "{said}"
    );
    let table: String = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "pods left out, −",
        "limited: 1 pod a run was left without a node, none under now:",
        "expect: 0 of 2 hold.",
        "limited left pods without a node that had one under now)",
    ] {
        assert!(table.contains(expected), "expected {expected}\nfound {table}");
    }
    assert!(!table.contains("cheaper"), "{table}");
    let report = fs::read_to_string(report).expect("the report");
    assert!(report.contains("<strong>leaves pods without a node</strong> that had one under now"));
    assert!(report.contains("no saving") && !report.contains("<strong>cheaper</strong>"));
}

/// The hourly jobs come and go between two full hours, and the last point is half as long as the others.
#[test]
fn the_curve_adds_up_to_the_bill() {
    let jobs = "  workloads:
  - name: hourly
    jobs: {cron: \"10 * * * *\", count: 30, cpu: 1, memory: 1Gi, runs: 15m}
  policies:
  - {name: now}
  - {name: slow, merge: {NodePool: {spec: {disruption: {consolidateAfter: 15m}}}}}
";
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools.yaml", POOLS);
    let head = HEAD
        .replace("duration: 12h", "duration: 5h1m")
        .replace("  warmup: 10m\n", "");
    let scenario = write(folder.path(), "scenario.yaml", &[head.as_str(), jobs].concat());
    let found = json_of(&answer(&["simulate", &scenario, "-o", "json"]));
    for policy in found["policies"].as_array().expect("policies") {
        let curve = &policy["curve"];
        let length = |name: &str| curve[name].as_u64().expect("milliseconds");
        let (step_ms, last_ms) = (length("stepMs"), length("lastMs"));
        assert_eq!((step_ms, last_ms), (120_000, 60_000));
        let sum = |name: &str| {
            let points = curve[name].as_array().expect("points");
            assert_eq!(points.len(), 151);
            let points = points.iter().map(|point| point.as_f64().expect("a number"));
            let lengths = (1..=points.len()).map(|at| if at == 151 { last_ms } else { step_ms });
            points
                .zip(lengths)
                .map(|(point, length)| point * length as f64 / 3_600_000.0)
                .sum::<f64>()
        };
        for (curve, figure) in [
            ("costPerHour", "cost"),
            ("boundPerHour", "bound"),
            ("nodes", "nodeHours"),
        ] {
            let expected = policy["values"][figure]["mean"].as_f64().expect("a figure");
            // Each point is rounded to four digits after the point, and thousandths of nodes are rounded down.
            let close = if curve == "nodes" { 0.006 } else { 0.000_3 };
            assert!(
                expected > 0.1 && (sum(curve) - expected).abs() < close,
                "{curve}: {} of {expected}",
                sum(curve)
            );
        }
    }
    let cost = |policy: usize| found["policies"][policy]["values"]["cost"]["mean"].as_f64();
    assert!(
        cost(1) > cost(0).map(|cost| 1.1 * cost),
        "nodes that stay longer cost more"
    );
}

/// A discount of a half on everything changes no decision by much, and halves the bill.
#[test]
fn p_187_overlays_of_the_manifests_are_in_the_bill() {
    let overlay = "\
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: half}
spec:
  requirements:
  - {key: karpenter.sh/capacity-type, operator: Exists}
  priceAdjustment: \"-50%\"
";
    let cost = |pools: &str| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        write(folder.path(), "pools.yaml", pools);
        let head = HEAD.replace("duration: 12h", "duration: 3h");
        let scenario = write(
            folder.path(),
            "scenario.yaml",
            &[head.as_str(), WAVES, REST].concat(),
        );
        lived(&scenario)["now"].0
    };
    let (plain, half) = (cost(POOLS), cost(&[POOLS, overlay].concat()));
    assert!((0.45..0.55).contains(&(half / plain)), "{half} of {plain}");
}

/// As most clusters have them: pods of a managed node group, a NodePool whose class is not ready yet, one of a fixed size, and a buffer.
#[test]
fn what_a_dump_has_and_no_figure_shows_is_said() {
    let rest = "\
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: cold}
spec: {template: {spec: {nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}, requirements: []}}}
status: {conditions: [{type: Ready, status: 'False', reason: NodeClassNotReady, message: '', lastTransitionTime: '2026-03-01T00:00:00Z'}]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: fixed}
spec: {replicas: 3, template: {spec: {nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}, requirements: []}}}
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare, namespace: shop}
spec: {scalableRef: {apiGroup: apps, kind: Deployment, name: web}, replicas: 2}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: web, resources: {requests: {cpu: 500m, memory: 256Mi}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  replicas: 2
  selector: {matchLabels: {app: dns}}
  template:
    metadata: {labels: {app: dns}}
    spec:
      nodeSelector: {example.com/nodegroup: system}
      containers: [{name: main, image: dns, resources: {requests: {cpu: 100m, memory: 70Mi}}}]
";
    let policies = "    snapshot: dump.yaml
  policies:
  - {name: now}
  - {name: calm, settings: {batchIdleDuration: 2s, consolidationRounds: false}}
  - {name: never, model: none}
";
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "dump.yaml", &[POOLS, rest].concat());
    let head = HEAD
        .replace("duration: 12h", "duration: 1h")
        .replace("warmup: 10m", "warmup: 30m")
        .replace("    manifests: [pools.yaml]\n", "");
    let scenario = write(
        folder.path(),
        "scenario.yaml",
        &[head.as_str(), policies].concat(),
    );
    let output = answer(&["simulate", &scenario, "-o", "json"]);
    let said = text(&output.stderr);
    let found = json_of(&output);
    let notes = found["setting"]["notes"].as_array().expect("notes").iter();
    let notes: Vec<&str> = notes.filter_map(Value::as_str).collect();
    for expected in [
        "NodePool cold is not Ready in the dump (NodeClassNotReady): taken as ready",
        "NodePool fixed is static (spec.replicas): its 3 nodes are launched whatever pods wait, as with the feature gate StaticCapacity on",
        "a simulation keeps no room for CapacityBuffers, as with the feature gate CapacityBuffer off: the nodes that shop/spare would keep are in no cost",
        "no NodePool takes the pods of kube-system/coredns (2 pods), which wait as long as they are there: ",
    ] {
        assert_eq!(
            notes.iter().filter(|note| note.starts_with(expected)).count(),
            1,
            "{expected}\n{notes:?}"
        );
        assert_eq!(said.matches(expected).count(), 1, "{expected}\n{said}");
    }
    assert!(!said.contains("keeps room"), "{said}");
    for policy in found["policies"].as_array().expect("policies") {
        let values = &policy["values"];
        assert_eq!(values["unplaced"]["mean"], 2.0, "{policy}");
        // The three of the static NodePool, for the half hour that is counted, whatever else is launched.
        assert!(values["nodeHours"]["mean"].as_f64() >= Some(1.5), "{policy}");
        // All others had a node before the figures begin.
        assert!(values.get("pendingP50").is_none(), "{policy}");
        assert_eq!(
            (&policy["leftOut"], &policy["work"]),
            (&Value::from(2.0), &Value::from("same"))
        );
    }
    let summaries = found["setting"]["policies"].as_array().expect("policies").iter();
    let summaries: Vec<Option<&str>> = summaries.map(|policy| policy["summary"].as_str()).collect();
    assert_eq!(
        summaries,
        [
            None,
            Some("consolidationRounds: false, batchIdleDuration: 2s"),
            Some("nothing is removed voluntarily")
        ]
    );
}
