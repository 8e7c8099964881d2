//! Which size a launch asks for, in which zone, and how it is bought (Z6.2): one, for Azure has no fleets.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use spokeshave_api::NodeClaim;
use spokeshave_api::hash::digest;
use spokeshave_model::labels as core;
use spokeshave_model::{CapacityType, InstanceType, Offering, Requirements, Resources};

use crate::labels;
use crate::names::REGIONAL;

/// Label keys that instance types of Azure may have, core's included.
pub static WELL_KNOWN: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let keys = core::WELL_KNOWN.iter().chain(&labels::WELL_KNOWN);
    keys.map(ToString::to_string).collect()
});

/// Why nothing can be launched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// The NodeClaim cannot be read.
    #[error("NodeClaim {name}, {field}: {problem}")]
    Claim {
        /// Name of the NodeClaim.
        name: String,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Nothing of what is asked for is for sale now.
    #[error("no instance types available: nothing that NodeClaim {0} allows can be bought now")]
    NothingAvailable(String),
}

/// What is launched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice<'a> {
    /// The type.
    pub instance_type: &'a InstanceType,
    /// Where, and how it is bought.
    pub offering: &'a Offering,
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Label value of the zone.
    pub zone: &'a str,
}

/// The cheapest available offering that the NodeClaim allows. Of equal price spot comes before on-demand, and a zone before none. Zones of equal
/// price are taken in an order that is each claim's own, so that many claims spread over them, and a repeated launch takes the same.
///
/// # Errors
/// When the claim has no meaning, or nothing that it allows can be bought.
pub fn choose<'a>(types: &'a [InstanceType], claim: &NodeClaim) -> Result<Choice<'a>, ChoiceError> {
    let wrong = |field, problem: String| ChoiceError::Claim {
        name: claim.name().to_owned(),
        field,
        problem,
    };
    let requirements = Requirements::from_api(&claim.spec.requirements)
        .map_err(|error| wrong("spec.requirements", error.to_string()))?;
    let requests = Resources::from_quantities(&claim.spec.resources.requests)
        .map_err(|error| wrong("spec.resources.requests", error.to_string()))?;
    let order_of_zone = |zone: &str| digest(&format!("{}/{zone}", claim.uid()));
    types
        .iter()
        .filter(|instance_type| {
            requirements
                .compatible(&instance_type.requirements, &WELL_KNOWN)
                .is_ok()
        })
        .flat_map(|instance_type| for_sale(instance_type, &requirements, &requests))
        .min_by_key(|choice| {
            (
                choice.offering.price,
                choice.capacity_type != CapacityType::Spot,
                choice.zone == REGIONAL,
                &choice.instance_type.name,
                order_of_zone(choice.zone),
            )
        })
        .ok_or_else(|| ChoiceError::NothingAvailable(claim.name().to_owned()))
}

fn for_sale<'a>(
    instance_type: &'a InstanceType,
    requirements: &Requirements,
    requests: &Resources,
) -> Vec<Choice<'a>> {
    let groups = instance_type.allocatable_groups();
    let fitting = groups.iter().filter(|group| requests.fits(&group.allocatable));
    fitting
        .flat_map(|group| &group.offerings)
        .filter_map(|index| instance_type.offerings.get(*index))
        .filter(|offering| {
            offering.available
                && requirements
                    .compatible(&offering.requirements, &WELL_KNOWN)
                    .is_ok()
        })
        .filter_map(|offering| {
            Some(Choice {
                instance_type,
                offering,
                capacity_type: offering.capacity_type()?,
                zone: offering.zone()?,
            })
        })
        .collect()
}
