//! What dry runs of launches said of each class (A2), while it holds.
//!
//! Owns the memory of it only, and how long what cannot be rehearsed waits. When a verdict is asked for, and what follows from it, is `classes`' affair.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_provider_aws::status::Validation;

/// The longest pause between rehearsals that fail.
const LONGEST: Duration = Duration::from_secs(60);

/// Verdicts of dry runs, by class.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    known: Mutex<BTreeMap<String, Kept>>,
    /// Rehearsals in a row that ended with what is no verdict and does not pass by itself.
    failures: Mutex<BTreeMap<String, u32>>,
}

/// One verdict, for what it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) key: u64,
    pub(crate) outcome: Validation,
    pub(crate) until: Timestamp,
}

impl Verdicts {
    pub(crate) fn get(&self, class: &str) -> Option<Kept> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(class)
            .cloned()
    }

    pub(crate) fn keep(&self, class: &str, kept: Kept) {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(class);
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(class.to_owned(), kept);
    }

    /// A rehearsal has failed in a way that the next one may, too.
    pub(crate) fn count_failure(&self, class: &str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(class.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    /// How long a class without a verdict waits: as long as this, doubled with each failure after the first. Each rehearsal may be a call for every subnet.
    pub(crate) fn pause(&self, class: &str, first: Duration) -> Duration {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.get(class).copied().unwrap_or_default();
        let factor = 2_u32.saturating_pow(count.saturating_sub(1));
        first.saturating_mul(factor).min(LONGEST)
    }
}
