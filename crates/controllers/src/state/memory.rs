//! The facts that live in memory only. A restart loses them, and each says why that is harmless.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use spokeshave_model::Price;
use spokeshave_plan::launch_backoff::LaunchBackoff;
use spokeshave_plan::registration_health::Ring;
use spokeshave_plan::vain_launches::VainLaunches;
use spokeshave_runtime::ObjectKey;

/// Facts in memory. A restart loses them, and each says why that is harmless.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Until when nodes are kept for pods that are expected on them, by provider ID. Lost: the next pass nominates again.
    pub(crate) nominations: BTreeMap<String, Timestamp>,
    /// Pods that a NodeClaim without provider ID was made for, under the claim's name. Lost: planning waits a moment for such claims to launch, and
    /// then takes their requests as room for the pods.
    pub(crate) assigned: BTreeMap<String, Vec<AssignedPod>>,
    /// The last outcomes of launches, by UID of the NodePool. Lost: its condition tells the gist (P-182).
    pub(crate) health: BTreeMap<String, Ring>,
    /// What the cloud has refused lately. Lost: each is tried once more.
    pub(crate) launches: LaunchBackoff,
    /// Nodes that came up in vain. Lost: the next two come at once.
    pub(crate) vain: VainLaunches,
}

/// A pod that a NodeClaim was made for.
#[derive(Clone, Debug)]
pub(crate) struct AssignedPod {
    pub(crate) uid: String,
    /// Its key; `None` for a virtual pod, which the API server does not know.
    pub(crate) key: Option<ObjectKey>,
}

/// NodeClaims that this process made and that have no instance yet, by name: what they are for is known here. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Created(Arc<Mutex<BTreeSet<String>>>);

impl Created {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a NodeClaim that was made.
    pub(crate) fn insert(&self, name: &str) {
        self.lock().insert(name.to_owned());
    }

    /// True when this process made the NodeClaim of this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.lock().contains(name)
    }

    /// Forgets NodeClaims that need not be remembered.
    pub(crate) fn retain(&self, keep: impl FnMut(&String) -> bool) {
        self.lock().retain(keep);
    }
}

/// What instances cost per hour, by NodeClaim, with their sum, which is asked for with every decision. Lost: the next Snapshot tells.
#[derive(Debug, Default)]
pub(crate) struct Prices(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_claim: BTreeMap<String, Cost>,
    sum: Price,
    /// How often prices were taken over.
    refreshed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    price: Price,
    /// When a node was last seen, as a number of [`Known::refreshed`].
    seen: u64,
}

impl Prices {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What all nodes cost.
    pub(crate) fn sum(&self) -> Price {
        self.lock().sum
    }

    /// What each NodeClaim costs.
    pub(crate) fn by_claim(&self) -> BTreeMap<String, Price> {
        let known = self.lock();
        let prices = known.by_claim.iter();
        prices.map(|(name, cost)| (name.clone(), cost.price)).collect()
    }

    /// Notes what a NodeClaim costs.
    pub(crate) fn insert(&self, claim: &str, price: Price) {
        let mut known = self.lock();
        let seen = known.refreshed;
        let before = known.by_claim.insert(claim.to_owned(), Cost { price, seen });
        let before = before.unwrap_or_default().price;
        known.sum = known.sum.saturating_sub(before).saturating_add(price);
    }

    /// Forgets a NodeClaim, and returns what it cost.
    pub(crate) fn remove(&self, claim: &str) -> Price {
        let mut known = self.lock();
        let price = known.by_claim.remove(claim).unwrap_or_default().price;
        known.sum = known.sum.saturating_sub(price);
        price
    }

    /// Takes over what the nodes of the cluster cost, each by the name of its NodeClaim, and forgets NodeClaims without one. Where the two prices
    /// differ `is_launched` says whether the new one counts: a claim without an instance keeps the price that it was planned at.
    pub(crate) fn refresh<'a>(
        &self,
        nodes: impl Iterator<Item = (&'a str, Price)>,
        is_launched: impl Fn(&str) -> bool,
    ) {
        let mut known = self.lock();
        let known = &mut *known;
        known.refreshed += 1;
        let mut claims = 0;
        for (name, price) in nodes {
            let before = known.by_claim.get_mut(name);
            let at = before.as_deref().copied().unwrap_or_default();
            // Two nodes may name one claim.
            claims += usize::from(at.seen != known.refreshed);
            let counts = price == at.price || is_launched(name);
            let cost = Cost {
                price: if counts { price } else { at.price },
                seen: known.refreshed,
            };
            match before {
                Some(before) => *before = cost,
                None => drop(known.by_claim.insert(name.to_owned(), cost)),
            }
            known.sum = known.sum.saturating_sub(at.price).saturating_add(cost.price);
        }
        if claims != known.by_claim.len() {
            known.by_claim.retain(|_, cost| cost.seen == known.refreshed);
            known.sum = known.by_claim.values().map(|cost| cost.price).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_those_of_nodes_and_a_claim_without_instance_keeps_its_planned_one() {
        let prices = Prices::default();
        prices.insert("planned", Price(7));
        prices.insert("gone", Price(100));
        let nodes = [("planned", Price(9)), ("launched", Price(5))];
        prices.refresh(nodes.into_iter(), |name| name == "launched");
        let expected = [
            ("launched".to_owned(), Price(5)),
            ("planned".to_owned(), Price(7)),
        ];
        assert_eq!(prices.by_claim(), expected.into());
        assert_eq!(prices.sum(), Price(12));
        // Its instance is there, and another one costs something else now.
        let nodes = [("planned", Price(9)), ("launched", Price(6))];
        prices.refresh(nodes.into_iter(), |_| true);
        assert_eq!((prices.sum(), prices.by_claim().len()), (Price(15), 2));
        // A new node, beside one that two objects name.
        let nodes = [("planned", Price(9)), ("planned", Price(9)), ("new", Price(1))];
        prices.refresh(nodes.into_iter(), |_| true);
        assert_eq!((prices.sum(), prices.by_claim().len()), (Price(10), 2));
        let nodes = [("new", Price(1)), ("new", Price(1))];
        prices.refresh(nodes.into_iter(), |_| true);
        assert_eq!((prices.sum(), prices.by_claim().len()), (Price(1), 1));
    }
}
