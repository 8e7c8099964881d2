//! What NodePools of EC2NodeClasses are offered in a plan: EC2's instance types with their prices, from the tables in this program.
//!
//! Owns what is assumed where a dump does not say it: region, zones, subnets. How a class changes a type is decided in `provider-aws`; no AWS call is made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use spokeshave_api::ec2_node_class::{AmiFamily, EC2NodeClassSpec, EC2NodeClassStatus, Subnet};
use spokeshave_api::{EC2NodeClass, Operator, labels};
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
    is_of_scenario: bool,
    classes: Classes,
    settings: Settings,
}

/// Where EC2NodeClasses are looked for.
#[derive(Clone, Debug, Default)]
enum Classes {
    #[default]
    Files,
    Cluster,
    /// In a cluster that does not list them, and says this.
    Refused(String),
}

/// Instance types by the name of their EC2NodeClass, and what was assumed.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    pub(crate) types: BTreeMap<String, Arc<[InstanceType]>>,
    /// Sentences for standard error.
    pub(crate) notes: Vec<String>,
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
            ..Ec2::default()
        }))
    }

    /// The same for a scenario, which names a catalog itself: no option does.
    #[must_use]
    pub(crate) fn of_scenario(self) -> Self {
        Ec2 {
            is_of_scenario: true,
            ..self
        }
    }

    /// The same for a cluster, and what it says if it does not list its classes.
    #[must_use]
    pub(crate) fn of_cluster(self, refusal: Option<String>) -> Self {
        Ec2 {
            classes: refusal.map_or(Classes::Cluster, Classes::Refused),
            ..self
        }
    }

    /// The same for an operator with these settings.
    #[must_use]
    pub(crate) fn under(self, settings: Settings) -> Self {
        Ec2 { settings, ..self }
    }

    /// The instance types for each class that a NodePool references. `supported` has the supported kinds, as (group, kind); empty means all.
    pub(crate) fn offers(&self, dump: &Dump, supported: &[(String, String)]) -> Offers {
        let counts = supported.is_empty()
            || supported
                .iter()
                .any(|(group, kind)| group == EC2NodeClass::GROUP && kind == EC2NodeClass::KIND);
        let classes = dump.node_pools.iter().map(|pool| pool.node_class_ref());
        let named: BTreeSet<&str> = classes
            .filter(|class| counts && class.is_ec2())
            .map(|class| class.name.as_str())
            .collect();
        let mut offers = Offers::default();
        if named.is_empty() {
            return offers;
        }
        let written = dump.node_classes.iter().filter_map(|class| class.ec2.as_ref());
        let written: BTreeMap<&str, &Arc<EC2NodeClass>> =
            written.map(|class| (class.name(), class)).collect();
        let name = self.region_of(dump, &written);
        let wanted = wanted(dump, labels::ZONE).map(str::to_owned).collect();
        let region = region(name, zones_of(dump, &written), wanted);
        let prices = Prices::built_in(&region.name);
        offers.notes.push(self.tables(&region, named.len()));
        let old = dump.outdated.iter();
        let old = old.filter(|((kind, _), _)| kind == EC2NodeClass::KIND);
        let old: BTreeSet<&str> = old.flat_map(|(_, names)| names).map(String::as_str).collect();
        let (mut absent, mut outdated, mut without_status) = (Vec::new(), Vec::new(), Vec::new());
        let mut reserving = Vec::new();
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
            if has_reservations(&class) {
                reserving.push(name);
            }
            let class = with_subnets(class, &region);
            offers
                .types
                .insert(name.to_owned(), sold(&class, &region, &prices, &self.settings));
        }
        if !absent.is_empty() {
            offers.notes.push(self.absent(&absent));
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
        if !reserving.is_empty() {
            offers.notes.push(format!(
                "what is left of the capacity reservations of EC2NodeClass {} is not known here: taken as used up for pods, and as enough for NodePools with a fixed number of nodes",
                some_of(&reserving, 5)
            ));
        }
        offers
    }

    /// What is assumed of classes that are not there, or not shown.
    fn absent(&self, names: &[&str]) -> String {
        const TAKEN: &str = "taken as AL2023 with default kubelet settings and a subnet in each zone";
        let names = some_of(names, 5);
        match &self.classes {
            Classes::Files => format!(
                "no EC2NodeClass is in the dump ({names}): {TAKEN}; `kubectl get ec2nodeclasses -o yaml` has them"
            ),
            Classes::Cluster => format!("there is no EC2NodeClass ({names}): {TAKEN}"),
            Classes::Refused(why) => format!("EC2NodeClass {names} may not be listed ({why}): {TAKEN}"),
        }
    }

    /// The requested region, that of most nodes, that of the classes' subnets, that which NodePools require, or one with tables.
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
        let required = || {
            let region = wanted(dump, labels::REGION).find(|name| REGIONS.contains(name));
            region.or_else(|| wanted(dump, labels::ZONE).find_map(around))
        };
        region.or_else(required).unwrap_or(facts::REGION).to_owned()
    }

    /// Where types and prices are from.
    fn tables(&self, region: &Region, classes: usize) -> String {
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
        let others = if self.is_of_scenario {
            "nodes, subnets of an EC2NodeClass, or zones that a NodePool requires name another region, and `catalog` of a scenario's `cluster` other types and prices"
        } else {
            "--region and --catalog FILE name others"
        };
        format!(
            "NodePools of {of} are planned with {} instance types of EC2 in {}{other}, at the on-demand prices of {whose}; spot counts as on-demand; {others}",
            region.types.len(),
            region.name
        )
    }
}

