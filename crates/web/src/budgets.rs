//! When disruption budgets allow how many nodes: seven days, one row for each NodePool and reason, from the same intervals as `spokeshave budgets`.

use crate::draw::{clock, count};
use crate::query::Query;
use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};
use spokeshave_charts::units;
use spokeshave_plan::calendar::Interval;
use spokeshave_view::{BudgetDay, BudgetNow, Budgets, PoolCalendar, View};

const WIDTH: f64 = 1000.0;
const ROW: f64 = 36.0;
/// NodePools that are drawn.
const POOLS: usize = 25;

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
    html! {
        h3 { a href=(query.href(|query| query.pool = chosen)) data-pool=(pool.pool) aria-current=[is_chosen.then_some("true")] title="show its past behind the time axis, or that of all again" { (pool.pool) } }
        table .calendar {
            thead { tr { th scope="col" { "reason" } th scope="col" { "now" } th scope="col" { "next seven days" } } }
            tbody {
                @for day in &pool.reasons {
                    tr {
                        th scope="row" { (day.reason.to_lowercase()) }
                        td { @match now.iter().find(|now| now.reason == day.reason) { Some(now) => (state(now, day)), None => "?", } }
                        td { (lane(day.with_a_node.as_ref().unwrap_or(&day.intervals), &pool.budgets)) }
                    }
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

/// One reason: a stretch for each interval, those that allow nothing hatched.
fn lane(intervals: &[Interval], budgets: &[String]) -> Markup {
    let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else {
        return html! {};
    };
    let whole = last.until.duration_since(first.from).as_secs_f64().max(1.0);
    let x = |at: Timestamp| at.duration_since(first.from).as_secs_f64() / whole * WIDTH;
    let when = |interval: &Interval| {
        let format = clock(interval.until.duration_since(interval.from));
        let [from, until] = [interval.from, interval.until].map(|at| at.strftime(format).to_string());
        match (interval.from == first.from, interval.until == last.until) {
            (true, true) => "all seven days".to_owned(),
            (true, false) => format!("until {until}"),
            (false, true) => format!("from {from} on"),
            (false, false) => format!("{from} to {until}"),
        }
    };
    let words = |interval: &Interval| {
        format!(
            "{}: {} ({})",
            when(interval),
            allowed(interval),
            limited_by(interval, budgets)
        )
    };
    let told: Vec<String> = intervals.iter().take(20).map(words).collect();
    html! {
        svg .lane viewBox=(format!("0 0 {WIDTH} {ROW}")) role="img" aria-label=(told.join(". ")) {
            @for interval in intervals {
                @let from = x(interval.from);
                @let width = x(interval.until) - from;
                rect .open[interval.allowed > 0] .closed[interval.allowed == 0] x=(units(from)) width=(units(width)) height=(units(ROW)) { title { (words(interval)) } }
                @if interval.allowed == 0 { rect .pattern x=(units(from)) width=(units(width)) height=(units(ROW)) fill="url(#p-closed)" {} }
                @if width > 40.0 { text x=(units(from + width / 2.0)) y="25" text-anchor="middle" { (allowed(interval)) } }
            }
        }
    }
}
