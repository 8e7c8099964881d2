//! The text output of `spokeshave budgets`: 80 columns, a line per day, then the findings.

use std::fmt::Write as _;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use spokeshave_api::{Budget, UNLIMITED};
use spokeshave_plan::budget_lint::{Level, NodeCounts};
use spokeshave_plan::calendar::Interval;

use super::report::{Located, PolicyReport, PoolReport, Report};
use crate::text::{count, wrap};

/// Columns of a day: half an hour each.
const COLUMNS: i64 = 48;
const COLUMN: SignedDuration = SignedDuration::from_mins(30);

/// Changes that are listed with their exact time.
const CHANGES: usize = 4;

/// The whole answer.
pub(crate) fn render(report: &Report) -> String {
    let mut out = String::new();
    for (position, pool) in report.node_pools.iter().enumerate() {
        if position > 0 {
            out.push('\n');
        }
        render_pool(&mut out, pool);
    }
    for policy in &report.disruption_policies {
        out.push('\n');
        render_policy(&mut out, policy);
    }
    out.push_str("\nTimes are UTC, as schedules are. A column is half an hour and shows the least\n");
    out.push_str("that is allowed in it: . nothing, 1-9 nodes at once, + ten or more, * no limit.\n");
    out
}

fn render_pool(out: &mut String, pool: &PoolReport) {
    let NodeCounts { nodes, disrupting } = pool.counts;
    let known = if pool.nodes_assumed {
        format!("{} assumed (--nodes N for another number)", count(nodes, "node"))
    } else {
        format!(
            "{}, {disrupting} of them disrupting or not Ready",
            count(nodes, "node")
        )
    };
    let _ = writeln!(out, "NodePool {}: {known}", pool.name);
    for (reasons, intervals) in grouped(pool) {
        out.push('\n');
        render_group(out, pool, &reasons, intervals);
    }
    if pool.findings.is_empty() {
        out.push_str("\n  Nothing is wrong with its budgets.\n");
    }
    for located in &pool.findings {
        out.push('\n');
        render_finding(out, located);
    }
}

fn render_policy(out: &mut String, policy: &PolicyReport) {
    let over = match policy.node_pools.as_slice() {
        [] => "no NodePool".to_owned(),
        names => format!("NodePools {}", names.join(", ")),
    };
    let headline = format!("DisruptionPolicy {}: {over}", policy.name);
    let _ = writeln!(out, "{}", wrap(&headline, 0, 2));
    if !policy.not_in_calendar.is_empty() {
        let text = format!(
            "Not in the calendar, because it follows from what happens: {}",
            policy.not_in_calendar.join(", ")
        );
        let _ = writeln!(out, "\n{}", wrap(&text, 2, 4));
    }
    if policy.findings.is_empty() {
        out.push_str("\n  Nothing is wrong with it.\n");
    }
    for located in &policy.findings {
        out.push('\n');
        render_finding(out, located);
    }
}

/// Reasons that are allowed the same, together.
fn grouped(pool: &PoolReport) -> Vec<(Vec<&str>, &[Interval])> {
    let mut groups: Vec<(Vec<&str>, &[Interval])> = Vec::new();
    for calendar in &pool.calendar {
        let same = groups
            .iter_mut()
            .find(|(_, intervals)| *intervals == calendar.intervals);
        match same {
            Some((reasons, _)) => reasons.push(calendar.reason.as_str()),
            None => groups.push((vec![calendar.reason.as_str()], &calendar.intervals)),
        }
    }
    groups
}

fn render_group(out: &mut String, pool: &PoolReport, reasons: &[&str], intervals: &[Interval]) {
    let Some(now) = intervals.first() else {
        return;
    };
    let left = match now.allowed {
        UNLIMITED => String::new(),
        allowed if pool.counts.disrupting > 0 => {
            let disrupting = i64::try_from(pool.counts.disrupting).unwrap_or(i64::MAX);
            format!(", {} left", (allowed - disrupting).max(0))
        }
        _ => String::new(),
    };
    let without_nodes = pool.counts.nodes == 0 && now.allowed == 0;
    let left = if without_nodes {
        "; percentages are of the nodes there are (--nodes N for another number)".to_owned()
    } else {
        left
    };
    let always = if intervals.len() == 1 {
        "at all times"
    } else {
        "now"
    };
    let headline = format!("{}: {} {always}{left}", reasons.join(", "), allowance(now, pool));
    let _ = writeln!(out, "{}", wrap(&headline, 2, 4));
    if intervals.len() > 1 {
        render_strips(out, intervals);
        render_changes(out, pool, intervals);
    }
}

