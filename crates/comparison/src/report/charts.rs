//! The charts of the report, as SVG that CSS colours.
//!
//! Owns what is drawn where. Policies differ by colour, dash and marker, and each chart says in words what it shows.

use jiff::Timestamp;
use maud::{Markup, html};
use spokeshave_charts::{Scale, TimeAxis, polyline, round_top, units};

use super::{key, style_of};
use crate::compare::{Comparison, PolicyResult, Summary};
use crate::curves::MeanCurve;
use crate::numbers;
use crate::table::shown_name;
use crate::unit::Unit;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 990.0;
/// Rows of the table below the chart of cost.
const STRETCHES: usize = 10;

/// The marker of a policy around a point: circle, square, triangle, diamond, and the same hollow.
pub(super) fn marker(place: usize, x: f64, y: f64) -> Markup {
    let point = |dx: f64, dy: f64| format!("{} {}", units(x + dx), units(y + dy));
    let hollow = place % 8 >= 4;
    html! {
        @match place % 4 {
            0 => { circle .mark .hollow[hollow] cx=(units(x)) cy=(units(y)) r="4" {} }
            1 => { rect .mark .hollow[hollow] x=(units(x - 4.0)) y=(units(y - 4.0)) width="8" height="8" {} }
            2 => { path .mark .hollow[hollow] d=(format!("M{}L{}L{}Z", point(0.0, -5.0), point(5.0, 4.0), point(-5.0, 4.0))) {} }
            _ => { path .mark .hollow[hollow] d=(format!("M{}L{}L{}L{}Z", point(0.0, -5.5), point(5.5, 0.0), point(0.0, 5.5), point(-5.5, 0.0))) {} }
        }
    }
}

/// Policies with completed runs and their places.
fn drawn(comparison: &Comparison) -> impl Iterator<Item = (usize, &PolicyResult)> {
    let policies = comparison.policies.iter().enumerate();
    policies.filter(|(_, policy)| !policy.curve.cost_per_hour.is_empty())
}

fn legend(comparison: &Comparison) -> Markup {
    html! {
        ul .legend {
            @for (place, policy) in drawn(comparison) { li { (key(place, policy)) } }
        }
    }
}

/// A chart with its title, its text alternative, and its caption.
fn figure(
    id: &str,
    title: &str,
    says: &str,
    height: f64,
    width: f64,
    above: Markup,
    drawing: Markup,
    below: Markup,
) -> Markup {
    let is_wide = width > 600.0;
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (title) }
            (above)
            figure {
                // A wide drawing stays legible on a narrow screen, which scrolls it.
                div .scroll[is_wide] tabindex=[is_wide.then_some("0")] role=[is_wide.then_some("region")] aria-label=[is_wide.then_some("Chart")] {
                    svg .wide[is_wide] viewBox=(format!("0 0 {width} {height}")) role="img" aria-labelledby={ (id) "-t" } aria-describedby={ (id) "-d" } {
                        title id={ (id) "-t" } { (title) }
                        desc id={ (id) "-d" } { (says) }
                        (drawing)
                    }
                }
                figcaption { (below) }
            }
        }
    }
}

/// Whose cost is low because pods were left out.
fn less_work(comparison: &Comparison) -> Markup {
    let names = comparison.with_less_work();
    html! {
        @if !names.is_empty() {
            " " strong { (names.join(", ")) } ": pods were left without a node that had one under another policy, and cost nothing."
        }
    }
}

/// The whole simulated time.
fn time_axis(comparison: &Comparison) -> TimeAxis {
    let from: Timestamp = comparison.setting.start.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    let axis = TimeAxis {
        from,
        until: from,
        left: LEFT,
        right: RIGHT,
    };
    let length = drawn(comparison)
        .map(|(_, policy)| policy.curve.length_ms())
        .max()
        .unwrap_or_default();
    let until = TimeAxis {
        until: Timestamp::MAX,
        ..axis
    }
    .after(length.max(comparison.setting.duration_ms));
    TimeAxis { until, ..axis }
}

