//! Durations of the standard library beside those that times are added to.
//!
//! Owns what is done with one that does not fit. It knows no clock.

use std::time::Duration;

use jiff::SignedDuration;

/// The same duration; one that does not fit lasts for ever.
pub(crate) fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
