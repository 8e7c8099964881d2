//! When budgets let nothing be disrupted: what each look at them has seen, kept as changes.
//!
//! Owns a memory that is bounded in number and age, however many NodePools and schedules there are. It is fed in order of time, and decides nothing: what
//! was allowed is what budgets and DisruptionPolicies said at that time, not what they would say of it now.

use crate::budgets::{BudgetNow, Budgets};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Changes that are remembered; the oldest make room.
const CHANGES: usize = 4096;
/// And for how long.
const LONGEST: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The reasons, in the order of the bits that stand for them.
const REASONS: [&str; 4] = ["Empty", "Drifted", "Underutilized", "Expired"];

/// The reasons for which one NodePool has a budget, and those of them for which it allows nothing, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lids {
    reasons: u8,
    closed: u8,
}

/// What one NodePool allows from a time on; nothing is known of it where it has no nodes, is gone, or could not be read.
#[derive(Clone, Debug)]
struct Change {
    at: Timestamp,
    pool: Arc<str>,
    lids: Option<Lids>,
}

/// The changes, between what held before the oldest of them and what holds now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closures {
    before: BTreeMap<Arc<str>, Lids>,
    /// From when on it is known what held.
    since: Option<Timestamp>,
    changes: VecDeque<Change>,
    now: BTreeMap<Arc<str>, Lids>,
    last: Option<Timestamp>,
}

/// A stretch of time in which budgets allowed nothing for some reason of some NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// First instant.
    pub from: Timestamp,
    /// First instant that no longer belongs to it.
    pub until: Timestamp,
    /// Budgets, one for each NodePool and reason.
    pub budgets: u32,
    /// Those of them that allowed nothing.
    pub closed: u32,
    reasons: u8,
}

impl Stretch {
    /// Whether nothing was allowed at all.
    pub fn is_whole(&self) -> bool {
        self.closed == self.budgets
    }

    /// The reasons for which nothing was allowed, where one NodePool was asked about.
    pub fn reasons(&self) -> impl Iterator<Item = &'static str> {
        let bits = self.reasons;
        let all = REASONS.into_iter().enumerate();
        all.filter(move |(bit, _)| bits & (1_u8 << *bit) != 0)
            .map(|(_, name)| name)
    }

    /// Whether another one that begins where this one ends says the same.
    fn goes_on(&self, next: &Stretch) -> bool {
        let said = |one: &Stretch| (one.budgets, one.closed, one.reasons);
        self.until == next.from && said(self) == said(next)
    }
}

impl Closures {
    /// Takes in what was seen; budgets of which nothing is known are none.
    pub(crate) fn push(&mut self, now: Timestamp, budgets: Option<&Budgets>) {
        if self.last.is_some_and(|last| last > now) {
            return;
        }
        self.last = Some(now);
        self.since.get_or_insert(now);
        let seen = budgets.map(lids).unwrap_or_default();
        let gone = self.now.keys().filter(|pool| !seen.contains_key(&***pool));
        let gone = gone.map(|pool| (pool.clone(), None));
        let other = seen
            .iter()
            .filter(|(pool, lids)| self.now.get(**pool) != Some(*lids));
        let other = other.map(|(pool, lids)| (self.name(pool), Some(*lids)));
        let changes: Vec<(Arc<str>, Option<Lids>)> = gone.chain(other).collect();
        for (pool, lids) in changes {
            set(&mut self.now, pool.clone(), lids);
            self.changes.push_back(Change { at: now, pool, lids });
        }
        let oldest = now.saturating_sub(LONGEST).unwrap_or(Timestamp::MIN);
        while self.changes.len() > CHANGES || self.changes.front().is_some_and(|first| first.at < oldest) {
            if let Some(change) = self.changes.pop_front() {
                self.since = Some(change.at);
                set(&mut self.before, change.pool, change.lids);
            }
        }
    }

    /// The name of a NodePool, held once as long as it is there.
    fn name(&self, pool: &str) -> Arc<str> {
        let known = self.now.get_key_value(pool);
        known.map_or_else(|| Arc::from(pool), |(name, _)| name.clone())
    }

