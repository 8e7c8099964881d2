//! Metrics that are counted elsewhere: a provider's numbers, copied into the registry before a scrape.
//!
//! Owns the translation. It counts nothing itself and keeps no hook of the registry alive.

use spokeshave_ports::{MeasuredValue, Measurement, MeasurementKind};

use super::{Families, Family, Kind, Metrics, Value, lock};

/// Destination of a provider's metrics.
#[derive(Clone, Debug)]
pub struct Copies {
    families: Families,
}

impl Metrics {
    /// A place for numbers that are counted elsewhere. A hook of this registry may hold it.
    #[must_use]
    pub fn copies(&self) -> Copies {
        Copies {
            families: self.families.clone(),
        }
    }
}

impl Copies {
    /// Replaces all series of these families at once, registering those that are new.
    pub fn replace(&self, measurements: Vec<Measurement>) {
        for measurement in measurements {
            let kind = match measurement.kind {
                MeasurementKind::Counter => Kind::Counter,
                MeasurementKind::Gauge => Kind::Gauge,
                MeasurementKind::Histogram(bounds) => Kind::Histogram(bounds),
            };
            let (name, help, labels) = (measurement.name, measurement.help, measurement.labels);
            let family = Family::of(&self.families, name, help, labels, kind);
            let width = family.labels.len();
            let series = measurement.series.into_iter().map(|(mut key, value)| {
                debug_assert_eq!(key.len(), width, "metric {name}");
                key.resize(width, String::new());
                let value = match value {
                    MeasuredValue::Number(number) => Value::Number(number),
                    MeasuredValue::Buckets(counts, sum) => Value::Buckets(counts, sum),
                };
                (key, value)
            });
            let series = series.collect();
            *lock(&family.series) = series;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spokeshave_ports::TokioClock;

    use super::*;

    fn measured(series: &[(&str, MeasuredValue)], kind: MeasurementKind) -> Vec<Measurement> {
        let series = series
            .iter()
            .map(|(key, value)| (vec![(*key).to_owned()], value.clone()));
        vec![Measurement {
            name: "sold",
            help: "What was sold.",
            labels: &["what"],
            kind,
            series: series.collect(),
        }]
    }

    #[test]
    fn a_120_a_copy_shows_the_numbers_of_now_and_none_of_before() {
        let metrics = Metrics::new(TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared());
        let copies = metrics.copies();
        let number = |number| MeasuredValue::Number(number);
        copies.replace(measured(
            &[("tea", number(2.0)), ("milk", number(1.0))],
            MeasurementKind::Counter,
        ));
        copies.replace(measured(&[("tea", number(3.0))], MeasurementKind::Counter));
        assert_eq!(
            metrics.render(),
            "# HELP sold What was sold.\n# TYPE sold counter\nsold{what=\"tea\"} 3\n"
        );
        assert_eq!(
            Arc::strong_count(&metrics.families),
            2,
            "the copy holds the families, and no hook"
        );
    }

    #[test]
    fn a_120_a_copied_histogram_is_shown_cumulatively() {
        let metrics = Metrics::new(TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared());
        let kind = MeasurementKind::Histogram(vec![1.0, 2.0]);
        metrics.copies().replace(measured(
            &[("tea", MeasuredValue::Buckets(vec![1, 0, 2], 9.5))],
            kind,
        ));
        let text = metrics.render();
        for line in [
            "le=\"1\"} 1",
            "le=\"2\"} 1",
            "le=\"+Inf\"} 3",
            "sold_sum{what=\"tea\"} 9.5",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
