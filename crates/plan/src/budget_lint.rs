//! What is wrong with the budgets of a NodePool, field by field, each with the line that would be right.
//!
//! It reads a NodePool as written, not as typed: a file may hold what no API server would take, and that is when a linter helps most.
//! It owns no arithmetic: windows come from `calendar`, texts from `budget_repair`. It never changes anything.

mod policy;
mod reading;

use crate::budget_repair as repair;
use crate::calendar::{Activity, REASONS, Window, calendar};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;
use spokeshave_api::{Budget, DisruptionReason};

pub use reading::read;

/// How far ahead windows are compared: every schedule that is not about leap days has shown all it does within a year.
const HORIZON: SignedDuration = SignedDuration::from_hours(366 * 24);

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It does something else than it says.
    Error,
    /// It works, and most likely not as meant.
    Warning,
    /// Good to know.
    Note,
}

/// One thing to know about one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// One word for machines; the list is in `docs/budgets.md`.
    pub code: &'static str,
    /// The field, as in `spec.disruption.budgets[1].schedule`. It may be absent in the object: then its parent is where it belongs.
    pub field: String,
    /// One sentence.
    pub message: String,
    /// What to write instead, one or more lines of YAML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

/// How many nodes of the pool count, and how many of them use up allowance now (D-199, D-200).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Nodes that count.
    pub nodes: usize,
    /// Nodes that are on their way out or not Ready.
    pub disrupting: usize,
}

/// The budgets of a NodePool, as far as they can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The budgets, one per entry. An entry that cannot be read is one that cannot be evaluated either, and so allows nothing.
    pub budgets: Vec<Budget>,
    /// False when the pool has none and 10 % holds by default (D-183).
    pub written: bool,
    /// What reading them has shown.
    pub findings: Vec<Finding>,
}

/// Everything that is wrong with the budgets of one NodePool, in the order of its fields.
pub fn lint(pool: &Value, counts: Option<NodeCounts>, now: Timestamp) -> Vec<Finding> {
    let Reading {
        budgets,
        written,
        mut findings,
    } = read(pool);
    findings.extend(policy::findings(&pool["spec"]["disruption"], &budgets, written));
    if written {
        let linter = Linter::new(&budgets, now);
        findings.extend(linter.windows());
        findings.extend(linter.reasons());
        findings.extend(linter.time_zone());
        findings.extend(counts.and_then(|counts| linter.counts(counts)));
        findings.extend(linter.rounding(counts));
    }
    if written && budgets.is_empty() {
        findings.push(note(
            "no-budget",
            "spec.disruption.budgets",
            "an empty list means no limit at all; leave the field out for the default of 10%".to_owned(),
        ));
    }
    findings.sort_by(|left, right| place(left).cmp(&place(right)));
    findings
}

/// Findings about the pool come before those about its budgets; those by index.
fn place(finding: &Finding) -> (Option<usize>, Level, &str) {
    let index = finding.field.split_once('[').and_then(|(_, rest)| {
        let (index, _) = rest.split_once(']')?;
        index.parse().ok()
    });
    (index, finding.level, &finding.field)
}

fn field(index: usize, name: &str) -> String {
    match name {
        "" => format!("spec.disruption.budgets[{index}]"),
        name => format!("spec.disruption.budgets[{index}].{name}"),
    }
}

fn error(code: &'static str, field: String, message: String, suggestion: Option<String>) -> Finding {
    Finding {
        level: Level::Error,
        code,
        field,
        message,
        suggestion,
    }
}

fn note(code: &'static str, field: &str, message: String) -> Finding {
    Finding {
        level: Level::Note,
        code,
        field: field.to_owned(),
        message,
        suggestion: None,
    }
}

/// The budgets with their windows over the horizon.
struct Linter<'a> {
    budgets: &'a [Budget],
    activities: Vec<Activity>,
    /// For each of `REASONS` the times at which it is not allowed; `None` where no budget covers it, or one that cannot be evaluated.
    closed: Vec<Option<Vec<Window>>>,
    range: Window,
}

impl<'a> Linter<'a> {
    fn new(budgets: &'a [Budget], now: Timestamp) -> Self {
        let range = Window {
            from: now,
            until: now.saturating_add(HORIZON).unwrap_or(Timestamp::MAX),
        };
        let mut linter = Linter {
            budgets,
            activities: budgets.iter().map(|budget| Activity::of(budget, range)).collect(),
            closed: Vec::new(),
            range,
        };
        linter.closed = REASONS.iter().map(|reason| linter.closed(reason)).collect();
        linter
    }

