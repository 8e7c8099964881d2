//! Which Events are there for how long: a queue of what was written when. It removes nothing itself.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::objects::Key;

/// Group and plural name of Events, in the form in which they are kept.
pub(crate) const EVENTS: (&str, &str) = ("", "events");
/// What kube-apiserver's `--event-ttl` is where nobody sets it. A write begins it anew.
const EVENT_TTL: SignedDuration = SignedDuration::from_secs(60 * 60);

pub(crate) fn is_of_events(storage: &(String, String)) -> bool {
    (storage.0.as_str(), storage.1.as_str()) == EVENTS
}

/// When each version of an Event was written, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Expiring(VecDeque<(Timestamp, Key, u64)>);

impl Expiring {
    pub(crate) fn note(&mut self, now: Timestamp, key: &Key, revision: u64) {
        self.0.push_back((now, key.clone(), revision));
    }

    /// The next version whose time is up, once.
    pub(crate) fn next_due(&mut self, now: Timestamp) -> Option<(Key, u64)> {
        let (written, ..) = self.0.front()?;
        if now.duration_since(*written) < EVENT_TTL {
            return None;
        }
        let (_, key, revision) = self.0.pop_front()?;
        Some((key, revision))
    }
}