/// Lines of a grid with numbers at the left and times below, and the warm-up as a shade.
fn frame(comparison: &Comparison, axis: &TimeAxis, scale: &Scale, label: impl Fn(f64) -> String) -> Markup {
    let (marks, format) = axis.marks();
    let warm = axis.x(axis.after(comparison.setting.warmup_ms));
    html! {
        @if comparison.setting.warmup_ms > 0 {
            rect .warm x=(units(LEFT)) y=(units(scale.high)) width=(units(warm - LEFT)) height=(units(scale.low - scale.high)) { title { "Warm-up: simulated, not counted" } }
            @if warm - LEFT > 60.0 { text .axis x=(units(LEFT + 4.0)) y=(units(scale.high + 12.0)) { "warm-up" } }
        }
        @for mark in scale.marks(5) {
            path .grid d=(format!("M{} {}H{}", units(LEFT), units(scale.at(mark)), units(RIGHT))) {}
            text .axis x=(units(LEFT - 6.0)) y=(units(scale.at(mark) + 4.0)) text-anchor="end" { (label(mark)) }
        }
        @for mark in marks {
            @let x = axis.x(mark);
            path .grid d=(format!("M{} {}V{}", units(x), units(scale.high), units(scale.low + 4.0))) {}
            @if x < RIGHT - 20.0 { text .axis x=(units(x)) y=(units(scale.low + 17.0)) text-anchor="middle" { (mark.strftime(format).to_string()) } }
        }
    }
}

/// Points in the middle of their stretches.
fn course(axis: &TimeAxis, scale: &Scale, curve: &MeanCurve, values: &[f64]) -> String {
    polyline(curve.stretches().zip(values).map(|((begin, length), value)| {
        let middle = begin + length / 2;
        (axis.x(axis.after(middle)), scale.at(*value))
    }))
}

fn per_hour(value: f64) -> String {
    format!("{}/h", numbers::value(value, Unit::Dollars))
}

/// Dollars with no more digits than round marks need.
fn mark_dollars(value: f64) -> String {
    let text = numbers::value(value, Unit::Dollars);
    text.strip_suffix(".00").map_or(text.clone(), str::to_owned)
}

/// Cost per hour of every policy over time, with the lower bound.
pub(super) fn cost(comparison: &Comparison) -> Markup {
    let axis = time_axis(comparison);
    let highest = drawn(comparison)
        .flat_map(|(_, policy)| policy.curve.cost_per_hour.iter().copied())
        .fold(0.0, f64::max);
    let scale = Scale {
        from: 0.0,
        until: round_top(highest),
        low: 250.0,
        high: 8.0,
    };
    let baseline = comparison.policies.iter().find(|policy| policy.baseline);
    let bound = baseline.filter(|policy| policy.curve.bound_per_hour.iter().any(|value| *value > 0.0));
    let says: Vec<String> = drawn(comparison)
        .map(|(_, policy)| {
            let values = &policy.curve.cost_per_hour;
            let (low, high) = (
                values.iter().copied().fold(f64::INFINITY, f64::min),
                values.iter().copied().fold(0.0, f64::max),
            );
            format!(
                "{}: between {} and {}",
                policy.name,
                per_hour(low),
                per_hour(high)
            )
        })
        .collect();
    let drawing = html! {
        (frame(comparison, &axis, &scale, mark_dollars))
        @if let Some(policy) = bound {
            path .bound d=(course(&axis, &scale, &policy.curve, &policy.curve.bound_per_hour)) { title { "Lower bound" } }
        }
        @for (place, policy) in drawn(comparison) {
            g .(style_of(place)) {
                path .line data-course=(policy.name) data-top=(scale.until) d=(course(&axis, &scale, &policy.curve, &policy.curve.cost_per_hour)) { title { (shown_name(policy)) } }
            }
        }
    };
    let above = html! {
        div .above {
            (legend(comparison))
            @if bound.is_some() {
                span .key { svg .swatch viewBox="0 0 26 12" aria-hidden="true" { path .bound d="M0 6H26" {} } "lower bound" }
            }
        }
    };
    let below = html! {
        "Dollars per hour, mean over seeds; each point is the mean of " (numbers::span(comparison.policies.first().map_or(0, |policy| policy.curve.step_ms))) "."
        @if bound.is_some() { " The bound is that of " (comparison.setting.baseline) ": the least that its running pods could cost on its NodePools if pods and machines could be split at will. Policies with other NodePools may be cheaper." }
        (stretches(comparison, &axis))
    };
    figure(
        "cost",
        "Cost per hour",
        &format!("{}.", says.join("; ")),
        275.0,
        WIDTH,
        above,
        drawing,
        below,
    )
}

