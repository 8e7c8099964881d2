//! May these nodes go together, and what comes instead: the rules of consolidation for one set (D §4.5–4.7, D-162).

use super::balanced;
use super::candidates::{Candidate, capitalised};
use super::cost;
use super::ground::{Ground, consolidates};
use super::hurdle::{Hurdle, Lifted, Stop};
use super::outcome::PoolScore;
use super::simulate::Moved;
use spokeshave_api::constants::SPOT_TO_SPOT_INSTANCE_TYPES;
use spokeshave_model::placement::{Launch, PlannedClaim};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{CapacityType, Price, Requirement, Requirements, labels};
use std::collections::BTreeMap;

/// A set of nodes that may go.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// What comes instead; none for a delete.
    pub(super) replacement: Option<Box<PlannedClaim>>,
    /// What the nodes cost.
    pub(super) price_before: Price,
    /// The worst price at which the cheapest type of the replacement may be launched: the one estimate of savings (W-08).
    pub(super) price_after: Price,
    /// By NodePool that loses nodes.
    pub(super) scores: Vec<PoolScore>,
}

impl Plan {
    pub(super) fn savings(&self) -> Price {
        self.price_before.saturating_sub(self.price_after)
    }
}

/// D-142: whether a candidate takes part in consolidation.
pub(super) fn qualifies(snapshot: &Snapshot, candidate: &Candidate, lifted: &Lifted) -> Result<(), Stop> {
    let pool = snapshot.pool(candidate.pool);
    let view = snapshot.node(candidate.node);
    let disruption = &pool.object.spec.disruption;
    let stands = |hurdle: Hurdle| !lifted.contains(&hurdle);
    if pool.is_static {
        return Err(Hurdle::StaticPool.into());
    }
    let label = |key: &str| view.labels.get(key).map_or("", String::as_str);
    if view.instance_type.is_none() {
        let text = format!("Instance Type {:?} not found", label(labels::INSTANCE_TYPE));
        return Err(Stop::new(Hurdle::UnknownInstanceType, text));
    }
    for (key, hurdle) in [
        (labels::CAPACITY_TYPE, Hurdle::NoCapacityTypeLabel),
        (labels::ZONE, Hurdle::NoZoneLabel),
    ] {
        if label(key).is_empty() {
            return Err(Stop::new(hurdle, format!("Node does not have label {key:?}")));
        }
    }
    if disruption.consolidate_after.is_never() && stands(Hurdle::ConsolidationDisabled) {
        let text = format!("NodePool {:?} has consolidation disabled", pool.name);
        return Err(Stop::new(Hurdle::ConsolidationDisabled, text));
    }
    if cost::is_empty(candidate) {
        return Err(Hurdle::NotApplicable.into());
    }
    if !consolidates(&disruption.consolidation_policy) && stands(Hurdle::Policy) {
        let text = format!(
            "NodePool {:?} has consolidation policy {}, but node is not empty",
            pool.name, disruption.consolidation_policy
        );
        return Err(Stop::new(Hurdle::Policy, text));
    }
    if !view.consolidatable && stands(Hurdle::ConsolidateAfter) {
        return Err(Hurdle::ConsolidateAfter.into());
    }
    Ok(())
}

/// D-143: whether a refusal by the common filter is told as `Unconsolidatable`.
pub(super) fn is_told(stop: &Stop) -> bool {
    !stop.text.is_empty()
}

/// Evaluates a set whose nodes have been removed and whose pods have been placed.
pub(super) fn evaluate(
    ground: &Ground<'_>,
    moved: &mut Moved<'_, '_>,
    set: &[&Candidate],
    lifted: &Lifted,
) -> Result<Plan, Stop> {
    if let Some(pod) = moved.unplaced.first().copied() {
        return Err(Stop::new(Hurdle::Pod(pod), capitalised(&moved.refusal())));
    }
    let price_before: Price = set.iter().map(|candidate| candidate.price).sum();
    let mut plan = Plan {
        replacement: None,
        price_before,
        price_after: Price::ZERO,
        scores: Vec::new(),
    };
    let count = moved.claim_count();
    if count > 1 && !lifted.contains(&Hurdle::TooManyReplacements) {
        let text = format!("Can't remove without creating {count} candidates");
        return Err(Stop::new(Hurdle::TooManyReplacements, text));
    }
    if count >= 1 {
        // With the rule of one replacement thought away, the first stands for all.
        let claim = moved.claims().into_iter().next();
        let claim = claim.ok_or_else(|| {
            Stop::new(
                Hurdle::MinValues,
                "Can't replace: too few instance types are left for minValues",
            )
        })?;
        let (claim, price) = affordable(ground, moved, set, claim, price_before, lifted)?;
        plan.replacement = Some(Box::new(claim));
        plan.price_after = price;
    }
    plan.scores = balanced::scores(ground, set, plan.savings());
    if let Some(low) = plan.scores.iter().find(|score| !score.approved)
        && !lifted.contains(&Hurdle::Score)
    {
        return Err(Stop::new(Hurdle::Score, low.text()));
    }
    Ok(plan)
}

