//! What `docs/` and the charts say about metrics beside what the operator registers: the reference page, the contract, and every query of boards and alerts.
//!
//! `BLESS=1 cargo test -p spokeshave-sim --test it metrics::reference` rewrites the page and adds to the contract; nothing is ever removed from the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use spokeshave_controllers::{FeatureGates, LeaderElectionOptions, Options as OperatorOptions};
use spokeshave_runtime::FamilyShape;

use super::queries::{Query, read};
use crate::faulty::{Cluster, Setup};

/// What a scrape adds to every series.
const SCRAPED: [&str; 4] = ["instance", "job", "namespace", "pod"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Everything that an operator can register, with every gate on and its own process.
async fn shapes(seed: u64) -> Vec<FamilyShape> {
    let options = OperatorOptions {
        object_metrics: true,
        feature_gates: FeatureGates {
            reserved_capacity: true,
            node_repair: true,
            static_capacity: true,
            node_overlay: true,
            capacity_buffer: true,
        },
        leader_election: Some(LeaderElectionOptions {
            namespace: "kube-system".to_owned(),
            name: "karpenter-leader-election".to_owned(),
            identity: "operator".to_owned(),
        }),
        ..OperatorOptions::default()
    };
    let (cluster, operator) = Cluster::started_with(seed, json!({}), Setup::with_options(options)).await;
    cluster.run_one_pod().await;
    operator.metrics.register_process();
    spokeshave_controllers::shadow::register(&operator.metrics);
    let aws = spokeshave_aws_cloud::AwsProvider::families();
    operator.metrics.copies().replace(aws);
    operator.metrics.shapes()
}

/// Compares with a committed file, or writes it when BLESS is set.
fn check(path: &str, wanted: &str) {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(repository().join(path), wanted).expect("the file is written");
    }
    assert!(
        text(path) == wanted,
        "{path} is old: BLESS=1 cargo test -p spokeshave-sim --test it metrics::reference"
    );
}

fn page(shapes: &[FamilyShape]) -> String {
    let mut page = "# Metrics\n\n\
        Written by `BLESS=1 cargo test -p spokeshave-sim --test it metrics::reference`, from what the operator registers with every feature gate and with\n\
        `DISABLE_CLUSTER_STATE_OBSERVABILITY=false`, which adds the metrics of single objects and those of single instance types (`karpenter_cloudprovider_instance_type_…`); `spokeshave_shadow_…` are those of `operator --shadow`. Labels of nodes follow from the provider; these are the kwok\n\
        provider's. The AWS provider adds those of `karpenter_cloudprovider_instance_…`, `karpenter_cloudprovider_batcher_…`, `karpenter_ec2nodeclasses_…`, statuses of instances and `spokeshave_aws_…`. Names, types, labels and buckets are Karpenter's, except for `spokeshave_…`. Boards and alerts for them are in `charts/spokeshave`.\n\n\
        | Name | Type | Labels | Meaning |\n|---|---|---|---|\n"
        .to_owned();
    for shape in shapes {
        let labels: Vec<String> = shape.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels) = (&shape.name, shape.kind, labels.join(", "));
        let help = shape.help.replace('|', "\\|");
        writeln!(page, "| `{name}` | {kind} | {labels} | {help} |").expect("a text takes everything");
    }
    page
}

#[tokio::test(start_paused = true)]
async fn p_207_the_reference_page_of_metrics_is_what_is_registered() {
    let shapes = shapes(51).await;
    assert!(shapes.len() > 90, "{} families", shapes.len());
    check("docs/reference/metrics.md", &page(&shapes));
}

#[tokio::test(start_paused = true)]
async fn p_207_no_metric_and_no_label_of_the_contract_disappears() {
    const CONTRACT: &str = "docs/contract/metrics.txt";
    let now: BTreeSet<String> = shapes(52)
        .await
        .iter()
        .flat_map(|shape| {
            let whole = format!("{} {}", shape.name, shape.kind);
            let labels = shape
                .labels
                .iter()
                .map(move |label| format!("{} {label}", shape.name));
            std::iter::once(whole).chain(labels)
        })
        .collect();
    let committed = text(CONTRACT);
    let promised: BTreeSet<String> = committed.lines().map(str::to_owned).collect();
    let gone: Vec<&String> = promised.difference(&now).collect();
    assert!(
        gone.is_empty(),
        "promised in {CONTRACT} and gone: {gone:?}; see docs/contract.md"
    );
    let mut lines: Vec<&str> = now.iter().map(String::as_str).collect();
    lines.push("");
    check(CONTRACT, &lines.join("\n"));
}

