//! Answers of Prometheus to range queries: replica counts of Deployments and StatefulSets, and what their containers request.
//!
//! Owns the names of kube-state-metrics' series. Resolution is the step of the query.

mod answer;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Arc;

use serde::de::DeserializeSeed as _;

use self::answer::{Answer, Series};
use super::inventory::READY;
use super::lines::{Counted, reader};
use super::recording::looked_ms;
use super::{Builder, ImportError, Key, Recorded};
use crate::pods::template;
use crate::timeline::{Change, Owner, OwnerKind};
use crate::workload::Shape;

/// Longest answer, decompressed.
const MOST_BYTES: u64 = 1 << 30;
/// Points of one series, which is a month by the three seconds, and of all together, which is a month of 450 workloads by the minute.
const MOST_POINTS: usize = 1_000_000;
const MOST_POINTS_TOGETHER: usize = 20_000_000;
/// Series of requests, of which each container of each pod has one for every resource.
const MOST_REQUESTS: usize = 1_000_000;
/// The assumed request of a container without a series: a quarter of a core and 256 MiB.
const CPU_MILLI: i64 = 250;
const MEMORY_BYTES: i64 = 256 << 20;
/// Labels that say where a series was scraped and nothing about the workload. They change when kube-state-metrics is moved or upgraded.
const OF_THE_SCRAPE: [&str; 10] = [
    "__name__",
    "container",
    "endpoint",
    "helm_sh_chart",
    "instance",
    "job",
    "node",
    "pod",
    "service",
    "uid",
];

/// Resources whose requests are read, and how many of ours their units are.
const RESOURCES: [(&str, f64); 3] = [("cpu", 1_000.0), ("memory", 1.0), ("nvidia_com_gpu", 1.0)];

type Labels = BTreeMap<String, String>;

/// Thousandths of a core, bytes, GPUs.
type Amounts = [i64; 3];

/// What a container requests of a resource.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// The first amount, and when it was told.
    amount: i64,
    since_ms: i64,
    /// When another one was told.
    other_ms: Option<i64>,
}

impl Told {
    fn new(at_ms: i64, amount: i64) -> Self {
        Self {
            amount,
            since_ms: at_ms,
            other_ms: None,
        }
    }

    /// It is told once more, maybe of an earlier instant. Of two that are told of one instant the larger one counts.
    fn also(&mut self, at_ms: i64, amount: i64) {
        let is_other = amount != self.amount;
        if at_ms < self.since_ms {
            if is_other {
                self.other_ms = Some(self.since_ms);
            }
            (self.amount, self.since_ms) = (amount, at_ms);
        } else if is_other {
            self.other_ms = Some(self.other_ms.map_or(at_ms, |other_ms| other_ms.min(at_ms)));
            if at_ms == self.since_ms {
                self.amount = amount.max(self.amount);
            }
        }
    }
}

/// What a pod requests.
#[derive(Debug, Default)]
struct Requests {
    /// When it was first told.
    since_ms: Option<i64>,
    containers: BTreeMap<String, [Option<Told>; 3]>,
}

impl Requests {
    fn amounts(&self) -> Amounts {
        let mut sum = [0; 3];
        for container in self.containers.values() {
            for (sum, told) in sum.iter_mut().zip(container) {
                *sum = i64::saturating_add(*sum, told.map_or(0, |told| told.amount));
            }
        }
        sum
    }

    /// When it is first told to request something else.
    fn other_ms(&self) -> Option<i64> {
        let told = self.containers.values().flatten().flatten();
        told.filter_map(|told| told.other_ms).min()
    }
}

