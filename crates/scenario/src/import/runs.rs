//! How long Jobs ran, and which times of a CronJob's schedule begin another run.
//!
//! Owns what a Job that is over tells of those to come, and what happens while the last run is not over. When a schedule is due is the business of `crons`.

use std::ops::Range;

use jiff::Timestamp;

use super::inventory::{READY, RUNS_MS, is_living};
use super::objects::{Concurrency, Pod, Workload};
use super::{Builder, ImportError};
use crate::generate::MOST_PODS;
use crate::timeline::{Change, OwnerId};

/// What a dump has of a Job: itself, its pods, or both.
#[derive(Debug, Default)]
pub(crate) struct Ran<'i> {
    pub(crate) job: Option<&'i Workload>,
    pub(crate) pods: Vec<&'i Pod>,
}

impl Ran<'_> {
    /// For how long a pod ran. Where a Job's pods run one after the other, each simulated one stands for all of them, and runs as long as the Job with its
    /// attempts. Where they run at the same time the Job takes as long as the slowest, and they say themselves how long it was. `cron` is the CronJob of it.
    pub(crate) fn lengths(&self, cron: Option<&Workload>) -> Vec<u64> {
        let is_in_turn = |spec: &Workload| {
            spec.replicas == 1 || spec.completions.is_some_and(|needed| needed > spec.replicas)
        };
        let done = self.pods.iter().filter(|pod| pod.phase == "Succeeded");
        let lengths: Vec<u64> = done.filter_map(|pod| length(pod.started, pod.finished)).collect();
        if lengths.is_empty() || self.job.or(cron).is_some_and(is_in_turn) {
            return self.whole().into_iter().collect();
        }
        lengths
    }

    /// How long it took as a whole. Where all of its pods are there it is as long as these: a Job begins when it is made, and how long its first pod then waits for
    /// a node is found out by the simulation.
    fn whole(&self) -> Option<u64> {
        let done = self.pods.iter().filter(|pod| pod.phase == "Succeeded").count();
        let first = self.pods.iter().filter_map(|pod| pod.started).min();
        let last = self.pods.iter().filter_map(|pod| pod.finished).max();
        let of_pods = length(first, last);
        let Some(job) = self.job else {
            let is_over = done > 0 && !self.pods.iter().any(|pod| is_living(pod));
            return of_pods.filter(|_| is_over);
        };
        let whole = length(job.started, job.ended)?;
        let are_all = done >= job.completions.unwrap_or(1) as usize;
        of_pods.filter(|_| are_all).or(Some(whole))
    }
}

fn length(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<u64> {
    let length = to?.as_millisecond().saturating_sub(from?.as_millisecond());
    u64::try_from(length).ok()
}

/// Which times of a schedule begin a run. All of them are in milliseconds after one beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turns {
    concurrency: Concurrency,
    starts_within_ms: Option<u64>,
    /// When all runs that have begun are over.
    over_ms: u64,
    /// The last time at which none could begin.
    missed_ms: Option<u64>,
    /// Since when it is as it is: nothing is made up for before that.
    since_ms: u64,
}

impl Turns {
    /// Of a CronJob that says this, whatever has begun.
    pub(crate) fn with(self, concurrency: Concurrency, starts_within_ms: Option<u64>) -> Self {
        Self {
            concurrency,
            starts_within_ms,
            ..self
        }
    }

    /// The same from then on.
    pub(crate) fn since(self, since_ms: u64) -> Self {
        Self { since_ms, ..self }
    }

    /// At this time of the schedule none began, because it was suspended.
    pub(crate) fn missed(&mut self, at_ms: u64) {
        self.missed_ms = Some(at_ms);
    }

    /// A run has begun that is over then.
    pub(crate) fn until(&mut self, over_ms: u64) {
        self.over_ms = over_ms.max(self.over_ms);
    }

    /// When all runs that have begun are over.
    pub(crate) fn over_ms(&self) -> u64 {
        self.over_ms
    }