    /// When something was closed between two instants, of one NodePool or of all: ordered, apart from each other. Where nothing is known there is none.
    pub(crate) fn between(&self, pool: Option<&str>, from: Timestamp, until: Timestamp) -> Vec<Stretch> {
        let Some(since) = self.since else {
            return Vec::new();
        };
        let is_asked = |name: &str| pool.is_none_or(|pool| pool == name);
        let before = self.before.iter().filter(|(name, _)| is_asked(name));
        let mut lids: BTreeMap<&str, Lids> = before.map(|(name, lids)| (&**name, *lids)).collect();
        let mut sum = Sum::default();
        lids.values().for_each(|lids| sum.add(*lids));
        let mut stretches = Vec::new();
        let mut begin = since;
        for change in self.changes.iter().filter(|change| is_asked(&change.pool)) {
            let known = sum.stretch(begin.max(from), change.at.min(until), pool.is_some());
            join(&mut stretches, known);
            begin = change.at;
            let old = set(&mut lids, &*change.pool, change.lids);
            sum.remove(old.unwrap_or_default());
            sum.add(change.lids.unwrap_or_default());
        }
        let known = sum.stretch(begin.max(from), until, pool.is_some());
        join(&mut stretches, known);
        stretches
    }
}

/// What each NodePool with nodes allows.
fn lids(budgets: &Budgets) -> BTreeMap<&str, Lids> {
    let mut lids: BTreeMap<&str, Lids> = BTreeMap::new();
    for now in budgets.now.iter().filter(|now| now.nodes > 0) {
        let bit = REASONS.iter().position(|reason| *reason == now.reason);
        let bit = bit.map_or(0, |bit| 1_u8 << bit);
        let of_pool = lids.entry(&now.pool).or_default();
        of_pool.reasons |= bit;
        if is_closed(now) {
            of_pool.closed |= bit;
        }
    }
    lids
}

/// Nothing may go at any time, however few are on their way.
fn is_closed(now: &BudgetNow) -> bool {
    now.error.is_some() || now.allowed == Some(0)
}

/// Returns what the NodePool had before.
fn set<P: Ord>(pools: &mut BTreeMap<P, Lids>, pool: P, lids: Option<Lids>) -> Option<Lids> {
    match lids {
        Some(lids) => pools.insert(pool, lids),
        None => pools.remove(&pool),
    }
}

/// Budgets of several NodePools, counted.
#[derive(Clone, Copy, Default)]
struct Sum {
    budgets: u32,
    closed: u32,
    /// Of one NodePool.
    reasons: u8,
}

impl Sum {
    fn add(&mut self, lids: Lids) {
        self.budgets += lids.reasons.count_ones();
        self.closed += lids.closed.count_ones();
        self.reasons = lids.closed;
    }

    fn remove(&mut self, lids: Lids) {
        self.budgets -= lids.reasons.count_ones();
        self.closed -= lids.closed.count_ones();
    }

    /// This sum for a while, if it is one, and something is closed.
    fn stretch(self, from: Timestamp, until: Timestamp, is_of_one: bool) -> Option<Stretch> {
        let stretch = Stretch {
            from,
            until,
            budgets: self.budgets,
            closed: self.closed,
            reasons: if is_of_one { self.reasons } else { 0 },
        };
        (from < until && self.closed > 0).then_some(stretch)
    }
}

