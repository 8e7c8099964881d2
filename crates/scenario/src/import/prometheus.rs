//! Answers of Prometheus to range queries: replica counts of Deployments and StatefulSets, and what their containers request.
//!
//! Owns the names of kube-state-metrics' series. Resolution is the step of the query.

mod answer;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use serde::de::DeserializeSeed as _;

use self::answer::{Answer, Series};
use super::inventory::READY;
use super::lines::reader;
use super::{Builder, ImportError, Key};
use crate::pods::template;
use crate::timeline::{Change, Owner, OwnerKind, Timeline};
use crate::workload::Shape;

/// Longest answer, decompressed.
const MOST_BYTES: u64 = 1 << 30;
/// Points of one series, which is a month by the three seconds, and of all together, which is a month of 450 workloads by the minute.
const MOST_POINTS: usize = 1_000_000;
const MOST_POINTS_TOGETHER: usize = 20_000_000;
/// The assumed request of a container without a series: a quarter of a core and 256 MiB.
const CPU_MILLI: i64 = 250;
const MEMORY_BYTES: i64 = 256 << 20;

/// What several answers say together.
#[derive(Debug, Default)]
pub(crate) struct Prometheus {
    /// By owner: instant in milliseconds → replicas.
    replicas: BTreeMap<Key, BTreeMap<i64, u32>>,
    /// Points of replica counts that were read.
    points: usize,
    /// By namespace and pod: container → (thousandths of a core, bytes, GPUs).
    requests: BTreeMap<(String, String), BTreeMap<String, (i64, i64, i64)>>,
    /// Series that say nothing about workloads, by name.
    others: BTreeMap<String, u64>,
}

impl Prometheus {
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        let mut answer = Answer::new(self);
        let mut json = serde_json::Deserializer::from_reader(reader(bytes).take(MOST_BYTES));
        let read = (&mut answer).deserialize(&mut json).and_then(|()| json.end());
        answer.verdict(read)
    }

    fn series(&mut self, series: Series) -> Result<(), String> {
        let label = |name: &str| series.metric.get(name).cloned().unwrap_or_default();
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
                let counts = self.replicas.entry(key).or_default();
                for (seconds, value) in series.values.0 {
                    counts.insert(instant(seconds)?, count(&value)?);
                }
            }
            ("kube_pod_container_resource_requests", _) => {
                let Some((_, value)) = series
                    .values
                    .0
                    .iter()
                    .max_by(|left, right| left.0.total_cmp(&right.0))
                else {
                    return Ok(());
                };
                let amount: f64 = value
                    .parse()
                    .map_err(|_| format!("value {value:?} is not a number"))?;
                if !(0.0..=1e15).contains(&amount) {
                    return Err(format!("value {value:?} is not a request"));
                }
                let pod = self
                    .requests
                    .entry((label("namespace"), label("pod")))
                    .or_default();
                let container = pod.entry(label("container")).or_default();
                match label("resource").as_str() {
                    "cpu" => container.0 = libm::ceil(amount * 1_000.0) as i64,
                    "memory" => container.1 = libm::ceil(amount) as i64,
                    "nvidia_com_gpu" => container.2 = libm::ceil(amount) as i64,
                    _ => {}
                }
            }
            (name, _) => *self.others.entry(name.to_owned()).or_default() += 1,
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<(Timeline, Vec<String>), ImportError> {
        let instants = self.replicas.values().filter_map(|counts| counts.keys().next());
        let Some(base) = instants.min().copied() else {
            return Err(ImportError::whole(
                "holds no replica count; expected series of kube_deployment_spec_replicas or kube_statefulset_replicas",
            ));
        };
        let end = self
            .replicas
            .values()
            .filter_map(|counts| counts.keys().next_back())
            .max()
            .copied();
        let mut notes = Vec::new();
        let mut assumed = 0_u64;
        let mut builder = Builder::default();
        for (key, counts) in &self.replicas {
            let (cpu, memory, gpus) = self.request_of(key).unwrap_or_else(|| {
                assumed += 1;
                (CPU_MILLI, MEMORY_BYTES, 0)
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
                max_unavailable: None,
                claims: Vec::new(),
            })?;
            let after = |instant: i64| u64::try_from(instant.saturating_sub(base)).unwrap_or(0);
            let mut before = 0;
            for (instant, count) in counts {
                if *count != before {
                    builder.event(after(*instant), id, Change::Replicas(*count))?;
                    before = *count;
                }
            }
            // A series that ends before the others is of a workload that was deleted.
            let last = counts.keys().next_back().copied().unwrap_or(base);
            let step = counts.keys().rev().nth(1).map_or(0, |previous| last - previous);
            if before > 0 && step > 0 && end.is_some_and(|end| end > last) {
                builder.event(after(last.saturating_add(step)), id, Change::Replicas(0))?;
            }
        }
        if assumed > 0 {
            notes.push(format!(
                "no series kube_pod_container_resource_requests tells what {assumed} of {} workloads request: 250m and 256Mi are taken",
                self.replicas.len()
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
        Ok((builder.finish(), notes))
    }

    /// The requests of one pod of an owner, the largest where they differ.
    fn request_of(&self, (kind, namespace, name): &Key) -> Option<(i64, i64, i64)> {
        let from = (namespace.clone(), format!("{name}-"));
        let pods = self
            .requests
            .range(from..)
            .take_while(|((space, pod), _)| space == namespace && pod.starts_with(name.as_str()));
        let is_own = |pod: &str| {
            let rest = pod
                .strip_prefix(name.as_str())
                .and_then(|rest| rest.strip_prefix('-'));
            rest.is_some_and(|rest| match kind {
                OwnerKind::StatefulSet => rest.bytes().all(|byte| byte.is_ascii_digit()),
                _ => is_hash_and_suffix(rest),
            })
        };
        let own = pods.filter(|((_, pod), _)| is_own(pod)).map(|(_, containers)| {
            containers.values().fold((0, 0, 0), |sum: (i64, i64, i64), one| {
                (
                    sum.0.saturating_add(one.0),
                    sum.1.saturating_add(one.1),
                    sum.2.saturating_add(one.2),
                )
            })
        });
        own.max()
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
