//! Whether sets of nodes are worth their disruption (D §4.10), for searches other than those of a pass: models of other autoscalers in simulations.
//!
//! Owns nothing but the way in: totals and scores are those that policy `Balanced` has in every pass.

use super::balanced;
use super::candidates::Candidate;
use super::ground::Ground;
use crate::policy::Policy;
use jiff::Timestamp;
use spokeshave_model::Price;
use spokeshave_model::snapshot::Snapshot;

/// What the NodePools of a Snapshot cost, in money and in disruption: taken once for all sets of a search (D-172).
pub struct BalancedPools<'a>(Ground<'a>);

impl<'a> BalancedPools<'a> {
    /// Of a Snapshot at this time.
    pub fn of(snapshot: &'a Snapshot, policy: &'a Policy, now: Timestamp) -> Self {
        BalancedPools(Ground::new(snapshot, policy, now))
    }

    /// Whether every NodePool with policy `Balanced` that loses nodes of the set approves of what is saved an hour (D-173…D-175).
    pub fn approves(&self, set: &[Candidate], savings: Price) -> bool {
        let set: Vec<&Candidate> = set.iter().collect();
        let scores = balanced::scores(&self.0, &set, savings);
        scores.iter().all(|score| score.approved)
    }

    /// Whether its NodePool could approve of a node's going if all of its price were saved (D-177).
    pub fn may_approve(&self, candidate: &Candidate) -> bool {
        balanced::best_case_passes(&self.0, candidate)
    }
}
