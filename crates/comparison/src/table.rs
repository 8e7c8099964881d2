//! The comparison as text, as wide as the reader's terminal.
//!
//! Owns columns, which of them give way where the line is short, and the notes below. The words of a difference follow its interval; it never ranks.

use std::fmt::Write as _;

use crate::compare::{Comparison, Difference, PolicyResult, Summary, Verdict};
use crate::expect::{Answer, Expected};
use crate::metric::Metric;
use crate::numbers;
use crate::recorded::BASIS;
use crate::statistics::FEWEST_SEEDS;
use crate::unit::Unit;
use crate::work::Work;

/// Columns by the order in which they are kept: the last gives way first.
const KEPT: [Column; 8] = [
    Column::Cost,
    Column::Against,
    Column::Evictions,
    Column::PendingP99,
    Column::Gap,
    Column::Regret,
    Column::Wasted,
    Column::PendingP50,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Column {
    Cost,
    Against,
    Evictions,
    PendingP50,
    PendingP99,
    Wasted,
    Regret,
    Gap,
}

impl Column {
    fn heading(self, baseline: &str) -> String {
        match self {
            Column::Cost => "COST".into(),
            Column::Against => format!("against {baseline}"),
            Column::Evictions => "EVICTIONS/POD-DAY".into(),
            Column::PendingP50 => "PENDING p50".into(),
            Column::PendingP99 => "PENDING p99".into(),
            Column::Wasted => "WASTED NODE-H".into(),
            Column::Regret => "REGRET".into(),
            Column::Gap => "GAP".into(),
        }
    }

    fn cell(self, policy: &PolicyResult) -> String {
        match self {
            Column::Cost => cost(policy),
            Column::Against => against(policy),
            Column::Evictions => with_change(policy, "evictionsPerPodDay"),
            Column::PendingP50 => plain(policy, "pendingP50"),
            Column::PendingP99 => plain(policy, "pendingP99"),
            Column::Wasted => plain(policy, "wastedNodeHours"),
            Column::Regret => plain(policy, "regret"),
            Column::Gap => plain(policy, "gap"),
        }
    }
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// How to read the figures.
    Figures,
    /// What `≥` says.
    LowerBounds,
    /// A policy under which more or fewer pods got a node than under the baseline.
    LeftOut,
    /// What the figures leave out of this cluster.
    Cluster,
    /// A policy whose cost still drifted.
    NotSettled,
    /// What the scenario expects.
    Expectations,
    /// What the engine leaves out.
    NotModelled,
}

/// A sentence below the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) about: About,
    pub(crate) text: String,
}

