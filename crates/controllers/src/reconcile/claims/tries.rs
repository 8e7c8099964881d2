//! When launches are tried, and again after they have failed (D-263).
//!
//! Owns the pauses. What becomes of a NodeClaim whose time is over is the controller's to do.

use std::time::Duration;

use jiff::Timestamp;
use spokeshave_api::NodeClaim;

use super::Claims;

/// First and longest pause between two tries to launch (D-263).
const FIRST_LAUNCH_RETRY: Duration = Duration::from_secs(1);
const LAST_LAUNCH_RETRY: Duration = Duration::from_secs(60);
/// For how long a NodeClaim is tried whose time was over before the first try of this term: a start may have to wait for NodeClasses or credentials.
const LATE_TRIES: Duration = Duration::from_secs(60);

/// The tries to launch a NodeClaim in this term.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tries {
    failures: u32,
    /// When the next one is due.
    pub(super) due: Timestamp,
    /// When the first one began.
    begun: Timestamp,
}

impl Tries {
    fn beginning(now: Timestamp) -> Self {
        Self {
            failures: 0,
            due: now,
            begun: now,
        }
    }

    /// D-263: one second, doubling to a minute.
    fn fail(&mut self, now: Timestamp) {
        let delay = FIRST_LAUNCH_RETRY
            .saturating_mul(1 << self.failures.min(6))
            .min(LAST_LAUNCH_RETRY);
        self.failures = self.failures.saturating_add(1);
        self.due = now.saturating_add(delay).unwrap_or(Timestamp::MAX);
    }

    /// For how long a NodeClaim is still tried whose time is over.
    pub(super) fn left_when_late(&self, now: Timestamp) -> Duration {
        let passed = Duration::try_from(now.duration_since(self.begun)).unwrap_or_default();
        LATE_TRIES.saturating_sub(passed)
    }
}

impl Claims {
    /// The tries of a claim, of which the first begins now at the latest.
    pub(super) fn tries_of(&self, claim: &NodeClaim, now: Timestamp) -> Tries {
        self.tries.look(claim, || Tries::beginning(now), |tries| *tries)
    }

    pub(super) fn delay_launch(&self, claim: &NodeClaim) {
        let now = self.cluster.now();
        self.tries
            .look(claim, || Tries::beginning(now), |tries| tries.fail(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn d_263_pauses_double_to_a_minute() {
        let mut tries = Tries::beginning(at(0));
        assert_eq!(tries.due, at(0));
        let mut now = 0;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            tries.fail(at(now));
            now += pause;
            assert_eq!(tries.due, at(now));
        }
    }

    #[test]
    fn d_263_who_is_late_at_the_first_try_is_tried_for_a_minute() {
        let mut tries = Tries::beginning(at(0));
        assert_eq!(tries.left_when_late(at(0)), Duration::from_secs(60));
        tries.fail(at(50));
        assert_eq!(tries.left_when_late(at(59)), Duration::from_secs(1));
        assert_eq!(tries.left_when_late(at(300)), Duration::ZERO);
    }
}
