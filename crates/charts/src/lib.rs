//! Pieces of SVG charts that the page and the report of a simulation share: axes, scales, paths.
//!
//! Owns geometry and its text form, the same bytes for the same numbers. It knows no colours (those are CSS) and nothing of what is drawn.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

/// A coordinate as text: a tenth of a unit is precise enough for a screen.
pub fn units(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// The smallest round number that leaves a little room above `value`; never less than a hundredth.
pub fn round_top(value: f64) -> f64 {
    let value = value.max(0.01);
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= value * 1.02)
        .unwrap_or(power * 12.0)
}

/// The value at the smallest distance between marks such that there are at most `most` of them: 1, 2 or 5 times a power of ten.
pub fn round_step(span: f64, most: usize) -> f64 {
    let least = span.max(1e-9) / most.max(1) as f64;
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(power * 10.0)
}

/// Values on a line of the drawing. `low` maps to `from`, so an axis may run upwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Value at one end.
    pub from: f64,
    /// Value at the other end.
    pub until: f64,
    /// Coordinate of `from`.
    pub low: f64,
    /// Coordinate of `until`.
    pub high: f64,
}

impl Scale {
    /// The coordinate of a value; values outside stay at the ends.
    pub fn at(&self, value: f64) -> f64 {
        let span = self.until - self.from;
        let part = if span == 0.0 {
            0.0
        } else {
            (value - self.from) / span
        };
        self.low + part.clamp(0.0, 1.0) * (self.high - self.low)
    }

    /// Round values inside, ends included.
    pub fn marks(&self, most: usize) -> Vec<f64> {
        let step = round_step(self.until - self.from, most);
        let first = (self.from / step - 1e-9).ceil() as i64;
        let last = (self.until / step + 1e-9).floor() as i64;
        (first..=last).map(|number| number as f64 * step).collect()
    }
}

/// Time from left to right.
#[derive(Debug, Clone, Copy)]
pub struct TimeAxis {
    /// The left end.
    pub from: Timestamp,
    /// The right end.
    pub until: Timestamp,
    /// Coordinate of the left end.
    pub left: f64,
    /// Coordinate of the right end.
    pub right: f64,
}

impl TimeAxis {
    /// The coordinate of an instant; instants outside stay at the ends.
    pub fn x(&self, at: Timestamp) -> f64 {
        let whole = self.until.duration_since(self.from).as_secs_f64().max(1.0);
        let part = at.duration_since(self.from).as_secs_f64() / whole;
        self.left + part.clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// Instants to write below, and the format in which to write them.
    pub fn marks(&self) -> (Vec<Timestamp>, &'static str) {
        let whole = self.until.duration_since(self.from).as_secs();
        let steps = [
            10,
            30,
            60,
            300,
            600,
            900,
            3600,
            3 * 3600,
            6 * 3600,
            86_400,
            5 * 86_400,
        ];
        let step = steps
            .into_iter()
            .find(|step| whole / step <= 8)
            .unwrap_or(10 * 86_400);
        let format = if step >= 86_400 {
            "%b %-d"
        } else if step < 60 {
            "%H:%M:%S"
        } else {
            "%H:%M"
        };
        let first = self.from.as_second().div_euclid(step) + 1;
        let marks = (first..)
            .map(|number| number * step)
            .take_while(|second| *second <= self.until.as_second());
        (
            marks
                .filter_map(|second| Timestamp::from_second(second).ok())
                .collect(),
            format,
        )
    }

    /// The instant so many milliseconds after the left end.
    pub fn after(&self, milliseconds: u64) -> Timestamp {
        let passed = SignedDuration::from_millis(i64::try_from(milliseconds).unwrap_or(i64::MAX));
        self.from.saturating_add(passed).unwrap_or(self.until)
    }
}

/// A path in steps: each value holds until the next one.
pub fn steps(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let (x, y) = (units(x), units(y));
        let _ = if path.is_empty() {
            write!(path, "M{x} {y}")
        } else {
            write!(path, "H{x}V{y}")
        };
    }
    path
}

/// A path from point to point.
pub fn polyline(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let command = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{command}{} {}", units(x), units(y));
    }
    path
}

/// A path closed along a base line, for the area between both.
pub fn area(path: &str, base: f64, begin: f64) -> String {
    format!("{path}V{}H{}Z", units(base), units(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers_lie_above_and_marks_inside() {
        assert_eq!(
            [0.0, 0.98, 1.0, 14.5, 970.0].map(round_top),
            [0.01 * 1.5, 1.0, 1.5, 15.0, 1000.0]
        );
        assert_eq!(round_step(10.0, 5), 2.0);
        assert_eq!(round_step(0.07, 4), 0.02);
        let scale = Scale {
            from: -0.5,
            until: 2.0,
            low: 100.0,
            high: 0.0,
        };
        assert_eq!(scale.marks(5), [-0.5, 0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(
            [scale.at(-0.5), scale.at(0.75), scale.at(9.0)],
            [100.0, 50.0, 0.0]
        );
        assert_eq!(Scale { until: -0.5, ..scale }.at(3.0), 100.0);
    }

    #[test]
    fn paths_hold_values_or_join_them() {
        let points = [(0.0, 5.0), (1.25, 4.0), (2.0, 3.04)];
        assert_eq!(steps(points), "M0 5H1.2V4H2V3");
        assert_eq!(polyline(points), "M0 5L1.2 4L2 3");
        assert_eq!(area("M0 5", 9.0, 0.0), "M0 5V9H0Z");
        assert_eq!(steps([]), "");
    }

    #[test]
    fn marks_of_time_are_round_and_few() {
        let axis = |seconds| TimeAxis {
            from: Timestamp::UNIX_EPOCH,
            until: Timestamp::from_second(seconds).unwrap(),
            left: 0.0,
            right: 100.0,
        };
        for (seconds, format, first) in [
            (120, "%H:%M:%S", 30),
            (86_400, "%H:%M", 3 * 3600),
            (30 * 86_400, "%b %-d", 5 * 86_400),
        ] {
            let (marks, shown) = axis(seconds).marks();
            assert_eq!((shown, marks[0].as_second()), (format, first));
            assert!((3..=9).contains(&marks.len()), "{seconds}: {}", marks.len());
        }
        let day = axis(86_400);
        assert_eq!(day.x(day.after(43_200_000)), 50.0);
        assert_eq!(day.x(day.after(u64::MAX)), 100.0);
    }
}
