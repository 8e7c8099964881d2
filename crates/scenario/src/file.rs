//! A scenario file: what is simulated, for how long, under which policies, and what is expected of them.
//!
//! Owns the document's types and its reading, with each problem at its path. It opens no file that the document names, and it knows no line numbers.

use jiff::Timestamp;
use serde_json::Value;

use crate::fields::{Fields, Item, Problem, Problems, closest, listed};
use crate::timeline::Spread;
use crate::workload::{Workload, spread, workload};

/// The version that this program reads.
pub const API_VERSION: &str = "simulate.spokeshave.dev/v1alpha1";
/// Longest simulated time: a year.
const MOST_MS: u64 = 366 * 86_400_000;

/// A scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// `metadata.name`.
    pub name: String,
    /// The instant at which it begins; schedules, weekends and times of day go by it.
    pub start: Timestamp,
    /// How long it is simulated, in milliseconds, including the warm-up.
    pub duration_ms: u64,
    /// How much of the beginning is not counted.
    pub warmup_ms: u64,
    /// Seeds 1 to this number are simulated.
    pub seeds: u32,
    /// The cluster.
    pub cluster: ClusterSpec,
    /// What runs in it.
    pub workloads: Vec<Workload>,
    /// What the cloud does.
    pub cloud: CloudSpec,
    /// What is compared.
    pub policies: Vec<PolicySpec>,
    /// The policy that the others are compared with.
    pub baseline: String,
    /// What has to come out: comparisons of figures, which the crate `comparison` reads.
    pub expect: Vec<ExpectSpec>,
}

/// An expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectSpec {
    /// As it was written.
    pub text: String,
    /// Its path in the document.
    pub path: String,
}

/// The cluster before any workload.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterSpec {
    /// Files with NodePools, NodeClasses, DaemonSets and DisruptionPolicies, relative to the scenario's file.
    pub manifests: Vec<String>,
    /// Dumps whose workloads run from the start to the end; of two objects with one name the later one counts.
    pub snapshot: Vec<String>,
    /// Whether it begins without nodes although dumps have some.
    pub begins_empty: bool,
    /// A file with instance types; none: the built-in ones.
    pub catalog: Option<String>,
    /// Whether the scheduler prefers full nodes (`MostAllocated`) to empty ones.
    pub most_allocated: bool,
}

/// Events caused by the cloud.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CloudSpec {
    /// From the launch to the kubelet's joining; none: the engine's.
    pub boot: Option<Spread>,
    /// Interruptions of spot instances.
    pub spot: Option<Spot>,
    /// Times without capacity.
    pub shortages: Vec<ShortageSpec>,
}

/// Interruptions of spot instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Interruptions in a million node hours.
    pub per_million_node_hours: u64,
    /// Milliseconds between notice and end.
    pub notice_ms: u64,
}

/// A time without capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortageSpec {
    /// Milliseconds after the scenario's start.
    pub at_ms: u64,
    /// How long it lasts.
    pub for_ms: u64,
    /// How many of the cheapest instance types cannot be had.
    pub cheapest: u32,
}

/// Whose decisions a policy uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModelName {
    /// Spokeshave's decision code.
    #[default]
    Ours,
    /// Nothing is ever removed voluntarily.
    None,
    /// A model of Karpenter 1.14.
    Karpenter,
    /// The same on NodePools that weigh what a move saves.
    KarpenterBalanced,
    /// A model of cluster-autoscaler.
    ClusterAutoscaler,
}

/// Names of models in scenario files.
pub const MODELS: [(&str, ModelName); 5] = [
    ("spokeshave", ModelName::Ours),
    ("none", ModelName::None),
    ("karpenter-1.14", ModelName::Karpenter),
    ("karpenter-balanced", ModelName::KarpenterBalanced),
    ("cluster-autoscaler", ModelName::ClusterAutoscaler),
];

