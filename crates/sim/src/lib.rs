//! The laboratory: a whole cluster on virtual time, with faults, and what must hold in it.
//!
//! Owns [`lab`], the cluster and its weather; [`invariants`], what must hold in it; [`kills`], stories in which an operator dies; [`soak`], scenarios
//! drawn from a seed; [`rehearsal`], the same on simulated clouds; [`performance`], scenarios whose cost is counted; and [`examples`], what their
//! programs share. Nothing of it ships: what components of the cluster are in the crate `cluster`.

pub mod examples;
pub mod invariants;
pub mod kills;
pub mod lab;
pub mod performance;
pub mod rehearsal;
pub mod soak;