/// The course as a table, for those who do not see the chart.
fn stretches(comparison: &Comparison, axis: &TimeAxis) -> Markup {
    let Some(longest) = drawn(comparison)
        .map(|(_, policy)| policy.curve.cost_per_hour.len())
        .max()
    else {
        return html! {};
    };
    let rows = longest.min(STRETCHES);
    let mean = |policy: &PolicyResult, row: usize| {
        let values = &policy.curve.cost_per_hour;
        let (from, until) = (row * longest / rows, (row + 1) * longest / rows);
        let part = values.iter().zip(policy.curve.stretches());
        let (mut dollars, mut lasted) = (0.0, 0);
        for (value, (_, length)) in part.take(until).skip(from) {
            dollars += value * length as f64;
            lasted += length;
        }
        if lasted == 0 {
            "–".to_owned()
        } else {
            per_hour(dollars / lasted as f64)
        }
    };
    let begins = |row: usize| {
        let step = drawn(comparison)
            .map(|(_, policy)| policy.curve.step_ms)
            .next()
            .unwrap_or_default();
        axis.after((row * longest / rows) as u64 * step)
            .strftime("%Y-%m-%d %H:%M")
            .to_string()
    };
    html! {
        details {
            summary { "The same in numbers" }
            table {
                caption { "Mean dollars per hour from the time on that begins the row" }
                thead { tr { th scope="col" { "From" } @for (place, policy) in drawn(comparison) { th scope="col" .number { (key(place, policy)) } } } }
                tbody {
                    @for row in 0..rows {
                        tr { th scope="row" { (begins(row)) } @for (_, policy) in drawn(comparison) { td .number { (mean(policy, row)) } } }
                    }
                }
            }
        }
    }
}

/// What each policy costs more or less than the baseline over time: lines that lie on each other above are apart here.
pub(super) fn difference(comparison: &Comparison) -> Markup {
    let Some(baseline) = drawn(comparison)
        .map(|(_, policy)| policy)
        .find(|policy| policy.baseline)
    else {
        return html! {};
    };
    let others: Vec<(usize, &PolicyResult, Vec<f64>)> = drawn(comparison)
        .filter(|(_, policy)| !policy.baseline)
        .map(|(place, policy)| {
            let own = policy.curve.cost_per_hour.iter();
            let pairs = own.zip(&baseline.curve.cost_per_hour);
            // Dollars more since the end of the warm-up: a running sum, in which noise averages out.
            let warm = comparison.setting.warmup_ms;
            let mut sum = 0.0;
            let sums = policy.curve.stretches().zip(pairs);
            let sums = sums.map(|((begin, length), (own, base))| {
                let counted = (begin + length).saturating_sub(warm.max(begin));
                sum += (own - base) * counted as f64 / 3_600_000.0;
                sum
            });
            (place, policy, sums.collect())
        })
        .collect();
    if others.is_empty() {
        return html! {};
    }
    let all = || others.iter().flat_map(|(_, _, values)| values.iter().copied());
    let (low, high) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
    let scale = Scale {
        from: if low < 0.0 { -round_top(-low) } else { 0.0 },
        until: if high > 0.0 { round_top(high) } else { 0.01 },
        low: 190.0,
        high: 8.0,
    };
    let axis = time_axis(comparison);
    let says: Vec<String> = others
        .iter()
        .map(|(_, policy, values)| {
            let last = values.last().copied().unwrap_or_default();
            let words = if last < 0.0 { "less" } else { "more" };
            format!(
                "{} {} {words} in the end",
                policy.name,
                numbers::value(last.abs(), Unit::Dollars)
            )
        })
        .collect();
    let signed = |value: f64| {
        let text = mark_dollars(value);
        if value > 0.0 { format!("+{text}") } else { text }
    };
    let drawing = html! {
        (frame(comparison, &axis, &scale, signed))
        path .zero d=(format!("M{} {}H{}", units(LEFT), units(scale.at(0.0)), units(RIGHT))) {}
        @for (place, policy, values) in &others {
            g .(style_of(*place)) {
                path .line d=(course(&axis, &scale, &policy.curve, values)) { title { (shown_name(policy)) } }
                @if let Some(((begin, length), last)) = policy.curve.stretches().zip(values).last() {
                    (marker(*place, axis.x(axis.after(begin + length / 2)), scale.at(*last)))
                }
            }
        }
    };
    let above = html! { div .above { ul .legend { @for (place, policy, _) in &others { li { (key(*place, policy)) } } } } };
    let below = html! { "Dollars spent more (above the line) or less (below) than " (comparison.setting.baseline) " since the end of the warm-up, mean over seeds." (less_work(comparison)) };
    let title = format!("What each policy spends beyond {}", comparison.setting.baseline);
    figure(
        "difference",
        &title,
        &format!("{}.", says.join("; ")),
        215.0,
        WIDTH,
        above,
        drawing,
        below,
    )
}

