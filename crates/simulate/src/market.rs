//! What the cloud sells: instance types with their offerings, shortages, and what the operator believes of them after refused launches.
//!
//! Owns prices and capacity as they truly are, and which offering a launch gets. Both engines buy here. It knows nothing of why an instance is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spokeshave_api::NodeClaim;
use spokeshave_model::{CapacityType, InstanceType, Offering, Price, Requirements, Resources, labels};

use crate::cluster::Named as _;
use crate::world::{Policy, Shortage, World};

/// For how long a refused offering is believed to be unavailable, as the AWS provider does.
pub const BELIEVED_MS: u64 = 180_000;

/// What a launch has got.
#[derive(Debug, Clone)]
pub struct Sale {
    /// Type and offering; `None` when there is none.
    pub choice: Option<(InstanceType, Offering)>,
    /// Some offerings were refused, so that the operator sees others now.
    pub refused_some: bool,
}

/// The cloud's shop.
#[derive(Debug)]
pub struct Market {
    /// What each NodePool can launch, without what can never be had.
    base: BTreeMap<String, Arc<[InstanceType]>>,
    /// The same as the operator sees it now.
    seen: BTreeMap<String, Arc<[InstanceType]>>,
    well_known: BTreeSet<String>,
    /// Instance types by ascending price of their cheapest offering.
    by_price: Vec<String>,
    /// Until when, in milliseconds, the operator believes that a type cannot be had.
    believed: BTreeMap<String, u64>,
    /// Counts changes of what the operator sees.
    pub(crate) generation: u64,
    shortages: Vec<Shortage>,
}

impl Market {
    /// The shop of a world for the NodePools of a policy.
    pub fn new(world: &World, policy: &Policy) -> Self {
        let mut base = BTreeMap::new();
        for pool in &policy.node_pools {
            let name = pool.metadata.name.clone().unwrap_or_default();
            let types = without_reservations(policy.types_of(world, &name));
            base.insert(name, types);
        }
        let mut well_known: BTreeSet<String> = labels::WELL_KNOWN.iter().map(ToString::to_string).collect();
        let mut prices: BTreeMap<String, Price> = BTreeMap::new();
        for instance_type in base.values().flat_map(|types| types.iter()) {
            let offerings = instance_type.offerings.iter();
            let sets = offerings.clone().map(|offering| &offering.requirements);
            for requirement in sets
                .chain([&instance_type.requirements])
                .flat_map(Requirements::iter)
            {
                well_known.insert(requirement.key().to_owned());
            }
            let cheapest = offerings
                .map(|offering| offering.price)
                .min()
                .unwrap_or(Price::MAX);
            prices.insert(instance_type.name.clone(), cheapest);
        }
        let mut by_price: Vec<(Price, String)> =
            prices.into_iter().map(|(name, price)| (price, name)).collect();
        by_price.sort();
        Market {
            seen: base.clone(),
            base,
            well_known,
            by_price: by_price.into_iter().map(|(_, name)| name).collect(),
            believed: BTreeMap::new(),
            generation: 0,
            shortages: world.shortages.clone(),
        }
    }

    /// Brings what the operator sees up to date. True when it has changed.
    pub fn refresh(&mut self, now_ms: u64) -> bool {
        let before = self.believed.len();
        self.believed.retain(|_, until| *until > now_ms);
        let has_changed = self.believed.len() != before;
        if has_changed {
            self.rebuild();
        }
        has_changed
    }

    /// What a NodePool can launch, as the operator sees it now; the same allocation while nothing has changed.
    pub fn seen(&self, pool: &str) -> Option<&Arc<[InstanceType]>> {
        self.seen.get(pool)
    }

    /// Everything that NodePools can launch, as the operator sees it now.
    pub(crate) fn all_seen(&self) -> &BTreeMap<String, Arc<[InstanceType]>> {
        &self.seen
    }

    /// Keys that requirements may name although no NodePool defines them.
    pub fn well_known(&self) -> &BTreeSet<String> {
        &self.well_known
    }

    /// The types that truly cannot be launched now.
    fn short_types(&self, now_ms: u64) -> BTreeSet<String> {
        let active = self.shortages.iter().filter(|shortage| {
            shortage.at_ms <= now_ms && now_ms < shortage.at_ms.saturating_add(shortage.for_ms)
        });
        let count = active.map(|shortage| shortage.cheapest).max().unwrap_or(0);
        self.by_price.iter().take(count).cloned().collect()
    }

    /// The answer to a launch: the cheapest offering that the NodeClaim allows and that there is; what was refused on the way is believed to be short from
    /// now on. `draw` orders the zones.
    pub fn launch(&mut self, claim: &NodeClaim, now_ms: u64, draw: impl Fn(&str) -> u64) -> Sale {
        let types = claim.node_pool().and_then(|pool| self.base.get(pool)).cloned();
        self.launch_from(claim, types.as_deref().unwrap_or_default(), now_ms, draw)
    }

