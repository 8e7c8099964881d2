//! Whether the nodes that a NodePool launched lately have joined: condition `NodeRegistrationHealthy` (P-182, D-269).
//!
//! Owns the ring of how the last launches ended, and what it says. It informs people; no decision reads it.

use std::collections::VecDeque;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned, LAUNCHED, NODE_REGISTRATION_HEALTHY, Status};
use spokeshave_api::constants::{REGISTRATION_HEALTH_ENTRIES, REGISTRATION_HEALTH_FAILURES};
use spokeshave_api::{NodeClaim, NodePool};

/// How one launch of a NodePool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchEnd {
    /// Its Node has joined.
    Registered,
    /// It was given up.
    Failed {
        /// Reason for the condition.
        reason: String,
        /// Message for the condition.
        message: String,
    },
}

impl LaunchEnd {
    /// A claim that was given up: the trouble of its launch, or that its Node never joined.
    #[must_use]
    pub fn of_timed_out(claim: &NodeClaim) -> Self {
        match claim.condition(LAUNCHED) {
            Some(launched) if launched.status != "True" => LaunchEnd::Failed {
                reason: launched.reason.clone(),
                message: launched.message.clone(),
            },
            _ => LaunchEnd::Failed {
                reason: "RegistrationFailed".to_owned(),
                message: "Failed to register node".to_owned(),
            },
        }
    }
}

/// How the last four launches of a NodePool ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring(VecDeque<LaunchEnd>);

impl Ring {
    /// Takes in an end of a launch of this NodePool. After a restart, what its condition still tells has come before.
    pub fn take_in(&mut self, pool: &NodePool, end: LaunchEnd) {
        if self.0.is_empty()
            && let Some(told) = pool.condition(NODE_REGISTRATION_HEALTHY)
            // Of another template it says nothing, and the next look begins anew.
            && told.observed_generation == pool.metadata.generation
        {
            self.seed(&told.status, &told.reason, &told.message);
        }
        self.record(end);
    }

    /// The fifth end pushes out the first.
    fn record(&mut self, end: LaunchEnd) {
        if self.0.len() == REGISTRATION_HEALTH_ENTRIES {
            self.0.pop_front();
        }
        self.0.push_back(end);
    }

    fn is_unhealthy(&self) -> bool {
        let failed = |end: &&LaunchEnd| matches!(end, LaunchEnd::Failed { .. });
        self.0.iter().filter(failed).count() >= REGISTRATION_HEALTH_FAILURES
    }

    /// Brings the condition of a NodePool up to date, after a restart the other way round. `class_generation` is the generation of its NodeClass,
    /// `None` while that is not found.
    pub fn apply(&mut self, pool: &mut NodePool, class_generation: Option<i64>, now: Timestamp) {
        let observed = pool
            .status
            .as_ref()
            .and_then(|status| status.node_class_observed_generation);
        let class_changed = class_generation.is_some() && observed != class_generation;
        let generation = pool.metadata.generation;
        let current = pool
            .condition(NODE_REGISTRATION_HEALTHY)
            .filter(|condition| condition.observed_generation == generation && !class_changed)
            .cloned();
        let Some(condition) = current else {
            // Another template or another NodeClass: what was learnt of the old one says nothing.
            self.0.clear();
            pool.set(
                NODE_REGISTRATION_HEALTHY,
                Status::Unknown,
                "AwaitingReconciliation",
                "object is awaiting reconciliation",
                now,
            );
            return;
        };
        if self.0.is_empty() {
            self.seed(&condition.status, &condition.reason, &condition.message);
        }
        if self.is_unhealthy() {
            if condition.status != "False"
                && let Some((reason, message)) = self.last_failure()
            {
                pool.set(NODE_REGISTRATION_HEALTHY, Status::False, &reason, &message, now);
            }
        } else if self.0.back() == Some(&LaunchEnd::Registered) {
            pool.set_true(NODE_REGISTRATION_HEALTHY, now);
        }
    }

    /// After a restart: as much as the condition still tells.
    fn seed(&mut self, status: &str, reason: &str, message: &str) {
        match status {
            "True" => self.record(LaunchEnd::Registered),
            "False" => {
                for _ in 0..REGISTRATION_HEALTH_FAILURES {
                    self.record(LaunchEnd::Failed {
                        reason: reason.to_owned(),
                        message: message.to_owned(),
                    });
                }
            }
            _ => {}
        }
    }

