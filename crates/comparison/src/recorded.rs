//! What really was of nodes, as a recording tells it, beside what was simulated.
//!
//! Owns its figures and how they are said. It compares nothing: there is one such life, and no seed of it.

use serde::Serialize;
use spokeshave_simulate::recorded::NodeTime;

use crate::numbers;
use crate::unit::Unit;

/// What is said of where these figures are from.
pub(crate) const BASIS: &str = "measured, not simulated";
const HOUR_MS: f64 = 3_600_000.0;

/// The nodes of a recording in the counted time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AsRecorded {
    /// The recording, as the scenario names it.
    pub file: String,
    /// That it was measured and not simulated.
    pub basis: &'static str,
    /// The time integral of nodes that NodePools own.
    pub node_hours: f64,
    /// How many of these there were, on average.
    pub mean_nodes: f64,
    /// The most of them at once.
    pub peak_nodes: u64,
    /// What they cost in dollars by listed prices; absent where one of them has no such price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// What has no listed price: instance type, capacity type and zone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_price: Vec<String>,
}

impl AsRecorded {
    /// The figures of a recording's nodes.
    #[must_use]
    pub fn new(file: &str, nodes: &NodeTime) -> Self {
        AsRecorded {
            file: file.to_owned(),
            basis: BASIS,
            node_hours: nodes.node_ms as f64 / HOUR_MS,
            mean_nodes: match nodes.span_ms {
                0 => 0.0,
                span_ms => nodes.node_ms as f64 / span_ms as f64,
            },
            peak_nodes: nodes.peak_nodes,
            cost: nodes.cost_micros.map(|micros| micros as f64 / 1e6),
            without_price: nodes.without_price.clone(),
        }
    }

    /// `168 node-hours, 1.00 nodes on average, 3 at most`.
    #[must_use]
    pub fn nodes(&self) -> String {
        format!(
            "{} node-hours, {} nodes on average, {} at most",
            numbers::value(self.node_hours, Unit::NodeHours),
            numbers::value(self.mean_nodes, Unit::NodeHours),
            numbers::value(self.peak_nodes as f64, Unit::Count)
        )
    }

    /// What it cost, or why nobody knows.
    #[must_use]
    pub fn cost(&self) -> String {
        match (self.cost, self.without_price.first()) {
            (Some(cost), _) => format!("{} by listed prices", numbers::value(cost, Unit::Dollars)),
            (None, None) => "no cost".to_owned(),
            (None, Some(first)) => {
                let others = match self.without_price.len() {
                    1 => String::new(),
                    all => format!(" and {}", numbers::count(all - 1, "other")),
                };
                format!("no cost, because there is no listed price of {first}{others}")
            }
        }
    }
}