/// What NodePools with an EC2NodeClass allow of a label, where they list it.
fn wanted<'d>(dump: &'d Dump, key: &str) -> impl Iterator<Item = &'d str> {
    let pools = dump.node_pools.iter();
    let pools = pools.filter(|pool| pool.node_class_ref().is_ec2());
    let requirements = pools.flat_map(|pool| &pool.spec.template.spec.requirements);
    let listed = requirements.filter(move |one| one.key == key && one.operator == Operator::In);
    listed.flat_map(|one| one.values.iter().map(String::as_str))
}

/// The region in which a zone is, local zones included: `us-west-2` of `us-west-2-lax-1a`.
fn around(zone: &str) -> Option<&'static str> {
    let regions = REGIONS.iter().copied();
    let around = regions.filter(|region| zone.starts_with(*region));
    around.max_by_key(|region| region.len())
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

/// The table's types in a region: availability is known for the table's own zones; other zones are assumed to have all types. `wanted` are zones that NodePools
/// require, beside which there may be others.
fn region(name: String, named: BTreeSet<String>, wanted: BTreeSet<String>) -> Region {
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
        further.extend(wanted.into_iter().filter(|zone| zone.starts_with(&name)));
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

/// A class of which nothing is known but its name.
fn assumed(name: &str) -> EC2NodeClass {
    let spec = EC2NodeClassSpec {
        ami_family: Some(AmiFamily::Al2023),
        ..EC2NodeClassSpec::default()
    };
    EC2NodeClass::new(name, spec)
}

/// The class selects capacity reservations, or has some.
fn has_reservations(class: &EC2NodeClass) -> bool {
    let status = class.status.as_ref();
    let found = status.is_some_and(|status| !status.capacity_reservations.is_empty());
    found || !class.spec.capacity_reservation_selector_terms.is_empty()
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

fn sold(class: &EC2NodeClass, region: &Region, prices: &Prices, settings: &Settings) -> Arc<[InstanceType]> {
    let context = Context {
        class,
        region: &region.name,
        settings,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::dump::read;

    /// A NodePool with these requirements and nothing else, as `simulate init` leaves it behind: where it is, which zones there are, and what is said of both.
    fn offered(ec2: &Ec2, requirements: &str) -> (String, BTreeSet<String>, String) {
        let pool = format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: default}}\nspec: {{template: {{spec: {{\
             nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}, requirements: {requirements}}}}}}}\n"
        );
        let dump = read("pools.yaml", pool.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let offers = ec2.offers(&dump, &[]);
        let types = &offers.types["default"];
        let offerings = types.iter().flat_map(|one| &one.offerings);
        let zones = offerings.filter_map(|offering| offering.zone().map(str::to_owned));
        let region = ec2.region_of(&dump, &BTreeMap::new());
        (region, zones.collect(), offers.notes[0].clone())
    }

    #[test]
    fn a_050_the_region_is_that_of_the_zones_that_node_pools_require() {
        let (region, zones, note) = offered(
            &Ec2::default(),
            "[{key: topology.kubernetes.io/zone, operator: In, values: [eu-central-1b, eu-central-1d]}]",
        );
        assert_eq!(region, "eu-central-1");
        // The classes' others are there, too: another NodePool may use them.
        for zone in ["eu-central-1a", "eu-central-1b", "eu-central-1d"] {
            assert!(zones.contains(zone), "{zones:?}");
        }
        assert!(
            note.contains(" in eu-central-1, ") && note.contains("--region"),
            "{note}"
        );
        for (requirements, expected) in [
            ("[]", facts::REGION),
            (
                "[{key: topology.kubernetes.io/region, operator: In, values: [ap-south-2]}]",
                "ap-south-2",
            ),
            (
                "[{key: topology.kubernetes.io/zone, operator: In, values: [us-west-2-lax-1a]}]",
                "us-west-2",
            ),
            (
                "[{key: topology.kubernetes.io/zone, operator: NotIn, values: [eu-central-1a]}]",
                facts::REGION,
            ),
            (
                "[{key: topology.kubernetes.io/zone, operator: In, values: [zone-a]}]",
                facts::REGION,
            ),
        ] {
            assert_eq!(
                offered(&Ec2::default(), requirements).0,
                expected,
                "{requirements}"
            );
        }
    }

    #[test]
    fn a_note_of_a_scenario_names_no_option_that_it_has_not() {
        let (_, _, note) = offered(&Ec2::default().of_scenario(), "[]");
        assert!(!note.contains("--") && note.contains("`catalog`"), "{note}");
    }
}