    /// When a reason is not allowed, as far as that can be known.
    fn closed(&self, reason: &DisruptionReason) -> Option<Vec<Window>> {
        let covering = self.covering(reason);
        if covering.is_empty() || covering.iter().any(|index| !self.is_sound(*index)) {
            return None;
        }
        let intervals = calendar(self.budgets, reason, 1, self.range).intervals;
        let closed = intervals.iter().filter(|interval| interval.allowed == 0);
        let closed = closed.map(|interval| Window {
            from: interval.from,
            until: interval.until,
        });
        Some(closed.collect())
    }

    /// The budget allows nothing at any time for any reason that it covers. One that is closed for some of its reasons only is as it should
    /// be: that is how to say "10%, but no drift".
    fn is_dead(&self, index: usize) -> bool {
        let windows = &self.activities[index].windows;
        let inside = |closed: &Option<Vec<Window>>| {
            closed.as_ref().is_some_and(|closed| {
                windows.iter().all(|window| {
                    let mut closed = closed.iter();
                    closed.any(|closed| closed.from <= window.from && window.until <= closed.until)
                })
            })
        };
        let mut covered = REASONS
            .iter()
            .zip(&self.closed)
            .filter(|(reason, _)| self.budgets[index].covers(reason))
            .peekable();
        self.is_sound(index)
            && !windows.is_empty()
            && covered.peek().is_some()
            && covered.all(|(_, closed)| inside(closed))
    }

    /// Neither a number nor a schedule that cannot be read: `read` has spoken of those.
    fn is_sound(&self, index: usize) -> bool {
        self.activities[index].fault.is_none() && self.budgets[index].allowed(1).is_ok()
    }

    /// Zero whatever the number of nodes.
    fn is_zero(&self, index: usize) -> bool {
        self.is_sound(index) && self.budgets[index].allowed(1) == Ok(0)
    }

    fn is_scheduled(&self, index: usize) -> bool {
        self.budgets[index].schedule.is_some()
    }

    fn is_always(&self, index: usize) -> bool {
        self.activities[index].covers(self.range)
    }

    fn shown(&self, index: usize) -> String {
        let budget = &self.budgets[index];
        match (&budget.schedule, &budget.duration) {
            (Some(schedule), Some(duration)) => {
                let duration = repair::hours_and_minutes(duration.to_signed());
                format!(
                    "budgets[{index}] ({} at \"{schedule}\" for {duration})",
                    budget.nodes
                )
            }
            _ => format!("budgets[{index}] ({})", budget.nodes),
        }
    }

    fn covering(&self, reason: &DisruptionReason) -> Vec<usize> {
        (0..self.budgets.len())
            .filter(|index| self.budgets[*index].covers(reason))
            .collect()
    }

    /// Durations at or above the distance of hits.
    fn windows(&self) -> Vec<Finding> {
        let overlong = |index: usize| {
            let budget = &self.budgets[index];
            let (schedule, duration) = (budget.schedule.as_ref()?, budget.duration.as_ref()?);
            let shortest = repair::shortest_period(schedule, self.range)?;
            if !self.is_sound(index) || duration.to_signed() < shortest {
                return None;
            }
            let shown = repair::hours_and_minutes(shortest);
            let written = repair::hours_and_minutes(duration.to_signed());
            let (message, suggestion) = if self.is_always(index) {
                (
                    format!(
                        "{written} is no less than the period of {schedule:?}: the budget is always in force"
                    ),
                    Some(repair::budget_without_schedule(budget)),
                )
            } else if duration.to_signed() > shortest {
                (
                    format!(
                        "{written} is longer than the {shown} between two hits of {schedule:?}: its windows run into each other"
                    ),
                    Some(format!("duration: {shown}")),
                )
            } else {
                return None;
            };
            Some(Finding {
                level: Level::Warning,
                ..error(
                    "duration-covers-period",
                    field(index, "duration"),
                    message,
                    suggestion,
                )
            })
        };
        (0..self.budgets.len()).filter_map(overlong).collect()
    }

    /// What the budgets do to each other, reason by reason. One finding of a kind per budget, however many reasons it concerns.
    fn reasons(&self) -> Vec<Finding> {
        let mut findings: Vec<(Finding, Vec<&str>)> = Vec::new();
        for reason in &REASONS {
            for finding in self.reason(reason) {
                let known = findings.iter_mut().find(|(known, _)| *known == finding);
                match known {
                    Some((_, reasons)) => reasons.push(reason.as_str()),
                    None => findings.push((finding, vec![reason.as_str()])),
                }
            }
        }
        let named = |(finding, reasons): (Finding, Vec<&str>)| {
            let is = if reasons.len() == 1 { "is" } else { "are" };
            let only = if reasons.len() == REASONS.len() {
                String::new()
            } else {
                format!("\n  reasons: [{}]", reasons.join(", "))
            };
            let message = finding.message.replace("{reasons}", &repair::list(&reasons));
            let suggestion = finding.suggestion.as_ref();
            Finding {
                message: message.replace("{is}", is),
                suggestion: suggestion.map(|text| text.replace(repair::ONLY, &only)),
                ..finding
            }
        };
        findings.into_iter().map(named).collect()
    }

