//! Workloads as a scenario file describes them: how many, how large, when.
//!
//! Owns their types and their reading. It never draws; that is `generate`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;
use spokeshave_api::Cron;

use crate::changes::{SizeChange, changes, cpu_milli, memory_bytes};
use crate::fields::{Fields, Item, closest};
use crate::source::{Format, Source, source};
use crate::timeline::Spread;

/// From the start of a container to readiness, where nothing is said.
pub(crate) const READY: Spread = Spread {
    median_ms: 5_000,
    p99_ms: 20_000,
};
/// How often a replica count follows its curve.
const EVERY_MS: u64 = 15 * 60_000;
const DAY_MS: u64 = 86_400_000;

/// A group of workloads that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its name; owners are called after it.
    pub name: String,
    /// Namespace of its owners; imports that are no tables bring their own.
    pub namespace: String,
    /// From the start on a node until a pod is ready, where it is said.
    pub ready: Option<Spread>,
    /// What its pods look like; absent for imports, which bring their own.
    pub shape: Option<Shape>,
    /// What it is.
    pub kind: Kind,
}

/// The kinds of workloads.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Deployments, each with its own replica count over time.
    Deployments {
        /// How many of them.
        count: u32,
        /// How many pods each wants.
        replicas: Replicas,
    },
    /// StatefulSets.
    StatefulSets {
        /// How many of them.
        count: u32,
        /// How many pods each wants.
        replicas: Replicas,
        /// Whether each pod has a volume that binds it to the zone in which it first ran.
        zonal: bool,
    },
    /// Pods that end by themselves.
    Jobs {
        /// When they come.
        arrivals: Arrivals,
        /// How long they run.
        runs: Spread,
    },
    /// A recording.
    Import(Source),
}

impl Kind {
    /// Whether it is a table of pods or of requests, which knows no namespaces.
    #[must_use]
    pub fn is_table(&self) -> bool {
        const TABLES: [Format; 4] = [Format::Csv, Format::Openb, Format::Dlrm, Format::AzureLlm];
        matches!(self, Kind::Import(source) if TABLES.contains(&source.format))
    }
}

/// What the pods of a workload look like.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shape {
    /// CPU requests in thousandths of a core; owners (of jobs: pods) take them in turn.
    pub cpu_milli: Vec<i64>,
    /// Memory requests in bytes, in turn as well.
    pub memory_bytes: Vec<i64>,
    /// When they request something else, in the order of time.
    pub changes: Vec<SizeChange>,
    /// GPUs of each pod.
    pub gpus: i64,
    /// Spread evenly over zones, as a hard rule.
    pub spread_zones: bool,
    /// Spread evenly over nodes, as a hard rule.
    pub spread_hosts: bool,
    /// A PodDisruptionBudget over each owner's pods.
    pub max_unavailable: Option<String>,
    /// The annotation `karpenter.sh/do-not-disrupt`.
    pub do_not_disrupt: bool,
    /// Further labels of the pods.
    pub labels: BTreeMap<String, String>,
    /// Anything else that a pod specification can hold: node selectors, tolerations, affinity, priority.
    pub pod: PodSpec,
}

/// How many pods an owner wants over time.
#[derive(Debug, Clone, PartialEq)]
pub enum Replicas {
    /// Always so many.
    Constant(u32),
    /// A curve with the period of a day.
    Daily(Daily),
}

/// A replica count that rises and falls each day.
#[derive(Debug, Clone, PartialEq)]
pub struct Daily {
    /// Of a weekday, at its lowest.
    pub low: u32,
    /// Of a weekday, at its highest.
    pub high: u32,
    /// Milliseconds after midnight (UTC) of the highest.
    pub peak_at_ms: u64,
    /// Share of a weekday's count that Saturdays and Sundays (UTC) have.
    pub weekend: f64,
    /// Standard deviation of the count around its curve, as a share of it.
    pub noise: f64,
    /// Milliseconds between two looks at the curve.
    pub every_ms: u64,
}

