//! What the provider counts, beside the table of the specification (A11), and what users read of a launch that failed.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use spokeshave_api::labels;
use spokeshave_aws_cloud::AwsProvider;
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::{CloudProvider as _, MeasuredValue, Measurement, MeasurementKind};
use spokeshave_provider_aws::errors::ApiError;

use crate::world::{CLUSTER, World, claim, pool};

const SPECIFICATION: &str = include_str!("../../../../docs/spec/providers.md");

/// Metrics of A11 that core counts for every provider.
const CORES: [&str; 5] = [
    "karpenter_interruption_received_messages_total",
    "karpenter_interruption_deleted_messages_total",
    "karpenter_interruption_message_queue_duration_seconds",
    "karpenter_cloudprovider_duration_seconds",
    "karpenter_cloudprovider_errors_total",
];

/// Names that A11 abbreviates.
const SHORT: [(&str, &str); 3] = [
    (
        "…_memory_bytes",
        "karpenter_cloudprovider_instance_type_memory_bytes",
    ),
    ("…_batch_size", "karpenter_cloudprovider_batcher_batch_size"),
    ("…_errors_total", "karpenter_cloudprovider_errors_total"),
];

/// Name, type and labels of the rows of A11.
fn specified() -> Vec<(String, String, BTreeSet<String>)> {
    let section = SPECIFICATION.split("\n## A11. ").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut rows = Vec::new();
    let mut labels_before = BTreeSet::new();
    for line in section
        .lines()
        .filter(|line| line.starts_with("| `") || line.starts_with("| core `"))
    {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let quoted = |text: &str| -> Vec<String> {
            let parts = text.split('`').skip(1).step_by(2);
            parts.map(str::to_owned).collect()
        };
        let names = quoted(cells[0]);
        let kind = cells[1].split(',').next().unwrap().to_owned();
        let labels: BTreeSet<String> = if cells[1].contains("same") {
            labels_before.clone()
        } else {
            quoted(cells[1]).into_iter().collect()
        };
        labels_before.clone_from(&labels);
        for name in names {
            let short = SHORT.iter().find(|(short, _)| *short == name);
            let name = short.map_or(name, |(_, whole)| (*whole).to_owned());
            rows.push((name, kind.clone(), labels.clone()));
        }
    }
    rows
}

fn measured(provider: &AwsProvider, name: &str) -> Measurement {
    let all = provider.measurements();
    let found = all.into_iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("nothing is called {name}"))
}

fn numbers(measurement: &Measurement) -> BTreeMap<Vec<&str>, f64> {
    let series = measurement.series.iter().map(|(key, value)| {
        let MeasuredValue::Number(number) = value else {
            panic!("{} is a number", measurement.name);
        };
        (key.iter().map(String::as_str).collect(), *number)
    });
    series.collect()
}

#[tokio::test(start_paused = true)]
async fn a_120_every_metric_of_the_specification_has_its_name_type_and_labels() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider();
    let known = provider.measurements();
    let mut checked = 0;
    for (name, kind, labels) in specified() {
        if name.starts_with("aws_sdk_go") || CORES.contains(&name.as_str()) {
            continue;
        }
        let ours = known.iter().find(|one| one.name == name);
        let ours = ours.unwrap_or_else(|| panic!("{name} is not counted"));
        let ours_kind = match ours.kind {
            MeasurementKind::Counter => "counter",
            MeasurementKind::Gauge => "gauge",
            MeasurementKind::Histogram(_) => "histogram",
        };
        let ours_labels: BTreeSet<String> = ours.labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!((ours_kind, &ours_labels), (kind.as_str(), &labels), "{name}");
        checked += 1;
    }
    assert_eq!(checked, 10);
}

#[tokio::test(start_paused = true)]
async fn a_120_offerings_prices_failures_and_batches_are_those_of_the_cloud() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider();
    world.pass(60).await;
    world
        .cloud
        .limit("m5.large/us-east-1a/on-demand".parse().unwrap(), 0);
    let wanted = claim(
        "one",
        &[
            (labels::INSTANCE_TYPE, &["m5.large"]),
            (labels::CAPACITY_TYPE, &["on-demand"]),
            (labels::ZONE, &["us-east-1a"]),
        ],
    );
    assert!(provider.create(&wanted).await.is_err());
    // The list as core asks for it.
    provider.instance_types(&pool()).await.unwrap();
    let available = measured(
        &provider,
        "karpenter_cloudprovider_instance_type_offering_available",
    );
    let available = numbers(&available);
    assert_eq!(available[&vec!["m5.large", "on-demand", "us-east-1a"]], 0.0);
    assert_eq!(available[&vec!["m5.large", "on-demand", "us-east-1b"]], 1.0);
    let prices = measured(
        &provider,
        "karpenter_cloudprovider_instance_type_offering_price_estimate",
    );
    assert_eq!(
        numbers(&prices)[&vec!["m5.large", "on-demand", "us-east-1b"]],
        0.096
    );
    let cores = measured(&provider, "karpenter_cloudprovider_instance_type_cpu_cores");
    assert_eq!(numbers(&cores)[&vec!["m5.large"]], 2.0);
    let memory = measured(&provider, "karpenter_cloudprovider_instance_type_memory_bytes");
    assert_eq!(
        numbers(&memory)[&vec!["m5.large"]],
        f64::from(7577) * 1024.0 * 1024.0
    );
    let failures = measured(
        &provider,
        "karpenter_cloudprovider_instance_launch_failures_total",
    );
    let failures = numbers(&failures);
    let key = vec!["us-east-1a", "use1-az1", "on-demand", "LaunchFailed"];
    assert_eq!(failures, BTreeMap::from([(key, 1.0)]));
    let bytes = measured(&provider, "karpenter_ec2nodeclasses_userdata_bytes");
    let bytes = numbers(&bytes)[&vec!["default"]];
    assert!((200.0..4000.0).contains(&bytes), "{bytes}");
    let batches = measured(&provider, "karpenter_cloudprovider_batcher_batch_size");
    let create = batches.series.iter().find(|(key, _)| key[0] == "create_fleet");
    let MeasuredValue::Buckets(counts, sum) = &create.unwrap().1 else {
        panic!("a histogram");
    };
    assert_eq!((counts.iter().sum::<u64>(), *sum), (1, 1.0));

    let launched = provider
        .create(&claim("two", &[(labels::INSTANCE_TYPE, &["m5.large"])]))
        .await
        .unwrap();
    world.pass(60).await;
    let denied = ApiError::new("UnauthorizedOperation", "no");
    world.cloud.fail("TerminateInstances", &denied, 1);
    assert!(provider.delete(&launched).await.is_err());
    let failures = measured(
        &provider,
        "karpenter_cloudprovider_instance_termination_failures_total",
    );
    let zone = launched.label(labels::ZONE).unwrap();
    assert_eq!(numbers(&failures).keys().next().unwrap()[0], zone);
}

#[tokio::test(start_paused = true)]
async fn a_060_a_nodeclaim_of_a_class_that_is_missing_says_so_in_an_event() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider();
    world.pass(60).await;
    let mut wanted = claim("one", &[]);
    wanted.spec.node_class_ref.name = "missing".to_owned();
    assert!(provider.create(&wanted).await.is_err());
    let told = provider.notices().unwrap().next().await.unwrap();
    assert_eq!(
        (
            told.kind.as_str(),
            told.name.as_str(),
            told.is_warning,
            told.message.as_str()
        ),
        ("NodeClaim", "one", true, "Failed resolving NodeClass")
    );
}
