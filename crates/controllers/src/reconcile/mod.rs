//! The controllers, one file each: when they look, which pure function they ask, and what they hand to `act`.

pub(crate) mod capacity_buffers;
pub(crate) mod claims;
pub(crate) mod disruption;
pub(crate) mod disruption_commands;
pub(crate) mod disruption_policies;
pub(crate) mod disruption_verdicts;
pub(crate) mod drift;
pub(crate) mod eviction;
pub(crate) mod garbage;
pub(crate) mod identity;
pub(crate) mod interruption;
pub(crate) mod launch_ends;
pub(crate) mod node_overlays;
pub(crate) mod node_pools;
pub(crate) mod node_repair;
pub(crate) mod node_termination;
pub(crate) mod pod_events;
pub(crate) mod provisioner;
pub(crate) mod static_pools;
