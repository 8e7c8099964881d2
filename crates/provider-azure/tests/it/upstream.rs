//! Against upstream's own provider: what karpenter-provider-azure answers about sizes and errors (`golden/upstream`, facts got by running it), and what
//! this provider answers to the same. Equal, or listed here and in docs/azure.md with the reason.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use spokeshave_api::AKSNodeClass;
use spokeshave_model::labels as core;
use spokeshave_model::{CapacityType, InstanceType, Offering, Price, Resources};
use spokeshave_provider_azure::errors::{ArmError, Attempt, Failure, Verdict, launch_failure};
use spokeshave_provider_azure::instance_types::{NetworkPlugin, Settings};
use spokeshave_provider_azure::labels;
use spokeshave_provider_azure::offerings::{self, Market, Quota, Usage, UsageName};
use spokeshave_provider_azure::prices::{self, Prices};
use spokeshave_provider_azure::skus::{self, Sku};
use spokeshave_provider_azure::unavailable::Unavailable;

use crate::{REGION, at, class, settings};

/// Facts of a type by name: labels, amounts, offerings.
type Facts = BTreeMap<String, String>;
type Types = BTreeMap<String, Facts>;

/// Sizes that only this provider has, and why.
const ONLY_OURS: [(&str, &str); 2] = [
    ("Standard_D4s_v99", "upstream cannot read versions of two digits"),
    (
        "Standard_D2_v4",
        "upstream leaves out what names no architecture; here it is x64, as all were before arm64",
    ),
];

/// Facts that differ, by key, and why; `*` stands for all sizes.
const DIFFERENT: [(&str, &str, &str); 1] = [(
    "Standard_ND96isr_MI300X_v5",
    labels::SKU_GPU_NAME,
    "upstream reads only names of accelerators that end with a digit",
)];

