//! NodePool: which nodes may be launched, and how they may be disrupted (P §1.1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Condition, NodeClassRef, QuantityMap, Requirement, UnknownFields, kind, open_enum};
use crate::duration::{GoDuration, NillableDuration};
use crate::kinds::DisruptionReason;
use k8s_openapi::api::core::v1::Taint;

kind! {
    /// A kind of nodes that may be launched, and the rules for taking them away (P §1.1).
    NodePool, NodePoolSpec, NodePoolStatus,
    group: "karpenter.sh", version: "v1", plural: "nodepools", scope: k8s_openapi::ClusterResourceScope
}

/// The desired state of a NodePool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Template of the NodeClaims.
    pub template: NodeClaimTemplate,
    /// How nodes may be disrupted.
    #[serde(default)]
    pub disruption: Disruption,
    /// Upper bounds over all nodes of the pool; `nodes` counts nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<QuantityMap>,
    /// Higher is tried first, 1 to 100; absent counts as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Number of nodes of a static pool; absent for a dynamic one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Template of a NodePool's NodeClaims.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplate {
    /// Labels and annotations of the nodes.
    #[serde(default, skip_serializing_if = "TemplateMetadata::is_empty")]
    pub metadata: TemplateMetadata,
    /// The template of its nodes.
    pub spec: NodeClaimTemplateSpec,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Labels and annotations of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateMetadata {
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl TemplateMetadata {
    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty() && self.extra.is_empty()
    }
}

/// The template of the nodes of a NodePool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Taints that pods must tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that another component removes once the node is prepared; pods need not tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Requirements on the labels of nodes.
    #[serde(default)]
    pub requirements: Vec<Requirement>,
    /// Which NodeClass describes the machines.
    pub node_class_ref: NodeClassRef,
    /// Longest time that a drain may take; absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<GoDuration>,
    /// Age at which a node is replaced.
    #[serde(default = "NillableDuration::default_expire_after")]
    pub expire_after: NillableDuration,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// How the nodes of a pool may be disrupted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// How long after a pod was last added or removed a node may be consolidated.
    #[serde(default = "NillableDuration::zero")]
    pub consolidate_after: NillableDuration,
    /// Which nodes may be consolidated.
    #[serde(default)]
    pub consolidation_policy: ConsolidationPolicy,
    /// How many nodes may be disrupted at once, and when. Absent means one budget of 10 %; empty means no limit (D-183).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidate_after: NillableDuration::zero(),
            consolidation_policy: ConsolidationPolicy::default(),
            budgets: None,
            extra: UnknownFields::new(),
        }
    }
}

open_enum! {
    /// Which nodes may be consolidated (D-182).
    ConsolidationPolicy {
        /// Only nodes without pods that would have to move.
        WhenEmpty = "WhenEmpty",
        /// Also nodes whose pods fit elsewhere or on a cheaper node.
        WhenEmptyOrUnderutilized = "WhenEmptyOrUnderutilized",
        /// As above, when the saving is worth the disruption.
        Balanced = "Balanced",
    }
}

#[expect(
    clippy::derivable_impls,
    reason = "the default of an enum made by a macro cannot be marked inside it"
)]
impl Default for ConsolidationPolicy {
    fn default() -> Self {
        ConsolidationPolicy::WhenEmptyOrUnderutilized
    }
}

/// How many nodes may be disrupted at once, and when (D §5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// A number, or a percentage of the pool's nodes (rounded up).
    #[serde(default = "Budget::default_nodes")]
    pub nodes: String,
    /// Which reasons it limits; absent means all, empty means none (D-188).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// When its windows begin: cron in UTC; absent means always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// How long its windows last; absent means always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<GoDuration>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl Budget {
    pub(crate) fn default_nodes() -> String {
        "10%".to_owned()
    }

    /// A budget without schedule for all reasons.
    #[must_use]
    pub fn always(nodes: &str) -> Self {
        Self {
            nodes: nodes.to_owned(),
            reasons: None,
            schedule: None,
            duration: None,
            extra: UnknownFields::new(),
        }
    }
}

/// The observed state of a NodePool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Number of nodes.
    #[serde(default)]
    pub nodes: i64,
    /// Sum of the nodes' capacity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: QuantityMap,
    /// Generation of the NodeClass at the last look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// Conditions: `Ready`, `ValidationSucceeded`, `NodeClassReady`, `NodeRegistrationHealthy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl NodePool {
    /// True when the pool keeps a fixed number of nodes (`spec.replicas` is set).
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.spec.replicas.is_some()
    }

    /// Which NodeClass describes its machines.
    #[must_use]
    pub fn node_class_ref(&self) -> &NodeClassRef {
        &self.spec.template.spec.node_class_ref
    }

    /// Weight for ordering; absent counts as 0.
    #[must_use]
    pub fn weight(&self) -> i32 {
        self.spec.weight.unwrap_or(0)
    }
}