/// A configuration that is tried out.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicySpec {
    /// Its name.
    pub name: String,
    /// Its path in the document.
    pub path: String,
    /// Who decides.
    pub model: ModelName,
    /// Merge patches (RFC 7386) of objects from the cluster's manifests, in the order of the document.
    pub merge: Vec<Merge>,
    /// Files with further objects; one with an existing name replaces it.
    pub manifests: Vec<String>,
    /// Settings of the operator.
    pub settings: SettingsSpec,
}

/// A merge patch of the objects of one kind, or of one of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Merge {
    /// `NodePool` or `DisruptionPolicy`.
    pub kind: &'static str,
    /// Only the object of this name.
    pub name: Option<String>,
    /// The patch.
    pub patch: Value,
    /// Its path in the document.
    pub path: String,
}

/// Settings of the operator that a policy changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SettingsSpec {
    /// Feature gate `SpotToSpotConsolidation`.
    pub spot_to_spot: Option<bool>,
    /// `CONSOLIDATION_REPLACEMENTS`.
    pub replacements: Option<u32>,
    /// Whether moves wait and start in one round, `CONSOLIDATION_ROUNDS`.
    pub rounds: Option<bool>,
    /// `BATCH_IDLE_DURATION`, in milliseconds.
    pub batch_idle_ms: Option<u64>,
    /// `BATCH_MAX_DURATION`, in milliseconds.
    pub batch_max_ms: Option<u64>,
}

impl Scenario {
    /// Reads a document.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the document's fields.
    pub fn read(document: &Value) -> Result<Self, Vec<Problem>> {
        let problems = Problems::default();
        let read = scenario(&Item::document(document, &problems));
        let problems = problems.into_vec();
        match read {
            Some(scenario) if problems.is_empty() => Ok(scenario),
            _ => Err(problems),
        }
    }

    /// The policy that others are compared with, and the others.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&PolicySpec> {
        self.policies.iter().find(|policy| policy.name == name)
    }
}

fn scenario(item: &Item<'_>) -> Option<Scenario> {
    let fields = item.fields(&["apiVersion", "kind", "metadata", "spec"])?;
    let version = fields.require("apiVersion", API_VERSION)?;
    if version.text()? != API_VERSION {
        return version.wrong(format!("is {}; expected {API_VERSION}", version.value));
    }
    let kind = fields.require("kind", "Scenario")?;
    kind.choice(&[("Scenario", ())])?;
    let name = fields
        .require("metadata", "{name: shop}")
        .and_then(|item| item.fields(&["name", "labels", "annotations"]))
        .and_then(|metadata| metadata.require("name", "shop"))
        .and_then(|item| item.name());
    let spec = fields.require("spec", "{start: 2026-03-02T00:00:00Z, duration: 7d, …}")?;
    let spec = spec.fields(&[
        "start",
        "duration",
        "warmup",
        "seeds",
        "cluster",
        "workloads",
        "cloud",
        "policies",
        "baseline",
        "expect",
    ])?;
    let start = spec.require("start", "2026-03-02T00:00:00Z").and_then(|item| {
        let text = item.text()?;
        match text.parse::<Timestamp>() {
            // So that no instant of a simulated year is beyond what can be written.
            Ok(start) if (1970..=2200).contains(&start.to_zoned(jiff::tz::TimeZone::UTC).year()) => {
                Some(start)
            }
            _ => item.wrong(format!(
                "{text:?} is not an instant of 1970 to 2200; expected for example 2026-03-02T00:00:00Z"
            )),
        }
    });
    let duration = spec.require("duration", "7d").and_then(|item| {
        let duration = item.span()?;
        match duration <= MOST_MS {
            true => Some(duration),
            false => item.wrong("is more than a year (366d); expected at most that"),
        }
    });
    let warmup = match spec.get("warmup") {
        Some(item) => item.duration().and_then(|warmup| match duration {
            Some(duration) if warmup >= duration => {
                item.wrong("is not shorter than duration, which it is part of")
            }
            _ => Some(warmup),
        }),
        None => Some(0),
    };
    let seeds = match spec.get("seeds") {
        Some(item) => item.count(1, 10_000),
        None => Some(5),
    };
    let cluster = spec
        .require("cluster", "{manifests: [pools.yaml]}")
        .and_then(|item| cluster(&item));
    let workloads = match spec.get("workloads") {
        Some(item) => workloads(&item, duration),
        None => Some(Vec::new()),
    };
    if let (Some(cluster), Some(workloads)) = (&cluster, &workloads)
        && cluster.snapshot.is_empty()
        && workloads.is_empty()
    {
        return spec.wrong("has neither workloads nor cluster.snapshot, so that nothing would run");
    }
    let cloud = match spec.get("cloud") {
        Some(item) => cloud(&item, duration),
        None => Some(CloudSpec::default()),
    };
    let policies = spec
        .require("policies", "[{name: now}]")
        .and_then(|item| policies(&item));
    let (mut baseline, mut expect) = (None, None);
    if let Some(policies) = &policies {
        let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
        baseline = match spec.get("baseline") {
            Some(item) => item.text().and_then(|text| match names.contains(&text) {
                true => Some(text.to_owned()),
                false => item.wrong(no_policy(text, &names)),
            }),
            None => names.first().map(|name| (*name).to_owned()),
        };
        expect = match spec.get("expect") {
            Some(item) => expectations(&item),
            None => Some(Vec::new()),
        };
    }
    Some(Scenario {
        name: name?.to_owned(),
        start: start?,
        duration_ms: duration?,
        warmup_ms: warmup?,
        seeds: u32::try_from(seeds?).ok()?,
        cluster: cluster?,
        workloads: workloads?,
        cloud: cloud?,
        policies: policies?,
        baseline: baseline?,
        expect: expect?,
    })
}

