//! `spokeshave doctor` as a user runs it: the page word for word, the documented fields, and its exit codes.
//!
//! After a wanted change, `BLESS=1 cargo test -p spokeshave --test doctor` rewrites the expected page; read the difference.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/doctor")
        .join(name)
}

fn run(file: &Path, format: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["doctor", "-o", format, "--now", "2026-01-02T00:00:00Z", "-f"])
        .arg(file)
        .env("COLUMNS", "80")
        .output()
        .expect("the program runs")
}

#[test]
fn the_page_says_what_is_wrong_why_and_what_to_write() {
    let output = run(&data("cluster.yaml"), "table");
    let page = String::from_utf8(output.stdout).expect("text");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(data("cluster.txt"), &page).expect("written");
    }
    let expected = std::fs::read_to_string(data("cluster.txt")).expect("the expected page");
    assert!(page == expected, "{page}");
    assert_eq!(output.status.code(), Some(3), "an error was found");
}

#[test]
fn json_has_the_documented_fields() {
    let output = run(&data("cluster.yaml"), "json");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["apiVersion"], "doctor.spokeshave.dev/v1alpha1");
    assert_eq!(answer["kind"], "Diagnosis");
    let manual = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md"))
        .expect("the manual");
    for finding in answer["findings"].as_array().expect("a list") {
        for field in finding.as_object().expect("an object").keys() {
            assert!(
                manual.contains(&format!("`{field}`")),
                "{field} is not in docs/doctor.md"
            );
        }
        let code = finding["code"].as_str().expect("a code");
        assert!(manual.contains(code), "{code} is not in docs/doctor.md");
    }
    let first = &answer["findings"][0];
    assert_eq!(first["code"], "pdb-never-allows");
    assert!(
        first["keepsDollarsPerMonth"]
            .as_f64()
            .is_some_and(|dollars| dollars > 0.0)
    );
}

#[test]
fn nothing_wrong_is_exit_code_0() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("fine.yaml");
    let text = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {template: {spec: {requirements: [], nodeClassRef: {group: g, kind: K, name: c}}}}\n";
    std::fs::write(&file, text).expect("written");
    let output = run(&file, "table");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Nothing is wrong.\n");
    assert_eq!(output.status.code(), Some(0));
}

/// What is thrown away cannot be called fine: it is a finding, with its file, its line and the reason.
#[test]
fn an_object_that_is_left_out_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("wrong.yaml");
    for (text, object, place, why) in [
        (
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  namespace: shop\nspec:\n  containers: 7\n",
            "Pod shop/a",
            ", document 1, line 7: ",
            "it cannot be read: spec.containers: ",
        ),
        (
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: a\nspec:\n  template:\n    spec:\n      requirements: []\n      expireAfer: 1h\n      nodeClassRef: {group: g, kind: K, name: c}\n",
            "NodePool a",
            ":9: ",
            "the API server would refuse it: ",
        ),
    ] {
        std::fs::write(&file, text).expect("written");
        let output = run(&file, "json");
        assert_eq!(output.status.code(), Some(3), "{object}");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let found = &answer["findings"][0];
        assert_eq!(found["code"], "object-left-out", "{answer:#}");
        assert_eq!(
            (&found["level"], &found["object"]),
            (&"error".into(), &object.into())
        );
        let proof = found["proof"].as_str().expect("a proof");
        assert!(
            proof.starts_with(&format!("{}{place}{why}", file.display())),
            "{proof}"
        );
    }
}
