//! Human-readable numbers, and elements that several panels share.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use spokeshave_model::Price;
use spokeshave_view::{NodeRow, Phase, price_change, time_format};

/// `$52.31`, `$0.109`, `<$0.001`: as many digits as say something.
pub(crate) fn dollars(price: Price) -> String {
    let sign = if price.0 < 0 { "−" } else { "" };
    let value = price.dollars().abs();
    if value == 0.0 || value >= 0.9995 {
        format!("{sign}${value:.2}")
    } else if value < 0.0005 {
        format!("{sign}<$0.001")
    } else {
        format!("{sign}${value:.3}")
    }
}

/// `$1.20/h` of nodes; a lower bound while the prices of some are not known, and no price at all while none is.
pub(crate) fn known_sum(price: Price, without_price: usize) -> String {
    match (price, without_price) {
        (Price::ZERO, 1..) => "price unknown".to_owned(),
        (_, 0) => format!("{}/h", dollars(price)),
        _ => format!("≥ {}/h", dollars(price)),
    }
}

/// `$1.20` of what nodes would save; a lower bound while the prices of some of them are not known, and no price at all while none is.
pub(crate) fn known_saving(saved: Price, without_price: usize, is_priced: bool) -> String {
    match (saved, without_price) {
        (Price::ZERO, 1..) => "?".to_owned(),
        (Price::ZERO, 0) if !is_priced => "?".to_owned(),
        (_, 0) => dollars(saved),
        _ => format!("≥ {}", dollars(saved)),
    }
}

/// What a saving does to the price.
pub(crate) fn change(saved: Price) -> String {
    price_change(saved, "−", dollars)
}

/// `71 %` of thousandths.
pub(crate) fn percent(thousandths: i64) -> String {
    format!("{} %", thousandths / 10)
}

/// `3 nodes`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    spokeshave_plan::report::count(number, noun)
}

/// A time that a script can show in the reader's own zone; with its date, if the format has one.
pub(crate) fn time(at: Timestamp, format: &str) -> Markup {
    html! { time datetime=(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()) data-date[format.contains("%d")] { (at.strftime(format).to_string()) } }
}

/// In which format the ends of a stretch of this length are told: a day of the week tells a day of one week only.
pub(crate) fn clock(length: SignedDuration) -> &'static str {
    let is_long = length >= SignedDuration::from_hours(6 * 24);
    if is_long { "%b %-d %H:%M" } else { "%a %H:%M" }
}

/// A time of today without its date, any other with it.
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> Markup {
    time(at, time_format(at, now))
}

/// What a box says: one of a closed list, each with colour, pattern and glyph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Look {
    Go,
    Keep,
    Leaving,
    Coming,
    Broken,
    Unknown,
    Unmanaged,
}

impl Look {
    pub(crate) const ALL: [Look; 7] = [
        Look::Go,
        Look::Keep,
        Look::Leaving,
        Look::Coming,
        Look::Broken,
        Look::Unknown,
        Look::Unmanaged,
    ];

    pub(crate) fn of(row: &NodeRow) -> Self {
        match (row.phase, row.verdict) {
            (Phase::Leaving, _) => Look::Leaving,
            (Phase::Ready, Some("keep")) if row.in_next.is_some() => Look::Go,
            (Phase::Unknown, _) | (Phase::Ready, Some("unknown")) => Look::Unknown,
            (Phase::Coming, _) => Look::Coming,
            (Phase::Broken, _) => Look::Broken,
            (Phase::Ready, None) => Look::Unmanaged,
            (Phase::Ready, Some("keep")) => Look::Keep,
            (Phase::Ready, Some(_)) => Look::Go,
        }
    }

    /// The name of its class and pattern.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Look::Go => "go",
            Look::Keep => "keep",
            Look::Leaving => "leaving",
            Look::Coming => "coming",
            Look::Broken => "broken",
            Look::Unknown => "unknown",
            Look::Unmanaged => "unmanaged",
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Look::Go => "could go",
            Look::Keep => "keep",
            Look::Leaving => "leaving",
            Look::Coming => "coming",
            Look::Broken => "not ready",
            Look::Unknown => "unknown",
            Look::Unmanaged => "not managed",
        }
    }

    pub(crate) fn glyph(self) -> &'static str {
        match self {
            Look::Go => "↘",
            Look::Keep => "●",
            Look::Leaving => "←",
            Look::Coming => "→",
            Look::Broken => "✕",
            Look::Unknown => "?",
            Look::Unmanaged => "○",
        }
    }
}

/// What is said of a node, in a few words.
pub(crate) fn verdict_words(row: &NodeRow) -> String {
    let saves = row.saves.map(|saves| format!(", {}", change(saves.0)));
    let saves = saves.as_deref().unwrap_or_default();
    match (Look::of(row), row.verdict, &row.replacement) {
        (Look::Go, Some("keep"), _) => with_others(row),
        (Look::Go | Look::Broken, Some("replace"), Some(by)) => format!("replace by {by}{saves}"),
        (Look::Go | Look::Broken, Some(verdict), _) if row.saves.is_some() => format!("{verdict}{saves}"),
        (Look::Broken, Some(verdict), _) => format!("not ready; {verdict}"),
        (look, ..) => look.words().to_owned(),
    }
}

