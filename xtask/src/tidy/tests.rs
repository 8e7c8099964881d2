//! House rules that must find what breaks them: licences, lengths of files, dependencies.

use serde_json::json;

use super::*;

#[test]
fn licences_are_read_as_expressions() {
    for accepted in [
        "MIT/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "MIT AND (GPL-3.0-only OR Apache-2.0 WITH LLVM-exception)",
    ] {
        assert!(is_accepted(accepted), "{accepted}");
    }
    for refused in [
        "",
        "GPL-3.0-only AND MIT",
        "GPL-3.0-only OR (MIT AND AGPL-3.0-only)",
        "Apache-2.0 WITH Classpath-exception-2.0",
    ] {
        assert!(!is_accepted(refused), "{refused}");
    }
}

#[test]
fn a_file_beyond_the_limit_is_a_finding() {
    assert!(check_length("crates/x/src/lib.rs", LONGEST_FILE_LINES).is_none());
    let finding = check_length("crates/x/src/lib.rs", LONGEST_FILE_LINES + 1).expect("a finding");
    assert!(finding.starts_with("crates/x/src/lib.rs: 601 lines"), "{finding}");
}

/// What is found in a workspace of one crate that has one dependency, of a kind: null where it is a normal one.
fn found(name: &str, dependency: &str, kind: &Value) -> Vec<String> {
    let metadata = json!({
        "packages": [{"id": "ours", "name": name}, {"id": "theirs", "name": dependency}],
        "resolve": {"nodes": [{"id": "ours", "deps": [{"pkg": "theirs", "dep_kinds": [{"kind": kind}]}]}]},
        "workspace_members": ["ours"],
    });
    let mut findings = Vec::new();
    check_dependencies(&metadata, &mut findings).expect("metadata");
    findings
}

/// The fast engine lives clusters by the decisions of `plan`: nothing that runs controllers, and no chance but that of its seeds.
#[test]
fn a_dependency_that_simulate_must_not_have_is_found() {
    let name = "spokeshave-simulate";
    for ours in [
        "spokeshave-controllers",
        "spokeshave-cluster",
        "spokeshave-runtime",
        "spokeshave-simulate-full",
    ] {
        let findings = found(name, ours, &Value::Null);
        assert_eq!(findings.len(), 1, "{findings:?}");
        let begin = format!("{name}: must not depend on {ours} ");
        assert!(findings[0].starts_with(&begin), "{findings:?}");
    }
    for chance in ["tokio", "kube", "rand_chacha"] {
        let finding = format!("{name}: draws from seeds only and must not depend on {chance}");
        assert_eq!(found(name, chance, &Value::Null), [finding]);
    }
    for fine in ["spokeshave-plan", "rand", "serde"] {
        assert_eq!(found(name, fine, &Value::Null), [""; 0], "{fine}");
    }
    // Its tests may, and so may what builds it.
    for kind in ["dev", "build"] {
        assert_eq!(found(name, "spokeshave-controllers", &json!(kind)), [""; 0]);
    }
}

#[test]
fn what_a_pure_crate_reaches_through_others_is_found() {
    let edge = |id: &str| json!([{"pkg": id, "dep_kinds": [{"kind": null}]}]);
    let metadata = json!({
        "packages": [{"id": "a", "name": "spokeshave-plan"}, {"id": "b", "name": "harmless"}, {"id": "c", "name": "tokio"}],
        "resolve": {"nodes": [{"id": "a", "deps": edge("b")}, {"id": "b", "deps": edge("c")}]},
        "workspace_members": ["a"],
    });
    let mut findings = Vec::new();
    check_dependencies(&metadata, &mut findings).expect("metadata");
    assert_eq!(findings, ["spokeshave-plan: is pure and must not reach tokio"]);
}

#[test]
fn a_crate_without_a_row_is_found() {
    let findings = found("spokeshave-new", "serde", &Value::Null);
    assert!(
        findings.len() == 1 && findings[0].starts_with("spokeshave-new: has no row"),
        "{findings:?}"
    );
}
