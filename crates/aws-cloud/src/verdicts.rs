//! What dry runs of launches said of each class (A2), while it holds.
//!
//! Owns the memory of it only. When a verdict is asked for, and what follows from it, is `classes`' affair.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use spokeshave_provider_aws::status::Validation;

/// Verdicts of dry runs, by class.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    known: Mutex<BTreeMap<String, Kept>>,
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
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(class.to_owned(), kept);
    }
}
