//! What is to be simulated: scenario files, generated workloads, and traces of others, all as one [`Timeline`].
//!
//! Owns reading and drawing; it never runs a simulation and never decides anything about nodes.

pub mod timeline;

pub use timeline::{Change, Event, Owner, OwnerId, OwnerKind, Spread, Timeline};
