//! Which NodePool may have something cheaper than the one that pods would go to first (W-04).
//!
//! Pods go to NodePools in order of weight, whatever they cost; where the first has nothing cheaper than the nodes that are to go, one after it
//! may. It only says where it is worth asking; the what-if decides.

use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::snapshot::{PoolId, Snapshot};
use spokeshave_model::{Price, Resources};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// What a NodePool sells.
struct Sold {
    pool: PoolId,
    price: Price,
    holds: Resources,
}

/// By NodePool: what those after it sell that it does not, or for less. Made when first needed.
pub(super) struct CheaperPools {
    later: Vec<OnceLock<Vec<Sold>>>,
}

impl CheaperPools {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        CheaperPools {
            later: snapshot.pools.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// NodePools after this one are worth asking: the next of them sells a type that holds the claim's pods for less than the limit, and for less
    /// than the claim's own NodePool does.
    pub(super) fn next(&self, snapshot: &Snapshot, claim: &PlannedClaim, limit: Price) -> Option<PoolId> {
        let later = self.later[claim.pool.index()].get_or_init(|| cheaper_after(snapshot, claim.pool));
        let worth = later.iter().find(|sold| {
            let mut requests = claim.requests.iter();
            sold.price < limit && requests.all(|(name, amount)| sold.holds.get(name) >= amount)
        })?;
        Some(PoolId::from(worth.pool.index() - 1))
    }
}

fn cheaper_after(snapshot: &Snapshot, pool: PoolId) -> Vec<Sold> {
    // Pricing what the NodePool itself sells takes as long as hundreds of questions.
    let later = (pool.index() + 1..snapshot.pools.len()).map(PoolId::from);
    let provisionable: Vec<PoolId> = later
        .filter(|pool| snapshot.pool(*pool).is_provisionable())
        .collect();
    if provisionable.is_empty() {
        return Vec::new();
    }
    let own: BTreeMap<&str, Price> = prices(snapshot, pool)
        .map(|(index, price)| (snapshot.pool(pool).instance_types[index].name.as_str(), price))
        .collect();
    let sold = provisionable.into_iter().flat_map(|pool| {
        let own = &own;
        prices(snapshot, pool).filter_map(move |(index, price)| {
            let instance_type = &snapshot.pool(pool).instance_types[index];
            let is_news = own
                .get(instance_type.name.as_str())
                .is_none_or(|known| price < *known);
            is_news.then(|| Sold {
                pool,
                price,
                holds: instance_type.allocatable(),
            })
        })
    });
    sold.collect()
}

/// The cheapest price of each instance type that a NodePool can buy.
fn prices(snapshot: &Snapshot, pool: PoolId) -> impl Iterator<Item = (usize, Price)> {
    let view = snapshot.pool(pool);
    let types = view.instance_types.iter().enumerate();
    types
        .filter(|(_, instance_type)| {
            view.requirements
                .compatible(&instance_type.requirements, &snapshot.well_known)
                .is_ok()
        })
        .filter_map(|(index, instance_type)| {
            let offering = instance_type.cheapest_offering(&view.requirements, &snapshot.well_known)?;
            Some((index, offering.price))
        })
}
