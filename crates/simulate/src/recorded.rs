//! What really was: the instances of a recording, as node-hours and money.
//!
//! Owns what they cost by the prices that the policies beside them meet. It simulates nothing.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::{CapacityType, Price};
use spokeshave_scenario::import::Instance;

use crate::dumped::offered;
use crate::world::{HOUR_MS, Policy, World};

/// The nodes of a recording in the time that is counted of a simulation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeTime {
    /// How long that is, in milliseconds.
    pub span_ms: u64,
    /// The time integral of nodes, in milliseconds.
    pub node_ms: u64,
    /// The most nodes at once.
    pub peak_nodes: u64,
    /// What they cost by listed prices, in millionths of a dollar; `None` where one of them has no price.
    pub cost_micros: Option<u64>,
    /// What has no price: instance type, capacity type and zone, each once, in order.
    pub without_price: Vec<String>,
}

impl NodeTime {
    /// That of some instances, by the prices that these policies meet. An instance that never was seen to be gone is there to the end.
    #[must_use]
    pub fn of(instances: &[Instance], world: &World, policies: &[Policy]) -> Self {
        let (begin_ms, end_ms) = (world.warmup_ms, world.duration_ms);
        let mut prices: BTreeMap<[&str; 4], Option<Price>> = BTreeMap::new();
        let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
        let mut without_price = BTreeSet::new();
        let (mut node_ms, mut cost) = (0_u64, 0_u128);
        for instance in instances {
            let from_ms = instance.from_ms.max(begin_ms);
            let until_ms = instance.until_ms.unwrap_or(end_ms).min(end_ms);
            let length_ms = until_ms.saturating_sub(from_ms);
            if length_ms == 0 {
                continue;
            }
            node_ms = node_ms.saturating_add(length_ms);
            *changes.entry(from_ms).or_default() += 1;
            *changes.entry(until_ms).or_default() -= 1;
            let what = [
                instance.instance_type.as_str(),
                instance.capacity_type.as_str(),
                instance.zone.as_str(),
                instance.node_pool.as_str(),
            ];
            let price = *prices
                .entry(what)
                .or_insert_with(|| listed_price(instance, world, policies));
            match price.and_then(|price| u128::try_from(price.0).ok()) {
                Some(nanos) => cost = cost.saturating_add(u128::from(length_ms) * nanos),
                None => {
                    without_price.insert(what[..3].join(" "));
                }
            }
        }
        let (mut nodes, mut peak) = (0_i64, 0_i64);
        for change in changes.into_values() {
            nodes += change;
            peak = peak.max(nodes);
        }
        let micros = cost / u128::from(HOUR_MS) / 1_000;
        NodeTime {
            span_ms: end_ms.saturating_sub(begin_ms),
            node_ms,
            peak_nodes: u64::try_from(peak).unwrap_or(0),
            cost_micros: u64::try_from(micros).ok().filter(|_| without_price.is_empty()),
            without_price: without_price.into_iter().collect(),
        }
    }
}

/// What an instance costs per hour. Reserved capacity is paid for whether it is used or not.
fn listed_price(instance: &Instance, world: &World, policies: &[Policy]) -> Option<Price> {
    let capacity_type = instance.capacity_type.parse::<CapacityType>().ok();
    let capacity_type = capacity_type.filter(|known| *known != CapacityType::Reserved)?;
    let what = (
        Some(instance.instance_type.as_str()),
        Some(instance.zone.as_str()),
        capacity_type,
    );
    // A NodePool of the recording may have another name in every policy, or be gone.
    let others = policies.iter().flat_map(|policy| &policy.node_pools);
    let others = others.map(|pool| pool.name());
    let mut pools = std::iter::once(instance.node_pool.as_str()).chain(others);
    let sold = pools.find_map(|pool| offered(pool, what, world, policies));
    sold.and_then(|(_, offering)| offering.known_price())
}
