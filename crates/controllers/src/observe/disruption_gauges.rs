//! What a pass of disruption shows in metrics: candidates, budgets and scores (D App. D).
//!
//! Owns when their series end. What passes took and what came of their commands is counted where it happens.

use std::collections::BTreeSet;

use spokeshave_api::{ConsolidationPolicy, DisruptionReason};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::disrupt::{Outcome, PoolScore};

use crate::observe::metrics::ControllerFamilies;

/// Shows what a pass has found.
#[expect(clippy::cast_precision_loss, reason = "counts of nodes are far below 2^52")]
pub(crate) fn show(families: &ControllerFamilies, snapshot: &Snapshot, outcome: &Outcome) {
    forget(families, &outcome.reasons);
    for report in &outcome.reports {
        let reason = report.method.reason().to_string().to_lowercase();
        families.eligible_nodes.set(&[&reason], report.eligible as f64);
        for score in &report.scores {
            show_score(families, score);
        }
    }
    for budgets in &outcome.budgets {
        let reason = budgets.reason.to_string();
        for (pool, budget) in &budgets.pools {
            let pool = &snapshot.pool(*pool).name;
            families
                .allowed_disruptions
                .set(&[pool, &reason], budget.allowed as f64);
            families
                .consuming_budgets
                .set(&[pool, &reason], budget.disrupting as f64);
        }
    }
}

/// Series of a reason that there is no more end with it: nobody would set them again once the last policy with an expiry is gone. Those of the others stand still
/// while they have no candidate (D-208).
fn forget(families: &ControllerFamilies, present: &BTreeSet<DisruptionReason>) {
    // A pass that has looked at nothing knows of none.
    if present.is_empty() {
        return;
    }
    let names: BTreeSet<String> = present.iter().map(ToString::to_string).collect();
    for gauge in [&families.allowed_disruptions, &families.consuming_budgets] {
        gauge.retain(|labels| names.contains(&labels[1]));
    }
    let names: BTreeSet<String> = names.iter().map(|name| name.to_lowercase()).collect();
    families
        .eligible_nodes
        .retain(|labels| names.contains(&labels[0]));
}

/// D-179, D-180, D-181.
fn show_score(families: &ControllerFamilies, score: &PoolScore) {
    let decision = if score.approved { "approved" } else { "rejected" };
    let labels = [decision, &score.pool, &score.policy];
    families.consolidation_moves.inc(&labels);
    if score.policy == ConsolidationPolicy::Balanced.as_str() {
        families.consolidation_score.observe(&labels, score.score());
        tracing::debug!(
            NodePool = score.pool,
            decision,
            savings = %score.savings,
            total_cost = %score.total_cost,
            "{}",
            score.text()
        );
    }
}
