//! what instance types hold, reserve, are labelled with and cost.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::{EC2NodeClassSpec, EC2NodeClassStatus, Subnet};
use spokeshave_model::{InstanceType, Price, Requirement, ResourceName, Resources};
use spokeshave_provider_aws::instance_types::{self, Context, Settings, category_and_generation};
use spokeshave_provider_aws::learned::Learned;
use spokeshave_provider_aws::offerings::{Market, Region, instance_types};
use spokeshave_provider_aws::prices::Prices;
use spokeshave_provider_aws::unavailable::Unavailable;
use spokeshave_provider_aws::{compatibility, labels};

use crate::oracle;

pub struct Catalog {
    pub region: Region,
    pub zones: Vec<Subnet>,
}

pub fn catalog(name: &str) -> Catalog {
    let catalog = oracle::json(name);
    let types = oracle::list(&catalog, "InstanceTypes").iter().map(|info| {
        let info: spokeshave_provider_aws::describe::InstanceTypeInfo =
            serde_json::from_value(info.clone()).unwrap();
        (info.instance_type.clone(), info)
    });
    let zones = oracle::list(&catalog, "Zones").iter().map(|zone| Subnet {
        id: format!("subnet-{}", zone["Name"].as_str().unwrap()),
        zone: zone["Name"].as_str().unwrap().to_owned(),
        zone_id: zone["ID"].as_str().unwrap().to_owned(),
    });
    Catalog {
        region: Region {
            name: catalog["Region"].as_str().unwrap().to_owned(),
            types: types.collect(),
            zones: serde_json::from_value(catalog["Offerings"].clone()).unwrap(),
        },
        zones: zones.collect(),
    }
}

