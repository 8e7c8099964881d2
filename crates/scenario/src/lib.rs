//! What is to be simulated: scenario files, generated workloads, and traces of others, all as one [`Timeline`].
//!
//! Owns reading and drawing; it never runs a simulation and never decides anything about nodes.

pub mod chance;
mod changes;
pub mod facts;
mod fields;
pub mod file;
pub mod generate;
pub mod import;
pub mod pods;
mod size;
pub mod source;
pub mod timeline;
pub mod workload;

pub use changes::SizeChange;
pub use facts::Facts;
pub use fields::{Problem, duration_ms};
pub use file::Scenario;
pub use generate::generate;
pub use timeline::{
    Budget, Change, DisruptionBudget, Event, Owner, OwnerId, OwnerKind, Placement, Spread, Timeline,
};
