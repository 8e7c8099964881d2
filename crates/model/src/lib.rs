//! The dense domain: quantities, requirements, instance types, Snapshot, Plan, and the lowering of Kubernetes objects.
//!
//! Everything here is a value. Nothing in this crate waits, reads a clock, an environment or a file, and no
//! iteration order depends on a random hash: the same objects lower to the same Snapshot on every machine.

pub mod action;
mod classes;
mod cluster_state;
pub mod constraints;
pub mod default_spread;
pub mod derivation;
mod distress;
pub mod instance_type;
pub mod interruption;
pub mod labels;
mod lower;
mod ordinals;
pub mod placement;
mod plan;
pub mod planned_node;
pub mod pod;
mod pod_object;
pub mod price;
pub mod reason;
pub mod requirement;
pub mod requirements;
pub mod resources;
pub mod scheduler_profiles;
pub mod selector;
pub mod snapshot;
pub mod state_node;
pub mod taint;
pub mod trim;
pub mod vector;
pub mod volumes;
mod workload_annotations;

pub use action::{Action, Event, EventType, ObjectKind, ObjectRef, Subresource};
pub use classes::Classes;
pub use cluster_state::{ClusterState, Nomination, Revocable};
pub use derivation::Derivation;
pub use distress::{Distress, PriceFeed};
pub use instance_type::{
    AllocatableGroup, CapacityType, InstanceType, Offering, Overhead, Overlaid, Overrides, still_sold,
};
pub use lower::{Applied, Change, LiveSnapshot, lower};
pub use ordinals::Ordinals;
pub use plan::Plan;
pub use pod_object::Pod;
pub use price::{ParsePriceError, Price};
pub use reason::Reason;
pub use requirement::{Operator, Requirement, RequirementError};
pub use requirements::{Incompatibility, Requirements};
pub use resources::{ResourceName, Resources};
pub use snapshot::Snapshot;
pub use spokeshave_syntax::QuantityError;
pub use workload_annotations::read_annotations;
