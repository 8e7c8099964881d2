//! The metrics registry: families by name, series by label values, and the text that Prometheus scrapes.
//!
//! Owns counters, gauges, histograms and summaries with the semantics and text format of Go's client, so that dashboards made for
//! Karpenter keep working. Everything belongs to a [`Metrics`] handle; there are no globals, so many clusters can be
//! simulated in one process. Series live in ordered maps and can be removed, one by one or by a condition.

mod copies;
mod process;
mod summary;
mod tallies;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spokeshave_ports::SharedClock;

pub use copies::Copies;
use summary::Window;
pub use tallies::Tallies;

/// Histogram buckets of P §16, in seconds.
pub const STANDARD_BUCKETS: [f64; 45] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];

/// Histogram buckets of Go's client when none are given, in seconds.
pub const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Quantiles of every summary (P §16).
const QUANTILES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];

/// How far back the quantiles of a summary look; Go's default.
const SUMMARY_WINDOW: Duration = Duration::from_secs(600);

/// `count` bucket bounds: `start`, then each `factor` times the one before.
#[must_use]
pub fn exponential_buckets(start: f64, factor: f64, count: usize) -> Vec<f64> {
    std::iter::successors(Some(start), |bound| Some(bound * factor))
        .take(count)
        .collect()
}

/// A registry of metrics, shared by clones.
#[derive(Clone)]
pub struct Metrics {
    clock: SharedClock,
    families: Families,
    hooks: Arc<Mutex<Vec<Hook>>>,
}

/// Families by name.
type Families = Arc<Mutex<BTreeMap<String, Arc<Family>>>>;

/// Brings values up to date right before they are shown.
type Hook = Box<dyn Fn() + Send + Sync>;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("families", &self.names())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Histogram(Vec<f64>),
    Summary,
}

#[derive(Debug)]
struct Family {
    name: String,
    help: String,
    labels: Vec<String>,
    kind: Kind,
    series: Mutex<BTreeMap<Vec<String>, Value>>,
}

/// The definition of a family: its name, type and help, and the names of its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyShape {
    /// The full name.
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `summary`, as after `# TYPE`.
    pub kind: &'static str,
    /// Its text after `# HELP`.
    pub help: String,
    /// Names of the labels, in alphabetical order.
    pub labels: Vec<String>,
    /// Inclusive upper bounds of a histogram's buckets, ascending and without the infinite one; empty for other types.
    pub buckets: Vec<f64>,
}

#[derive(Clone, Debug)]
enum Value {
    Number(f64),
    /// Count per bucket (not cumulative), the last one for what exceeds every bound; and the sum.
    Buckets(Vec<u64>, f64),
    Window(Box<Window>),
}

impl Metrics {
    /// An empty registry.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            families: Arc::default(),
            hooks: Arc::default(),
        }
    }

    /// A number that only grows. Its name ends in `_total`. Without labels it is shown from the start, as Go does: Prometheus sees no growth in a series
    /// that begins with its first increment.
    #[must_use]
    pub fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Counter {
        let family = self.family(name, help, labels, Kind::Counter);
        if labels.is_empty() {
            family.add(&[], 0.0);
        }
        Counter { family }
    }

    /// A number that goes up and down.
    #[must_use]
    pub fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Gauge {
        Gauge {
            family: self.family(name, help, labels, Kind::Gauge),
        }
    }

    /// Counts of observations by size; `buckets` are inclusive upper bounds in ascending order.
    #[must_use]
    pub fn histogram(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Histogram {
        Histogram {
            family: self.family(name, help, labels, Kind::Histogram(buckets.to_vec())),
        }
    }

    /// Quantiles 0, 0.5, 0.9, 0.99 and 1 of the observations of the last ten minutes, and the sum and count of all.
    #[must_use]
    pub fn summary(&self, name: &str, help: &str, labels: &[&str]) -> Summary {
        Summary {
            family: self.family(name, help, labels, Kind::Summary),
            clock: self.clock.clone(),
        }
    }

    /// Names of all families, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        lock(&self.families).keys().cloned().collect()
    }

    /// The definition of each family, with or without series, ordered by name.
    #[must_use]
    pub fn shapes(&self) -> Vec<FamilyShape> {
        let families = lock(&self.families);
        families.values().map(|family| family.shape()).collect()
    }

    /// Number of series of all families.
    #[must_use]
    pub fn series_count(&self) -> usize {
        lock(&self.families)
            .values()
            .map(|family| lock(&family.series).len())
            .sum()
    }

    /// The registry as text, in Prometheus' format 0.0.4; families without series are left out, as Go does.
    #[must_use]
    pub fn render(&self) -> String {
        for hook in lock(&self.hooks).iter() {
            hook();
        }
        let now = self.clock.now();
        let families: Vec<Arc<Family>> = lock(&self.families).values().cloned().collect();
        let mut out = String::new();
        for family in families {
            text::write_family(&mut out, &family, now);
        }
        out
    }

    /// Calls `hook` before every rendering, for values that change by themselves, such as ages. It must not render.
    pub fn before_render(&self, hook: impl Fn() + Send + Sync + 'static) {
        lock(&self.hooks).push(Box::new(hook));
    }

    /// Adds `process_*` (CPU, memory, file descriptors), as Go's client has them. They are read from `/proc`; elsewhere than on
    /// Linux there are none. For the binary only: they differ from run to run.
    pub fn register_process(&self) {
        process::register(self);
    }

    fn family(&self, name: &str, help: &str, labels: &[&str], kind: Kind) -> Arc<Family> {
        Family::of(&self.families, name, help, labels, kind)
    }
}

