//! Runs of several policies and seeds, put side by side.
//!
//! Owns pairing, means, intervals and verdicts. Policies meet the same workload and the same luck under one seed, so what is judged is always the difference
//! within a seed. It never ranks inside the noise.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use spokeshave_simulate::{Engine, Run};

use crate::curves::{MeanCurve, Waiting};
use crate::expect::{Expectation, Expected};
use crate::metric::{METRICS, Metric};
use crate::raw::{RawRun, RunEffort, Table};
use crate::setting::{NOT_MODELLED, Setting};
use crate::settled;
use crate::statistics::{FEWEST_SEEDS, Interval, MISSES, interval, mean, standard_deviation};
use crate::unit::Unit;
use crate::work::{Work, patience_ms};

/// The version of the JSON form; fields are only ever added.
pub const API_VERSION: &str = "comparison.simulate.spokeshave.dev/v1alpha1";

/// Why runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// There is nothing to compare.
    #[error("no run has ended: there is nothing to compare")]
    Nothing,
    /// A run's policy is not in the setting.
    #[error("a run is of policy {0:?}, which the scenario does not list")]
    UnknownPolicy(String),
    /// The baseline is not in the setting.
    #[error("baseline {0:?} is not a policy of the scenario; its policies are {1}")]
    UnknownBaseline(String, String),
    /// One policy and seed twice.
    #[error("policy {0:?} has two runs under seed {1}; each pair may run once")]
    Twice(String, u64),
    /// Engines mixed.
    #[error("runs of both engines: their figures may only be compared within one engine")]
    Engines,
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `Comparison`.
    pub kind: &'static str,
    /// What was simulated.
    pub setting: Setting,
    /// Which engine ran it.
    pub engine: Engine,
    /// How differences were judged.
    pub method: Method,
    /// What the names in `values` mean.
    pub metrics: Vec<MetricFacts>,
    /// The policies, in the order of the scenario.
    pub policies: Vec<PolicyResult>,
    /// The raw values of each policy and seed, from which everything above follows.
    pub runs: Vec<RawRun>,
    /// The expectation of `expect`.
    pub expectations: Vec<Expected>,
    /// What the simulation leaves out.
    pub not_modelled: Vec<&'static str>,
    /// True when a run was interrupted or is missing, of the seeds of the setting or of those of another policy.
    pub partial: bool,
    /// SHA-256 over the runs' digests in order of policy and seed, in hexadecimal.
    pub digest: String,
    /// What each run took. The last section, so that all before it is the same bytes for the same scenario.
    pub took: Vec<RunEffort>,
}

/// How differences were judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Method {
    /// The test, in words.
    pub test: &'static str,
    /// Probability that any interval of one metric misses, over all comparisons with the baseline.
    pub misses: f64,
    /// Number of comparisons with the baseline.
    pub comparisons: usize,
    /// Probability that one interval misses: `misses` divided by `comparisons` (Bonferroni).
    pub misses_of_each: f64,
    /// With fewer seeds there is no interval.
    pub fewest_seeds: usize,
    /// A pod counts as left out when it waited in vain for longer, in milliseconds: longer than any that got a node, under whichever policy.
    pub left_out_after_ms: u32,
}

/// What a name in `values` means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricFacts {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its definition.
    pub meaning: &'static str,
}

/// One policy over all its seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyResult {
    /// Its name.
    pub name: String,
    /// What it models, when it is a model of another product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// In what it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// True for the policy that the others are compared with.
    pub baseline: bool,
    /// Seeds whose run was completed.
    pub seeds: Vec<u64>,
    /// Seeds in whose run the cost still drifted in the second half.
    pub not_settled: Vec<u64>,
    /// Pods that were left without a node, mean over seeds.
    pub left_out: f64,
    /// Whether as many pods got a node as under the baseline: if not, its cost is that of other work.
    pub work: Work,
    /// Each metric that is defined in at least one completed run.
    pub values: BTreeMap<&'static str, Summary>,
    /// The mean course over the completed runs.
    pub curve: MeanCurve,
    /// How long pods waited.
    pub waiting: Waiting,
}

/// One metric of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Mean over seeds.
    pub mean: f64,
    /// Smallest of a seed.
    pub minimum: f64,
    /// Largest of a seed.
    pub maximum: f64,
    /// Sample standard deviation over seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_deviation: Option<f64>,
    /// 95 % interval of the mean itself, not adjusted; compare policies by `against` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// True when a seed's value is a lower bound, because pods still waited at the end or left before they had a node.
    pub at_least: bool,
    /// The difference from the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Difference>,
}

