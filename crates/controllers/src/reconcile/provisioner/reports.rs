//! What passes have found for buffers is written while the next ones go on.
//!
//! Owns that no pass waits for it, and that no two of them are written at once. What is written is decided by others.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use spokeshave_plan::buffers::Tally;
use tokio::sync::Notify;

use crate::act::hands::Hands;

/// What the last pass has found for each buffer, until it is taken to be written.
#[derive(Debug, Default)]
pub(super) struct Reports {
    newest: Mutex<Option<BTreeMap<String, Tally>>>,
    fresh: Notify,
}

impl Reports {
    /// Takes the place of what was found before and nobody has begun to write.
    pub(super) fn add(&self, tallies: BTreeMap<String, Tally>) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(tallies);
        self.fresh.notify_one();
    }

    /// Writes them, one after the other, for as long as it is polled.
    pub(super) async fn write(&self, hands: &Hands) {
        loop {
            self.fresh.notified().await;
            let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(tallies) = newest {
                hands.report_buffers(&tallies).await;
            }
        }
    }
}
