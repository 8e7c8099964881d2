//! NodeOverlays in force (P §13), and the instance types that they correct.
//!
//! Owns which overlays are in force, and swaps them all at once. In memory only: after a restart they are judged before the first plan, and a
//! NodePool that was not looked at yet offers no instance types until then (P-061).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spokeshave_api::NodePool;
use spokeshave_model::InstanceType;
use spokeshave_plan::overlays::InForce;
use spokeshave_ports::CloudError;

/// The corrected types of a NodePool, and what they were made of.
#[derive(Debug)]
struct Corrected {
    /// A NodePool that is made again under its name begins with the same generation.
    uid: String,
    generation: Option<i64>,
    plain: Arc<[InstanceType]>,
    types: Arc<[InstanceType]>,
}

#[derive(Debug, Default)]
struct State {
    in_force: InForce,
    /// NodePools that were looked at.
    pools: BTreeSet<String>,
    /// By NodePool.
    corrected: BTreeMap<String, Corrected>,
}

/// The overlays in force. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlays(Arc<Mutex<State>>);

impl Overlays {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instance types of a NodePool as the overlays correct them; the same value again while nothing has changed.
    ///
    /// # Errors
    /// The NodePool was not looked at yet.
    pub(crate) fn correct(
        &self,
        pool: &NodePool,
        plain: Arc<[InstanceType]>,
    ) -> Result<Arc<[InstanceType]>, CloudError> {
        let mut state = self.state();
        let State {
            in_force,
            pools,
            corrected,
            ..
        } = &mut *state;
        if !pools.contains(pool.name()) {
            let message = format!("nodepool {:?} is awaiting evaluation", pool.name());
            return Err(CloudError::UnevaluatedNodePool(message));
        }
        let generation = pool.metadata.generation;
        if let Some(known) = corrected.get(pool.name())
            && known.uid == pool.uid()
            && known.generation == generation
            && Arc::ptr_eq(&known.plain, &plain)
        {
            return Ok(Arc::clone(&known.types));
        }
        let types = in_force.decorate(pool, &plain);
        let made = Corrected {
            uid: pool.uid().to_owned(),
            generation,
            plain,
            types: Arc::clone(&types),
        };
        corrected.insert(pool.name().to_owned(), made);
        Ok(types)
    }

    /// Puts an evaluation into force, of these NodePools.
    pub(crate) fn swap(&self, in_force: InForce, pools: BTreeSet<String>) {
        let mut state = self.state();
        if state.in_force != in_force {
            state.corrected.clear();
        }
        state.corrected.retain(|pool, _| pools.contains(pool));
        state.in_force = in_force;
        state.pools = pools;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::NodeOverlay;
    use spokeshave_example::{instance_type, node_pool};
    use spokeshave_plan::overlays::{PoolTypes, evaluate};

    #[test]
    fn p_061_a_pool_that_was_not_looked_at_offers_nothing_yet() {
        let overlays = Overlays::default();
        let (pool, other) = (node_pool("p"), node_pool("q"));
        let plain: Arc<[InstanceType]> = vec![instance_type("t", 2, 8, &["a"])].into();
        let error = overlays.correct(&pool, plain.clone()).unwrap_err();
        assert_eq!(
            error,
            CloudError::UnevaluatedNodePool("nodepool \"p\" is awaiting evaluation".to_owned())
        );
        overlays.swap(InForce::default(), BTreeSet::from(["p".to_owned()]));
        assert!(Arc::ptr_eq(
            &overlays.correct(&pool, plain.clone()).unwrap(),
            &plain
        ));
        assert!(
            overlays.correct(&other, plain).is_err(),
            "one pool that fails stops no other"
        );
    }

    #[test]
    fn p_187_the_same_types_are_corrected_once() {
        let overlays = Overlays::default();
        let pool = node_pool("p");
        let plain: Arc<[InstanceType]> = vec![instance_type("t", 2, 8, &["a"])].into();
        let spec = serde_json::from_value(serde_json::json!({"requirements": [], "price": "1"})).unwrap();
        let overlay = Arc::new(NodeOverlay::new("o", spec));
        let pools = [PoolTypes {
            pool: Arc::new(pool.clone()),
            types: plain.clone(),
        }];
        let judged = || evaluate(std::slice::from_ref(&overlay), &pools, &Default::default()).in_force;
        let known = || BTreeSet::from(["p".to_owned()]);
        overlays.swap(judged(), known());
        let first = overlays.correct(&pool, plain.clone()).unwrap();
        assert!(first[0].overlaid.price);
        overlays.swap(judged(), known());
        let again = overlays.correct(&pool, plain.clone()).unwrap();
        assert!(Arc::ptr_eq(&first, &again), "a Snapshot is not made anew for it");
        let mut changed = pool.clone();
        changed.metadata.generation = Some(2);
        assert!(!Arc::ptr_eq(
            &first,
            &overlays.correct(&changed, plain.clone()).unwrap()
        ));
        let first = overlays.correct(&pool, plain.clone()).unwrap();
        let mut successor = pool.clone();
        successor.metadata.uid = Some("another".to_owned());
        assert!(!Arc::ptr_eq(
            &first,
            &overlays.correct(&successor, plain.clone()).unwrap()
        ));
        overlays.swap(InForce::default(), known());
        assert!(Arc::ptr_eq(
            &overlays.correct(&pool, plain.clone()).unwrap(),
            &plain
        ));
    }
}
