//! Which commands that have ended policies still count, so that the ledger keeps them.
//!
//! Owns the reason. How long and how many others stay is the ledger's (`disrupt::history`).

use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption::Disruption;

use super::rollout::is_of_wave;
use super::workloads::still_counts;

/// Why a finished command stays in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It does not, once there are too many or it is too old.
    No,
    /// It counts for a rate or a quota: though there are too many, if there are not ten times too many.
    WhileFew,
    /// It counts for the wave of a roll-out, however long that lasts: without it the wave would begin anew.
    Always,
}

/// What these policies still count a finished command for.
#[must_use]
pub fn keep(one: &Disruption, policies: &[Arc<DisruptionPolicy>], now: Timestamp) -> Keep {
    if is_of_wave(one, policies) {
        Keep::Always
    } else if !policies.is_empty() && still_counts(one, now) {
        Keep::WhileFew
    } else {
        Keep::No
    }
}
