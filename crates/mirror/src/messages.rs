//! Messages of a provider that reads them itself (machines that have ended, or will, without anybody having asked for it): they come again until they are
//! acknowledged.
//!
//! Owns what is not acknowledged. It reads nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use spokeshave_ports::{Interruption, Interruptions, SharedClock};

/// A message that is not acknowledged comes again after this.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// How often new messages are looked for.
const PERIOD: Duration = Duration::from_secs(1);

/// Messages in hand, with when each was told.
#[derive(Debug, Default)]
pub struct Messages {
    held: Mutex<BTreeMap<String, (Interruption, Option<Timestamp>)>>,
}

impl Messages {
    fn held(&self) -> MutexGuard<'_, BTreeMap<String, (Interruption, Option<Timestamp>)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a message, once for each ID.
    pub fn tell(&self, message: Interruption) {
        self.held().entry(message.id.clone()).or_insert((message, None));
    }

    /// Whether a message of this ID is not done with.
    #[must_use]
    pub fn holds(&self, id: &str) -> bool {
        self.held().contains_key(id)
    }

    /// A message is done with.
    pub fn acknowledge(&self, id: &str) {
        self.held().remove(id);
    }

    fn due(&self, now: Timestamp) -> Option<Interruption> {
        let mut held = self.held();
        let due = |told: &Option<Timestamp>| told.is_none_or(|told| now.duration_since(told) >= AGAIN_AFTER);
        let (message, told) = held.values_mut().find(|(_, told)| due(told))?;
        *told = Some(now);
        Some(message.clone())
    }

    /// The messages, for as long as somebody listens.
    pub fn stream(&self, clock: SharedClock) -> Interruptions<'_> {
        stream::unfold(clock, move |clock| async move {
            loop {
                if let Some(message) = self.due(clock.now()) {
                    return Some((message, clock));
                }
                clock.sleep(PERIOD).await;
            }
        })
        .boxed()
    }
}
