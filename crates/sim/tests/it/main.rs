//! The tests of the whole stack on virtual time: one program, because each would be built and linked with all of it.

mod appendix;
mod clouds;
mod disruption;
mod disruption_deaths;
mod faulty;
mod features;
mod invariants;
mod killable;
mod kills;
mod kubelets;
mod lifecycle;
mod metrics;
mod mid_write;
mod nominations;
mod plain;
mod rest;
mod scenarios;
mod settle;
mod soak;
mod words;
mod workloads;