fn no_policy(text: &str, names: &[&str]) -> String {
    match closest(text, names) {
        Some(near) => format!("there is no policy {text:?}; did you mean {near:?}?"),
        None => format!("there is no policy {text:?}; the policies are {}", listed(names)),
    }
}

fn cluster(item: &Item<'_>) -> Option<ClusterSpec> {
    let fields = item.fields(&["manifests", "snapshot", "nodes", "catalog", "scheduler"])?;
    let manifests = files(&fields, "manifests");
    let snapshot = files(&fields, "snapshot");
    let begins_empty = match fields.get("nodes") {
        Some(item) => match item.choice(&[("snapshot", false), ("none", true)]) {
            Some(false) if snapshot.as_ref().is_some_and(Vec::is_empty) => {
                item.wrong("is snapshot, and there is none whose nodes could be taken over; name a dump in snapshot, or leave this field out")
            }
            choice => choice,
        },
        None => Some(false),
    };
    let catalog = fields.read("catalog", |item| item.text().map(str::to_owned));
    let most_allocated = match fields.get("scheduler") {
        Some(item) => item
            .fields(&["scoring"])
            .and_then(|fields| match fields.get("scoring") {
                Some(item) => item.choice(&[("LeastAllocated", false), ("MostAllocated", true)]),
                None => Some(false),
            }),
        None => Some(false),
    };
    let (manifests, snapshot) = (manifests?, snapshot?);
    if manifests.is_empty() && snapshot.is_empty() {
        return fields.wrong("has neither manifests nor snapshot, so that there is no NodePool; write for example `manifests: [pools.yaml]`");
    }
    Some(ClusterSpec {
        manifests,
        snapshot,
        begins_empty: begins_empty?,
        catalog: catalog.filter(|name| name != "builtin"),
        most_allocated: most_allocated?,
    })
}

fn files(fields: &Fields<'_>, name: &str) -> Option<Vec<String>> {
    let Some(item) = fields.get(name) else {
        return Some(Vec::new());
    };
    let items = item.one_or_more()?;
    let read: Vec<_> = items.iter().map(|item| item.text().map(str::to_owned)).collect();
    read.into_iter().collect()
}

