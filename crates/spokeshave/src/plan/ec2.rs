//! What NodePools of EC2NodeClasses are offered in a plan: EC2's instance types with their prices, from the tables in this program.
//!
//! Owns what is assumed where a dump does not say it: region, zones, subnets. How a class changes a type is decided in `provider-aws`; no AWS call is made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use spokeshave_api::ec2_node_class::{AmiFamily, EC2NodeClassSpec, EC2NodeClassStatus, Subnet};
use spokeshave_api::{EC2NodeClass, NodePool, labels};
use spokeshave_ec2_simulated as facts;
use spokeshave_model::InstanceType;
use spokeshave_plan::report::some_of;
use spokeshave_provider_aws::instance_types::{Context, Settings};
use spokeshave_provider_aws::learned::Learned;
use spokeshave_provider_aws::offerings::{self, Market, Region};
use spokeshave_provider_aws::prices::Prices;
use spokeshave_provider_aws::unavailable::Unavailable;

use super::dump::Dump;
use super::regions::REGIONS;
use crate::arguments::Misuse;

/// Default zones of a region.
const ZONES: [char; 3] = ['a', 'b', 'c'];

/// The tables, and the requested region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ec2 {
    region: Option<String>,
}

/// Instance types by the name of their EC2NodeClass, and what was assumed.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    pub(crate) types: BTreeMap<String, Arc<[InstanceType]>>,
    /// Sentences for standard error.
    pub(crate) notes: Vec<String>,
}

/// The NodePool's NodeClass is an EC2NodeClass.
pub(crate) fn is_ec2(pool: &NodePool) -> bool {
    let class = &pool.spec.template.spec.node_class_ref;
    class.group == EC2NodeClass::GROUP && class.kind == EC2NodeClass::KIND
}

impl Ec2 {
    /// None where a catalog counts for every NodePool.
    ///
    /// # Errors
    /// There is no such region.
    pub(crate) fn unless(catalog: Option<&Path>, region: Option<&str>) -> Result<Option<Self>> {
        if let Some(region) = region.filter(|region| !REGIONS.contains(region)) {
            let said = format!(
                "--region {region:?}: AWS has no such region; expected one of {}",
                REGIONS.join(", ")
            );
            return Err(Misuse(said).into());
        }
        Ok(catalog.is_none().then(|| Ec2 {
            region: region.map(str::to_owned),
        }))
    }

    /// The instance types for each class that a NodePool references. `supported` has the supported kinds, as (group, kind); empty means all.
    pub(crate) fn offers(&self, dump: &Dump, supported: &[(String, String)]) -> Offers {
        let counts = supported.is_empty()
            || supported
                .iter()
                .any(|(group, kind)| group == EC2NodeClass::GROUP && kind == EC2NodeClass::KIND);
        let pools = dump.node_pools.iter().filter(|pool| counts && is_ec2(pool));
        let named: BTreeSet<&str> = pools
            .map(|pool| pool.spec.template.spec.node_class_ref.name.as_str())
            .collect();
        let mut offers = Offers::default();
        if named.is_empty() {
            return offers;
        }
        let written = dump.node_classes.iter().filter_map(|class| class.ec2.as_ref());
        let written: BTreeMap<&str, &Arc<EC2NodeClass>> =
            written.map(|class| (class.name(), class)).collect();
        let name = self.region_of(dump, &written);
        let region = region(name, zones_of(dump, &written));
        let prices = Prices::built_in(&region.name);
        offers.notes.push(tables(&region, named.len()));
        let old = dump.outdated.iter();
        let old = old.filter(|((kind, _), _)| kind == EC2NodeClass::KIND);
        let old: BTreeSet<&str> = old.flat_map(|(_, names)| names).map(String::as_str).collect();
        let (mut absent, mut outdated, mut without_status) = (Vec::new(), Vec::new(), Vec::new());
        for name in named {
            let class = match written.get(name) {
                Some(class) => EC2NodeClass::clone(class),
                None if written.is_empty() => {
                    match old.contains(name) {
                        true => outdated.push(name),
                        false => absent.push(name),
                    }
                    assumed(name)
                }
                // That the class is missing is said of the NodePool.
                None => continue,
            };
            let knows_subnets = class
                .status
                .as_ref()
                .is_some_and(|status| !status.subnets.is_empty());
            if !knows_subnets && written.contains_key(name) {
                without_status.push(name);
            }
            let class = with_subnets(class, &region);
            offers
                .types
                .insert(name.to_owned(), sold(&class, &region, &prices));
        }
        if !absent.is_empty() {
            offers.notes.push(format!(
                "no EC2NodeClass is in the dump ({}): taken as AL2023 with default kubelet settings and a subnet in each zone; `kubectl get ec2nodeclasses -o yaml` has them",
                some_of(&absent, 5)
            ));
        }
        if !outdated.is_empty() {
            offers.notes.push(format!(
                "EC2NodeClass {} is of an older version and not read: taken as AL2023 with default kubelet settings and a subnet in each zone",
                some_of(&outdated, 5)
            ));
        }
        if !without_status.is_empty() {
            offers.notes.push(format!(
                "EC2NodeClass {} has no subnets in its status: taken as having one in each zone",
                some_of(&without_status, 5)
            ));
        }
        offers
    }

