//! The dense domain: quantities, requirements, instance types, Snapshot, Plan, and the lowering of Kubernetes objects.
//!
//! Everything here is a value. Nothing in this crate waits, reads a clock, an environment or a file, and no
//! iteration order depends on a random hash: the same objects lower to the same Snapshot on every machine.

pub mod instance_type;
pub mod labels;
pub mod price;
pub mod quantity;
pub mod requirement;
pub mod requirements;
pub mod resources;
pub mod taint;

pub use instance_type::{AllocatableGroup, CapacityType, InstanceType, Offering, Overhead, Overrides};
pub use price::{ParsePriceError, Price};
pub use quantity::QuantityError;
pub use requirement::{Operator, Requirement, RequirementError};
pub use requirements::{Incompatibility, Requirements};
pub use resources::{ResourceName, Resources};
