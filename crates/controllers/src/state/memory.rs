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
    by_claim: BTreeMap<String, Price>,
    sum: Price,
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
        self.lock().by_claim.clone()
    }

    /// Notes what a NodeClaim costs.
    pub(crate) fn insert(&self, claim: &str, price: Price) {
        let mut known = self.lock();
        let before = known.by_claim.insert(claim.to_owned(), price).unwrap_or_default();
        known.sum = known.sum.saturating_sub(before).saturating_add(price);
    }

    /// Forgets a NodeClaim, and returns what it cost.
    pub(crate) fn remove(&self, claim: &str) -> Price {
        let mut known = self.lock();
        let price = known.by_claim.remove(claim).unwrap_or_default();
        known.sum = known.sum.saturating_sub(price);
        price
    }

    /// Replaces all prices; each new one is given what was known of its NodeClaim.
    pub(crate) fn refresh<'a>(
        &self,
        claims: impl Iterator<Item = &'a str>,
        price: impl Fn(&str, Price) -> Price,
    ) {
        let mut known = self.lock();
        let fresh: BTreeMap<String, Price> = claims
            .map(|name| {
                let before = known.by_claim.get(name).copied().unwrap_or_default();
                (name.to_owned(), price(name, before))
            })
            .collect();
        known.sum = fresh.values().copied().sum();
        known.by_claim = fresh;
    }
}
