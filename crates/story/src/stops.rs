//! What DisruptionPolicies stop now: freezes, holds, closed windows, limits that are used up, breakers that have tripped.
//!
//! It reads them off the status that `plan` gives each policy, and owns the sentence. It decides nothing.

use jiff::Timestamp;
use spokeshave_api::DisruptionReason;
use spokeshave_api::disruption_policy::ActiveRule;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::disruption_policy::status;

/// Fields under which single nodes are kept, where no domain is named. Below `spec.convergence`, a `restartCost` that cannot be read stops all nodes.
const NODES_ONLY: [&str; 3] = ["spec.blockedDrains", "spec.convergence", "spec.convergence.rest"];

/// A part of a DisruptionPolicy that stops disruption now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The policy.
    pub policy: String,
    /// The NodePools that it is about, by name.
    pub node_pools: Vec<String>,
    /// The part, as the policy's status has it.
    pub rule: ActiveRule,
}

impl Stop {
    /// `DisruptionPolicy freeze (spec.freeze) stops Empty, Drifted: frozen: incident 42, until 2026-01-01 12:00:00Z`.
    pub fn text(&self) -> String {
        let ActiveRule {
            field,
            reasons,
            message,
            until,
            ..
        } = &self.rule;
        let reasons: Vec<&str> = reasons.iter().map(DisruptionReason::as_str).collect();
        let until = until.as_ref().map_or_else(String::new, |until| {
            format!(", until {}", until.0.strftime("%Y-%m-%d %H:%M:%SZ"))
        });
        format!(
            "DisruptionPolicy {} ({field}) stops {}: {message}{until}",
            self.policy,
            reasons.join(", ")
        )
    }
}

/// What DisruptionPolicies stop now, in the order of their names. What stops single nodes only, their verdicts tell.
pub fn stops(snapshot: &Snapshot, now: Timestamp) -> Vec<Stop> {
    let mut stops = Vec::new();
    for policy in &snapshot.disruption_policies {
        let after = status(policy, snapshot, &[], now).status.unwrap_or_default();
        let selected = after.node_pools;
        for rule in after.active.into_iter().filter(|rule| !is_about_nodes(rule)) {
            let is_own = |pool: &&String| rule.domain.as_ref() == Some(*pool);
            let mut meant: Vec<String> = selected.iter().filter(is_own).cloned().collect();
            if meant.is_empty() {
                // It is about all of them, or about a zone or a label in all.
                meant.clone_from(&selected);
            }
            stops.push(Stop {
                policy: policy.name().to_owned(),
                node_pools: meant,
                rule,
            });
        }
    }
    stops.retain(|stop| !stop.node_pools.is_empty());
    stops
}

/// Whether a rule keeps single nodes, which rest or cannot be drained, and lets the others of their NodePools go.
fn is_about_nodes(rule: &ActiveRule) -> bool {
    rule.domain.is_none() && NODES_ONLY.contains(&rule.field.as_str())
}