    /// Whether a run begins at this time of the schedule.
    pub(crate) fn is_taken(&mut self, at_ms: u64) -> bool {
        let has_to_wait = self.concurrency == Concurrency::Forbid && at_ms < self.over_ms;
        self.missed_ms = has_to_wait.then_some(at_ms);
        !has_to_wait
    }

    /// Whether what still runs is ended when another run begins.
    pub(crate) fn is_replaced(&self) -> bool {
        self.concurrency == Concurrency::Replace
    }

    /// A run that begins before this instant and after its time: the controller makes up for the last of those that were missed as soon as it can, unless it is
    /// too late for it.
    pub(crate) fn made_up_for(&mut self, before_ms: u64) -> Option<u64> {
        let at_ms = match self.concurrency {
            Concurrency::Forbid => self.over_ms.max(self.since_ms),
            _ => self.since_ms,
        };
        if at_ms >= before_ms {
            return None;
        }
        let missed_ms = self.missed_ms.take()?;
        let is_in_time = |within_ms| at_ms <= missed_ms.saturating_add(within_ms);
        self.starts_within_ms.is_none_or(is_in_time).then_some(at_ms)
    }
}

/// The runs of a Job or a CronJob of a dump, as events.
#[derive(Debug)]
pub(crate) struct Runs<'k> {
    owner: OwnerId,
    /// For how long pods of it ran, as later ones do in turn.
    known: &'k [u64],
    /// The numbers of the pods that began last.
    last: Range<u64>,
    /// When these are over, if each has had a node at once.
    over_ms: u64,
}

impl<'k> Runs<'k> {
    pub(crate) fn new(owner: OwnerId, known: &'k [u64]) -> Self {
        Self {
            owner,
            known,
            last: 0..0,
            over_ms: 0,
        }
    }

    /// So many pods begin.
    pub(crate) fn begin(
        &mut self,
        builder: &mut Builder,
        at_ms: u64,
        pods: usize,
    ) -> Result<(), ImportError> {
        let first = self.last.end;
        self.last = first..first.saturating_add(pods as u64);
        for pod in self.last.clone() {
            let runs_ms = match self.known {
                [] => RUNS_MS,
                known => known[pod as usize % known.len()],
            };
            let over_ms = at_ms.saturating_add(READY.median_ms).saturating_add(runs_ms);
            self.over_ms = over_ms.max(self.over_ms);
            let runs_ms = Some(runs_ms);
            builder.event(at_ms, self.owner, Change::Begin { pod, runs_ms })?;
        }
        Ok(())
    }

    /// A CronJob goes on: its schedule is due at `times`, the last of them before `duration_ms`.
    pub(crate) fn go_on(
        &mut self,
        builder: &mut Builder,
        cron: &Workload,
        times: impl Iterator<Item = u64>,
        duration_ms: u64,
    ) -> Result<(), ImportError> {
        if u64::from(cron.replicas) > MOST_PODS {
            return Err(ImportError::whole(format!(
                "CronJob {}/{} has runs of {} pods, and at most {MOST_PODS} fit; lower their parallelism",
                cron.meta.namespace(),
                cron.meta.name(),
                cron.replicas
            )));
        }
        let pods = cron.replicas as usize;
        let mut turns = Turns::default().with(cron.concurrency, cron.starts_within_ms);
        turns.until(self.over_ms);
        for at_ms in times {
            if let Some(late_ms) = turns.made_up_for(at_ms) {
                self.begin(builder, late_ms, pods)?;
                turns.until(self.over_ms);
            }
            if !turns.is_taken(at_ms) {
                continue;
            }
            if turns.is_replaced() {
                // Those that are over by then are no longer there to be ended.
                for pod in self.last.clone() {
                    builder.event(at_ms, self.owner, Change::End { pod })?;
                }
            }
            self.begin(builder, at_ms, pods)?;
            turns.until(self.over_ms);
        }
        match turns.made_up_for(duration_ms) {
            Some(late_ms) => self.begin(builder, late_ms, pods),
            None => Ok(()),
        }
    }
}
