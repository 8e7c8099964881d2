//! The Kubernetes API of Spokeshave: kinds, defaults, constants and CRDs.
//!
//! Owns everything about `karpenter.sh/v1` and its neighbours that is a fact of the interface: types, labels, conditions, budget
//! arithmetic, the template hash, the rules that a NodePool must meet. It never decides anything about nodes and never does IO.

mod budget;
pub mod conditions;
pub mod constants;
pub mod crds;
mod cron;
mod duration;
pub mod hash;
mod kinds;
pub mod labels;
pub mod validation;
mod wire;

pub use budget::{BudgetError, UNLIMITED};
pub use cron::{Cron, CronError};
pub use duration::{DurationError, GoDuration, NillableDuration};
pub use kinds::aks_node_class;
pub use kinds::aks_node_class::{AKSNodeClass, AKSNodeClassSpec, AKSNodeClassStatus};
pub use kinds::capacity_buffer::{
    CapacityBuffer, CapacityBufferSpec, CapacityBufferStatus, LocalReference, ScalableReference,
};
pub use kinds::disruption;
pub use kinds::disruption_policy;
pub use kinds::disruption_policy::DisruptionPolicy;
pub use kinds::ec2_node_class;
pub use kinds::ec2_node_class::{EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus};
pub use kinds::kwok::{
    KWOKInstance, KWOKInstanceSpec, KWOKInstanceStatus, KWOKNodeClass, KWOKNodeClassSpec, KWOKNodeClassStatus,
};
pub use kinds::node_claim::{NodeClaim, NodeClaimResources, NodeClaimSpec, NodeClaimStatus};
pub use kinds::node_overlay::{NodeOverlay, NodeOverlaySpec, NodeOverlayStatus};
pub use kinds::node_pool::{
    Budget, ConsolidationPolicy, Disruption, NodeClaimTemplate, NodeClaimTemplateSpec, NodePool,
    NodePoolSpec, NodePoolStatus, TemplateMetadata,
};
pub use kinds::{
    Condition, DisruptionReason, NodeClassRef, Operator, QuantityMap, Requirement, UnknownFields,
    whole_seconds,
};
pub use spokeshave_syntax::{Quantity, QuantityError};
pub use wire::{WireForm, selects};

pub use k8s_openapi::api::core::v1::Taint;
