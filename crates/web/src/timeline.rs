//! Time: what the cluster cost, with the commands below it, pods that waited above, and behind it when budgets allowed nothing.

use crate::boxes::choice;
use crate::draw::{change, clock, count, dollars, moment, percent, time};
use crate::panels::cost_words;
use crate::query::{Query, Span};
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use spokeshave_charts::{TimeAxis, round_top, units};
use spokeshave_model::Price;
use spokeshave_view::{Entry, Sample, Stretch, View};
use std::fmt::Write as _;

const WIDTH: f64 = 1000.0;
const TOP: f64 = 16.0;
const CHART: f64 = 96.0;
const LANE: f64 = 9.0;
const LANES: usize = 4;
const LEFT: f64 = 52.0;
/// What is narrower is not to be told from what is beside it.
const NARROW: f64 = 1.0;
/// The shortest bar.
const BAR: f64 = 4.0;
/// The shortest stretch that is worth an axis.
const SHORTEST: SignedDuration = SignedDuration::from_mins(2);
/// Commands that are described beside the drawing; those before are a step away.
const TOLD: usize = 6;
/// Stretches without budget that are told in words.
const CLOSED: usize = 40;

/// What is drawn: a stretch of time with what is known of it.
struct Plot<'a> {
    axis: TimeAxis,
    /// It ends now, and not at a time that was asked for.
    is_newest: bool,
    /// More is known of before.
    has_earlier: bool,
    samples: Vec<Sample>,
    /// The price at the right end: one holds until the next is known.
    last_price: Price,
    entries: Vec<&'a Entry>,
    closures: Vec<Stretch>,
}

impl<'a> Plot<'a> {
    /// The requested stretch, without the part before anything is known.
    fn of(view: &'a View, query: &Query) -> Self {
        let now = view.header.now;
        let asked = query.until.filter(|until| *until < now);
        let until = asked.unwrap_or(now);
        let before = |length: SignedDuration| until.saturating_sub(length).unwrap_or(Timestamp::MIN);
        let begin = before(query.range.length());
        let first = view.history.first();
        let mut decided = view.commands.iter().map(|entry| entry.decided);
        let has_earlier = decided.clone().chain(first).any(|at| at < begin);
        let command = decided.find(|at| *at >= begin);
        let known = [first, command].into_iter().flatten().min().unwrap_or(until);
        let axis = TimeAxis {
            from: known.max(begin).min(before(SHORTEST)),
            until,
            left: LEFT,
            right: WIDTH,
        };
        // By another clock something may have been decided a little later than now.
        let is_in = |entry: &&Entry| {
            let is_decided = asked.is_none() || entry.decided <= until;
            is_decided && entry.ended.unwrap_or(now) >= axis.from
        };
        let samples = view.history.between(axis.from, until);
        let last = samples.last().map(|sample| sample.price);
        let last_price = match asked {
            Some(_) => last.unwrap_or_default(),
            None => view.header.known_price(last).unwrap_or(view.header.price.0),
        };
        Self {
            is_newest: asked.is_none(),
            has_earlier,
            samples,
            last_price,
            entries: view.commands.iter().filter(is_in).collect(),
            closures: view.history.closures(query.pool.as_deref(), axis.from, until),
            axis,
        }
    }

    /// Why there is nothing to draw, if there is not.
    fn emptiness(&self) -> Option<&'static str> {
        match (self.entries.len(), self.samples.len(), self.is_newest) {
            (0, 0 | 1, true) => Some(
                "The line begins when the program that serves this page begins to look; a dump has none.",
            ),
            (0, 0, false) => Some("Nothing is remembered of this time."),
            _ => None,
        }
    }
}

/// The panel.
pub(crate) fn panel(view: &View, query: &Query) -> Markup {
    let plot = Plot::of(view, query);
    let samples = plot.samples.iter().map(|sample| sample.price);
    let highest = samples.chain([plot.last_price]).max().unwrap_or_default();
    let top = round_top(highest.dollars());
    let height = TOP + CHART + 8.0 + LANE * LANES as f64 + 16.0;
    let bands = bands(&plot.axis, &plot.closures, query.pool.as_deref());
    html! {
        section #time .panel aria-labelledby="time-title" {
            header {
                h2 #time-title { "Cost over time" }
                (choice("range", Span::ALL, query.range, Span::as_str, |one| query.href(|query| query.range = one)))
                (moves(&plot, view, query))
                (sums(view))
            }
            @if let Some(why) = plot.emptiness() {
                p .empty { (why) }
            } @else {
                svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(summary(view, &plot)) {
                    (behind(&bands))
                    (grid(&plot.axis, top))
                    @if !plot.samples.is_empty() {
                        @let line = line(&plot, top);
                        path .cost d=(area(&plot, &line)) {}
                        path .line d=(line) {}
                        path .waiting d=(waiting(&plot.axis, &plot.samples)) {}
                    }
                    (bars(&plot.axis, &plot.entries))
                }
                (legend(&plot, query))
                @if !bands.is_empty() { (closed(&bands)) }
            }
            @if !plot.entries.is_empty() {
                ul .commands { @for entry in plot.entries.iter().rev().take(TOLD) { (told(entry, view.header.now)) } }
            }
            @if plot.entries.len() > TOLD {
                details #before {
                    summary { "and " (plot.entries.len() - TOLD) " before" }
                    ul .commands { @for entry in plot.entries.iter().rev().skip(TOLD) { (told(entry, view.header.now)) } }
                }
            }
        }
    }
}

