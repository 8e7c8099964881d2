//! Disruption: one command to remove nodes, from its first write until it has ended (D §3.4–3.6).
//!
//! The object is the only record of a command: the next leader reads it and continues, or rolls it back. `spec` is what was decided and never
//! changes; `status` is how far it has come. Finished ones stay for a while as a ledger.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use serde::{Deserialize, Serialize};

use super::node_claim::NodeClaimSpec;
use super::node_pool::TemplateMetadata;
use super::{DisruptionReason, UnknownFields, kind, open_enum};

kind! {
    /// One command to take nodes away.
    Disruption, DisruptionSpec, DisruptionStatus,
    group: "spokeshave.dev", version: "v1alpha1", plural: "disruptions", scope: k8s_openapi::ClusterResourceScope
}

open_enum! {
    /// Which method made a command (D §4.1).
    DisruptionMethod {
        /// Empty nodes.
        Emptiness = "Emptiness",
        /// Drifted nodes of static pools.
        StaticDrift = "StaticDrift",
        /// Drifted nodes.
        Drift = "Drift",
        /// Nodes of static pools that are older than a DisruptionPolicy wants.
        StaticExpiry = "StaticExpiry",
        /// Nodes that are older than a DisruptionPolicy wants.
        Expiry = "Expiry",
        /// Several nodes by at most one.
        MultiNodeConsolidation = "MultiNodeConsolidation",
        /// One node by at most one.
        SingleNodeConsolidation = "SingleNodeConsolidation",
    }
}

impl DisruptionMethod {
    /// Whether it replaces nodes of static pools: such commands find no places for pods.
    #[must_use]
    pub fn is_static(&self) -> bool {
        matches!(
            self,
            DisruptionMethod::StaticDrift | DisruptionMethod::StaticExpiry
        )
    }

    /// Whether it takes nodes that have drifted.
    #[must_use]
    pub fn is_drift(&self) -> bool {
        matches!(self, DisruptionMethod::Drift | DisruptionMethod::StaticDrift)
    }
}

open_enum! {
    /// What a command does.
    DisruptionDecision {
        /// Nodes go, nothing comes.
        Delete = "Delete",
        /// Nodes go after replacements have come.
        Replace = "Replace",
    }
}

open_enum! {
    /// The progress of a command.
    DisruptionPhase {
        /// Written down; nothing else has happened, or only a part of the tainting and creating.
        Starting = "Starting",
        /// Nodes are tainted, replacements are created and not all initialised.
        Replacing = "Replacing",
        /// The NodeClaims are being deleted. There is no way back.
        Deleting = "Deleting",
        /// All NodeClaims are deleted; nodes drain and end.
        Draining = "Draining",
        /// The nodes are gone.
        Succeeded = "Succeeded",
        /// Rolled back: the nodes are kept.
        RolledBack = "RolledBack",
    }
}

open_enum! {
    /// Why a command was rolled back.
    RollBackCause {
        /// Its first steps were interrupted for too long.
        Interrupted = "Interrupted",
        /// Nodes were deleted by something else.
        NodesGone = "NodesGone",
        /// A node, or a pod on it, may not be disrupted any more; a freeze counts as well.
        Protected = "Protected",
        /// A drifted node is what its NodePool asks for again.
        NotDrifted = "NotDrifted",
        /// The replacements would exceed a limit of a NodePool.
        LimitExceeded = "LimitExceeded",
        /// The API server refused to create a replacement.
        ReplacementRefused = "ReplacementRefused",
        /// A replacement was lost before it was initialized.
        ReplacementLost = "ReplacementLost",
        /// A replacement was not initialized in time.
        ReplacementLate = "ReplacementLate",
        /// A pod was bound to one of the nodes after the decision.
        PodBound = "PodBound",
        /// Pods lost the place that they were to have on another node.
        PlaceLost = "PlaceLost",
        /// A precondition of the deletion was not met in time.
        TimedOut = "TimedOut",
    }
}