/// D-145…D-158, D-162: narrows a replacement to what is cheaper than what it replaces, and prices it.
fn affordable(
    ground: &Ground<'_>,
    moved: &mut Moved<'_, '_>,
    set: &[&Candidate],
    mut claim: PlannedClaim,
    price_before: Price,
    lifted: &Lifted,
) -> Result<(PlannedClaim, Price), Stop> {
    let allowed = |claim: &PlannedClaim, kind: CapacityType| {
        claim.requirements.get(labels::CAPACITY_TYPE).has(kind.as_str())
            && claim.capacity_types.contains(kind.as_str())
    };
    let all_spot = set
        .iter()
        .all(|candidate| ground.capacity_type(candidate.node) == Some(CapacityType::Spot));
    let spot_to_spot = all_spot && allowed(&claim, CapacityType::Spot);
    if spot_to_spot && !ground.policy.disrupt.spot_to_spot && !lifted.contains(&Hurdle::SpotToSpotDisabled) {
        let text = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node";
        return Err(Stop::new(Hurdle::SpotToSpotDisabled, text));
    }
    if spot_to_spot {
        pin(ground.snapshot, &mut claim, CapacityType::Spot);
    }
    let relaxed = relaxed_min_values(ground.snapshot, &claim);
    let unknown = price_before == Price::ZERO;
    let dear = if unknown {
        Hurdle::UnknownPrice
    } else {
        Hurdle::NotCheaper
    };
    if !lifted.contains(&dear) {
        keep_cheaper(moved, &mut claim, price_before);
        check_min_values(ground.snapshot, &claim, &relaxed, lifted)?;
        if claim.launches.is_empty() {
            return Err(Stop::new(dear, "Can't replace with a cheaper node"));
        }
    }
    if spot_to_spot && set.len() == 1 {
        flexible(ground.snapshot, &mut claim, lifted)?;
    }
    if !spot_to_spot && allowed(&claim, CapacityType::Spot) && allowed(&claim, CapacityType::OnDemand) {
        pin(ground.snapshot, &mut claim, CapacityType::Spot);
    }
    if set.len() > 1 {
        same_type_rule(ground.snapshot, moved, set, &mut claim);
        check_min_values(ground.snapshot, &claim, &relaxed, lifted)?;
        if claim.launches.is_empty() {
            return Err(Stop::new(Hurdle::NotCheaper, "Can't replace with a cheaper node"));
        }
    }
    let price = worst_of_cheapest(moved, &claim);
    Ok((claim, price))
}

/// The one estimate of what a claim will cost: of the types it may be launched as, the lowest worst launch price (W-08).
pub(super) fn worst_of_cheapest(moved: &mut Moved<'_, '_>, claim: &PlannedClaim) -> Price {
    let prices = claim
        .launches
        .iter()
        .map(|launch| moved.worst_price(claim, launch.instance_type));
    prices
        .min()
        .filter(|price| *price < Price::MAX)
        .unwrap_or(Price::ZERO)
}

/// D-145: keeps the types whose worst launch price is strictly below. Launches come in order of their cheapest offering, so the search ends early.
fn keep_cheaper(moved: &mut Moved<'_, '_>, claim: &mut PlannedClaim, below: Price) {
    let mut launches = std::mem::take(&mut claim.launches);
    let candidates = launches.partition_point(|launch| launch.price < below);
    launches.truncate(candidates);
    launches.retain(|launch| moved.worst_price(claim, launch.instance_type) < below);
    claim.launches = launches;
}