/// What all commands have saved.
fn sums(view: &View) -> Markup {
    let done = &view.header.done;
    html! {
        @if done.commands > 0 {
            p .note {
                (count(done.commands, "command")) " seen: " (count(usize::try_from(done.evictions).unwrap_or_default(), "eviction"))
                ", saved " b { (dollars(done.realised.0)) "/h" }
                @if done.realised != done.predicted { " (predicted " (dollars(done.predicted.0)) "/h)" }
            }
        }
    }
}

/// Earlier and later, by half of what is spanned.
fn moves(plot: &Plot<'_>, view: &View, query: &Query) -> Markup {
    let half = query.range.length() / 2;
    let earlier = plot.axis.until.saturating_sub(half).ok();
    let later = plot.axis.until.saturating_add(half).ok();
    let later = later.filter(|later| *later < view.header.now);
    let format = "%Y-%m-%d %H:%M:%S UTC";
    html! {
        @if plot.has_earlier || !plot.is_newest {
            nav .choice aria-label="stretch of time" {
                @if plot.has_earlier { a #earlier href=(query.ending(earlier)) { "earlier" } }
                @if !plot.is_newest {
                    a #later href=(query.ending(later)) { "later" }
                    a #newest href=(query.ending(None)) { "newest" }
                }
            }
        }
        @if !plot.is_newest { p .note { (time(plot.axis.from, format)) " to " (time(plot.axis.until, format)) } }
    }
}

fn summary(view: &View, plot: &Plot<'_>) -> String {
    let price = match (plot.is_newest, view.header.knows("price")) {
        (true, true) => format!("{} now", cost_words(&view.header)),
        (true, false) => "price unknown now".to_owned(),
        (false, _) if plot.samples.is_empty() => "price unknown at the right".to_owned(),
        (false, _) => format!("{}/h at the right", dollars(plot.last_price)),
    };
    let before = plot.samples.first();
    let before = before.map_or("price unknown".to_owned(), |sample| {
        format!("{}/h", dollars(sample.price))
    });
    let closed = plot.closures.iter().filter(|one| one.is_whole());
    let closed: SignedDuration = closed.map(|one| one.until.duration_since(one.from)).sum();
    let whole = plot.axis.until.duration_since(plot.axis.from);
    let closed = match closed.as_secs() * 1000 / whole.as_secs().max(1) {
        0 => String::new(),
        share => format!("; budgets allowed nothing for {} of it", percent(share)),
    };
    format!(
        "{price}, {before} at the left; {}{closed}.",
        count(plot.entries.len(), "command")
    )
}

/// What is said of a stretch in which budgets allowed nothing for something.
fn closed_words(one: &Stretch, pool: Option<&str>) -> String {
    let reasons: Vec<String> = one.reasons().map(str::to_lowercase).collect();
    match pool {
        Some(pool) => format!("budgets of {pool} allow nothing for {}", reasons.join(", ")),
        None if one.is_whole() => "budgets of all NodePools allow nothing".to_owned(),
        None => format!(
            "{} of {} allow nothing for some reason",
            one.closed,
            count(usize::try_from(one.budgets).unwrap_or_default(), "budget")
        ),
    }
}

/// A stretch behind the curve; more than one, where they are too narrow to be told apart.
struct Band {
    from: f64,
    until: f64,
    is_whole: bool,
    began: String,
    words: String,
}

fn bands(axis: &TimeAxis, closures: &[Stretch], pool: Option<&str>) -> Vec<Band> {
    let format = clock(axis.until.duration_since(axis.from));
    let when = |at: Timestamp| at.strftime(format).to_string();
    let mut bands: Vec<Band> = Vec::new();
    for one in closures {
        let (from, until) = (axis.x(one.from), axis.x(one.until));
        match bands.last_mut() {
            Some(last) if until - last.until < NARROW && last.until - last.from < NARROW => {
                last.until = until;
                last.is_whole = false;
                last.words = format!(
                    "{} to {} UTC: budgets allow nothing now and then",
                    last.began,
                    when(one.until)
                );
            }
            _ => {
                let (began, words) = (when(one.from), closed_words(one, pool));
                bands.push(Band {
                    from,
                    until,
                    is_whole: one.is_whole(),
                    words: format!("{began} to {} UTC: {words}", when(one.until)),
                    began,
                });
            }
        }
    }
    bands
}

/// When budgets allowed nothing: faint behind the curve, and clear below it.
fn behind(bands: &[Band]) -> Markup {
    html! {
        @for band in bands {
            // What has no width is not drawn.
            @let (x, width) = (units(band.from.min(WIDTH - NARROW)), units((band.until - band.from).max(NARROW)));
            g .shut .whole[band.is_whole] {
                title { (band.words) }
                rect .band x=(x) y=(units(TOP)) width=(width) height=(units(CHART)) {}
                rect .lid x=(x) y=(units(TOP + CHART + 1.5)) width=(width) height="4" {}
            }
        }
    }
}

/// The same in words, for those who do not point at it; the last first, as commands are.
fn closed(bands: &[Band]) -> Markup {
    html! {
        details #closures {
            summary { "when budgets allowed nothing" }
            ul {
                @for band in bands.iter().rev().take(CLOSED) { li { (band.words) } }
                @if bands.len() > CLOSED { li .note { "and " (bands.len() - CLOSED) " before" } }
            }
        }
    }
}

