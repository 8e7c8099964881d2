//! CapacityBuffer: room that is kept free for pods to come (P §1.4; API of SIG Autoscaling).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Condition, QuantityMap, UnknownFields, kind};

kind! {
    /// Room that is kept free for pods to come (P §1.4).
    CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus,
    group: "autoscaling.x-k8s.io", version: "v1beta1", plural: "capacitybuffers", scope: k8s_openapi::NamespaceResourceScope
}

/// The reserved capacity, in pods of a given shape.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferSpec {
    /// How the capacity is reserved; default `buffer.x-k8s.io/active-capacity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// PodTemplate of the same namespace that gives the shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalReference>,
    /// Workload of the same namespace that gives the shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableReference>,
    /// Number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of pods in percent of the workload's replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentage: Option<i32>,
    /// Maximum resources of the reserved capacity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: QuantityMap,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Name of an object in the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalReference {
    /// Name.
    pub name: String,
}

/// A workload in the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalableReference {
    /// API group; absent means `apps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// What the buffer resolved to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferStatus {
    /// PodTemplate in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalReference>,
    /// Its generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// Number of pods in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Strategy in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// Conditions: `ReadyForProvisioning`, `Provisioning`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}
