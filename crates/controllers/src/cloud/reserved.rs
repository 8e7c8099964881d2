//! Reserved capacity while the feature gate ReservedCapacity is off (P §6.12): it keeps its price and is never available.
//!
//! Owns the hidden copies only. Where the gate is on, nothing of this exists.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use spokeshave_model::{CapacityType, InstanceType};

/// The types of a NodePool as they were listed, and without reserved capacity.
#[derive(Debug)]
struct Hidden {
    listed: Arc<[InstanceType]>,
    types: Arc<[InstanceType]>,
}

/// Types without reserved capacity, by NodePool. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReservedHidden(Arc<Mutex<BTreeMap<String, Hidden>>>);

impl ReservedHidden {
    /// The types of a NodePool with no reserved offering available; the same value again while nothing has changed, and the listed value itself where
    /// no reserved offering was available anyway.
    pub(crate) fn hide(&self, pool: &str, listed: Arc<[InstanceType]>) -> Arc<[InstanceType]> {
        let mut hidden = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !has_reserved(&listed) {
            hidden.remove(pool);
            return listed;
        }
        if let Some(known) = hidden.get(pool)
            && Arc::ptr_eq(&known.listed, &listed)
        {
            return Arc::clone(&known.types);
        }
        let mut types = listed.to_vec();
        for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
            offering.available &= offering.capacity_type() != Some(CapacityType::Reserved);
        }
        let types: Arc<[InstanceType]> = types.into();
        let made = Hidden {
            listed,
            types: Arc::clone(&types),
        };
        hidden.insert(pool.to_owned(), made);
        types
    }

    /// Whether something of this NodePool is hidden: then the cloud must not choose for itself.
    pub(crate) fn hides(&self, pool: &str) -> bool {
        let hidden = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hidden.contains_key(pool)
    }
}

fn has_reserved(types: &[InstanceType]) -> bool {
    let mut offerings = types.iter().flat_map(|one| &one.offerings);
    offerings.any(|one| one.available && one.capacity_type() == Some(CapacityType::Reserved))
}
