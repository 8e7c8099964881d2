//! The facts that live in memory only. A restart loses them, and each says why that is harmless.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use spokeshave_model::Price;
use spokeshave_plan::launch_backoff::LaunchBackoff;
use spokeshave_plan::registration_health::Ring;
use spokeshave_plan::vain_launches::VainLaunches;
use spokeshave_runtime::ObjectKey;

use crate::state::promises::Promises;

/// Facts in memory. A restart loses them, and each says why that is harmless.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Until when nodes are kept for pods that are expected on them, by provider ID. Lost: the next pass nominates again.
    pub(crate) nominations: BTreeMap<String, Timestamp>,
    /// Pods that a NodeClaim without provider ID was made for, under the claim's name. Lost: planning waits a moment for such claims to launch, and
    /// then takes their requests as room for the pods.
    pub(crate) assigned: BTreeMap<String, Vec<AssignedPod>>,
    /// Pods that were planned on a NodeClaim whose Node has yet to join, under the claim's name. Lost: they name no node when it joins, and the
    /// scheduler chooses among all.
    pub(crate) expected: Expected,
    /// The last outcomes of launches, by UID of the NodePool. Lost: its condition tells the gist (P-182).
    health: BTreeMap<String, Ring>,
    /// Since when nodes are promised to pods by others. Lost: each promise is believed for as long again.
    pub(crate) promises: Promises,
    /// What the cloud has refused lately. Lost: each is tried once more.
    pub(crate) launches: LaunchBackoff,
    /// Nodes that came up in vain. Lost: the next two come at once.
    pub(crate) vain: VainLaunches,
}

impl Memory {
    /// The last outcomes of launches of the NodePool of a UID. They stay in place while they are looked at: other threads add to them.
    pub(crate) fn health_of(&mut self, pool_uid: &str) -> &mut Ring {
        self.health.entry(pool_uid.to_owned()).or_default()
    }

    /// Forgets the outcomes of launches of NodePools that are no more, by UID.
    pub(crate) fn retain_health(&mut self, is_alive: impl Fn(&str) -> bool) {
        self.health.retain(|uid, _| is_alive(uid));
    }
}

/// A pod that a NodeClaim was made for.
#[derive(Clone, Debug)]
pub(crate) struct AssignedPod {
    pub(crate) uid: String,
    /// Its key; `None` for a virtual pod, which the API server does not know.
    pub(crate) key: Option<ObjectKey>,
}

/// Pods by the name of the NodeClaim that they were planned on last.
#[derive(Debug, Default)]
pub(crate) struct Expected(BTreeMap<String, BTreeMap<String, ObjectKey>>);

impl Expected {
    /// What a pass has decided about some pods: for these nothing else holds any more. `stays` says of which NodeClaims the Node may still join.
    pub(crate) fn decided(
        &mut self,
        about: &BTreeSet<&str>,
        places: impl IntoIterator<Item = (String, String, ObjectKey)>,
        stays: impl Fn(&str) -> bool,
    ) {
        for pods in self.0.values_mut() {
            pods.retain(|uid, _| !about.contains(uid.as_str()));
        }
        self.0.retain(|claim, pods| !pods.is_empty() && stays(claim));
        for (claim, uid, key) in places {
            self.0.entry(claim).or_default().insert(uid, key);
        }
    }

    /// A NodeClaim was made for these pods.
    pub(crate) fn assigned(&mut self, claim: &str, pods: &[AssignedPod]) {
        let pods = pods
            .iter()
            .filter_map(|pod| Some((pod.uid.clone(), pod.key.clone()?)));
        self.0.insert(claim.to_owned(), pods.collect());
    }

    /// The pods that are expected on a NodeClaim, by UID, once: its Node is there.
    pub(crate) fn take(&mut self, claim: &str) -> BTreeMap<String, ObjectKey> {
        self.0.remove(claim).unwrap_or_default()
    }
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

    /// What a NodeClaim costs; nothing when that is not known.
    pub(crate) fn of(&self, claim: &str) -> Price {
        let known = self.lock();
        known.by_claim.get(claim).copied().unwrap_or_default().price
    }

    /// Notes what a NodeClaim costs.
    pub(crate) fn insert(&self, claim: &str, price: Price) {
        let price = price.known_or_zero();
        let mut known = self.lock();
        let seen = known.refreshed;
        let before = known.by_claim.insert(claim.to_owned(), Cost { price, seen });
        let before = before.unwrap_or_default().price;
        known.sum = known.sum.saturating_sub(before).saturating_add(price);
    }

    /// Forgets a NodeClaim.
    pub(crate) fn remove(&self, claim: &str) {
        let mut known = self.lock();
        let price = known.by_claim.remove(claim).unwrap_or_default().price;
        known.sum = known.sum.saturating_sub(price);
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
    fn the_last_pass_says_where_a_pod_is_expected() {
        let key = |name: &str| ObjectKey::namespaced("default", name);
        let place = |claim: &str, pod: &str| (claim.to_owned(), pod.to_owned(), key(pod));
        let mut expected = Expected::default();
        let all = ["one", "two", "three"];
        let first = [place("a", "one"), place("a", "two"), place("gone", "three")];
        expected.decided(&all.into(), first, |_| true);
        // Of `three` this pass says nothing, but its NodeClaim is gone; `two` has another place, `one` none.
        let about = ["one", "two"];
        expected.decided(&about.into(), [place("b", "two")], |claim| claim != "gone");
        assert!(expected.take("a").is_empty());
        assert!(expected.take("gone").is_empty());
        assert_eq!(expected.take("b"), [("two".to_owned(), key("two"))].into());
        assert!(expected.take("b").is_empty(), "once");
    }

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
        assert_eq!((prices.of("launched"), prices.of("gone")), (Price(5), Price(0)));
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