/// `2 nodes (10% of 19, budgets[0])`.
fn allowance(interval: &Interval, pool: &PoolReport) -> String {
    let source = |index: &usize| {
        let share = pool.budgets.get(*index).map(|budget| share(budget, pool));
        format!("{}budgets[{index}]", share.unwrap_or_default())
    };
    let mut sources: Vec<String> = interval.limited_by.iter().map(source).collect();
    sources.extend(interval.policies.iter().map(ToString::to_string));
    match interval.allowed {
        UNLIMITED => "no limit".to_owned(),
        0 => format!("nothing ({})", sources.join(", ")),
        1 => format!("1 node ({})", sources.join(", ")),
        allowed => format!("{allowed} nodes ({})", sources.join(", ")),
    }
}

fn share(budget: &Budget, pool: &PoolReport) -> String {
    if budget.nodes.ends_with('%') && !pool.nodes_assumed {
        format!("{} of {}, ", budget.nodes, pool.counts.nodes)
    } else if budget.nodes.ends_with('%') {
        format!("{}, ", budget.nodes)
    } else {
        String::new()
    }
}

/// One line per day; days in a row that look the same share one.
fn render_strips(out: &mut String, intervals: &[Interval]) {
    let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else {
        return;
    };
    let day = |time: Timestamp| time.to_zoned(TimeZone::UTC).date();
    let end = day(last.until - SignedDuration::from_nanos(1));
    let mut rows: Vec<(Date, Date, String)> = Vec::new();
    let mut date = day(first.from);
    let mut position = 0;
    while date <= end {
        let cells = strip(date, intervals, &mut position);
        match rows.last_mut() {
            Some((_, until, known)) if *known == cells => *until = date,
            _ => rows.push((date, date, cells)),
        }
        let Ok(next) = date.checked_add(1.day()) else {
            break;
        };
        date = next;
    }
    let _ = writeln!(out, "    {:22}0     3     6     9     12    15    18    21", "");
    for (from, until, cells) in rows {
        let days = if from == until {
            from.strftime("%a %e %b").to_string()
        } else {
            format!("{} - {}", from.strftime("%a %e"), until.strftime("%a %e %b"))
        };
        let _ = writeln!(out, "    {days:22}{}", cells.trim_end());
    }
}

/// The columns of a day. `position` is the first interval that can still matter.
fn strip(date: Date, intervals: &[Interval], position: &mut usize) -> String {
    let Ok(midnight) = date.to_zoned(TimeZone::UTC) else {
        return String::new();
    };
    let midnight = midnight.timestamp();
    let cell = |column: i64| {
        let from = midnight
            .saturating_add(COLUMN * i32::try_from(column).unwrap_or(0))
            .unwrap_or(Timestamp::MAX);
        let until = from.saturating_add(COLUMN).unwrap_or(Timestamp::MAX);
        while intervals
            .get(*position)
            .is_some_and(|interval| interval.until <= from)
        {
            *position += 1;
        }
        let inside = intervals[*position..]
            .iter()
            .take_while(|interval| interval.from < until);
        match inside.map(|interval| interval.allowed).min() {
            None => ' ',
            Some(0) => '.',
            Some(UNLIMITED) => '*',
            Some(allowed) => u32::try_from(allowed)
                .ok()
                .and_then(|allowed| char::from_digit(allowed, 10))
                .unwrap_or('+'),
        }
    };
    (0..COLUMNS).map(cell).collect()
}

fn render_changes(out: &mut String, pool: &PoolReport, intervals: &[Interval]) {
    for interval in intervals.iter().skip(1).take(CHANGES) {
        let time = interval.from.to_zoned(TimeZone::UTC);
        let line = format!(
            "{}  {}",
            time.strftime("%a %e %b %H:%M"),
            allowance(interval, pool)
        );
        let _ = writeln!(out, "{}", wrap(&line, 4, 24));
    }
    let more = intervals.len().saturating_sub(CHANGES + 1);
    if more > 0 {
        let _ = writeln!(
            out,
            "    and {} until {}",
            count(more, "more change"),
            end_of(intervals)
        );
    }
}

fn end_of(intervals: &[Interval]) -> String {
    let end = intervals
        .last()
        .map(|interval| interval.until)
        .unwrap_or_default();
    end.to_zoned(TimeZone::UTC).strftime("%a %e %b %H:%M").to_string()
}

fn render_finding(out: &mut String, located: &Located) {
    let finding = &located.finding;
    let level = match finding.level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    };
    let place = match (&located.file, located.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.clone(),
        (None, _) => located.object.clone(),
    };
    let _ = writeln!(out, "  {level}[{}] {place}", finding.code);
    let text = format!("{}: {}", finding.field, finding.message);
    let _ = writeln!(out, "{}", wrap(&text, 4, 4));
    if let Some(suggestion) = &finding.suggestion {
        let _ = writeln!(out, "    write:");
        for line in suggestion.lines() {
            let _ = writeln!(out, "      {line}");
        }
    }
}
