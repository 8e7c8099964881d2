//! what instance types hold, reserve, are labelled with and cost.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::{CapacityReservation, EC2NodeClassSpec, EC2NodeClassStatus, Subnet};
use spokeshave_model::{InstanceType, Price, Requirement, ResourceName, Resources};
use spokeshave_provider_aws::instance_types::{self, Context, Settings, category_and_generation};
use spokeshave_provider_aws::learned::Learned;
use spokeshave_provider_aws::offerings::{Market, Region, fingerprint, instance_types};
use spokeshave_provider_aws::prices::Prices;
use spokeshave_provider_aws::requests::Tags;
use spokeshave_provider_aws::status::verdict_key;
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
            let dollars = row["price"].as_f64().unwrap();
            // Ours are whole nano-dollars, of which upstream's ten-millionth would leave nothing (A4.1): a half is rounded up.
            let price = match row["capacity_type"].as_str() {
                Some("reserved") => Price::from_dollars(dollars * 10.0 + 1e-13),
                _ => Price::from_dollars(dollars),
            };
            (
                text("capacity_type"),
                text("zone"),
                text("zone_id"),
                row["available"].as_bool().unwrap() && !is_stale,
                price,
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

#[cfg_attr(feature = "asked", test)]
#[cfg_attr(
    not(feature = "asked"),
    allow(dead_code, reason = "`just parity-aws` runs it")
)]
fn a_042_a_044_a_047_every_type_of_every_family_with_every_kubelet_setting_is_as_upstream_has_it() {
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

/// What is for sale on us-west-2's m5.large and its neighbours, where a class has a reservation of each of them.
fn offerings_with_reservations(prices: &Prices, reserved: &[&str]) -> Vec<InstanceType> {
    let catalog = catalog("../catalog.json");
    let mut class = class("plain", "AL2023", &catalog.zones);
    let zone = catalog.zones[0].zone.clone();
    let of = |name: &&str| CapacityReservation {
        id: format!("cr-{name}"),
        availability_zone: zone.clone(),
        instance_type: (*name).to_owned(),
        reservation_type: "default".to_owned(),
        state: "active".to_owned(),
        ..CapacityReservation::default()
    };
    class.status.as_mut().unwrap().capacity_reservations = reserved.iter().map(of).collect();
    let context = Context {
        class: &class,
        region: "us-west-2",
        settings: &Settings::default(),
        learned_memory_bytes: None,
    };
    let free = reserved.iter().map(|name| (format!("cr-{name}"), 1)).collect();
    let market = Market {
        prices,
        unavailable: &Unavailable::default(),
        reservations: &free,
        shifted: &BTreeSet::new(),
        learned: &Learned::default(),
        now: Timestamp::UNIX_EPOCH,
    };
    instance_types(&catalog.region, &context, &market)
}

fn price_of(types: &[InstanceType], name: &str, capacity_type: &str) -> Option<Price> {
    let one = types.iter().find(|one| one.name == name).unwrap();
    let mut bought = one.offerings.iter().filter(|offering| {
        offering.available
            && offering
                .capacity_type()
                .is_some_and(|it| it.as_str() == capacity_type)
    });
    bought.next().map(|offering| offering.price)
}

/// Types whose prices are within a cent, and the smallest ones.
#[test]
fn a_057_reservations_are_ordered_as_on_demand_prices_and_none_is_free() {
    let prices = |dollars: [&str; 2]| {
        let mut prices = Prices::built_in("us-west-2");
        let names = ["m5.large", "m5.xlarge"];
        let known = names.map(str::to_owned).into_iter().zip(dollars);
        prices.set_on_demand(known.map(|(name, text)| (name, text.parse().unwrap())).collect());
        prices
    };
    for dollars in [
        ["0.085", "0.086"],
        ["0.0042", "0.0052"],
        ["0.0094", "0.0104"],
        ["98.32", "98.33"],
    ] {
        let types = offerings_with_reservations(&prices(dollars), &["m5.large", "m5.xlarge"]);
        let [lower, higher] =
            ["m5.large", "m5.xlarge"].map(|name| price_of(&types, name, "reserved").unwrap());
        assert!(
            Price::ZERO < lower && lower < higher,
            "{dollars:?}: {lower:?} {higher:?}"
        );
        assert!(
            higher < "0.0005".parse().unwrap(),
            "below every other price: {higher:?}"
        );
    }
}

/// A type that EC2 lists before the pricing API knows it.
#[test]
fn a_050_a_type_without_a_price_is_sold_at_that_of_an_overlay_and_only_there() {
    let mut prices = Prices::default();
    let sold = |prices: &Prices, capacity_type: &str| {
        price_of(
            &offerings_with_reservations(prices, &["m5.large"]),
            "m5.large",
            capacity_type,
        )
    };
    assert_eq!(sold(&prices, "on-demand"), None);
    assert_eq!(
        sold(&prices, "reserved"),
        Some(Price::ZERO),
        "it is paid for already"
    );
    let price: Price = "1.20".parse().unwrap();
    prices.set_overlaid(BTreeMap::from([("m5.large".to_owned(), price)]));
    for capacity_type in ["on-demand", "spot"] {
        assert_eq!(sold(&prices, capacity_type), Some(price), "{capacity_type}");
    }
    assert_eq!(sold(&prices, "reserved"), Some(Price::ZERO), "as upstream has it");
    let listed: Price = "0.096".parse().unwrap();
    prices.set_on_demand(BTreeMap::from([("m5.large".to_owned(), listed)]));
    assert_eq!(
        sold(&prices, "on-demand"),
        Some(listed),
        "what it costs is known now"
    );
}

/// Launches take addresses all the time, and each changes the order in which a class has its subnets.
#[test]
fn a_035_a_050_the_order_of_subnets_makes_no_other_types_and_no_other_verdict() {
    let catalog = catalog("../catalog.json");
    let class = class("plain", "AL2023", &catalog.zones);
    let mut other = class.clone();
    other.status.as_mut().unwrap().subnets.reverse();
    assert_ne!(class.status, other.status);
    assert_eq!(fingerprint(&class), fingerprint(&other));
    let tags = Tags::default();
    assert_eq!(verdict_key(&class, &tags), verdict_key(&other, &tags));
    other.status.as_mut().unwrap().subnets.pop();
    assert_ne!(fingerprint(&class), fingerprint(&other));
    assert_ne!(verdict_key(&class, &tags), verdict_key(&other, &tags));
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