/// When jobs come.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// So many at each hit of a schedule, spread evenly by chance over a while.
    Cron {
        /// The schedule, in UTC.
        cron: Box<Cron>,
        /// Pods at each hit.
        count: u32,
        /// Over so many milliseconds after it.
        within_ms: u64,
    },
    /// One by one, by chance.
    Rate {
        /// Average number a day.
        per_day: f64,
        /// Milliseconds after midnight (UTC) at which most of them come; none: at any time alike.
        peak_at_ms: Option<u64>,
        /// Share of a weekday's number that come on Saturdays and Sundays (UTC).
        weekend: f64,
    },
}

const SHAPE: [&str; 10] = [
    "cpu",
    "memory",
    "changes",
    "gpu",
    "spread",
    "maxUnavailable",
    "doNotDisrupt",
    "nodeSelector",
    "labels",
    "pod",
];
const KINDS: [&str; 4] = ["deployments", "statefulSets", "jobs", "import"];

/// Reads one workload.
pub(crate) fn workload(item: &Item<'_>) -> Option<Workload> {
    let fields = item.fields(&[
        "name",
        "namespace",
        "ready",
        "replicas",
        "deployments",
        "statefulSets",
        "jobs",
        "import",
    ])?;
    let name = fields.require("name", "web").and_then(|item| item.name());
    let namespace = match fields.get("namespace") {
        Some(item) => item.name(),
        None => Some("default"),
    };
    let ready = match fields.get("ready") {
        Some(item) => spread(&item).map(Some),
        None => Some(None),
    };
    let present = fields.present(&KINDS);
    let [kind] = present[..] else {
        let found = match present.len() {
            0 => "says nothing about what it is".to_owned(),
            _ => format!("is {} at once", present.join(" and ")),
        };
        return fields.wrong(format!("{found}; expected exactly one of {}", KINDS.join(", ")));
    };
    let inner = fields.get(kind)?;
    let read = match kind {
        "deployments" => deployments(&fields, &inner),
        "statefulSets" => stateful_sets(&fields, &inner),
        "jobs" => jobs(&inner),
        _ => source(&inner).map(|source| (None, Kind::Import(source))),
    };
    if kind != "deployments"
        && let Some(replicas) = fields.get("replicas")
    {
        replicas.wrong::<()>(match kind {
            "statefulSets" => "belongs into statefulSets, as in `statefulSets: {count: 6, replicas: 3, …}`",
            _ => "is for deployments only; jobs have `count` or `perDay`",
        });
    }
    let (shape, kind) = read?;
    if matches!(kind, Kind::Import(_))
        && !kind.is_table()
        && let Some(namespace) = fields.get("namespace")
    {
        return namespace
            .wrong("is for generated workloads and for tables; this recording has namespaces of its own");
    }
    Some(Workload {
        name: name?.to_owned(),
        namespace: namespace?.to_owned(),
        ready: ready?,
        shape,
        kind,
    })
}

fn deployments(outer: &Fields<'_>, item: &Item<'_>) -> Option<(Option<Shape>, Kind)> {
    let fields = item.fields(&[&["count"], &SHAPE[..]].concat())?;
    let count = count(&fields);
    let replicas = outer.require("replicas", "3").and_then(|item| replicas(&item));
    let shape = shape(&fields);
    let kind = Kind::Deployments {
        count: count?,
        replicas: replicas?,
    };
    Some((Some(shape?), kind))
}

fn stateful_sets(_: &Fields<'_>, item: &Item<'_>) -> Option<(Option<Shape>, Kind)> {
    let fields = item.fields(&[&["count", "replicas", "volume"], &SHAPE[..]].concat())?;
    let count = count(&fields);
    let replicas = fields.require("replicas", "3").and_then(|item| replicas(&item));
    let zonal = match fields.get("volume") {
        Some(item) => item.choice(&[("zonal", true), ("none", false)]),
        None => Some(false),
    };
    let shape = shape(&fields);
    let kind = Kind::StatefulSets {
        count: count?,
        replicas: replicas?,
        zonal: zonal?,
    };
    Some((Some(shape?), kind))
}