fn legend(plot: &Plot<'_>, query: &Query) -> Markup {
    let swatch = |is_whole: bool| {
        html! {
            svg .swatch viewBox="0 0 16 12" aria-hidden="true" {
                g .shut .whole[is_whole] { rect .band width="16" height="7" {} rect .lid x="1" y="7.5" width="14" height="4" {} }
            }
        }
    };
    let whose = match &query.pool {
        Some(pool) => format!("budgets of {pool}"),
        None => "budgets of all NodePools".to_owned(),
    };
    html! {
        ul .legend {
            @if plot.closures.is_empty() { li .note { "No time was seen in which any of the " (whose) " allowed nothing." } }
            @else {
                li { (swatch(true)) (whose) " allow nothing" }
                li { (swatch(false)) "nothing for some reason" @if query.pool.is_none() { " of some NodePool" } }
            }
            @if query.pool.is_some() { li { a #every-pool href=(query.href(|query| query.pool = None)) { "of all NodePools" } } }
            @else { li .note { "One NodePool: its name under Disruption budgets." } }
        }
    }
}

fn y(price: Price, top: f64) -> f64 {
    TOP + CHART * (1.0 - (price.dollars() / top).clamp(0.0, 1.0))
}

fn grid(axis: &TimeAxis, top: f64) -> Markup {
    let (marks, format) = axis.marks();
    let bottom = TOP + CHART;
    let below = bottom + 8.0 + LANE * LANES as f64 + 12.0;
    html! {
        // Whatever zone the reader chooses for other times.
        text .axis x=(units(LEFT - 12.0)) y=(units(below)) text-anchor="end" { "UTC" }
        @for part in [0.0, 0.5, 1.0] {
            @let at = bottom - CHART * part;
            path .grid d=(format!("M{} {}H{WIDTH}", units(LEFT), units(at))) {}
            text .axis x=(units(LEFT - 6.0)) y=(units(at + 4.0)) text-anchor="end" { (dollars(Price::from_dollars(top * part))) }
        }
        @for mark in marks {
            @let x = axis.x(mark);
            path .grid d=(format!("M{} {}V{}", units(x), units(TOP), units(bottom + 4.0))) {}
            @if x < WIDTH - 24.0 && x > LEFT + 10.0 {
                text .axis x=(units(x)) y=(units(below)) text-anchor="middle" { (mark.strftime(format).to_string()) }
            }
        }
    }
}

fn line(plot: &Plot<'_>, top: f64) -> String {
    let known = plot.samples.iter().map(|sample| (sample.at, sample.price));
    let points = known.chain([(plot.axis.until, plot.last_price)]);
    spokeshave_charts::steps(points.map(|(at, price)| (plot.axis.x(at), y(price, top))))
}

/// What lies below the line.
fn area(plot: &Plot<'_>, line: &str) -> String {
    let first = plot.samples.first();
    let begin = first.map_or(LEFT, |sample| plot.axis.x(sample.at));
    spokeshave_charts::area(line, TOP + CHART, begin)
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
    let format = clock(axis.until.duration_since(axis.from));
    let placed = entries.iter().map(|entry| {
        // What was decided just now is not beyond the edge.
        let from = axis.x(entry.decided).min(WIDTH - BAR);
        let until = axis.x(entry.ended.unwrap_or(axis.until)).max(from + BAR);
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
                title { (entry.decided.strftime(format).to_string()) " UTC: " (words(entry)) }
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

/// `replace 3 nodes → 1: underutilized, −$0.42/h predicted, 2 evictions; Draining`.
fn words(entry: &Entry) -> String {
    entry.words("→", change)
}

fn told(entry: &Entry, now: Timestamp) -> Markup {
    html! {
        li .(state(entry)) {
            (moment(entry.decided, now)) " " (words(entry))
            @if let Some(why) = entry.why() { " (" (why) ")" }
            span .note { " " (spokeshave_plan::report::some_of(&entry.nodes, 3)) }
        }
    }
}

#[cfg(test)]
mod tests;
