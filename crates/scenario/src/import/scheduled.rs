//! CronJobs of a trace: when their runs begin, and for how long these are there.
//!
//! Owns one CronJob over time. When a schedule is due is the business of `crons`, and what happens to runs that overlap that of `runs`.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use spokeshave_api::Cron;

use super::ImportError;
use super::inventory::RUNS_MS;
use super::objects::Concurrency;
use super::runs::Turns;
use crate::generate::hits_in;

/// Runs of CronJobs in one trace.
const MOST_RUNS: u64 = 5_000_000;
/// How far back the last time of a schedule is looked for first.
const LOOK_BACK_MS: i64 = 3_600_000;

/// An existing CronJob.
pub(super) struct Scheduled {
    since: i64,
    /// Its schedule, and by whose clocks it runs; none while it is suspended.
    when: Option<(Cron, TimeZone)>,
    /// In milliseconds since 1970, as is when its last run began.
    turns: Turns,
    last_ms: Option<u64>,
    /// The Job that each run is, and how many pods of it there are at once.
    pub(super) job: serde_json::Value,
    pods: usize,
    /// For how many milliseconds its pods ran, as those of later runs do in turn, and how many runs have begun.
    lengths: Vec<u64>,
    began: usize,
}

/// A run of a CronJob that begins.
pub(super) struct Begin {
    pub(super) at_ms: u64,
    /// The beginning of the one that it ends.
    pub(super) ended_ms: Option<u64>,
    /// For how long it runs, if that was ever seen.
    pub(super) length_ms: Option<u64>,
}

impl Scheduled {
    /// One that is applied. If there was one before, what it has begun still runs, and what was due while it was suspended was missed.
    pub(super) fn new(
        instant: i64,
        when: Option<(Cron, TimeZone)>,
        object: &serde_json::Value,
        lengths: Vec<u64>,
        before: Option<Self>,
    ) -> Self {
        let policy = object.pointer("/spec/concurrencyPolicy");
        let policy = policy.and_then(serde_json::Value::as_str).unwrap_or_default();
        let seconds = object.pointer("/spec/startingDeadlineSeconds");
        let seconds = seconds.and_then(serde_json::Value::as_u64);
        let within_ms = seconds.map(|seconds| seconds.saturating_mul(1_000));
        let (turns, last_ms, suspended, began) = before.map_or_else(Default::default, |before| {
            let suspended = before.when.is_none().then_some(before.since);
            (before.turns, before.last_ms, suspended, before.began)
        });
        let mut turns: Turns = turns
            .with(Concurrency::named(policy), within_ms)
            .since(u64::try_from(instant).unwrap_or(0));
        let missed = when.as_ref().zip(suspended);
        let missed = missed.and_then(|((cron, zone), from)| last_between(cron, zone, from, instant));
        if let Some(missed) = missed {
            turns.missed(missed);
        }
        Self {
            // One that stays suspended is so since it was first.
            since: suspended.filter(|_| when.is_none()).unwrap_or(instant),
            when,
            turns,
            last_ms,
            job: object.pointer("/spec/jobTemplate").cloned().unwrap_or_default(),
            pods: at_once(object),
            lengths,
            began,
        }
    }

    /// The runs that it begins after `from` and until `to`.
    pub(super) fn begins(&mut self, from: i64, to: i64, runs: &mut u64) -> Result<Vec<Begin>, ImportError> {
        let Some((cron, zone)) = &self.when else {
            return Ok(Vec::new());
        };
        let start = Timestamp::from_millisecond(from.max(self.since)).unwrap_or_default();
        let from = u64::try_from(start.as_millisecond()).unwrap_or(0);
        let after = u64::try_from(to).unwrap_or(0).saturating_add(1);
        let (turns, last_ms, began) = (&mut self.turns, &mut self.last_ms, &mut self.began);
        let (lengths, pods) = (&self.lengths, self.pods);
        let mut found = Vec::new();
        let mut begin = |turns: &mut Turns, at: u64| {
            let is_ended = turns.is_replaced() && at < turns.over_ms();
            let ended_ms = last_ms.replace(at).filter(|_| is_ended);
            let length_ms = length_of(*began, pods, lengths);
            *began += 1;
            turns.until(at.saturating_add(length_ms.unwrap_or(RUNS_MS)));
            found.push(Begin {
                at_ms: at,
                ended_ms,
                length_ms,
            });
        };
        for hit in hits_in(zone, cron, start, after.saturating_sub(from)) {
            // What is due in the instant of an event ran before it.
            if hit == 0 {
                continue;
            }
            *runs += 1;
            if *runs > MOST_RUNS {
                return Err(ImportError::whole(format!(
                    "has CronJobs that run more than {MOST_RUNS} times"
                )));
            }
            let at = from.saturating_add(hit);
            if let Some(late) = turns.made_up_for(at) {
                begin(turns, late);
            }
            if turns.is_taken(at) {
                begin(turns, at);
            }
        }
        if let Some(late) = turns.made_up_for(after) {
            begin(turns, late);
        }
        Ok(found)
    }
}

/// How many pods of a run of a CronJob there are at once.
fn at_once(object: &serde_json::Value) -> usize {
    let told = |field: &str| {
        let told = object.pointer(&format!("/spec/jobTemplate/spec/{field}"));
        told.and_then(serde_json::Value::as_u64)
    };
    let parallelism = told("parallelism").unwrap_or(1);
    let pods = told("completions").map_or(parallelism, |needed| needed.min(parallelism));
    usize::try_from(pods.max(1)).unwrap_or(usize::MAX)
}

/// For how long the run of this number takes, whose pods take the known lengths in turn: as long as the longest of them.
fn length_of(number: usize, pods: usize, lengths: &[u64]) -> Option<u64> {
    let first = number.wrapping_mul(pods).checked_rem(lengths.len())?;
    let of_run = lengths.iter().cycle().skip(first).take(pods.min(lengths.len()));
    of_run.max().copied()
}

/// The last time of a schedule after `from` and until `to`, sought further and further back: a schedule may be due each minute of a year.
fn last_between(cron: &Cron, zone: &TimeZone, from: i64, to: i64) -> Option<u64> {
    let mut back_ms = LOOK_BACK_MS;
    loop {
        let after = from.max(to.saturating_sub(back_ms));
        let first = Timestamp::from_millisecond(after.saturating_add(1)).ok()?;
        let last = hits_in(zone, cron, first, to.abs_diff(after)).last();
        if let Some(hit) = last {
            return u64::try_from(first.as_millisecond()).ok()?.checked_add(hit);
        }
        if after == from {
            return None;
        }
        back_ms = back_ms.saturating_mul(8);
    }
}
