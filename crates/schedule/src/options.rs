//! Policy of a packing pass: what to do about preferences, minValues and reserved capacity.

use crate::relax::PreferencePolicy;
use crate::template::TypeTables;

/// What to do when too few distinct values are left for minValues (P §6.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinValuesPolicy {
    /// The option is out.
    #[default]
    Strict,
    /// New NodeClaims lower minValues to what is there.
    BestEffort,
}

/// What to do when reserved capacity exists but is used up (P §6.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservedPolicy {
    /// Defer the pod to a later pass: provisioning.
    #[default]
    Strict,
    /// Launch other capacity: disruption's what-ifs.
    Fallback,
}

/// Policy of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackOptions {
    /// Preferences.
    pub preferences: PreferencePolicy,
    /// minValues.
    pub min_values: MinValuesPolicy,
    /// Reserved capacity.
    pub reserved: ReservedPolicy,
    /// How many instance types a NodeClaim names at most; 600 (P §0.1).
    pub instance_types_per_claim: usize,
    /// What is known of instance types from Snapshot to Snapshot; it changes nothing but the time that it takes.
    pub tables: TypeTables,
}

impl Default for PackOptions {
    fn default() -> Self {
        PackOptions {
            preferences: PreferencePolicy::Respect,
            min_values: MinValuesPolicy::Strict,
            reserved: ReservedPolicy::Strict,
            instance_types_per_claim: 600,
            tables: TypeTables::default(),
        }
    }
}