impl Kind {
    /// Its name after `# TYPE`.
    fn name(&self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
            Self::Summary => "summary",
        }
    }
}

impl Family {
    /// The family of this name; asking again gives the same one. One name with two shapes is a mistake in our code: it is
    /// logged, and the second one counts for itself without being shown.
    fn of(families: &Families, name: &str, help: &str, labels: &[&str], kind: Kind) -> Arc<Self> {
        debug_assert!(
            labels.iter().all(|label| text::is_label(label)),
            "no scrape with the labels {labels:?} of {name} can be read"
        );
        let labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        let mut families = lock(families);
        if let Some(family) = families.get(name) {
            if family.labels == labels && family.kind == kind {
                return family.clone();
            }
            debug_assert!(false, "metric {name} is registered with two shapes");
            tracing::error!(
                name,
                "metric is registered with two shapes, the second is not shown"
            );
        }
        let family = Arc::new(Family {
            name: name.to_owned(),
            help: help.to_owned(),
            labels,
            kind,
            series: Mutex::new(BTreeMap::new()),
        });
        families.entry(name.to_owned()).or_insert_with(|| family.clone());
        family
    }
    fn shape(&self) -> FamilyShape {
        let mut labels = self.labels.clone();
        labels.sort_unstable();
        FamilyShape {
            name: self.name.clone(),
            kind: self.kind.name(),
            help: self.help.clone(),
            labels,
            buckets: match &self.kind {
                Kind::Histogram(bounds) => bounds.clone(),
                _ => Vec::new(),
            },
        }
    }

    fn with<T>(
        &self,
        labels: &[&str],
        new: impl FnOnce() -> Value,
        change: impl FnOnce(&mut Value) -> T,
    ) -> T {
        debug_assert_eq!(
            labels.len(),
            self.labels.len(),
            "metric {} has labels {:?}",
            self.name,
            self.labels
        );
        let mut key: Vec<String> = labels.iter().map(|&value| value.to_owned()).collect();
        key.resize(self.labels.len(), String::new());
        change(lock(&self.series).entry(key).or_insert_with(new))
    }

    fn add(&self, labels: &[&str], amount: f64) {
        self.with(
            labels,
            || Value::Number(0.0),
            |value| {
                if let Value::Number(number) = value {
                    *number += amount;
                }
            },
        );
    }

    fn get(&self, labels: &[&str]) -> Option<Value> {
        let key: Vec<String> = labels.iter().map(|&value| value.to_owned()).collect();
        lock(&self.series).get(&key).cloned()
    }

    fn number(&self, labels: &[&str]) -> f64 {
        match self.get(labels) {
            Some(Value::Number(number)) => number,
            _ => 0.0,
        }
    }

    fn remove(&self, labels: &[&str]) {
        let key: Vec<String> = labels.iter().map(|&value| value.to_owned()).collect();
        lock(&self.series).remove(&key);
    }

    fn retain(&self, mut keep: impl FnMut(&[String]) -> bool) {
        lock(&self.series).retain(|key, _| keep(key));
    }
}

macro_rules! removal {
    ($name:ident) => {
        impl $name {
            /// Removes one series.
            pub fn remove(&self, labels: &[&str]) {
                self.family.remove(labels);
            }

            /// Keeps the series whose label values (in the order of registration) pass.
            pub fn retain(&self, keep: impl FnMut(&[String]) -> bool) {
                self.family.retain(keep);
            }
        }
    };
}

