//! The tests of the whole stack on virtual time: one program, because each would be built and linked with all of it.

mod appendix;
mod cluster;
mod common;
mod disruption;
mod disruption_deaths;
mod disruption_scenarios;
mod faulty;
mod features;
mod invariants;
mod kills;
mod kubelets;
mod lifecycle;
mod metrics;
mod mid_write;
mod scenarios;
mod soak;
mod termination;
mod workloads;
mod zones;
