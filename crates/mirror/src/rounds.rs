//! Writes to many objects that belong to one owner, of which some may be refused (A-011, Z-004).
//!
//! Owns the memory of what was refused last, and how many refusals end a round. What is written is each provider's.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::Resource;
use serde::de::DeserializeOwned;
use spokeshave_ports::{Write, WriteError, Writes};

use crate::Mirror;

/// A round ends after so many refusals: a rule that is against all objects costs each look at their owner no more writes than these.
const MOST_REFUSALS: usize = 20;

/// The object that was refused last, by owner.
#[derive(Debug, Default)]
pub struct Rounds(Mutex<BTreeMap<String, String>>);

impl Rounds {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets owners that do not exist any more.
    pub fn forget(&self, exists: impl Fn(&str) -> bool) {
        self.lock().retain(|owner, _| exists(owner));
    }

    /// Has core write objects of one owner. They come in by their names; those after the one that was refused last go first. One that is gone needs nothing, one
    /// that may not be written keeps no other, and of many that may not, a round tries a few; while writes fail otherwise, the others would only wait for the same.
    ///
    /// # Errors
    /// The first write that failed.
    pub async fn write<K>(
        &self,
        owner: &str,
        mut round: Vec<Write>,
        mirror: &Mirror<K>,
        writes: &dyn Writes,
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let last = self.lock().get(owner).cloned();
        let until_last = round.partition_point(|write| Some(&write.name) <= last.as_ref());
        round.rotate_left(until_last);
        let (mut written, mut refused) = (Ok(()), 0);
        for write in round {
            let name = write.name.clone();
            let error = match mirror.write(writes, write).await {
                Err(error) if !error.is_not_found() => error,
                _ => continue,
            };
            let is_over = !error.is_about_the_object();
            written = written.and(Err(error));
            if is_over {
                break;
            }
            self.lock().insert(owner.to_owned(), name);
            refused += 1;
            if refused == MOST_REFUSALS {
                break;
            }
        }
        written
    }
}
