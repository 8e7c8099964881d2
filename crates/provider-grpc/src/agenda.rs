//! When NodeClasses are looked at again (G-021): as their provider says, at once in another state, and later each time when it does not answer.
//!
//! Owns the times. It asks nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

/// Pause between two looks at all classes, and the first before one that could not be settled is tried again.
pub(crate) const PERIOD: Duration = Duration::from_secs(5);
/// The longest of those.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// The state of a class that a look was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) generation: Option<i64>,
    pub(crate) is_deleted: bool,
}

/// What a look at a class has come to.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) uid: String,
    pub(crate) seen: Seen,
    /// When it is looked at again; `None` with the next round. An error was logged.
    pub(crate) again: Result<Option<Timestamp>, ()>,
}

#[derive(Debug)]
struct Entry {
    seen: Seen,
    again: Timestamp,
    failures: u32,
}

/// The times, by UID.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    entries: BTreeMap<String, Entry>,
    under_way: BTreeSet<String>,
}

impl Agenda {
    pub(crate) fn is_due(&self, uid: &str, seen: Seen, now: Timestamp) -> bool {
        let entry = self.entries.get(uid);
        let is_known = entry.is_some_and(|entry| entry.seen == seen && now < entry.again);
        !is_known && !self.under_way.contains(uid)
    }

    /// A look begins.
    pub(crate) fn begin(&mut self, uid: &str) {
        self.under_way.insert(uid.to_owned());
    }

    /// And ends.
    pub(crate) fn note(&mut self, settled: Settled, now: Timestamp) {
        let Settled { uid, seen, again } = settled;
        self.under_way.remove(&uid);
        let before = self.entries.remove(&uid).filter(|entry| entry.seen == seen);
        let (again, failures) = match again {
            Ok(None) => return,
            Ok(Some(again)) => (again, 0),
            Err(()) => {
                let failures = before.map_or(0, |entry| entry.failures);
                let pause = PERIOD.saturating_mul(2_u32.saturating_pow(failures));
                (after(now, pause.min(LONGEST_PAUSE)), failures.saturating_add(1))
            }
        };
        let entry = Entry {
            seen,
            again,
            failures,
        };
        self.entries.insert(uid, entry);
    }
}

/// So much later; never, where there is no such time.
pub(crate) fn after(now: Timestamp, pause: Duration) -> Timestamp {
    now.saturating_add(pause).unwrap_or(Timestamp::MAX)
}
