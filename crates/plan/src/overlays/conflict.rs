//! Overlays of one weight that say different things of the same offering or resource: the one that comes first stays in force.
//!
//! Overlays whose weight nobody else has cannot conflict, and are not even compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use spokeshave_api::NodeOverlay;
use spokeshave_model::Requirements;

use super::effect::Effect;
use super::{PoolTypes, known_of, pool_requirements};

/// What two overlays of one weight disagree about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The overlay that stays in force.
    pub with: String,
    /// The NodePool.
    pub node_pool: String,
    /// The instance type.
    pub instance_type: String,
    /// The resource; `None` when it is the price of an offering.
    pub resource: Option<String>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match &self.resource {
            None => "the price".to_owned(),
            Some(resource) => format!("{resource} in the capacity"),
        };
        write!(
            f,
            "NodeOverlay {} has the same weight and corrects {what} of instance type {} in NodePool {} too; give one of them another weight",
            self.with, self.instance_type, self.node_pool
        )
    }
}

/// Pool, type, and the position of an offering or the name of a resource.
type Place<T> = (usize, usize, T);

/// What overlays of one weight have claimed.
pub(super) struct Ledger<'a> {
    pools: &'a [PoolTypes],
    /// What is known of nodes, by pool and type; made when it is needed.
    known: Vec<Option<Vec<Requirements>>>,
    /// Weights that several overlays have.
    shared: BTreeSet<i32>,
    weight: i32,
    prices: BTreeMap<Place<usize>, String>,
    capacities: BTreeMap<Place<String>, String>,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(pools: &'a [PoolTypes], ordered: &[&Arc<NodeOverlay>]) -> Self {
        let weight = |overlay: &NodeOverlay| overlay.spec.weight.unwrap_or(0);
        let twins = ordered.windows(2).filter_map(|pair| {
            let [first, second] = pair else { return None };
            (weight(first) == weight(second)).then_some(weight(first))
        });
        Self {
            pools,
            known: vec![None; pools.len()],
            shared: twins.collect(),
            weight: 0,
            prices: BTreeMap::new(),
            capacities: BTreeMap::new(),
        }
    }

    /// Enters what the overlay claims, or nothing of it and says why. Overlays come by weight.
    pub(super) fn admit(&mut self, effect: &Effect) -> Option<Conflict> {
        if !self.shared.contains(&effect.weight) || !effect.changes_anything() {
            return None;
        }
        if self.weight != effect.weight {
            self.weight = effect.weight;
            self.prices.clear();
            self.capacities.clear();
        }
        let (prices, capacities) = self.places(effect);
        let price = prices
            .iter()
            .find_map(|place| Some((place, self.prices.get(place)?)));
        if let Some(((pool, type_, _), with)) = price {
            return Some(self.conflict(*pool, *type_, with, None));
        }
        let capacity = capacities
            .iter()
            .find_map(|place| Some((place, self.capacities.get(place)?)));
        if let Some(((pool, type_, resource), with)) = capacity {
            return Some(self.conflict(*pool, *type_, with, Some(resource)));
        }
        self.prices
            .extend(prices.into_iter().map(|place| (place, effect.name.clone())));
        self.capacities
            .extend(capacities.into_iter().map(|place| (place, effect.name.clone())));
        None
    }

    /// Whose price and which resources of which types the overlay corrects.
    fn places(&mut self, effect: &Effect) -> (Vec<Place<usize>>, Vec<Place<String>>) {
        let (mut prices, mut capacities) = (Vec::new(), Vec::new());
        for (number, PoolTypes { pool, types }) in self.pools.iter().enumerate() {
            let base = pool_requirements(pool);
            if base.intersects(&effect.requirements).is_err() {
                continue;
            }
            let known = self.known[number]
                .get_or_insert_with(|| types.iter().map(|one| known_of(&base, one)).collect());
            for (index, (instance_type, known)) in types.iter().zip(known).enumerate() {
                let offerings: Vec<usize> = effect.offerings(known, instance_type).collect();
                if offerings.is_empty() {
                    continue;
                }
                if effect.price.is_some() {
                    prices.extend(offerings.into_iter().map(|offering| (number, index, offering)));
                }
                let resources = effect.capacity.iter();
                capacities.extend(resources.map(|(name, _)| (number, index, name.to_owned())));
            }
        }
        (prices, capacities)
    }

    fn conflict(&self, pool: usize, type_: usize, with: &str, resource: Option<&String>) -> Conflict {
        let pool = &self.pools[pool];
        Conflict {
            with: with.to_owned(),
            node_pool: pool.pool.name().to_owned(),
            instance_type: pool.types[type_].name.clone(),
            resource: resource.cloned(),
        }
    }
}
