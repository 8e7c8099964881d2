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

#[test]
fn a_report_is_not_written_over_what_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let beside = directory.path().join("beside.yaml");
    std::fs::write(&beside, OLD).expect("written");
    let refused = |output: &Output, expected: &str| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let expected = format!("{expected}, which would be written over; expected another file");
        assert!(said.contains(&expected), "{said}");
        assert!(output.stdout.is_empty(), "nothing is converted");
    };
    let output = run(directory.path(), &["--report", "./old.yaml"]);
    refused(
        &output,
        "--report ./old.yaml: this is a manifest that is converted",
    );
    let output = run(directory.path(), &["-f", ".", "--report", "beside.yaml"]);
    refused(
        &output,
        "--report beside.yaml: this is a manifest that is converted",
    );
    for file in [directory.path().join("old.yaml"), beside] {
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), OLD);
    }
    // By another name of the same file, and one that is named because it is not read.
    let second = directory.path().join("second.txt");
    std::fs::hard_link(directory.path().join("old.yaml"), &second).expect("linked");
    let kustomization = directory.path().join("kustomization.yaml");
    std::fs::write(&kustomization, "resources: [old.yaml]\n").expect("written");
    for report in ["second.txt", "kustomization.yaml"] {
        let output = run(directory.path(), &["-f", ".", "--report", report]);
        let expected = format!("--report {report}: this is a manifest that is converted");
        refused(&output, &expected);
    }
    assert_eq!(std::fs::read_to_string(&second).expect("it is there"), OLD);
    let kept = std::fs::read_to_string(&kustomization).expect("it is there");
    assert_eq!(kept, "resources: [old.yaml]\n");
    // A report of an earlier run is none of both.
    for _ in 0..2 {
        let output = run(directory.path(), &["-f", ".", "--report", "report.txt"]);
        assert_ne!(output.status.code(), Some(2));
    }
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, "apiVersion: v1\nkind: Config\n").expect("written");
    let live = [
        "convert",
        "--live",
        "--kubeconfig",
        "kubeconfig",
        "--report",
        "kubeconfig",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(live)
        .current_dir(directory.path())
        .output()
        .expect("the program runs");
    refused(&output, "--report kubeconfig: this is the kubeconfig");
}

/// Examples from the AKS documentation work in `up --cloud azure` after conversion: its API server accepts every object.
#[test]
fn node_auto_provisioning_of_v1alpha2_is_taken_by_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("../convert/tests/data/aks.yaml");
    let program = env!("CARGO_BIN_EXE_spokeshave");
    let up = |file: &Path| {
        let output = Command::new(program)
            .args(["up", "--cloud", "azure", "--no-web", "--exit-after", "1s", "-f"])
            .arg(file)
            .arg("--kubeconfig")
            .arg(directory.path().join("kubeconfig"))
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let class = directory.path().join("class.yaml");
    let text = "apiVersion: karpenter.azure.com/v1alpha2\nkind: AKSNodeClass\nmetadata: {name: default}\n";
    std::fs::write(&class, text).expect("written");
    let (_, said) = up(&class);
    assert!(
        said.contains("skipped AKSNodeClass \"default\"") && said.contains("spokeshave convert -f FILE"),
        "{said}"
    );
    let converted = Command::new(program)
        .args(["convert", "-f"])
        .arg(&old)
        .output()
        .expect("the program runs");
    assert_eq!(converted.status.code(), Some(0));
    let text = String::from_utf8_lossy(&converted.stdout);
    assert!(
        !text.contains("karpenter.k8s.aws"),
        "every class is Azure's: {text}"
    );
    let new = directory.path().join("new.yaml");
    std::fs::write(&new, &converted.stdout).expect("written");
    let (is_up, said) = up(&new);
    assert!(is_up && !said.contains("skipped"), "{said}");
}
