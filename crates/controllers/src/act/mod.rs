//! Act writes: the only writer to Kubernetes and to the cloud's instances, and the steps that more than one controller takes.
//!
//! Nothing here decides.

pub(crate) mod blocked;
pub(crate) mod buffer_status;
pub(crate) mod commands;
mod creations;
pub(crate) mod error;
pub(crate) mod for_provider;
pub(crate) mod hands;
pub(crate) mod health_objects;
pub(crate) mod instance_end;
pub(crate) mod nominating;
