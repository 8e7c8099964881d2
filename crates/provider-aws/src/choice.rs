//! Which instance types a launch asks for, how they are bought, and on which tenancy (A5.1).
//!
//! Owns the choice among types that are for sale. Where they are launched (subnets) is [`addresses`](crate::addresses), from what is
//! [`launch`](crate::launch).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use spokeshave_model::labels as core;
use spokeshave_model::{CapacityType, InstanceType, Offering, Requirement, Requirements};
use spokeshave_provider_common::for_sale::candidates;
pub use spokeshave_provider_common::for_sale::{Candidate, ClaimError, Wanted};

use crate::capacity_blocks::CAPACITY_BLOCK;
use crate::labels;

/// How many instance types one launch names at most: the cheapest.
pub const MOST_TYPES: usize = 60;

/// With fewer types than this, a launch that could be spot and is on-demand is likely to find no capacity.
pub const FLEXIBLE_TYPES: usize = 5;

/// Resources whose presence makes a type exotic: no pod is given it that did not ask for it.
const ACCELERATORS: [&str; 5] = [
    labels::NEURON,
    labels::NEURON_CORE,
    labels::AMD_GPU,
    labels::NVIDIA_GPU,
    labels::HABANA_GAUDI,
];

/// Label keys that instance types of EC2 may have, core's included.
pub static WELL_KNOWN: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let keys = core::WELL_KNOWN.iter().chain(&labels::WELL_KNOWN);
    keys.map(ToString::to_string).collect()
});

/// Why nothing can be launched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// The NodeClaim cannot be read.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Nothing of what is asked for is for sale now.
    #[error("all requested instance types were unavailable during launch")]
    NothingAvailable,
    /// Among the cheapest types there is not the choice that the NodeClaim asks for.
    #[error(
        "truncating instance types based on the passed-in requirements, validating minValues, minValues requirement is not met for label(s) {0}"
    )]
    MinValues(String),
}

fn allows(wanted: &Wanted, capacity_type: CapacityType) -> bool {
    wanted
        .requirements
        .get(core::CAPACITY_TYPE)
        .has(capacity_type.as_str())
}

fn is_exotic(candidate: &Candidate<'_>) -> bool {
    let instance_type = candidate.instance_type;
    let size = instance_type.requirements.find(labels::INSTANCE_SIZE);
    size.is_some_and(|size| size.values().iter().any(|size| size.contains("metal")))
        || ACCELERATORS
            .iter()
            .any(|resource| instance_type.capacity.get(resource) != 0)
}

/// What a launch asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice<'a> {
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// `default` or `dedicated`.
    pub tenancy: &'static str,
    /// Types, cheapest first, with the offerings of that capacity type.
    pub candidates: Vec<Candidate<'a>>,
    /// Types that were left out though they would do, by the rule that left them out.
    pub left_out: BTreeMap<&'static str, Vec<&'a str>>,
    /// It could be spot capacity, is not, and names few types.
    pub is_inflexible_fallback: bool,
}

