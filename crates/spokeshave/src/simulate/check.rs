//! `simulate --check`: summary of a scenario without running it.

use std::collections::BTreeMap;

use serde::Serialize;
use spokeshave_comparison::AsRecorded;
use spokeshave_model::pod::requests_of_template;
use spokeshave_model::resources::{ResourceName, Resources};
use spokeshave_plan::report::some_of;
use spokeshave_scenario::file::PolicySpec;
use spokeshave_scenario::{Facts, OwnerKind, Scenario, Timeline};

use super::model_of;
use crate::arguments::OutputFormat;
use crate::text::count;

const DAY_MS: f64 = 86_400_000.0;
/// Nobody asks for less memory, in bytes, or for more cores, in thousandths, except by a wrong unit.
const LEAST_MEMORY: i64 = 1 << 20;
const MOST_CPU: i64 = 10_000_000;

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    api_version: &'static str,
    kind: &'static str,
    name: String,
    start: String,
    days: f64,
    warmup_days: f64,
    /// The same two as they were given, for people.
    #[serde(skip)]
    time: String,
    seeds: u32,
    policies: Vec<String>,
    /// Those of them that are models of other products, and which model each is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    models: BTreeMap<String, &'static str>,
    baseline: String,
    runs: u32,
    deployments: usize,
    stateful_sets: usize,
    jobs: usize,
    bare_pods: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_workloads: Option<usize>,
    events: u64,
    pods_at_start: u64,
    pods_per_day: f64,
    peak_pods: u64,
    peak_cores: f64,
    peak_memory_gib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_gpus: Option<u64>,
    expectations: Vec<String>,
    /// What really was of nodes in that time, where a recording tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_recorded: Option<AsRecorded>,
}

impl Check {
    /// Of a scenario and its timeline under the first seed, and of what really was, where that is known.
    pub(crate) fn of(
        scenario: &Scenario,
        policies: &[&PolicySpec],
        seeds: u32,
        timeline: &Timeline,
        as_recorded: Option<AsRecorded>,
    ) -> Self {
        let facts = Facts::of(timeline);
        let count = u32::try_from(policies.len()).unwrap_or(u32::MAX);
        let models = policies
            .iter()
            .filter_map(|policy| Some((policy.name.clone(), model_of(policy)?)));
        Self {
            api_version: "simulate.spokeshave.dev/v1alpha1",
            kind: "Check",
            name: scenario.name.clone(),
            start: scenario.start.to_string(),
            days: (scenario.duration_ms as f64 / DAY_MS * 1_000.0).round() / 1_000.0,
            warmup_days: (scenario.warmup_ms as f64 / DAY_MS * 1_000.0).round() / 1_000.0,
            time: time(scenario),
            seeds,
            policies: policies.iter().map(|policy| policy.name.clone()).collect(),
            models: models.collect(),
            baseline: scenario.baseline.clone(),
            runs: count.saturating_mul(seeds),
            deployments: timeline.owners_of(OwnerKind::Deployment),
            stateful_sets: timeline.owners_of(OwnerKind::StatefulSet),
            jobs: timeline.owners_of(OwnerKind::Job),
            bare_pods: timeline.owners_of(OwnerKind::Bare),
            other_workloads: Some(timeline.owners_of(OwnerKind::Other)).filter(|others| *others > 0),
            events: facts.events,
            pods_at_start: facts.at_start,
            pods_per_day: rounded(facts.births_per_day(scenario.duration_ms)),
            peak_pods: facts.peak_pods,
            peak_cores: facts.peak_cpu_milli as f64 / 1_000.0,
            peak_memory_gib: rounded(facts.peak_memory_bytes as f64 / f64::from(1 << 30)),
            peak_gpus: (facts.peak_gpus > 0).then_some(facts.peak_gpus),
            expectations: scenario.expect.iter().map(|one| one.text.clone()).collect(),
            as_recorded,
        }
    }

    /// As text.
    ///
    /// # Errors
    /// None in practice: the value is plain.
    pub(crate) fn print(&self, format: OutputFormat) -> anyhow::Result<String> {
        Ok(match format {
            OutputFormat::Table => self.table(),
            OutputFormat::Json => format!("{}\n", serde_json::to_string_pretty(self)?),
            OutputFormat::Yaml => serde_saphyr::to_string(self)?,
        })
    }

