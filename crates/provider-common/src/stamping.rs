//! Which NodeClaims get the hash of their class first, where some of them may not be written (A-011, Z-004).
//!
//! Owns the memory of what was refused last, and how many refusals end a round. What is written is [`class_hash`](crate::class_hash)'s.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spokeshave_api::NodeClaim;

/// A round ends after so many refusals: a rule that is against all NodeClaims costs each look at a class no more writes than these.
const MOST_REFUSALS: usize = 20;

/// The NodeClaim that was refused last, by class.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<String, String>>);

/// One round of writes for a class.
#[derive(Debug)]
pub struct Round<'a> {
    refusals: &'a Refusals,
    class: &'a str,
    count: usize,
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets classes that do not exist any more.
    pub fn forget(&self, exists: impl Fn(&str) -> bool) {
        self.lock().retain(|class, _| exists(class));
    }

    /// A round for a class begins. NodeClaims come in by their names; those after the one that was refused last go first.
    pub fn round<'a>(&'a self, class: &'a str, claims: &mut [Arc<NodeClaim>]) -> Round<'a> {
        let last = self.lock().get(class).cloned();
        let until_last = claims.partition_point(|claim| Some(claim.name()) <= last.as_deref());
        claims.rotate_left(until_last);
        Round {
            refusals: self,
            class,
            count: 0,
        }
    }
}

impl Round<'_> {
    /// A NodeClaim was refused. Says whether that ends the round.
    pub fn is_ended_by(&mut self, claim: &str) -> bool {
        self.refusals
            .lock()
            .insert(self.class.to_owned(), claim.to_owned());
        self.count += 1;
        self.count >= MOST_REFUSALS
    }
}