/// What several answers say together.
#[derive(Debug, Default)]
pub(crate) struct Prometheus {
    /// By owner: instant in milliseconds → replicas.
    replicas: BTreeMap<Key, BTreeMap<i64, u32>>,
    /// When any of them has a point.
    instants: BTreeSet<i64>,
    /// With which step an owner was asked for, the largest where answers differ in it.
    steps: BTreeMap<Key, i64>,
    /// Of the answer that is being read: its owners, and the least that is between two points of one series.
    asked: (BTreeSet<Key>, Option<i64>),
    /// The labels of the series that was read last of each owner.
    labels: BTreeMap<Key, Labels>,
    /// Owners of which two scrapes have told different counts of one instant.
    contradicted: BTreeSet<Key>,
    /// Points of replica counts that were read.
    points: usize,
    /// Series of requests that were read.
    series_of_requests: usize,
    /// By namespace, pod, and the labels by which series of two clusters differ.
    requests: BTreeMap<(String, String, Arc<Labels>), Requests>,
    /// These labels, of which all pods of a cluster have the same.
    clusters: BTreeSet<Arc<Labels>>,
    /// What Prometheus warns of.
    warnings: BTreeSet<String>,
    /// Series that say nothing about workloads, by name.
    others: BTreeMap<String, u64>,
}