/// Chooses among all types of a NodePool. Under `relaxed_min_values` a lack of choice is accepted (`MIN_VALUES_POLICY=BestEffort`).
///
/// # Errors
/// When nothing is for sale, or too little for minValues.
pub fn choose<'a>(
    types: &'a [InstanceType],
    wanted: &Wanted,
    relaxed_min_values: bool,
) -> Result<Choice<'a>, ChoiceError> {
    let mut candidates = candidates(types, wanted, &WELL_KNOWN);
    let mut left_out = BTreeMap::new();
    let filters: [(&'static str, Filter); 5] = [
        ("capacity-reservation-type-filter", one_kind_of_reservation),
        ("capacity-block-filter", one_capacity_block),
        ("reserved-offering-filter", largest_reservations),
        ("exotic-instance-filter", without_exotic),
        ("spot-offering-filter", without_dear_spot),
    ];
    for (name, filter) in filters {
        let before: Vec<&'a str> = names(&candidates);
        candidates = filter(candidates, wanted);
        let after: BTreeSet<&str> = names(&candidates).into_iter().collect();
        let gone: Vec<&'a str> = before.into_iter().filter(|name| !after.contains(name)).collect();
        if !gone.is_empty() {
            left_out.insert(name, gone);
        }
    }
    if candidates.is_empty() {
        return Err(ChoiceError::NothingAvailable);
    }
    candidates
        .sort_by(|a, b| (a.cheapest(), &a.instance_type.name).cmp(&(b.cheapest(), &b.instance_type.name)));
    candidates.truncate(MOST_TYPES);
    if !relaxed_min_values {
        let types = candidates.iter().map(|candidate| candidate.instance_type);
        wanted
            .requirements
            .satisfies_min_values(types)
            .map_err(|failing| {
                let keys: Vec<&str> = failing.keys().map(String::as_str).collect();
                ChoiceError::MinValues(keys.join(", "))
            })?;
    }
    let number = candidates.len();
    let capacity_type = capacity_type(&candidates, wanted);
    Ok(Choice {
        capacity_type,
        tenancy: tenancy(&wanted.requirements),
        candidates: of_capacity_type(candidates, capacity_type),
        left_out,
        is_inflexible_fallback: capacity_type == CapacityType::OnDemand
            && allows(wanted, CapacityType::Spot)
            && number < FLEXIBLE_TYPES,
    })
}

type Filter = for<'a> fn(Vec<Candidate<'a>>, &Wanted) -> Vec<Candidate<'a>>;

fn names<'a>(candidates: &[Candidate<'a>]) -> Vec<&'a str> {
    candidates
        .iter()
        .map(|candidate| candidate.instance_type.name.as_str())
        .collect()
}

/// Kind of a reservation: `default` or `capacity-block`, and whether its instances may be taken back.
fn reservation_kind(offering: &Offering) -> Option<(&str, bool)> {
    let value = |key| {
        offering
            .requirements
            .find(key)
            .and_then(Requirement::single_value)
    };
    if offering.capacity_type() != Some(CapacityType::Reserved) {
        return None;
    }
    Some((
        value(labels::CAPACITY_RESERVATION_TYPE)?,
        value(labels::CAPACITY_RESERVATION_INTERRUPTIBLE) == Some("true"),
    ))
}

/// Keeps the candidates' offerings that pass; candidates without any are left out.
fn with_offerings<'a>(
    candidates: Vec<Candidate<'a>>,
    keep: impl Fn(&Offering) -> bool,
) -> Vec<Candidate<'a>> {
    candidates
        .into_iter()
        .filter_map(|mut candidate| {
            candidate.offerings.retain(|offering| keep(offering));
            (!candidate.offerings.is_empty()).then_some(candidate)
        })
        .collect()
}

/// A fleet takes reservations of one kind: those of the kind with the cheapest offering.
fn one_kind_of_reservation<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted) -> Vec<Candidate<'a>> {
    if !allows(wanted, CapacityType::Reserved) {
        return candidates;
    }
    let order = |(kind, interruptible): (&str, bool)| match (kind, interruptible) {
        (_, true) => 2,
        (CAPACITY_BLOCK, false) => 1,
        _ => 0,
    };
    let offerings = candidates.iter().flat_map(|candidate| &candidate.offerings);
    let kinds = offerings.filter_map(|offering| Some((offering.price, reservation_kind(offering)?)));
    let cheapest = kinds.min_by_key(|(price, kind)| (*price, order(*kind)));
    let Some(kind) = cheapest.map(|(_, (kind, interruptible))| (kind.to_owned(), interruptible)) else {
        return candidates;
    };
    with_offerings(candidates, |offering| {
        reservation_kind(offering)
            .is_some_and(|(name, interruptible)| name == kind.0 && interruptible == kind.1)
    })
}

