//! What is counted up for as long as the process runs, and the end of it for objects that are gone.
//!
//! Owns the removal from all families at once, so that none is forgotten. Whose series end, and when, is the caller's; gauges are ended by who sets them.

use std::sync::Arc;

use super::{Families, Family, Kind, Metrics, lock};

/// All counters, histograms and summaries of a registry, also those that are registered later.
#[derive(Clone, Debug)]
pub struct Tallies {
    families: Families,
}

impl Metrics {
    /// The counters, histograms and summaries. A hook of this registry may hold them.
    #[must_use]
    pub fn tallies(&self) -> Tallies {
        Tallies {
            families: self.families.clone(),
        }
    }
}

impl Tallies {
    /// Keeps, in every family that has this label, the series whose value of it passes.
    pub fn retain(&self, label: &str, mut keep: impl FnMut(&str) -> bool) {
        let families: Vec<Arc<Family>> = lock(&self.families).values().cloned().collect();
        for family in families {
            let position = family.labels.iter().position(|name| name == label);
            if let Some(position) = position.filter(|_| family.kind != Kind::Gauge) {
                family.retain(|values| keep(&values[position]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::TokioClock;

    use super::*;

    #[test]
    fn invariant_41_series_end_in_every_family_with_the_label_but_not_in_gauges() {
        let metrics = Metrics::new(TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared());
        let tallies = metrics.tallies();
        for pool in ["old", "new"] {
            metrics.counter("a_total", "", &["nodepool"]).inc(&[pool]);
            metrics
                .histogram("b_seconds", "", &["zone", "nodepool"], &[1.0])
                .observe(&["z", pool], 2.0);
            metrics
                .summary("c_seconds", "", &["nodepool"])
                .observe(&[pool], 2.0);
            metrics.gauge("d", "", &["nodepool"]).set(&[pool], 1.0);
            metrics.counter("e_total", "", &["zone"]).inc(&[pool]);
        }
        tallies.retain("nodepool", |pool| pool != "old");
        let text = metrics.render();
        let left: Vec<&str> = text.lines().filter(|line| line.contains("\"old\"")).collect();
        assert_eq!(left, ["d{nodepool=\"old\"} 1", "e_total{zone=\"old\"} 1"]);
        assert_eq!(metrics.series_count(), 7);
    }
}
