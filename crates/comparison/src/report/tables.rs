//! The tables of the report.
//!
//! Owns which figures are in which table; numbers are formatted by [`numbers`].

use maud::{Markup, html};

use super::{changed, datum, key, mean_of, unit_words};
use crate::compare::{Comparison, PolicyResult};
use crate::metric::{METRICS, Metric};
use crate::numbers;
use crate::recorded::AsRecorded;
use crate::unit::Unit;

/// Metrics of the table at the top, with the heading that fits above it.
const MAIN: [(&str, &str); 6] = [
    ("evictionsPerPodDay", "Evictions per pod and day"),
    ("pendingP50", "Pending p50"),
    ("pendingP99", "Pending p99"),
    ("wastedNodeHours", "Wasted node-hours"),
    ("regret", "Regret"),
    ("gap", "Gap"),
];

/// Metrics of the table of runs.
const OF_RUNS: [&str; 6] = [
    "cost",
    "bound",
    "evictionsPerPodDay",
    "pendingP99",
    "wastedNodeHours",
    "launches",
];

fn scroll(label: &str, table: Markup) -> Markup {
    html! { div .scroll tabindex="0" role="region" aria-label=(label) { (table) } }
}

/// The figures that one looks at first.
pub(super) fn main_table(comparison: &Comparison) -> Markup {
    let baseline = &comparison.setting.baseline;
    let head = html! {
        thead { tr {
            th scope="col" { "Policy" } th scope="col" .number { "Cost" } th scope="col" { "Cost against " (baseline) }
            @for (_, heading) in MAIN { th scope="col" .number { (heading) } }
        } }
    };
    let table = html! {
        table .main {
            caption { "Means over seeds; ± is the 95 % interval of a mean, [ ] the interval of the paired difference, ≈ no difference shown. Gap: at most so much more could be saved." }
            (head)
            tbody {
                @for (place, policy) in comparison.policies.iter().enumerate() {
                    tr .baseline[policy.baseline] {
                        th scope="row" { (key(place, policy)) @if let Some(summary) = &policy.summary { div .note { (summary) } } }
                        td .number { (cost(policy)) }
                        td { (against(policy)) }
                        @for (name, _) in MAIN { td .number { (with_change(policy, name)) } }
                    }
                }
                @if let Some(recorded) = &comparison.setting.as_recorded { (as_recorded(recorded)) }
            }
        }
    };
    html! { section aria-label="The policies side by side" { (scroll("The policies side by side", table)) } }
}

/// What really was, as a row below the policies.
fn as_recorded(recorded: &AsRecorded) -> Markup {
    html! {
        tr {
            th scope="row" { "as recorded" div .note { (recorded.basis) ": " (recorded.file) } }
            td .number {
                @if let Some(cost) = recorded.cost { data data-of="asRecorded cost" value=(cost) { (numbers::value(cost, Unit::Dollars)) } }
                @else { "–" }
            }
            td colspan=(MAIN.len() + 1) { (recorded.nodes()) div .note { (recorded.cost()) } }
        }
    }
}

fn cost(policy: &PolicyResult) -> Markup {
    let Some((metric, summary)) = Metric::find("cost").zip(policy.values.get("cost")) else {
        return html! { "no completed run" };
    };
    html! {
        (mean_of(policy, metric, summary))
        @if let Some(interval) = summary.interval {
            span .note { " ± " (numbers::half_width(interval, summary.mean, metric.unit)) }
        }
    }
}

/// Of the cost: `dearer +1.5 % [+0.9, +2.1]`.
fn against(policy: &PolicyResult) -> Markup {
    let name = "cost";
    let Some(against) = super::against(policy, name) else {
        return html! { @if policy.baseline { span .note { "the baseline" } } };
    };
    html! {
        span .words { (against.words) } " "
        @if let Some(relative) = against.relative {
            (datum(&policy.name, name, "relative", relative, &numbers::relative(relative, against.relative_interval)))
        }
        @else { (super::change(against)) }
        @if let Some(interval) = against.relative_interval {
            " " span .interval {
                (datum(&policy.name, name, "low", interval.low, ""))
                (datum(&policy.name, name, "high", interval.high, ""))
                (numbers::relative_interval(interval))
            }
        }
    }
}

