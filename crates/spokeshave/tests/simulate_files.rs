//! The files of `spokeshave simulate`: manifests that are wrong, outputs that would write over something, several dumps to begin with.

use std::fs;
use std::path::Path;
use std::process::Output;

mod simulated;
use simulated::{POOLS, json_of, program, text, write};

const SCENARIO: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: files}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 1h
  cluster:
    manifests: [pools.yaml, more.yaml]
  workloads:
  - name: web
    deployments: {count: 2, cpu: 250m, memory: 512Mi}
    replicas: 2
  policies:
  - {name: now}
  - {name: other, manifests: [own.yaml]}
";

const BUDGET: &str = "\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {app: web}
";

const DAEMON_SET: &str = "\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers:
      - name: main
        resources: {requests: {cpu: 100m}}
";

const POLICY: &str = "\
apiVersion: spokeshave.dev/v1alpha1
kind: DisruptionPolicy
metadata: {name: converge}
spec:
  convergence: {}
";

/// A folder with the scenario and what it names.
fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools.yaml", POOLS);
    write(folder.path(), "more.yaml", BUDGET);
    write(folder.path(), "own.yaml", POLICY);
    let scenario = write(folder.path(), "scenario.yaml", SCENARIO);
    (folder, scenario)
}

fn simulate(arguments: &[&str]) -> Output {
    let mut command = program();
    command.arg("simulate").args(arguments).env("COLUMNS", "160");
    command.output().expect("the program runs")
}

