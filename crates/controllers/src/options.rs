//! Settings of the controllers (P §15.1); parsing flags and variables is the binary's.

use std::time::Duration;

use spokeshave_api::validation::LabelRules;
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

/// Settings of the controllers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest time that pods are collected before nodes are planned.
    pub batch_max_duration: Duration,
    /// Nodes are planned when no new pod came for this long.
    pub batch_idle_duration: Duration,
    /// Whether preferences of pods count until they cannot be met.
    pub preference_policy: PreferencePolicy,
    /// What happens when minValues cannot be met.
    pub min_values_policy: MinValuesPolicy,
    /// Whether spot nodes may be replaced by cheaper spot nodes (D-153).
    pub spot_to_spot_consolidation: bool,
    /// Competition with other replicas; `None` for a single one.
    pub leader_election: Option<LeaderElectionOptions>,
    /// Labels that users may name beyond the core's, and domains that they may not.
    pub label_rules: LabelRules,
    /// How long a shutdown may take.
    pub shutdown_limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch_max_duration: Duration::from_secs(10),
            batch_idle_duration: Duration::from_secs(1),
            preference_policy: PreferencePolicy::default(),
            min_values_policy: MinValuesPolicy::default(),
            spot_to_spot_consolidation: false,
            leader_election: None,
            label_rules: LabelRules::default(),
            shutdown_limit: Duration::from_secs(10),
        }
    }
}

impl Options {
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            preferences: self.preference_policy,
            min_values: self.min_values_policy,
            nomination_window: nomination_window(self.batch_max_duration),
            disrupt: DisruptOptions {
                spot_to_spot: self.spot_to_spot_consolidation,
                verdicts: true,
                ..DisruptOptions::default()
            },
            ..Policy::default()
        }
    }
}
