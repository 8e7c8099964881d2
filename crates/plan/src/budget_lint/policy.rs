//! What `consolidationPolicy` and `consolidateAfter` make of budgets: values that do not exist, and reasons that never occur.

use super::{Finding, error, field, note};
use crate::budget_repair as repair;
use serde_json::Value;
use spokeshave_api::{Budget, DisruptionReason};

const POLICIES: [&str; 3] = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"];

/// Findings about `spec.disruption` beside the budgets, and about budgets for reasons that the policy rules out.
pub(super) fn findings(disruption: &Value, budgets: &[Budget], written: bool) -> Vec<Finding> {
    let policy = repair::scalar(&disruption["consolidationPolicy"]);
    let mut findings: Vec<Finding> = unknown_policy(&policy).into_iter().collect();
    if written {
        let after = repair::scalar(&disruption["consolidateAfter"]);
        findings.extend(reasons_that_never_occur(&policy, &after, budgets));
    }
    findings
}

fn unknown_policy(policy: &str) -> Option<Finding> {
    if policy.is_empty() || POLICIES.contains(&policy) {
        return None;
    }
    let (message, meant) = match policy {
        "WhenUnderutilized" => (
            "is the value of karpenter.sh/v1beta1; the API server refuses it, and WhenEmptyOrUnderutilized means the same"
                .to_owned(),
            "WhenEmptyOrUnderutilized",
        ),
        other => (
            format!("{other:?} is no policy; there are {}", repair::list(&POLICIES)),
            repair::nearest(other, &POLICIES).unwrap_or("WhenEmptyOrUnderutilized"),
        ),
    };
    Some(error(
        "consolidation-policy-unknown",
        "spec.disruption.consolidationPolicy".to_owned(),
        message,
        Some(format!("consolidationPolicy: {meant}")),
    ))
}

/// Budgets that name a reason for which this NodePool disrupts no node.
fn reasons_that_never_occur(policy: &str, after: &str, budgets: &[Budget]) -> Vec<Finding> {
    let (cause, never): (&str, &[DisruptionReason]) = match (policy, after) {
        (_, "Never") => (
            "consolidateAfter: Never",
            &[DisruptionReason::Empty, DisruptionReason::Underutilized],
        ),
        ("WhenEmpty", _) => (
            "consolidationPolicy: WhenEmpty",
            &[DisruptionReason::Underutilized],
        ),
        _ => return Vec::new(),
    };
    let idle = |(index, budget): (usize, &Budget)| {
        let named = budget.reasons.as_ref()?;
        let (idle, other): (Vec<&str>, Vec<&str>) = named
            .iter()
            .map(DisruptionReason::as_str)
            .partition(|reason| never.iter().any(|one| one.as_str() == *reason));
        if idle.is_empty() {
            return None;
        }
        let effect = if other.is_empty() {
            "the budget limits nothing".to_owned()
        } else {
            format!("the budget limits only {}", repair::list(&other))
        };
        Some(note(
            "reason-never-occurs",
            &field(index, "reasons"),
            format!("with {cause} no node is disrupted as {}: {effect}", or(&idle)),
        ))
    };
    budgets.iter().enumerate().filter_map(idle).collect()
}

/// `a`, `a or b`.
fn or(items: &[&str]) -> String {
    items.join(" or ")
}
