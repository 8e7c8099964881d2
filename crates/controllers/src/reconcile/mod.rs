//! The controllers, one file each: when they look, which pure function they ask, and what they hand to `act`.
//!
//! Owns the list of them. A further controller is a file here, its `mod` line and its line in [`controllers`].

use std::sync::Arc;

use spokeshave_runtime::Metrics;
use tracing::Instrument as _;

use crate::act::hands::Hands;
use crate::controller::Controllers;
use crate::observe::journal::Journal;
use crate::state::cluster::Cluster;

mod capacity_buffers;
mod claims;
pub(crate) mod disruption;
mod disruption_commands;
mod disruption_policies;
mod disruption_questions;
mod disruption_verdicts;
mod drift;
mod eviction;
mod garbage;
mod identity;
mod interruption;
mod launch_ends;
mod node_overlays;
mod node_pools;
mod node_repair;
mod node_termination;
mod nominations;
mod pod_events;
mod provisioner;
mod static_pools;
mod unreadable;

/// What one term of leadership knows, writes with and tells; controllers take of it what they need.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    /// What is known.
    pub(crate) cluster: Arc<Cluster>,
    /// What writes.
    pub(crate) hands: Hands,
    /// What is told.
    pub(crate) journal: Arc<Journal>,
}

/// All controllers. Their order here is the order in which they hear of a change.
pub(crate) fn controllers<'a>(term: &'a Term, metrics: &'a Metrics) -> Controllers<'a> {
    let cluster = || term.cluster.clone();
    let hands = || term.hands.clone();
    let journal = || term.journal.clone();
    let mut list = Controllers::new(&term.cluster, metrics);
    list.add(|_| claims::Claims::new(cluster(), hands(), journal()));
    list.add(|_| pod_events::PodEvents::new(cluster(), hands()));
    let evictions = list.add(|queue| eviction::Evictions::new(cluster(), hands(), journal(), queue));
    let provisioner = provisioner::Provisioner::new(cluster(), hands(), journal());
    let pods = || provisioner.clone();
    list.add(|_| capacity_buffers::CapacityBuffers::new(cluster(), hands(), pods()));
    list.add(|_| node_overlays::NodeOverlays::new(cluster(), hands(), pods()));
    let drained = evictions.clone();
    let interruptions = list
        .add(|queue| interruption::Interruptions::new(cluster(), hands(), journal(), pods(), drained, queue));
    list.add(|_| node_termination::NodeTermination::new(cluster(), hands(), journal(), evictions));
    list.add(|_| node_pools::NodePools::new(cluster(), hands(), journal()));
    let disruption = disruption::DisruptionLoop::new(cluster(), hands(), journal());
    list.add(|_| disruption_commands::Commands::new(cluster(), hands(), journal()));
    list.add(|_| drift::Drift::new(cluster(), hands()));
    let policies = disruption_policies::DisruptionPolicies::new(cluster(), hands(), journal());
    list.add(|_| identity::Identity::new(cluster(), hands()));
    list.add(|_| node_repair::NodeRepair::new(cluster(), hands(), journal()));
    list.add(|_| static_pools::StaticPools::new(cluster(), hands(), journal()));
    list.add(|_| garbage::Garbage::new(cluster(), hands(), journal()));
    list.add_loop("disruptionpolicy.status", |stop| policies.run(stop));
    list.add_loop("interruption.messages", |stop| interruptions.listen(stop));
    list.add_loop("provisioner", |stop| {
        provisioner.run(stop).instrument(run_of("provisioner"))
    });
    list.add_loop("disruption", |stop| {
        disruption.run(stop).instrument(run_of("disruption"))
    });
    list
}

/// Lines that a loop writes carry its name.
fn run_of(controller: &'static str) -> tracing::Span {
    tracing::error_span!("run", controller)
}
