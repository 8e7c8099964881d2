//! What is wrong with DisruptionPolicies, as findings of the linter: alone, and together with each other and with the budgets of NodePools.

use super::forecast::{NeverOpen, PoolNodes, never_open};
use super::status::{doubts, faults};
use crate::budget_lint::{Finding, Level};
use jiff::Timestamp;
use spokeshave_api::{DisruptionPolicy, NillableDuration};
use std::sync::Arc;

/// A policy and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFinding {
    /// Name of the DisruptionPolicy.
    pub policy: String,
    /// What is wrong.
    pub finding: Finding,
}

/// Everything that is wrong with policies, by name.
pub fn lint(policies: &[Arc<DisruptionPolicy>], pools: &[PoolNodes], now: Timestamp) -> Vec<PolicyFinding> {
    let mut found = Vec::new();
    for policy in policies {
        let mut say = |level: Level, code: &'static str, field: String, message: String| {
            found.push(PolicyFinding {
                policy: policy.name().to_owned(),
                finding: Finding {
                    level,
                    code,
                    field,
                    message,
                    suggestion: None,
                },
            });
        };
        for fault in faults(policy) {
            let message = format!(
                "{}; until then nothing is disrupted for the reasons that it covers",
                fault.message
            );
            say(Level::Error, "policy-invalid", fault.field, message);
        }
        let selected = pools
            .iter()
            .filter(|pool| policy.selects(&pool.name, &pool.labels));
        let ages: Vec<(&str, &NillableDuration)> = selected
            .map(|pool| (pool.name.as_str(), &pool.expire_after))
            .collect();
        for doubt in doubts(policy, &ages, now) {
            say(doubt.level, doubt.code, doubt.field, doubt.message);
        }
    }
    for conflict in never_open(policies, pools, now) {
        found.extend(of_conflict(&conflict));
    }
    found.sort_by(|left, right| left.policy.cmp(&right.policy));
    found
}

/// Told at the first policy that has part in it.
fn of_conflict(conflict: &NeverOpen) -> Option<PolicyFinding> {
    let first = conflict.rules.first()?;
    Some(PolicyFinding {
        policy: first.policy.clone(),
        finding: Finding {
            level: Level::Error,
            code: "never-open",
            field: format!("spec.{}", first.field),
            message: conflict.text(),
            suggestion: None,
        },
    })
}

impl NeverOpen {
    /// In a sentence.
    pub fn text(&self) -> String {
        let reasons: Vec<&str> = self.reasons.iter().map(|reason| reason.as_str()).collect();
        let mut rules: Vec<String> = self.rules.iter().map(ToString::to_string).collect();
        let own = self.budgets.iter();
        rules.extend(own.map(|index| format!("budgets[{index}] of the NodePool")));
        format!(
            "NodePool {} is never open for {}: together {} leave no time within two months; all rules that select a NodePool hold, so that windows have to overlap",
            self.node_pool,
            reasons.join(", "),
            rules.join(", ")
        )
    }
}
