//! Arithmetic of instants.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// An instant so much later.
pub(crate) fn later(from: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    from.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