/// `goes with 4 others`: of a set of nodes that saves something together.
fn with_others(row: &NodeRow) -> String {
    match row.in_next {
        Some(others @ 1..) => format!("goes with {}", count(others, "other")),
        _ => "goes next".to_owned(),
    }
}

/// Why, in a few words: what it waits for, or the first of what keeps it.
pub(crate) fn why(row: &NodeRow) -> String {
    if row.verdict == Some("unknown") {
        return "it depends on something that could not be read".to_owned();
    }
    if let Some(waits) = &row.waits {
        return waits.clone();
    }
    let why = match row.reasons.as_slice() {
        [] => return String::new(),
        [one] => one.message.clone(),
        [one, others @ ..] => format!("{} (and {} more)", one.message, others.len()),
    };
    if row.verdict == Some("keep") && row.in_next.is_some_and(|others| others > 0) {
        return format!("alone it would stay: {why}");
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_view::ReasonRow;
    use std::sync::Arc;

    #[test]
    fn small_prices_are_neither_nothing_nor_a_whole_dollar_with_three_digits() {
        let shown = [
            0,
            1,
            400_000,
            600_000,
            109_000_000,
            999_600_000,
            52_310_000_000,
            -1,
        ]
        .map(|nanos| dollars(Price(nanos)));
        assert_eq!(
            shown,
            [
                "$0.00",
                "<$0.001",
                "<$0.001",
                "$0.001",
                "$0.109",
                "$1.00",
                "$52.31",
                "−<$0.001"
            ]
        );
    }

    #[test]
    fn a_saving_has_a_sign_of_its_own_and_none_where_there_is_none() {
        let told = [420_000_000, 0, -50_000_000, 1].map(|nanos| change(Price(nanos)));
        assert_eq!(told, ["−$0.420/h", "$0.00/h", "+$0.050/h", "−<$0.001/h"]);
    }

    #[test]
    fn a_time_of_another_day_has_its_date() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-01-02T00:10:00Z");
        let told = |text: &str| moment(at(text), now).into_string();
        assert_eq!(
            [told("2026-01-02T00:05:00Z"), told("2026-01-01T23:59:00Z")],
            [
                r#"<time datetime="2026-01-02T00:05:00Z">00:05:00</time>"#,
                r#"<time datetime="2026-01-01T23:59:00Z" data-date>2026-01-01 23:59:00</time>"#,
            ]
        );
    }

    /// What a node would do alone is not of interest where it goes alone.
    #[test]
    fn only_a_node_that_goes_with_others_is_told_what_it_would_do_alone() {
        let reason = ReasonRow {
            code: "NotCheaper".to_owned(),
            object: "Node n".to_owned(),
            message: "nothing is cheaper".to_owned(),
        };
        let mut row = NodeRow {
            name: "n".to_owned(),
            pool: None,
            instance_type: None,
            capacity_type: None,
            zone: None,
            price: None,
            is_launched: true,
            is_managed: true,
            created: None,
            phase: Phase::Ready,
            cpu: (0, 0),
            memory: (0, 0),
            pods: (0, 0),
            daemons: 0,
            verdict: Some("keep"),
            saves: None,
            replacement: None,
            waits: None,
            reasons: vec![Arc::new(reason)],
            if_removed: None,
            would_save: None,
            in_next: None,
        };
        let told = [None, Some(0), Some(1)].map(|in_next| {
            row.in_next = in_next;
            why(&row)
        });
        let alone = "alone it would stay: nothing is cheaper";
        assert_eq!(told, ["nothing is cheaper", "nothing is cheaper", alone]);
    }

    #[test]
    fn z_024_nodes_whose_prices_nobody_knows_do_not_cost_nothing() {
        let cost = |cents: i64, unknown| known_sum(Price(cents * 10_000_000), unknown);
        assert_eq!(cost(0, 3), "price unknown");
        assert_eq!(cost(120, 3), "≥ $1.20/h");
        assert_eq!([cost(120, 0), cost(0, 0)], ["$1.20/h", "$0.00/h"]);
    }

    #[test]
    fn z_024_what_nodes_save_whose_prices_nobody_knows_is_not_nothing() {
        let saving =
            |cents: i64, unknown, is_priced| known_saving(Price(cents * 10_000_000), unknown, is_priced);
        assert_eq!([saving(0, 1, true), saving(0, 0, false)], ["?", "?"]);
        assert_eq!([saving(120, 1, true), saving(120, 0, true)], ["≥ $1.20", "$1.20"]);
        assert_eq!(saving(0, 0, true), "$0.00", "nothing may go");
    }
}
