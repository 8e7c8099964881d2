//! Series of metrics, read as a scrape shows them.

use spokeshave_runtime::Metrics;

/// The values of those series of a family whose labels contain a text.
fn values(metrics: &Metrics, family: &str, labels: &str) -> Vec<f64> {
    let text = metrics.render();
    let of_family = |line: &&str| {
        let rest = line.strip_prefix(family);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(labels))
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse().ok();
    text.lines().filter(of_family).filter_map(value).collect()
}

/// The value of the first series of a family whose labels contain a text, if there is one.
pub fn reading(metrics: &Metrics, family: &str, labels: &str) -> Option<f64> {
    values(metrics, family, labels).first().copied()
}

/// The same, where no series means that nothing was counted.
pub fn value(metrics: &Metrics, family: &str, labels: &str) -> f64 {
    reading(metrics, family, labels).unwrap_or(0.0)
}

/// The sum of all series of a family.
pub fn sum(metrics: &Metrics, family: &str) -> f64 {
    sum_of(metrics, family, "")
}

/// The sum of those series of a family whose labels contain a text.
pub fn sum_of(metrics: &Metrics, family: &str, labels: &str) -> f64 {
    values(metrics, family, labels).iter().sum()
}

/// The first series of a family whose labels contain a text counts one.
pub fn assert_counted_once(metrics: &Metrics, family: &str, labels: &str) {
    let found = reading(metrics, family, labels);
    assert_eq!(found, Some(1.0), "{family} with {labels}");
}
