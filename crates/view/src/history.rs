//! History of cost, nodes, pending pods and evictions: three rings of samples, so memory is bounded however long the program runs; and of what budgets allowed.
//!
//! The finest has one sample in five seconds for an hour, the next one a minute for a day, the last one in fifteen minutes for thirty days.

use crate::Dollars;
use crate::budgets::Budgets;
use crate::closures::{Closures, Stretch};
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

/// The time range of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Range {
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// Thirty days.
    Month,
}

impl Range {
    /// All of them, shortest first.
    pub const ALL: [Range; 3] = [Range::Hour, Range::Day, Range::Month];

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

/// The rings, and when budgets allowed nothing.
#[derive(Clone, Debug, Default)]
pub struct History {
    rings: [Ring; 3],
    closures: Closures,
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

    /// The first moment that is remembered.
    pub fn first(&self) -> Option<Timestamp> {
        let firsts = self.rings.iter().filter_map(|ring| ring.0.front());
        firsts.map(|first| first.at).min()
    }

    /// The samples after `from` up to `until`, oldest first, of the finest ring that goes back so far, or before whose first one no other ring has any more;
    /// before them the last one up to `from`, whose values hold there.
    pub fn between(&self, from: Timestamp, until: Timestamp) -> Vec<Sample> {
        // The newest of a step may come up to two steps after the last.
        let is_close = |range: Range, first: Timestamp| {
            first.duration_since(from) <= SignedDuration::from_secs(2 * range.step_seconds())
        };
        // Looks at a large cluster, and those after an outage, are farther apart.
        let is_earliest = |first: Timestamp| {
            let mut all = self.rings.iter().flat_map(|ring| ring.0.iter());
            !all.any(|sample| sample.at > from && sample.at < first)
        };
        let reaches = |range: Range, first: Timestamp| is_close(range, first) || is_earliest(first);
        let mut rings = self.rings.iter().zip(Range::ALL);
        let finest = rings.find(|(ring, range)| {
            let first = ring.0.front();
            first.is_some_and(|first| reaches(*range, first.at))
        });
        let Some((ring, _)) = finest else {
            return Vec::new();
        };
        let before = self
            .rings
            .iter()
            .filter_map(|ring| ring.0.iter().rev().find(|sample| sample.at <= from));
        let before = before.max_by_key(|sample| sample.at);
        let inside = ring
            .0
            .iter()
            .filter(|sample| sample.at > from && sample.at <= until);
        before.into_iter().chain(inside).copied().collect()
    }

    /// Takes in what budgets allow now; none where that is not known.
    pub(crate) fn push_budgets(&mut self, now: Timestamp, budgets: Option<&Budgets>) {
        self.closures.push(now, budgets);
    }

    /// When budgets allowed nothing for some reason, as far as that was seen: of one NodePool, or of all.
    pub fn closures(&self, pool: Option<&str>, from: Timestamp, until: Timestamp) -> Vec<Stretch> {
        self.closures.between(pool, from, until)
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
    /// Each ring as columns; times in seconds since 1970.
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
    fn a_stretch_is_told_by_the_finest_ring_that_has_it() {
        let mut history = History::default();
        assert!(history.between(sample(0).at, sample(9).at).is_empty());
        for second in (0..3 * 86_400).step_by(5) {
            history.push(sample(second));
        }
        let last = 3 * 86_400 - 5;
        assert!(history.first().is_some_and(|first| first <= sample(900).at));
        let seconds = |from: i64, until: i64| {
            let samples = history.between(sample(from).at, sample(until).at);
            let seconds = samples.iter().map(|one| one.price.0);
            seconds.collect::<Vec<i64>>()
        };
        // The last hour in steps of five seconds; what is older more coarsely, with what held at its beginning.
        for (from, until, step) in [
            (last - 3600, last, 5),
            (last - 7200, last - 3600, 60),
            (last - 86_400, last, 60),
            (0, 86_400, 900),
        ] {
            let seen = seconds(from, until);
            let length = usize::try_from((until - from) / step).unwrap();
            assert!(
                seen.len().abs_diff(length) <= 2,
                "{from}: {} of {length}",
                seen.len()
            );
            let steps: Vec<i64> = seen.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let mut regular = steps[1..steps.len() - 1].iter();
            assert!(regular.all(|one| *one == step), "{from}: {seen:?}");
            assert!(seen[0] <= from.max(900), "{from}: {}", seen[0]);
            assert!(
                seen.last()
                    .is_some_and(|last| *last <= until && *last > until - 2 * step)
            );
        }
        assert!(seconds(-100, -1).is_empty());
    }

    /// Deciding about a large cluster takes a while: its hour is told by all that was seen.
    #[test]
    fn an_hour_of_rare_looks_is_told_by_all_of_them() {
        let mut history = History::default();
        for second in (0..7200).step_by(28) {
            history.push(sample(second));
        }
        // The last is 7196, and the first of its hour 3612.
        let seen = history.between(sample(3596).at, sample(7196).at);
        let seconds: Vec<i64> = seen.iter().map(|one| one.price.0).collect();
        let looks: Vec<i64> = (3612..=7196).step_by(28).collect();
        assert!(seconds[0] <= 3596, "{}", seconds[0]);
        assert_eq!(seconds[1..], looks);
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