fn jobs(item: &Item<'_>) -> Option<(Option<Shape>, Kind)> {
    let fields = item.fields(
        &[
            &["cron", "count", "within", "perDay", "peakAt", "weekend", "runs"],
            &SHAPE[..],
        ]
        .concat(),
    )?;
    let runs = fields
        .require("runs", "{median: 12m, p99: 2h}")
        .and_then(|item| spread(&item));
    let arrivals = arrivals(&fields);
    let shape = shape(&fields);
    let kind = Kind::Jobs {
        arrivals: arrivals?,
        runs: runs?,
    };
    Some((Some(shape?), kind))
}

fn arrivals(fields: &Fields<'_>) -> Option<Arrivals> {
    match (fields.get("cron"), fields.get("perDay")) {
        (Some(cron), None) => {
            for name in fields.present(&["peakAt", "weekend"]) {
                fields.wrong::<()>(format!("{name} goes with perDay; a schedule says itself when jobs come"));
            }
            let text = cron.text();
            let schedule = text.and_then(|text| match text.parse::<Cron>() {
                Ok(schedule) => Some(schedule),
                Err(error) => cron.wrong(error.to_string()),
            });
            let count = match fields.get("count") {
                Some(item) => item.count(1, 100_000),
                None => Some(1),
            };
            let within = match fields.get("within") {
                Some(item) => item.duration(),
                None => Some(0),
            };
            Some(Arrivals::Cron {
                cron: Box::new(schedule?),
                count: small(count?),
                within_ms: within?,
            })
        }
        (None, Some(rate)) => {
            for name in fields.present(&["count", "within"]) {
                fields.wrong::<()>(format!("{name} goes with cron; perDay is the number of jobs itself"));
            }
            let per_day = rate.number(0.001, 10_000_000.0);
            let peak = match fields.get("peakAt") {
                Some(item) => time_of_day(&item).map(Some),
                None => Some(None),
            };
            let weekend = match fields.get("weekend") {
                Some(item) => item.number(0.0, 10.0),
                None => Some(1.0),
            };
            Some(Arrivals::Rate {
                per_day: per_day?,
                peak_at_ms: peak?,
                weekend: weekend?,
            })
        }
        (Some(_), Some(_)) => fields.wrong("has both cron and perDay; expected one of them"),
        (None, None) => fields.wrong(
            "does not say when jobs come; write for example `cron: \"0 1 * * *\"` with `count: 800`, or `perDay: 20000`",
        ),
    }
}

fn count(fields: &Fields<'_>) -> Option<u32> {
    match fields.get("count") {
        Some(item) => item.count(1, 100_000).map(small),
        None => Some(1),
    }
}

/// A count that was read with a limit below 2³².
fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn replicas(item: &Item<'_>) -> Option<Replicas> {
    if !item.value.is_object() {
        return item
            .count(0, 1_000_000)
            .map(|count| Replicas::Constant(small(count)));
    }
    let fields = item.fields(&["low", "high", "peakAt", "weekend", "noise", "every"])?;
    let low = fields
        .require("low", "6")
        .and_then(|item| item.count(0, 1_000_000));
    let high = fields
        .require("high", "40")
        .and_then(|item| item.count(1, 1_000_000));
    let peak = match fields.get("peakAt") {
        Some(item) => time_of_day(&item),
        None => Some(DAY_MS / 2),
    };
    let weekend = match fields.get("weekend") {
        Some(item) => item.number(0.0, 10.0),
        None => Some(1.0),
    };
    let noise = match fields.get("noise") {
        Some(item) => item.number(0.0, 1.0),
        None => Some(0.0),
    };
    let every = match fields.get("every") {
        Some(item) => item.span(),
        None => Some(EVERY_MS),
    };
    let (low, high) = (small(low?), small(high?));
    if low > high {
        return fields.wrong(format!(
            "low is {low} and high is {high}; expected low to be the smaller one"
        ));
    }
    Some(Replicas::Daily(Daily {
        low,
        high,
        peak_at_ms: peak?,
        weekend: weekend?,
        noise: noise?,
        every_ms: every?,
    }))
}

