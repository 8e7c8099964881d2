//! NodeClaim: a request for one node, from before its launch until after its termination (P §1.2).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{Condition, NodeClassRef, QuantityMap, Requirement, UnknownFields, kind};
use crate::duration::{GoDuration, NillableDuration};

kind! {
    /// A request for one node (P §1.2).
    NodeClaim, NodeClaimSpec, NodeClaimStatus,
    group: "karpenter.sh", version: "v1", plural: "nodeclaims", scope: k8s_openapi::ClusterResourceScope
}

/// The requested node. It never changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimSpec {
    /// Taints that pods must tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that another component removes once the node is prepared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Requirements on the labels of the node.
    #[serde(default)]
    pub requirements: Vec<Requirement>,
    /// Resources that the node must provide.
    #[serde(default, skip_serializing_if = "NodeClaimResources::is_empty")]
    pub resources: NodeClaimResources,
    /// Which NodeClass describes the machine.
    pub node_class_ref: NodeClassRef,
    /// Longest time that a drain may take; absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<GoDuration>,
    /// Age at which the node is replaced.
    #[serde(default = "NillableDuration::default_expire_after")]
    pub expire_after: NillableDuration,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Resources that the node must provide.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeClaimResources {
    /// Requests of the pods that it was launched for, and of the daemons that will run on it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: QuantityMap,
}

impl NodeClaimResources {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// The observed state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// Name of the Node, once registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Provider ID of the instance, once launched.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Image that the instance runs.
    #[serde(default, rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// Capacity that the instance type promises.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: QuantityMap,
    /// The part of it that pods may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: QuantityMap,
    /// Conditions: `Ready`, `Launched`, `Registered`, `Initialized`, and what happens to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When a pod last came or went (D-036).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pod_event_time: Option<Time>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

impl NodeClaim {
    /// Name of the NodePool that it was made from; absent for a standalone NodeClaim.
    #[must_use]
    pub fn node_pool(&self) -> Option<&str> {
        self.label(crate::labels::NODE_POOL)
    }

    /// Name of its Node, once registered.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        let name = self.status.as_ref()?.node_name.as_deref();
        name.filter(|name| !name.is_empty())
    }

    /// Provider ID of the instance, once launched.
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        self.status
            .as_ref()?
            .provider_id
            .as_deref()
            .filter(|id| !id.is_empty())
    }
}
