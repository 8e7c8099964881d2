//! Times in the units in which they are counted and written.
//!
//! Owns arithmetic only: what time it is, the engine says.

use jiff::Timestamp;

/// Whole milliseconds from one time to another; none where that is earlier.
pub(crate) fn milliseconds_between(from: Timestamp, until: Timestamp) -> u64 {
    u64::try_from(until.duration_since(from).as_millis()).unwrap_or(0)
}

/// Kubernetes writes times of pods in whole seconds.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
