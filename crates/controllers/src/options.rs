//! Settings of the controllers (P §15.1); parsing flags and variables is the binary's.

use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::validation::LabelRules;
use spokeshave_model::scheduler_profiles::SchedulerProfiles;
use spokeshave_plan::disrupt::DisruptOptions;
use spokeshave_plan::{MinValuesPolicy, Policy, PreferencePolicy, nomination_window};

/// Which Lease to compete for.
#[derive(Clone, Debug)]
pub struct LeaderElectionOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of this replica, unique.
    pub identity: String,
}

/// What is built in and can be turned on or off, with Karpenter's names and defaults (P-203).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// `ReservedCapacity`: reserved offerings are used, and NodeClaims that hold some are pinned to them (P §6.12). On.
    pub reserved_capacity: bool,
    /// `NodeRepair`: replace Nodes that their cloud declares broken.
    pub node_repair: bool,
    /// `StaticCapacity`: NodePools with a fixed number of nodes.
    pub static_capacity: bool,
    /// `NodeOverlay`: NodeOverlays correct prices and capacities of instance types.
    pub node_overlay: bool,
    /// `CapacityBuffer`: room is kept for pods to come.
    pub capacity_buffer: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            reserved_capacity: true,
            node_repair: false,
            static_capacity: false,
            node_overlay: false,
            capacity_buffer: false,
        }
    }
}

/// How fast pods are evicted, over all nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvictionRate {
    /// Requests a second, sustained.
    pub per_second: f64,
    /// Requests at once.
    pub burst: u32,
}

/// Settings of the controllers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest time for which pods are batched before nodes are planned.
    pub batch_max_duration: Duration,
    /// Nodes are planned once no new pod has arrived for this long.
    pub batch_idle_duration: Duration,
    /// Whether preferences of pods count until they cannot be met.
    pub preference_policy: PreferencePolicy,
    /// What happens when minValues cannot be met.
    pub min_values_policy: MinValuesPolicy,
    /// What kube-scheduler is configured to add to pods (P-121, B-60).
    pub scheduler_profiles: Arc<SchedulerProfiles>,
    /// Whether spot nodes may be replaced by cheaper spot nodes (D-153).
    pub spot_to_spot_consolidation: bool,
    /// Maximum number of replacement nodes for a set of underutilized nodes (W-03).
    pub consolidation_replacements: usize,
    /// Whether moves of consolidation wait until the nodes of their NodePool have come to rest (W-60).
    pub consolidation_rounds: bool,
    /// On how many threads candidates of disruption are looked at; decisions do not depend on it.
    pub disruption_threads: usize,
    /// Competition with other replicas; `None` for a single one.
    pub leader_election: Option<LeaderElectionOptions>,
    /// Labels that users may name beyond the core's, and domains that they may not.
    pub label_rules: LabelRules,
    /// How long a shutdown may take.
    pub shutdown_limit: Duration,
    /// What is on and off.
    pub feature_gates: FeatureGates,
    /// CPU available to the controllers, in millicores; more of them work on more objects at once (D-318, D-327).
    pub cpu_requests_milli: u32,
    /// A bound on evictions of its own; without one the client's rate is the only bound.
    pub eviction_rate: Option<EvictionRate>,
    /// Whether waiting pods name the node that they were planned on in `status.nominatedNodeName`.
    pub nominate_pods: bool,
    /// Whether there are metrics of single nodes, pods and conditions: their number grows with the cluster.
    pub object_metrics: bool,
    /// Whether initialisation waits for the drivers of Dynamic Resource Allocation (P-168).
    pub dynamic_resources: bool,
    /// A call to the cloud without an answer for so long counts as failed.
    pub cloud_call_limit: Duration,
    /// The commit that this program was built from, for its metrics; empty where it is not known.
    pub commit: &'static str,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch_max_duration: Duration::from_secs(10),
            batch_idle_duration: Duration::from_secs(1),
            preference_policy: PreferencePolicy::default(),
            min_values_policy: MinValuesPolicy::default(),
            scheduler_profiles: Arc::default(),
            spot_to_spot_consolidation: false,
            consolidation_replacements: 1,
            consolidation_rounds: true,
            disruption_threads: 1,
            leader_election: None,
            label_rules: LabelRules::default(),
            shutdown_limit: Duration::from_secs(10),
            feature_gates: FeatureGates::default(),
            cpu_requests_milli: 1000,
            eviction_rate: None,
            nominate_pods: false,
            object_metrics: false,
            dynamic_resources: false,
            cloud_call_limit: Duration::from_secs(120),
            commit: "",
        }
    }
}

impl Options {
    /// Upstream's scale of concurrency: `least` at one core, `most` at sixty (D-318).
    pub(crate) fn scaled(&self, least: usize, most: usize) -> usize {
        let milli = usize::try_from(self.cpu_requests_milli).unwrap_or(usize::MAX);
        let above = milli.saturating_sub(1000).min(59_000);
        least + (most - least) * above / 59_000
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy {
            preferences: self.preference_policy,
            min_values: self.min_values_policy,
            nomination_window: nomination_window(self.batch_max_duration),
            disrupt: DisruptOptions {
                spot_to_spot: self.spot_to_spot_consolidation,
                replacements: self.consolidation_replacements,
                rounds: self.consolidation_rounds,
                threads: self.disruption_threads,
                verdicts: true,
                ..DisruptOptions::default()
            },
            ..Policy::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_107_d_318_d_327_concurrency_grows_with_the_cores() {
        let at = |cpu_requests_milli| {
            let options = Options {
                cpu_requests_milli,
                ..Options::default()
            };
            options.scaled(100, 5000)
        };
        assert_eq!((at(0), at(1000), at(60_000), at(400_000)), (100, 100, 5000, 5000));
        assert_eq!(at(30_500), 2550);
        // Commands under way: upstream's 100 to 1000.
        let sixty = Options {
            cpu_requests_milli: 60_000,
            ..Options::default()
        };
        assert_eq!(sixty.scaled(100, 1000), 1000);
    }
}