impl Prometheus {
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        let mut answer = Answer::new(self);
        let mut counted = Counted::new(reader(bytes).take(MOST_BYTES));
        let mut json = serde_json::Deserializer::from_reader(&mut counted);
        let read = (&mut answer).deserialize(&mut json).and_then(|()| json.end());
        answer.verdict(read, counted.line())?;
        let (owners, Some(step)) = std::mem::take(&mut self.asked) else {
            return Ok(());
        };
        for owner in owners {
            let known = self.steps.entry(owner).or_default();
            *known = step.max(*known);
        }
        Ok(())
    }

    fn series(&mut self, series: Series) -> Result<(), String> {
        let label = |name: &str| series.label(name);
        let owner = [
            ("deployment", OwnerKind::Deployment),
            ("statefulset", OwnerKind::StatefulSet),
        ]
        .into_iter()
        .find(|(name, _)| series.metric.contains_key(*name));
        // Without a name, as after an aggregation, labels say what it is.
        match (label("__name__").as_str(), owner) {
            ("kube_deployment_spec_replicas" | "kube_statefulset_replicas" | "", Some((name, kind))) => {
                let namespace = Some(label("namespace")).filter(|name| !name.is_empty());
                let key = (
                    kind,
                    namespace.unwrap_or_else(|| "default".to_owned()),
                    label(name),
                );
                self.points += series.values.0.len();
                if self.points > MOST_POINTS_TOGETHER {
                    return Err(format!(
                        "the replica counts so far have more than {MOST_POINTS_TOGETHER} points together; ask with a larger step"
                    ));
                }
                self.counts(key, series)?;
            }
            ("kube_pod_container_resource_requests", _) => self.request(series)?,
            (name, _) => *self.others.entry(name.to_owned()).or_default() += 1,
        }
        Ok(())
    }

    /// What a container of a pod requests of one resource. That changes when the pod is resized, or made again under its name.
    fn request(&mut self, series: Series) -> Result<(), String> {
        let (container, resource) = (series.label("container"), series.label("resource"));
        let (namespace, pod) = (series.label("namespace"), series.label("pod"));
        let points = series.values.0;
        if points.is_empty() {
            return Ok(());
        }
        self.series_of_requests += 1;
        if self.series_of_requests > MOST_REQUESTS {
            return Err(format!(
                "there are more than {MOST_REQUESTS} series of requests; ask for them over a short time at the beginning: those of the first pods of each workload are read"
            ));
        }
        let cluster = self.cluster(series.metric);
        let requests = self.requests.entry((namespace, pod, cluster)).or_default();
        let told = requests.containers.entry(container).or_default();
        let known = RESOURCES
            .iter()
            .zip(told)
            .find(|((name, _), _)| *name == resource);
        let mut known = known.map(|((_, units), told)| (*units, told));
        for (seconds, value) in points {
            let (at, amount) = (instant(seconds)?, amount(&value)?);
            requests.since_ms = Some(requests.since_ms.map_or(at, |since_ms| since_ms.min(at)));
            if let Some((units, told)) = &mut known {
                let amount = libm::ceil(amount * *units) as i64;
                told.get_or_insert(Told::new(at, amount)).also(at, amount);
            }
        }
        Ok(())
    }

    /// Labels of a series that say neither whose request it is, nor of what, nor where it was scraped.
    fn cluster(&mut self, labels: Labels) -> Arc<Labels> {
        let is_of_the_request = |label: &str| {
            let own = label.strip_prefix("exported_").unwrap_or(label);
            is_of_the_scrape(own) || ["namespace", "resource", "unit"].contains(&own)
        };
        let others = labels.into_iter().filter(|(label, _)| !is_of_the_request(label));
        let others: Labels = others.collect();
        if let Some(known) = self.clusters.get(&others) {
            return Arc::clone(known);
        }
        let others = Arc::new(others);
        self.clusters.insert(Arc::clone(&others));
        others
    }

    /// Replica counts of an owner. Two series of one name, as of two clusters, are two owners, and neither may replace the other, nor stand for it where their
    /// counts are the same. Those of several scrapes are of one owner.
    fn counts(&mut self, key: Key, series: Series) -> Result<(), String> {
        let before = self.labels.get(&key);
        if let Some(difference) = before.and_then(|before| difference(before, &series.metric)) {
            return Err(format!(
                "{}/{} has two series that differ in {difference}; expected one for each workload: ask for one of them, or take the max by namespace and name",
                key.1, key.2
            ));
        }
        let is_one = before.is_none_or(|before| *before == series.metric);
        let counts = self.replicas.entry(key.clone()).or_default();
        let (owners, least) = &mut self.asked;
        owners.insert(key.clone());
        let mut is_contradicted = false;
        let mut before: Option<i64> = None;
        for (seconds, value) in series.values.0 {
            let (at, wanted) = (instant(seconds)?, count(&value)?);
            if let Some(step) = before.map(|before| at - before).filter(|step| *step > 0) {
                *least = Some(least.map_or(step, |least| step.min(least)));
            }
            before = Some(at);
            self.instants.insert(at);
            let known = counts.entry(at).or_insert(wanted);
            if *known != wanted && is_one {
                return Err(format!(
                    "{}/{} has {known} and {wanted} replicas at {seconds}, and one series says both; expected answers of one Prometheus",
                    key.1, key.2
                ));
            }
            is_contradicted |= *known != wanted;
            *known = wanted.max(*known);
        }
        if is_contradicted {
            self.contradicted.insert(key.clone());
        }
        self.labels.insert(key, series.metric);
        Ok(())
    }

    /// The least that is between two points of a series.
    fn step_ms(&self) -> Option<i64> {
        let steps = self.replicas.values().flat_map(|counts| {
            let next = counts.keys().skip(1);
            counts.keys().zip(next).map(|(one, next)| next - one)
        });
        steps.min()
    }

    /// When a workload was gone between two points of its series: a step after the first of them, if others have points while it has none for longer than two
    /// steps. One point is easily missed, and where nobody has any, nobody was asked.
    fn gone(&self, before: i64, after: i64, step: i64) -> Option<i64> {
        let (first, last) = (before.saturating_add(step), after.saturating_sub(step));
        let is_gone = first < last && self.instants.range(first..=last).next().is_some();
        is_gone.then_some(first)
    }

    pub(crate) fn finish(self) -> Result<Recorded, ImportError> {
        let (Some(base), Some(end)) = (self.instants.first().copied(), self.instants.last().copied()) else {
            return Err(ImportError::whole(
                "holds no replica count; expected series of kube_deployment_spec_replicas or kube_statefulset_replicas",
            ));
        };
        let least = self.step_ms();
        let mut notes = Vec::new();
        let mut assumed = 0_u64;
        let mut builder = Builder::default();
        for (key, counts) in &self.replicas {
            let ([cpu, memory, gpus], other_ms) = self.request_of(key)?.unwrap_or_else(|| {
                assumed += 1;
                ([CPU_MILLI, MEMORY_BYTES, 0], None)
            });
            let shape = Shape {
                cpu_milli: vec![cpu],
                memory_bytes: vec![memory],
                gpus,
                ..Shape::default()
            };
            let id = builder.owner(key, || Owner {
                namespace: key.1.clone(),
                name: key.2.clone(),
                kind: key.0,
                template: Arc::new(template(&key.2, &shape, 0)),
                ready: READY,
                budget: None,
                later: Vec::new(),
                claims: Vec::new(),
            })?;
            let after = |instant: i64| u64::try_from(instant.saturating_sub(base)).unwrap_or(0);
            if let Some(other_ms) = other_ms {
                builder.changes(after(other_ms), key);
            }
            // Where no series of an answer has two points, that is the step of the others.
            let step = self.steps.get(key).copied().or(least).unwrap_or(0);
            let (mut before, mut last) = (0, base);
            for (instant, count) in counts {
                if before > 0
                    && step > 0
                    && let Some(gone) = self.gone(last, *instant, step)
                {
                    builder.event(after(gone), id, Change::Replicas(0))?;
                    before = 0;
                }
                if *count != before {
                    builder.event(after(*instant), id, Change::Replicas(*count))?;
                    before = *count;
                }
                last = *instant;
            }
            // A series that ends before the others is of a workload that was deleted. Not all answers end at one instant: the last point stands for a step.
            let over = last.saturating_add(step);
            if before > 0 && step > 0 && end >= over {
                builder.event(after(over), id, Change::Replicas(0))?;
            }
        }
        if assumed > 0 {
            notes.push(format!(
                "no series kube_pod_container_resource_requests tells what {assumed} of {} workloads request: 250m and 256Mi are taken",
                self.replicas.len()
            ));
        }
        notes.extend(builder.notes());
        if let Some(warning) = self.warnings.first() {
            notes.push(format!(
                "Prometheus warns of its answers ({}), the first of them {warning:?}: a workload that they lack is taken to have been gone",
                self.warnings.len()
            ));
        }
        if let Some((_, namespace, name)) = self.contradicted.first() {
            notes.push(format!(
                "{} workloads have series of several scrapes with different counts at one time, the first of them {namespace}/{name}: the largest counts are taken",
                self.contradicted.len()
            ));
        }
        let others: u64 = self.others.values().sum();
        if others > 0 {
            let names: Vec<&str> = self.others.keys().map(String::as_str).take(3).collect();
            notes.push(format!(
                "{others} other series are left out ({})",
                names.join(", ")
            ));
        }
        Ok(Recorded {
            timeline: builder.finish(),
            recorded_ms: looked_ms(base, end, least),
            notes,
            ..Recorded::default()
        })
    }

    /// What a pod of an owner requests, and when one is told to request something else. The pods that were there first count, and of these the largest group that
    /// requests the same: one that failed long ago, before its workload was changed, is told as well. Those of other clusters, as the labels of the replica
    /// counts tell, are none of its own.
    fn request_of(&self, key: &Key) -> Result<Option<(Amounts, Option<i64>)>, ImportError> {
        let (kind, namespace, name) = key;
        let from: (String, String, Arc<Labels>) = (namespace.clone(), format!("{name}-"), Arc::default());
        let pods = self
            .requests
            .range(from..)
            .take_while(|((space, pod, _), _)| space == namespace && pod.starts_with(name.as_str()));
        let is_own = |pod: &str| {
            let rest = pod
                .strip_prefix(name.as_str())
                .and_then(|rest| rest.strip_prefix('-'));
            rest.is_some_and(|rest| match kind {
                OwnerKind::StatefulSet => rest.bytes().all(|byte| byte.is_ascii_digit()),
                _ => is_hash_and_suffix(rest),
            })
        };
        let counted = self.labels.get(key);
        let is_elsewhere = |cluster: &Labels| {
            let counted = |label: &str| counted.and_then(|counted| counted.get(label));
            let mut labels = cluster.iter();
            labels.any(|(label, value)| counted(label).is_some_and(|counted| counted != value))
        };
        let own = pods.filter(|((_, pod, cluster), _)| is_own(pod) && !is_elsewhere(cluster));
        let own: Vec<(&Labels, &Requests)> = own
            .map(|((_, _, cluster), requests)| (&**cluster, requests))
            .collect();
        let Some((cluster, _)) = own.first() else {
            return Ok(None);
        };
        if let Some(difference) = own.iter().find_map(|(other, _)| difference(cluster, other)) {
            return Err(ImportError::whole(format!(
                "{namespace}/{name} has pods with series of requests that differ in {difference}; expected those of one cluster: ask for one of them"
            )));
        }
        let since_ms = own.iter().filter_map(|(_, requests)| requests.since_ms).min();
        let mut groups: BTreeMap<Amounts, u64> = BTreeMap::new();
        for (_, requests) in own.iter().filter(|(_, requests)| requests.since_ms == since_ms) {
            *groups.entry(requests.amounts()).or_default() += 1;
        }
        let largest = groups
            .into_iter()
            .max_by_key(|(amounts, count)| (*count, *amounts));
        let Some((amounts, _)) = largest else {
            return Ok(None);
        };
        let others = own.iter().filter_map(|(_, requests)| {
            if requests.amounts() == amounts {
                requests.other_ms()
            } else {
                requests.since_ms
            }
        });
        Ok(Some((amounts, others.min())))
    }
}

