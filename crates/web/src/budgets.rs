//! When disruption budgets allow how many nodes: seven days, one row for each NodePool and reason, from the same intervals as `spokeshave budgets`.

use crate::draw::{clock, count};
use crate::query::Query;
use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use spokeshave_charts::units;
use spokeshave_plan::calendar::Interval;
use spokeshave_view::{BudgetDay, BudgetNow, Budgets, PoolCalendar, View};
use std::borrow::Cow;

const WIDTH: f64 = 1000.0;
const ROW: f64 = 36.0;
/// NodePools that are drawn.
const POOLS: usize = 25;
/// Intervals of a row that are told in words.
const TOLD: usize = 20;

/// The panel.
pub(crate) fn panel(view: &View, query: &Query) -> Markup {
    let budgets = &view.budgets;
    html! {
        section #budgets .panel aria-labelledby="budgets-title" {
            header { h2 #budgets-title { "Disruption budgets" } p .note { "nodes at once, the next seven days, UTC" } }
            (pattern())
            @if !view.header.knows("pools") { p .missing { "? not observed: NodePools could not be read, so their budgets are unknown." } }
            @else if budgets.calendar.is_empty() { p .empty { "There is no NodePool." } }
            @else if !view.header.knows("budgets") { p .missing { "? not observed: " (unknown(view)) } }
            @for pool in budgets.calendar.iter().take(POOLS) { (pool_rows(pool, budgets, query)) }
            @if budgets.calendar.len() > POOLS { p .note { "and " (count(budgets.calendar.len() - POOLS, "NodePool")) " more: spokeshave budgets" } }
        }
    }
}

/// Why nobody knows what is allowed.
fn unknown(view: &View) -> &'static str {
    if view.header.knows("unmanaged") {
        "DisruptionPolicies or Disruptions could not be read, so nobody knows what they leave of budgets."
    } else {
        "Nodes or NodeClaims could not be read, so nobody has counted the nodes of which budgets are a part."
    }
}

/// What nothing is allowed in is hatched, so that it can be told without colour. No part of the drawings themselves: a name is there once.
fn pattern() -> Markup {
    PreEscaped(
        r#"<svg class="hidden-text" aria-hidden="true"><defs><pattern id="p-closed" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="stroke" d="M0 0V9"/></pattern></defs></svg>"#
            .to_owned(),
    )
}

