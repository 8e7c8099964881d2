//! what our whole provider asked a recording proxy for, against what upstream's own asked for the same scenarios. `just parity-aws`
//! records both.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::launches::{Scenario, contents, with_contents, written};
use crate::oracle;

/// The calls of one side.
struct Calls {
    /// Every template that was made, by name, by its meaning.
    templates: BTreeMap<String, Value>,
    rehearsed: BTreeSet<String>,
    /// How many instances were asked for, by everything else that a fleet says.
    fleets: BTreeMap<String, u64>,
    fleet_calls: usize,
}

/// Names that are chosen at random: instance profiles.
fn without_random_names(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), without_random_names(value)))
            .collect(),
        Value::Array(items) => items.iter().map(without_random_names).collect(),
        Value::String(text) if text.starts_with("oracle_") => json!("oracle_*"),
        other => other.clone(),
    }
}

fn tag<'a>(request: &'a Value, name: &str) -> &'a str {
    let specifications = request["TagSpecification"].as_array().into_iter().flatten();
    let mut tags = specifications.flat_map(|one| one["Tag"].as_array().into_iter().flatten());
    let found = tags.find(|tag| tag["Key"] == name);
    found.and_then(|tag| tag["Value"].as_str()).unwrap_or_default()
}

impl Calls {
    fn of(scenario: &Scenario, requests: &[Value]) -> Self {
        let of = |action: &str| {
            let requests = requests.iter().filter(|one| one["action"] == action);
            let requests = requests.map(|one| without_random_names(&one["parameters"]));
            requests.collect::<Vec<Value>>()
        };
        let mut templates = BTreeMap::new();
        for request in of("CreateLaunchTemplate") {
            let class = scenario.class(tag(&request, "karpenter.k8s.aws/ec2nodeclass"));
            let family = class.resolved_ami_family();
            templates.append(&mut contents(&[request], family.as_str()));
        }
        let mut calls = Calls {
            templates,
            rehearsed: BTreeSet::new(),
            fleets: BTreeMap::new(),
            fleet_calls: 0,
        };
        let pools = scenario.objects::<spokeshave_api::NodePool>("NodePool");
        for request in of("CreateFleet") {
            let class = scenario.class(tag(&request, "karpenter.k8s.aws/ec2nodeclass"));
            let is_rehearsal = request["DryRun"] == "true";
            // Upstream rehearses Windows, and classes without NodePools, with a type that has room for no pods: see launches.rs.
            let has_pool = pools
                .iter()
                .any(|pool| pool.spec.template.spec.node_class_ref.name == class.name());
            let is_windows = class.resolved_ami_family().as_str().starts_with("Windows");
            if is_rehearsal && (is_windows || !has_pool) {
                continue;
            }
            let mut fleet = with_contents(&request, &calls.templates);
            let count = fleet["TargetCapacitySpecification"]["TotalTargetCapacity"].take();
            if is_rehearsal {
                calls.rehearsed.insert(fleet.to_string());
            } else {
                let count: u64 = count.as_str().unwrap().parse().unwrap();
                *calls.fleets.entry(fleet.to_string()).or_default() += count;
                calls.fleet_calls += 1;
            }
        }
        calls
    }

    /// Templates of launches, without their names.
    fn made(&self) -> BTreeSet<String> {
        let templates = self.templates.values();
        let templates = templates.filter(|one| !tag(one, "karpenter.sh/nodepool").is_empty());
        templates
            .map(|one| {
                let mut template = one.clone();
                template["LaunchTemplateName"] = Value::Null;
                written(&template).to_string()
            })
            .collect()
    }
}

fn requests_of_upstream(scenario: &Scenario) -> Vec<Value> {
    let expected = &scenario.expected;
    let phases = ["node_classes", "launches"].map(|phase| oracle::list(expected, phase).iter());
    let phases = phases.into_iter().flatten().chain(expected.get("concurrent"));
    let requests = phases.flat_map(|phase| phase["requests"].as_array());
    requests.flatten().cloned().collect()
}

/// Type, zone and way to buy of every launched NodeClaim; nothing for the others.
fn launched(labels: &Value) -> Vec<Option<&str>> {
    [
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "karpenter.sh/capacity-type",
    ]
    .map(|label| labels[label].as_str())
    .into()
}

#[cfg_attr(feature = "asked", test)]
#[cfg_attr(
    not(feature = "asked"),
    allow(dead_code, reason = "`just parity-aws` runs it")
)]
fn a_065_a_073_a_074_the_whole_provider_asks_for_the_templates_and_fleets_that_upstream_asks_for() {
    let (mut fleets, mut instances, mut calls) = (0, 0, (0, 0));
    let names = oracle::generated("recorded-");
    assert!(!names.is_empty(), "there is nothing to compare");
    for name in &names {
        let scenario = Scenario::read(name);
        let theirs = Calls::of(&scenario, &requests_of_upstream(&scenario));
        let recorded = oracle::json(&format!("recorded-{name}.yaml"));
        let ours = Calls::of(&scenario, oracle::list(&recorded, "requests"));
        assert_eq!(ours.fleets.len(), theirs.fleets.len(), "{name}: fleets");
        for (our, their) in ours.fleets.iter().zip(&theirs.fleets) {
            assert_eq!(our, their, "{name}: fleets");
        }
        assert_eq!(ours.rehearsed, theirs.rehearsed, "{name}: rehearsals");
        let (made, expected) = (ours.made(), theirs.made());
        let more: Vec<_> = made.difference(&expected).collect();
        assert!(
            more.is_empty(),
            "{name}: templates that upstream does not make: {more:#?}"
        );
        let results = oracle::list(&recorded, "launches").iter();
        let results: BTreeMap<&str, &Value> =
            results.map(|one| (one["name"].as_str().unwrap(), one)).collect();
        for launch in oracle::list(&scenario.expected, "launches") {
            let claim = launch["name"].as_str().unwrap();
            let (came, came_of_ours) = (&launch["node_claim"], results[claim]);
            assert_eq!(
                launched(&came_of_ours["labels"]),
                launched(&came["metadata"]["labels"]),
                "{name}/{claim}: {came_of_ours} upstream: {}",
                launch["error"]
            );
        }
        println!(
            "{name}: {} different fleets, {} calls (upstream: {}), {} templates (upstream: {})",
            ours.fleets.len(),
            ours.fleet_calls,
            theirs.fleet_calls,
            made.len(),
            expected.len()
        );
        fleets += ours.fleets.len();
        instances += ours.fleets.values().sum::<u64>();
        calls = (calls.0 + ours.fleet_calls, calls.1 + theirs.fleet_calls);
    }
    println!(
        "{} scenarios, {fleets} different fleets, {instances} instances, calls: {calls:?}",
        names.len()
    );
    assert!(
        calls.0 * 5 <= calls.1 * 6,
        "CreateFleet calls, ours and upstream's: {calls:?}"
    );
}
