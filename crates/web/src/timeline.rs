//! Time: what the cluster cost, with the commands below it and pods that waited above.

use crate::boxes::choice;
use crate::draw::{change, count, dollars, moment};
use crate::panels::cost_words;
use crate::query::Query;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use spokeshave_charts::{TimeAxis, round_top, units};
use spokeshave_model::Price;
use spokeshave_view::{Entry, Range, Sample, View};
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const TOP: f64 = 16.0;
const CHART: f64 = 96.0;
const LANE: f64 = 9.0;
const LANES: usize = 4;
const LEFT: f64 = 52.0;
/// The shortest stretch that is worth an axis.
const SHORTEST: SignedDuration = SignedDuration::from_mins(2);
/// Commands that are described in text.
const TOLD: usize = 6;

/// The requested range, without the part for which there is no data.
fn axis_of(view: &View, samples: &[Sample], range: Range) -> TimeAxis {
    let until = view.header.now;
    let begin = until.saturating_sub(range.length()).unwrap_or(Timestamp::MIN);
    let first = samples.first().map(|sample| sample.at);
    let command = view
        .commands
        .iter()
        .map(|entry| entry.decided)
        .find(|at| *at >= begin);
    let known = [first, command].into_iter().flatten().min().unwrap_or(until);
    let latest = until.saturating_sub(SHORTEST).unwrap_or(Timestamp::MIN);
    TimeAxis {
        from: known.max(begin).min(latest),
        until,
        left: LEFT,
        right: WIDTH,
    }
}

/// The panel.
pub(crate) fn panel(view: &View, query: &Query) -> Markup {
    let samples: Vec<Sample> = view.history.samples(query.range).copied().collect();
    let axis = axis_of(view, &samples, query.range);
    let highest = samples
        .iter()
        .map(|sample| sample.price)
        .max()
        .unwrap_or_default();
    let top = round_top(highest.max(view.header.price.0).dollars());
    let shown: Vec<&Entry> = view
        .commands
        .iter()
        .filter(|entry| entry.ended.unwrap_or(axis.until) >= axis.from)
        .collect();
    let height = TOP + CHART + 8.0 + LANE * LANES as f64 + 16.0;
    let done = &view.header.done;
    html! {
        section #time .panel aria-labelledby="time-title" {
            header {
                h2 #time-title { "Cost over time" }
                (choice("range", &Range::ALL, query.range, Range::as_str, |one| query.href(|query| query.range = one)))
                @if done.commands > 0 {
                    p .note {
                        (count(done.commands, "command")) " seen: " (count(usize::try_from(done.evictions).unwrap_or_default(), "eviction"))
                        ", saved " b { (dollars(done.realised.0)) "/h" }
                        @if done.realised != done.predicted { " (predicted " (dollars(done.predicted.0)) "/h)" }
                    }
                }
            }
            @if samples.len() < 2 && shown.is_empty() {
                p .empty { "The line begins when the program that serves this page begins to look; a dump has none." }
            } @else {
                svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(summary(view, &samples, shown.len())) {
                    (grid(&axis, top))
                    @if !samples.is_empty() {
                        path .cost d=(area(&axis, &samples, view, top)) {}
                        path .line d=(line(&axis, &samples, view, top)) {}
                        path .waiting d=(waiting(&axis, &samples)) {}
                    }
                    (bars(&axis, &shown))
                }
            }
            @if !shown.is_empty() {
                ul .commands {
                    @for entry in shown.iter().rev().take(TOLD) { (told(entry, view.header.now)) }
                    @if shown.len() > TOLD { li .note { "and " (shown.len() - TOLD) " before" } }
                }
            }
        }
    }
}

fn summary(view: &View, samples: &[Sample], commands: usize) -> String {
    let price = if view.header.knows("price") {
        cost_words(&view.header)
    } else {
        "price unknown".to_owned()
    };
    let before = samples
        .first()
        .map(|sample| format!("{}/h", dollars(sample.price)))
        .unwrap_or_default();
    format!(
        "{price} now, {before} at the left; {}.",
        count(commands, "command")
    )
}

fn y(price: Price, top: f64) -> f64 {
    TOP + CHART * (1.0 - (price.dollars() / top).clamp(0.0, 1.0))
}

