//! Models of other autoscalers, after their documented behaviour: what they would remove. They are no products, and results call them models.
//!
//! Owns what they have in common. Each is a file; everything else in a run of a model (launches, drains, the scheduler) is that of every other run. What the models leave
//! out is listed in `docs/simulate-engine.md`.

mod autoscaler;
mod exchange;
mod karpenter;
mod search;
mod second_look;
#[cfg(test)]
mod worlds;

use spokeshave_api::{ConsolidationPolicy, NodePool};
use spokeshave_plan::disrupt::Command;

pub(super) use autoscaler::{UnderWay, cluster_autoscaler, next_unneeded_ms};
pub(super) use karpenter::{Memory, karpenter};
pub(super) use second_look::second_look;

/// What a model would do now.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) commands: Vec<Command>,
    /// How many sets of nodes were taken away to find that out.
    pub(super) what_ifs: u64,
}

/// A NodePool as `karpenter-balanced` has it: one that consolidates weighs what that saves.
pub(super) fn weigh_savings(pool: &mut NodePool) {
    let policy = &mut pool.spec.disruption.consolidation_policy;
    if *policy == ConsolidationPolicy::WhenEmptyOrUnderutilized {
        *policy = ConsolidationPolicy::Balanced;
    }
}