/// A mean and how far the paired difference from the baseline may be off on both sides.
struct Spot {
    mean: f64,
    low: f64,
    high: f64,
}

fn spot(summary: &Summary) -> Spot {
    let around = summary.against.as_ref().and_then(|against| {
        let interval = against.interval?;
        Some((interval.low - against.mean, interval.high - against.mean))
    });
    let (below, above) = around.unwrap_or_default();
    Spot {
        mean: summary.mean,
        low: summary.mean + below,
        high: summary.mean + above,
    }
}

/// Cost against evictions.
pub(super) fn pareto(comparison: &Comparison) -> Markup {
    const SIDE: f64 = 520.0;
    let spots: Vec<(usize, &PolicyResult, Spot, Spot)> = comparison
        .policies
        .iter()
        .enumerate()
        .filter_map(|(place, policy)| {
            let (cost, evictions) = (
                policy.values.get("cost")?,
                policy.values.get("evictionsPerPodDay")?,
            );
            Some((place, policy, spot(evictions), spot(cost)))
        })
        .collect();
    if spots.is_empty() {
        return html! {};
    }
    let ends = |of: fn(&(usize, &PolicyResult, Spot, Spot)) -> (f64, f64)| {
        let all = || spots.iter().map(of);
        (
            all().map(|(low, _)| low).fold(f64::INFINITY, f64::min),
            all().map(|(_, high)| high).fold(f64::NEG_INFINITY, f64::max),
        )
    };
    let (_, most_evictions) = ends(|(_, _, evictions, _)| (evictions.low, evictions.high));
    let (least, most) = ends(|(_, _, _, cost)| (cost.low, cost.high));
    let margin = ((most - least) * 0.12).max(most * 0.005);
    let x = Scale {
        from: 0.0,
        until: round_top(most_evictions.max(0.0)),
        low: LEFT,
        high: SIDE - 14.0,
    };
    let y = Scale {
        from: least - margin,
        until: most + margin,
        low: 270.0,
        high: 10.0,
    };
    let says: Vec<String> = spots
        .iter()
        .map(|(_, policy, evictions, cost)| {
            format!(
                "{}: {} and {} evictions per pod and day",
                policy.name,
                numbers::value(cost.mean, Unit::Dollars),
                numbers::value(evictions.mean, Unit::PerPodDay)
            )
        })
        .collect();
    let drawing = html! {
        @for mark in y.marks(6) {
            path .grid d=(format!("M{} {}H{}", units(x.low), units(y.at(mark)), units(x.high))) {}
            text .axis x=(units(LEFT - 6.0)) y=(units(y.at(mark) + 4.0)) text-anchor="end" { (mark_dollars(mark)) }
        }
        @for mark in x.marks(5) {
            path .grid d=(format!("M{} {}V{}", units(x.at(mark)), units(y.high), units(y.low + 4.0))) {}
            text .axis x=(units(x.at(mark))) y=(units(y.low + 17.0)) text-anchor="middle" { (plain(mark)) }
        }
        @for (place, policy, evictions, cost) in &spots {
            @let (at_x, at_y) = (x.at(evictions.mean), y.at(cost.mean));
            @let right = at_x < SIDE * 0.7;
            g .(style_of(*place)) {
                path .error d=(format!("M{} {}H{}M{} {}V{}", units(x.at(evictions.low)), units(at_y), units(x.at(evictions.high)), units(at_x), units(y.at(cost.low)), units(y.at(cost.high)))) {}
                (marker(*place, at_x, at_y))
                text .name x=(units(if right { at_x + 9.0 } else { at_x - 9.0 })) y=(units(at_y - 7.0)) text-anchor=(if right { "start" } else { "end" }) { (shown_name(policy)) }
            }
        }
        text .axis x=(units(x.high)) y=(units(y.low + 31.0)) text-anchor="end" { "evictions per pod and day →" }
    };
    let below = html! {
        "Lower and further left is better. Crosses are intervals of the paired differences from " (comparison.setting.baseline)
        ": two policies whose crosses overlap may well be equal. The axis of cost does not begin at 0."
        (less_work(comparison))
    };
    figure(
        "pareto",
        "Cost against evictions",
        &format!("{}.", says.join("; ")),
        310.0,
        SIDE,
        html! {},
        drawing,
        below,
    )
}

fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

/// Which share of pods had a node after so many seconds.
pub(super) fn waiting(comparison: &Comparison) -> Markup {
    const SIDE: f64 = 520.0;
    let with: Vec<(usize, &PolicyResult)> = comparison
        .policies
        .iter()
        .enumerate()
        .filter(|(_, policy)| !policy.waiting.seconds.is_empty())
        .collect();
    let Some(longest) = with
        .iter()
        .filter_map(|(_, policy)| policy.waiting.seconds.last().copied())
        .reduce(f64::max)
    else {
        return html! {};
    };
    // Before the first pod has a node there is nothing to see.
    let first = with
        .iter()
        .map(|(_, policy)| {
            let mut shares = policy.waiting.seconds.iter().zip(&policy.waiting.highest);
            shares
                .rfind(|(_, share)| **share == 0.0)
                .map_or(0.1, |(seconds, _)| *seconds)
        })
        .fold(f64::INFINITY, f64::min);
    let until = longest.max(10.0);
    let from = (first / 1.5).clamp(0.1, until / 10.0);
    let x = Scale {
        from: from.log10(),
        until: until.log10(),
        low: LEFT,
        high: SIDE - 14.0,
    };
    let y = Scale {
        from: 0.0,
        until: 1.0,
        low: 270.0,
        high: 10.0,
    };
    let at = |seconds: f64| x.at(seconds.max(0.1).log10());
    let marks = [
        (0.1, "0.1 s"),
        (1.0, "1 s"),
        (3.0, "3 s"),
        (10.0, "10 s"),
        (30.0, "30 s"),
        (60.0, "1 min"),
        (180.0, "3 min"),
        (600.0, "10 min"),
        (3_600.0, "1 h"),
        (36_000.0, "10 h"),
        (360_000.0, "100 h"),
    ];
    let says: Vec<String> = with
        .iter()
        .filter_map(|(_, policy)| {
            let mut shares = policy.waiting.seconds.iter().zip(&policy.waiting.share);
            let minute = shares.rfind(|(seconds, _)| **seconds <= 60.0)?;
            Some(format!(
                "{}: {} of pods had a node within a minute",
                policy.name,
                numbers::value(*minute.1, Unit::Share)
            ))
        })
        .collect();
    let drawing = html! {
        @for mark in [0.0, 0.25, 0.5, 0.75, 1.0] {
            path .grid d=(format!("M{} {}H{}", units(x.low), units(y.at(mark)), units(x.high))) {}
            text .axis x=(units(LEFT - 6.0)) y=(units(y.at(mark) + 4.0)) text-anchor="end" { (format!("{:.0} %", mark * 100.0)) }
        }
        @for (seconds, label) in marks.into_iter().filter(|(seconds, _)| (from..=until).contains(seconds)) {
            path .grid d=(format!("M{} {}V{}", units(at(seconds)), units(y.high), units(y.low + 4.0))) {}
            text .axis x=(units(at(seconds))) y=(units(y.low + 17.0)) text-anchor="middle" { (label) }
        }
        @for (place, policy) in &with {
            @let waiting = &policy.waiting;
            @let band = waiting.seconds.iter().zip(&waiting.lowest).chain(waiting.seconds.iter().zip(&waiting.highest).rev());
            g .(style_of(*place)) {
                @if policy.seeds.len() > 1 { path .band d=(format!("{}Z", polyline(band.map(|(seconds, share)| (at(*seconds), y.at(*share)))))) {} }
                path .line d=(polyline(waiting.seconds.iter().zip(&waiting.share).map(|(seconds, share)| (at(*seconds), y.at(*share))))) { title { (shown_name(policy)) } }
            }
        }
    };
    let above = html! { div .above { (legend(comparison)) } };
    let below = html! {
        "Share of pods that had a node so long after they needed one, which was after the warm-up; the time axis is logarithmic. Bands are the range over seeds. Pods that still waited at the end, or left before they had a node, never count."
    };
    figure(
        "waiting",
        "How long pods wait",
        &format!("{}.", says.join("; ")),
        295.0,
        SIDE,
        above,
        drawing,
        below,
    )
}