#[derive(Deserialize)]
struct Question {
    why: String,
    sku: Sku,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Class {
    name: String,
    spec: serde_json::Value,
    network_plugin: Option<String>,
    #[serde(default)]
    network_plugin_mode: String,
    vm_memory_overhead_percent: Option<f64>,
    node_resource_group: Option<String>,
    #[serde(default)]
    usages: BTreeMap<String, (i64, i64)>,
}

fn questions() -> Vec<Question> {
    serde_json::from_str(include_str!("../golden/upstream/skus.json")).unwrap()
}

fn classes() -> Vec<Class> {
    serde_json::from_str(include_str!("../golden/upstream/classes.json")).unwrap()
}

fn all_skus() -> Vec<Sku> {
    let asked = questions().into_iter().map(|it| it.sku);
    skus::facts(REGION).into_iter().chain(asked).collect()
}

fn instance_types(
    class: &AKSNodeClass,
    settings: &Settings,
    quota: &Quota,
    out: &Unavailable,
) -> Vec<InstanceType> {
    let market = Market {
        prices: &Prices::built_in(),
        unavailable: out,
        quota,
        now: at(0),
    };
    offerings::instance_types(&all_skus(), class, settings, &market)
}

fn ours(asked: &Class) -> Types {
    let network_plugin = match (
        asked.network_plugin.as_deref(),
        asked.network_plugin_mode.as_str(),
    ) {
        (None, _) | (Some("azure"), "overlay") => NetworkPlugin::AzureOverlay,
        (Some("azure"), "") => NetworkPlugin::AzureNodeSubnet,
        (Some("none"), _) => NetworkPlugin::None,
        _ => NetworkPlugin::Other,
    };
    let usual = settings();
    let settings = Settings {
        network_plugin,
        vm_memory_overhead_percent: asked
            .vm_memory_overhead_percent
            .unwrap_or(usual.vm_memory_overhead_percent),
        node_resource_group: asked
            .node_resource_group
            .clone()
            .unwrap_or(usual.node_resource_group),
        region: usual.region,
        mode: usual.mode,
    };
    let usages = asked.usages.iter().map(|(family, (current, limit))| Usage {
        name: UsageName {
            value: family.clone(),
        },
        current_value: *current,
        limit: *limit,
    });
    let quota = Quota::new(usages.collect(), at(0));
    let spec = serde_json::from_value(asked.spec.clone()).unwrap();
    let node_class = AKSNodeClass::new("class", spec);
    let types = instance_types(&node_class, &settings, &quota, &Unavailable::default());
    types.iter().map(|it| (it.name.clone(), facts(it))).collect()
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

/// Labels that differ between a type's offerings. Upstream's types have the values of those that are available; these here have all, so that what is sold
/// out is told from what is not sold.
const OF_OFFERINGS: [&str; 4] = [
    core::ZONE,
    core::CAPACITY_TYPE,
    labels::PLACEMENT_SCOPE,
    labels::SKU_STORAGE_ULTRA_SSD,
];

fn values_of(it: &InstanceType, key: &str, of: impl Fn(&Offering) -> bool) -> BTreeSet<String> {
    it.offerings
        .iter()
        .filter(|offering| of(offering))
        .flat_map(|offering| offering.requirements.get(key).values().clone())
        .collect()
}

fn facts(it: &InstanceType) -> Facts {
    let mut facts: Facts = labels::WELL_KNOWN
        .into_iter()
        .chain([
            core::INSTANCE_TYPE,
            core::ARCH,
            core::OS,
            core::REGION,
            core::ZONE,
            core::CAPACITY_TYPE,
        ])
        .map(|key| {
            let own = it.requirements.get(key);
            let values: BTreeSet<String> = if OF_OFFERINGS.contains(&key) {
                let all: BTreeSet<String> = values_of(it, key, |_| true);
                assert!(own.values().iter().eq(&all), "{}: {key}", it.name);
                values_of(it, key, |offering| offering.available)
            } else {
                own.values().iter().cloned().collect()
            };
            let values: Vec<String> = values.into_iter().collect();
            (key.to_owned(), or_dash(values.join(",")))
        })
        .collect();
    let mut amounts = |of: &str, resources: &Resources| {
        for (name, amount) in resources.iter().filter(|(_, amount)| *amount != 0) {
            let unit = if name == "cpu" { "m" } else { "" };
            facts.insert(format!("{of}.{name}"), format!("{amount}{unit}"));
        }
    };
    amounts("capacity", &it.capacity);
    amounts("kubeReserved", &it.overhead.kube_reserved);
    amounts("systemReserved", &it.overhead.system_reserved);
    amounts("evictionThreshold", &it.overhead.eviction_threshold);
    amounts("allocatable", &it.allocatable());
    let mut offers: Vec<String> = it
        .offerings
        .iter()
        .map(|offering| {
            let values = |key: &str| offering.requirements.get(key).values().clone();
            let (zone, kind) = (offering.zone().unwrap(), offering.capacity_type().unwrap());
            let scope = if zone == "0" { "regional" } else { "zonal" };
            let priority = if kind == CapacityType::Spot {
                "spot"
            } else {
                "regular"
            };
            assert!(
                values(labels::PLACEMENT_SCOPE).iter().eq([scope]),
                "{}: {zone}",
                it.name
            );
            for key in [labels::AKS_PRIORITY, labels::AKS_SCALE_SET_PRIORITY] {
                assert!(values(key).iter().eq([priority]), "{}: {key}", it.name);
            }
            let state = if offering.available { '+' } else { '-' };
            let unknown = !prices::is_known(&it.name);
            assert!(!unknown || offering.price == Price::UNKNOWN, "{}", it.name);
            let price = if unknown { "$" } else { "" };
            let disks = values(labels::SKU_STORAGE_ULTRA_SSD);
            let ultra = if disks.iter().any(|it| it == "true") {
                "u"
            } else {
                ""
            };
            let zone = zone.rsplit('-').next().unwrap();
            format!("{}/{zone}{state}{price}{ultra}", kind.as_str())
        })
        .collect();
    offers.sort();
    facts.insert("offerings".to_owned(), offers.join(" "));
    facts
}

fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect())
}

