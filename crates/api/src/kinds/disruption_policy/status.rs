//! What is observed of a DisruptionPolicy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{Rollout, RolloutPhase, UnknownFields};
use crate::kinds::{Condition, DisruptionReason, whole_seconds};

/// The observed state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionPolicyStatus {
    /// Summary of the current state, for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What stops or limits disruption now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<ActiveRule>,
    /// When this changes next, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_change: Option<Time>,
    /// NodePools that the policy applies to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_pools: Vec<String>,
    /// Rollouts in progress, by NodePool. What the next wave may take follows from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<RolloutStatus>,
    /// Pauses that stand, were ended by their maximum while triggers continue, or whose trigger is gone; one for each NodePool if the scope is `NodePool`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<HoldStatus>,
    /// Nodes that reach their soft age, by NodePool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expiry: Vec<ExpiryStatus>,
    /// Requests of workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<WorkloadsStatus>,
    /// `Ready`: it can be evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// A part of a policy that stops disruption now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRule {
    /// The field of the spec.
    pub field: String,
    /// The zone, NodePool or label value, if it is limited to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Disruption reasons that it stops.
    pub reasons: Vec<DisruptionReason>,
    /// Why.
    pub message: String,
    /// Since when, for holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Until when, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// A pause, remembered until there was no trigger for its whole duration: the nodes that started it may be gone by then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldStatus {
    /// The NodePool, if it is limited to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    /// Since when.
    pub since: Time,
    /// When it would end without a maximum; a trigger before that continues it.
    pub until: Time,
}

/// What workloads request now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadsStatus {
    /// Pods within their quiet time.
    pub resting_pods: i64,
    /// Nodes that are kept because of them.
    pub resting_nodes: i64,
    /// Annotations that cannot be parsed, which count as the maximum that may be requested; the first 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// The coming wave of nodes that reach their soft age, of one NodePool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpiryStatus {
    /// The NodePool.
    pub node_pool: String,
    /// Nodes that have reached it.
    pub due: i64,
    /// Nodes that will reach it within 24 hours.
    pub within_day: i64,
    /// When the next one reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Time>,
    /// Nodes that budgets and windows will not let be replaced before `expireAfter`, looking three days ahead.
    pub late: i64,
    /// When the first of these expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_late: Option<Time>,
}

/// The rollout of one NodePool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// The NodePool.
    pub node_pool: String,
    /// Hash of the NodePool's template; a different hash starts a new rollout.
    #[serde(default)]
    pub target: String,
    /// A minute before it began; what was launched in that minute belongs to it.
    pub since: Time,
    /// When the first of the rollouts since the last that was completed began, if that is another one: nodes that came since then excuse nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_since: Option<Time>,
    /// The number of the wave, from 1.
    pub wave: i64,
    /// How many nodes it may take, also where fewer are left.
    pub size: i64,
    /// When it began.
    pub wave_since: Time,
    /// How many nodes it has started.
    pub begun: i64,
    /// How many drifted nodes have not been started yet.
    pub remaining: i64,
    /// Its phase.
    pub phase: RolloutPhase,
    /// When the last command of the wave ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When it was halted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted_at: Option<Time>,
    /// When a halt was cleared last; earlier problems are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<Time>,
    /// The approval that stood when it began, as long as nobody has approved anything since; it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_before: Option<i64>,
    /// The health check that fails; nothing starts until it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Summary of the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Estimated time of completion at the current pace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Time>,
}

impl RolloutStatus {
    /// Whether somebody has approved something since it began: what stood then was meant for an earlier one, unless this one is named.
    #[must_use]
    pub fn is_approved_anew(&self, rollout: &Rollout) -> bool {
        let approved = rollout.approved.get(&self.node_pool).copied();
        let meant = rollout.approved_for.get(&self.node_pool);
        approved != self.approved_before
            || meant.is_some_and(|since| whole_seconds(since.0) == whole_seconds(self.since.0))
    }

    /// Whether somebody has said that it may go on since it was halted.
    #[must_use]
    pub fn is_resumed(&self, rollout: &Rollout) -> bool {
        let resumed = rollout.resumed_at.as_ref().map(|time| time.0);
        resumed > self.halted_at.as_ref().map(|time| time.0)
    }
}