/// The decision. It never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionSpec {
    /// The method that decided.
    pub method: DisruptionMethod,
    /// Why; the budgets that it was charged to.
    pub reason: DisruptionReason,
    /// Delete or replace.
    pub decision: DisruptionDecision,
    /// When it was decided, by the operator's clock.
    pub decided_at: MicroTime,
    /// The nodes to be removed.
    pub nodes: Vec<DisruptedNode>,
    /// The replacements, launched before the nodes are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replacements: Vec<Replacement>,
    /// Names of existing nodes that will receive pods of the removed ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<String>,
    /// Dollars per hour of the nodes that go, as decimal text.
    pub price_before: String,
    /// Dollars per hour of the replacements, as decimal text.
    pub price_after: String,
    /// The difference, as decimal text; negative if the replacements cost more.
    pub savings: String,
    /// Pods that have to be rescheduled.
    pub evictions: i64,
    /// The budgets as they were, with what this command took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<ChargedBudget>,
    /// The nodes in a few words, for lists.
    pub node_summary: String,
    /// The replacements in a few words, for lists.
    pub replacement_summary: String,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// A node to be removed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptedNode {
    /// Name of the Node.
    pub name: String,
    /// Name of its NodeClaim.
    pub node_claim: String,
    /// UID of its NodeClaim: a later NodeClaim of that name is never touched.
    #[serde(rename = "nodeClaimUID")]
    pub node_claim_uid: String,
    /// Provider ID of its instance.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Its NodePool.
    pub node_pool: String,
    /// Its instance type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its capacity type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<String>,
    /// Dollars per hour, as decimal text.
    pub price: String,
    /// Pods on it that have to be rescheduled.
    pub pods: i64,
    /// When its NodeClaim was created; set if a DisruptionPolicy with convergence applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// Of these, pods of workloads that limit their moves per day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<MovedWorkload>,
}

/// Pods of one workload that move.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MovedWorkload {
    /// Such as `Deployment/shop/web`.
    pub name: String,
    /// How many.
    pub pods: i64,
}

/// One node that comes instead.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// Name of its NodeClaim, chosen before it is created, so a retried create is idempotent.
    pub node_claim: String,
    /// Its NodePool.
    pub node_pool: String,
    /// Dollars per hour of the cheapest way to launch it, as decimal text.
    pub price: String,
    /// Labels and annotations of the NodeClaim.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// UID of the NodePool that owns it.
    #[serde(default, rename = "nodePoolUID", skip_serializing_if = "String::is_empty")]
    pub node_pool_uid: String,
    /// Spec of the NodeClaim.
    pub spec: NodeClaimSpec,
}

/// The share of a budget that a command uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChargedBudget {
    /// The NodePool.
    pub node_pool: String,
    /// Nodes that may be disrupting at once for this reason.
    pub allowed: i64,
    /// Nodes that were disrupting before.
    pub disrupting: i64,
    /// Nodes that this command added.
    pub charged: i64,
}

/// The progress of a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionStatus {
    /// The phase; absent means `Starting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<DisruptionPhase>,
    /// What it is waiting for, or why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why it was rolled back; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll_back_cause: Option<RollBackCause>,
    /// When all nodes were tainted and all replacements created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When deletion of the nodes started; removed if the command was rolled back before any was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<MicroTime>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<MicroTime>,
    /// Dollars per hour that were saved in fact, with the replacements as they were launched, as decimal text; `spec.savings` is what was predicted.
    /// Written with the end of a command that succeeded, where all prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realised_savings: Option<String>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl Disruption {
    /// Progress of the command.
    #[must_use]
    pub fn phase(&self) -> DisruptionPhase {
        let phase = self.status.as_ref().and_then(|status| status.phase.clone());
        phase.unwrap_or(DisruptionPhase::Starting)
    }

    /// True once nothing is left to do for it.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(
            self.phase(),
            DisruptionPhase::Succeeded | DisruptionPhase::RolledBack
        )
    }

    /// True while its nodes belong to it and to no other command: until their deletion is beyond doubt (D-023, D-118).
    #[must_use]
    pub fn holds_nodes(&self) -> bool {
        !self.is_finished() && self.phase() != DisruptionPhase::Draining
    }

    /// False once it was taken back with all of its nodes still there: rates, quotas and waves do not count it.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        let status = self.status.as_ref();
        let deleted = status.is_some_and(|status| status.deleted_at.is_some());
        deleted || self.phase() != DisruptionPhase::RolledBack
    }
}