/// D-147, D-154: restricts a claim to one capacity type. Types that cannot be had so are dropped, unless minValues counts them.
fn pin(snapshot: &Snapshot, claim: &mut PlannedClaim, kind: CapacityType) {
    let min_values = claim
        .requirements
        .find(labels::CAPACITY_TYPE)
        .and_then(Requirement::min_values);
    let pinned = Requirement::is(labels::CAPACITY_TYPE, kind.as_str()).with_min_values(min_values);
    claim.requirements.replace(pinned);
    claim.capacity_types = [kind.as_str().to_owned()].into();
    let keep_all = claim.requirements.has_min_values();
    let types = &snapshot.pool(claim.pool).instance_types;
    let requirements = &claim.requirements;
    let mut launches: Vec<Launch> = claim
        .launches
        .iter()
        .cloned()
        .filter_map(|launch| {
            let offering = types[launch.instance_type].cheapest_offering(requirements, &snapshot.well_known);
            match offering {
                Some(offering) => Some(Launch {
                    zone: offering.zone().map(ToOwned::to_owned),
                    capacity_type: offering.capacity_type(),
                    price: offering.price,
                    ..launch
                }),
                None => keep_all.then_some(Launch {
                    price: Price::MAX,
                    ..launch
                }),
            }
        })
        .collect();
    launches.sort_by_key(|launch| (launch.price, launch.instance_type));
    claim.launches = launches.into();
}

fn reached(snapshot: &Snapshot, claim: &PlannedClaim, count: usize) -> Result<(), BTreeMap<String, u32>> {
    if !claim.requirements.has_min_values() {
        return Ok(());
    }
    let types = &snapshot.pool(claim.pool).instance_types;
    let types = claim
        .launches
        .iter()
        .take(count)
        .map(|launch| &types[launch.instance_type]);
    claim.requirements.satisfies_min_values(types).map(drop)
}

/// D-150: under BestEffort, what was reached before the filter is all that is asked for after it.
fn relaxed_min_values(snapshot: &Snapshot, claim: &PlannedClaim) -> BTreeMap<String, u32> {
    if claim.min_values_relaxed {
        reached(snapshot, claim, usize::MAX).err().unwrap_or_default()
    } else {
        BTreeMap::new()
    }
}

fn check_min_values(
    snapshot: &Snapshot,
    claim: &PlannedClaim,
    relaxed: &BTreeMap<String, u32>,
    lifted: &Lifted,
) -> Result<(), Stop> {
    if lifted.contains(&Hurdle::MinValues) || claim.launches.is_empty() {
        return Ok(());
    }
    let Err(counts) = reached(snapshot, claim, usize::MAX) else {
        return Ok(());
    };
    let failing: Vec<&str> = counts
        .iter()
        .filter(|(key, count)| relaxed.get(*key).is_none_or(|enough| *count < enough))
        .map(|(key, _)| key.as_str())
        .collect();
    if failing.is_empty() {
        return Ok(());
    }
    let keys = failing.join(" ");
    let text =
        format!("Filtering by price: minValues requirement is not met for label(s) (label(s)=[{keys}])");
    Err(Stop::new(Hurdle::MinValues, text))
}

/// D-156, D-157: a spot node needs 15 cheaper types, and the launch is limited to them, or to as many as minValues needs.
fn flexible(snapshot: &Snapshot, claim: &mut PlannedClaim, lifted: &Lifted) -> Result<(), Stop> {
    let count = claim.launches.len();
    if count < SPOT_TO_SPOT_INSTANCE_TYPES && !lifted.contains(&Hurdle::SpotToSpotFlexibility) {
        let text = format!(
            "SpotToSpotConsolidation requires {SPOT_TO_SPOT_INSTANCE_TYPES} cheaper instance type options than the current candidate to consolidate, got {count}"
        );
        return Err(Stop::new(Hurdle::SpotToSpotFlexibility, text));
    }
    let enough = (SPOT_TO_SPOT_INSTANCE_TYPES..count).find(|size| reached(snapshot, claim, *size).is_ok());
    claim.launches.truncate(enough.unwrap_or(count));
    Ok(())
}

/// D-162: a replacement of the same type as a removed node must not be dearer than keeping that node.
fn same_type_rule(
    snapshot: &Snapshot,
    moved: &mut Moved<'_, '_>,
    set: &[&Candidate],
    claim: &mut PlannedClaim,
) {
    let types = &snapshot.pool(claim.pool).instance_types;
    let names: Vec<&str> = claim
        .launches
        .iter()
        .map(|launch| types[launch.instance_type].name.as_str())
        .collect();
    let shared = set.iter().filter_map(|candidate| {
        let view = snapshot.node(candidate.node);
        let own = &snapshot.pool(candidate.pool).instance_types[view.instance_type?];
        if !names.contains(&own.name.as_str()) {
            return None;
        }
        let labels = Requirements::from_labels(&view.labels);
        let compatible = own.offerings.iter().filter(|offering| {
            labels
                .compatible(&offering.requirements, &snapshot.well_known)
                .is_ok()
        });
        compatible.map(|offering| offering.price).min()
    });
    if let Some(limit) = shared.min() {
        keep_cheaper(moved, claim, limit);
    }
}
