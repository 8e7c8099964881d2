//! Who answers behind ports of pods, as far as this process knows.

use std::fmt;
use std::sync::Arc;

/// Metrics in Prometheus' text format. It must not call the server.
pub type MetricsFn = Arc<dyn Fn() -> String + Send + Sync>;

/// Who serves what.
#[derive(Default)]
pub(crate) struct Backends {
    pub(crate) metrics: Option<MetricsFn>,
    pub(crate) pods: Vec<PodMetrics>,
}

#[derive(Clone)]
pub(crate) struct PodMetrics {
    pub(crate) label: (String, String),
    pub(crate) port: u16,
    pub(crate) metrics: MetricsFn,
}

impl fmt::Debug for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backends").finish_non_exhaustive()
    }
}