    fn reason(&self, reason: &DisruptionReason) -> Vec<Finding> {
        let covering = self.covering(reason);
        let faulty = covering.iter().any(|index| !self.is_sound(*index));
        if faulty || covering.is_empty() {
            return Vec::new();
        }
        let intervals = calendar(self.budgets, reason, 1, self.range).intervals;
        if intervals.iter().all(|interval| interval.allowed == 0) {
            return self.never_open(&covering).into_iter().collect();
        }
        let mut findings = self.drowned(&covering);
        findings.extend(self.shadowed(&covering));
        let unlimited = intervals
            .iter()
            .any(|interval| interval.allowed == spokeshave_api::UNLIMITED);
        findings.extend(unlimited.then(|| self.unlimited(&covering)));
        findings
    }

    /// Nothing is ever allowed: which budget does it, and what for.
    fn never_open(&self, covering: &[usize]) -> Option<Finding> {
        let Some(closing) = covering
            .iter()
            .copied()
            .find(|index| self.is_zero(*index) && self.is_always(*index))
        else {
            let zeros: Vec<String> = covering
                .iter()
                .filter(|index| self.is_zero(**index))
                .map(|index| format!("budgets[{index}]"))
                .collect();
            let zeros: Vec<&str> = zeros.iter().map(String::as_str).collect();
            let last = *covering.iter().rfind(|index| self.is_zero(**index))?;
            return Some(error(
                "never-open",
                field(last, "schedule"),
                format!(
                    "{} leave no moment open between them: {{reasons}} {{is}} never allowed",
                    repair::list(&zeros)
                ),
                None,
            ));
        };
        let openers: Vec<usize> = covering
            .iter()
            .copied()
            .filter(|index| !self.is_zero(*index) && self.is_dead(*index))
            .collect();
        let scheduled = openers.iter().copied().find(|index| self.is_scheduled(*index));
        if let Some(opener) = scheduled {
            let suggestion = repair::only_in_windows(&self.budgets[opener], self.range);
            return Some(error(
                "never-open",
                field(closing, ""),
                format!(
                    "{} never opens for {{reasons}}: the minimum of all budgets in force counts, and this one allows 0 at all times; close the other times instead",
                    self.shown(opener)
                ),
                suggestion,
            ));
        }
        let Some(opener) = openers.first() else {
            let deliberate =
                "turns off voluntary disruption for {reasons}; expiration, repair and deletion by hand go on";
            return Some(note(
                "always-closed",
                &field(closing, "nodes"),
                deliberate.to_owned(),
            ));
        };
        let others = repair::reasons_without(&self.budgets[closing], &self.budgets[*opener]);
        Some(error(
            "blocks-all-reasons",
            field(
                closing,
                if self.budgets[closing].reasons.is_some() {
                    "reasons"
                } else {
                    "nodes"
                },
            ),
            format!(
                "allows 0 for {{reasons}} at all times, so that {} allows nothing; name the reasons that this one is for",
                self.shown(*opener)
            ),
            others.map(|reasons| repair::budget_with_reasons(&self.budgets[closing], &reasons)),
        ))
    }

    /// Windows that open while another budget is closed.
    fn drowned(&self, covering: &[usize]) -> Vec<Finding> {
        let drowned =
            |index: &&usize| self.is_scheduled(**index) && !self.is_zero(**index) && self.is_dead(**index);
        let finding = |index: &usize| {
            let zeros = covering.iter().filter(|other| self.is_zero(**other));
            let zeros: Vec<String> = zeros.map(|other| self.shown(*other)).collect();
            let zeros: Vec<&str> = zeros.iter().map(String::as_str).collect();
            error(
                "window-never-opens",
                field(*index, "schedule"),
                format!(
                    "for {{reasons}} every window lies inside those of {}, where 0 is allowed",
                    repair::list(&zeros)
                ),
                None,
            )
        };
        covering.iter().filter(drowned).map(finding).collect()
    }

