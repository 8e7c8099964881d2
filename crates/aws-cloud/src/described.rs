//! Instances as EC2 last described them. Kept only where zonal shifts are respected (D-296).
//!
//! Owns the memory of them only. What is kept, and for how long, is `shifts`' affair.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use spokeshave_provider_aws::replies::Instance;

/// By ID.
#[derive(Debug, Default)]
pub(crate) struct Described(Mutex<BTreeMap<String, Instance>>);

impl Described {
    /// Locks it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
