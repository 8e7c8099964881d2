//! The times of a roll-out: since when what is seen belongs to it, and what becomes of them when the clock is set back.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::disruption_policy::RolloutStatus;
use spokeshave_api::whole_seconds;

/// What came a moment before a roll-out was written down belongs to it.
const BEFORE: SignedDuration = SignedDuration::from_mins(1);
/// Times of a roll-out are whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// Times of decisions are whole microseconds.
const MICROSECOND: SignedDuration = SignedDuration::from_micros(1);

/// So much before a time.
pub(super) fn earlier(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_sub(by).unwrap_or(Timestamp::MIN)
}

/// Since when what has come belongs to a roll-out that is written down at a time.
pub(super) fn moment_before(time: Timestamp) -> Timestamp {
    earlier(time, BEFORE)
}

/// The next time that is later than this one in whole seconds as well.
pub(super) fn second_after(time: Timestamp) -> Timestamp {
    time.saturating_add(SECOND).unwrap_or(Timestamp::MAX)
}

/// The next time that a decision can be of.
pub(super) fn just_after(time: Timestamp) -> Timestamp {
    time.saturating_add(MICROSECOND).unwrap_or(Timestamp::MAX)
}

/// When the first of the roll-outs of a NodePool began since the last that was completed.
pub(super) fn first_since(status: &RolloutStatus) -> &Time {
    status.first_since.as_ref().unwrap_or(&status.since)
}

/// When a roll-out was written down: what was launched before that may be as it was before.
pub(super) fn begun(status: &RolloutStatus) -> Timestamp {
    status.since.0.saturating_add(BEFORE).unwrap_or(Timestamp::MAX)
}

/// By a clock that was set back, what lies ahead has just come, as far as anybody can tell (invariant 43): so that what is decided and launched from now on
/// belongs to the roll-out and its wave. What was decided before by the other clock is of a later time, and counts as well. When it was halted stays as it is:
/// set earlier, it could be cleared by what somebody had said of another halt.
pub(super) fn pull_back(status: &mut RolloutStatus, now: Timestamp) {
    let pull = |time: &mut Time, to: Timestamp| {
        if time.0 > now {
            *time = Time(whole_seconds(to));
        }
    };
    pull(&mut status.since, moment_before(now));
    pull(&mut status.wave_since, now);
    if let Some(time) = &mut status.first_since {
        pull(time, moment_before(now));
    }
    if let Some(time) = &mut status.resumed_at {
        pull(time, now);
    }
}
