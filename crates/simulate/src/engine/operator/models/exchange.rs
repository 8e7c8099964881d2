//! What may come instead of nodes in the model of Karpenter, and at which price (D §4.6, §4.7, D-162).
//!
//! Owns the rules on prices, capacity types and instance types of a replacement. Whether pods have places has been found before, and whether it is worth the
//! disruption is asked later.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_api::constants::SPOT_TO_SPOT_INSTANCE_TYPES;
use spokeshave_model::placement::{Launch, PlannedClaim};
use spokeshave_model::snapshot::{PoolId, Snapshot};
use spokeshave_model::{CapacityType, Price, Requirement, Requirements, labels};
use spokeshave_plan::disrupt::{Candidate, Replacement};

/// The prices of one pass.
pub(super) struct Exchange<'a> {
    snapshot: &'a Snapshot,
    /// Feature gate `SpotToSpotConsolidation`.
    spot_to_spot: bool,
    /// Worst launch prices by instance type, per NodePool and requirements; filled on demand.
    worst_prices: BTreeMap<(PoolId, Requirements), Vec<Option<Price>>>,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, spot_to_spot: bool) -> Self {
        Exchange {
            snapshot,
            spot_to_spot,
            worst_prices: BTreeMap::new(),
        }
    }

    /// The node for which the pods of these nodes have a place, narrowed to what is cheaper than they are; none where nothing is.
    pub(super) fn replacement(&mut self, set: &[Candidate], claim: &PlannedClaim) -> Option<Replacement> {
        let claim = self.affordable(set, claim.clone())?;
        // D-152: what is not offered counts as nothing.
        let first = claim.launches.first().map(|launch| launch.price);
        let price = first.filter(|price| *price < Price::MAX).unwrap_or(Price::ZERO);
        Some(Replacement::of(self.snapshot, claim, price))
    }

    fn affordable(&mut self, set: &[Candidate], mut claim: PlannedClaim) -> Option<PlannedClaim> {
        let snapshot = self.snapshot;
        let all_spot = set.iter().all(|candidate| is_spot(snapshot, candidate));
        let spot_to_spot = all_spot && allows(&claim, CapacityType::Spot);
        if spot_to_spot {
            if !self.spot_to_spot {
                return None;
            }
            // D-154: what is not offered so is dearer than all.
            pin_to_spot(snapshot, &mut claim);
        }
        let relaxed = if claim.min_values_relaxed {
            short_of(snapshot, &claim, usize::MAX)
        } else {
            BTreeMap::new()
        };
        let before: Price = set.iter().map(|candidate| candidate.price).sum();
        self.keep_cheaper(&mut claim, before.saturating_sub(rounding(set.len() + 1)));
        if !has_enough(snapshot, &claim, &relaxed) {
            return None;
        }
        if spot_to_spot && set.len() == 1 && !keep_cheapest(snapshot, &mut claim) {
            return None;
        }
        if !spot_to_spot && allows(&claim, CapacityType::Spot) && allows(&claim, CapacityType::OnDemand) {
            // D-147: whatever is to be had, so that a lack of spot capacity fails the launch.
            pin_to_spot(snapshot, &mut claim);
        }
        if set.len() > 1 {
            self.keep_cheaper_than_shared(set, &mut claim);
            if !has_enough(snapshot, &claim, &relaxed) {
                return None;
            }
        }
        Some(claim)
    }

    /// D-145, D-146: keeps the types whose worst launch price is strictly below.
    fn keep_cheaper(&mut self, claim: &mut PlannedClaim, below: Price) {
        let snapshot = self.snapshot;
        let types = &snapshot.pool(claim.pool).instance_types;
        let key = (claim.pool, claim.requirements.clone());
        let known = self.worst_prices.entry(key);
        let known = known.or_insert_with(|| vec![None; types.len()]);
        let mut launches = std::mem::take(&mut claim.launches);
        // They come in order of their cheapest offering.
        let count = launches.partition_point(|launch| launch.price < below);
        launches.truncate(count);
        let requirements = &claim.requirements;
        launches.retain(|launch| {
            let index = launch.instance_type;
            let worst = known[index]
                .get_or_insert_with(|| types[index].worst_launch_price(requirements, &snapshot.well_known));
            *worst < below
        });
        claim.launches = launches;
    }

    /// D-162: a replacement of the same type as a node that goes must not be dearer than keeping that node.
    fn keep_cheaper_than_shared(&mut self, set: &[Candidate], claim: &mut PlannedClaim) {
        let snapshot = self.snapshot;
        let types = &snapshot.pool(claim.pool).instance_types;
        let launches = claim.launches.iter();
        let names: BTreeSet<&str> = launches
            .map(|launch| types[launch.instance_type].name.as_str())
            .collect();
        // By type, the cheapest offering that one of its nodes could have; none where there is no such offering.
        let mut shared: BTreeMap<&str, Option<Price>> = BTreeMap::new();
        for candidate in set {
            let view = snapshot.node(candidate.node);
            let own = view
                .instance_type
                .map(|index| &snapshot.pool(candidate.pool).instance_types[index]);
            let Some(own) = own.filter(|own| names.contains(own.name.as_str())) else {
                continue;
            };
            let node = Requirements::of_node(&view.labels);
            let offered = own.offerings.iter().filter(|offering| {
                node.compatible(&offering.requirements, &snapshot.well_known)
                    .is_ok()
            });
            let known = shared.entry(own.name.as_str()).or_default();
            *known = offered.map(|offering| offering.price).chain(*known).min();
        }
        let prices = shared.into_values().map(Option::unwrap_or_default);
        if let Some(limit) = prices.min() {
            self.keep_cheaper(claim, limit);
        }
    }
}

