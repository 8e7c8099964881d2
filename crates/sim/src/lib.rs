//! The laboratory: a whole cluster on virtual time, with faults, and what must hold in it.
//!
//! Owns [`lab`], the cluster and its weather; [`invariants`], what must hold in it; [`kills`], stories in which an operator dies; [`soak`], scenarios
//! drawn from a seed; [`rehearsal`], the same on simulated clouds; [`performance`], scenarios whose cost is counted; and the command that runs an
//! example again. Nothing of it ships: what components of the cluster are in the crate `cluster`.

pub mod invariants;
pub mod kills;
pub mod lab;
pub mod performance;
pub mod rehearsal;
pub mod soak;

/// What runs an example again: with debug assertions where this run has them, which its recipe is built without.
#[must_use]
pub fn program(example: &str) -> String {
    if cfg!(debug_assertions) {
        format!("cargo run -p spokeshave-sim --example {example} --")
    } else {
        format!("just {example}")
    }
}
