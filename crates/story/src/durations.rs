//! Durations as users write them.

use std::fmt::Display;

/// `1h30m` where Go writes `1h30m0s`.
pub(crate) fn short(duration: &impl Display) -> String {
    let text = duration.to_string();
    let text = text
        .strip_suffix("m0s")
        .map_or(text.clone(), |rest| format!("{rest}m"));
    text.strip_suffix("h0m")
        .map_or(text.clone(), |rest| format!("{rest}h"))
}
