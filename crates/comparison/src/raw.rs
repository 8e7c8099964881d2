//! The raw values of runs, as they are printed and paired.
//!
//! Owns one number for each policy, seed and metric. Interrupted runs are kept to be shown; no statistic sees them.

use std::collections::BTreeMap;

use serde::Serialize;
use spokeshave_simulate::Run;

use crate::metric::METRICS;
use crate::work::left_out;

/// The raw values of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RawRun {
    /// Its policy.
    pub policy: String,
    /// Its seed.
    pub seed: u64,
    /// True when it was interrupted: shown, but in no mean.
    pub partial: bool,
    /// Its digest over decisions and figures.
    pub digest: String,
    /// Each metric that is defined.
    pub values: BTreeMap<&'static str, f64>,
    /// Metrics of which the value, as it is printed, is a lower bound.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at_least: Vec<&'static str>,
    /// The largest that a value may be, where it may be larger than what was seen; `None` where nothing limits it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub at_most: BTreeMap<&'static str, Option<f64>>,
    /// The same if pods that have waited since the warm-up were among those of the percentiles.
    #[serde(skip)]
    pub(crate) at_most_of_all: BTreeMap<&'static str, f64>,
    /// Pods that were left without a node: at the end, or until they were deleted, for longer than `leftOutAfterMs` of the method.
    pub left_out: u64,
}

impl RawRun {
    pub(crate) fn of(run: &Run, patience_ms: u32) -> Self {
        let (mut values, mut at_least, mut at_most) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let mut at_most_of_all = BTreeMap::new();
        for metric in METRICS {
            let value = metric.of(&run.measured);
            // Also where all pods that waited have waited since the warm-up, so that there is no figure.
            let of_all = metric.at_most_of_all(&run.measured);
            let of_all = of_all.filter(|most| value.is_none_or(|value| *most > value));
            at_most_of_all.extend(of_all.map(|most| (metric.name, most)));
            let Some(value) = value else {
                continue;
            };
            values.insert(metric.name, value);
            let Some(most) = metric.at_most(&run.measured) else {
                continue;
            };
            if metric.is_at_least(value, most) {
                at_least.push(metric.name);
            }
            if most > value {
                at_most.insert(metric.name, most.is_finite().then_some(most));
            }
        }
        Self {
            policy: run.policy.clone(),
            seed: run.seed,
            partial: run.partial,
            digest: run.digest.clone(),
            values,
            at_least,
            at_most,
            at_most_of_all,
            left_out: left_out(&run.measured, patience_ms),
        }
    }
}

/// What one run took, from its start to its end, warm-up included. It is beside the figures and in no digest: processor time differs from run to run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEffort {
    /// Its policy.
    pub policy: String,
    /// Its seed.
    pub seed: u64,
    /// Instances launched.
    pub launches: u64,
    /// Launches that failed.
    pub failed_launches: u64,
    /// Commands of disruption that were carried out.
    pub commands: u64,
    /// Pods evicted by disruption that could have waited, or lost with a node that it removed.
    pub moves: u64,
    /// How often passes of disruption have tried to do without a set of nodes; of the fast engine only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_ifs: Option<u64>,
    /// Requests of the operator to the API server that are not reads; of the full engine only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_writes: Option<u64>,
    /// Processor time of the whole simulation, in seconds, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
}

impl RunEffort {
    pub(crate) fn of(run: &Run) -> Self {
        let work = run.work;
        Self {
            policy: run.policy.clone(),
            seed: run.seed,
            launches: work.launches,
            failed_launches: work.failed_launches,
            commands: work.commands,
            moves: work.moves,
            what_ifs: work.what_ifs,
            api_writes: work.api_writes,
            cpu_seconds: work.cpu_ms.map(|milliseconds| milliseconds as f64 / 1_000.0),
        }
    }
}

/// Which waits of which no end was seen may have been endless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endless {
    /// Those that the figures count: they began after the warm-up.
    Counted,
    /// Those that began in it, too.
    All,
}

/// The completed raw runs, for pairing.
pub(crate) struct Table<'a>(BTreeMap<(&'a str, u64), &'a RawRun>);

impl<'a> Table<'a> {
    pub(crate) fn of(runs: &'a [RawRun]) -> Self {
        let completed = runs.iter().filter(|run| !run.partial);
        Self(
            completed
                .map(|run| ((run.policy.as_str(), run.seed), run))
                .collect(),
        )
    }

    /// The values of a policy by seed.
    pub(crate) fn values(&self, policy: &str, metric: &str) -> BTreeMap<u64, f64> {
        let own = self.0.iter().filter(|((name, _), _)| *name == policy);
        own.filter_map(|((_, seed), run)| Some((*seed, *run.values.get(metric)?)))
            .collect()
    }

    /// How many pods a policy left out, by seed.
    pub(crate) fn left_out(&self, policy: &str) -> BTreeMap<u64, f64> {
        let own = self.0.iter().filter(|((name, _), _)| *name == policy);
        own.map(|((_, seed), run)| (*seed, run.left_out as f64)).collect()
    }

    /// The largest that the values of a policy may be, by seed; infinite where nothing limits them. A run without a value has one where pods would make it one.
    pub(crate) fn at_most(&self, policy: &str, metric: &str, endless: Endless) -> BTreeMap<u64, f64> {
        let own = self.0.iter().filter(|((name, _), _)| *name == policy);
        own.filter_map(|((_, seed), run)| {
            let value = run.values.get(metric).copied();
            let most = match endless {
                Endless::Counted => run.at_most.get(metric).map(|most| most.unwrap_or(f64::INFINITY)),
                Endless::All => run.at_most_of_all.get(metric).copied(),
            };
            Some((*seed, most.or(value)?))
        })
        .collect()
    }

    /// True when a run's value of the metric is only a lower bound.
    pub(crate) fn is_at_least(&self, policy: &str, metric: &str) -> bool {
        let own = self.0.iter().filter(|((name, _), _)| *name == policy);
        own.into_iter().any(|(_, run)| run.at_least.contains(&metric))
    }
}
