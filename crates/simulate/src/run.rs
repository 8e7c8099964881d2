//! What came of one simulated life: the raw figures of one policy under one seed.
//!
//! Owns the definitions of the metrics (integers only: milliseconds, micro-dollars times milliseconds), so that the meaning of each figure is exact. It
//! never compares two runs.

use serde::Serialize;

/// Which engine ran it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// An event queue that calls the decision functions on a Snapshot kept up to date in place.
    Fast,
    /// The production controllers, an API server and kubelets on virtual time.
    Full,
}

/// One policy under one seed. All figures leave the warm-up out; the curves do not.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Name of the policy.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// The policy of the run.
    pub engine: Engine,
    /// The figures.
    pub measured: Measured,
    /// The curves, one point for each `Curve::step_ms`.
    pub curve: Curve,
    /// SHA-256 over decisions and figures, in hexadecimal; `work` is not in it.
    pub digest: String,
    /// What it took.
    pub work: WorkDone,
    /// True when it was interrupted.
    pub partial: bool,
}

/// What a run took, from its start to its end, warm-up included. No digest has it, and no figure is made of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkDone {
    /// Instances launched.
    pub launches: u64,
    /// Launches that failed.
    pub failed_launches: u64,
    /// Commands of disruption that were carried out.
    pub commands: u64,
    /// Pods evicted by disruption that could have waited, or lost with a node that it removed.
    pub moves: u64,
    /// What-ifs: how often passes of disruption have tried to do without a set of nodes; those of second looks at commands are not counted. `None`: the engine
    /// does not count them.
    pub what_ifs: Option<u64>,
    /// Requests of the operator to the API server that are not reads (POST, PUT, PATCH, DELETE), whatever the answer. `None`: there is no API server.
    pub api_writes: Option<u64>,
    /// Processor time of the run's thread, in milliseconds. `None`: nobody has measured it, as no engine does.
    pub cpu_ms: Option<u64>,
}

/// The figures of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Counted time (without the warm-up), in milliseconds.
    pub span_ms: u64,
    /// What instances cost, from the launch's success to the instance's end, in micro-dollars: on demand.
    pub cost_on_demand_micros: u64,
    /// The same: spot.
    pub cost_spot_micros: u64,
    /// The same: reserved.
    pub cost_reserved_micros: u64,
    /// Integral of the lower bound of what the bound pods' requests cost at least, in micro-dollars.
    pub bound_micros: u64,
    /// Pods evicted by disruption that could have waited (consolidation, emptiness, drift, soft expiry), or lost with a node that it removed.
    pub evictions_voluntary: u64,
    /// Pods lost otherwise: interruption, hard expiry, repair.
    pub evictions_involuntary: u64,
    /// Integral of bound workload pods over time, in pod-milliseconds.
    pub pod_ms: u128,
    /// Voluntary evictions of each owner that had any, in order of the owner's number.
    pub evictions_by_owner: Vec<(u32, u64)>,
    /// Owners that had a pod at any time.
    pub owners: u64,
    /// Milliseconds from existence without a node to binding, of pods that were born; sorted. As in the next three lists, the wait began after the warm-up.
    pub pending_born_ms: Vec<u32>,
    /// The same of pods that replace evicted ones; sorted.
    pub pending_moved_ms: Vec<u32>,
    /// Pods that left before they had a node: at least so long; sorted. Left out of the digest where there are none, as before they were counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_left_ms: Vec<u32>,
    /// Pods that were still waiting at the end: at least so long; sorted.
    pub pending_at_end_ms: Vec<u32>,
    /// Pods that had waited since the warm-up, and left after it before they had a node: at least so long; sorted. Left out of the digest where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_since_warmup_ms: Vec<u32>,
    /// Pods that had waited since the warm-up, and still did at the end: at least so long; sorted. Left out of the digest where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_since_warmup_ms: Vec<u32>,
    /// Integral of 1 − (largest share requested of any resource) over nodes, in node-milliseconds times 1,000.
    pub wasted_node_ms_thousandths: u128,
    /// What that cost, in micro-dollars.
    pub wasted_micros: u64,
    /// Node-milliseconds during which a node held no pod but daemons.
    pub idle_node_ms: u128,
    /// Integral of nodes over time, in node-milliseconds.
    pub node_ms: u128,
    /// Instances that the cloud announced to take back, counted when it did.
    pub interruptions: u64,
    /// Pods that were killed before their grace period had ended. Left out of the digest where there are none, as before this figure had a name of its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub pods_cut_short: u64,
    /// Milliseconds without a ready pod, over owners that want exactly one.
    pub single_replica_down_ms: u64,
    /// Evictions that a PodDisruptionBudget delayed.
    pub budget_waits: u64,
    /// Nodes that were removed younger than an hour.
    pub short_lived_nodes: u64,
    /// Pods that were moved twice within an hour.
    pub moved_again: u64,
    /// Commands whose saving was gone within an hour (a launch in the same NodePool).
    pub savings_lost: u64,
    /// Instances launched.
    pub launches: u64,
    /// Launches that failed.
    pub failed_launches: u64,
    /// Commands of disruption that were carried out.
    pub commands: u64,
    /// Largest number of nodes at once, after the warm-up.
    pub peak_nodes: u64,
    /// Largest number of workload pods at once, after the warm-up.
    pub peak_pods: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// How a run went over time. Each point is the mean of its stretch of time, so that points times their lengths are the integral, rounded down.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Curve {
    /// Milliseconds of a point; the first begins at the scenario's start, warm-up included.
    pub step_ms: u64,
    /// Milliseconds of the last point, which ends with the run and may be shorter.
    pub last_ms: u64,
    /// Cost per hour, in micro-dollars.
    pub cost_micros_per_hour: Vec<u64>,
    /// Lower bound per hour, in micro-dollars.
    pub bound_micros_per_hour: Vec<u64>,
    /// Nodes, in thousandths.
    pub nodes_thousandths: Vec<u64>,
    /// Workload pods, bound or not, in thousandths.
    pub pods_thousandths: Vec<u64>,
    /// Pods that wait for a node, in thousandths.
    pub pending_thousandths: Vec<u64>,
}

impl Curve {
    /// The length of each point, in milliseconds.
    pub fn lengths(&self) -> impl Iterator<Item = u64> {
        let points = self.cost_micros_per_hour.len();
        (1..=points).map(move |point| {
            if point == points {
                self.last_ms
            } else {
                self.step_ms
            }
        })
    }
}
