//! Budgets that cannot be evaluated, in the log (D-069): when one appears, changes or is corrected, and every ten minutes while it lasts.
//!
//! Owns how often a line is written. What is wrong with a budget is the plan's to say, and the NodePool's condition tells it all the time.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::NodePool;
use spokeshave_plan::pool_conditions::faulty_budgets;

/// Least time between two lines that say the same of a NodePool.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// What was said of each NodePool, by its UID. Lost: it is said once more.
#[derive(Debug, Default)]
pub(crate) struct BudgetFaults(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    /// Of the spec that was looked at.
    generation: Option<i64>,
    faults: Vec<String>,
    looked: Timestamp,
}

/// Something to say of a NodePool.
#[derive(Debug, PartialEq, Eq)]
struct News {
    pool: String,
    /// Empty: what was wrong is corrected.
    faults: Vec<String>,
}

impl BudgetFaults {
    /// One look at all NodePools, with a line for each budget at fault that was not written of lately.
    pub(crate) fn report(&mut self, pools: &[Arc<NodePool>], now: Timestamp) {
        for News { pool, faults } in self.look(pools, now) {
            for fault in &faults {
                tracing::error!(NodePool = pool, error = fault, "a budget cannot be evaluated");
            }
            if faults.is_empty() {
                tracing::info!(NodePool = pool, "all budgets can be evaluated again");
            }
        }
    }

    /// What is to be said. A spec that was found good is not looked at again before it changes.
    fn look(&mut self, pools: &[Arc<NodePool>], now: Timestamp) -> Vec<News> {
        self.0.retain(|uid, _| pools.iter().any(|pool| pool.uid() == uid));
        let mut news = Vec::new();
        for pool in pools {
            let generation = pool.metadata.generation;
            let known = self.0.get(pool.uid());
            let is_fresh = |known: &Known| {
                let said_lately = now.duration_since(known.looked) < AGAIN_AFTER;
                known.generation == generation && (known.faults.is_empty() || said_lately)
            };
            if known.is_some_and(is_fresh) {
                continue;
            }
            let faults = faulty_budgets(pool, now);
            let was_faulty = known.is_some_and(|known| !known.faults.is_empty());
            if was_faulty || !faults.is_empty() {
                news.push(News {
                    pool: pool.name().to_owned(),
                    faults: faults.clone(),
                });
            }
            let known = Known {
                generation,
                faults,
                looked: now,
            };
            self.0.insert(pool.uid().to_owned(), known);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spokeshave_api::NodePoolSpec;

    fn pool(generation: i64, schedule: &str) -> [Arc<NodePool>; 1] {
        let spec = json!({
            "template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}},
            "disruption": {"budgets": [
                {"nodes": "10%"},
                {"nodes": "0", "schedule": schedule, "duration": "1h", "reasons": ["Drifted"]},
            ]},
        });
        let mut pool = NodePool::new("p", serde_json::from_value::<NodePoolSpec>(spec).unwrap());
        pool.metadata.uid = Some("uid".to_owned());
        pool.metadata.generation = Some(generation);
        [Arc::new(pool)]
    }

    #[test]
    fn d_069_d_197_a_faulty_budget_is_logged_with_each_change_and_every_ten_minutes() {
        let at = |second| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let (good, bad) = (pool(1, "@daily"), pool(2, "0 0 31 2 *"));
        let mut faults = BudgetFaults::default();
        assert_eq!(faults.look(&good, at(0)), []);
        let said: Vec<i64> = (10..1_300)
            .step_by(10)
            .filter(|second| !faults.look(&bad, at(*second)).is_empty())
            .collect();
        assert_eq!(said, [10, 610, 1_210]);
        let fresh = BudgetFaults::default().look(&bad, at(0)).remove(0);
        let text = &fresh.faults[0];
        assert!(
            text.starts_with("spec.disruption.budgets[1].schedule: "),
            "{text}"
        );
        assert!(text.ends_with("nothing is disrupted as Drifted"), "{text}");
        let mended = pool(3, "@daily");
        let good_news = News {
            pool: "p".to_owned(),
            faults: Vec::new(),
        };
        assert_eq!(faults.look(&mended, at(1_310)), [good_news]);
        assert_eq!(faults.look(&mended, at(9_999)), []);
        assert_eq!(faults.look(&[], at(9_999)), []);
        assert!(faults.0.is_empty(), "NodePools that are gone are forgotten");
    }
}