impl Comparison {
    /// The text table, at most `width` columns wide where words allow it; ends with a newline.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = String::new();
        for line in self.heading() {
            let _ = writeln!(out, "{}", wrapped(&line, width, 0));
        }
        let rows = self.rows(width);
        out.push_str(&rows);
        if let Some(recorded) = self.as_recorded() {
            let _ = writeln!(out, "{}", wrapped(&recorded, width, 2));
        }
        // The metric that has the sign may be in no column that is printed.
        let is_needed = |note: &Note| note.about != About::LowerBounds || rows.contains('≥');
        for note in self.notes().into_iter().filter(is_needed) {
            let _ = writeln!(out, "{}", wrapped(&note.text, width, 2));
        }
        out
    }

    /// What was simulated, and first of all what was done to the workload.
    pub(crate) fn heading(&self) -> Vec<String> {
        let setting = &self.setting;
        let seeds = self
            .policies
            .iter()
            .map(|policy| policy.seeds.len())
            .max()
            .unwrap_or_default();
        let day = setting.start.split('T').next().unwrap_or_default();
        let engine = match self.engine {
            spokeshave_simulate::Engine::Fast => "fast",
            spokeshave_simulate::Engine::Full => "full",
        };
        let mut first = vec![
            setting.scenario.clone(),
            format!("{} from {day}", numbers::span(setting.duration_ms)),
            numbers::count(seeds, "seed"),
            format!("engine {engine}"),
        ];
        first.extend(setting.alterations.iter().cloned());
        first.push(format!(
            "digest sha256:{}…",
            self.digest.get(..12).unwrap_or(&self.digest)
        ));
        let mut lines = vec![first.join(" · ")];
        if self.partial {
            lines.push(
                "PARTIAL: some runs were interrupted or are missing; figures are of completed runs only."
                    .into(),
            );
        }
        lines
    }

    fn rows(&self, width: usize) -> String {
        let names: Vec<String> = self.policies.iter().map(shown_name).collect();
        for kept in (2..=KEPT.len()).rev() {
            let mut columns = KEPT[..kept].to_vec();
            columns.sort_unstable();
            let mut lines = self.lines(&names, &columns);
            if lines.iter().all(|line| line.chars().count() <= width) {
                if kept < KEPT.len() {
                    let left_out: Vec<String> =
                        KEPT[kept..].iter().map(|column| column.heading("")).collect();
                    lines.push(wrapped(
                        &format!(
                            "(no room for {}: a wider terminal or -o json has them)",
                            left_out.join(", ")
                        ),
                        width,
                        2,
                    ));
                }
                return lines.join("\n") + "\n";
            }
        }
        self.stacked(&names, width)
    }

    fn lines(&self, names: &[String], columns: &[Column]) -> Vec<String> {
        let mut rows = vec![vec!["POLICY".to_owned()]];
        rows[0].extend(
            columns
                .iter()
                .map(|column| column.heading(&self.setting.baseline)),
        );
        for (name, policy) in names.iter().zip(&self.policies) {
            let mut row = vec![name.clone()];
            row.extend(columns.iter().map(|column| column.cell(policy)));
            rows.push(row);
        }
        let widths: Vec<usize> = (0..=columns.len())
            .map(|index| {
                rows.iter()
                    .map(|row| row[index].chars().count())
                    .max()
                    .unwrap_or_default()
            })
            .collect();
        rows.iter()
            .map(|row| {
                let cells: Vec<String> = row
                    .iter()
                    .zip(&widths)
                    .map(|(cell, width)| format!("{cell:width$}"))
                    .collect();
                cells.join("  ").trim_end().to_owned()
            })
            .collect()
    }

    /// One paragraph for each policy, for lines too short for any table.
    fn stacked(&self, names: &[String], width: usize) -> String {
        let mut out = String::new();
        for (name, policy) in names.iter().zip(&self.policies) {
            let _ = writeln!(out, "{name}");
            let mut columns = KEPT.to_vec();
            columns.sort_unstable();
            for column in columns {
                let cell = column.cell(policy);
                if !cell.is_empty() {
                    let line = format!("{}: {cell}", column.heading(&self.setting.baseline));
                    let _ = writeln!(out, "  {}", wrapped(&line, width.saturating_sub(2), 4));
                }
            }
        }
        out
    }

    /// What has to be known to read the figures.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let figures = |text: String| Note {
            about: About::Figures,
            text,
        };
        if self.policies.iter().any(|policy| policy.model.is_some()) {
            notes.push(figures(
                "* a model of documented behaviour, not the product.".to_owned(),
            ));
        }
        notes.extend(self.uncertainty().into_iter().map(figures));
        notes.extend(self.left_out().into_iter().map(|text| Note {
            about: About::LeftOut,
            text,
        }));
        notes.extend(self.setting.notes.iter().map(|text| Note {
            about: About::Cluster,
            text: format!("{text}."),
        }));
        for policy in &self.policies {
            let (drifting, seeds) = (policy.not_settled.len(), policy.seeds.len());
            if drifting * 2 >= seeds && drifting > 0 {
                let text = format!(
                    "{}: not settled: in {drifting} of {} the cost still drifted in the second half; simulate longer, or with a longer warm-up.",
                    policy.name,
                    numbers::count(seeds, "run")
                );
                notes.push(Note {
                    about: About::NotSettled,
                    text,
                });
            }
        }
        if self
            .policies
            .iter()
            .any(|policy| policy.values.contains_key("gap"))
        {
            notes.push(figures(
                "GAP is cost over a lower bound: at most this much could still be saved.".to_owned(),
            ));
        }
        let at_least = |policy: &PolicyResult| policy.values.values().any(|summary| summary.at_least);
        if self.policies.iter().any(at_least) {
            notes.push(Note {
                about: About::LowerBounds,
                text: "≥: pods still waited at the end, or left before they had a node, so that the true figure is at least this."
                    .to_owned(),
            });
        }
        notes.extend(self.expectation_notes().into_iter().map(|text| Note {
            about: About::Expectations,
            text,
        }));
        notes.push(Note {
            about: About::NotModelled,
            text: format!("Not modelled: {}.", self.not_modelled.join("; ")),
        });
        notes
    }

    /// Policies whose cost is that of other work than the baseline's.
    fn left_out(&self) -> Vec<String> {
        let Some(baseline) = self.policies.iter().find(|policy| policy.baseline) else {
            return Vec::new();
        };
        let left = |less: &PolicyResult, more: &PolicyResult| {
            let shown = |left: f64| match numbers::value(left, Unit::Count).as_str() {
                "0" => "none".to_owned(),
                // One in more than twenty runs.
                "0.0" => "less than 0.1".to_owned(),
                number => number.to_owned(),
            };
            let number = shown(less.left_out);
            let pods = match number.as_str() {
                "1" => "pod a run was",
                _ => "pods a run were",
            };
            format!(
                "{}: {number} {pods} left without a node, {} under {}",
                less.name,
                shown(more.left_out),
                more.name
            )
        };
        let told = self.policies.iter().filter_map(|policy| match policy.work {
            Work::Same => None,
            Work::Less => Some(format!(
                "{}: what it costs is the cost of less work, and no saving.",
                left(policy, baseline)
            )),
            Work::More => Some(format!(
                "{}: what {} costs is the cost of more work.",
                left(baseline, policy),
                policy.name
            )),
        });
        told.collect()
    }

    /// Names of policies that left pods without a node which had one under another: the baseline too, where it is the one.
    pub(crate) fn with_less_work(&self) -> Vec<&str> {
        let is_more = |policy: &PolicyResult| policy.work == Work::More;
        let baseline_is = self.policies.iter().any(is_more);
        let those = self.policies.iter().filter(|policy| match policy.work {
            Work::Less => true,
            Work::Same | Work::More => policy.baseline && baseline_is,
        });
        those.map(|policy| policy.name.as_str()).collect()
    }

    /// How sure the figures are, or why nothing can be said.
    fn uncertainty(&self) -> Vec<String> {
        let seeds = self
            .policies
            .iter()
            .map(|policy| policy.seeds.len())
            .min()
            .unwrap_or_default();
        if seeds >= FEWEST_SEEDS {
            let percent = 100.0 * (1.0 - self.method.misses_of_each);
            let mut text = format!("[ ]: {percent:.1} % intervals of paired differences over seeds");
            if self.method.comparisons > 1 {
                let _ = write!(
                    text,
                    ", 95 % for all {} comparisons together",
                    self.method.comparisons
                );
            }
            text.push_str("; ±: 95 % interval of the mean; ≈: no difference shown.");
            return vec![text];
        }
        let mut notes = vec![format!(
            "Fewer than {FEWEST_SEEDS} seeds: no interval, so no policy is called cheaper. Costs of the seeds:"
        )];
        for policy in &self.policies {
            let own = self
                .runs
                .iter()
                .filter(|run| run.policy == policy.name && !run.partial);
            let costs: Vec<String> = own
                .filter_map(|run| Some(numbers::value(*run.values.get("cost")?, Unit::Dollars)))
                .collect();
            if !costs.is_empty() {
                notes.push(format!("{}: {}", policy.name, costs.join(", ")));
            }
        }
        notes
    }

    fn expectation_notes(&self) -> Vec<String> {
        if self.expectations.is_empty() {
            return Vec::new();
        }
        let with = |answer| {
            self.expectations
                .iter()
                .filter(move |expected| expected.answer == answer)
        };
        let holds = with(Answer::Holds).count();
        let all = self.expectations.len();
        let verb = if holds == 1 { "holds" } else { "hold" };
        let mut notes = vec![format!("expect: {holds} of {all} {verb}.")];
        for answer in [Answer::Contradicted, Answer::NotShown] {
            notes.extend(
                with(answer).map(|expected| format!("expect {}: {}", answer.words(), described(expected))),
            );
        }
        notes
    }

    /// True when an interval contradicts an expectation.
    pub fn contradicted(&self) -> bool {
        self.expectations
            .iter()
            .any(|expected| expected.answer == Answer::Contradicted)
    }

    /// What really was, with the same figures of the baseline, which was simulated.
    fn as_recorded(&self) -> Option<String> {
        let recorded = self.setting.as_recorded.as_ref()?;
        let baseline = self.policies.iter().find(|policy| policy.baseline);
        let simulated = baseline.and_then(|policy| {
            let mean = |metric: &str| Some(policy.values.get(metric)?.mean);
            let cost = numbers::value(mean("cost")?, Unit::Dollars);
            let hours = numbers::value(mean("nodeHours")?, Unit::NodeHours);
            Some(format!(
                "; {}, simulated: {cost}, {hours} node-hours",
                policy.name
            ))
        });
        Some(format!(
            "As recorded in {} ({BASIS}): {}; {}{}.",
            recorded.file,
            recorded.cost(),
            recorded.nodes(),
            simulated.unwrap_or_default()
        ))
    }
}