/// A paired difference: this policy minus the baseline, over the seeds that both have.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Number of seeds that both have.
    pub pairs: usize,
    /// Mean difference, in the metric's unit.
    pub mean: f64,
    /// The adjusted interval of the difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The mean difference divided by the baseline's mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative: Option<f64>,
    /// The interval divided by the baseline's mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_interval: Option<Interval>,
    /// What the interval shows.
    pub verdict: Verdict,
    /// The same in words: `cheaper`, `dearer`, `lower`, `higher`, `no difference shown`, `too few seeds`, `pods left out`, `more pods placed`.
    pub words: &'static str,
}

/// What an interval shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The whole interval is below zero.
    Lower,
    /// The whole interval is above zero.
    Higher,
    /// Zero is inside.
    NoDifferenceShown,
    /// There is no interval.
    TooFewSeeds,
    /// It would be lower, or open, but is the figure of less work: pods had no node that had one under the baseline.
    PodsLeftOut,
    /// It would be higher, or open, but is the figure of more work: pods had a node that had none under the baseline.
    MorePodsPlaced,
}

impl Verdict {
    /// What an interval of a difference shows.
    pub fn of(interval: Option<Interval>) -> Self {
        match interval {
            None => Verdict::TooFewSeeds,
            Some(interval) if interval.high < 0.0 => Verdict::Lower,
            Some(interval) if interval.low > 0.0 => Verdict::Higher,
            Some(_) => Verdict::NoDifferenceShown,
        }
    }

    /// The verdict on a figure that less work lowers. One that speaks against the policy with less work stands.
    fn with(self, work: Work) -> Self {
        match (self, work) {
            (Verdict::Higher, Work::Less) | (Verdict::Lower, Work::More) | (_, Work::Same) => self,
            (_, Work::Less) => Verdict::PodsLeftOut,
            (_, Work::More) => Verdict::MorePodsPlaced,
        }
    }

    /// The verdict in words.
    pub fn words(self, unit: Unit) -> &'static str {
        match (self, unit) {
            (Verdict::Lower, Unit::Dollars) => "cheaper",
            (Verdict::Higher, Unit::Dollars) => "dearer",
            (Verdict::Lower, _) => "lower",
            (Verdict::Higher, _) => "higher",
            (Verdict::NoDifferenceShown, _) => "no difference shown",
            (Verdict::TooFewSeeds, _) => "too few seeds",
            (Verdict::PodsLeftOut, _) => "pods left out",
            (Verdict::MorePodsPlaced, _) => "more pods placed",
        }
    }
}

impl Comparison {
    /// Compares the runs. Their order does not matter.
    ///
    /// # Errors
    /// No run was completed or begun, a run or the baseline is of an unknown policy, a policy has two runs under one seed, or engines are mixed.
    pub fn of(setting: Setting, runs: &[Run], expectations: &[Expectation]) -> Result<Self, CompareError> {
        let engine = check(&setting, runs)?;
        let place = |run: &Run| {
            let known = setting
                .policies
                .iter()
                .position(|policy| policy.name == run.policy);
            (known.unwrap_or(usize::MAX), run.seed)
        };
        let mut ordered: Vec<&Run> = runs.iter().collect();
        ordered.sort_by_key(|run| place(run));
        let patience_ms = patience_ms(ordered.iter().copied().filter(|run| !run.partial));
        let raw: Vec<RawRun> = ordered.iter().map(|run| RawRun::of(run, patience_ms)).collect();
        let table = Table::of(&raw);
        let with_runs: BTreeSet<&str> = runs.iter().map(|run| run.policy.as_str()).collect();
        let compared = with_runs.iter().filter(|name| **name != setting.baseline).count();
        let misses_of_each = MISSES / compared.max(1) as f64;
        let policies: Vec<PolicyResult> = setting
            .policies
            .iter()
            .map(|policy| {
                let own: Vec<&Run> = ordered
                    .iter()
                    .copied()
                    .filter(|run| run.policy == policy.name)
                    .collect();
                let completed: Vec<&Run> = own.iter().copied().filter(|run| !run.partial).collect();
                let left_out = table.left_out(&policy.name);
                let work = Work::of(&left_out, &table.left_out(&setting.baseline), misses_of_each);
                let left_out: Vec<f64> = left_out.into_values().collect();
                let values = METRICS.iter().filter_map(|metric| {
                    let pair = (policy.name.as_str(), setting.baseline.as_str());
                    Some((metric.name, summary(&table, metric, pair, work, misses_of_each)?))
                });
                PolicyResult {
                    name: policy.name.clone(),
                    model: policy.model.clone(),
                    summary: policy.summary.clone(),
                    baseline: policy.name == setting.baseline,
                    seeds: completed.iter().map(|run| run.seed).collect(),
                    not_settled: completed
                        .iter()
                        .filter(|run| settled::still_drifts(&run.curve, setting.warmup_ms))
                        .map(|run| run.seed)
                        .collect(),
                    left_out: mean(&left_out).unwrap_or_default(),
                    work,
                    values: values.collect(),
                    curve: MeanCurve::of(&completed),
                    waiting: Waiting::of(&completed),
                }
            })
            .collect();
        let seeds = policies.iter().map(|policy| policy.seeds.len());
        let wanted = usize::try_from(setting.seeds).unwrap_or(usize::MAX);
        let is_missing = seeds.clone().max() != seeds.clone().min() || seeds.min() < Some(wanted);
        let expectations = expectations
            .iter()
            .map(|expectation| expectation.judge(&table, &setting.baseline, misses_of_each))
            .collect();
        Ok(Self {
            api_version: API_VERSION,
            kind: "Comparison",
            engine,
            method: Method {
                test: "paired t over seeds, two-sided; Bonferroni over the comparisons with the baseline",
                misses: MISSES,
                comparisons: compared,
                misses_of_each,
                fewest_seeds: FEWEST_SEEDS,
                left_out_after_ms: patience_ms,
            },
            metrics: METRICS
                .iter()
                .map(|metric| MetricFacts {
                    name: metric.name,
                    unit: metric.unit,
                    meaning: metric.meaning,
                })
                .collect(),
            policies,
            expectations,
            not_modelled: NOT_MODELLED.to_vec(),
            partial: is_missing || raw.iter().any(|run| run.partial),
            digest: digest(&setting, &raw),
            took: ordered.iter().map(|run| RunEffort::of(run)).collect(),
            runs: raw,
            setting,
        })
    }