/// A number that only grows. Label values are given in the order of registration.
#[derive(Clone, Debug)]
pub struct Counter {
    family: Arc<Family>,
}
removal!(Counter);

impl Counter {
    /// Adds one.
    pub fn inc(&self, labels: &[&str]) {
        self.family.add(labels, 1.0);
    }

    /// Adds an amount, which must not be negative; 0 makes the series appear.
    pub fn add(&self, labels: &[&str], amount: f64) {
        debug_assert!(amount >= 0.0, "a counter only grows");
        self.family.add(labels, amount.max(0.0));
    }

    /// The present value; 0 for a series that does not exist.
    #[must_use]
    pub fn get(&self, labels: &[&str]) -> f64 {
        self.family.number(labels)
    }
}

/// A number that goes up and down. Label values are given in the order of registration.
#[derive(Clone, Debug)]
pub struct Gauge {
    family: Arc<Family>,
}
removal!(Gauge);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, labels: &[&str], value: f64) {
        self.family.with(
            labels,
            || Value::Number(value),
            |slot| *slot = Value::Number(value),
        );
    }

    /// Adds an amount, also a negative one.
    pub fn add(&self, labels: &[&str], amount: f64) {
        self.family.add(labels, amount);
    }

    /// The present value; 0 for a series that does not exist.
    #[must_use]
    pub fn get(&self, labels: &[&str]) -> f64 {
        self.family.number(labels)
    }

    /// Replaces all series atomically, so that no scrape sees only half of them.
    pub fn replace_all(&self, series: impl IntoIterator<Item = (Vec<String>, f64)>) {
        let width = self.family.labels.len();
        let fresh: BTreeMap<Vec<String>, Value> = series
            .into_iter()
            .map(|(mut key, value)| {
                debug_assert_eq!(key.len(), width, "metric {}", self.family.name);
                key.resize(width, String::new());
                (key, Value::Number(value))
            })
            .collect();
        *lock(&self.family.series) = fresh;
    }
}

/// Counts of observations by size. Label values are given in the order of registration.
#[derive(Clone, Debug)]
pub struct Histogram {
    family: Arc<Family>,
}
removal!(Histogram);

impl Histogram {
    /// Counts one observation.
    pub fn observe(&self, labels: &[&str], observation: f64) {
        let Kind::Histogram(bounds) = &self.family.kind else {
            return;
        };
        let bucket = bounds.partition_point(|bound| *bound < observation);
        let empty = || Value::Buckets(vec![0; bounds.len() + 1], 0.0);
        self.family.with(labels, empty, |value| {
            if let Value::Buckets(counts, sum) = value {
                counts[bucket] += 1;
                *sum += observation;
            }
        });
    }

    /// Number and sum of all observations.
    #[must_use]
    pub fn get(&self, labels: &[&str]) -> (u64, f64) {
        match self.family.get(labels) {
            Some(Value::Buckets(counts, sum)) => (counts.iter().sum(), sum),
            _ => (0, 0.0),
        }
    }
}

/// Quantiles of recent observations. Label values are given in the order of registration.
#[derive(Clone, Debug)]
pub struct Summary {
    family: Arc<Family>,
    clock: SharedClock,
}
removal!(Summary);

impl Summary {
    /// Takes one observation in.
    pub fn observe(&self, labels: &[&str], observation: f64) {
        let now = self.clock.now();
        self.family.with(
            labels,
            || Value::Window(Box::new(Window::new(SUMMARY_WINDOW))),
            |value| {
                if let Value::Window(window) = value {
                    window.observe(now, observation);
                }
            },
        );
    }

    /// Number and sum of all observations.
    #[must_use]
    pub fn get(&self, labels: &[&str]) -> (u64, f64) {
        match self.family.get(labels) {
            Some(Value::Window(window)) => (window.count(), window.sum()),
            _ => (0, 0.0),
        }
    }
}

