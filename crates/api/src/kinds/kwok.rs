//! KWOKNodeClass (P §1.5), and KWOKInstance: the kwok cloud's record of one instance.
//!
//! A cloud must remember its instances when the controllers do not. Upstream's kwok provider keeps them as Nodes, which do not exist
//! during the registration delay, so a crash during it leaks them. Ours are separate objects, written before anything else.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use super::{Condition, QuantityMap, UnknownFields, kind};
use crate::duration::GoDuration;

mod node_class {
    use super::{KWOKNodeClassSpec, KWOKNodeClassStatus, kind};
    kind! {
        /// A kind of machine that does not exist (P §1.5).
        KWOKNodeClass, #[serde(default)] KWOKNodeClassSpec, KWOKNodeClassStatus,
        group: "karpenter.kwok.sh", version: "v1alpha1", plural: "kwoknodeclasses", scope: k8s_openapi::ClusterResourceScope
    }
}
pub use node_class::KWOKNodeClass;

mod instance {
    use super::{KWOKInstanceSpec, KWOKInstanceStatus, kind};
    kind! {
        /// One instance of the kwok cloud.
        KWOKInstance, KWOKInstanceSpec, KWOKInstanceStatus,
        group: "kwok.spokeshave.dev", version: "v1alpha1", plural: "kwokinstances", scope: k8s_openapi::ClusterResourceScope
    }
}
pub use instance::KWOKInstance;

/// Configuration of a kwok machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KWOKNodeClassSpec {
    /// Time between the launch of an instance and the appearance of its Node; default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_registration_delay: Option<GoDuration>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Whether the class may be used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KWOKNodeClassStatus {
    /// Conditions: `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// The launched instance. It never changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KWOKInstanceSpec {
    /// Name of the NodeClaim that requested it.
    pub node_claim_name: String,
    /// UID of the NodeClaim that requested it.
    #[serde(rename = "nodeClaimUID")]
    pub node_claim_uid: String,
    /// NodePool of that NodeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Capacity type.
    pub capacity_type: String,
    /// Price per hour, as decimal text.
    pub price: String,
    /// Name that its Node will have.
    pub node_name: String,
    /// Image that it runs, when the NodeClass names one.
    #[serde(default, rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// Labels that its Node will have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints that its Node will have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Capacity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: QuantityMap,
    /// The part of it that pods may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: QuantityMap,
    /// Its owner: cluster, NodePool, NodeClaim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Time until its Node appears; absent when it never will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registration_delay: Option<GoDuration>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// The observed state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KWOKInstanceStatus {
    /// `Pending`, `Running` or `Terminating`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// When its termination started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_started: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime>,
    /// Conditions, for other tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}
