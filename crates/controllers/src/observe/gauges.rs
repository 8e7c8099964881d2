//! What gauges of single objects have in common: their series, ages, and a look at the state that ends with it.

use std::sync::Weak;

use jiff::Timestamp;

/// The values of one metric, each with its labels.
pub(crate) type Series = Vec<(Vec<String>, f64)>;

/// Runs while the operator is there.
pub(crate) fn with<T>(state: &Weak<T>, then: impl FnOnce(&T)) {
    if let Some(state) = state.upgrade() {
        then(&state);
    }
}

pub(crate) fn seconds(since: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(since).as_secs_f64().max(0.0)
}