    /// The requested region, that of most nodes, that of the classes' subnets, or one with tables.
    fn region_of(&self, dump: &Dump, classes: &BTreeMap<&str, &Arc<EC2NodeClass>>) -> String {
        if let Some(region) = &self.region {
            return region.clone();
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for node in &dump.nodes {
            let region = node
                .metadata
                .labels
                .as_ref()
                .and_then(|map| map.get(labels::REGION));
            if let Some(region) = region {
                *counts.entry(region).or_default() += 1;
            }
        }
        if let Some((region, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
            return region.to_owned();
        }
        let zone = subnets(classes).map(|subnet| subnet.zone.as_str()).next();
        let region = zone.map(|zone| zone.trim_end_matches(|it: char| it.is_ascii_lowercase()));
        region.unwrap_or(facts::REGION).to_owned()
    }
}

fn subnets<'a>(classes: &'a BTreeMap<&str, &Arc<EC2NodeClass>>) -> impl Iterator<Item = &'a Subnet> {
    let statuses = classes.values().filter_map(|class| class.status.as_ref());
    statuses.flat_map(|status| &status.subnets)
}

/// Zones that the dump names.
fn zones_of(dump: &Dump, classes: &BTreeMap<&str, &Arc<EC2NodeClass>>) -> BTreeSet<String> {
    let nodes = dump.nodes.iter().filter_map(|node| {
        let map = node.metadata.labels.as_ref()?;
        map.get(labels::ZONE).cloned()
    });
    nodes
        .chain(subnets(classes).map(|subnet| subnet.zone.clone()))
        .collect()
}

/// The table's types in a region: availability is known for the table's own zones; other zones are assumed to have all types.
fn region(name: String, named: BTreeSet<String>) -> Region {
    let mut region = facts::facts();
    let known: BTreeSet<String> = region.zones.values().flatten().cloned().collect();
    let mut further: BTreeSet<String> = named
        .into_iter()
        .filter(|zone| zone.starts_with(&name) && !known.contains(zone))
        .collect();
    if name != facts::REGION {
        if further.is_empty() {
            further = ZONES.iter().map(|zone| format!("{name}{zone}")).collect();
        }
        for zones in region.zones.values_mut() {
            zones.clear();
        }
    }
    for zones in region.zones.values_mut() {
        zones.extend(further.iter().cloned());
    }
    region.name = name;
    region
}

/// Where types and prices are from.
fn tables(region: &Region, classes: usize) -> String {
    let whose = if Prices::has_table(&region.name) {
        &region.name
    } else {
        facts::REGION
    };
    let other = if whose == region.name {
        ""
    } else {
        ", which has no table of its own"
    };
    let of = if classes == 1 {
        "an EC2NodeClass"
    } else {
        "EC2NodeClasses"
    };
    format!(
        "NodePools of {of} are planned with {} instance types of EC2 in {}{other}, at the on-demand prices of {whose}; spot counts as on-demand; --region and --catalog FILE name others",
        region.types.len(),
        region.name
    )
}

/// A class of which nothing is known but its name.
fn assumed(name: &str) -> EC2NodeClass {
    let spec = EC2NodeClassSpec {
        ami_family: Some(AmiFamily::Al2023),
        ..EC2NodeClassSpec::default()
    };
    EC2NodeClass::new(name, spec)
}

/// The class as its controller leaves it where each zone has a subnet.
fn with_subnets(mut class: EC2NodeClass, region: &Region) -> EC2NodeClass {
    let status = class.status.get_or_insert_with(EC2NodeClassStatus::default);
    if status.subnets.is_empty() {
        let zones: BTreeSet<&String> = region.zones.values().flatten().collect();
        let subnet = |zone: &String| Subnet {
            id: format!("subnet-{zone}"),
            zone: zone.clone(),
            ..Subnet::default()
        };
        status.subnets = zones.into_iter().map(subnet).collect();
    }
    class
}

fn sold(class: &EC2NodeClass, region: &Region, prices: &Prices) -> Arc<[InstanceType]> {
    let context = Context {
        class,
        region: &region.name,
        settings: &Settings::default(),
        learned_memory_bytes: None,
    };
    let market = Market {
        prices,
        unavailable: &Unavailable::default(),
        reservations: &BTreeMap::new(),
        shifted: &BTreeSet::new(),
        learned: &Learned::default(),
        now: Timestamp::UNIX_EPOCH,
    };
    offerings::instance_types(region, &context, &market).into()
}