    fn table(&self) -> String {
        let mut kinds = Vec::new();
        for (count, one, several) in [
            (self.deployments, "Deployment", "Deployments"),
            (self.stateful_sets, "StatefulSet", "StatefulSets"),
            (self.jobs, "Job", "Jobs"),
            (self.bare_pods, "bare Pod", "bare Pods"),
            (
                self.other_workloads.unwrap_or(0),
                "other workload",
                "other workloads",
            ),
        ] {
            if count > 0 {
                kinds.push(format!("{count} {}", if count == 1 { one } else { several }));
            }
        }
        let mut rows = vec![
            ("scenario", self.name.clone()),
            ("time", self.time.clone()),
            (
                "runs",
                format!(
                    "{}: {} × seeds 1 to {}",
                    self.runs,
                    self.policies.join(", "),
                    self.seeds
                ),
            ),
            ("baseline", self.baseline.clone()),
            ("workloads", kinds.join(", ")),
            ("pods at the start", self.pods_at_start.to_string()),
            ("pods a day", self.pods_per_day.to_string()),
            ("peak pods", self.peak_pods.to_string()),
            ("peak cores", self.peak_cores.to_string()),
            ("peak memory", format!("{} GiB", self.peak_memory_gib)),
        ];
        if !self.models.is_empty() {
            let models = self.models.iter();
            let models: Vec<String> = models.map(|(name, of)| format!("{name}: {of}")).collect();
            let text = format!("{} (documented behaviour, not the products)", models.join(", "));
            rows.insert(3, ("models", text));
        }
        if let Some(gpus) = self.peak_gpus {
            rows.push(("peak GPUs", gpus.to_string()));
        }
        rows.push(("events", self.events.to_string()));
        if let Some(recorded) = &self.as_recorded {
            let text = format!("{}; {} ({})", recorded.cost(), recorded.nodes(), recorded.basis);
            rows.push(("as recorded", text));
        }
        for expectation in &self.expectations {
            rows.push(("expects", expectation.clone()));
        }
        let lines = rows.iter().map(|(name, text)| format!("{name:<18} {text}\n"));
        let mut text: String = lines.collect();
        text.push_str(
            "\nOf seed 1, if every pod started at once and none was evicted. Nothing has been simulated.\n",
        );
        text
    }
}

/// Requests that are possible and hardly meant, one sentence for each resource.
pub(crate) fn doubts(timeline: &Timeline) -> Vec<String> {
    let (mut tiny, mut huge) = (Vec::new(), Vec::new());
    for owner in &timeline.owners {
        let specs = owner.templates().filter_map(|template| template.spec.as_ref());
        let requests: Vec<Resources> = specs.map(requests_of_template).collect();
        let name = || format!("{}/{}", owner.namespace, owner.name);
        let is_tiny = |one: &Resources| (1..LEAST_MEMORY).contains(&one.get(ResourceName::MEMORY));
        if requests.iter().any(is_tiny) {
            tiny.push(name());
        }
        if requests.iter().any(|one| one.get(ResourceName::CPU) > MOST_CPU) {
            huge.push(name());
        }
    }
    let mut doubts = Vec::new();
    if !tiny.is_empty() {
        doubts.push(format!(
            "the pods of {} request less than 1Mi of memory each: without a unit it is bytes, and m is a thousandth; 512Mi is half a gibibyte",
            some_of(&tiny, 5)
        ));
    }
    if !huge.is_empty() {
        doubts.push(format!(
            "the pods of {} request more than 10,000 cores each: without a unit it is cores, and M is a million; 500m is half a core",
            some_of(&huge, 5)
        ));
    }
    doubts
}

/// How long it is, from when, and how much of that is warm-up.
fn time(scenario: &Scenario) -> String {
    let all = format!("{} from {}", length(scenario.duration_ms), scenario.start);
    if scenario.warmup_ms == 0 {
        return all;
    }
    let first = length(scenario.warmup_ms);
    let are = if first.ends_with('s') { "are" } else { "is" };
    format!("{all}, of which the first {first} {are} warm-up and not counted")
}

/// A length of time in whole words: `1 day`, `2 days 6 hours`.
fn length(milliseconds: u64) -> String {
    let mut rest = milliseconds;
    let mut words = Vec::new();
    for (unit, length) in [
        ("day", 86_400_000),
        ("hour", 3_600_000),
        ("minute", 60_000),
        ("second", 1_000),
    ] {
        let number = usize::try_from(rest / length).unwrap_or(usize::MAX);
        if number > 0 {
            words.push(count(number, unit));
        }
        rest %= length;
    }
    if words.is_empty() {
        words.push("less than a second".to_owned());
    }
    words.join(" ")
}

/// To one decimal.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_in_whole_words() {
        for (milliseconds, expected) in [
            (86_400_000, "1 day"),
            (21_600_000, "6 hours"),
            (604_800_000, "7 days"),
            (131_400_000, "1 day 12 hours 30 minutes"),
            (250, "less than a second"),
        ] {
            assert_eq!(length(milliseconds), expected);
        }
    }
}