/// What `--check` says of a scenario one of whose files has this text, which it refuses as a mistake of the scenario.
fn refusal(name: &str, manifest: &str) -> (String, String) {
    let (folder, scenario) = folder();
    let path = write(folder.path(), name, manifest);
    let output = simulate(&[&scenario, "--check"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{manifest}: {said}");
    assert!(output.stdout.is_empty(), "{manifest}");
    (said, path)
}

#[test]
fn manifests_that_an_api_server_would_refuse_are_named_with_line_and_what_was_expected() {
    for manifest in [BUDGET, DAEMON_SET] {
        let (folder, scenario) = folder();
        write(folder.path(), "more.yaml", manifest);
        let output = simulate(&[&scenario, "--check"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let refused = "would be refused by the API server:";
    for (manifest, from, to, expected) in [
        (
            POOLS,
            "consolidateAfter: 1m",
            "consolidateAfter: soon",
            format!(":9: NodePool default {refused} spec.disruption.consolidateAfter"),
        ),
        (
            BUDGET,
            "maxUnavailable: 1\n",
            "maxUnavailable: 110%\n",
            format!(
                ":5: PodDisruptionBudget web {refused} spec.maxUnavailable: \"110%\" is not valid; expected a number of pods, or a percentage from 0% to 100%"
            ),
        ),
        (
            BUDGET,
            "maxUnavailable: 1\n",
            "maxUnavailable: -1\n",
            format!(":5: PodDisruptionBudget web {refused} spec.maxUnavailable: -1 is not valid"),
        ),
        (
            BUDGET,
            "maxUnavailable: 1\n",
            "maxUnavailable: 1\n  minAvailable: 1\n",
            format!(
                ":6: PodDisruptionBudget web {refused} spec.minAvailable: is set beside maxUnavailable; expected one of the two"
            ),
        ),
        (
            BUDGET,
            "matchLabels: {app: web}",
            "matchExpressions: [{key: app, operator: Is, values: [web]}]",
            format!(
                ":7: PodDisruptionBudget web {refused} spec.selector.matchExpressions[0]: operator \"Is\" is not known; expected one of In"
            ),
        ),
        (
            BUDGET,
            "maxUnavailable",
            "maxUnavailble",
            format!(":5: PodDisruptionBudget web {refused} spec.maxUnavailble: unknown field"),
        ),
        (
            BUDGET,
            "maxUnavailable: 1",
            "maxUnavailable: [1]",
            ":5: PodDisruptionBudget web cannot be read: ".to_owned(),
        ),
        (
            DAEMON_SET,
            "labels: {app: agent}",
            "labels: {app: agnt}",
            format!(
                ":7: DaemonSet kube-system/agent {refused} spec.template.metadata.labels: spec.selector does not select them"
            ),
        ),
        (
            DAEMON_SET,
            "  selector: {matchLabels: {app: agent}}\n",
            "",
            format!(":4: DaemonSet kube-system/agent {refused} spec.selector: is missing or empty"),
        ),
        (
            DAEMON_SET,
            "cpu: 100m",
            "cpu: much",
            format!(
                ":11: DaemonSet kube-system/agent {refused} spec.template.spec.containers[0].resources.requests.cpu: \"much\" is not valid; expected a quantity from 0 on"
            ),
        ),
        (
            DAEMON_SET,
            "containers:",
            "container:",
            format!(":9: DaemonSet kube-system/agent {refused} spec.template.spec.container: unknown field"),
        ),
    ] {
        assert!(manifest.contains(from), "{from}");
        let (said, path) = refusal("more.yaml", &manifest.replacen(from, to, 1));
        let expected = format!("error: {path}{expected}");
        assert!(said.contains(&expected), "expected {expected}\nfound {said}");
    }
}

#[test]
fn an_object_that_is_twice_in_the_manifests_is_refused() {
    for (kind, twice) in [
        ("NodePool default", POOLS.to_owned()),
        ("PodDisruptionBudget web", format!("{BUDGET}---\n{BUDGET}")),
    ] {
        let (said, path) = refusal("more.yaml", &twice);
        assert!(said.contains(&format!("{kind} is also at ")), "{said}");
        assert!(said.contains(&path), "{said}");
        assert!(
            said.contains("expected one object of each name: leave one out or rename it"),
            "{said}"
        );
    }
}

/// What a policy brings is judged as well, and may have the name of something in the cluster's manifests, which it replaces.
#[test]
fn manifests_of_a_policy_are_judged_as_they_were_written() {
    let misspelt = POLICY.replace("convergence", "convergense");
    let (said, path) = refusal("own.yaml", &misspelt);
    let expected = format!(
        "error: {path}:5: DisruptionPolicy converge would be refused by the API server: spec.convergense"
    );
    assert!(said.contains(&expected), "expected {expected}\nfound {said}");
    let (folder, scenario) = folder();
    write(folder.path(), "own.yaml", POOLS);
    let output = simulate(&[&scenario, "--check"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn no_output_is_written_over_an_input_or_another_output() {
    let (folder, scenario) = folder();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (pools, fresh) = (place("pools.yaml"), place("fresh.html"));
    // The same file by another way.
    let roundabout = place("./pools.yaml");
    for (arguments, expected) in [
        (
            ["--report", &scenario, "--events", &fresh],
            format!(
                "--report {scenario}: this is the scenario, which would be written over; expected another file"
            ),
        ),
        (
            ["--report", &fresh, "--events", &roundabout],
            format!("--events {roundabout}: this is a manifest of the scenario, which would be written over"),
        ),
        (
            ["--report", &fresh, "--perfetto", &fresh],
            format!("--perfetto {fresh}: --report is written to this file; expected another one"),
        ),
    ] {
        let mut all = vec![scenario.as_str()];
        all.extend(arguments);
        let output = simulate(&all);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&expected), "expected {expected}\nfound {said}");
        assert!(output.stdout.is_empty(), "nothing was simulated");
    }
    assert_eq!(fs::read_to_string(&scenario).expect("still there"), SCENARIO);
    assert_eq!(fs::read_to_string(pools).expect("still there"), POOLS);
    assert!(!Path::new(&fresh).exists());
}

/// A scenario of forty small pods, and a policy that launches with another class.
fn with_class(class: &str) -> String {
    let merge =
        format!("merge: {{NodePool: {{spec: {{template: {{spec: {{nodeClassRef: {{name: {class}}}}}}}}}}}}}");
    let other = format!("{{name: other, {merge}}}");
    SCENARIO
        .replace("{name: other, manifests: [own.yaml]}", &other)
        .replace("replicas: 2", "replicas: 40")
        .replace("count: 2, cpu: 250m", "count: 1, cpu: 100m")
        .replace("duration: 1h", "duration: 1h\n  seeds: 1")
}

/// Two EC2NodeClasses, of which the smaller one has room for two pods on a node.
fn classes() -> String {
    let class = |name: &str, more: &str| {
        format!(
            "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: {name}}}\nspec: {{amiSelectorTerms: [{{alias: al2023@latest}}]{more}}}\n"
        )
    };
    class("large", "") + &class("small", ", kubelet: {maxPods: 2}")
}

fn pools_of(class: &str) -> String {
    let reference = format!("{{group: karpenter.k8s.aws, kind: EC2NodeClass, name: {class}}}");
    POOLS.replace(
        "{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}",
        &reference,
    )
}

#[test]
fn a_policy_with_another_node_class_launches_what_that_class_makes_of_the_types() {
    let (folder, _) = folder();
    write(folder.path(), "pools.yaml", &pools_of("large"));
    write(folder.path(), "more.yaml", &classes());
    let scenario = write(folder.path(), "scenario.yaml", &with_class("small"));
    let output = simulate(&[&scenario, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = json_of(&output);
    let nodes: Vec<u64> = found["runs"]
        .as_array()
        .expect("runs")
        .iter()
        .map(|run| run["values"]["peakNodes"].as_f64().expect("a number") as u64)
        .collect();
    assert!(
        nodes[0] < 20 && nodes[1] >= 20,
        "forty pods, two on a node: {nodes:?}"
    );
}

#[test]
fn a_node_class_that_no_file_has_is_refused_with_line_and_the_known_ones() {
    let (folder, _) = folder();
    write(folder.path(), "more.yaml", &classes());
    let known = "which no file has, or which could not be read; expected one of \"large\", \"small\"";
    let pools = write(folder.path(), "pools.yaml", &pools_of("large"));
    let scenario = write(folder.path(), "scenario.yaml", &with_class("nowhere"));
    let patched = format!(
        "{scenario}:16: spec.policies[1].merge.NodePool.spec.template.spec.nodeClassRef: policy \"other\": NodePool default refers to EC2NodeClass \"nowhere\", {known}"
    );
    let written =
        format!("{pools}:7: policy \"now\": NodePool default refers to EC2NodeClass \"gone\", {known}");
    for (class, expected) in [("large", patched), ("gone", written)] {
        write(folder.path(), "pools.yaml", &pools_of(class));
        let output = simulate(&[&scenario, "--check"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&expected), "expected {expected}\nfound {said}");
    }
}

/// What a policy's NodeClass was taken for is said as what the cluster's was, once for all policies.
#[test]
fn what_is_assumed_of_a_policys_node_class_is_noted() {
    let (folder, _) = folder();
    write(folder.path(), "pools.yaml", &pools_of("large"));
    let scenario = write(folder.path(), "scenario.yaml", &with_class("other"));
    let status = "status: {conditions: [{type: Ready, status: 'False', reason: Cold, message: '', lastTransitionTime: '2026-03-01T00:00:00Z'}]}\n";
    let other = classes().replace("name: small", "name: other") + status;
    for (more, note) in [
        (
            BUDGET,
            "note: no EC2NodeClass is in the dump (other): taken as AL2023",
        ),
        (
            other.as_str(),
            "note: NodePool default refers to EC2NodeClass \"other\", which is not ready: taken as ready",
        ),
    ] {
        write(folder.path(), "more.yaml", more);
        let output = simulate(&[&scenario, "--check"]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.matches(note).count(), 1, "expected {note}\nfound {said}");
    }
}

/// Workloads of manifests do not run, which is said once, whoever made the others.
#[test]
fn workloads_among_the_manifests_are_noted() {
    let deployment = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: side, namespace: shop}
spec: {replicas: 50, selector: {matchLabels: {app: side}}, template: {metadata: {labels: {app: side}}, spec: {containers: [{name: main}]}}}
";
    let made = "\
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: side-1, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: side, uid: u, controller: true}]}
spec: {selector: {matchLabels: {app: side}}}
";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: alone}\nspec: {containers: [{name: main}]}\n";
    let (folder, scenario) = folder();
    for (text_of_more, named) in [
        (BUDGET.to_owned(), ""),
        (format!("{BUDGET}---\n{deployment}---\n{made}"), " is left out"),
        (
            format!("{BUDGET}---\n{deployment}---\n{made}---\n{pod}"),
            " and 1 other are left out",
        ),
    ] {
        let path = write(folder.path(), "more.yaml", &text_of_more);
        let output = simulate(&[&scenario, "--check"]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        let expected =
            format!("note: {path}:11: Deployment shop/side{named}: `manifests` set up the cluster");
        assert_eq!(said.contains(&expected), !named.is_empty(), "{expected}\n{said}");
        assert_eq!(said.contains("left out"), !named.is_empty(), "{said}");
    }
}

/// Nobody has named a scenario, so that no message begins with its place.
#[test]
fn without_a_scenario_file_a_missing_node_pool_is_said_of_the_dump() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dump = write(folder.path(), "old.yaml", BUDGET);
    let output = simulate(&["-f", &dump, "--for", "1h"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let expected = format!("error: there is no NodePool in {dump}, so that no pod could ever run");
    assert!(said.contains(&expected), "expected {expected}\nfound {said}");
}

/// A recorder that is started again keeps what it had, and asks no cluster before.
#[test]
fn a_recording_is_not_written_over() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let known = "{\"recording\": \"of a week\"}\n";
    let recording = write(folder.path(), "shop.jsonl", known);
    let nowhere = folder.path().join("nowhere/shop.jsonl").display().to_string();
    for (path, expected) in [
        (
            &recording,
            format!("{recording} exists already and would be written over"),
        ),
        (&nowhere, format!("cannot write {nowhere}")),
    ] {
        let mut command = program();
        command.args(["record", "--for", "1s", "--kubeconfig", "no-cluster", "-o", path]);
        let output = command.output().expect("the program runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&expected), "expected {expected}\nfound {said}");
    }
    assert_eq!(fs::read_to_string(recording).expect("still there"), known);
}

#[test]
fn requests_of_a_wrong_unit_are_noted() {
    let (folder, _) = folder();
    for (requests, note) in [
        (
            "cpu: 250m, memory: 512m",
            "default/web-1 request less than 1Mi of memory",
        ),
        ("cpu: 250m, memory: 512", "request less than 1Mi of memory"),
        ("cpu: 500M, memory: 512Mi", "request more than 10,000 cores"),
        ("cpu: 250m, memory: 512Mi", ""),
    ] {
        let wrong = SCENARIO.replace("cpu: 250m, memory: 512Mi", requests);
        let scenario = write(folder.path(), "scenario.yaml", &wrong);
        let output = simulate(&[&scenario, "--check"]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(note), "{requests}: {said}");
        assert_eq!(said.contains("request "), !note.is_empty(), "{requests}: {said}");
    }
}

#[test]
fn a_dump_is_not_written_over_a_kubeconfig() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at_home = folder.path().join(".kube");
    fs::create_dir(&at_home).expect("a folder");
    let config = "apiVersion: v1\nkind: Config\n";
    let given = write(folder.path(), "given", config);
    let named = write(folder.path(), "named", config);
    let usual = write(&at_home, "config", config);
    let list = std::env::join_paths([Path::new("/nowhere/config"), Path::new(&named)]).expect("no colon");
    for (arguments, dump) in [
        (&["--kubeconfig", given.as_str()][..], &given),
        (&[][..], &named),
        (&[][..], &usual),
    ] {
        let mut command = program();
        command.args(["simulate", "init", "--dump", dump]).args(arguments);
        command.env("KUBECONFIG", &list).env("HOME", folder.path());
        let output = command.output().expect("the program runs");
        let said = text(&output.stderr);
        assert!(!output.status.success(), "{dump}: {said}");
        assert!(
            said.contains("this is the kubeconfig, which would be written over"),
            "{dump}: {said}"
        );
        assert_eq!(fs::read_to_string(dump).expect("still there"), config);
    }
}

#[test]
fn dumps_without_pods_are_all_named() {
    let (folder, scenario) = folder();
    let dumps = SCENARIO.replace("manifests: [pools.yaml, more", "snapshot: [pools.yaml, more");
    write(folder.path(), "scenario.yaml", &dumps);
    let output = simulate(&[&scenario, "--check"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let place = |name: &str| folder.path().join(name).display().to_string();
    let expected = format!(
        "{}, {}: there is no pod and no workload in them",
        place("pools.yaml"),
        place("more.yaml")
    );
    assert!(said.contains(&expected), "expected {expected}\nfound {said}");
}

#[test]
fn a_scenario_file_begins_with_several_dumps() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let deployment = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, creationTimestamp: 2026-03-02T00:00:00Z}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, resources: {requests: {cpu: 500m}}}]}
";
    let shop = write(folder.path(), "shop.yaml", deployment);
    let pools = write(folder.path(), "pools.yaml", POOLS);
    let output = simulate(&["init", "-f", &shop, "-f", &pools]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let scenario = write(folder.path(), "scenario.yaml", &text(&output.stdout));
    let output = simulate(&[&scenario, "--check", "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let check = json_of(&output);
    assert_eq!(
        (&check["deployments"], &check["peakPods"]),
        (&1.into(), &3.into())
    );
}
