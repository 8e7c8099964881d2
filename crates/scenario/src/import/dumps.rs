//! Several dumps of one cluster as a timeline: what changed between two of them happened at the later one, unless a pod says when it was made or ended.
//!
//! Owns differences of inventories.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::inventory::{Inventory, is_gated, is_living, model_of};
use super::objects::Pod;
use super::recording::looked_ms;
use super::versions::Alike;
use super::{Builder, ImportError, Key, Recorded};
use crate::timeline::{Change, OwnerId, OwnerKind};

/// Dumps in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Dumps {
    builder: Builder,
    base_ms: Option<i64>,
    last_ms: i64,
    /// The least that is between two dumps.
    step_ms: Option<i64>,
    replicas: BTreeMap<Key, u32>,
    /// Existing single pods: owner, number, and start time.
    pods: BTreeMap<(String, String), (OwnerId, u64, u64)>,
    next_pod: BTreeMap<OwnerId, u64>,
    count: u64,
}

impl Dumps {
    /// Adds the next dump, of this instant.
    pub(crate) fn add(&mut self, instant: Timestamp, inventory: &Inventory) -> Result<(), ImportError> {
        if inventory.is_empty() {
            // A cluster always has pods, and all that a dump lacks would be taken for deleted.
            return Err(ImportError::whole(
                "holds neither a workload nor a pod, which is what a `kubectl get` that failed leaves behind; remove the file",
            ));
        }
        let now = instant.as_millisecond();
        let base = *self.base_ms.get_or_insert(now);
        if self.count > 0 && now <= self.last_ms {
            return Err(ImportError::whole(format!(
                "is of {instant}, which is not after the dump before it; a dump's time is that in its file name (such as 2026-03-02T14-00.yaml), or else that of its newest object"
            )));
        }
        let before = self.last_ms;
        if self.count > 0 {
            let step = now.saturating_sub(before);
            self.step_ms = Some(self.step_ms.map_or(step, |least| least.min(step)));
        }
        self.last_ms = now;
        self.count += 1;
        let after = |instant: i64| u64::try_from(instant.saturating_sub(base)).unwrap_or(0);
        let at = after(now);
        let is_later = self.count > 1;
        // The timestamp of an object, if it is between the two dumps.
        let within = |told: Option<Timestamp>| match told.map(|told| told.as_millisecond()) {
            Some(told) if told > before && told <= now && is_later => after(told),
            _ => at,
        };
        let by_owner = inventory.pods_by_owner();
        let workloads = inventory.top_workloads();
        let keys: BTreeSet<&Key> = by_owner.keys().chain(workloads.keys()).collect();
        let mut wanted: BTreeMap<Key, u32> = BTreeMap::new();
        let mut there: BTreeSet<(String, String)> = BTreeSet::new();
        for key in keys {
            let workload = workloads.get(key).copied();
            let pods = by_owner.get(key).map_or(&[][..], Vec::as_slice);
            let model = model_of(pods);
            if workload.is_none() && model.is_some_and(is_gated) {
                // They begin in the dump in which one has no gate any more.
                continue;
            }
            let living = pods.iter().filter(|pod| is_living(pod) && !is_gated(pod));
            let Some(owner) = inventory.owner(key, workload, model) else {
                continue;
            };
            let is_told = workload.is_some_and(|workload| workload.template.is_some());
            if is_told && let Some(id) = self.builder.known(key) {
                self.builder.template(at, id, &owner.template, Alike::Seen)?;
            }
            if matches!(key.0, OwnerKind::Deployment | OwnerKind::StatefulSet) {
                // Of pods of two versions nobody knows which one is wanted.
                let shown = pods.iter().find(|pod| !is_told && is_living(pod));
                if let Some(pod) = shown {
                    self.builder.compare_requests(at, key, &pod.spec);
                }
                let count = match workload {
                    Some(workload) => workload.replicas,
                    None => u32::try_from(living.count()).unwrap_or(u32::MAX),
                };
                self.builder.owner(key, || owner)?;
                wanted.insert(key.clone(), count);
                continue;
            }
            if pods.is_empty() {
                continue;
            }
            let id = self.builder.owner(key, || owner)?;
            for pod in living {
                let name = (pod.meta.namespace().to_owned(), pod.meta.name().to_owned());
                there.insert(name.clone());
                if self.pods.contains_key(&name) {
                    continue;
                }
                let begin = within(pod.meta.creation_timestamp);
                let like = (!is_told).then_some((inventory, key, *pod));
                let pod = self.begin(begin, id, like)?;
                self.pods.insert(name, (id, pod, begin));
            }
            for pod in pods.iter().filter(|pod| !is_living(pod)) {
                let name = (pod.meta.namespace().to_owned(), pod.meta.name().to_owned());
                if let Some((id, pod_number, begin)) = self.pods.remove(&name) {
                    let end = within(pod.finished).max(begin);
                    self.builder.event(end, id, Change::End { pod: pod_number })?;
                } else if let (Some(created), Some(finished)) = (pod.meta.creation_timestamp, pod.finished)
                    && created.as_millisecond() > before
                    && finished >= created
                    && is_later
                {
                    // Born and gone between two dumps.
                    let begin = within(Some(created));
                    let like = (!is_told).then_some((inventory, key, *pod));
                    let pod = self.begin(begin, id, like)?;
                    self.builder
                        .event(within(Some(finished)).max(begin), id, Change::End { pod })?;
                }
            }
        }
        for key in self.replicas.keys() {
            wanted.entry(key.clone()).or_insert(0);
        }
        for (key, count) in wanted {
            if self.replicas.get(&key).copied().unwrap_or(0) != count
                && let Some(id) = self.builder.known(&key)
            {
                self.builder.event(at, id, Change::Replicas(count))?;
                self.replicas.insert(key, count);
            }
        }
        let gone: Vec<(String, String)> = self
            .pods
            .keys()
            .filter(|name| !there.contains(*name))
            .cloned()
            .collect();
        for name in gone {
            if let Some((id, pod, begin)) = self.pods.remove(&name) {
                self.builder.event(at.max(begin), id, Change::End { pod })?;
            }
        }
        let made = |told: Option<Timestamp>| told.map_or(at, |told| after(told.as_millisecond()));
        self.budgets(at, inventory, made);
        Ok(())
    }

