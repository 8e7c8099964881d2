//! What a cloud offers: instance types, the offerings under which they can be had, and their capacity (P §14).
//!
//! These are the values that providers hand to the core. They know nothing of how they will be packed.

use crate::labels;
use crate::price::Price;
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::resources::{ResourceName, Resources};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// How capacity is bought; the value of label `karpenter.sh/capacity-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Capacity paid for in advance, limited in number.
    Reserved,
    /// Spare capacity that can be taken back.
    Spot,
    /// Capacity at list price.
    OnDemand,
}

impl CapacityType {
    /// In the order in which prices are compared: reserved, spot, on-demand (P §14).
    pub const ALL: [CapacityType; 3] = [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            CapacityType::Reserved => "reserved",
            CapacityType::Spot => "spot",
            CapacityType::OnDemand => "on-demand",
        }
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for CapacityType {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|capacity_type| capacity_type.as_str() == text)
            .ok_or(())
    }
}

/// What the system keeps for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overhead {
    /// Reserved for Kubernetes daemons.
    pub kube_reserved: Resources,
    /// Reserved for the operating system.
    pub system_reserved: Resources,
    /// Hard eviction threshold.
    pub eviction_threshold: Resources,
}

impl Overhead {
    /// The sum of the three.
    pub fn total(&self) -> Resources {
        let mut total = self.kube_reserved.clone();
        total.add(&self.system_reserved);
        total.add(&self.eviction_threshold);
        total
    }
}

/// Capacity and overhead that differ under one offering; merged by key over those of the instance type (P-089).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// Capacity entries that replace those of the type.
    pub capacity: Resources,
    /// Overhead entries that replace those of the type.
    pub overhead: Overhead,
}

/// One way to buy an instance type: a zone, a capacity type, a price.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offering {
    /// Must define zone and capacity type.
    pub requirements: Requirements,
    /// Price in nano-dollars per hour.
    pub price: Price,
    /// Whether it is available now.
    pub available: bool,
    /// Instances left in the reservation; 0 for other capacity types.
    pub reservation_capacity: i64,
    /// The label key that names the reservation, for reserved offerings (P §6.12).
    pub reservation_id_label: Option<String>,
    /// Capacity and overhead under this offering, if they differ from the type's.
    pub overrides: Option<Overrides>,
    /// Its price is what NodeOverlays say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overlaid: bool,
}

impl Offering {
    /// The zone, if it is a single value.
    pub fn zone(&self) -> Option<&str> {
        self.requirements
            .find(labels::ZONE)
            .and_then(Requirement::single_value)
    }

    /// The capacity type, if it is a single known value.
    pub fn capacity_type(&self) -> Option<CapacityType> {
        self.requirements
            .find(labels::CAPACITY_TYPE)
            .and_then(Requirement::single_value)?
            .parse()
            .ok()
    }

    /// Its price where somebody knows it. A cloud gives 0 for a price that it does not know, and sells nothing for it; what is sold for nothing, or by an overlay
    /// has no price, costs nothing (D-364).
    pub fn known_price(&self) -> Option<Price> {
        let is_free = self.price == Price::ZERO && (self.available || self.overlaid);
        (is_free || self.price.is_known()).then_some(self.price)
    }

    /// The reservation's ID, for reserved offerings.
    pub fn reservation_id(&self) -> Option<&str> {
        self.requirements
            .find(self.reservation_id_label.as_deref()?)
            .and_then(Requirement::single_value)
    }
}

/// What NodeOverlays have changed of an instance type (P §13); NodeClaims that may become it are annotated (P §1.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlaid {
    /// The price of at least one offering.
    pub price: bool,
    /// The capacity.
    pub capacity: bool,
}

impl Overlaid {
    /// True when the type is as its provider sells it.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// One machine type a provider can launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceType {
    /// The value of label `node.kubernetes.io/instance-type`.
    pub name: String,
    /// What nodes of this type will be labelled with, for every well-known label.
    pub requirements: Requirements,
    /// The ways to buy it; also unavailable ones.
    pub offerings: Vec<Offering>,
    /// Raw capacity.
    pub capacity: Resources,
    /// What the system keeps for itself.
    pub overhead: Overhead,
    /// What NodeOverlays have changed.
    #[serde(default, skip_serializing_if = "Overlaid::is_none")]
    pub overlaid: Overlaid,
}

/// The allocatable amounts of a type under some of its offerings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatableGroup {
    /// What pods can use.
    pub allocatable: Resources,
    /// Raw capacity.
    pub capacity: Resources,
    /// Indexes into `InstanceType::offerings`.
    pub offerings: Vec<usize>,
}