fn grid(axis: &TimeAxis, top: f64) -> Markup {
    let (marks, format) = axis.marks();
    let bottom = TOP + CHART;
    html! {
        @for part in [0.0, 0.5, 1.0] {
            @let at = bottom - CHART * part;
            path .grid d=(format!("M{} {}H{WIDTH}", units(LEFT), units(at))) {}
            text .axis x=(units(LEFT - 6.0)) y=(units(at + 4.0)) text-anchor="end" { (dollars(Price::from_dollars(top * part))) }
        }
        @for mark in marks {
            @let x = axis.x(mark);
            path .grid d=(format!("M{} {}V{}", units(x), units(TOP), units(bottom + 4.0))) {}
            @if x < WIDTH - 24.0 && x > LEFT + 10.0 {
                text .axis x=(units(x)) y=(units(bottom + 8.0 + LANE * LANES as f64 + 12.0)) text-anchor="middle" { (mark.strftime(format).to_string()) }
            }
        }
    }
}

/// A price holds until the next one is known.
fn line(axis: &TimeAxis, samples: &[Sample], view: &View, top: f64) -> String {
    let known = samples.iter().map(|sample| (sample.at, sample.price));
    let last = samples.last().map(|sample| sample.price);
    let price = view.header.known_price(last);
    let now = (axis.until, price.unwrap_or(view.header.price.0));
    spokeshave_charts::steps(known.chain([now]).map(|(at, price)| (axis.x(at), y(price, top))))
}

fn area(axis: &TimeAxis, samples: &[Sample], view: &View, top: f64) -> String {
    let begin = samples.first().map_or(LEFT, |sample| axis.x(sample.at));
    spokeshave_charts::area(&line(axis, samples, view, top), TOP + CHART, begin)
}

/// A tick for each moment at which pods waited.
fn waiting(axis: &TimeAxis, samples: &[Sample]) -> String {
    let mut path = String::new();
    for sample in samples.iter().filter(|sample| sample.pending > 0) {
        let _ = write!(path, "M{} 4v8", units(axis.x(sample.at)));
    }
    path
}

fn bars(axis: &TimeAxis, entries: &[&Entry]) -> Markup {
    let mut ends = [f64::NEG_INFINITY; LANES];
    let top = TOP + CHART + 8.0;
    let placed = entries.iter().map(|entry| {
        let from = axis.x(entry.decided);
        let until = axis.x(entry.ended.unwrap_or(axis.until)).max(from + 4.0);
        // The first that is free, or else the one that is free soonest.
        let free = ends.iter().position(|end| *end + 1.0 <= from);
        let soonest = (0..LANES).min_by(|left, right| ends[*left].total_cmp(&ends[*right]));
        let lane = free.or(soonest).unwrap_or_default();
        ends[lane] = until;
        (entry, from, until, top + LANE * lane as f64)
    });
    let placed: Vec<_> = placed.collect();
    html! {
        @for (entry, from, until, y) in placed {
            rect .bar .(state(entry)) x=(units(from)) y=(units(y)) width=(units(until - from)) height=(units(LANE - 2.0)) rx="2" {
                title { (words(entry)) }
            }
        }
    }
}

fn state(entry: &Entry) -> &'static str {
    match (entry.phase.as_str(), entry.ended) {
        ("RolledBack", _) => "failed",
        (_, None) => "active",
        _ => "done",
    }
}

/// `replace 3 → 1, −$0.42/h predicted`.
fn words(entry: &Entry) -> String {
    let what = match entry.replacements.len() {
        0 => format!("delete {}", count(entry.nodes.len(), "node")),
        by => format!("replace {} → {by}", count(entry.nodes.len(), "node")),
    };
    let realised = match entry.realised {
        Some(realised) if realised != entry.predicted => format!(", {} realised", change(realised.0)),
        _ => String::new(),
    };
    format!(
        "{what}: {}, {} predicted{realised}, {}; {}",
        entry.reason.to_lowercase(),
        change(entry.predicted.0),
        count(usize::try_from(entry.evictions).unwrap_or_default(), "eviction"),
        entry.phase
    )
}

fn told(entry: &Entry, now: Timestamp) -> Markup {
    html! {
        li .(state(entry)) {
            (moment(entry.decided, now)) " " (words(entry))
            @if entry.phase != "Succeeded" && !entry.message.is_empty() { " (" (entry.message) ")" }
            span .note { " " (spokeshave_plan::report::some_of(&entry.nodes, 3)) }
        }
    }
}
