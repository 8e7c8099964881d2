//! Every registered family beside the tables of the specification, read from its own text: names, types, labels and buckets, both ways.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use spokeshave_controllers::{FeatureGates, Options as OperatorOptions};
use spokeshave_runtime::{DEFAULT_BUCKETS, FamilyShape, STANDARD_BUCKETS, exponential_buckets};

use crate::faulty::{Cluster, Setup};

const PROVISIONING: &str = include_str!("../../../../../docs/spec/provisioning.md");
const DISRUPTION: &str = include_str!("../../../../../docs/spec/disruption.md");

/// Counted by the AWS provider itself, whose tests check it (A-120, D-291).
const LEFT_OUT: [&str; 1] = ["karpenter_interruption_instance_status_unhealthy_total"];

/// What upstream calls the labels of nodes in metrics: the last part of each well-known label.
const NODE_LABELS: [&str; 8] = [
    "nodepool",
    "zone",
    "region",
    "instance_type",
    "arch",
    "os",
    "capacity_type",
    "windows_build",
];

/// Type and labels of each family.
type Table = BTreeMap<String, (String, BTreeSet<String>)>;

fn words(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

/// A text without bracketed parts.
fn bare(text: &str) -> String {
    let mut depth = 0_usize;
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => out.push(letter),
            _ => {}
        }
    }
    out.replace('`', "")
}

fn kind_of(cell: &str) -> Option<String> {
    let kind = match cell.split_whitespace().next()? {
        "C" => "counter",
        "G" => "gauge",
        "H" => "histogram",
        "S" => "summary",
        _ => return None,
    };
    Some(kind.to_owned())
}

/// The labels of a row, given those of the row before.
fn labels_of(cell: &str, before: &BTreeSet<String>) -> BTreeSet<String> {
    let cell = bare(cell);
    let cell = cell.trim();
    if cell.starts_with("same") {
        let mut labels = before.clone();
        if let Some((_, without)) = cell.split_once("without ") {
            assert!(labels.remove(without), "{cell}");
        }
        return labels;
    }
    if matches!(cell, "none" | "–") {
        return BTreeSet::new();
    }
    let (own, further) = cell.split_once(" + ").unwrap_or((cell, ""));
    let mut labels: BTreeSet<String> = own.split(',').map(|label| label.trim().to_owned()).collect();
    if further.contains("well-known label") {
        labels.extend(words(&NODE_LABELS));
    }
    labels
}

/// The name that a cell means: with its prefix, or like the first name of the row but for the last part.
fn full_name(name: &str, first: &str) -> String {
    match name.strip_prefix('_') {
        Some(rest) => format!("{}_{rest}", first.rsplit_once('_').unwrap_or_default().0),
        None if name.starts_with("karpenter_") || name.contains('<') => name.to_owned(),
        None => format!("karpenter_{name}"),
    }
}

