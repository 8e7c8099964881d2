//! Small worlds with upstream Karpenter's decisions (written by `e2e/parity/golden.py`): ours place the same pods at no higher price, and judge every
//! node alike or save more.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const EPSILON: f64 = 1e-6;

fn cases(kind: &str) -> Vec<(String, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut cases: Vec<(String, Value)> = std::fs::read_dir(&directory)
        .expect("tests/golden")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a case");
            (name, serde_json::from_str(&text).expect("JSON"))
        })
        .filter(|(name, _)| name.starts_with(kind))
        .collect();
    cases.sort_by(|left, right| left.0.cmp(&right.0));
    assert!(cases.len() >= 20, "only {} cases of {kind}", cases.len());
    cases
}

fn plan(case: &Value, arguments: &[&str]) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args([
            "plan",
            "-f",
            "-",
            "-o",
            "json",
            "--now",
            case["now"].as_str().expect("now"),
        ])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin
        .write_all(case["state"].to_string().as_bytes())
        .expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    serde_json::from_slice(&output.stdout).expect("a plan")
}

fn pods(owner: &Value) -> impl Iterator<Item = &str> {
    owner["pods"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

#[test]
fn the_same_pods_are_placed_at_no_higher_price() {
    let mut problems = Vec::new();
    for (name, case) in cases("provision") {
        let plan = plan(&case, &[]);
        let provisioning = &plan["provisioning"];
        let owners = ["nodeClaims", "existingNodes"];
        let owners = owners
            .iter()
            .flat_map(|key| provisioning[*key].as_array().expect("a list"));
        let placed: BTreeSet<&str> = owners.flat_map(pods).collect();
        let upstream = &case["upstream"];
        let expected: BTreeSet<&str> = upstream["placed"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let missing: Vec<&&str> = expected.difference(&placed).collect();
        if !missing.is_empty() {
            problems.push(format!("{name}: upstream places {missing:?}"));
        }
        let price = |value: &Value| value.as_f64().expect("a price");
        let (ours, theirs) = (price(&provisioning["price"]), price(&upstream["price"]));
        if placed == expected && ours > theirs + EPSILON {
            problems.push(format!("{name}: ours costs {ours}, upstream's {theirs}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Decision and savings, budgets aside, as upstream's what-if leaves them aside.
fn verdict(verdict: &Value) -> (&str, f64) {
    let number = |value: &Value| value.as_f64().expect("a price");
    let before = number(&verdict["priceBefore"]);
    let blockers = verdict["blockers"].as_array().expect("a list");
    let only_budget = !blockers.is_empty() && blockers.iter().all(|blocker| blocker["kind"] == "Budget");
    let then = &verdict["ifRemoved"];
    if only_budget && !then.is_null() {
        return (
            then["decision"].as_str().unwrap_or_default(),
            before - number(&then["priceAfter"]),
        );
    }
    let decision = verdict["decision"].as_str().unwrap_or_default();
    (decision, before - number(&verdict["priceAfter"]))
}

#[test]
fn every_node_is_judged_alike_or_more_is_saved() {
    let mut problems = Vec::new();
    for (name, case) in cases("disrupt") {
        let plan = plan(&case, &["--verdicts"]);
        let expected = case["upstream"]["verdicts"].as_object().expect("verdicts");
        let ours = plan["disruption"]["verdicts"].as_array().expect("a list");
        let ours: BTreeMap<&str, &Value> = ours
            .iter()
            .map(|judged| (judged["node"].as_str().expect("a node"), judged))
            .collect();
        assert!(!expected.is_empty(), "{name}: upstream judges no node");
        let items = case["state"]["items"].as_array().expect("items");
        let nodes = items.iter().filter(|item| item["kind"] == "Node").count();
        if ours.len() != nodes {
            problems.push(format!("{name}: {} verdicts for {nodes} nodes", ours.len()));
        }
        // Upstream's what-ifs are those of consolidation: other nodes are removed for another reason, or not at all.
        for (node, judged) in ours.iter().filter(|(node, _)| !expected.contains_key(**node)) {
            let consolidated = judged["method"]
                .as_str()
                .is_some_and(|method| method.ends_with("Consolidation"));
            if consolidated {
                problems.push(format!(
                    "{name}: {node}: upstream does not consider it, ours {judged}"
                ));
            }
        }
        for (node, theirs) in expected {
            let Some(judged) = ours.get(node.as_str()) else {
                problems.push(format!("{name}: {node}: we do not judge it, upstream's {theirs}"));
                continue;
            };
            let (decision, saved) = verdict(judged);
            let price = judged["priceBefore"].as_f64().expect("a price");
            let wanted = theirs[1].as_f64().unwrap_or(price);
            let same = theirs[0] == decision && (saved - wanted).abs() < EPSILON;
            if !same && saved <= wanted + EPSILON {
                problems.push(format!(
                    "{name}: {node}: ours {decision} {saved}, upstream's {theirs}"
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn each_method_saves_at_least_as_much() {
    let methods = [
        ("emptiness", "emptiness"),
        ("multinode", "multi-node"),
        ("singlenode", "single-node"),
    ];
    let mut problems = Vec::new();
    for (name, case) in cases("disrupt") {
        for (theirs, ours) in methods {
            let plan = plan(&case, &["--methods", ours]);
            let commands = plan["disruption"]["commands"].as_array().expect("a list");
            let saved: f64 = commands
                .iter()
                .map(|command| {
                    let price = |key: &str| command[key].as_f64().expect("a price");
                    price("priceBefore") - price("priceAfter")
                })
                .sum();
            let wanted = case["upstream"]["savings"][theirs].as_f64().expect("savings");
            if saved < wanted - EPSILON {
                problems.push(format!("{name}: {ours} saves {saved}, upstream's {wanted}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