/// `patient.cost <= 1.02 * now.cost (left − right: 310 [200, 420] over 10 seeds)`.
pub(crate) fn described(expected: &Expected) -> String {
    let Some(difference) = expected.difference else {
        return format!("{} (no seed has all its values)", expected.expression);
    };
    let seeds = numbers::count(expected.pairs, "seed");
    let certainty = expected.interval.map_or_else(
        || format!(" over {seeds}, too few for an interval"),
        |interval| {
            format!(
                " [{}, {}] over {seeds}",
                amount(interval.low),
                amount(interval.high)
            )
        },
    );
    let why = expected.why.as_ref().map(|why| format!("; {why}"));
    format!(
        "{} (left − right: {}{certainty}{})",
        expected.expression,
        amount(difference),
        why.unwrap_or_default()
    )
}

/// A number whose unit the expression says: four significant digits.
fn amount(number: f64) -> String {
    let size = number.abs();
    let decimals = match size {
        size if size >= 1000.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 3,
        _ => 5,
    };
    format!("{number:.decimals$}").replace('-', "−")
}

/// The name, with a star for a model of another product.
pub(crate) fn shown_name(policy: &PolicyResult) -> String {
    let star = if policy.model.is_some() { "*" } else { "" };
    format!("{}{star}", policy.name)
}