/// The table of a section.
fn table(document: &str, heading: &str) -> Table {
    let section = document.split(&format!("\n{heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let (mut found, mut labels) = (Table::new(), BTreeSet::new());
    for row in section.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Some(kind) = kind_of(cells[2]) else {
            continue;
        };
        labels = labels_of(cells[3], &labels);
        let mut first = String::new();
        for name in cells[1].replace('`', "").split([',', '/']) {
            let name = full_name(name.trim(), &first);
            if first.is_empty() {
                first.clone_from(&name);
            }
            found.insert(name, (kind.clone(), labels.clone()));
        }
    }
    found
}

/// P §16 and D App. D together; what both have they say alike.
fn specified() -> Table {
    let mut all = table(PROVISIONING, "## 16. Metrics");
    assert!(all.len() > 50, "the table of P §16 was not read: {all:?}");
    let of_disruption = table(DISRUPTION, "## Appendix D. Metrics");
    assert!(of_disruption.len() > 25, "the table of D App. D was not read");
    for (name, shape) in of_disruption {
        if name.contains('<') || LEFT_OUT.contains(&&*name) {
            continue;
        }
        if let Some(known) = all.get(&name) {
            assert_eq!(*known, shape, "the two tables differ about {name}");
        }
        all.insert(name, shape);
    }
    all
}

/// The prose of P §16 about metrics of conditions, for the kwok cloud.
fn of_conditions() -> Table {
    let mut all = Table::new();
    let class_and_pool = ["karpenter_kwok_sh_kwoknodeclass", "karpenter_sh_nodepool"];
    let of_nodes = [&class_and_pool[..], &["karpenter_sh_initialized"]].concat();
    let kinds: [(&str, &[&str]); 4] = [
        ("nodeclaim", &class_and_pool),
        ("nodepool", &[]),
        ("node", &of_nodes),
        ("capacitybuffer", &[]),
    ];
    let each: &[&str] = &["namespace", "name", "type", "status", "reason"];
    let rows: [(&str, &str, &[&str]); 6] = [
        (
            "status_condition_transition_seconds",
            "histogram",
            &["type", "status"],
        ),
        ("status_condition_count", "gauge", each),
        ("status_condition_current_status_seconds", "gauge", each),
        (
            "status_condition_transitions_total",
            "counter",
            &["type", "status", "reason"],
        ),
        (
            "termination_current_time_seconds",
            "gauge",
            &["namespace", "name"],
        ),
        ("termination_duration_seconds", "histogram", &[]),
    ];
    for (kind, further) in kinds {
        for (name, type_, labels) in rows {
            let labels = words(&[labels, further].concat());
            all.insert(format!("operator_{kind}_{name}"), (type_.to_owned(), labels));
        }
    }
    all
}

/// Bounds of a histogram's buckets, in seconds, or of scores.
fn buckets(name: &str) -> Vec<f64> {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    match name {
        "karpenter_nodeclaims_termination_duration_seconds" => exponential_buckets(1.0, 2.0, 12),
        "karpenter_nodeclaims_instance_termination_duration_seconds" => exponential_buckets(1.0, 2.0, 11),
        "karpenter_nodes_lifetime_duration_seconds" => [
            [15.0, 30.0, 45.0].map(|count| count * MINUTE).as_slice(),
            &[1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0].map(|count| count * HOUR),
            &[1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0].map(|count| count * DAY),
        ]
        .concat(),
        "karpenter_consolidation_score" => vec![0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0],
        "karpenter_cloudprovider_duration_seconds" => DEFAULT_BUCKETS.to_vec(),
        name if name.starts_with("operator_") => exponential_buckets(0.5, 2.0, 15),
        _ => STANDARD_BUCKETS.to_vec(),
    }
}

#[tokio::test(start_paused = true)]
async fn p_149_p_207_d_316_every_metric_has_upstreams_name_type_labels_and_buckets() {
    let options = OperatorOptions {
        object_metrics: true,
        feature_gates: FeatureGates {
            capacity_buffer: true,
            ..FeatureGates::default()
        },
        ..OperatorOptions::default()
    };
    let (cluster, operator) = Cluster::started_with(50, json!({}), Setup::with_options(options)).await;
    cluster.run_one_pod().await;
    let mut wanted = specified();
    wanted.extend(of_conditions());
    let ours =
        |shape: &FamilyShape| shape.name.starts_with("karpenter_") || shape.name.starts_with("operator_");
    let shapes: Vec<FamilyShape> = operator.metrics.shapes().into_iter().filter(ours).collect();
    let found: Table = shapes
        .iter()
        .map(|shape| {
            let labels = shape.labels.iter().cloned().collect();
            (shape.name.clone(), (shape.kind.to_owned(), labels))
        })
        .collect();
    for (name, shape) in &wanted {
        assert_eq!(found.get(name), Some(shape), "{name}");
    }
    let further: Vec<&String> = found.keys().filter(|name| !wanted.contains_key(*name)).collect();
    assert!(further.is_empty(), "not in the specification: {further:?}");
    for shape in shapes.iter().filter(|shape| shape.kind == "histogram") {
        assert_eq!(shape.buckets, buckets(&shape.name), "{}", shape.name);
    }
    let text = operator.metrics.render();
    let quantile = "karpenter_pods_startup_duration_seconds{quantile=\"0.99\"}";
    assert!(text.contains(quantile), "{quantile}:\n{text}");
    // What the framework brings.
    for framework in [
        "client_go_request_duration_seconds histogram",
        "client_go_request_total counter",
        "workqueue_depth gauge",
        "controller_runtime_reconcile_total counter",
    ] {
        assert!(
            text.contains(&format!("# TYPE {framework}\n")),
            "{framework}:\n{text}"
        );
    }
}
