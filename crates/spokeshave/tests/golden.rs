//! Small worlds with upstream Karpenter's decisions (written by `e2e/parity/golden.py`): ours place the same pods at no higher price, and judge every
//! node alike, or save more where both disrupt it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const EPSILON: f64 = 1e-6;

/// Nodes that upstream keeps and ours disrupts: case, node, and why (docs/compat.md). What any other would save is no merit: ours would overlook what keeps it.
const DISRUPTED_BY_OURS_ALONE: &[(&str, &str, &str)] = &[
    (
        "disrupt-spread-82",
        "pool-08-00000",
        "W-05: upstream counts the node that a pending pod needs against the command",
    ),
    ("disrupt-spread-82", "pool-09-00002", "W-05, as above"),
];

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
        let more: Vec<&&str> = placed.difference(&expected).collect();
        if !more.is_empty() {
            problems.push(format!("{name}: only ours places {more:?}"));
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

/// How our verdict on a node compares with upstream's.
#[derive(PartialEq)]
enum Compared {
    Fine,
    /// Upstream keeps the node, and ours disrupts it.
    Alone,
    Worse,
}

fn compared(judged: &Value, theirs: &Value) -> Compared {
    let (decision, saved) = verdict(judged);
    let price = judged["priceBefore"].as_f64().expect("a price");
    let wanted = theirs[1].as_f64().unwrap_or(price);
    let is_same = theirs[0] == decision && (saved - wanted).abs() < EPSILON;
    match (theirs[0] == "keep", decision == "keep") {
        _ if is_same => Compared::Fine,
        (true, false) => Compared::Alone,
        _ if saved > wanted + EPSILON => Compared::Fine,
        _ => Compared::Worse,
    }
}

#[test]
fn every_node_is_judged_alike_or_more_is_saved() {
    let mut problems = Vec::new();
    let mut alone = BTreeSet::new();
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
            let result = compared(judged, theirs);
            let row = DISRUPTED_BY_OURS_ALONE
                .iter()
                .position(|(case, listed, _)| *case == name && listed == node);
            if result == Compared::Alone && row.is_some() {
                alone.extend(row);
            } else if result != Compared::Fine {
                let (decision, saved) = verdict(judged);
                problems.push(format!(
                    "{name}: {node}: ours {decision} {saved}, upstream's {theirs}"
                ));
            }
        }
    }
    for (index, (case, node, why)) in DISRUPTED_BY_OURS_ALONE.iter().enumerate() {
        if !alone.contains(&index) {
            problems.push(format!(
                "{case}: {node} is not disrupted by ours alone any more: take its row away ({why})"
            ));
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
