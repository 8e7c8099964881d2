//! Which size a launch asks for, in which zone, and how it is bought (Z6.2): one, for Azure has no fleets.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use spokeshave_api::NodeClaim;
use spokeshave_api::hash::digest;
use spokeshave_model::labels as core;
use spokeshave_model::{CapacityType, InstanceType, Offering, Requirements};
use spokeshave_provider_common::for_sale::{Candidate, ClaimError, Wanted, candidates};

use crate::labels::{self, SKU_STORAGE_ULTRA_SSD};
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
    #[error(transparent)]
    Claim(#[from] ClaimError),
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
    let wanted = Wanted::of(claim)?;
    let order_of_zone = |zone: &str| digest(&format!("{}/{zone}", claim.uid()));
    candidates(types, &wanted, &WELL_KNOWN)
        .into_iter()
        .flat_map(|candidate| choices(&candidate))
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

fn choices<'a>(candidate: &Candidate<'a>) -> Vec<Choice<'a>> {
    let instance_type = candidate.instance_type;
    let choice = |offering: &&'a Offering| {
        Some(Choice {
            instance_type,
            offering,
            capacity_type: offering.capacity_type()?,
            zone: offering.zone()?,
        })
    };
    candidate.offerings.iter().filter_map(choice).collect()
}

/// Whether the NodeClaim asks for a machine to which ultra disks can be attached: it allows no other, and the offering is one.
#[must_use]
pub fn asks_for_ultra_disks(claim: &NodeClaim, choice: &Choice<'_>) -> bool {
    let asked = Requirements::from_api(&claim.spec.requirements).unwrap_or_default();
    let asked = asked.get(SKU_STORAGE_ULTRA_SSD);
    let offered = choice.offering.requirements.get(SKU_STORAGE_ULTRA_SSD);
    asked.has("true") && !asked.has("false") && offered.has("true")
}
