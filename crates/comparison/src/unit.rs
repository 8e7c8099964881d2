//! What numbers count. Owns the units of metrics, and never how a number is printed.

use serde::Serialize;

/// What a number counts, and so how it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    /// US dollars over the counted time.
    Dollars,
    /// A share; 0.112 is 11.2 %.
    Share,
    /// Seconds.
    Seconds,
    /// Hours of one node.
    NodeHours,
    /// Evictions for each pod and day.
    PerPodDay,
    /// A number of things.
    Count,
}