    /// Budgets that another one makes superfluous whatever the number of nodes.
    fn shadowed(&self, covering: &[usize]) -> Vec<Finding> {
        let limit = |index: usize| {
            let nodes = &self.budgets[index].nodes;
            let number: i64 = nodes
                .trim_end_matches('%')
                .parse()
                .unwrap_or(spokeshave_api::UNLIMITED);
            (nodes.ends_with('%'), number)
        };
        let covers_as_much = |strict: usize, loose: usize| {
            REASONS
                .iter()
                .all(|reason| !self.budgets[loose].covers(reason) || self.budgets[strict].covers(reason))
        };
        let shadow = |index: usize| {
            covering.iter().copied().find(|other| {
                let ((percent, number), (other_percent, other_number)) = (limit(index), limit(*other));
                let stricter = other_number < number || (other_number == number && *other < index);
                *other != index
                    && percent == other_percent
                    && stricter
                    && self.is_always(*other)
                    && covers_as_much(*other, index)
            })
        };
        let shadowed = covering
            .iter()
            .filter_map(|index| Some((*index, shadow(*index)?)));
        let finding = |(index, other): (usize, usize)| {
            note(
                "without-effect",
                &field(index, ""),
                format!(
                    "never decides: {} is always in force and at least as strict",
                    self.shown(other)
                ),
            )
        };
        shadowed.map(finding).collect()
    }

    /// Times at which no budget is in force.
    fn unlimited(&self, covering: &[usize]) -> Finding {
        let opener = covering.iter().copied().find(|index| !self.is_zero(*index));
        let message = "outside the windows no budget is in force: {reasons} {is} unlimited then";
        match opener {
            Some(index) => Finding {
                level: Level::Warning,
                ..error(
                    "unlimited-between-windows",
                    field(index, "schedule"),
                    message.to_owned(),
                    repair::closed_between(self.budgets, covering, self.range),
                )
            },
            None => Finding {
                suggestion: Some(format!("- nodes: \"10%\"{}", repair::ONLY)),
                ..note(
                    "unlimited-between-windows",
                    "spec.disruption.budgets",
                    message.to_owned(),
                )
            },
        }
    }

    /// Hours in a schedule are UTC, whatever the author's clock says.
    fn time_zone(&self) -> Option<Finding> {
        let by_the_hour = (0..self.budgets.len()).filter(|index| {
            let schedule = self.budgets[*index].schedule.as_deref().unwrap_or_default();
            let hour = schedule.split_whitespace().nth(1).unwrap_or("*");
            self.is_sound(*index) && hour.bytes().any(|byte| byte.is_ascii_digit()) && !hour.starts_with("*/")
        });
        let fields: Vec<String> = by_the_hour.map(|index| format!("budgets[{index}]")).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        (!fields.is_empty()).then(|| {
            note(
                "hours-are-utc",
                "spec.disruption.budgets",
                format!("the hours of {} are UTC, all year round", repair::list(&fields)),
            )
        })
    }

    /// The allowance is there, and used up.
    fn counts(&self, counts: NodeCounts) -> Option<Finding> {
        let now = Window {
            until: self
                .range
                .from
                .saturating_add(SignedDuration::from_mins(1))
                .ok()?,
            ..self.range
        };
        let used = i64::try_from(counts.disrupting).unwrap_or(i64::MAX);
        let used_up = REASONS.iter().filter_map(|reason| {
            let allowed = calendar(self.budgets, reason, counts.nodes, now)
                .intervals
                .first()?
                .allowed;
            (allowed > 0 && allowed <= used).then_some((reason.as_str(), allowed))
        });
        let used_up: Vec<(&str, i64)> = used_up.collect();
        let (_, allowed) = used_up.first()?;
        let reasons: Vec<&str> = used_up.iter().map(|(reason, _)| *reason).collect();
        Some(note(
            "used-up",
            "spec.disruption.budgets",
            format!(
                "{} of {} {} on the way out or not Ready, {allowed} allowed: nothing is left for {} now",
                counts.disrupting,
                crate::report::count(counts.nodes, "node"),
                if counts.disrupting == 1 { "is" } else { "are" },
                repair::list(&reasons)
            ),
        ))
    }

    /// D-196: a percentage above zero never rounds to zero; it rounds up, which is much in a small pool.
    fn rounding(&self, counts: Option<NodeCounts>) -> Vec<Finding> {
        let Some(NodeCounts { nodes, .. }) = counts.filter(|counts| counts.nodes > 1) else {
            return Vec::new();
        };
        let rounded = |index: usize| {
            let budget = &self.budgets[index];
            let percent: usize = budget.nodes.strip_suffix('%')?.parse().ok()?;
            let allowed = usize::try_from(budget.allowed(nodes).ok()?).ok()?;
            (allowed * 100 >= 2 * percent * nodes && percent > 0).then(|| {
                let share = allowed * 100 / nodes;
                let message = format!(
                    "{} of {nodes} nodes is rounded up to {allowed}, which is {share}% of them",
                    budget.nodes
                );
                note("rounded-up", &field(index, "nodes"), message)
            })
        };
        (0..self.budgets.len()).filter_map(rounded).collect()
    }
}

#[cfg(test)]
mod claims;
#[cfg(test)]
mod tests;