/// Classes that the oracle resolves for, each a line of JSON.
fn classes(file: &str) -> Vec<EC2NodeClass> {
    let written = oracle::text(file);
    let lines = written.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The class that the oracle resolved for: one of `nodeclasses.yaml`, or a plain one of its family.
pub fn class(name: &str, family: &str, zones: &[Subnet]) -> EC2NodeClass {
    class_of(&classes("nodeclasses.yaml"), name, family, zones)
}

fn class_of(classes: &[EC2NodeClass], name: &str, family: &str, zones: &[Subnet]) -> EC2NodeClass {
    let written = classes.iter().find(|class| class.name() == name).cloned();
    let mut class = written.unwrap_or_else(|| {
        let spec = EC2NodeClassSpec {
            ami_family: Some(family.into()),
            ..EC2NodeClassSpec::default()
        };
        EC2NodeClass::new(name, spec)
    });
    let status = class.status.get_or_insert_with(EC2NodeClassStatus::default);
    if status.subnets.is_empty() {
        status.subnets = zones.to_vec();
    }
    class
}

/// Amounts as the oracle writes them: decimal numbers in base units, zeros left out.
fn amounts(resources: &Resources) -> BTreeMap<String, f64> {
    let amounts = resources.iter().filter(|(_, amount)| *amount != 0);
    amounts
        .map(|(name, amount)| {
            let unit = if name == ResourceName::CPU { 1000.0 } else { 1.0 };
            (name.to_owned(), amount as f64 / unit)
        })
        .collect()
}

fn expected_amounts(value: &Value) -> BTreeMap<String, f64> {
    serde_json::from_value(value.clone()).unwrap()
}

fn labels_of(instance_type: &InstanceType) -> BTreeMap<String, BTreeSet<String>> {
    let requirements = instance_type.requirements.iter();
    requirements
        .filter(|requirement| !requirement.values().is_empty())
        .map(|requirement| (requirement.key().to_owned(), requirement.values().clone()))
        .collect()
}

fn offerings_of(instance_type: &InstanceType) -> Vec<(String, String, String, bool, Price)> {
    let text = |requirement: Option<&Requirement>| {
        requirement
            .and_then(Requirement::single_value)
            .unwrap_or_default()
            .to_owned()
    };
    let mut offerings: Vec<_> = instance_type
        .offerings
        .iter()
        .map(|offering| {
            (
                offering.capacity_type().unwrap().to_string(),
                text(offering.requirements.find(spokeshave_model::labels::ZONE)),
                text(offering.requirements.find(labels::ZONE_ID)),
                offering.available,
                offering.price,
            )
        })
        .collect();
    offerings.sort();
    offerings
}

fn check(catalog_name: &str, expected_name: &str, settings: &Settings) -> usize {
    let expected = oracle::json(&format!("expected/{expected_name}.json"));
    let classes = classes("nodeclasses.yaml");
    check_classes(&catalog(catalog_name), &classes, &expected, settings)
}

fn check_classes(
    catalog: &Catalog,
    classes: &[EC2NodeClass],
    expected: &Value,
    settings: &Settings,
) -> usize {
    let (prices, unavailable) = (Prices::built_in(&catalog.region.name), Unavailable::default());
    let reservations = BTreeMap::new();
    let mut checked = 0;
    for node_class in oracle::list(expected, "node_classes") {
        let name = node_class["name"].as_str().unwrap();
        let family = node_class["ami_family"].as_str().unwrap();
        let class = class_of(classes, name, family, &catalog.zones);
        assert_eq!(class.resolved_ami_family().as_str(), node_class["ami_family"]);
        let context = Context {
            class: &class,
            region: &catalog.region.name,
            settings,
            learned_memory_bytes: None,
        };
        let market = Market {
            prices: &prices,
            unavailable: &unavailable,
            reservations: &reservations,
            shifted: &BTreeSet::new(),
            learned: &Learned::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        let types = instance_types(&catalog.region, &context, &market);
        assert_eq!(types.len(), catalog.region.types.len(), "all types are returned");
        for row in oracle::list(node_class, "types") {
            let type_name = row["name"].as_str().unwrap();
            let ours = types.iter().find(|ours| ours.name == type_name).unwrap();
            compare(&format!("{name} {type_name}"), ours, row);
            let compatible = compatibility::check(&catalog.region.types[type_name], &class, None);
            assert_eq!(
                compatible.is_ok(),
                row["compatible"],
                "{name} {type_name}: {compatible:?}"
            );
            checked += 1;
        }
    }
    checked
}

fn compare(what: &str, ours: &InstanceType, row: &Value) {
    for (part, resources) in [
        ("capacity", &ours.capacity),
        ("kube_reserved", &ours.overhead.kube_reserved),
        ("system_reserved", &ours.overhead.system_reserved),
        ("eviction_threshold", &ours.overhead.eviction_threshold),
        ("allocatable", &ours.allocatable()),
    ] {
        assert_eq!(amounts(resources), expected_amounts(&row[part]), "{what}: {part}");
    }
    let expected: BTreeMap<String, BTreeSet<String>> =
        serde_json::from_value(row["requirements"].clone()).unwrap();
    assert_eq!(labels_of(ours), expected, "{what}: labels");
    let Some(rows) = row.get("offerings").and_then(Value::as_array) else {
        return;
    };
    let listed = oracle::differences("types");
    let is_stale = listed.keys().any(|class| what.starts_with(class));
    let mut expected: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |field: &str| row[field].as_str().unwrap().to_owned();
            (
                text("capacity_type"),
                text("zone"),
                text("zone_id"),
                row["available"].as_bool().unwrap() && !is_stale,
                Price::from_dollars(row["price"].as_f64().unwrap()),
            )
        })
        .collect();
    expected.sort();
    assert_eq!(offerings_of(ours), expected, "{what}: offerings");
}

#[test]
fn a_042_a_044_a_047_types_of_each_family_are_as_upstream_has_them() {
    assert_eq!(
        check("../catalog.json", "types-families", &Settings::default()),
        5 * 9
    );
}

#[test]
fn a_044_a_049_a_050_a_057_variants_of_classes_change_types_and_offerings_as_upstream_has_it() {
    assert_eq!(
        check("../catalog.json", "types-variants", &Settings::default()),
        27 * 3
    );
}