/// What may be made up by rounding when so many prices are added up and compared: half a nano-dollar each. Of two prices alone the greater is greater before rounding,
/// too.
fn rounding(prices: usize) -> Price {
    let halves = if prices > 2 { prices } else { 0 };
    Price(i64::try_from(halves / 2).unwrap_or(i64::MAX))
}

fn is_spot(snapshot: &Snapshot, candidate: &Candidate) -> bool {
    let label = snapshot.node(candidate.node).labels.get(labels::CAPACITY_TYPE);
    label.is_some_and(|text| text == CapacityType::Spot.as_str())
}

fn allows(claim: &PlannedClaim, kind: CapacityType) -> bool {
    claim.requirements.get(labels::CAPACITY_TYPE).has(kind.as_str())
}

/// Restricts a node to spot. Types that are not offered so come last, at the price of what is not offered.
fn pin_to_spot(snapshot: &Snapshot, claim: &mut PlannedClaim) {
    let spot = CapacityType::Spot.as_str();
    let least = claim.requirements.min_values(labels::CAPACITY_TYPE);
    let pinned = Requirement::is(labels::CAPACITY_TYPE, spot).with_min_values(least.map(|_| 1));
    claim.requirements.replace(pinned);
    claim.capacity_types = [spot.to_owned()].into();
    let types = &snapshot.pool(claim.pool).instance_types;
    let requirements = &claim.requirements;
    let pinned = claim.launches.iter().map(|launch| {
        // The cheapest of all is the cheapest of its kind.
        if launch.capacity_type == Some(CapacityType::Spot) {
            return launch.clone();
        }
        let offering = types[launch.instance_type].cheapest_offering(requirements, &snapshot.well_known);
        match offering {
            Some(offering) => Launch {
                zone: offering.zone().map(ToOwned::to_owned),
                capacity_type: offering.capacity_type(),
                price: offering.price,
                ..launch.clone()
            },
            None => Launch {
                price: Price::MAX,
                ..launch.clone()
            },
        }
    });
    let mut launches: Vec<Launch> = pinned.collect();
    launches.sort_by_key(|launch| (launch.price, launch.instance_type));
    claim.launches = launches.into();
}

/// D-156, D-157: a spot node alone needs 15 cheaper types, and what comes instead is one of the cheapest 15, or of as many as minValues needs. False where there
/// are fewer.
fn keep_cheapest(snapshot: &Snapshot, claim: &mut PlannedClaim) -> bool {
    let count = claim.launches.len();
    let mut counts = SPOT_TO_SPOT_INSTANCE_TYPES..count;
    let enough = counts.find(|first| short_of(snapshot, claim, *first).is_empty());
    claim.launches.truncate(enough.unwrap_or(count));
    count >= SPOT_TO_SPOT_INSTANCE_TYPES
}

/// The keys of which the first so many types do not have as many values as minValues asks for, with how many they have.
fn short_of(snapshot: &Snapshot, claim: &PlannedClaim, first: usize) -> BTreeMap<String, u32> {
    if !claim.requirements.has_min_values() {
        return BTreeMap::new();
    }
    let types = &snapshot.pool(claim.pool).instance_types;
    let launches = claim.launches.iter().take(first);
    let types = launches.map(|launch| &types[launch.instance_type]);
    let reached = claim.requirements.satisfies_min_values(types);
    reached.err().unwrap_or_default()
}

/// D-150: whether there is a type left, and as many values of every key as are asked for, or as there were where minValues had to be lowered before.
fn has_enough(snapshot: &Snapshot, claim: &PlannedClaim, relaxed: &BTreeMap<String, u32>) -> bool {
    let is_met = |key: &str, count: u32| relaxed.get(key).is_some_and(|enough| count >= *enough);
    let short = short_of(snapshot, claim, usize::MAX);
    !claim.launches.is_empty() && short.iter().all(|(key, count)| is_met(key, *count))
}

#[cfg(test)]
mod tests;
