//! Ranking candidates by what is saved per disturbance (D §2). Integers only: ratios are compared by cross-multiplication.

use super::candidates::Candidate;
use spokeshave_model::pod::EVICTION_COST_UNIT;
use spokeshave_model::snapshot::Snapshot;
use std::cmp::Ordering;

/// D-053: no reschedulable pod has a positive eviction cost.
pub fn is_empty(candidate: &Candidate) -> bool {
    candidate.disruption_cost <= EVICTION_COST_UNIT
}

/// D-054: compares savings ratios, price / disruption cost.
pub fn compare_savings_ratio(left: &Candidate, right: &Candidate) -> Ordering {
    let cross = |price: i64, cost: i64| i128::from(price) * i128::from(cost);
    cross(left.price.0, right.disruption_cost).cmp(&cross(right.price.0, left.disruption_cost))
}

/// D-058: highest savings ratio first; ties by node name.
pub fn sort_by_savings_ratio(snapshot: &Snapshot, candidates: &mut [Candidate]) {
    candidates.sort_by(|left, right| {
        compare_savings_ratio(right, left)
            .then_with(|| snapshot.node(left.node).name.cmp(&snapshot.node(right.node).name))
    });
}