    /// The documented JSON form, with a trailing newline.
    pub fn to_json(&self) -> String {
        // Maps with text keys and finite numbers: nothing that serde_json could refuse.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn check(setting: &Setting, runs: &[Run]) -> Result<Engine, CompareError> {
    let engine = runs.first().ok_or(CompareError::Nothing)?.engine;
    let known: BTreeSet<&str> = setting
        .policies
        .iter()
        .map(|policy| policy.name.as_str())
        .collect();
    if !known.contains(setting.baseline.as_str()) {
        let names: Vec<&str> = known.into_iter().collect();
        return Err(CompareError::UnknownBaseline(
            setting.baseline.clone(),
            names.join(", "),
        ));
    }
    let mut seen = BTreeSet::new();
    for run in runs {
        if !known.contains(run.policy.as_str()) {
            return Err(CompareError::UnknownPolicy(run.policy.clone()));
        }
        if !seen.insert((run.policy.as_str(), run.seed)) {
            return Err(CompareError::Twice(run.policy.clone(), run.seed));
        }
        if run.engine != engine {
            return Err(CompareError::Engines);
        }
    }
    Ok(engine)
}

fn summary(
    table: &Table<'_>,
    metric: &Metric,
    (policy, baseline): (&str, &str),
    work: Work,
    misses: f64,
) -> Option<Summary> {
    let own = table.values(policy, metric.name);
    let values: Vec<f64> = own.values().copied().collect();
    Some(Summary {
        mean: mean(&values)?,
        minimum: values.iter().copied().fold(f64::INFINITY, f64::min),
        maximum: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        standard_deviation: standard_deviation(&values),
        interval: interval(&values, MISSES),
        at_least: table.is_at_least(policy, metric.name),
        against: if policy == baseline {
            None
        } else {
            difference(&own, &table.values(baseline, metric.name), metric, work, misses)
        },
    })
}

fn difference(
    own: &BTreeMap<u64, f64>,
    baseline: &BTreeMap<u64, f64>,
    metric: &Metric,
    work: Work,
    misses: f64,
) -> Option<Difference> {
    let pairs: Vec<(f64, f64)> = own
        .iter()
        .filter_map(|(seed, value)| Some((*value, *baseline.get(seed)?)))
        .collect();
    let differences: Vec<f64> = pairs.iter().map(|(own, base)| own - base).collect();
    let bases: Vec<f64> = pairs.iter().map(|(_, base)| *base).collect();
    let interval = interval(&differences, misses);
    let base = mean(&bases).filter(|base| *base != 0.0);
    let mean = mean(&differences)?;
    let seen = Verdict::of(interval);
    let verdict = if metric.follows_work() {
        seen.with(work)
    } else {
        seen
    };
    Some(Difference {
        pairs: pairs.len(),
        mean,
        interval,
        relative: base.map(|base| mean / base),
        relative_interval: interval
            .zip(base)
            .map(|(interval, base)| interval.scaled(1.0 / base)),
        verdict,
        words: verdict.words(metric.unit),
    })
}

fn digest(setting: &Setting, runs: &[RawRun]) -> String {
    let mut hash = Sha256::new();
    hash.update(setting.scenario_sha256.as_bytes());
    for run in runs {
        hash.update(format!("\n{}\t{}\t{}\t{}", run.policy, run.seed, run.partial, run.digest).as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
