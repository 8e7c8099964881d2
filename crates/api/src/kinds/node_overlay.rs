//! NodeOverlay: corrections of prices and capacities of instance types (P §1.3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Condition, QuantityMap, Requirement, UnknownFields, kind};

kind! {
    /// A correction of prices and capacities of instance types (P §1.3).
    NodeOverlay, NodeOverlaySpec, NodeOverlayStatus,
    group: "karpenter.sh", version: "v1alpha1", plural: "nodeoverlays", scope: k8s_openapi::ClusterResourceScope
}

/// Which instance types are corrected, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlaySpec {
    /// Which instance types are meant.
    #[serde(default)]
    pub requirements: Vec<Requirement>,
    /// Price per hour instead of the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Signed change of the price, absolute or in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    /// Extended resources that are added.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: QuantityMap,
    /// Higher wins, 1 to 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Whether the overlay is applied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeOverlayStatus {
    /// Conditions: `Ready`, `ValidationSucceeded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}
