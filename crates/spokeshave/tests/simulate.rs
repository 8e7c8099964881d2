//! `spokeshave simulate` as a user runs it: the committed examples, wrong scenario files, logs and reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

mod simulated;
use simulated::{POOLS, json_of, program, text, write};

/// The program as in a wide terminal.
fn wide() -> Command {
    let mut command = program();
    command.env("COLUMNS", "160");
    command
}

fn simulate(arguments: &[&str]) -> Output {
    wide()
        .arg("simulate")
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("examples/simulate").join(name).display().to_string()
}

/// A scenario of a few pods, whose lines the cases below name.
const SCENARIO: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: small}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 6h
  warmup: 30m
  seeds: 2
  cluster:
    manifests: [pools.yaml]
    scheduler: {scoring: LeastAllocated}
  workloads:
  - name: web
    deployments: {count: 3, cpu: [250m, 500m], memory: 512Mi, maxUnavailable: 10%}
    replicas: {low: 2, high: 6, peakAt: \"14:00\", noise: 0.1}
    ready: {median: 8s, p99: 40s}
  - name: nightly
    jobs: {cron: \"0 1 * * *\", count: 10, cpu: 2, memory: 4Gi, runs: {median: 12m, p99: 2h}}
  - name: db
    statefulSets: {count: 1, replicas: 3, cpu: 1, memory: 2Gi, volume: zonal}
  cloud:
    boot: {median: 35s, p99: 90s}
    shortages: [{at: 1h, for: 2h, cheapest: 20}]
  policies:
  - {name: now}
  - name: patient
    merge:
      NodePool:
        spec:
          disruption:
            consolidateAfter: 10m
  baseline: now
  expect:
  - patient.cost <= 2 * now.cost
";

/// A folder with a scenario and its NodePool.
fn folder(scenario: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools.yaml", POOLS);
    let path = write(folder.path(), "scenario.yaml", scenario);
    (folder, PathBuf::from(path))
}

#[test]
fn thirty_wrong_files_are_named_with_line_and_suggestion() {
    let cases: [(&str, &str, &str); 42] = [
        (
            "apiVersion: simulate.spokeshave.dev/v1alpha1",
            "apiVersion: simulate.spokeshave.dev/v2",
            ":1: apiVersion: is \"simulate.spokeshave.dev/v2\"; expected simulate.spokeshave.dev/v1alpha1",
        ),
        (
            "kind: Scenario",
            "kind: Scenaro",
            ":2: kind: \"Scenaro\" is not known here; did you mean \"Scenario\"?",
        ),
        (
            "metadata: {name: small}",
            "metadata: {name: Small Shop}",
            ":3: metadata.name: \"Small Shop\" cannot be part of an object's name",
        ),
        (
            "start: 2026-03-02T00:00:00Z",
            "start: monday",
            ":5: spec.start: \"monday\" is not an instant of 1970 to 2200; expected for example 2026-03-02T00:00:00Z",
        ),
        (
            "  duration: 6h\n",
            "",
            ":4: spec: duration is missing; write for example `duration: 7d`",
        ),
        (
            "duration: 6h",
            "duration: 6",
            ":6: spec.duration: 6 is not valid; expected a duration such as 90s, 1h30m or 10d9h",
        ),
        (
            "duration: 6h",
            "duration: 2y",
            ":6: spec.duration: \"2y\" is not a duration",
        ),
        (
            "duration: 6h",
            "duration: 400d",
            ":6: spec.duration: is more than a year (366d)",
        ),
        (
            "warmup: 30m",
            "warmup: 7h",
            ":7: spec.warmup: is not shorter than duration, which it is part of",
        ),
        (
            "seeds: 2",
            "seeds: 0",
            ":8: spec.seeds: 0 is not valid; expected a whole number from 1 to 10000",
        ),
        (
            "    manifests: [pools.yaml]\n",
            "",
            ":9: spec.cluster: has neither manifests nor snapshot",
        ),
        (
            "scoring: LeastAllocated",
            "scoring: LestAllocated",
            ":11: spec.cluster.scheduler.scoring: \"LestAllocated\" is not known here; did you mean \"LeastAllocated\"?",
        ),
        (
            "workloads:",
            "workload:",
            ":12: spec.workload: unknown field \"workload\"; did you mean \"workloads\"?",
        ),
        (
            "deployments: {count: 3",
            "deploymnets: {count: 3",
            ":14: spec.workloads[0].deploymnets: unknown field \"deploymnets\"; did you mean \"deployments\"?",
        ),
        (
            "cpu: [250m, 500m]",
            "cpu: [250m, 500 m]",
            ":14: spec.workloads[0].deployments.cpu[1]: \"500 m\" is not a quantity",
        ),
        (
            "memory: 512Mi",
            "memory: -512Mi",
            ":14: spec.workloads[0].deployments.memory: \"-512Mi\" is not above 0",
        ),
        (
            ", memory: 512Mi",
            "",
            ":14: spec.workloads[0].deployments: memory is missing; write for example `memory: 512Mi`",
        ),
        (
            "maxUnavailable: 10%",
            "maxUnavailable: 110%",
            ":14: spec.workloads[0].deployments.maxUnavailable: \"110%\" is not valid",
        ),
        (
            "maxUnavailable: 10%",
            "labels: {team: \"a b\"}",
            ":14: spec.workloads[0].deployments.labels: the pods of workload \"web\" would be refused by the API server: Invalid value: \"a b\"",
        ),
        (
            "maxUnavailable: 10%",
            "pod: {tolerations: [{key: team, operator: Exist}]}",
            ":14: spec.workloads[0].deployments.pod.tolerations[0].operator: the pods of workload \"web\" would be refused by the API server: Unsupported value: \"Exist\"",
        ),
        (
            "maxUnavailable: 10%",
            "pod: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: in, values: [ssd]}]}]}}}}",
            "nodeSelectorTerms[0].matchExpressions[0].operator: the pods of workload \"web\" would be refused by the API server: Invalid value: \"in\"",
        ),
        (
            "maxUnavailable: 10%",
            "pod: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotShedule}]}",
            ":14: spec.workloads[0].deployments.pod.topologySpreadConstraints[0].whenUnsatisfiable: the pods of workload \"web\" would be refused by the API server: Unsupported value: \"DoNotShedule\"",
        ),
        (
            "maxUnavailable: 10%",
            "pod: {topologySpreadConstraints: [{maxSkew: 0, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]}",
            ":14: spec.workloads[0].deployments.pod.topologySpreadConstraints[0].maxSkew: the pods of workload \"web\" would be refused by the API server: Invalid value: 0",
        ),
        (
            "maxUnavailable: 10%",
            "pod: {terminationGracePeriodSeconds: -5}",
            ":14: spec.workloads[0].deployments.pod.terminationGracePeriodSeconds: -5 is not valid",
        ),
        (
            "low: 2, high: 6",
            "low: 6, high: 2",
            ":15: spec.workloads[0].replicas: low is 6 and high is 2",
        ),
        (
            "peakAt: \"14:00\"",
            "peakAt: 2pm",
            ":15: spec.workloads[0].replicas.peakAt: \"2pm\" is not valid; expected a time of day in UTC",
        ),
        (
            "noise: 0.1",
            "noise: 10",
            ":15: spec.workloads[0].replicas.noise: 10 is not valid; expected a number from 0 to 1",
        ),
        (
            "{median: 8s, p99: 40s}",
            "{median: 40s, p99: 8s}",
            ":16: spec.workloads[0].ready: p99 is less than median",
        ),
        (
            "cron: \"0 1 * * *\"",
            "cron: \"0 25 * * *\"",
            ":18: spec.workloads[1].jobs.cron: schedule \"0 25 * * *\": hour \"25\" is outside 0 to 23",
        ),
        (
            "cron: \"0 1 * * *\", ",
            "",
            ":18: spec.workloads[1].jobs: does not say when jobs come",
        ),
        (
            ", runs: {median: 12m, p99: 2h}",
            "",
            ":18: spec.workloads[1].jobs: runs is missing",
        ),
        (
            "name: db",
            "name: web",
            ":19: spec.workloads[2]: \"web\" is the name of another workload, too",
        ),
        (
            "volume: zonal",
            "volume: regional",
            ":20: spec.workloads[2].statefulSets.volume: \"regional\" is not known here; expected one of zonal, none",
        ),
        (
            "at: 1h",
            "at: 9h",
            ":23: spec.cloud.shortages[0].at: is after the end of the scenario",
        ),
        (
            "- {name: now}",
            "- {name: patient}",
            ":26: spec.policies[1]: \"patient\" is the name of another policy, too",
        ),
        (
            "      NodePool:\n",
            "      NodePools:\n",
            ":28: spec.policies[1].merge.NodePools: a policy cannot patch \"NodePools\"; did you mean \"NodePool\"?",
        ),
        (
            "      NodePool:\n",
            "      NodePool/spot:\n",
            ":28: spec.policies[1].merge.NodePool/spot: policy \"patient\" patches NodePool \"spot\", and the cluster's are default",
        ),
        (
            "consolidateAfter: 10m",
            "consolidateAfter: ten",
            ":31: spec.policies[1].merge.NodePool.spec.disruption.consolidateAfter: policy \"patient\": NodePool default would be refused by the API server",
        ),
        (
            "consolidateAfter: 10m",
            "consolidatAfter: 10m",
            ":31: spec.policies[1].merge.NodePool.spec.disruption.consolidatAfter: policy \"patient\": NodePool default would be refused by the API server: spec.disruption.consolidatAfter: unknown field",
        ),
        (
            "baseline: now",
            "baseline: nwo",
            ":32: spec.baseline: there is no policy \"nwo\"; did you mean \"now\"?",
        ),
        ("patient.cost <=", "patient.price <=", ":34: spec.expect[0]: "),
        ("  seeds: 2\n", "  seeds: [2\n", "is not valid YAML"),
    ];
    for (from, to, expected) in cases {
        assert!(SCENARIO.contains(from), "{from}");
        let (_folder, path) = folder(&SCENARIO.replacen(from, to, 1));
        let output = simulate(&[&path.display().to_string(), "--check"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{to}: {said}");
        let expected = if expected.starts_with(':') {
            format!("error: {}{expected}", path.display())
        } else {
            expected.to_owned()
        };
        assert!(
            said.contains(&expected),
            "{to}:\nexpected {expected}\nfound {said}"
        );
        assert!(output.stdout.is_empty(), "{to}");
    }
}

/// What an API server takes, a scenario may say: nothing pulls the image of an init container, and which PriorityClasses there are is not said.
#[test]
fn pods_that_an_api_server_would_take_are_taken() {
    let pod = "tolerations: [{key: team, operator: Exists}], priorityClassName: batch, initContainers: [{name: first}]";
    let (_folder, path) = folder(&SCENARIO.replace(
        "maxUnavailable: 10%",
        &format!("spread: zone, labels: {{team: a}}, pod: {{{pod}}}"),
    ));
    let output = simulate(&[&path.display().to_string(), "--check"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn an_empty_file_is_said_to_be_empty() {
    for nothing in ["", "# to be written\n"] {
        let (_folder, path) = folder(nothing);
        let output = simulate(&[&path.display().to_string(), "--check"]);
        let expected = format!(
            "error: {}:1: the file is empty; expected a Scenario\n",
            path.display()
        );
        assert_eq!(text(&output.stderr), expected);
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn what_cannot_be_read_is_no_mistake_of_the_scenario() {
    let (folder, path) = folder(&SCENARIO.replace("pools.yaml", "pool.yaml"));
    let output = simulate(&[&path.display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("pool.yaml"),
        "{}",
        text(&output.stderr)
    );
    let output = simulate(&[&folder.path().join("nothing.yaml").display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_check_counts_without_simulating() {
    let (_folder, path) = folder(SCENARIO);
    let output = simulate(&[&path.display().to_string(), "--check", "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let check = json_of(&output);
    assert_eq!(check["kind"], "Check");
    assert_eq!(
        (&check["deployments"], &check["statefulSets"], &check["jobs"]),
        (&3.into(), &1.into(), &1.into())
    );
    assert_eq!(check["runs"], 4);
    let table = text(&simulate(&[&path.display().to_string(), "--check"]).stdout);
    for expected in [
        "pods a day",
        "peak cores",
        "6 hours from 2026-03-02T00:00:00Z, of which the first 30 minutes are warm-up and not counted",
        "events",
        "patient.cost <= 2 * now.cost",
    ] {
        assert!(table.contains(expected), "{table}");
    }
    let output = simulate(&[&path.display().to_string(), "--check", "--policy", "patent"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("its policies are now, patient"),
        "{}",
        text(&output.stderr)
    );
}

/// A policy that is a model of another product is called one before anything is run, too; one that removes nothing is none.
#[test]
fn a_check_names_models_of_other_products() {
    let policies = "  - {name: kb, model: karpenter-balanced}\n  - {name: ca, model: cluster-autoscaler}\n  - {name: never, model: none}\n  baseline: now\n";
    let (_folder, path) = folder(&SCENARIO.replace("  baseline: now\n", policies));
    let path = path.display().to_string();
    let table = text(&simulate(&[&path, "--check"]).stdout);
    let expected = "ca: cluster-autoscaler, kb: karpenter-balanced (documented behaviour, not the products)";
    assert!(table.contains(expected), "{table}");
    let output = simulate(&[&path, "--check", "--policy", "kb", "-o", "json"]);
    let check = json_of(&output);
    assert_eq!(check["models"], serde_json::json!({"kb": "karpenter-balanced"}));
    let output = simulate(&[&path, "--check", "--policy", "never", "-o", "json"]);
    let check = json_of(&output);
    assert_eq!(check["models"], Value::Null, "{check}");
}

#[test]
fn every_example_is_valid() {
    for name in ["quick.yaml", "week.yaml", "night.yaml", "month.yaml"] {
        let output = simulate(&[&example(name), "--check"]);
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    }
}

/// An hour and a half of it, in a separate directory.
fn short() -> (tempfile::TempDir, String) {
    let scenario = SCENARIO
        .replace("duration: 6h", "duration: 90m")
        .replace("warmup: 30m", "warmup: 10m");
    let (folder, path) = folder(&scenario);
    let path = path.display().to_string();
    (folder, path)
}

#[test]
fn the_event_log_has_every_run_in_order_whatever_ends_first() {
    let (folder, scenario) = short();
    let mut logs = Vec::new();
    for jobs in ["1", "3"] {
        let path = folder.path().join(format!("{jobs}.jsonl"));
        let file = path.display().to_string();
        let output = simulate(&[&scenario, "--jobs", jobs, "--events", &file]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        logs.push(fs::read_to_string(path).expect("the log"));
    }
    assert_eq!(logs[0], logs[1]);
    let lines: Vec<Value> = logs[0]
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let mut runs: Vec<(u64, String)> = Vec::new();
    let mut last_ms = 0;
    for line in &lines {
        let run = (
            line["seed"].as_u64().expect("a seed"),
            line["policy"].as_str().expect("a policy").to_owned(),
        );
        let at_ms = line["atMs"].as_u64().expect("a time");
        if runs.last() != Some(&run) {
            runs.push(run);
            last_ms = 0;
        }
        assert!(at_ms >= last_ms, "time goes on within a run: {line}");
        last_ms = at_ms;
    }
    let expected = [(1, "now"), (1, "patient"), (2, "now"), (2, "patient")];
    let expected = expected.map(|(seed, policy)| (seed, policy.to_owned()));
    assert_eq!(runs, expected);
    assert!(
        lines
            .iter()
            .any(|line| line["what"] == "bound" && line["of"] != "")
    );
    let left: Vec<_> = fs::read_dir(folder.path())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name.to_string_lossy().ends_with(".part"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_snapshot_is_a_dump_for_plan_and_explain_and_a_trace_has_bars_and_curves() {
    let (folder, scenario) = short();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (dump, trace) = (file("then.json"), file("trace.json"));
    let arguments = [
        scenario.as_str(),
        "--seeds",
        "1",
        "--snapshot-at",
        "1h",
        "--snapshot",
        &dump,
        "--perfetto",
        &trace,
        "-o",
        "json",
    ];
    let watched = simulate(&arguments);
    assert!(watched.status.success(), "{}", text(&watched.stderr));
    let alone = simulate(&[&scenario, "--seeds", "1", "-o", "json"]);
    // All but the last section, of which processor time is a part.
    let figures = |output: &Output| {
        let all = text(&output.stdout);
        let (before, _) = all.split_once("\n  \"took\": [").expect("the section");
        before.to_owned()
    };
    assert_eq!(figures(&watched), figures(&alone), "it is the same simulation");
    let list: Value = serde_json::from_str(&fs::read_to_string(&dump).expect("a dump")).expect("JSON");
    let node = list["items"]
        .as_array()
        .expect("items")
        .iter()
        .find(|item| item["kind"] == "Node")
        .and_then(|node| node["metadata"]["name"].as_str())
        .expect("a Node")
        .to_owned();
    let asked = |arguments: &[&str]| {
        let output = wide().args(arguments).output().expect("the program runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    // An hour after the scenario's start.
    let now = "2026-03-02T01:00:00Z";
    let plan = asked(&["plan", "-f", &dump, "--now", now, "-o", "json"]);
    let plan: Value = serde_json::from_str(&plan).expect("JSON");
    assert!(plan.is_object());
    let explained = asked(&["explain", "node", &node, "-f", &dump, "--now", now]);
    assert!(explained.contains(&node), "{explained}");
    let trace: Value = serde_json::from_str(&fs::read_to_string(&trace).expect("a trace")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let kinds: std::collections::BTreeSet<&str> =
        events.iter().filter_map(|event| event["ph"].as_str()).collect();
    assert_eq!(kinds, ["C", "X"].into());
}

#[test]
fn a_snapshot_after_the_end_and_files_that_cannot_be_written_are_named() {
    let (folder, scenario) = short();
    let file = folder.path().join("then.json").display().to_string();
    let output = simulate(&[&scenario, "--snapshot-at", "2h", "--snapshot", &file]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains(
            "--snapshot-at 2h: the scenario ends after 1h30m; expected no later time, such as 1h30m"
        ),
        "{said}"
    );
    // A scenario says itself how long it lasts.
    let output = simulate(&[&scenario, "--for", "1d", "--check"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot be used with"));
    let output = simulate(&[&scenario, "--snapshot-at", "1h"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--snapshot <FILE>"));
    let nowhere = folder.path().join("nowhere/log.jsonl").display().to_string();
    for option in ["--events", "--perfetto"] {
        let output = simulate(&[&scenario, "--seeds", "1", "--policy", "now", option, &nowhere]);
        assert_eq!(output.status.code(), Some(1), "{option}");
        let said = text(&output.stderr);
        assert!(
            said.contains("cannot write") && said.contains("nowhere"),
            "{said}"
        );
    }
}

/// A policy brings NodePools and DisruptionPolicies; what it cannot bring is refused, not left out.
#[test]
fn manifests_of_a_policy_that_it_cannot_bring_are_refused() {
    let scenario = SCENARIO.replace(
        "  - {name: now}\n",
        "  - {name: now, manifests: [overlay.yaml]}\n",
    );
    let (folder, path) = folder(&scenario);
    let overlay = "\
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: discount}
spec: {requirements: [], priceAdjustment: \"-30%\"}
";
    write(folder.path(), "overlay.yaml", overlay);
    let answer = simulate(&[&path.display().to_string()]);
    let said = text(&answer.stderr);
    assert_eq!(answer.status.code(), Some(2), "{said}");
    assert!(
        said.contains("policy \"now\": its manifests hold a NodeOverlay"),
        "{said}"
    );
}

/// A report that cannot be written is named before anything is simulated.
#[test]
fn a_report_that_cannot_be_written_costs_no_simulation() {
    let (folder, path) = short();
    let report = folder.path().join("nowhere/report.html");
    let answer = simulate(&[&path, "--report", &report.display().to_string()]);
    let said = text(&answer.stderr);
    assert!(!answer.status.success(), "{said}");
    assert!(
        said.contains("cannot write") && said.contains("report.html"),
        "{said}"
    );
    assert!(text(&answer.stdout).is_empty(), "nothing was simulated");
}