/// One that goes on where the last ends is the same one.
fn join(stretches: &mut Vec<Stretch>, next: Option<Stretch>) {
    let Some(next) = next else { return };
    match stretches.last_mut() {
        Some(last) if last.goes_on(&next) => last.until = next.until,
        _ => stretches.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn budget(pool: &str, reason: &str, allowed: Option<i64>) -> BudgetNow {
        BudgetNow {
            pool: pool.to_owned(),
            reason: reason.to_owned(),
            nodes: 3,
            disrupting: 0,
            allowed,
            remaining: allowed,
            policy: None,
            error: None,
        }
    }

    fn budgets(now: &[(&str, &str, Option<i64>)]) -> Budgets {
        let now = now
            .iter()
            .map(|(pool, reason, allowed)| budget(pool, reason, *allowed));
        Budgets {
            now: now.collect(),
            calendar: Vec::new(),
        }
    }

    /// What is told as `from until closed/budgets reasons`.
    fn told(closures: &Closures, pool: Option<&str>, from: i64, until: i64) -> Vec<String> {
        let stretches = closures.between(pool, at(from), at(until));
        let told = stretches.iter().map(|one| {
            let seconds = |time: Timestamp| time.as_second() - 1_700_000_000;
            let reasons: Vec<&str> = one.reasons().collect();
            format!(
                "{} {} {}/{} {}",
                seconds(one.from),
                seconds(one.until),
                one.closed,
                one.budgets,
                reasons.join(",")
            )
        });
        told.collect()
    }

    #[test]
    fn what_was_closed_is_what_was_seen_of_one_pool_and_of_all() {
        let mut closures = Closures::default();
        let day = |allowed| {
            budgets(&[
                ("a", "Empty", None),
                ("a", "Drifted", allowed),
                ("b", "Empty", Some(2)),
            ])
        };
        for (second, allowed) in [
            (0, Some(1)),
            (5, Some(0)),
            (10, Some(0)),
            (20, None),
            (25, Some(4)),
        ] {
            closures.push(at(second), Some(&day(allowed)));
        }
        assert_eq!(told(&closures, None, 0, 30), ["5 20 1/3 "]);
        assert_eq!(told(&closures, Some("a"), 0, 30), ["5 20 1/2 Drifted"]);
        assert!(told(&closures, Some("b"), 0, 30).is_empty());
        assert!(told(&closures, Some("c"), 0, 30).is_empty());
        // Only what was asked for is told, and time does not run back.
        assert_eq!(told(&closures, None, 8, 12), ["8 12 1/3 "]);
        closures.push(at(1), Some(&day(Some(0))));
        assert!(told(&closures, None, 20, 30).is_empty());
        // All of a NodePool, and then nobody knows.
        let none = budgets(&[("a", "Empty", Some(0)), ("a", "Drifted", Some(0))]);
        closures.push(at(30), Some(&none));
        closures.push(at(40), None);
        closures.push(at(50), Some(&none));
        let both = ["30 40 2/2 Empty,Drifted", "50 60 2/2 Empty,Drifted"];
        assert_eq!(told(&closures, Some("a"), 25, 60), both);
        assert!(
            closures
                .between(None, at(25), at(60))
                .iter()
                .all(Stretch::is_whole)
        );
    }

    /// Nodes of which there are none are kept by no budget.
    #[test]
    fn budgets_that_cannot_be_evaluated_close_and_those_without_nodes_do_not() {
        let mut closures = Closures::default();
        let mut seen = budgets(&[("a", "Empty", None), ("b", "Empty", Some(0))]);
        seen.now[0].error = Some("no schedule".to_owned());
        seen.now[1].nodes = 0;
        closures.push(at(0), Some(&seen));
        assert_eq!(told(&closures, None, 0, 10), ["0 10 1/1 "]);
    }

    #[test]
    fn changes_are_bounded_in_number_and_age() {
        let mut closures = Closures::default();
        let seen = |allowed| budgets(&[("a", "Empty", Some(allowed)), ("b", "Empty", Some(0))]);
        for second in 0..10_000 {
            closures.push(at(second), Some(&seen(second % 2)));
        }
        assert_eq!(closures.changes.len(), CHANGES);
        // What came before is not known; what held at the oldest change that is kept is: also of a NodePool that has not changed since.
        assert!(closures.between(None, at(0), at(5000)).is_empty());
        assert_eq!(told(&closures, Some("b"), 9000, 9100), ["9000 9100 1/1 Empty"]);
        let later = 10_000 + LONGEST.as_secs();
        closures.push(at(later), Some(&seen(1)));
        assert!(closures.changes.is_empty(), "{}", closures.changes.len());
        assert_eq!(
            told(&closures, Some("b"), later - 10, later),
            [format!("{} {later} 1/1 Empty", later - 10)]
        );
    }
}
