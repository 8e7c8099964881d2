//! Messages of the queue that are in hand (A9): received, and not answered for yet.
//!
//! Owns the memory of them only. When one is received, answered for and deleted is `messages`' affair.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// A message that is not answered for.
#[derive(Debug)]
pub(crate) struct Pending {
    /// What the queue wants back with its deletion.
    pub(crate) receipt_handle: String,
    /// Instances that are not answered for.
    pub(crate) left: BTreeSet<String>,
}

/// What is in hand, and what was found out about the queue.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The queue, once it was found.
    pub(crate) queue_url: Option<String>,
    /// Why the queue cannot be read, as it was logged last; `None` while it is read.
    pub(crate) failure_logged: Option<String>,
    /// The same, as users were told last.
    pub(crate) failure_told: Option<String>,
    /// By ID of the message.
    pub(crate) pending: BTreeMap<String, Pending>,
    /// When instances that nobody knew were looked for, and whether EC2 answered.
    pub(crate) looked: Option<(Timestamp, bool)>,
}

/// Messages in hand.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    state: Mutex<State>,
}

impl Messages {
    /// Locks it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
