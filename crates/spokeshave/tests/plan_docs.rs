//! docs/plan.md says of `spokeshave plan` what is so: every field of the format, and the pages that it shows word for word.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const EXAMPLES: [&str; 5] = ["pending", "unschedulable", "consolidation", "drift", "budgets"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn manual() -> String {
    std::fs::read_to_string(root().join("docs/plan.md")).expect("docs/plan.md")
}

/// Standard output, for a terminal of 80 columns.
fn plan(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .arg("plan")
        .args(arguments)
        .args(["--now", "2026-01-01T01:00:00Z"])
        .current_dir(root())
        .env_remove("COLUMNS")
        .output()
        .expect("the program runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The block of text after a sentence.
fn block_after<'a>(manual: &'a str, sentence: &str) -> &'a str {
    let (_, rest) = manual.split_once(sentence).expect("the sentence is there");
    let (_, rest) = rest.split_once("```text\n").expect("a block follows");
    rest.split_once("```").expect("it ends").0
}

#[test]
fn docs_plan_md_shows_the_example_as_the_program_prints_it() {
    let manual = manual();
    let shown = block_after(&manual, "`spokeshave plan -f examples/unschedulable.yaml`:");
    let printed = plan(&["-f", "examples/unschedulable.yaml"]);
    assert!(
        shown == printed,
        "docs/plan.md:\n{shown}\nthe program:\n{printed}"
    );
}

/// The drifted nodes of the example, one of them empty and the third drifted as well.
#[test]
fn docs_plan_md_shows_what_follows_the_first_command() {
    let text = std::fs::read_to_string(root().join("examples/drift.yaml")).expect("the example");
    let mut dump: Value = serde_saphyr::from_str(&text).expect("YAML");
    let items = dump["items"].as_array_mut().expect("items");
    items.retain(|one| one["metadata"]["name"] != "web-1");
    for one in items.iter_mut() {
        if one["kind"] == "NodePool" {
            one["spec"]["disruption"]["budgets"] = serde_json::json!([{"nodes": "2"}]);
        }
        if one["kind"] == "NodeClaim" && one["metadata"]["name"] == "new-1" {
            let conditions = one["status"]["conditions"].as_array_mut().expect("conditions");
            conditions.push(serde_json::json!({
                "type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }));
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("drifted.json");
    std::fs::write(&file, dump.to_string()).expect("written");
    let printed = plan(&["-f", &file.display().to_string()]);
    let manual = manual();
    let shown = block_after(&manual, "## One pass after the other");
    let (_, disruption) = printed.split_once("\n\n").expect("a head and what is disrupted");
    assert!(
        shown == disruption,
        "docs/plan.md:\n{shown}\nthe program:\n{disruption}"
    );
}

/// The paths of all values, with `[]` for elements and `*` for the keys of maps that users name.
fn paths(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = if path.ends_with("requests") { "*" } else { key };
                let path = if path.is_empty() {
                    key.to_owned()
                } else {
                    format!("{path}.{key}")
                };
                paths(value, &path, into);
            }
        }
        Value::Array(items) if items.is_empty() => {
            into.insert(path.to_owned());
        }
        Value::Array(items) => {
            for item in items {
                paths(item, &format!("{path}[]"), into);
            }
        }
        _ => {
            into.insert(path.to_owned());
        }
    }
}

#[test]
fn docs_plan_md_names_every_field_and_no_other() {
    let text = manual();
    let documented: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    let mut seen = BTreeSet::new();
    for name in EXAMPLES {
        let file = format!("examples/{name}.yaml");
        let output = plan(&["-f", &file, "--verdicts", "--stats", "-o", "json"]);
        let value: Value = serde_json::from_str(&output).expect("JSON");
        paths(&value, "", &mut seen);
    }
    let is_documented = |path: &String| {
        documented.contains(path)
            || documented.iter().any(|known| {
                known.starts_with(&format!("{path}[]")) || known.starts_with(&format!("{path}."))
            })
    };
    let unknown: Vec<&String> = seen.iter().filter(|path| !is_documented(path)).collect();
    assert!(unknown.is_empty(), "not in docs/plan.md: {unknown:?}");
    let unseen: Vec<&String> = documented.difference(&seen).collect();
    // What none of the examples has: a budget that cannot be evaluated, a DisruptionPolicy, something left for a later pass, a fixed number of nodes, nodes that are too
    // old, a price that nobody knows, settings.
    assert_eq!(
        unseen,
        [
            "disruption.budgets[].error",
            "disruption.commands[].priceUnknown",
            "disruption.expired[].evictions",
            "disruption.expired[].held[].message",
            "disruption.expired[].held[].node",
            "disruption.expired[].nodePool",
            "disruption.expired[].nodesWithoutPrice",
            "disruption.expired[].nodes[]",
            "disruption.expired[].price",
            "disruption.later[]",
            "disruption.scaleDown[].evictions",
            "disruption.scaleDown[].nodePool",
            "disruption.scaleDown[].nodes[]",
            "disruption.scaleDown[].price",
            "disruption.scaleDown[].replicas",
            "disruption.stops[].field",
            "disruption.stops[].message",
            "disruption.stops[].nodePools[]",
            "disruption.stops[].policy",
            "disruption.stops[].reasons[]",
            "disruption.stops[].until",
            "disruption.verdicts[].priceUnknown",
            "provisioning.later[].nodePool",
            "provisioning.later[].nodes",
            "provisioning.later[].pods[]",
            "provisioning.later[].price",
            "provisioning.replicas[].message",
            "provisioning.replicas[].missing",
            "provisioning.replicas[].nodePool",
            "provisioning.replicas[].nodes",
            "provisioning.replicas[].replicas",
            "settings.deployment",
            "settings.given[]",
            "settings.notes[]",
            "settings.set.*",
        ],
        "documented, and in no example"
    );
}