/// A panic while a number was being changed leaves a number; the lock is as good as before.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::TokioClock;

    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared())
    }

    /// P §16: the text is what Go's client writes.
    #[test]
    fn the_text_is_that_of_gos_client() {
        let metrics = metrics();
        let counter = metrics.counter(
            "karpenter_nodeclaims_created_total",
            "Number of \\ nodeclaims\ncreated.",
            &["reason", "nodepool"],
        );
        counter.inc(&["provisioned", "default"]);
        counter.add(&["static", "a\"b\\c\nd"], 1_000_000.0);
        let _ = metrics.gauge("empty", "never shown", &[]);
        metrics
            .gauge("karpenter_build_info", "A constant 1.", &[])
            .set(&[], 1.0);
        let histogram = metrics.histogram("duration_seconds", "How long.", &["m"], &[0.5, 1.0]);
        for seconds in [0.5, 0.75, 3.0] {
            histogram.observe(&["x"], seconds);
        }
        let expected = r#"# HELP duration_seconds How long.
# TYPE duration_seconds histogram
duration_seconds_bucket{m="x",le="0.5"} 1
duration_seconds_bucket{m="x",le="1"} 2
duration_seconds_bucket{m="x",le="+Inf"} 3
duration_seconds_sum{m="x"} 4.25
duration_seconds_count{m="x"} 3
# HELP karpenter_build_info A constant 1.
# TYPE karpenter_build_info gauge
karpenter_build_info 1
# HELP karpenter_nodeclaims_created_total Number of \\ nodeclaims\ncreated.
# TYPE karpenter_nodeclaims_created_total counter
karpenter_nodeclaims_created_total{nodepool="default",reason="provisioned"} 1
karpenter_nodeclaims_created_total{nodepool="a\"b\\c\nd",reason="static"} 1e+06
"#;
        assert_eq!(metrics.render(), expected);
    }

    #[test]
    fn series_can_be_removed_one_by_one_and_by_a_condition() {
        let metrics = metrics();
        let gauge = metrics.gauge("pods_state", "", &["name", "namespace"]);
        for (name, namespace) in [("a", "x"), ("b", "x"), ("a", "y")] {
            gauge.set(&[name, namespace], 1.0);
        }
        gauge.remove(&["a", "x"]);
        assert_eq!(metrics.series_count(), 2);
        gauge.retain(|values| values[1] != "y");
        assert_eq!(metrics.series_count(), 1);
        gauge.retain(|values| values[0] != "b");
        assert_eq!(metrics.render(), "");
        gauge.replace_all([(vec!["c".to_owned(), "z".to_owned()], 2.0)]);
        assert!((gauge.get(&["c", "z"]) - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn asking_twice_gives_the_same_family() {
        let metrics = metrics();
        metrics.counter("x_total", "", &[]).inc(&[]);
        metrics.counter("x_total", "", &[]).inc(&[]);
        assert!((metrics.counter("x_total", "", &[]).get(&[]) - 2.0).abs() < f64::EPSILON);
    }

    /// P §16: the bucket sets.
    #[test]
    fn the_bucket_sets() {
        assert!(STANDARD_BUCKETS.is_sorted_by(|a, b| a < b));
        assert_eq!(exponential_buckets(0.5, 2.0, 3), [0.5, 1.0, 2.0]);
        assert_eq!(exponential_buckets(1.0, 2.0, 12).last(), Some(&2048.0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_summary_forgets_after_its_window_but_counts_for_ever() {
        let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
        let metrics = Metrics::new(clock.clone());
        let summary = metrics.summary("karpenter_pods_startup_duration_seconds", "Startup.", &[]);
        for second in 1..=100 {
            summary.observe(&[], f64::from(second));
        }
        let text = metrics.render();
        let value = |quantile: &str| -> f64 {
            let start = format!("karpenter_pods_startup_duration_seconds{{quantile=\"{quantile}\"}} ");
            text.lines()
                .find_map(|line| line.strip_prefix(&start))
                .unwrap()
                .parse()
                .unwrap()
        };
        assert!((value("0") - 1.0).abs() < f64::EPSILON);
        assert!((value("0.5") - 50.0).abs() <= 1.0);
        assert!((value("0.9") - 90.0).abs() <= 1.5);
        assert!((value("0.99") - 99.0).abs() <= 1.5);
        assert!((value("1") - 100.0).abs() < f64::EPSILON);
        clock.sleep(Duration::from_secs(601)).await;
        let text = metrics.render();
        assert!(
            text.contains("karpenter_pods_startup_duration_seconds{quantile=\"0.5\"} NaN\n"),
            "{text}"
        );
        assert!(
            text.contains("karpenter_pods_startup_duration_seconds_sum 5050\n"),
            "{text}"
        );
        assert!(
            text.contains("karpenter_pods_startup_duration_seconds_count 100\n"),
            "{text}"
        );
    }
}