    /// The same among these types, as somebody else has corrected them: what is cheapest goes by their prices, and the instance has their capacities.
    pub fn launch_from(
        &mut self,
        claim: &NodeClaim,
        types: &[InstanceType],
        now_ms: u64,
        draw: impl Fn(&str) -> u64,
    ) -> Sale {
        let short = self.short_types(now_ms);
        let mut refused: BTreeSet<String> = BTreeSet::new();
        let mut choice = None;
        for (instance_type, offering) in self.candidates(claim, types, draw) {
            if short.contains(&instance_type.name) {
                refused.insert(instance_type.name.clone());
            } else {
                choice = Some((instance_type.clone(), offering.clone()));
                break;
            }
        }
        let refused_some = !refused.is_empty();
        if refused_some {
            let until = now_ms + BELIEVED_MS;
            self.believed
                .extend(refused.into_iter().map(|name| (name, until)));
            self.rebuild();
        }
        Sale { choice, refused_some }
    }

    fn rebuild(&mut self) {
        self.generation += 1;
        let believed = &self.believed;
        for (pool, types) in &self.base {
            let types = types.iter().map(|instance_type| {
                let mut instance_type = instance_type.clone();
                if believed.contains_key(&instance_type.name) {
                    instance_type
                        .offerings
                        .iter_mut()
                        .for_each(|offering| offering.available = false);
                }
                instance_type
            });
            self.seen.insert(pool.clone(), types.collect());
        }
    }

    /// The offerings that a claim allows, cheapest first; of equal prices the first type, and of its zones one by the claim's name.
    fn candidates<'t>(
        &self,
        claim: &NodeClaim,
        types: &'t [InstanceType],
        draw: impl Fn(&str) -> u64,
    ) -> Vec<(&'t InstanceType, &'t Offering)> {
        let Ok(requirements) = Requirements::from_api(&claim.spec.requirements) else {
            return Vec::new();
        };
        let requests = Resources::from_quantities_lossy(Some(&claim.spec.resources.requests));
        let wanted = requirements.get(labels::INSTANCE_TYPE);
        let mut found: Vec<(Price, &str, u64, (&InstanceType, &Offering))> = Vec::new();
        for instance_type in types.iter().filter(|one| wanted.has(&one.name)) {
            let fits = instance_type.requirements.intersects(&requirements).is_ok()
                && requests.fits(&instance_type.allocatable());
            if !fits {
                continue;
            }
            let sold = instance_type.offerings.iter().filter(|offering| {
                let compatible = requirements.compatible(&offering.requirements, &self.well_known);
                offering.available && compatible.is_ok()
            });
            for offering in sold {
                let draw = draw(offering.zone().unwrap_or_default());
                found.push((
                    offering.price,
                    &instance_type.name,
                    draw,
                    (instance_type, offering),
                ));
            }
        }
        found.sort_by(|left, right| (left.0, left.1, left.2).cmp(&(right.0, right.1, right.2)));
        found.into_iter().map(|(.., choice)| choice).collect()
    }
}

/// Reservations have a count that this cloud does not keep, so they are not for sale.
fn without_reservations(types: &Arc<[InstanceType]>) -> Arc<[InstanceType]> {
    let reserved = |offering: &Offering| offering.capacity_type() == Some(CapacityType::Reserved);
    if !types.iter().any(|one| one.offerings.iter().any(reserved)) {
        return Arc::clone(types);
    }
    let kept = types.iter().map(|one| {
        let mut one = one.clone();
        one.offerings.retain(|offering| !reserved(offering));
        one
    });
    kept.collect()
}

/// The labels of a node: the claim's, its single-valued requirements, those of type and offering.
pub fn node_labels(
    claim: &NodeClaim,
    instance_type: &InstanceType,
    offering: &Offering,
) -> BTreeMap<String, String> {
    let mut own = claim.metadata.labels.clone().unwrap_or_default();
    let requirements = Requirements::from_api(&claim.spec.requirements).unwrap_or_default();
    for set in [&requirements, &instance_type.requirements, &offering.requirements] {
        for requirement in set.iter() {
            if let Some(value) = requirement.single_value() {
                own.insert(requirement.key().to_owned(), value.to_owned());
            }
        }
    }
    let both = requirements
        .get(labels::OS)
        .intersection(&instance_type.requirements.get(labels::OS));
    if let Some(os) = both.any() {
        own.insert(labels::OS.to_owned(), os);
    }
    own.insert(labels::INSTANCE_TYPE.to_owned(), instance_type.name.clone());
    own.insert(labels::HOSTNAME.to_owned(), claim.name_of().to_owned());
    own
}