fn workloads(item: &Item<'_>, duration: Option<u64>) -> Option<Vec<Workload>> {
    let read: Vec<(Item<'_>, Option<Workload>)> = item
        .items()?
        .into_iter()
        .map(|item| {
            let read = workload(&item);
            (item, read)
        })
        .collect();
    let mut found: Vec<Workload> = Vec::new();
    let mut is_whole = true;
    for (item, workload) in read {
        match workload {
            Some(workload) if found.iter().any(|known| known.name == workload.name) => {
                is_whole = false;
                item.wrong::<()>(format!(
                    "{:?} is the name of another workload, too; names are unique",
                    workload.name
                ));
            }
            Some(workload) if duration.is_some_and(|duration| changes_after(&workload, duration)) => {
                is_whole = false;
                item.wrong::<()>("changes after the end of the scenario; expected each `at` to be before it");
            }
            Some(workload) => found.push(workload),
            None => is_whole = false,
        }
    }
    is_whole.then_some(found)
}

/// Whether the pods of a workload would be of another size when the scenario is over.
fn changes_after(workload: &Workload, duration: u64) -> bool {
    let last = workload.shape.as_ref().and_then(|shape| shape.changes.last());
    last.is_some_and(|change| change.at_ms >= duration)
}

fn cloud(item: &Item<'_>, duration: Option<u64>) -> Option<CloudSpec> {
    let fields = item.fields(&["boot", "spot", "shortages"])?;
    let boot = match fields.get("boot") {
        Some(item) => spread(&item).map(Some),
        None => Some(None),
    };
    let spot = match fields.get("spot") {
        Some(item) => item
            .fields(&["interruptionsPerNodeHour", "notice"])
            .and_then(|fields| {
                let rate = fields
                    .require("interruptionsPerNodeHour", "0.01")
                    .and_then(|item| item.number(0.0, 1_000.0));
                let notice = match fields.get("notice") {
                    Some(item) => item.duration(),
                    None => Some(120_000),
                };
                Some(Some(Spot {
                    per_million_node_hours: libm::round(rate? * 1e6) as u64,
                    notice_ms: notice?,
                }))
            }),
        None => Some(None),
    };
    let shortages = match fields.get("shortages") {
        Some(item) => item.items().and_then(|items| {
            let read: Vec<_> = items.iter().map(|item| shortage(item, duration)).collect();
            read.into_iter().collect()
        }),
        None => Some(Vec::new()),
    };
    Some(CloudSpec {
        boot: boot?,
        spot: spot?,
        shortages: shortages?,
    })
}

fn shortage(item: &Item<'_>, duration: Option<u64>) -> Option<ShortageSpec> {
    let fields = item.fields(&["at", "for", "cheapest"])?;
    let at = fields.require("at", "10d9h").and_then(|item| {
        let at = item.duration()?;
        match duration {
            Some(duration) if at >= duration => item.wrong("is after the end of the scenario"),
            _ => Some(at),
        }
    });
    let length = fields.require("for", "2h").and_then(|item| item.span());
    let cheapest = fields
        .require("cheapest", "20")
        .and_then(|item| item.count(1, 100_000));
    Some(ShortageSpec {
        at_ms: at?,
        for_ms: length?,
        cheapest: u32::try_from(cheapest?).ok()?,
    })
}

fn policies(item: &Item<'_>) -> Option<Vec<PolicySpec>> {
    let items = item.items()?;
    if items.is_empty() {
        return item.wrong("is empty; expected at least one policy, such as `- {name: now}`");
    }
    let mut found: Vec<PolicySpec> = Vec::new();
    let mut is_whole = true;
    for item in items {
        match policy(&item) {
            Some(policy) if found.iter().any(|known| known.name == policy.name) => {
                is_whole = false;
                item.wrong::<()>(format!(
                    "{:?} is the name of another policy, too; names are unique",
                    policy.name
                ));
            }
            Some(policy) => found.push(policy),
            None => is_whole = false,
        }
    }
    is_whole.then_some(found)
}

fn policy(item: &Item<'_>) -> Option<PolicySpec> {
    let fields = item.fields(&["name", "merge", "model", "manifests", "settings"])?;
    let name = fields.require("name", "now").and_then(|item| {
        let text = item.text()?;
        let valid = text.len() <= 40
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        match valid {
            true => Some(text),
            false => item.wrong(format!(
                "{text:?} is not a policy's name; expected at most 40 letters, digits, hyphens and dots"
            )),
        }
    });
    let model = match fields.get("model") {
        Some(item) => item.choice(&MODELS),
        None => Some(ModelName::Ours),
    };
    let merge = match fields.get("merge") {
        Some(item) => merges(&item),
        None => Some(Vec::new()),
    };
    let manifests = files(&fields, "manifests");
    let settings = match fields.get("settings") {
        Some(item) => settings(&item),
        None => Some(SettingsSpec::default()),
    };
    Some(PolicySpec {
        name: name?.to_owned(),
        path: item.path.clone(),
        model: model?,
        merge: merge?,
        manifests: manifests?,
        settings: settings?,
    })
}

fn merges(item: &Item<'_>) -> Option<Vec<Merge>> {
    const KINDS: [&str; 2] = ["NodePool", "DisruptionPolicy"];
    let mut found = Vec::new();
    let mut is_whole = true;
    for (key, item) in item.entries()? {
        let (kind, name) = match key.split_once('/') {
            Some((kind, name)) => (kind, Some(name.to_owned())),
            None => (key, None),
        };
        let Some(kind) = KINDS.into_iter().find(|known| *known == kind) else {
            let hint = match closest(kind, &KINDS) {
                Some(near) => format!("did you mean {near:?}?"),
                None => "expected NodePool or DisruptionPolicy, with /NAME for one of them".to_owned(),
            };
            item.wrong::<()>(format!("a policy cannot patch {key:?}; {hint}"));
            is_whole = false;
            continue;
        };
        if !item.value.is_object() {
            item.wrong::<()>(format!(
                "is not a mapping; expected fields of a {kind}, such as {{spec: {{…}}}}"
            ));
            is_whole = false;
            continue;
        }
        for pointer in ["/apiVersion", "/kind", "/metadata/name"] {
            if item.value.pointer(pointer).is_some() {
                let field = pointer[1..].replace('/', ".");
                item.wrong::<()>(format!("a patch cannot change {field} of an object; write only what differs, such as {{spec: {{…}}}}"));
                is_whole = false;
            }
        }
        found.push(Merge {
            kind,
            name,
            patch: item.value.clone(),
            path: item.path.clone(),
        });
    }
    is_whole.then_some(found)
}

fn settings(item: &Item<'_>) -> Option<SettingsSpec> {
    let fields = item.fields(&[
        "spotToSpotConsolidation",
        "consolidationReplacements",
        "consolidationRounds",
        "batchIdleDuration",
        "batchMaxDuration",
    ])?;
    Some(SettingsSpec {
        spot_to_spot: fields.read("spotToSpotConsolidation", |item| item.boolean()),
        replacements: fields.read("consolidationReplacements", |item| {
            item.count(1, 100).and_then(|count| u32::try_from(count).ok())
        }),
        rounds: fields.read("consolidationRounds", |item| item.boolean()),
        batch_idle_ms: fields.read("batchIdleDuration", |item| item.span()),
        batch_max_ms: fields.read("batchMaxDuration", |item| item.span()),
    })
}

fn expectations(item: &Item<'_>) -> Option<Vec<ExpectSpec>> {
    let items = item.items()?;
    let read: Vec<_> = items
        .iter()
        .map(|item| {
            Some(ExpectSpec {
                text: item.text()?.to_owned(),
                path: item.path.clone(),
            })
        })
        .collect();
    read.into_iter().collect()
}
