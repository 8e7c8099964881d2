//! Zones in which nodes of a NodePool do not join, as the controllers share them.
//!
//! In memory only: after a restart a zone is tried once more. What is decided of it is `spokeshave_plan::unjoined_zones`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::InstanceType;
use spokeshave_plan::unjoined_zones::{UnjoinedZones, elsewhere};

/// The types of a NodePool without the zones that it avoids, and what they were made of.
#[derive(Debug)]
struct Sold {
    generation: Option<i64>,
    avoided: BTreeSet<String>,
    all: Arc<[InstanceType]>,
    types: Arc<[InstanceType]>,
}

#[derive(Debug, Default)]
struct State {
    unjoined: UnjoinedZones,
    /// By NodePool.
    sold: BTreeMap<String, Sold>,
}

/// What is known of zones. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zones(Arc<Mutex<State>>);

impl Zones {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The Node of a claim has joined, at this time.
    pub(crate) fn joined(&self, claim: &NodeClaim, at: Timestamp) {
        self.state().unjoined.joined(claim, at);
    }

    /// A claim was given up because its Node never joined. Returns until when its zone is avoided, if it is.
    pub(crate) fn timed_out(&self, claim: &NodeClaim, now: Timestamp) -> Option<Timestamp> {
        self.state().unjoined.timed_out(claim, now)
    }

    /// Whether a NodePool avoids zones.
    pub(crate) fn avoids(&self, pool: &str, now: Timestamp) -> bool {
        !self.state().unjoined.avoided(pool, now).is_empty()
    }

    /// What a NodePool may launch in zones where nodes join; the same value again while nothing has changed. `None` when it avoids no zone, or would
    /// be left with nothing.
    pub(crate) fn elsewhere(
        &self,
        pool: &NodePool,
        all: &Arc<[InstanceType]>,
        now: Timestamp,
    ) -> Option<Arc<[InstanceType]>> {
        let mut state = self.state();
        let avoided = state.unjoined.avoided(pool.name(), now);
        if avoided.is_empty() {
            state.sold.remove(pool.name());
            return None;
        }
        let generation = pool.metadata.generation;
        if let Some(known) = state.sold.get(pool.name())
            && known.generation == generation
            && known.avoided == avoided
            && Arc::ptr_eq(&known.all, all)
        {
            return Some(Arc::clone(&known.types));
        }
        let types = elsewhere(pool, all, &avoided)?;
        let sold = Sold {
            generation,
            avoided,
            all: Arc::clone(all),
            types: Arc::clone(&types),
        };
        state.sold.insert(pool.name().to_owned(), sold);
        Some(types)
    }

    /// Drops what is known of other NodePools than these.
    pub(crate) fn retain(&self, pools: &BTreeSet<&str>) {
        let mut state = self.state();
        state.unjoined.retain(pools);
        state.sold.retain(|pool, _| pools.contains(pool.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::conditions::{Conditioned as _, LAUNCHED};
    use spokeshave_api::{NodeClaimSpec, labels};
    use spokeshave_example::{instance_type, node_pool};

    #[test]
    fn the_same_types_are_corrected_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.set_true(LAUNCHED, at(0));
        claim.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
        claim.metadata.labels = Some(
            [(labels::ZONE, "a"), (labels::NODE_POOL, "p")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        );
        let (zones, pool) = (Zones::default(), node_pool("p"));
        let all: Arc<[InstanceType]> = vec![instance_type("t", 2, 8, &["a", "b"])].into();
        let sold = |now| zones.elsewhere(&pool, &all, at(now));
        assert!(sold(0).is_none());
        assert!(!zones.avoids("p", at(0)));
        let until = zones.timed_out(&claim, at(900)).unwrap();
        assert!(zones.avoids("p", at(900)) && !zones.avoids("q", at(900)));
        let first = sold(900).unwrap();
        assert!(Arc::ptr_eq(&first, &sold(901).unwrap()));
        assert!(zones.elsewhere(&pool, &all, until).is_none());
    }
}