/// Every expression below a value, and every legend.
fn walk(value: &Value, queries: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            if let Some(query) = fields.get("expr").and_then(Value::as_str) {
                let legend = fields
                    .get("legendFormat")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                queries.push((query.to_owned(), legend.to_owned()));
            }
            let definition = fields.get("definition").and_then(Value::as_str);
            if let Some(inner) = definition.and_then(|text| text.strip_prefix("label_values(")) {
                let (metric, label) = inner
                    .trim_end_matches(')')
                    .split_once(", ")
                    .expect("metric and label");
                queries.push((format!("sum by ({label}) ({metric})"), String::new()));
            }
            fields.values().for_each(|field| walk(field, queries));
        }
        Value::Array(values) => values.iter().for_each(|value| walk(value, queries)),
        _ => {}
    }
}

/// Everything that boards and alerts ask for, by the file that asks.
pub fn asked() -> Vec<(String, String, String)> {
    let mut asked = Vec::new();
    let folder = repository().join("charts/spokeshave/dashboards");
    for entry in std::fs::read_dir(&folder).expect("dashboards") {
        let name = entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        let path = format!("charts/spokeshave/dashboards/{name}");
        let board: Value = serde_json::from_str(&text(&path)).expect("a board is JSON");
        let mut queries = Vec::new();
        walk(&board, &mut queries);
        assert!(queries.len() > 15, "{path}: {} queries", queries.len());
        asked.extend(
            queries
                .into_iter()
                .map(|(query, legend)| (path.clone(), query, legend)),
        );
    }
    let path = "charts/spokeshave/rules/alerts.yaml";
    let rules = text(path);
    for line in rules.lines() {
        if let Some(query) = line.trim().strip_prefix("expr: ") {
            asked.push((path.to_owned(), query.to_owned(), String::new()));
        }
    }
    assert!(asked.iter().filter(|(from, _, _)| from == path).count() >= 12);
    assert_eq!(
        rules.matches("- alert: ").count(),
        rules.matches("expr: ").count()
    );
    asked
}

