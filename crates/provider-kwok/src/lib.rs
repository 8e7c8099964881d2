//! The kwok cloud: machines that are objects only (P §14.1).
//!
//! Owns the instance types (by rule or from a file), the launch and the end of instances, and the Nodes that they turn into. An
//! instance is a `KWOKInstance` object, the cloud's own database: it is written before anything else and named after the
//! NodeClaim's UID, so that no crash launches twice or leaks. It never touches NodeClaims or NodePools, and never decides what to
//! launch: it takes the cheapest offering that the NodeClaim allows.
//!
//! # Catalog file
//! A JSON array, the format of upstream's `instance_types.json`; field names are matched without regard to case, unknown fields
//! are ignored:
//!
//! ```json
//! [{ "name": "m5.large", "architecture": "amd64", "operatingSystems": ["linux"],
//!    "resources": {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "20Gi", "pods": "29"},
//!    "offerings": [{
//!      "Price": 0.096, "Available": true, "ReservationCapacity": 0,
//!      "Requirements": [
//!        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
//!        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]}] }] }]
//! ```
//!
//! `cpu` and `memory` are required, `pods` defaults to 110. Every offering names exactly one zone and one capacity type. `Available` is
//! accepted and taken as true, as upstream does; use [`KwokOptions::insufficient_capacity`] to take offerings away. A reserved offering
//! may name its reservation with the key [`keys::RESERVATION_ID`]; without one, type and zone name it.

mod adopt;
mod catalog;
mod errors;
mod generated;
mod instance_type;
pub mod keys;
mod launch;
mod lifecycle;
mod messages;
mod options;
mod provider;
mod record;

pub use adopt::is_adoptable;
pub use catalog::{Catalog, CatalogError};
pub use generated::instance_types as generated_instance_types;
pub use options::{Failures, KwokOptions, OfferingPattern, PatternError, SlowRegistration};
pub use provider::KwokProvider;
