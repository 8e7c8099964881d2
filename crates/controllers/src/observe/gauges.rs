//! What gauges of single objects have in common: their series, names of labels, ages, and a look at the state that ends with it.

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

/// What a label of objects is called in metrics (P §16). Prometheus refuses a scrape as a whole in which a name has another character, or begins with a digit.
pub(crate) fn metric_label(text: &str) -> String {
    let legal = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '_'
        }
    };
    let name: String = text.chars().map(legal).collect();
    if name.starts_with(|first: char| !first.is_ascii_digit()) {
        name
    } else {
        format!("_{name}")
    }
}

pub(crate) fn seconds(since: Timestamp, now: Timestamp) -> f64 {
    now.duration_since(since).as_secs_f64().max(0.0)
}