/// What upstream answers for the first class.
fn theirs_first() -> Types {
    let mut common = Facts::new();
    let mut header: Vec<&str> = Vec::new();
    let mut types = Types::new();
    for row in rows(include_str!("../golden/upstream/instance_types.tsv")) {
        if row[0] == "*" {
            common.insert(row[1].to_owned(), row[2].to_owned());
        } else if header.is_empty() {
            header = row;
        } else {
            let cells = header.iter().zip(&row).skip(1);
            let mut facts = common.clone();
            facts.extend(cells.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
            types.insert(row[0].to_owned(), facts);
        }
    }
    types
}

/// What it answers for another, which is written down as a difference.
fn theirs(asked: &Class, first: &Types) -> Types {
    let mut types = first.clone();
    let mut said = asked.name == classes()[0].name;
    for row in rows(include_str!("../golden/upstream/classes.tsv")).filter(|row| row[0] == asked.name) {
        said = true;
        let (name, key, value) = (row[1], row[2], row[3].to_owned());
        match (name, key) {
            (_, "same") => {}
            (_, "absent") => assert!(types.remove(name).is_some(), "{name}"),
            (_, "added") => {
                let same_for_all = rows(include_str!("../golden/upstream/instance_types.tsv"))
                    .filter(|row| row[0] == "*")
                    .map(|row| (row[1].to_owned(), row[2].to_owned()));
                types.insert(name.to_owned(), same_for_all.collect());
            }
            ("*", _) => types.values_mut().for_each(|facts| {
                facts.insert(key.to_owned(), value.clone());
            }),
            _ => {
                types.get_mut(name).unwrap().insert(key.to_owned(), value);
            }
        }
    }
    assert!(said, "nothing is written down for {}", asked.name);
    types
}

#[test]
fn z_005_z_020_z_022_z_023_sizes_are_what_upstream_makes_of_them() {
    let first = theirs_first();
    assert!(first.len() >= 100, "{} sizes", first.len());
    let mut compared = 0;
    let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut problems = Vec::new();
    for asked in classes() {
        let (ours, theirs) = (ours(&asked), theirs(&asked, &first));
        let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        for name in names {
            let (left, right) = (ours.get(name), theirs.get(name));
            let (Some(left), Some(right)) = (left, right) else {
                match ONLY_OURS.iter().find(|(size, _)| size == name && left.is_some()) {
                    Some((size, _)) => drop(used.insert((*size, "-"))),
                    None => problems.push(format!(
                        "{}: {name} is a size of {} only",
                        asked.name,
                        if left.is_some() { "ours" } else { "theirs" }
                    )),
                }
                continue;
            };
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                compared += 1;
                let value = |facts: &Facts| facts.get(key).cloned().unwrap_or_else(|| "-".to_owned());
                let (left, right) = (value(left), value(right));
                if left == right {
                    continue;
                }
                let listed = DIFFERENT
                    .iter()
                    .find(|(size, of, _)| (*size == "*" || size == name) && of == key);
                match listed {
                    Some((size, of, _)) => drop(used.insert((*size, *of))),
                    None => problems.push(format!(
                        "{}: {name} {key}: ours {left}, theirs {right}",
                        asked.name
                    )),
                }
            }
        }
    }
    problems.sort();
    assert!(
        problems.is_empty(),
        "{} of {compared}:\n{}",
        problems.len(),
        problems.join("\n")
    );
    assert!(compared > 50_000, "{compared} facts compared");
    // A difference that is none any more leaves the lists.
    assert_eq!(used.len(), ONLY_OURS.len() + DIFFERENT.len(), "{used:?}");
}

#[derive(Deserialize)]
struct Asked {
    name: String,
    code: String,
    message: String,
}

/// What upstream does after an error, or this provider.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    verdict: String,
    minutes: Option<i64>,
    offers: usize,
    some: BTreeSet<String>,
}

/// Errors that this provider takes otherwise in any zone and for any capacity type, and why.
const OTHERWISE: [(&str, &str, &str); 5] = [
    (
        "another quota",
        "failed: SubscriptionQuotaReached",
        "upstream takes it for an error of no kind, and asks for the same size again",
    ),
    (
        "InsufficientSubnetSize",
        "failed: InsufficientSubnetSize",
        "upstream takes it for an error of no kind; here the condition names it",
    ),
    (
        "SubnetIsFull",
        "failed: InsufficientSubnetSize",
        "the code of Microsoft.Network for the same",
    ),
    (
        "VMSizeNotSupported",
        "failed: SKUNotAvailable",
        "upstream reads it only as an answer of the AKS machine API; here it means the same from either",
    ),
    (
        "BadRequest about the subscription",
        "failed: SKUNotAvailable",
        "upstream reads it only as an answer of the AKS machine API; here it means the same from either",
    ),
];

fn verdict(failure: Option<&Failure>) -> String {
    match failure.map(|it| &it.verdict) {
        None => "nothing".to_owned(),
        Some(Verdict::InsufficientCapacity(_)) => "insufficient capacity".to_owned(),
        Some(Verdict::Failed { reason, .. }) => format!("failed: {reason}"),
    }
}

