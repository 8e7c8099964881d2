//! Human-readable numbers, the same in tables and reports.
//!
//! Owns digits, separators and signs; never a unit conversion that the metric's definition does not have.

use crate::statistics::Interval;
use crate::unit::Unit;

/// `21,904`.
fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text.as_str(), ""), |(whole, fraction)| (whole, fraction));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    // What rounds to zero has no sign.
    let negative = value < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    if negative { format!("−{out}") } else { out }
}

/// Decimals that leave about three digits to read.
fn decimals(size: f64) -> usize {
    match size.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    }
}

/// A value with its unit: `$21,904`, `11.2 %`, `71 s`, `9,810`.
pub fn value(number: f64, unit: Unit) -> String {
    match unit {
        Unit::Dollars => dollars(number, number),
        Unit::Share => format!("{} %", grouped(number * 100.0, 1)),
        Unit::Seconds => seconds(number),
        Unit::PerPodDay => grouped(number, if number.abs() >= 10.0 { 1 } else { 3 }),
        Unit::NodeHours => grouped(number, decimals(number)),
        Unit::Count => grouped(
            number,
            if number.fract() == 0.0 {
                0
            } else {
                decimals(number).min(1)
            },
        ),
    }
}

/// Half of an interval's width, with as many digits as the value that it belongs to.
pub fn half_width(interval: Interval, mean: f64, unit: Unit) -> String {
    let half = (interval.high - interval.low) / 2.0;
    match unit {
        Unit::Dollars => grouped(half, cents(mean)),
        Unit::Share => grouped(half * 100.0, 1),
        _ => value(half, unit),
    }
}

fn cents(size: f64) -> usize {
    match size.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 1.0 || size == 0.0 => 2,
        _ => 4,
    }
}

fn dollars(number: f64, size: f64) -> String {
    let text = grouped(number, cents(size));
    match text.strip_prefix('−') {
        Some(text) => format!("−${text}"),
        None => format!("${text}"),
    }
}

/// `0.4 s`, `71 s`, `12 min`, `3.1 h`.
fn seconds(number: f64) -> String {
    match number.abs() {
        size if size < 10.0 => format!("{} s", grouped(number, 1)),
        size if size < 300.0 => format!("{} s", grouped(number, 0)),
        size if size < 10_800.0 => format!("{} min", grouped(number / 60.0, 0)),
        _ => format!("{} h", grouped(number / 3600.0, 1)),
    }
}

/// `+1.9 %`; below 10 % with as many decimals as its interval.
pub fn relative(share: f64, interval: Option<Interval>) -> String {
    let decimals = match interval {
        _ if share.abs() >= 0.1 => 0,
        Some(interval) => decimals_of(interval),
        None => 1,
    };
    format!("{} %", signed(share * 100.0, decimals))
}

/// A difference in its unit, with its sign: `+$0.42`.
pub fn difference(number: f64, unit: Unit) -> String {
    with_plus(number, value(number, unit))
}

/// The difference of two shares, in percentage points: `+0.9 points`.
pub fn points(difference: f64) -> String {
    format!("{} points", signed(difference * 100.0, 1))
}

/// `+1.9`, `−0.3`, `0.0`.
fn signed(number: f64, decimals: usize) -> String {
    with_plus(number, grouped(number, decimals))
}

/// A number as it is written, with a plus before one that is larger than zero and is not written as zero.
fn with_plus(number: f64, text: String) -> String {
    let zero = !text.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    if number > 0.0 && !zero {
        format!("+{text}")
    } else {
        text
    }
}

/// Decimals of an interval in per cent.
fn decimals_of(interval: Interval) -> usize {
    let widest = interval.low.abs().max(interval.high.abs());
    if widest < 0.01 { 2 } else { 1 }
}

/// `[+1.6, +2.1]`, in per cent.
pub fn relative_interval(interval: Interval) -> String {
    let decimals = decimals_of(interval);
    format!(
        "[{}, {}]",
        signed(interval.low * 100.0, decimals),
        signed(interval.high * 100.0, decimals)
    )
}

/// `7 d 12 h`, `90 min`.
pub fn span(milliseconds: u64) -> String {
    let minutes = milliseconds / 60_000;
    let (days, hours, rest) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
    let parts = [(days, "d"), (hours, "h"), (rest, "min")];
    let shown: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number} {unit}"))
        .collect();
    if shown.is_empty() {
        "0 min".into()
    } else {
        shown.join(" ")
    }
}

/// `1 seed`, `2 seeds`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_say_something() {
        let shown = [
            value(21_904.4, Unit::Dollars),
            value(31.5, Unit::Dollars),
            value(-1234.0, Unit::Dollars),
            value(0.1124, Unit::Share),
            value(9.04, Unit::Seconds),
            value(71.0, Unit::Seconds),
            value(720.0, Unit::Seconds),
            value(40_000.0, Unit::Seconds),
            value(0.0213, Unit::PerPodDay),
            value(9810.2, Unit::NodeHours),
            value(1_234_567.0, Unit::Count),
            value(2.5, Unit::Count),
        ];
        let expected = [
            "$21,904",
            "$31.50",
            "−$1,234",
            "11.2 %",
            "9.0 s",
            "71 s",
            "12 min",
            "11.1 h",
            "0.021",
            "9,810",
            "1,234,567",
            "2.5",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn changes_carry_their_sign_and_nothing_is_minus_zero() {
        assert_eq!(relative(0.0187, None), "+1.9 %");
        assert_eq!(relative(-0.57, None), "−57 %");
        assert_eq!(relative(-0.0001, None), "0.0 %");
        assert_eq!(points(0.0094), "+0.9 points");
        assert_eq!(difference(0.0052, Unit::Dollars), "+$0.0052");
        assert_eq!(difference(-31.5, Unit::Dollars), "−$31.50");
        assert_eq!(difference(0.000_01, Unit::Dollars), "$0.0000");
        let interval = Interval {
            low: 0.016,
            high: 0.0213,
        };
        assert_eq!(relative_interval(interval), "[+1.6, +2.1]");
        let narrow = Interval {
            low: -0.0004,
            high: 0.0021,
        };
        assert_eq!(relative_interval(narrow), "[−0.04, +0.21]");
        assert_eq!(relative(0.0004, Some(narrow)), "+0.04 %");
        assert_eq!(relative(0.0187, Some(interval)), "+1.9 %");
        assert_eq!(relative(0.57, Some(interval)), "+57 %");
        assert_eq!(
            half_width(
                Interval {
                    low: 40.0,
                    high: 60.0
                },
                21_000.0,
                Unit::Dollars
            ),
            "10"
        );
    }

    #[test]
    fn spans_leave_out_what_is_nothing() {
        assert_eq!(span(30 * 86_400_000), "30 d");
        assert_eq!(span(90 * 60_000), "1 h 30 min");
        assert_eq!(span(1), "0 min");
        assert_eq!(count(1, "seed") + &count(2, "seed"), "1 seed2 seeds");
    }
}