#[test]
fn a_044_accelerators_cards_and_odd_names_are_as_upstream_has_them() {
    assert_eq!(
        check("made-up-catalog.json", "types-made-up", &Settings::default()),
        5 * 9
    );
}

#[test]
fn a_042_settings_change_memory_and_pods() {
    let settings = Settings {
        vm_memory_overhead_percent: 0.02,
        reserved_enis: 1,
    };
    assert_eq!(check("../catalog.json", "types-flags", &settings), 5 * 2);
}

#[test]
fn a_042_a_044_a_047_every_type_of_every_family_with_every_kubelet_setting_is_as_upstream_has_it() {
    if !oracle::is_asked() {
        return;
    }
    let catalog = catalog("all-types.json");
    let mut checked = 0;
    for part in oracle::generated("types-") {
        let expected = oracle::json(&format!("expected/types-{part}.json"));
        let classes = classes(&format!("types-{part}.yaml"));
        let settings = Settings::default();
        let compared = check_classes(&catalog, &classes, &expected, &settings);
        assert_eq!(compared, classes.len() * catalog.region.types.len(), "{part}");
        checked += compared;
    }
    assert!(checked > 0, "there is nothing to compare");
    println!("{checked} answers for {} types", catalog.region.types.len());
}

#[test]
fn a_048_learned_memory_takes_the_place_of_the_formula() {
    let catalog = catalog("../catalog.json");
    let class = class("plain", "AL2023", &catalog.zones);
    let context = Context {
        class: &class,
        region: "us-west-2",
        settings: &Settings::default(),
        learned_memory_bytes: Some(8_000_000_000),
    };
    let info = &catalog.region.types["m5.large"];
    let instance_type = instance_types::resolve(info, &BTreeSet::new(), &context);
    assert_eq!(instance_type.capacity.get(ResourceName::MEMORY), 8_000_000_000);
}

#[test]
fn a_016_names_are_taken_apart() {
    for (name, expected) in [
        ("m5.large", Some(("m", "5"))),
        ("c7i-flex.large", Some(("c", "7"))),
        ("u-6tb1.112xlarge", Some(("u", "1"))),
        ("u7i-12tb.224xlarge", Some(("u", "7"))),
        ("mac2-m2pro.metal", Some(("mac", "2"))),
        ("trn1n.32xlarge", Some(("trn", "1"))),
        ("p6-b200.48xlarge", Some(("p", "6"))),
        ("hpc7g.4xlarge", Some(("hpc", "7"))),
        ("weird", None),
        ("5m.large", None),
        ("u-tb1.metal", None),
        ("", None),
    ] {
        assert_eq!(category_and_generation(name), expected, "{name}");
    }
    let catalog = oracle::json("../catalog.json");
    for info in oracle::list(&catalog, "InstanceTypes") {
        let name = info["InstanceType"].as_str().unwrap();
        assert!(category_and_generation(name).is_some(), "{name}");
    }
}

#[test]
fn types_without_what_ec2_usually_says_are_resolved_and_never_panic() {
    let catalog = catalog("../catalog.json");
    for info in [
        json!({"InstanceType": "x1.large"}),
        json!({"InstanceType": "", "NetworkInfo": {"DefaultNetworkCardIndex": 7}}),
    ] {
        let info = serde_json::from_value(info).unwrap();
        for family in ["AL2023", "Bottlerocket", "Windows2022", "Custom", "Plan9"] {
            let mut class = class("plain", family, &catalog.zones);
            class.spec.kubelet = Some(
                json!({"maxPods": "x", "kubeReserved": {"cpu": "much"}, "evictionHard": {"memory.available": "%"}}),
            );
            let context = Context {
                class: &class,
                region: "us-west-2",
                settings: &Settings::default(),
                learned_memory_bytes: None,
            };
            let instance_type = instance_types::resolve(&info, &BTreeSet::new(), &context);
            assert!(
                instance_type.capacity.get(ResourceName::CPU) == 0,
                "{instance_type:?}"
            );
        }
    }
}
