//! The comparison as one HTML file: whole without scripts, nothing loaded from anywhere, light and dark.
//!
//! Owns the document and its sections. Every number that the JSON has too carries its exact value and name (`data-of`), so that both can be checked against
//! each other. It computes nothing that the comparison does not hold.

mod charts;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::compare::{Comparison, Difference, PolicyResult, Summary, Verdict};
use crate::expect::Answer;
use crate::metric::Metric;
use crate::numbers;
use crate::setting::Input;
use crate::table::{About, change, described, relative, shown, shown_name};
use crate::unit::Unit;

const STYLE: &str = include_str!("../assets/report.css");

/// Styles of lines and markers; more policies than these begin again from the first.
const STYLES: usize = 8;

/// The class that gives a policy its colour, dash and marker.
fn style_of(place: usize) -> String {
    format!("p{}", place % STYLES)
}

impl Comparison {
    /// The report as one HTML document.
    pub fn to_html(&self) -> String {
        let setting = &self.setting;
        let mut heading = self.heading();
        if let Some(first) = heading.first_mut() {
            // The title has said the name.
            *first = first
                .trim_start_matches(setting.scenario.as_str())
                .trim_start_matches(" · ")
                .to_owned();
        }
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    // The browser is forbidden to load anything: the file is all there is.
                    meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                    title { (setting.scenario) " · simulation" }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        p .kind { "spokeshave simulate" }
                        h1 { (setting.scenario) }
                        @for line in &heading { p .facts { (line) } }
                    }
                    main {
                        (self.result())
                        (tables::main_table(self))
                        (charts::cost(self))
                        (charts::difference(self))
                        div .halves {
                            (charts::pareto(self))
                            (charts::waiting(self))
                        }
                        (tables::all_metrics(self))
                        (tables::runs(self))
                        (self.method_section())
                        (self.not_modelled_section())
                        (self.inputs_section())
                    }
                }
            }
        }
        .into_string()
    }

    fn result(&self) -> Markup {
        let others = self
            .policies
            .iter()
            .enumerate()
            .filter(|(_, policy)| !policy.baseline);
        html! {
            section aria-labelledby="result" {
                h2 #result { "Result" }
                ul .result {
                    @for (place, policy) in others {
                        li { (key(place, policy)) " " (self.sentence(policy)) }
                    }
                    @if self.policies.len() < 2 { li { "One policy only: nothing to compare it with." } }
                }
                @if !self.expectations.is_empty() {
                    h3 { "Expected by the scenario" }
                    ul .expected {
                        @for expected in &self.expectations {
                            li .(badge(expected.answer)) {
                                span .badge { (expected.answer.words()) } " " code { (described(expected)) }
                            }
                        }
                    }
                }
                @for note in self.notes().iter().filter(|note| matches!(note.about, About::LeftOut | About::Cluster | About::NotSettled)) {
                    p .warning { (note.text) }
                }
            }
        }
    }

    /// `is dearer than now: +1.5 % [+0.9, +2.1]; evictions −57 %; no difference shown in pending p99.`
    fn sentence(&self, policy: &PolicyResult) -> Markup {
        let Some(cost) = against(policy, "cost") else {
            return html! { "has no completed run to compare." };
        };
        let baseline = &self.setting.baseline;
        let change = change(cost);
        let others = [
            ("evictionsPerPodDay", "evictions"),
            ("pendingP99", "pending p99"),
            ("wastedNodeHours", "wasted node-hours"),
        ];
        let judged = others
            .iter()
            .filter_map(|(name, words)| Some((against(policy, name)?, *words)));
        let (open, shown): (Vec<_>, Vec<_>) =
            judged.partition(|(difference, _)| difference.verdict == Verdict::NoDifferenceShown);
        let open: Vec<&str> = open.into_iter().map(|(_, words)| words).collect();
        html! {
            @match cost.verdict {
                Verdict::Lower | Verdict::Higher => { "is " strong { (cost.words) } " than " (baseline) ": " (change) }
                Verdict::NoDifferenceShown => { strong { "no difference" } " of cost from " (baseline) " shown: " (change) }
                Verdict::TooFewSeeds => { "costs " (change) " against " (baseline) " in " (numbers::count(cost.pairs, "seed")) ", too few to tell it from chance" }
                Verdict::PodsLeftOut => { strong { "leaves pods without a node" } " that had one under " (baseline) ", so that its cost is that of less work: " (change) }
                Verdict::MorePodsPlaced => { "has nodes for " strong { "more pods" } " than " (baseline) ", so that its cost is that of more work: " (change) }
            }
            @for (difference, words) in &shown { "; " (words) " " (changed(difference, Unit::Count)) }
            @if !open.is_empty() { "; no difference shown in " (open.join(" and ")) }
            "."
        }
    }

    fn method_section(&self) -> Markup {
        let method = &self.method;
        html! {
            section aria-labelledby="method" {
                h2 #method { "How differences are judged" }
                p {
                    "All policies meet the same workload, boot times and interruptions, which are drawn by seed and never by policy. So each difference is taken within a seed, and judged by a "
                    (method.test) ". With " (numbers::count(method.comparisons, "comparison")) ", one interval misses with probability "
                    (format!("{:.4}", method.misses_of_each)) " and all of a metric together with at most " (method.misses)
                    ". Below " (method.fewest_seeds) " seeds there is no interval. Words follow the interval: where it contains zero, no difference is shown, whatever the means are."
                }
                @for note in self.notes().iter().filter(|note| matches!(note.about, About::Figures | About::LowerBounds)) {
                    p .note { (note.text) }
                }
            }
        }
    }

    fn not_modelled_section(&self) -> Markup {
        html! {
            section aria-labelledby="limits" {
                h2 #limits { "What is not modelled" }
                ul { @for limit in &self.not_modelled { li { (limit) } } }
            }
        }
    }

    fn inputs_section(&self) -> Markup {
        let setting = &self.setting;
        let scenario = Input {
            file: setting.scenario.clone(),
            format: "scenario".into(),
            sha256: setting.scenario_sha256.clone(),
            licence: None,
        };
        html! {
            section aria-labelledby="inputs" {
                h2 #inputs { "Inputs" }
                div .scroll tabindex="0" role="region" aria-label="Inputs" {
                    table {
                        caption { "What went in. Licences are as the scenario states them." }
                        thead { tr { th scope="col" { "File" } th scope="col" { "Read as" } th scope="col" { "SHA-256" } th scope="col" { "Licence" } } }
                        tbody {
                            @for input in [&scenario].into_iter().chain(&setting.inputs) {
                                tr {
                                    th scope="row" { (input.file) } td { (input.format) } td { code { (input.sha256) } }
                                    td { (input.licence.as_deref().unwrap_or("not stated")) }
                                }
                            }
                        }
                    }
                }
                p .note { "Spokeshave " (setting.version) ". Digest of all decisions and figures: " code { "sha256:" (self.digest) } ". The JSON form of this report (" code { "-o json" } ") has every value of every run." }
            }
        }
    }
}