fn types(out: &Unavailable) -> Vec<InstanceType> {
    instance_types(&class("{}"), &settings(), &Quota::default(), out)
}

fn answer(all: &[InstanceType], asked: &Asked, zone: &str, capacity_type: CapacityType) -> Answer {
    let attempt = Attempt {
        instance_type: all.iter().find(|it| it.name == "Standard_D4s_v5").unwrap(),
        family: "standardDSv5Family",
        cpus: 4,
        zone,
        capacity_type,
    };
    let error = ArmError::new(&asked.code, &asked.message);
    let failure = launch_failure(&error, &attempt);
    let mut unavailable = Unavailable::default();
    for mark in failure.iter().flat_map(|it| &it.marks) {
        unavailable.mark(mark, at(0));
    }
    let mut gone = BTreeSet::new();
    let after = if unavailable == Unavailable::default() {
        all.to_vec()
    } else {
        types(&unavailable)
    };
    for (before, after) in all.iter().zip(&after) {
        let left_out = before.offerings.iter().zip(&after.offerings);
        gone.extend(
            left_out
                .filter(|(before, after)| before.available && !after.available)
                .map(|(offering, _)| {
                    let zone = offering.zone().unwrap().rsplit('-').next().unwrap();
                    let kind = offering.capacity_type().unwrap().as_str();
                    let size = before.name.trim_start_matches("Standard_");
                    format!("{size}/{zone}/{kind}")
                }),
        );
    }
    let end = unavailable.next_end();
    let same_size = |it: &&String| {
        !ONLY_OURS
            .iter()
            .any(|(size, _)| it.starts_with(size.trim_start_matches("Standard_")))
    };
    Answer {
        verdict: verdict(failure.as_ref()),
        minutes: end.map(|end| end.duration_since(at(0)).as_mins()),
        offers: gone.iter().filter(same_size).count(),
        some: gone
            .into_iter()
            .filter(|it| NEIGHBOURS.iter().any(|size| it.starts_with(size)))
            .collect(),
    }
}

/// The sizes whose offerings are written down one by one.
const NEIGHBOURS: [&str; 4] = ["D2s_v5/", "D4s_v5/", "D8s_v5/", "D8s_v3/"];

#[test]
fn z_036_errors_are_what_upstream_makes_of_them() {
    let asked: Vec<Asked> = serde_json::from_str(include_str!("../golden/upstream/errors.json")).unwrap();
    let all = types(&Unavailable::default());
    let mut used = BTreeSet::new();
    let mut problems = Vec::new();
    let mut compared = 0;
    for row in rows(include_str!("../golden/upstream/error_table.tsv")).skip(1) {
        let (name, path, zone) = (row[0], row[1], row[2]);
        let capacity_type = CapacityType::ALL
            .into_iter()
            .find(|it| it.as_str() == row[3])
            .unwrap();
        let error = asked.iter().find(|it| it.name == name).unwrap();
        let ours = answer(&all, error, zone, capacity_type);
        let theirs = Answer {
            verdict: row[4].to_owned(),
            minutes: row[5].parse().ok(),
            offers: row[6].parse().unwrap(),
            some: row[7]
                .split(' ')
                .filter(|it| *it != "-")
                .map(str::to_owned)
                .collect(),
        };
        compared += 1;
        if ours == theirs {
            continue;
        }
        match OTHERWISE
            .iter()
            .find(|(of, verdict, _)| *of == name && ours.verdict == *verdict && theirs.verdict == "nothing")
        {
            Some((of, ..)) => drop(used.insert(*of)),
            None => problems.push(format!(
                "{name} ({path}) in {zone}, {}:\n  ours   {ours:?}\n  theirs {theirs:?}",
                row[3]
            )),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(compared >= asked.len() * 4, "{compared}");
    assert_eq!(used.len(), OTHERWISE.len(), "{used:?}");
}

#[test]
fn z_020_each_size_that_was_asked_about_is_there_or_left_out_as_upstream_does() {
    let first = theirs_first();
    let ours = ours(&classes()[0]);
    let wrong: Vec<String> = questions()
        .into_iter()
        .filter(|it| ours.contains_key(&it.sku.name) != first.contains_key(&it.sku.name))
        .filter(|it| !ONLY_OURS.iter().any(|(size, _)| *size == it.sku.name))
        .map(|it| format!("{}: {}", it.sku.name, it.why))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
