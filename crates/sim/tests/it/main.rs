//! The tests of the whole stack on virtual time: one program, because each would be built and linked with all of it.

/// As the programs have it: a sixth of the time of these tests was spent in the allocator of the platform, a third where everything is optimised.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod admission;
mod appendix;
mod budgets_of_pods;
mod clouds;
mod dead_machines;
mod disruption;
mod disruption_deaths;
mod eviction_turns;
mod faulty;
mod features;
mod invariants;
mod killable;
mod kills;
mod kubelets;
mod lifecycle;
mod local_volumes;
mod log;
mod metrics;
mod mid_write;
mod nominations;
mod owners;
mod permissions;
mod plain;
mod preemption;
mod promises;
mod records;
mod rest;
mod scenarios;
mod settle;
mod soak;
mod words;
mod workloads;