fn badge(answer: Answer) -> &'static str {
    match answer {
        Answer::Holds => "holds",
        Answer::Contradicted => "contradicted",
        Answer::NotShown => "open",
    }
}

/// The difference from the baseline in a metric.
fn against<'a>(policy: &'a PolicyResult, name: &str) -> Option<&'a Difference> {
    policy.values.get(name)?.against.as_ref()
}

/// `−57 %`, of a share `+0.9 points`, `−57 % (pods left out)`, or `≈` where no difference is shown.
fn changed(difference: &Difference, unit: Unit) -> String {
    let changed = match (difference.verdict, relative(difference)) {
        (Verdict::NoDifferenceShown, _) => return "≈".into(),
        // The share of a share misleads.
        _ if unit == Unit::Share => numbers::points(difference.mean),
        (_, Some(relative)) => relative,
        (_, None) => return difference.words.into(),
    };
    match difference.verdict {
        Verdict::PodsLeftOut | Verdict::MorePodsPlaced => format!("{changed} ({})", difference.words),
        _ => changed,
    }
}

/// The sign of a policy's line and marker with its name, as in every legend and table.
fn key(place: usize, policy: &PolicyResult) -> Markup {
    html! {
        span .key {
            svg .swatch .(style_of(place)) viewBox="0 0 26 12" aria-hidden="true" {
                path .line d="M0 6H26" {}
                (charts::marker(place, 13.0, 6.0))
            }
            (shown_name(policy))
        }
    }
}

/// A number with its exact value and name.
fn datum(policy: &str, metric: &str, field: &str, exact: f64, shown: &str) -> Markup {
    html! { data data-of=(format!("{policy} {metric} {field}")) value=(exact) { (shown) } }
}

/// The mean of a metric, as a datum.
fn mean_of(policy: &PolicyResult, metric: &Metric, summary: &Summary) -> Markup {
    let text = shown(summary, metric.unit);
    datum(&policy.name, metric.name, "mean", summary.mean, &text)
}

/// The unit as a heading says it.
fn unit_words(unit: Unit) -> &'static str {
    match unit {
        Unit::Dollars => "US dollars",
        Unit::Share => "share",
        Unit::Seconds => "seconds",
        Unit::NodeHours => "node-hours",
        Unit::PerPodDay => "per pod and day",
        Unit::Count => "count",
    }
}
