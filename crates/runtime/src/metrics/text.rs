//! Prometheus' text format 0.0.4, written as Go's client writes it.
//!
//! Owns the spelling only: order of labels, numbers, escapes.

use std::fmt::Write;

use jiff::Timestamp;

use super::{Family, Kind, QUANTILES, Value, lock};

pub(super) fn write_family(out: &mut String, family: &Family, now: Timestamp) {
    let series = lock(&family.series);
    if series.is_empty() {
        return;
    }
    let kind = family.kind.name();
    let name = &family.name;
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {name} {}", escape(&family.help, false));
    let _ = writeln!(out, "# TYPE {name} {kind}");
    for (values, value) in series.iter() {
        let labels = label_text(&family.labels, values);
        match value {
            Value::Number(number) => line(out, name, "", &labels, None, *number),
            Value::Buckets(counts, sum) => write_buckets(out, family, &labels, counts, *sum),
            Value::Window(window) => {
                for (quantile, value) in QUANTILES.iter().zip(window.quantiles(now, &QUANTILES)) {
                    line(
                        out,
                        name,
                        "",
                        &labels,
                        Some(("quantile", &go_float(*quantile))),
                        value,
                    );
                }
                line(out, name, "_sum", &labels, None, window.sum());
                line(out, name, "_count", &labels, None, as_float(window.count()));
            }
        }
    }
}

fn write_buckets(out: &mut String, family: &Family, labels: &str, counts: &[u64], sum: f64) {
    let Kind::Histogram(bounds) = &family.kind else {
        return;
    };
    let bounds = bounds
        .iter()
        .map(|bound| go_float(*bound))
        .chain(["+Inf".to_owned()]);
    let mut cumulative = 0;
    for (bound, count) in bounds.zip(counts) {
        cumulative += count;
        line(
            out,
            &family.name,
            "_bucket",
            labels,
            Some(("le", &bound)),
            as_float(cumulative),
        );
    }
    line(out, &family.name, "_sum", labels, None, sum);
    line(out, &family.name, "_count", labels, None, as_float(cumulative));
}

fn line(out: &mut String, name: &str, suffix: &str, labels: &str, extra: Option<(&str, &str)>, value: f64) {
    let _ = write!(out, "{name}{suffix}");
    match (labels.is_empty(), extra) {
        (true, None) => {}
        (false, None) => drop(write!(out, "{{{labels}}}")),
        (true, Some((key, text))) => drop(write!(out, "{{{key}=\"{text}\"}}")),
        (false, Some((key, text))) => drop(write!(out, "{{{labels},{key}=\"{text}\"}}")),
    }
    let _ = writeln!(out, " {}", go_float(value));
}

/// Whether the format has room for a label of this name.
pub(super) fn is_label(name: &str) -> bool {
    let is_legal = |letter: char| letter == '_' || letter.is_ascii_alphanumeric();
    name.chars().all(is_legal) && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// `a="x",b="y"`, ordered by name as Go's client does.
fn label_text(names: &[String], values: &[String]) -> String {
    let mut pairs: Vec<(&String, &String)> = names.iter().zip(values).collect();
    pairs.sort();
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escape(value, true)))
        .collect();
    pairs.join(",")
}

fn escape(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus' numbers are floats; beyond 2^52 they round in Go as well"
)]
fn as_float(count: u64) -> f64 {
    count as f64
}

/// A number as Go's `strconv.FormatFloat(x, 'g', -1, 64)` writes it.
fn go_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    // Rust's shortest form with an exponent has the same digits; Go leaves the exponent out from -4 to 5.
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::TokioClock;

    use super::*;
    use crate::Metrics;

    /// P §16: a counter without labels is there from the start, and whoever asks for it a second time does not set it back.
    #[test]
    fn p_207_a_counter_without_labels_is_shown_before_its_first_increment() {
        let metrics = Metrics::new(TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared());
        let counter = metrics.counter("messages_total", "Dealt with.", &[]);
        let _ = metrics.counter("nodeclaims_total", "By NodePool.", &["nodepool"]);
        let head = "# HELP messages_total Dealt with.\n# TYPE messages_total counter\n";
        assert_eq!(metrics.render(), format!("{head}messages_total 0\n"));
        counter.inc(&[]);
        let _ = metrics.counter("messages_total", "Dealt with.", &[]);
        assert_eq!(metrics.render(), format!("{head}messages_total 1\n"));
    }

    #[test]
    fn names_of_labels_are_words() {
        assert!(["a", "_", "_4k", "cpu_model2"].iter().all(|name| is_label(name)));
        assert!(
            !["", "4k", "cpu.model", "a-b", "größe"]
                .iter()
                .any(|name| is_label(name))
        );
    }

    /// Go's output for the same numbers.
    #[test]
    fn numbers_are_spelled_as_in_go() {
        let numbers = [
            (0.0, "0"),
            (-1.0, "-1"),
            (4.25, "4.25"),
            (100_000.0, "100000"),
            (123_456.5, "123456.5"),
            (1_000_000.0, "1e+06"),
            (123_456_789.5, "1.234567895e+08"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e21, "1e+21"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (number, expected) in numbers {
            assert_eq!(go_float(number), expected);
        }
    }
}
