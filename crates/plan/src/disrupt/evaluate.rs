//! May these nodes go together, and what comes instead: the rules of consolidation for one set (D §4.5–4.7, D-162).

use super::balanced;
use super::candidates::{Candidate, capitalised};
use super::cost;
use super::ground::{Ground, consolidates};
use super::headroom;
use super::hurdle::{Hurdle, Lifted, Stop};
use super::outcome::PoolScore;
use super::patience;
use super::simulate::{Moved, WhatIf};
use spokeshave_api::constants::SPOT_TO_SPOT_INSTANCE_TYPES;
use spokeshave_model::placement::{Launch, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_model::state_node::is_free;
use spokeshave_model::{CapacityType, Offering, Price, Requirement, Requirements, labels};
use std::collections::{BTreeMap, BTreeSet};

/// A set of nodes that may go.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// What comes instead, each with the worst price at which its cheapest type may be launched; nothing for a delete.
    pub(super) replacements: Vec<(PlannedClaim, Price)>,
    /// What the nodes cost.
    pub(super) price_before: Price,
    /// The sum of the prices of what comes: the one estimate of savings (W-08).
    pub(super) price_after: Price,
    /// By NodePool that loses nodes.
    pub(super) scores: Vec<PoolScore>,
}

impl Exchange {
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
    // W-06: a node that only holds room for pods to come may be replaced by a cheaper one that holds it, too.
    if cost::is_empty(candidate) && !headroom::holds(snapshot, candidate) {
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

/// Removes a set, places its pods, and evaluates what is then; where the NodePool that comes first has nothing cheaper, those after it are
/// asked (W-04). `claims` learns how many new NodeClaims the pods need, if they all have places; `write` sees the plan before everything is put
/// back.
pub(super) fn what_if<'a, R>(
    ground: &Ground<'a>,
    what_if: &mut WhatIf<'a>,
    set: &[&Candidate],
    pods: &[PodId],
    lifted: &Lifted,
    claims: &mut Option<usize>,
    mut write: impl FnMut(&mut Moved<'_, 'a>, Exchange) -> R,
) -> Result<R, Stop> {
    ask(ground, what_if, set, pods, |moved, _| {
        if moved.unplaced.is_empty() {
            claims.get_or_insert(moved.claim_count());
        }
        let plan = evaluate(ground, moved, set, lifted)?;
        Ok(write(moved, plan))
    })
}

/// Removes a set, places its pods, and lets `look` see the result with what the NodePools before have said; where that is too dear, those after it are
/// asked (W-04). The answer is the last, or the first refusal.
pub(super) fn ask<'a, R>(
    ground: &Ground<'a>,
    what_if: &mut WhatIf<'a>,
    set: &[&Candidate],
    pods: &[PodId],
    mut look: impl FnMut(&mut Moved<'_, 'a>, Option<&Stop>) -> Result<R, Stop>,
) -> Result<R, Stop> {
    let nodes: Vec<NodeId> = set.iter().map(|candidate| candidate.node).collect();
    let price: Price = set.iter().map(|candidate| candidate.price).sum();
    let (mut after, mut first): (_, Option<Stop>) = (None, None);
    loop {
        let answer = what_if.without_on(after, &nodes, pods, |moved| match look(moved, first.as_ref()) {
            Ok(found) => Ok(found),
            Err(stop) => {
                let dear = matches!(stop.hurdle, Hurdle::NotCheaper | Hurdle::MinValues);
                let planned = if dear { moved.claims() } else { Vec::new() };
                let next = match planned.as_slice() {
                    [claim] => ground.cheaper_pools.next(ground.snapshot, claim, price),
                    _ => None,
                };
                Err((stop, next))
            }
        });
        match answer {
            Ok(written) => return Ok(written),
            Err((stop, next)) => {
                let first = first.get_or_insert(stop);
                match next.filter(|next| after.is_none_or(|after| *next > after)) {
                    Some(next) => after = Some(next),
                    None => return Err(first.clone()),
                }
            }
        }
    }
}

/// Evaluates a set whose nodes have been removed and whose pods have been placed.
fn evaluate(
    ground: &Ground<'_>,
    moved: &mut Moved<'_, '_>,
    set: &[&Candidate],
    lifted: &Lifted,
) -> Result<Exchange, Stop> {
    let mut plan = priced(ground, moved, set, lifted)?;
    plan.scores = approved(ground, set, plan.savings(), !plan.replacements.is_empty(), lifted)?;
    Ok(plan)
}

