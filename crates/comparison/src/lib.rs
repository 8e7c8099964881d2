//! What simulated runs show side by side: paired differences over seeds, tables, JSON and one HTML file.
//!
//! Owns statistics and wording ("cheaper", "costlier", "no difference shown"); it never runs a simulation and never reads a file.

mod compare;
mod curves;
mod expect;
mod metric;
mod numbers;
mod raw;
mod recorded;
mod report;
mod setting;
mod settled;
mod statistics;
mod table;
mod unit;
mod work;

pub use compare::{
    API_VERSION, CompareError, Comparison, Difference, Method, MetricFacts, PolicyResult, Summary, Verdict,
};
pub use curves::{MeanCurve, Waiting};
pub use expect::{Answer, ExpectError, Expectation, Expected};
pub use metric::{METRICS, Metric};
pub use raw::{RawRun, RunEffort};
pub use recorded::AsRecorded;
pub use setting::{Input, NOT_MODELLED, Policy, Setting};
pub use statistics::{FEWEST_SEEDS, Interval, interval, mean, t_quantile};
pub use unit::Unit;
pub use work::Work;