fn allocatable_of(capacity: &Resources, overhead: &Resources) -> Resources {
    let huge_pages: i64 = capacity
        .iter()
        .filter(|(name, _)| ResourceName::is_huge_pages(name))
        .map(|(_, amount)| amount)
        .fold(0, i64::saturating_add);
    let mut allocatable = capacity.clone();
    for (name, amount) in overhead.iter().filter(|(name, _)| capacity.contains(name)) {
        allocatable.set(name, capacity.get(name).saturating_sub(amount));
    }
    if huge_pages > 0 && capacity.contains(ResourceName::MEMORY) {
        allocatable.set(
            ResourceName::MEMORY,
            allocatable
                .get(ResourceName::MEMORY)
                .saturating_sub(huge_pages)
                .max(0),
        );
    }
    allocatable
}

impl InstanceType {
    /// Capacity minus overhead; each `hugepages-*` amount also comes off memory, which never goes below zero (P-125).
    pub fn allocatable(&self) -> Resources {
        allocatable_of(&self.capacity, &self.overhead.total())
    }

    /// Capacity and allocatable amounts under one of its offerings (P-089); without one, the type's own.
    pub fn amounts(&self, offering: Option<&Offering>) -> (Resources, Resources) {
        let Some(overrides) = offering.and_then(|offering| offering.overrides.as_ref()) else {
            return (self.capacity.clone(), self.allocatable());
        };
        let mut capacity = self.capacity.clone();
        capacity.override_with(&overrides.capacity);
        let mut overhead = self.overhead.clone();
        overhead
            .kube_reserved
            .override_with(&overrides.overhead.kube_reserved);
        overhead
            .system_reserved
            .override_with(&overrides.overhead.system_reserved);
        overhead
            .eviction_threshold
            .override_with(&overrides.overhead.eviction_threshold);
        let allocatable = allocatable_of(&capacity, &overhead.total());
        (capacity, allocatable)
    }

    /// Distinct allocatable amounts with the offerings that have them: first those without overrides (present even when no
    /// offering belongs to it), then one group per distinct override in order of appearance (P-089).
    pub fn allocatable_groups(&self) -> Vec<AllocatableGroup> {
        let base = self
            .offerings
            .iter()
            .enumerate()
            .filter(|(_, offering)| offering.overrides.is_none())
            .map(|(index, _)| index);
        let mut groups = vec![AllocatableGroup {
            allocatable: self.allocatable(),
            capacity: self.capacity.clone(),
            offerings: base.collect(),
        }];
        for (index, offering) in self.offerings.iter().enumerate() {
            if offering.overrides.is_none() {
                continue;
            }
            let (capacity, allocatable) = self.amounts(Some(offering));
            match groups
                .iter_mut()
                .skip(1)
                .find(|group| group.allocatable == allocatable && group.capacity == capacity)
            {
                Some(group) => group.offerings.push(index),
                None => groups.push(AllocatableGroup {
                    allocatable,
                    capacity,
                    offerings: vec![index],
                }),
            }
        }
        groups
    }

    /// Offerings that is available now and are compatible with the requirements.
    pub fn available_offerings<'a>(
        &'a self,
        requirements: &'a Requirements,
        well_known: &'a BTreeSet<String>,
    ) -> impl Iterator<Item = &'a Offering> {
        self.offerings.iter().filter(move |offering| {
            offering.available
                && requirements
                    .compatible(&offering.requirements, well_known)
                    .is_ok()
        })
    }

    /// The cheapest available compatible offering, whatever its capacity type; the first one listed wins a tie.
    pub fn cheapest_offering<'a>(
        &'a self,
        requirements: &'a Requirements,
        well_known: &'a BTreeSet<String>,
    ) -> Option<&'a Offering> {
        self.available_offerings(requirements, well_known)
            .min_by_key(|offering| offering.price)
    }

    /// The most expensive compatible available offering of the first capacity type present in the order reserved, spot, on-demand;
    /// `Price::MAX` when there is none (P §14).
    pub fn worst_launch_price(&self, requirements: &Requirements, well_known: &BTreeSet<String>) -> Price {
        let offerings: Vec<&Offering> = self.available_offerings(requirements, well_known).collect();
        let of_type = |wanted| {
            offerings
                .iter()
                .filter(move |offering| offering.capacity_type() == Some(wanted))
        };
        CapacityType::ALL
            .into_iter()
            .find_map(|wanted| of_type(wanted).map(|offering| offering.price).max())
            .unwrap_or(Price::MAX)
    }

    /// The price of the first offering with exactly this zone and capacity type, available or not (D-032).
    pub fn price_of(&self, zone: &str, capacity_type: &str) -> Option<Price> {
        let offering = self.offering_of(zone, capacity_type)?;
        Some(offering.price)
    }

    /// The same where somebody knows it.
    pub fn known_price_of(&self, zone: &str, capacity_type: &str) -> Option<Price> {
        self.offering_of(zone, capacity_type)?.known_price()
    }

    fn offering_of(&self, zone: &str, capacity_type: &str) -> Option<&Offering> {
        let same = |offering: &&Offering| {
            offering
                .requirements
                .find(labels::ZONE)
                .and_then(Requirement::single_value)
                == Some(zone)
                && offering
                    .requirements
                    .find(labels::CAPACITY_TYPE)
                    .and_then(Requirement::single_value)
                    == Some(capacity_type)
        };
        self.offerings.iter().find(same)
    }
}

