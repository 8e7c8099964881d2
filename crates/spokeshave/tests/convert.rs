//! `spokeshave convert` as a user runs it: where the result and the report go, and what the exit codes say.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const OLD: &str = "\
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: web}
spec:
  ttlSecondsAfterEmpty: 30
  providerRef: {name: web}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: web}
spec:
  subnetSelector: {team: web}
  securityGroupSelector: {team: web}
";

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let file = directory.join("old.yaml");
    std::fs::write(&file, OLD).expect("written");
    Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["convert", "-f", "old.yaml"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the program runs")
}

#[test]
fn manifests_go_to_standard_output_and_the_report_to_standard_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = run(directory.path(), &["--role", "Nodes"]);
    assert_eq!(output.status.code(), Some(0));
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&String::from_utf8_lossy(&output.stdout)).expect("YAML");
    let kinds: Vec<&Value> = documents.iter().map(|document| &document["kind"]).collect();
    assert_eq!(kinds, ["NodePool", "EC2NodeClass"]);
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(
        report.contains("old.yaml:5: changed Provisioner web spec.ttlSecondsAfterEmpty -> spec.disruption.consolidateAfter: "),
        "{report}"
    );
    assert!(
        report
            .trim_end()
            .lines()
            .last()
            .is_some_and(|line| line.starts_with("2 objects written"))
    );
}

#[test]
fn what_is_to_be_settled_is_exit_code_3() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = run(directory.path(), &["-o", "json", "--report", "report.txt"]);
    assert_eq!(output.status.code(), Some(3), "there is no role");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["apiVersion"], "convert.spokeshave.dev/v1alpha1");
    assert_eq!(answer["refused"], 1);
    let has_manual = answer["report"].as_array().is_some_and(|lines| {
        lines
            .iter()
            .any(|line| line["change"] == "manual" && line["level"] == "error")
    });
    assert!(has_manual, "{answer:#}");
    let report = std::fs::read_to_string(directory.path().join("report.txt")).expect("the report");
    assert!(report.contains("--role NAME"), "{report}");
}