/// The family of a series, and the labels that its kind adds.
fn resolve<'a>(
    families: &'a BTreeMap<String, FamilyShape>,
    series: &str,
) -> Option<(&'a FamilyShape, &'static [&'static str])> {
    if let Some(family) = families.get(series) {
        let own: &[&str] = if family.kind == "summary" {
            &["quantile"]
        } else {
            &[]
        };
        // A histogram has no series with its plain name.
        return (family.kind != "histogram").then_some((family, own));
    }
    let (name, suffix) = series.rsplit_once('_')?;
    let family = families.get(name)?;
    match (suffix, family.kind) {
        ("bucket", "histogram") => Some((family, &["le"])),
        ("sum" | "count", "histogram" | "summary") => Some((family, &[])),
        _ => None,
    }
}

/// Errors of a query: unknown series, and labels that its series do not have.
fn faults(families: &BTreeMap<String, FamilyShape>, query: &Query) -> Vec<String> {
    let mut faults = Vec::new();
    let mut known: BTreeSet<&str> = SCRAPED.into();
    for (series, matchers) in &query.series {
        let Some((family, own)) = resolve(families, series) else {
            faults.push(format!("no metric {series}"));
            continue;
        };
        let labels: BTreeSet<&str> = family
            .labels
            .iter()
            .map(String::as_str)
            .chain(own.iter().copied())
            .chain(SCRAPED)
            .collect();
        let unknown = matchers.iter().filter(|label| !labels.contains(label.as_str()));
        faults.extend(unknown.map(|label| format!("{series} has no label {label}")));
        known.extend(labels);
    }
    let unknown = query
        .grouped
        .iter()
        .filter(|label| !known.contains(label.as_str()));
    faults.extend(unknown.map(|label| format!("nothing has a label {label}")));
    faults
}

#[tokio::test(start_paused = true)]
async fn p_207_boards_and_alerts_ask_only_for_metrics_and_labels_that_are_there() {
    let families: BTreeMap<String, FamilyShape> = shapes(53)
        .await
        .into_iter()
        .map(|shape| (shape.name.clone(), shape))
        .collect();
    let mut wrong = Vec::new();
    for (path, query, legend) in asked() {
        let mut read = read(&query);
        assert!(!read.series.is_empty(), "{path}: {query} asks for nothing");
        let shown = legend
            .split("{{")
            .skip(1)
            .filter_map(|rest| rest.split("}}").next());
        read.grouped.extend(shown.map(|label| label.trim().to_owned()));
        let faults = faults(&families, &read);
        wrong.extend(
            faults
                .into_iter()
                .map(|fault| format!("{path}: {fault}, in {query}")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The check itself sees what is wrong.
    for (query, fault) in [
        (
            "sum(karpenter_nodes_made_total)",
            "no metric karpenter_nodes_made_total",
        ),
        (
            "sum(karpenter_nodes_created_total{pool=\"a\"})",
            "karpenter_nodes_created_total has no label pool",
        ),
        (
            "sum by (pool) (karpenter_nodes_created_total)",
            "nothing has a label pool",
        ),
        (
            "rate(karpenter_pods_bound_duration_seconds[5m])",
            "no metric karpenter_pods_bound_duration_seconds",
        ),
    ] {
        assert_eq!(faults(&families, &read(query)), [fault]);
    }
}

/// A rule that is tried on a controller that nobody has proves nothing.
#[tokio::test(start_paused = true)]
async fn p_207_tests_of_alerts_name_controllers_that_there_are() {
    let (_cluster, operator, _) = Cluster::one_node(55, json!({})).await;
    let there = operator.metrics.render();
    let tests = text("charts/spokeshave/rules/alerts.test.yaml");
    let named = tests.lines().filter_map(|line| {
        let series = line.split_once("series: '")?.1.split('\'').next()?;
        // With a job it is another program's, which the rule must pass over.
        let is_ours = series.starts_with("controller_runtime_") && !series.contains("job=");
        is_ours.then_some(series)
    });
    let named: Vec<&str> = named.collect();
    assert!(!named.is_empty());
    for series in named {
        let is_there = there.lines().any(|line| line.starts_with(&format!("{series} ")));
        assert!(is_there, "no operator writes {series}");
    }
    // By this, rules and boards tell our targets from others.
    let ours = there
        .lines()
        .find(|line| line.starts_with("karpenter_build_info{"));
    assert!(
        ours.is_some_and(|line| line.contains("goversion=\"none\"")),
        "{ours:?}"
    );
}

/// Every alert has its section, and every section its alert.
#[test]
fn p_207_every_alert_has_a_runbook() {
    let rules = text("charts/spokeshave/rules/alerts.yaml");
    let runbooks = text("docs/runbooks.md");
    let headings: BTreeSet<&str> = runbooks
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let mut pointed = BTreeSet::new();
    for line in rules.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("runbook_url: ") {
            let anchor = address
                .split_once("docs/runbooks.md#")
                .expect("a section of docs/runbooks.md")
                .1;
            let heading = headings.iter().find(|heading| heading.to_lowercase() == anchor);
            pointed.insert(*heading.unwrap_or_else(|| panic!("docs/runbooks.md has no section {anchor}")));
        }
    }
    assert_eq!(
        rules.matches("- alert: ").count(),
        rules.matches("runbook_url: ").count()
    );
    assert_eq!(pointed, headings, "sections without an alert");
}

/// The operator has set a deadline already where the NodePool has a `terminationGracePeriod`, and kubectl changes no annotation that is there without being told to.
#[test]
fn p_207_runbooks_bring_a_deadline_forward_that_is_there_already() {
    const SETS: &str = "karpenter.sh/nodeclaim-termination-timestamp=$(";
    for path in ["docs/runbooks.md", "docs/operations.md"] {
        let text = text(path);
        let commands: Vec<&str> = text.lines().filter(|line| line.contains(SETS)).collect();
        assert!(!commands.is_empty(), "{path}");
        let overwrites = |line: &&str| line.contains("kubectl annotate --overwrite nodeclaim ");
        assert!(commands.iter().all(overwrites), "{path}: {commands:?}");
    }
}

/// The series of Karpenter's two published boards (1.14) with the labels that they select, group or choose by. Left out: the uptime of nodes, which asks
/// node-exporter, and the label `cluster`, which Prometheus adds.
const UPSTREAMS_BOARDS: [&str; 17] = [
    "karpenter_nodes_created_total{nodepool}",
    "karpenter_nodes_terminated_total{nodepool}",
    "karpenter_voluntary_disruption_eligible_nodes{reason}",
    "karpenter_nodeclaims_disrupted_total{nodepool}",
    "karpenter_voluntary_disruption_decisions_total{consolidation_type,decision}",
    "karpenter_pods_state{arch,capacity_type,instance_type,nodepool,phase,zone}",
    "karpenter_nodepools_usage{resource_type}",
    "karpenter_nodepools_limit{resource_type}",
    "karpenter_nodes_allocatable{arch,capacity_type,instance_type,nodepool,resource_type,zone}",
    "karpenter_nodes_total_daemon_requests{arch,capacity_type,instance_type,nodepool,resource_type,zone}",
    "karpenter_nodes_total_pod_requests{arch,capacity_type,instance_type,nodepool,resource_type,zone}",
    "karpenter_nodes_total_pod_requests{node_name}",
    "karpenter_nodes_termination_duration_seconds{quantile}",
    "karpenter_pods_startup_duration_seconds{quantile}",
    "controller_runtime_reconcile_time_seconds_bucket{controller,le}",
    "controller_runtime_reconcile_time_seconds_count{controller,job}",
    "controller_runtime_reconcile_total{controller,job}",
];

#[tokio::test(start_paused = true)]
async fn p_207_upstreams_boards_find_their_series_and_labels() {
    let families: BTreeMap<String, FamilyShape> = shapes(54)
        .await
        .into_iter()
        .map(|shape| (shape.name.clone(), shape))
        .collect();
    for series in UPSTREAMS_BOARDS {
        assert_eq!(faults(&families, &read(series)), [""; 0], "{series}");
    }
}