fn cost(policy: &PolicyResult) -> String {
    match policy.values.get("cost") {
        None => "no completed run".into(),
        Some(summary) => {
            let mean = numbers::value(summary.mean, Unit::Dollars);
            let half = summary.interval.map(|interval| {
                format!(
                    " ± {}",
                    numbers::half_width(interval, summary.mean, Unit::Dollars)
                )
            });
            format!("{mean}{}", half.unwrap_or_default())
        }
    }
}

/// `dearer, +1.9 % [+1.6, +2.1]`, `≈ −0.1 % [−0.3, +0.2]`, `pods left out, −95 % [−95.9, −95.0]`.
pub(crate) fn against(policy: &PolicyResult) -> String {
    let Some(difference) = policy.values.get("cost").and_then(|cost| cost.against.as_ref()) else {
        return String::new();
    };
    let change = change(difference);
    match difference.verdict {
        Verdict::TooFewSeeds => change,
        Verdict::NoDifferenceShown => format!("≈ {change}"),
        _ => format!("{}, {change}", difference.words),
    }
}

/// Of a difference in cost: `+1.9 % [+1.6, +2.1]`, or in dollars where the baseline's mean is 0, of which nothing is a share: `+$0.42 [+$0.38, +$0.46]`.
pub(crate) fn change(difference: &Difference) -> String {
    let Some(relative) = relative(difference) else {
        let dollars = |number: f64| numbers::difference(number, Unit::Dollars);
        let interval = difference
            .interval
            .map(|interval| format!(" [{}, {}]", dollars(interval.low), dollars(interval.high)));
        return dollars(difference.mean) + &interval.unwrap_or_default();
    };
    let interval = difference
        .relative_interval
        .map(|interval| format!(" {}", numbers::relative_interval(interval)));
    relative + &interval.unwrap_or_default()
}

/// `+1.9 %`.
pub(crate) fn relative(difference: &Difference) -> Option<String> {
    let share = difference.relative?;
    Some(numbers::relative(share, difference.relative_interval))
}

/// A mean, with its sign where it is a lower bound.
pub(crate) fn shown(summary: &Summary, unit: Unit) -> String {
    let sign = if summary.at_least { "≥ " } else { "" };
    format!("{sign}{}", numbers::value(summary.mean, unit))
}

/// The mean of a metric.
pub(crate) fn plain(policy: &PolicyResult, name: &str) -> String {
    let unit = Metric::find(name).map_or(Unit::Count, |metric| metric.unit);
    policy
        .values
        .get(name)
        .map(|summary| shown(summary, unit))
        .unwrap_or_default()
}

/// The mean and, where the interval shows one, the relative change.
pub(crate) fn with_change(policy: &PolicyResult, name: &str) -> String {
    let value = plain(policy, name);
    let Some(difference) = policy
        .values
        .get(name)
        .and_then(|summary| summary.against.as_ref())
    else {
        return value;
    };
    match (difference.verdict, relative(difference)) {
        (Verdict::NoDifferenceShown, _) => format!("{value} ≈"),
        (_, Some(relative)) => format!("{value} {relative}"),
        (Verdict::TooFewSeeds, None) => value,
        (_, None) => format!("{value} {}", difference.words),
    }
}

/// Breaks a line at spaces; lines after the first are indented.
fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if !out.is_empty() {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}