    /// PodDisruptionBudgets of a dump, and those that it lacks.
    fn budgets(&mut self, at: u64, inventory: &Inventory, made: impl Fn(Option<Timestamp>) -> u64) {
        let budgets = inventory.budgets();
        for budget in budgets {
            self.builder.budget(at, made(budget.created), budget);
        }
        let there: BTreeSet<(&str, &str)> = budgets
            .iter()
            .map(|budget| (budget.namespace.as_str(), budget.name.as_str()))
            .collect();
        let known = self.builder.budgets();
        let gone = known.filter(|(namespace, name)| !there.contains(&(namespace.as_str(), name.as_str())));
        let gone: Vec<(String, String)> = gone.cloned().collect();
        for (namespace, name) in gone {
            self.builder.budget_is_gone(at, &namespace, &name);
        }
    }

    /// One more pod of an owner, and its number. `like`: the pod that tells from which template, where its owner does not.
    fn begin(
        &mut self,
        at: u64,
        owner: OwnerId,
        like: Option<(&Inventory, &Key, &Pod)>,
    ) -> Result<u64, ImportError> {
        let like = like.and_then(|(inventory, key, pod)| inventory.owner(key, None, Some(pod)));
        if let Some(like) = like {
            self.builder
                .template(at, owner, &like.template, Alike::Requests)?;
        }
        let pod = self.number(owner);
        self.builder
            .event(at, owner, Change::Begin { pod, runs_ms: None })?;
        Ok(pod)
    }

    fn number(&mut self, owner: OwnerId) -> u64 {
        let next = self.next_pod.entry(owner).or_default();
        *next += 1;
        *next - 1
    }

    pub(crate) fn finish(self) -> Result<Recorded, ImportError> {
        let Some(base) = self.base_ms else {
            return Err(ImportError::whole("there is no dump"));
        };
        let notes = self.builder.notes().collect();
        Ok(Recorded {
            timeline: self.builder.finish(),
            recorded_ms: looked_ms(base, self.last_ms, self.step_ms),
            notes,
            ..Recorded::default()
        })
    }
}
