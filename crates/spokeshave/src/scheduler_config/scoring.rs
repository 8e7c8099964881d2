//! How a profile of kube-scheduler scores nodes by their resources: the `scoringStrategy` of its plugin `NodeResourcesFit`.
//!
//! No decision reads it. It is checked as kube-scheduler does, told, and taken into scenarios.

use std::fmt;

use serde::Deserialize;

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ScoringStrategy {
    #[serde(rename = "type")]
    type_: String,
    resources: Vec<Weighted>,
    requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

#[derive(Debug, Deserialize)]
struct Weighted {
    name: String,
    #[serde(default)]
    weight: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RequestedToCapacityRatio {
    shape: Vec<Point>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Point {
    utilization: i32,
    score: i32,
}

/// How a profile scores nodes by their resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scoring {
    /// By what is left, or by what is used.
    pub(crate) strategy: Strategy,
    /// What each resource counts.
    pub(crate) weights: Vec<(String, i64)>,
}

/// The strategies that kube-scheduler has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
}

impl Strategy {
    const ALL: [Strategy; 3] = [
        Strategy::LeastAllocated,
        Strategy::MostAllocated,
        Strategy::RequestedToCapacityRatio,
    ];

    /// Its name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Strategy::LeastAllocated => "LeastAllocated",
            Strategy::MostAllocated => "MostAllocated",
            Strategy::RequestedToCapacityRatio => "RequestedToCapacityRatio",
        }
    }
}

impl Scoring {
    /// Whether CPU and memory count alike, and nothing else does.
    pub(crate) fn is_even(&self) -> bool {
        let mut weights = self.weights.clone();
        weights.sort();
        matches!(&weights[..], [(cpu, one), (memory, other)] if cpu == "cpu" && memory == "memory" && one == other)
    }
}

impl fmt::Display for Scoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weights = self.weights.iter();
        let weights: Vec<String> = weights.map(|(name, weight)| format!("{name} {weight}")).collect();
        write!(f, "{} ({})", self.strategy.as_str(), weights.join(", "))
    }
}

/// Checks a strategy as kube-scheduler does.
///
/// # Errors
/// The field that is wrong, and what was expected.
pub(super) fn read(written: ScoringStrategy) -> Result<Scoring, String> {
    let mut known = Strategy::ALL.into_iter();
    let Some(strategy) = known.find(|strategy| strategy.as_str() == written.type_) else {
        let names = Strategy::ALL.map(Strategy::as_str).join(", ");
        return Err(format!("type is {:?}; expected one of {names}", written.type_));
    };
    let mut weights = Vec::new();
    for (index, Weighted { name, weight }) in written.resources.into_iter().enumerate() {
        // As with kube-scheduler, none is the least.
        let weight = if weight == 0 { 1 } else { weight };
        if !(1..=100).contains(&weight) {
            return Err(format!(
                "resources[{index}].weight is {weight}; expected 1 to 100"
            ));
        }
        weights.push((name, weight));
    }
    if weights.is_empty() {
        weights = ["cpu", "memory"].map(|name| (name.to_owned(), 1)).into();
    }
    let is_ratio = strategy == Strategy::RequestedToCapacityRatio;
    match written.requested_to_capacity_ratio {
        Some(ratio) if is_ratio => check_shape(&ratio.shape)?,
        None if !is_ratio => {}
        Some(_) => {
            return Err(format!(
                "requestedToCapacityRatio is there with type {}",
                strategy.as_str()
            ));
        }
        None => return Err("requestedToCapacityRatio is missing".to_owned()),
    }
    Ok(Scoring { strategy, weights })
}

fn check_shape(shape: &[Point]) -> Result<(), String> {
    let field = "requestedToCapacityRatio.shape";
    if shape.is_empty() {
        return Err(format!("{field} is empty; expected at least one point"));
    }
    for (index, point) in shape.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if !(0..=100).contains(&point.utilization) {
            return Err(format!(
                "{field}.utilization is {}; expected 0 to 100",
                point.utilization
            ));
        }
        if !(0..=10).contains(&point.score) {
            return Err(format!("{field}.score is {}; expected 0 to 10", point.score));
        }
        if index > 0 && shape[index - 1].utilization >= point.utilization {
            return Err(format!(
                "{field}.utilization is {}; expected more than that of the point before",
                point.utilization
            ));
        }
    }
    Ok(())
}
