//! What a provider counts: metric families as values, which whoever serves `/metrics` copies.
//!
//! Owns the shape only. A provider keeps its numbers itself and knows no registry.

/// A metric family of a provider with its current values.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Full name, such as `karpenter_cloudprovider_batcher_batch_size`.
    pub name: &'static str,
    /// What it measures, for `# HELP`.
    pub help: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Its type.
    pub kind: MeasurementKind,
    /// Label values, in the order of `labels`, and the value.
    pub series: Vec<(Vec<String>, MeasuredValue)>,
}

/// Type of a metric family.
#[derive(Clone, Debug, PartialEq)]
pub enum MeasurementKind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Observations by size; inclusive upper bounds in ascending order, without the infinite one.
    Histogram(Vec<f64>),
}

/// Value of one series.
#[derive(Clone, Debug, PartialEq)]
pub enum MeasuredValue {
    /// Value of a counter or a gauge.
    Number(f64),
    /// Observations per bucket (not cumulative), the last one for what exceeds every bound; and their sum.
    Buckets(Vec<u64>, f64),
}