    fn last_failure(&self) -> Option<(String, String)> {
        self.0.iter().rev().find_map(|end| match end {
            LaunchEnd::Failed { reason, message } => Some((reason.clone(), message.clone())),
            LaunchEnd::Registered => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::{NodeClaimSpec, NodePoolSpec};

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn pool() -> NodePool {
        let spec = serde_json::json!({"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}});
        let mut pool = NodePool::new("p", serde_json::from_value::<NodePoolSpec>(spec).unwrap());
        pool.metadata.generation = Some(1);
        pool.status.get_or_insert_default().node_class_observed_generation = Some(1);
        pool
    }

    fn health(pool: &NodePool) -> (&str, &str) {
        let condition = pool.condition(NODE_REGISTRATION_HEALTHY).unwrap();
        (&condition.status, &condition.reason)
    }

    fn failure() -> LaunchEnd {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.set_true(LAUNCHED, now());
        LaunchEnd::of_timed_out(&claim)
    }

    #[test]
    fn p_182_example_21_two_failures_of_four_are_unhealthy() {
        let (mut ring, mut pool) = (Ring::default(), pool());
        ring.apply(&mut pool, Some(1), now());
        assert_eq!(health(&pool), ("Unknown", "AwaitingReconciliation"));
        ring.record(failure());
        ring.apply(&mut pool, Some(1), now());
        assert_eq!(health(&pool).0, "Unknown", "one failure says nothing");
        ring.record(failure());
        ring.apply(&mut pool, Some(1), now());
        assert_eq!(health(&pool), ("False", "RegistrationFailed"));
        for expected in ["False", "False", "True"] {
            ring.record(LaunchEnd::Registered);
            ring.apply(&mut pool, Some(1), now());
            assert_eq!(health(&pool).0, expected);
        }
    }

    #[test]
    fn d_269_a_failed_launch_gives_its_own_reason() {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.set(LAUNCHED, Status::Unknown, "QuotaExceeded", "no more", now());
        assert_eq!(
            LaunchEnd::of_timed_out(&claim),
            LaunchEnd::Failed {
                reason: "QuotaExceeded".to_owned(),
                message: "no more".to_owned()
            }
        );
    }

    #[test]
    fn p_182_another_generation_of_pool_or_class_starts_anew() {
        for (pool_generation, class_generation) in [(2, 1), (1, 2)] {
            let (mut ring, mut pool) = (Ring::default(), pool());
            ring.apply(&mut pool, Some(1), now());
            ring.record(LaunchEnd::Registered);
            ring.apply(&mut pool, Some(1), now());
            assert_eq!(health(&pool).0, "True");
            pool.metadata.generation = Some(pool_generation);
            ring.apply(&mut pool, Some(class_generation), now());
            assert_eq!(health(&pool).0, "Unknown");
            assert_eq!(ring, Ring::default());
        }
        let (mut ring, mut pool) = (Ring::default(), pool());
        ring.apply(&mut pool, Some(1), now());
        ring.record(LaunchEnd::Registered);
        ring.apply(&mut pool, None, now());
        assert_eq!(
            health(&pool).0,
            "True",
            "a NodeClass that is not found is no new NodeClass"
        );
    }

    #[test]
    fn p_182_a_restart_remembers_what_the_condition_tells() {
        let mut pool = pool();
        Ring::default().apply(&mut pool, Some(1), now());
        pool.set(NODE_REGISTRATION_HEALTHY, Status::False, "R", "M", now());
        let mut ring = Ring::default();
        ring.record(LaunchEnd::Registered);
        let mut fresh = Ring::default();
        fresh.apply(&mut pool, Some(1), now());
        assert_eq!(health(&pool), ("False", "R"));
        for expected in ["False", "False", "True"] {
            fresh.record(LaunchEnd::Registered);
            fresh.apply(&mut pool, Some(1), now());
            assert_eq!(health(&pool).0, expected);
        }
        // A node joins before the NodePool is looked at.
        pool.set(NODE_REGISTRATION_HEALTHY, Status::False, "R", "M", now());
        let mut fresh = Ring::default();
        fresh.take_in(&pool, LaunchEnd::Registered);
        fresh.apply(&mut pool, Some(1), now());
        assert_eq!(health(&pool), ("False", "R"));
    }
}