/// How the pods of a Deployment go on from its name: the hash of the ReplicaSet, which Kubernetes writes without vowels and without 0, 1 and 3, and five
/// characters of the pod. Pods of other workloads whose names begin alike, such as `postgres-0` and `agent-x7k2p`, go on otherwise.
fn is_hash_and_suffix(rest: &str) -> bool {
    let is_of_hash = |byte: u8| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte);
    rest.split_once('-').is_some_and(|(hash, suffix)| {
        (6..=10).contains(&hash.len())
            && hash.bytes().all(is_of_hash)
            && suffix.len() == 5
            && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Whether a label is of the scrape, and of the Prometheus that made it.
fn is_of_the_scrape(label: &str) -> bool {
    OF_THE_SCRAPE.contains(&label)
        || label.starts_with("prometheus")
        || label.starts_with("app_kubernetes_io_")
        || label.contains("replica")
}

/// In which labels two series differ, but for those of the scrape.
fn difference(one: &Labels, other: &Labels) -> Option<String> {
    let names = one.keys().chain(other.keys());
    let names: BTreeSet<&String> = names.filter(|name| !is_of_the_scrape(name)).collect();
    let differ = names
        .into_iter()
        .filter(|name| one.get(*name) != other.get(*name));
    let shown: Vec<String> = differ
        .map(|name| {
            let value = |labels: &Labels| labels.get(name).cloned().unwrap_or_default();
            format!("{name} {:?} and {:?}", value(one), value(other))
        })
        .collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

fn instant(seconds: f64) -> Result<i64, String> {
    match (0.0..=1e11).contains(&seconds) {
        true => Ok(libm::round(seconds * 1_000.0) as i64),
        false => Err(format!("{seconds} is not an instant in seconds since 1970")),
    }
}

fn count(value: &str) -> Result<u32, String> {
    match value.parse::<f64>() {
        Ok(count) if (0.0..=1e6).contains(&count) => Ok(libm::round(count) as u32),
        _ => Err(format!("value {value:?} is not a number of replicas")),
    }
}

fn amount(value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(amount) if (0.0..=1e15).contains(&amount) => Ok(amount),
        _ => Err(format!("value {value:?} is not a request")),
    }
}
