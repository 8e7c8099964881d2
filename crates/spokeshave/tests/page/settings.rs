//! What is asked of a cluster is answered with the settings of the operator that runs there, by every command alike, and says so.

use std::process::Command;

use serde_json::{Value, json};

use super::shown::{self, Shown};
use super::{Web, array, node_pool, pod};

/// Those whose answers depend on the setting, with their output for programs.
const COMMANDS: [&[&str]; 3] = [
    &["plan", "--live", "-o", "json"],
    &["explain", "pod", "shop/web-new-0", "-o", "json"],
    &["top", "--once", "-o", "json"],
];
const DECIDED: &str =
    "decided with the settings of Deployment kube-system/spokeshave: MIN_VALUES_POLICY=BestEffort";

/// A pod that waits, a NodePool with fewer instance types than it asks for at least, and perhaps an operator that makes do with them, whose ConfigMap says so.
fn cluster(has_operator: bool) -> (tempfile::TempDir, String) {
    let mut pool = node_pool("general", &json!([{"nodes": "10%"}]));
    pool["spec"]["template"]["spec"]["requirements"] = json!([
        {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 10},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
    ]);
    let mut objects = vec![pool, pod("web-new-0", None, 0)];
    if has_operator {
        let key = json!({"configMapKeyRef": {"name": "shared", "key": "policy"}});
        let container = json!({"name": "controller", "image": "registry.example/spokeshave:1", "args": ["operator", "--cloud-provider", "kwok"],
            "env": [{"name": "MIN_VALUES_POLICY", "valueFrom": key}]});
        let metadata = |name: &str| json!({"name": name, "namespace": "kube-system"});
        objects.extend([
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("spokeshave"),
                "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("shared"), "data": {"policy": "BestEffort"}}),
        ]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let shown = Shown {
        objects,
        date: Some("Mon, 02 Mar 2026 12:00:00 GMT"),
        ..Shown::default()
    };
    let kubeconfig = shown::kubeconfig(folder.path(), shown).display().to_string();
    (folder, kubeconfig)
}

/// What a command answers, what it says of settings in its answer, and what on standard error.
fn answer(words: &[&str], kubeconfig: &str, more: &[&str]) -> (Value, Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(words)
        .args(["--kubeconfig", kubeconfig])
        .args(more)
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Doctor ends with 3 where it finds what is wrong: a pod without a node is.
    let expected = if words[0] == "doctor" { 3 } else { 0 };
    assert_eq!(output.status.code(), Some(expected), "{words:?}: {said}");
    let mut answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let settings = answer["settings"].take();
    (answer, settings, said)
}

#[test]
fn p_202_every_command_answers_with_the_settings_of_the_operator_that_runs() {
    let (_without, alone) = cluster(false);
    let (_with, run) = cluster(true);
    for words in COMMANDS {
        let (strict, settings, said) = answer(words, &alone, &[]);
        let note = "no Deployment runs an operator: default settings stand in for those of the operator";
        assert!(said.contains(&format!("note: {note}")), "{words:?}: {said}");
        assert!(settings["deployment"].is_null(), "{words:?}: {settings}");
        assert!(
            array(&settings["notes"])[0]
                .as_str()
                .is_some_and(|text| text.starts_with(note))
        );

        let (best_effort, settings, said) = answer(words, &run, &[]);
        assert_ne!(strict, best_effort, "{words:?}");
        let taken =
            json!({"deployment": "kube-system/spokeshave", "set": {"MIN_VALUES_POLICY": "BestEffort"}});
        assert_eq!(settings, taken, "{words:?}");
        assert_eq!(said.matches(DECIDED).count(), 1, "{words:?}: {said}");

        // What the command is given wins, as does the name of another Deployment.
        let (given, settings, _) = answer(words, &alone, &["--min-values-policy", "BestEffort"]);
        assert_eq!(given, best_effort, "{words:?}");
        assert_eq!(settings["given"], json!(["MIN_VALUES_POLICY"]), "{words:?}");
        let (given, settings, _) = answer(words, &run, &["--min-values-policy", "Strict"]);
        assert_eq!(given, strict, "{words:?}");
        assert_eq!(
            settings["set"],
            json!({"MIN_VALUES_POLICY": "Strict"}),
            "{words:?}"
        );
        let (named, ..) = answer(words, &run, &["--operator", "kube-system/spokeshave"]);
        assert_eq!(named, best_effort, "{words:?}");
    }
    let (_, settings, said) = answer(&["doctor", "-o", "json"], &run, &[]);
    assert_eq!(settings["deployment"], "kube-system/spokeshave");
    assert!(said.contains(DECIDED), "{said}");
}

#[test]
fn the_page_is_that_of_the_operator_that_runs() {
    let (_folder, kubeconfig) = cluster(true);
    let (once, settings, _) = answer(COMMANDS[2], &kubeconfig, &[]);
    let web = Web::running(&["web", "--kubeconfig", &kubeconfig]);
    let (view, page) = (web.json("/api/view"), web.get("/"));
    assert_eq!(
        (&view["pending"], &view["settings"]),
        (&once["pending"], &settings)
    );
    assert!(page.contains(DECIDED), "{page}");
    let wide = ["top", "--once", "-o", "wide", "--kubeconfig", &kubeconfig];
    assert!(super::said(0, &wide).contains(DECIDED));
}

#[test]
fn a_setting_that_a_command_cannot_read_ends_it_before_it_asks() {
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args([
            "plan",
            "--live",
            "--kubeconfig",
            "/nowhere",
            "--feature-gates",
            "Teleport=true",
        ])
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("--feature-gates") && said.contains("Teleport"),
        "{said}"
    );
}