fn pool_rows(pool: &PoolCalendar, budgets: &Budgets, query: &Query) -> Markup {
    let now: Vec<&BudgetNow> = budgets.now.iter().filter(|now| now.pool == pool.pool).collect();
    let is_chosen = query.pool.as_deref() == Some(&pool.pool);
    let chosen = (!is_chosen).then(|| pool.pool.clone());
    let days = pool.reasons.iter();
    let lanes: Vec<(&BudgetDay, Lane<'_>)> = days.map(|day| (day, Lane::of(day, pool))).collect();
    html! {
        div data-key=(pool.pool) {
            h3 { a href=(query.href(|query| query.pool = chosen)) data-pool=(pool.pool) aria-current=[is_chosen.then_some("true")] title="show its past behind the time axis, or that of all again" { (pool.pool) } }
            table .calendar {
                thead { tr { th scope="col" { "reason" } th scope="col" { "now" } th scope="col" { "next seven days" } } }
                tbody {
                    @for (day, lane) in &lanes {
                        tr {
                            th scope="row" { (day.reason.to_lowercase()) }
                            td { @match now.iter().find(|now| now.reason == day.reason) { Some(now) => (state(now, day)), None => "?", } }
                            td { (lane.drawn()) }
                        }
                    }
                }
            }
            @if lanes.iter().any(|(_, lane)| !lane.words.is_empty()) { (in_words(pool, &lanes)) }
        }
    }
}

/// What the titles of stretches tell, for those who do not point at them.
fn in_words(pool: &PoolCalendar, lanes: &[(&BudgetDay, Lane<'_>)]) -> Markup {
    html! {
        details {
            summary { (pool.pool) " in words" }
            dl .facts {
                @for (day, lane) in lanes {
                    div { dt { (day.reason.to_lowercase()) } dd { ul { @for one in lane.told() { li { (one) } } } } }
                }
            }
        }
    }
}

fn state(now: &BudgetNow, day: &BudgetDay) -> Markup {
    if now.error.is_none() && day.lacks_nodes_only() {
        return html! { "no node to disrupt" br; span .note { "as with one:" } };
    }
    let (allowed, remaining) = now.of_nodes();
    // Of no nodes none is left, whatever is allowed.
    let is_none = |remaining: i64| remaining == 0 && (now.nodes > 0 || now.remaining == Some(0));
    html! {
        @match (&now.error, remaining, allowed) {
            (Some(error), ..) => span .bad { (error) },
            (None, Some(remaining), Some(allowed)) => {
                span .bad[is_none(remaining)] { (remaining) " of " (allowed) }
                @if now.disrupting > 0 { span .note { " (" (now.disrupting) " under way)" } }
            },
            (None, Some(remaining), None) => span .bad[remaining == 0] { (count(usize::try_from(remaining).unwrap_or_default(), "node")) " more" },
            _ => "no limit",
        }
        @if let Some(policy) = &now.policy { br; span .note { (policy) } }
    }
}

fn allowed(interval: &Interval) -> String {
    if interval.allowed >= spokeshave_view::UNLIMITED {
        "no limit".to_owned()
    } else {
        interval.allowed.to_string()
    }
}

fn limited_by(interval: &Interval, budgets: &[String]) -> String {
    let lines = interval
        .limited_by
        .iter()
        .filter_map(|index| Some((index, budgets.get(*index)?)));
    let lines = lines.map(|(index, text)| format!("budgets[{index}] {text}"));
    let rules = interval.policies.iter().map(ToString::to_string);
    let lines: Vec<String> = lines.chain(rules).collect();
    if lines.is_empty() {
        "nothing limits".to_owned()
    } else {
        lines.join("; ")
    }
}

/// When an interval is; what begins or ends with the calendar is told by its other end.
fn when(interval: &Interval, all: &[Interval]) -> String {
    let format = clock(interval.until.duration_since(interval.from));
    let [from, until] = [interval.from, interval.until].map(|at| at.strftime(format).to_string());
    let is_first = all.first().is_some_and(|first| first.from == interval.from);
    let is_last = all.last().is_some_and(|last| last.until == interval.until);
    match (is_first, is_last) {
        (true, true) => "all seven days".to_owned(),
        (true, false) => format!("until {until}"),
        (false, true) => format!("from {from} on"),
        (false, false) => format!("{from} to {until}"),
    }
}

/// One reason: a stretch for each interval, with what is said of it.
struct Lane<'a> {
    pool: &'a str,
    intervals: &'a [Interval],
    /// As with one node, where there is none: what `spokeshave budgets` tells is other than this.
    is_with_a_node: bool,
    words: Vec<String>,
}

impl<'a> Lane<'a> {
    fn of(day: &'a BudgetDay, pool: &'a PoolCalendar) -> Self {
        let intervals = day.with_a_node.as_ref().unwrap_or(&day.intervals);
        let words = intervals.iter().map(|interval| {
            format!(
                "{}: {} ({})",
                when(interval, intervals),
                allowed(interval),
                limited_by(interval, &pool.budgets)
            )
        });
        Self {
            pool: &pool.pool,
            intervals,
            is_with_a_node: day.with_a_node.is_some(),
            words: words.collect(),
        }
    }

    /// As much of it as anybody listens to, and how much more there is.
    fn told(&self) -> Vec<Cow<'_, str>> {
        let more = self.words.len().saturating_sub(TOLD);
        let first = self.words.iter().take(TOLD).map(Cow::from);
        let others = (more > 0).then(|| {
            if self.is_with_a_node {
                format!("and {more} more")
            } else {
                format!("and {more} more: spokeshave budgets {}", self.pool)
            }
        });
        first.chain(others.map(Cow::from)).collect()
    }

    /// Stretches that allow nothing are hatched.
    fn drawn(&self) -> Markup {
        let (Some(first), Some(last)) = (self.intervals.first(), self.intervals.last()) else {
            return html! {};
        };
        let whole = last.until.duration_since(first.from).as_secs_f64().max(1.0);
        let x = |at: Timestamp| at.duration_since(first.from).as_secs_f64() / whole * WIDTH;
        html! {
            svg .lane viewBox=(format!("0 0 {WIDTH} {ROW}")) role="img" aria-label=(self.told().join(". ")) {
                @for (interval, words) in self.intervals.iter().zip(&self.words) {
                    @let from = x(interval.from);
                    @let width = x(interval.until) - from;
                    rect .open[interval.allowed > 0] .closed[interval.allowed == 0] x=(units(from)) width=(units(width)) height=(units(ROW)) { title { (words) } }
                    @if interval.allowed == 0 { rect .pattern x=(units(from)) width=(units(width)) height=(units(ROW)) fill="url(#p-closed)" {} }
                    @if width > 40.0 { text x=(units(from + width / 2.0)) y="25" text-anchor="middle" { (allowed(interval)) } }
                }
            }
        }
    }
}