/// What replacements cost together. What nobody knows the price of counts as what it replaces: neither a saving nor an expense is made up.
pub(super) fn price_after(before: Price, mut replacements: impl Iterator<Item = Price>) -> Price {
    let sum = replacements.try_fold(Price::ZERO, |sum, price| {
        (price != Price::UNKNOWN).then(|| sum.saturating_add(price))
    });
    sum.unwrap_or(before)
}

/// What comes instead of a set, and what that costs: all of the evaluation that depends on where the pods have gone. Nothing is scored yet.
pub(super) fn priced(
    ground: &Ground<'_>,
    moved: &mut Moved<'_, '_>,
    set: &[&Candidate],
    lifted: &Lifted,
) -> Result<Exchange, Stop> {
    if let Some(pod) = moved.unplaced.first().copied() {
        return Err(Stop::new(Hurdle::Pod(pod), capitalised(&moved.refusal())));
    }
    let price_before: Price = set.iter().map(|candidate| candidate.price).sum();
    let mut plan = Exchange {
        replacements: Vec::new(),
        price_before,
        price_after: Price::ZERO,
        scores: Vec::new(),
    };
    let count = moved.claim_count();
    let limit = most_replacements(ground, set.len());
    if count > limit && !lifted.contains(&Hurdle::TooManyReplacements) {
        let text = format!("Can't remove without creating {count} candidates");
        return Err(Stop::new(Hurdle::TooManyReplacements, text));
    }
    if count >= 1 {
        // With the rule of one replacement thought away, the first stands for all.
        let wanted = if count > limit { 1 } else { count };
        let claims: Vec<PlannedClaim> = moved.claims().into_iter().take(wanted).collect();
        if claims.len() < wanted {
            let text = "Can't replace: too few instance types are left for minValues";
            return Err(Stop::new(Hurdle::MinValues, text));
        }
        let asked: Vec<Option<u32>> = claims.iter().map(least_capacity_types).collect();
        plan.replacements = all_affordable(ground, moved, set, claims, price_before, lifted)?;
        for ((claim, _), asked) in plan.replacements.iter_mut().zip(asked) {
            claim.min_values_relaxed |= asked > least_capacity_types(claim);
        }
        plan.price_after = price_after(price_before, plan.replacements.iter().map(|(_, price)| *price));
    }
    Ok(plan)
}

/// Whether what is saved is worth the disruption, with the scores: all of the evaluation that depends on totals of NodePools and on the time.
pub(super) fn approved(
    ground: &Ground<'_>,
    set: &[&Candidate],
    savings: Price,
    replaces: bool,
    lifted: &Lifted,
) -> Result<Vec<PoolScore>, Stop> {
    let scores = balanced::scores(ground, set, savings);
    if let Some(low) = scores.iter().find(|score| !score.approved)
        && !lifted.contains(&Hurdle::Score)
    {
        let text = low.text();
        return Err(Stop {
            scores,
            ..Stop::new(Hurdle::Score, text)
        });
    }
    if !ground.paybacks.is_empty() && !lifted.contains(&Hurdle::DisruptionPolicy) {
        earns(ground, set, savings)?;
    }
    if replaces {
        patience::check(ground, set, &scores, lifted)?;
    }
    Ok(scores)
}

/// Whether what is saved is worth the restarts to every DisruptionPolicy that judges over time.
fn earns(ground: &Ground<'_>, set: &[&Candidate], savings: Price) -> Result<(), Stop> {
    let count = |candidate: &&Candidate| restarts(ground.snapshot, candidate);
    let restarts: usize = set.iter().map(count).sum();
    let pools: BTreeSet<_> = set.iter().map(|candidate| candidate.pool).collect();
    for payback in pools.iter().filter_map(|pool| ground.paybacks.get(pool)) {
        let answer = payback.check(savings, restarts);
        answer.map_err(|text| Stop::new(Hurdle::DisruptionPolicy, text))?;
    }
    Ok(())
}

