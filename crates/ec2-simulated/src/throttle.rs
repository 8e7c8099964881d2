//! How often each call may be made: token buckets as EC2 publishes them for an account in a region (A14.3).
//!
//! Owns the buckets. A call that finds its bucket empty is `RequestLimitExceeded` and does nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use spokeshave_provider_aws::errors::ApiError;

/// A bucket: how many calls at once, and how many come back in a second.
type Size = (f64, f64);

/// `Describe…` calls.
const READS: Size = (100.0, 20.0);
/// Calls that change something.
const WRITES: Size = (50.0, 5.0);
/// `RunInstances`, also as a rehearsal.
const RUNS: Size = (5.0, 2.0);
/// `TerminateInstances`.
const ENDS: Size = (100.0, 5.0);
/// `CreateTags`.
const TAGS: Size = (100.0, 10.0);

fn size(action: &str) -> Option<Size> {
    Some(match action {
        "RunInstances" => RUNS,
        "TerminateInstances" => ENDS,
        "CreateTags" => TAGS,
        "CreateFleet" | "CreateLaunchTemplate" | "DeleteLaunchTemplate" => WRITES,
        action if action.starts_with("Describe") && action != "DescribeCluster" => READS,
        // Other services have limits of their own, which are not EC2's.
        _ => return None,
    })
}

/// The buckets of an account.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buckets {
    left: BTreeMap<String, (f64, Timestamp)>,
}

impl Buckets {
    /// Takes a token.
    ///
    /// # Errors
    /// `RequestLimitExceeded` when there is none.
    pub(crate) fn take(&mut self, action: &str, now: Timestamp) -> Result<(), ApiError> {
        let Some((most, a_second)) = size(action) else {
            return Ok(());
        };
        let (left, at) = self.left.entry(action.to_owned()).or_insert((most, now));
        let passed = now.duration_since(*at).as_secs_f64().max(0.0);
        *left = (*left + passed * a_second).min(most);
        *at = now;
        if *left < 1.0 {
            return Err(ApiError::new("RequestLimitExceeded", "Request limit exceeded."));
        }
        *left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_emptied_and_fills_again_and_each_call_has_its_own() {
        let mut buckets = Buckets::default();
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds: i64| {
            start
                .saturating_add(jiff::SignedDuration::from_secs(seconds))
                .unwrap()
        };
        let mut taken = |action: &str, now| (0..).take_while(|_| buckets.take(action, now).is_ok()).count();
        assert_eq!(taken("CreateFleet", at(0)), 50);
        assert_eq!(taken("CreateFleet", at(2)), 10);
        assert_eq!(taken("RunInstances", at(2)), 5);
        assert_eq!(
            taken("CreateFleet", at(1000)),
            50,
            "no more than the bucket holds"
        );
        assert!((0..1000).all(|_| buckets.take("GetParameter", at(0)).is_ok()));
    }
}
