//! The settings that decisions depend on: flags of the operator, never read here (P §15.1).

use crate::disrupt::DisruptOptions;
use jiff::{SignedDuration, Timestamp};
use spokeshave_schedule::{MinValuesPolicy, PackOptions, PreferencePolicy, TypeTables};
use std::time::Duration;

/// Settings of all decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `--preference-policy`.
    pub preferences: PreferencePolicy,
    /// `--min-values-policy`.
    pub min_values: MinValuesPolicy,
    /// How many instance types a NodeClaim names at most (P-064).
    pub instance_types_per_claim: usize,
    /// For how long a node that is to receive a pod is kept for it (P-071): `nomination_window`.
    pub nomination_window: Duration,
    /// How long a command waits between decision and validation (D-086).
    pub validation_delay: Duration,
    /// How voluntary disruption is decided.
    pub disrupt: DisruptOptions,
    /// What packing knows of instance types from pass to pass; clones of a policy share it. It changes nothing but the time that decisions take.
    pub tables: TypeTables,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            preferences: PreferencePolicy::default(),
            min_values: MinValuesPolicy::default(),
            instance_types_per_claim: spokeshave_api::constants::MAX_INSTANCE_TYPES,
            nomination_window: nomination_window(Duration::from_secs(10)),
            validation_delay: spokeshave_api::constants::VALIDATION_DELAY,
            disrupt: DisruptOptions::default(),
            tables: TypeTables::default(),
        }
    }
}

impl Policy {
    /// D-027: until when a node is kept for pods that are expected on it from now on.
    pub fn nominated_until(&self, now: Timestamp) -> Timestamp {
        let window = SignedDuration::try_from(self.nomination_window).unwrap_or(SignedDuration::ZERO);
        now.saturating_add(window).unwrap_or(Timestamp::MAX)
    }

    /// The part that packing sees.
    pub(crate) fn pack_options(&self) -> PackOptions {
        PackOptions {
            preferences: self.preferences,
            min_values: self.min_values,
            instance_types_per_claim: self.instance_types_per_claim,
            tables: self.tables.clone(),
            ..PackOptions::default()
        }
    }
}

/// P-071, D-027: twice the longest batch, at least ten seconds.
pub fn nomination_window(batch_max_duration: Duration) -> Duration {
    batch_max_duration.saturating_mul(2).max(Duration::from_secs(10))
}