/// How many pods have to start again elsewhere when a candidate goes: virtual ones have never started.
fn restarts(snapshot: &Snapshot, candidate: &Candidate) -> usize {
    if !snapshot.classes.has_virtual() {
        return candidate.moving_count();
    }
    let is_real = |pod: &&PodId| !snapshot.pod(**pod).is_virtual;
    candidate.moving(snapshot).iter().filter(is_real).count()
}

/// How many nodes may come for so many that go: one, or with the option several, but fewer than go (D-144, W-03).
pub(super) fn most_replacements(ground: &Ground<'_>, going: usize) -> usize {
    ground
        .policy
        .disrupt
        .replacements
        .min(going.saturating_sub(1))
        .max(1)
}

/// What may be made up by rounding when so many prices are added up and compared: half a nano-dollar each. Of two prices alone the greater is greater
/// before rounding, too.
fn rounding(prices: usize) -> Price {
    let halves = if prices > 2 { prices } else { 0 };
    Price(i64::try_from(halves / 2).unwrap_or(i64::MAX))
}

/// One claim may cost anything below what goes. Of several each gets its cheapest price and an equal share of what is left over, so that they
/// are cheaper together whatever each is launched as (W-03).
fn all_affordable(
    ground: &Ground<'_>,
    moved: &mut Moved<'_, '_>,
    set: &[&Candidate],
    mut claims: Vec<PlannedClaim>,
    price_before: Price,
    lifted: &Lifted,
) -> Result<Vec<(PlannedClaim, Price)>, Stop> {
    if let [_] = claims.as_slice()
        && let Some(claim) = claims.pop()
    {
        let limit = price_before.saturating_sub(rounding(set.len() + 1));
        return Ok(vec![affordable(ground, moved, set, claim, limit, lifted)?]);
    }
    let mut floors = Vec::with_capacity(claims.len());
    for claim in &mut claims {
        let both = [CapacityType::Spot, CapacityType::OnDemand];
        if both.into_iter().all(|kind| allows(claim, kind)) {
            pin(ground.snapshot, claim, CapacityType::Spot);
        }
        floors.push(worst_of_cheapest(moved, claim));
    }
    let slack = price_before
        .saturating_sub(floors.iter().copied().sum())
        .saturating_sub(rounding(set.len() + floors.len()));
    let share = slack.0 / i64::try_from(claims.len()).unwrap_or(i64::MAX);
    if share <= 0 {
        return Err(Stop::new(Hurdle::NotCheaper, "Can't replace with cheaper nodes"));
    }
    let shares = claims.into_iter().zip(floors);
    shares
        .map(|(claim, floor)| {
            let limit = floor.saturating_add(Price(share));
            affordable(ground, moved, set, claim, limit, lifted)
        })
        .collect()
}

