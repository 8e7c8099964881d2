//! How long a what-if takes: each managed node taken away in turn, its pods placed, everything put back.
//!
//! Only measured for `--stats`; the answers are thrown away.

use std::time::Instant;

use jiff::Timestamp;
use spokeshave_model::Snapshot;
use spokeshave_model::snapshot::PodId;
use spokeshave_plan::{Policy, displaced_pods, pending_pods};
use spokeshave_schedule::{PackOptions, ReservedPolicy, Simulation};

use super::format::WhatIfs;
use super::nanoseconds;

/// Measures a what-if of every initialised node with a NodeClaim.
pub(crate) fn measure(snapshot: &Snapshot, policy: &Policy, now: Timestamp) -> WhatIfs {
    let options = PackOptions {
        preferences: policy.preferences,
        min_values: policy.min_values,
        reserved: ReservedPolicy::Fallback,
        instance_types_per_claim: policy.instance_types_per_claim,
    };
    let mut simulation = Simulation::new(snapshot, &options);
    let (mut waiting, _) = pending_pods(snapshot);
    waiting.extend(displaced_pods(snapshot, now));
    waiting.sort_unstable();
    waiting.dedup();
    simulation.base(&waiting);
    let mut times: Vec<u64> = Vec::new();
    let mut pods: Vec<PodId> = Vec::new();
    for node in snapshot.node_ids() {
        let view = snapshot.node(node);
        if !view.is_managed() || !view.initialized || view.marked_for_deletion {
            continue;
        }
        pods.clear();
        pods.extend(view.pods.iter().filter(|pod| snapshot.pod(**pod).reschedulable));
        let start = Instant::now();
        let fork = simulation.fork();
        simulation.remove_node(node);
        simulation.place(&pods);
        simulation.revert(fork);
        times.push(nanoseconds(start));
    }
    times.sort_unstable();
    let at = |percent: usize| {
        times
            .get(times.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    WhatIfs {
        count: times.len() as u64,
        median: at(50),
        p99: at(99),
        total: times.iter().sum(),
    }
}
