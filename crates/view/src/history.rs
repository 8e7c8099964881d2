//! History of cost, nodes, pending pods and evictions: three rings of samples, so memory is bounded however long the program runs.
//!
//! The finest has one sample in five seconds for an hour, the next one a minute for a day, the last one in fifteen minutes for thirty days.

use crate::Dollars;
use jiff::{SignedDuration, Timestamp};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use spokeshave_model::Price;
use std::collections::VecDeque;

/// One moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When, by the cluster's clock.
    pub at: Timestamp,
    /// Dollars per hour.
    pub price: Price,
    /// Nodes.
    pub nodes: usize,
    /// Pods without a node.
    pub pending: usize,
    /// Evictions of all commands until then.
    pub evictions: i64,
}

/// The time range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Range {
    /// An hour.
    #[default]
    Hour,
    /// A day.
    Day,
    /// Thirty days.
    Month,
}

impl Range {
    /// All of them, shortest first.
    pub const ALL: [Range; 3] = [Range::Hour, Range::Day, Range::Month];

    /// `1h`, `24h`, `30d`.
    pub fn as_str(self) -> &'static str {
        match self {
            Range::Hour => "1h",
            Range::Day => "24h",
            Range::Month => "30d",
        }
    }

    /// Reads that text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|range| range.as_str() == text)
    }

    /// Its length.
    pub fn length(self) -> SignedDuration {
        match self {
            Range::Hour => SignedDuration::from_hours(1),
            Range::Day => SignedDuration::from_hours(24),
            Range::Month => SignedDuration::from_hours(30 * 24),
        }
    }

    fn step_seconds(self) -> i64 {
        match self {
            Range::Hour => 5,
            Range::Day => 60,
            Range::Month => 900,
        }
    }
}

/// One ring: at most one sample per step, the newest of it.
#[derive(Clone, Debug, Default)]
struct Ring(VecDeque<Sample>);

impl Ring {
    fn push(&mut self, sample: Sample, range: Range) {
        let step = |at: Timestamp| at.as_second().div_euclid(range.step_seconds());
        match self.0.back_mut() {
            Some(last) if last.at > sample.at => return,
            Some(last) if step(last.at) == step(sample.at) => *last = sample,
            _ => self.0.push_back(sample),
        }
        let oldest = sample.at.saturating_sub(range.length()).unwrap_or(Timestamp::MIN);
        let limit = usize::try_from(range.length().as_secs() / range.step_seconds()).unwrap_or(usize::MAX);
        while self.0.len() > limit || self.0.front().is_some_and(|first| first.at < oldest) {
            self.0.pop_front();
        }
    }
}

/// The rings.
#[derive(Clone, Debug, Default)]
pub struct History {
    rings: [Ring; 3],
}

impl History {
    /// Adds a moment. One that is older than the last is passed over.
    pub fn push(&mut self, sample: Sample) {
        for (ring, range) in self.rings.iter_mut().zip(Range::ALL) {
            ring.push(sample, range);
        }
    }

    /// The samples of a range, oldest first.
    pub fn samples(&self, range: Range) -> impl DoubleEndedIterator<Item = &Sample> + Clone {
        self.rings[range as usize].0.iter()
    }

    /// The cost a day before `now`, or none without samples from then.
    pub fn price_a_day_ago(&self, now: Timestamp) -> Option<Price> {
        let then = now.saturating_sub(Range::Day.length()).ok()?;
        let close = SignedDuration::from_mins(30);
        let before = self.samples(Range::Month).rev().find(|sample| sample.at <= then);
        let before = before.filter(|sample| then.duration_since(sample.at) <= close);
        before.map(|sample| sample.price)
    }
}

/// The samples of one range, as columns.
pub(crate) struct Columns<'a>(pub(crate) &'a History, pub(crate) Range);

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let samples: Vec<&Sample> = self.0.samples(self.1).collect();
        let mut out = serializer.serialize_struct("Samples", 5)?;
        let times: Vec<i64> = samples.iter().map(|sample| sample.at.as_second()).collect();
        out.serialize_field("at", &times)?;
        let prices: Vec<Dollars> = samples.iter().map(|sample| Dollars(sample.price)).collect();
        out.serialize_field("price", &prices)?;
        let nodes: Vec<usize> = samples.iter().map(|sample| sample.nodes).collect();
        out.serialize_field("nodes", &nodes)?;
        let pending: Vec<usize> = samples.iter().map(|sample| sample.pending).collect();
        out.serialize_field("pending", &pending)?;
        let evictions: Vec<i64> = samples.iter().map(|sample| sample.evictions).collect();
        out.serialize_field("evictions", &evictions)?;
        out.end()
    }
}

impl Serialize for History {
    /// The last hour and the last day, as columns; times in seconds since 1970.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("History", 3)?;
        out.serialize_field("hour", &Columns(self, Range::Hour))?;
        out.serialize_field("day", &Columns(self, Range::Day))?;
        out.serialize_field("month", &Columns(self, Range::Month))?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: i64) -> Sample {
        Sample {
            at: Timestamp::from_second(1_700_000_000 + second).unwrap(),
            price: Price(second),
            nodes: 1,
            pending: 0,
            evictions: 0,
        }
    }

    #[test]
    fn rings_are_bounded_and_keep_the_newest_of_each_step() {
        let mut history = History::default();
        for second in 0..40 * 86_400 / 7 {
            history.push(sample(second * 7));
        }
        let counts: Vec<usize> = Range::ALL.map(|range| history.samples(range).count()).into();
        assert_eq!(counts[1..], [1440, 2880]);
        assert!(counts[0] <= 720 && counts[0] > 500, "{counts:?}");
        let last = history.samples(Range::Month).next_back().unwrap();
        assert_eq!(*last, sample((40 * 86_400 / 7 - 1) * 7));
        let before = history.samples(Range::Hour).count();
        history.push(sample(3));
        assert_eq!(
            history.samples(Range::Hour).count(),
            before,
            "time does not run back"
        );
    }

    #[test]
    fn a_day_ago_is_known_only_by_who_was_there() {
        let mut history = History::default();
        for second in (0..100_000).step_by(60) {
            history.push(sample(second));
        }
        let now = sample(100_000).at;
        let price = history.price_a_day_ago(now).unwrap().0;
        assert!((100_000 - 86_400 - price).abs() <= 1800, "{price}");
        let mut short = History::default();
        short.push(sample(0));
        assert_eq!(short.price_a_day_ago(sample(100).at), None);
    }
}