/// D-145…D-158, D-162: narrows a replacement to what is cheaper than what it replaces, and prices it.
fn affordable(
    ground: &Ground<'_>,
    moved: &mut Moved<'_, '_>,
    set: &[&Candidate],
    mut claim: PlannedClaim,
    limit: Price,
    lifted: &Lifted,
) -> Result<(PlannedClaim, Price), Stop> {
    let all_spot = set
        .iter()
        .all(|candidate| ground.capacity_type(candidate.node) == Some(CapacityType::Spot));
    let spot_to_spot = all_spot && allows(&claim, CapacityType::Spot);
    if spot_to_spot && !ground.policy.disrupt.spot_to_spot && !lifted.contains(&Hurdle::SpotToSpotDisabled) {
        let text = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node";
        return Err(Stop::new(Hurdle::SpotToSpotDisabled, text));
    }
    if spot_to_spot {
        pin(ground.snapshot, &mut claim, CapacityType::Spot);
    }
    let relaxed = relaxed_min_values(ground.snapshot, &claim);
    let snapshot = ground.snapshot;
    let unknown = set.iter().all(|candidate| {
        candidate.price == Price::ZERO && !is_free(snapshot.node(candidate.node), &snapshot.pools)
    });
    let dear = if unknown {
        Hurdle::UnknownPrice
    } else {
        Hurdle::NotCheaper
    };
    if !lifted.contains(&dear) {
        keep_cheaper(moved, &mut claim, limit);
        check_min_values(ground.snapshot, &claim, &relaxed, lifted)?;
        if claim.launches.is_empty() {
            return Err(Stop::new(dear, "Can't replace with a cheaper node"));
        }
    }
    if spot_to_spot && set.len() == 1 {
        flexible(ground.snapshot, &mut claim, lifted)?;
    }
    let may_be_both = allows(&claim, CapacityType::Spot) && allows(&claim, CapacityType::OnDemand);
    if !spot_to_spot && may_be_both && is_for_sale(snapshot, &claim, CapacityType::Spot) {
        pin(snapshot, &mut claim, CapacityType::Spot);
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

fn allows(claim: &PlannedClaim, kind: CapacityType) -> bool {
    claim.requirements.get(labels::CAPACITY_TYPE).has(kind.as_str())
        && claim.capacity_types.contains(kind.as_str())
}

/// Whether one of the types that are left can be had so now: a claim allows what any type offered before the dearer ones fell out.
fn is_for_sale(snapshot: &Snapshot, claim: &PlannedClaim, kind: CapacityType) -> bool {
    let mut launches = claim.launches.iter();
    if launches.any(|launch| launch.capacity_type == Some(kind)) {
        return true;
    }
    let mut requirements = claim.requirements.clone();
    requirements.replace(Requirement::is(labels::CAPACITY_TYPE, kind.as_str()));
    let types = &snapshot.pool(claim.pool).instance_types;
    claim.launches.iter().any(|launch| {
        let offering = types[launch.instance_type].cheapest_offering(&requirements, &snapshot.well_known);
        offering.is_some()
    })
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

/// D-147, D-154: restricts a claim to one capacity type, whatever minValues asks of them. Types that cannot be had so are dropped, unless minValues counts
/// them.
fn pin(snapshot: &Snapshot, claim: &mut PlannedClaim, kind: CapacityType) {
    let min_values = least_capacity_types(claim);
    let pinned = Requirement::is(labels::CAPACITY_TYPE, kind.as_str());
    let pinned = pinned.with_min_values(min_values.map(|_| 1));
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
            // The cheapest of all is the cheapest of its kind.
            if launch.capacity_type == Some(kind) {
                return Some(launch);
            }
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

/// How many capacity types minValues asks for.
fn least_capacity_types(claim: &PlannedClaim) -> Option<u32> {
    claim.requirements.min_values(labels::CAPACITY_TYPE)
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

/// D-156, D-157, W-09: a spot node needs 15 cheaper instance types, and, where its pods may be in several zones, these in more than one of them. The
/// launch is limited to the cheapest that make this up, or to as many as minValues needs.
fn flexible(snapshot: &Snapshot, claim: &mut PlannedClaim, lifted: &Lifted) -> Result<(), Stop> {
    let types = &snapshot.pool(claim.pool).instance_types;
    let zones_of = |instance_type: usize| {
        let offerings = types[instance_type].available_offerings(&claim.requirements, &snapshot.well_known);
        offerings.filter_map(Offering::zone)
    };
    let count = claim.launches.len();
    let stands = !lifted.contains(&Hurdle::SpotToSpotFlexibility);
    if count < SPOT_TO_SPOT_INSTANCE_TYPES && stands {
        let text = format!(
            "SpotToSpotConsolidation requires {SPOT_TO_SPOT_INSTANCE_TYPES} cheaper instance type options than the current candidate to consolidate, got {count}"
        );
        return Err(Stop::new(Hurdle::SpotToSpotFlexibility, text));
    }
    let mut zones = BTreeSet::new();
    let spread = claim.launches.iter().position(|launch| {
        zones.extend(zones_of(launch.instance_type));
        zones.len() > 1
    });
    // Dearer types tell whether there is another zone at all.
    let open = |zone: &str| !zones.contains(zone);
    if spread.is_none() && stands && (0..types.len()).any(|index| zones_of(index).any(open)) {
        let only = zones.first().copied().unwrap_or_default();
        let text = format!(
            "SpotToSpotConsolidation requires cheaper instance type options in more than one zone, got {count} in zone {only:?}"
        );
        return Err(Stop::new(Hurdle::SpotToSpotFlexibility, text));
    }
    let needed = SPOT_TO_SPOT_INSTANCE_TYPES.max(spread.map_or(0, |position| position + 1));
    let enough = (needed..count).find(|size| reached(snapshot, claim, *size).is_ok());
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
        let labels = Requirements::of_node(&view.labels);
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