/// Types that were given, such as corrected by NodeOverlays or without zones that are avoided, with the availability of now: something may have sold out
/// since.
pub fn still_sold(given: &[InstanceType], sold: &[InstanceType]) -> Arc<[InstanceType]> {
    let mut types = Vec::with_capacity(given.len());
    for instance_type in given {
        let Some(now) = sold.iter().find(|other| other.name == instance_type.name) else {
            continue;
        };
        let mut instance_type = instance_type.clone();
        for offering in &mut instance_type.offerings {
            let mut same = now.offerings.iter();
            let same = same.find(|other| other.requirements == offering.requirements);
            offering.available &= same.is_some_and(|other| other.available);
        }
        types.push(instance_type);
    }
    types.into()
}

impl Requirements {
    /// P §2.3: how many instance types from the front satisfy every minValues, or the failing keys with the counts reached. A requirement that lists its
    /// values reaches no more than these: an API server refuses a NodeClaim with fewer values than minValues (P-005).
    pub fn satisfies_min_values<'a>(
        &self,
        instance_types: impl IntoIterator<Item = &'a InstanceType>,
    ) -> Result<usize, BTreeMap<String, u32>> {
        let wanted = self.iter().filter_map(|requirement| {
            let minimum = requirement.min_values()? as usize;
            let listed = requirement.listed().unwrap_or(usize::MAX);
            Some((requirement.key(), (minimum, listed, BTreeSet::new())))
        });
        let mut wanted: BTreeMap<&str, (usize, usize, BTreeSet<&'a str>)> = wanted.collect();
        if wanted.is_empty() {
            return Ok(0);
        }
        for (index, instance_type) in instance_types.into_iter().enumerate() {
            for (key, (_, _, seen)) in &mut wanted {
                if let Some(requirement) = instance_type.requirements.find(key) {
                    seen.extend(requirement.values().iter().map(String::as_str));
                }
            }
            if wanted
                .values()
                .all(|(minimum, listed, seen)| seen.len().min(*listed) >= *minimum)
            {
                return Ok(index + 1);
            }
        }
        let reached = wanted
            .into_iter()
            .map(|(key, (minimum, listed, seen))| (key, minimum, seen.len().min(listed)));
        Err(reached
            .filter(|(_, minimum, reached)| reached < minimum)
            .map(|(key, _, reached)| (key.to_owned(), reached as u32))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_125_huge_pages_reduce_allocatable_memory_and_never_below_zero() {
        let mut instance_type = InstanceType {
            capacity: Resources::from_amounts([
                ("cpu", 4000),
                ("memory", 8 << 30),
                ("hugepages-2Mi", 2 << 30),
            ]),
            overhead: Overhead {
                kube_reserved: Resources::from_amounts([("cpu", 100), ("memory", 1 << 30)]),
                ..Overhead::default()
            },
            ..InstanceType::default()
        };
        assert_eq!(instance_type.allocatable().get("memory"), 5 << 30);
        assert_eq!(instance_type.allocatable().get("cpu"), 3900);
        instance_type.capacity.set("hugepages-1Gi", 64 << 30);
        assert_eq!(instance_type.allocatable().get("memory"), 0);
    }

    #[test]
    fn p_089_overrides_form_groups_of_their_own_base_first() {
        let offering = |memory: Option<i64>| Offering {
            overrides: memory.map(|memory| Overrides {
                capacity: Resources::from_amounts([("memory", memory)]),
                ..Overrides::default()
            }),
            ..Offering::default()
        };
        let instance_type = InstanceType {
            capacity: Resources::from_amounts([("memory", 10)]),
            offerings: vec![
                offering(Some(20)),
                offering(None),
                offering(Some(20)),
                offering(Some(30)),
            ],
            ..InstanceType::default()
        };
        let groups: Vec<(i64, Vec<usize>)> = instance_type
            .allocatable_groups()
            .into_iter()
            .map(|group| (group.allocatable.get("memory"), group.offerings))
            .collect();
        assert_eq!(groups, vec![(10, vec![1]), (20, vec![0, 2]), (30, vec![3])]);
    }
}