/// A fleet takes one capacity block: the cheapest.
fn one_capacity_block<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted) -> Vec<Candidate<'a>> {
    if !allows(wanted, CapacityType::Reserved) {
        return candidates;
    }
    let blocks = candidates.iter().flat_map(|candidate| {
        candidate
            .offerings
            .iter()
            .filter(|offering| reservation_kind(offering).is_some_and(|(kind, _)| kind == CAPACITY_BLOCK))
            .map(|offering| Candidate {
                instance_type: candidate.instance_type,
                offerings: vec![*offering],
            })
    });
    match blocks.min_by_key(Candidate::cheapest) {
        Some(cheapest) => vec![cheapest],
        None => candidates,
    }
}

/// A fleet takes one reservation for each type and zone: the one with most instances left.
fn largest_reservations<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted) -> Vec<Candidate<'a>> {
    if !allows(wanted, CapacityType::Reserved) {
        return candidates;
    }
    let reserved: Vec<Candidate<'a>> = candidates
        .iter()
        .filter_map(|candidate| {
            let mut largest: BTreeMap<&str, &Offering> = BTreeMap::new();
            for offering in &candidate.offerings {
                let Some(zone) = offering.zone().filter(|_| reservation_kind(offering).is_some()) else {
                    continue;
                };
                let known = largest.entry(zone).or_insert(offering);
                if offering.reservation_capacity > known.reservation_capacity {
                    *known = offering;
                }
            }
            (!largest.is_empty()).then(|| Candidate {
                instance_type: candidate.instance_type,
                offerings: largest.into_values().collect(),
            })
        })
        .collect();
    if reserved.is_empty() { candidates } else { reserved }
}

/// Metal, GPUs and accelerators are for those who ask for them: they are left out unless nothing else would do.
fn without_exotic<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted) -> Vec<Candidate<'a>> {
    if wanted.requirements.has_min_values() || candidates.iter().all(is_exotic) {
        return candidates;
    }
    candidates
        .into_iter()
        .filter(|candidate| !is_exotic(candidate))
        .collect()
}

/// Where both would do, spot capacity that costs more than the cheapest on-demand capacity is left out.
fn without_dear_spot<'a>(candidates: Vec<Candidate<'a>>, wanted: &Wanted) -> Vec<Candidate<'a>> {
    if wanted.requirements.has_min_values()
        || !allows(wanted, CapacityType::Spot)
        || !allows(wanted, CapacityType::OnDemand)
    {
        return candidates;
    }
    let offerings = candidates.iter().flat_map(|candidate| &candidate.offerings);
    let on_demand = offerings.filter(|offering| offering.capacity_type() == Some(CapacityType::OnDemand));
    let Some(cheapest) = on_demand.map(|offering| offering.price).min() else {
        return candidates;
    };
    with_offerings(candidates, |offering| {
        offering.capacity_type() != Some(CapacityType::Spot) || offering.price <= cheapest
    })
}

fn capacity_type(candidates: &[Candidate<'_>], wanted: &Wanted) -> CapacityType {
    [CapacityType::Reserved, CapacityType::Spot]
        .into_iter()
        .find(|capacity_type| {
            allows(wanted, *capacity_type)
                && candidates
                    .iter()
                    .any(|candidate| candidate.offers(*capacity_type))
        })
        .unwrap_or(CapacityType::OnDemand)
}

fn of_capacity_type(candidates: Vec<Candidate<'_>>, capacity_type: CapacityType) -> Vec<Candidate<'_>> {
    with_offerings(candidates, |offering| {
        offering.capacity_type() == Some(capacity_type)
    })
}

/// Hardware of one's own only where nothing else is allowed.
fn tenancy(requirements: &Requirements) -> &'static str {
    let requirement = requirements.get(labels::INSTANCE_TENANCY);
    if !requirement.has("default") && requirement.has("dedicated") {
        "dedicated"
    } else {
        "default"
    }
}