/// `"14:00"` as milliseconds after midnight.
fn time_of_day(item: &Item<'_>) -> Option<u64> {
    const EXPECTED: &str = "a time of day in UTC, in quotation marks, such as \"14:00\"";
    let parsed = item.value.as_str().and_then(|text| {
        let (hours, minutes) = text.split_once(':')?;
        let digits = |text: &str| (text.len() == 2).then(|| text.parse::<u64>().ok()).flatten();
        let (hours, minutes) = (digits(hours)?, digits(minutes)?);
        (hours < 24 && minutes < 60).then_some((hours * 60 + minutes) * 60_000)
    });
    if parsed.is_none() {
        return item.wrong(format!("{} is not valid; expected {EXPECTED}", item.value));
    }
    parsed
}

/// `{median: 8s, p99: 40s}`, or one duration that is always the same.
pub(crate) fn spread(item: &Item<'_>) -> Option<Spread> {
    if item.value.is_string() {
        return item.duration().map(Spread::exactly);
    }
    let fields = item.fields(&["median", "p99"])?;
    let median = fields.require("median", "12m").and_then(|item| item.span());
    let p99 = fields.require("p99", "2h").and_then(|item| item.span());
    let (median_ms, p99_ms) = (median?, p99?);
    if p99_ms < median_ms {
        return fields.wrong(
            "p99 is less than median; expected p99 to be the longer one, below which 99 of 100 durations are",
        );
    }
    Some(Spread { median_ms, p99_ms })
}

fn shape(fields: &Fields<'_>) -> Option<Shape> {
    let cpu = fields.require("cpu", "500m").and_then(|item| cpu_milli(&item));
    let memory = fields
        .require("memory", "512Mi")
        .and_then(|item| memory_bytes(&item));
    let changes = changes(fields);
    let gpus = match fields.get("gpu") {
        Some(item) => item.count(0, 1_000).map(|count| i64::from(small(count))),
        None => Some(0),
    };
    let (mut zones, mut hosts) = (false, false);
    if let Some(item) = fields.get("spread") {
        for item in item.one_or_more()? {
            match item.choice(&[("zone", true), ("host", false)])? {
                true => zones = true,
                false => hosts = true,
            }
        }
    }
    let max_unavailable = match fields.get("maxUnavailable") {
        Some(item) => max_unavailable(&item).map(Some),
        None => Some(None),
    };
    let do_not_disrupt = match fields.get("doNotDisrupt") {
        Some(item) => item.boolean(),
        None => Some(false),
    };
    let labels = match fields.get("labels") {
        Some(item) => texts(&item),
        None => Some(BTreeMap::new()),
    };
    let pod = match fields.get("pod") {
        Some(item) => pod(&item),
        None => Some(PodSpec::default()),
    };
    let selector = match fields.get("nodeSelector") {
        Some(item) => texts(&item),
        None => Some(BTreeMap::new()),
    };
    let (mut pod, selector) = (pod?, selector?);
    if !selector.is_empty() {
        pod.node_selector.get_or_insert_default().extend(selector);
    }
    Some(Shape {
        cpu_milli: cpu?,
        memory_bytes: memory?,
        changes: changes?,
        gpus: gpus?,
        spread_zones: zones,
        spread_hosts: hosts,
        max_unavailable: max_unavailable?,
        do_not_disrupt: do_not_disrupt?,
        labels: labels?,
        pod,
    })
}

