//! Ranking candidates by what is saved per disturbance (D §2). Integers only: ratios are compared by cross-multiplication.

use super::candidates::Candidate;
use spokeshave_model::pod::EVICTION_COST_UNIT;
use spokeshave_model::snapshot::Snapshot;
use std::cmp::Ordering;

/// D-053: no reschedulable pod has a positive eviction cost.
pub fn is_empty(candidate: &Candidate) -> bool {
    candidate.disruption_cost <= EVICTION_COST_UNIT
}

/// D-054: what is saved per disturbance, price / disruption cost.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    price: i64,
    cost: i64,
}

impl Ratio {
    /// That of a candidate.
    pub fn of(candidate: &Candidate) -> Self {
        Ratio {
            price: candidate.price.0,
            cost: candidate.disruption_cost,
        }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        let cross = |price: i64, cost: i64| i128::from(price) * i128::from(cost);
        cross(self.price, other.cost).cmp(&cross(other.price, self.cost))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ratio {}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// D-054: compares savings ratios.
pub fn compare_savings_ratio(left: &Candidate, right: &Candidate) -> Ordering {
    Ratio::of(left).cmp(&Ratio::of(right))
}

/// D-058: highest savings ratio first; ties by node name.
pub fn sort_by_savings_ratio(snapshot: &Snapshot, candidates: &mut [Candidate]) {
    candidates.sort_by(|left, right| {
        compare_savings_ratio(right, left)
            .then_with(|| snapshot.node(left.node).name.cmp(&snapshot.node(right.node).name))
    });
}
