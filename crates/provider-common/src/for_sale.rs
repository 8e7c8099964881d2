//! What a NodeClaim asks for, and which offerings of a type would do: the part of a launch's choice that is the same everywhere.
//!
//! Owns what "would do" and "cheapest" mean. How many offerings one launch names is each cloud's: an EC2 fleet takes sixty types at once and chooses itself,
//! Azure takes one machine.

use std::collections::BTreeSet;

use spokeshave_api::NodeClaim;
use spokeshave_model::{CapacityType, InstanceType, Offering, Price, Requirements, Resources};

/// What a NodeClaim asks of its machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// Requirements on labels.
    pub requirements: Requirements,
    /// What the pods need.
    pub requests: Resources,
}

/// A NodeClaim cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("NodeClaim {name}, {field}: {problem}")]
pub struct ClaimError {
    /// Name of the NodeClaim.
    pub name: String,
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl Wanted {
    /// What a NodeClaim asks for.
    ///
    /// # Errors
    /// When a requirement or a quantity has no meaning.
    pub fn of(claim: &NodeClaim) -> Result<Self, ClaimError> {
        let wrong = |field, problem: String| ClaimError {
            name: claim.name().to_owned(),
            field,
            problem,
        };
        Ok(Wanted {
            requirements: Requirements::from_api(&claim.spec.requirements)
                .map_err(|error| wrong("spec.requirements", error.to_string()))?,
            requests: Resources::from_quantities(&claim.spec.resources.requests)
                .map_err(|error| wrong("spec.resources.requests", error.to_string()))?,
        })
    }
}

/// An instance type that may be launched, with the offerings that may be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate<'a> {
    /// The type.
    pub instance_type: &'a InstanceType,
    /// Offerings of it that are for sale and meet the requirements.
    pub offerings: Vec<&'a Offering>,
}

impl Candidate<'_> {
    /// Price of its cheapest offering.
    #[must_use]
    pub fn cheapest(&self) -> Price {
        let prices = self.offerings.iter().map(|offering| offering.price);
        prices.min().unwrap_or(Price::MAX)
    }

    /// Whether one of its offerings is bought in this way.
    #[must_use]
    pub fn offers(&self, capacity_type: CapacityType) -> bool {
        self.offerings
            .iter()
            .any(|offering| offering.capacity_type() == Some(capacity_type))
    }
}

/// Types of which something is for sale that meets the requirements and holds the requests, in the order of the list. `well_known` are the keys that types
/// of the cloud may have.
#[must_use]
pub fn candidates<'a>(
    types: &'a [InstanceType],
    wanted: &Wanted,
    well_known: &BTreeSet<String>,
) -> Vec<Candidate<'a>> {
    types
        .iter()
        .filter_map(|instance_type| candidate(instance_type, wanted, well_known))
        .collect()
}

fn candidate<'a>(
    instance_type: &'a InstanceType,
    wanted: &Wanted,
    well_known: &BTreeSet<String>,
) -> Option<Candidate<'a>> {
    let requirements = &wanted.requirements;
    requirements
        .compatible(&instance_type.requirements, well_known)
        .ok()?;
    let meets = |offering: &&Offering| {
        offering.available
            && requirements
                .compatible(&offering.requirements, well_known)
                .is_ok()
    };
    let is_uniform = instance_type
        .offerings
        .iter()
        .all(|offering| offering.overrides.is_none());
    let offerings: Vec<&Offering> = if is_uniform {
        if !wanted.requests.fits(&instance_type.allocatable()) {
            return None;
        }
        instance_type.offerings.iter().filter(meets).collect()
    } else {
        let groups = instance_type.allocatable_groups();
        let fitting = groups
            .iter()
            .filter(|group| wanted.requests.fits(&group.allocatable))
            .flat_map(|group| &group.offerings);
        fitting
            .filter_map(|index| instance_type.offerings.get(*index))
            .filter(meets)
            .collect()
    };
    (!offerings.is_empty()).then_some(Candidate {
        instance_type,
        offerings,
    })
}
