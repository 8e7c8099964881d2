//! What dry runs of launches said of each class (A2), while it holds.
//!
//! Owns the memory of it only, and how long what cannot be rehearsed waits. When a verdict is asked for, and what follows from it, is `classes`' affair.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_provider_aws::status::Validation;

/// A class without a verdict waits as long as this; doubled with each failure after the first.
const FIRST: Duration = Duration::from_secs(10);
/// The longest pause between rehearsals that fail.
const LONGEST: Duration = Duration::from_secs(60);

/// What dry runs have said, by class.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Mutex<BTreeMap<String, Rehearsed>>);

#[derive(Debug, Default)]
struct Rehearsed {
    verdict: Option<Kept>,
    /// Rehearsals in a row that ended with what is no verdict and does not pass by itself.
    failures: u32,
}

/// One verdict, for what it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) key: u64,
    pub(crate) outcome: Validation,
    pub(crate) until: Timestamp,
}

impl Verdicts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Rehearsed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, class: &str) -> Option<Kept> {
        self.lock().get(class)?.verdict.clone()
    }

    pub(crate) fn keep(&self, class: &str, kept: Kept) {
        let rehearsed = Rehearsed {
            verdict: Some(kept),
            failures: 0,
        };
        self.lock().insert(class.to_owned(), rehearsed);
    }

    /// Keeps nothing of classes that were deleted.
    pub(crate) fn forget(&self, exists: impl Fn(&str) -> bool) {
        self.lock().retain(|class, _| exists(class));
    }

    /// A rehearsal has failed in a way that the next one may, too.
    pub(crate) fn count_failure(&self, class: &str) {
        let mut rehearsed = self.lock();
        let failures = &mut rehearsed.entry(class.to_owned()).or_default().failures;
        *failures = failures.saturating_add(1);
    }

    /// How long a class without a verdict waits. Each rehearsal may be a call for every subnet.
    pub(crate) fn pause(&self, class: &str) -> Duration {
        let failures = self.lock().get(class).map_or(0, |rehearsed| rehearsed.failures);
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        FIRST.saturating_mul(factor).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_was_deleted_and_made_again_waits_as_a_new_one() {
        let verdicts = Verdicts::default();
        for _ in 0..3 {
            verdicts.count_failure("deleted");
            verdicts.count_failure("kept");
        }
        verdicts.forget(|class| class == "kept");
        assert_eq!(verdicts.pause("deleted"), FIRST);
        assert_eq!(verdicts.pause("kept"), FIRST * 4);
    }
}
