//! Which commands that have ended policies still count, so that the ledger keeps them.
//!
//! Owns the reason. How long and how many others stay is the ledger's (`disrupt::history`).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::disruption_policy::DisruptionPolicySpec;

use super::wave::is_of_wave;
use super::workloads::still_counts;
use super::{convergence, hold};

/// Why a finished command stays in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It does not, once there are too many or it is too old.
    No,
    /// It counts for a rate, a quota or the like: though it is old or there are too many, if there are not ten times too many.
    WhileFew,
    /// It counts for the wave of a roll-out, however long that lasts: without it the wave would begin anew.
    Always,
}

/// What these policies still count a finished command for.
#[must_use]
pub fn keep(one: &Disruption, policies: &[Arc<DisruptionPolicy>], now: Timestamp) -> Keep {
    let counts = |policy: &Arc<DisruptionPolicy>| still_counts(one, now) || looks_at(&policy.spec, one, now);
    if is_of_wave(one, policies, now) {
        Keep::Always
    } else if policies.iter().any(counts) {
        Keep::WhileFew
    } else {
        Keep::No
    }
}

/// Whether a policy looks at a command that ended longer ago than rates and quotas go back: a circuit breaker, a hold, or convergence.
fn looks_at(spec: &DisruptionPolicySpec, one: &Disruption, now: Timestamp) -> bool {
    let is_within =
        |at: Option<Timestamp>, within: SignedDuration| at.is_some_and(|at| now.duration_since(at) < within);
    let breakers = spec.circuit_breakers.as_ref();
    let failed_launches = breakers.and_then(|all| all.failed_launches.as_ref());
    failed_launches.is_some_and(|breaker| is_within(hold::launch_failed_at(one), breaker.within.to_signed()))
        || spec
            .hold
            .as_ref()
            .is_some_and(|hold| hold::still_holds(one, hold, now))
        || (spec.convergence.is_some() && is_within(convergence::deleted_at(one), convergence::DAY))
}