fn with_change(policy: &PolicyResult, name: &str) -> Markup {
    let Some((metric, summary)) = Metric::find(name).zip(policy.values.get(name)) else {
        return html! { "–" };
    };
    html! {
        (mean_of(policy, metric, summary))
        @if let Some(against) = &summary.against {
            div .note { (changed(against, metric.unit)) }
        }
    }
}

/// Every metric of every policy, with its definition.
pub(super) fn all_metrics(comparison: &Comparison) -> Markup {
    let used = METRICS.iter().filter(|metric| {
        let mut policies = comparison.policies.iter();
        policies.any(|policy| {
            policy
                .values
                .get(metric.name)
                .is_some_and(|summary| summary.maximum != 0.0)
        })
    });
    let table = html! {
        table .all {
            caption { "Means over seeds, the range over seeds, and what the paired difference from " (comparison.setting.baseline) " shows (≈: nothing). Metrics that are 0 everywhere are left out." }
            thead { tr {
                th scope="col" { "Metric" }
                @for (place, policy) in comparison.policies.iter().enumerate() { th scope="col" .number { (key(place, policy)) } }
            } }
            tbody {
                @for metric in used {
                    tr {
                        th scope="row" { (metric.title) div .note { code { (metric.name) } ", " (unit_words(metric.unit)) ": " (metric.meaning) } }
                        @for policy in &comparison.policies { td .number { (full(policy, metric)) } }
                    }
                }
            }
        }
    };
    html! {
        section aria-labelledby="metrics" {
            h2 #metrics { "All metrics" }
            details { summary { "Every metric with its definition and range" } (scroll("All metrics", table)) }
        }
    }
}

fn full(policy: &PolicyResult, metric: &Metric) -> Markup {
    let Some(summary) = policy.values.get(metric.name) else {
        return html! { "–" };
    };
    html! {
        (mean_of(policy, metric, summary))
        @if summary.minimum != summary.maximum {
            div .note { (numbers::value(summary.minimum, metric.unit)) " to " (numbers::value(summary.maximum, metric.unit)) }
        }
        @if let Some(against) = &summary.against { div .note { (changed(against, metric.unit)) } }
    }
}

/// The raw figures of each run.
pub(super) fn runs(comparison: &Comparison) -> Markup {
    let metrics: Vec<&Metric> = OF_RUNS.iter().filter_map(|name| Metric::find(name)).collect();
    let table = html! {
        table .runs {
            caption { "Each run. The JSON form has all metrics of each." }
            thead { tr {
                th scope="col" { "Policy" } th scope="col" .number { "Seed" }
                @for metric in &metrics { th scope="col" .number { (metric.title) } }
                th scope="col" { "Digest" }
            } }
            tbody {
                @for run in &comparison.runs {
                    tr {
                        th scope="row" { (run.policy) @if run.partial { " (partial: in no mean)" } }
                        td .number { (run.seed) }
                        @for metric in &metrics {
                            td .number { (raw(run.values.get(metric.name), metric.unit)) }
                        }
                        td { code { (run.digest.get(..12).unwrap_or(&run.digest)) } }
                    }
                }
            }
        }
    };
    html! {
        section aria-labelledby="runs" {
            h2 #runs { "Runs" }
            details { summary { (numbers::count(comparison.runs.len(), "run")) ", one for each policy and seed" } (scroll("Runs", table)) }
        }
    }
}

fn raw(value: Option<&f64>, unit: Unit) -> String {
    value.map_or_else(|| "–".into(), |value| numbers::value(*value, unit))
}