/// A number or a percentage of pods.
fn max_unavailable(item: &Item<'_>) -> Option<String> {
    if let Some(number) = item.value.as_u64() {
        return Some(number.to_string());
    }
    let percentage = item.value.as_str().filter(|text| {
        let number = text.strip_suffix('%').unwrap_or(text);
        number
            .parse::<u32>()
            .is_ok_and(|number| !text.ends_with('%') || number <= 100)
    });
    if percentage.is_none() {
        return item.wrong(format!(
            "{} is not valid; expected a number of pods or a percentage such as 10%",
            item.value
        ));
    }
    percentage.map(str::to_owned)
}

fn texts(item: &Item<'_>) -> Option<BTreeMap<String, String>> {
    let entries = item.entries()?;
    let read = entries.iter().map(|(key, item)| match item.value {
        Value::String(text) => Some(((*key).to_owned(), text.clone())),
        _ => item.wrong(format!(
            "{} is not a text; write it in quotation marks",
            item.value
        )),
    });
    // Each wrong one is named, not only the first.
    let read: Vec<_> = read.collect();
    read.into_iter().collect()
}

/// A part of a pod specification. What the type does not know is named, which serde would pass over.
fn pod(item: &Item<'_>) -> Option<PodSpec> {
    let Some(map) = item.value.as_object() else {
        return item.wrong("is not a mapping; expected fields of a pod specification, such as tolerations");
    };
    let mut whole = map.clone();
    // The type asks for containers, and a scenario's pods have their own.
    if let Some((_, containers)) = map.get_key_value("containers") {
        let _ = containers;
        return item.wrong("containers come from cpu, memory and gpu; leave them out of pod");
    }
    whole.insert("containers".to_owned(), Value::Array(Vec::new()));
    // An API server takes it for a second, which nobody means.
    let grace = item.entries()?.into_iter().find(|(field, seconds)| {
        *field == "terminationGracePeriodSeconds" && seconds.value.as_i64().is_some_and(|seconds| seconds < 0)
    });
    if let Some((_, seconds)) = grace {
        return seconds.wrong(format!(
            "{} is not valid; expected a number of seconds from 0 on",
            seconds.value
        ));
    }
    let spec: PodSpec = match serde_json::from_value(Value::Object(whole.clone())) {
        Ok(spec) => spec,
        Err(error) => return item.wrong(format!("is not part of a pod specification: {error}")),
    };
    let written = serde_json::to_value(&spec).unwrap_or_default();
    match unknown(&Value::Object(whole), &written, "") {
        Some(path) => {
            let last = path.rsplit(['.', ']']).next().unwrap_or(&path);
            let known = [
                "tolerations",
                "affinity",
                "nodeSelector",
                "priorityClassName",
                "priority",
                "terminationGracePeriodSeconds",
                "topologySpreadConstraints",
                "schedulerName",
            ];
            let hint = match closest(last, &known) {
                Some(near) => format!("; did you mean {near:?}?"),
                None => String::new(),
            };
            item.wrong(format!("unknown field {path:?} of a pod specification{hint}"))
        }
        None => Some(spec),
    }
}

/// The first field of `given` that `kept` has lost.
fn unknown(given: &Value, kept: &Value, path: &str) -> Option<String> {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => given.iter().find_map(|(key, value)| {
            let path = match path {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            match kept.get(key) {
                Some(kept) => unknown(value, kept, &path),
                // What is known and empty is kept as it is; only nothing at all is kept by no field.
                None if value.is_null() => None,
                None => Some(path),
            }
        }),
        (Value::Array(given), Value::Array(kept)) => given
            .iter()
            .zip(kept)
            .enumerate()
            .find_map(|(index, (given, kept))| unknown(given, kept, &format!("{path}[{index}]"))),
        _ => None,
    }
}
