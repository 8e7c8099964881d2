//! Objects that come and go, one after the other, as a timeline: what record, audit log, kubereplay and SimKube's traces have in common.
//!
//! Owns what the appearance, change and end of an object mean for its pods. Where the objects come from is the business of the formats.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::{Inventory, Maker, RUNS_MS, is_gated, is_living, ordinal};
use super::objects::{Object, OwnerReference, Pod, Workload};
use super::versions::Alike;
use super::{Builder, ImportError, Key, Recorded};
use crate::generate::MOST_PODS;
use crate::timeline::{Change, OwnerId, OwnerKind, Placement};

/// Kind, namespace and name of an object.
pub(crate) type Identity = (String, String, String);

/// A timeline in the making.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    builder: Builder,
    /// The instant of the first object, in milliseconds since 1970.
    base_ms: Option<i64>,
    last_ms: i64,
    /// Wanted replicas of Deployments, ReplicaSets and StatefulSets.
    replicas: BTreeMap<Key, u32>,
    /// Jobs and single pods that run, by kind, namespace and name. A Job that is suspended has no pods.
    running: BTreeMap<Identity, Running>,
    /// Jobs that have ended: later events about them are outdated.
    ended: BTreeSet<Identity>,
    /// What was seen to run when the recording ended.
    runs_on: BTreeSet<Identity>,
    next_pod: BTreeMap<OwnerId, u64>,
    /// For the way from pods to owners. Pods are not kept in it.
    objects: Inventory,
    /// Workloads without a template: their pods cannot be known.
    without_template: BTreeSet<Key>,
    /// Changes of workloads that were never seen.
    unknown: u64,
    /// Where pods are at the beginning.
    placements: Vec<Placement>,
    /// How many of these are of a Deployment, a Job or a single pod.
    placed: BTreeMap<Identity, usize>,
}

#[derive(Debug)]
struct Running {
    owner: OwnerId,
    /// Their numbers, and when each began.
    pods: Vec<(u64, u64)>,
}

impl Stream {
    /// Milliseconds after the beginning.
    fn at(&mut self, instant_ms: i64) -> u64 {
        self.base_ms = self.base_ms.or(Some(instant_ms));
        self.seen(instant_ms);
        self.after(instant_ms)
    }

    /// The same of an instant at which nobody looked; 0 for one before the beginning.
    fn after(&self, instant_ms: i64) -> u64 {
        let base = self.base_ms.unwrap_or(instant_ms);
        u64::try_from(instant_ms.saturating_sub(base)).unwrap_or(0)
    }

    /// Somebody looked at this instant, whether anything had changed or not.
    pub(crate) fn seen(&mut self, instant_ms: i64) {
        self.last_ms = self.last_ms.max(instant_ms);
    }

    /// It was seen to run when the recording ended, so that it is known to have no end in it.
    pub(crate) fn runs_on(&mut self, identity: Identity) {
        self.runs_on.insert(identity);
    }

    /// Whether anything has been learned.
    pub(crate) fn is_empty(&self) -> bool {
        self.next_pod.is_empty() && self.replicas.is_empty()
    }

    /// An object was added or changed.
    pub(crate) fn applied(&mut self, instant_ms: i64, object: Object) -> Result<(), ImportError> {
        let at = self.at(instant_ms);
        match object {
            Object::Workload(mut workload) => {
                self.workload(at, &workload)?;
                // Only whose it is will be asked for.
                workload.template = None;
                workload.claims = Vec::new();
                self.objects.add(Object::Workload(workload));
            }
            Object::Pod(pod) => self.pod(at, &pod)?,
            Object::Budget(budget) => {
                let made = budget
                    .created
                    .map_or(at, |made| self.after(made.as_millisecond()));
                self.builder.budget(at, made, &budget);
            }
            Object::Other => {}
        }
        Ok(())
    }

    /// A workload of another API group, which was added or changed, has so many pods from now on. What it is called is also how its end is told.
    pub(crate) fn foreign(&mut self, instant_ms: i64, workload: &Workload) -> Result<(), ImportError> {
        let at = self.at(instant_ms);
        let (namespace, name) = (workload.meta.namespace(), workload.meta.name());
        let key = (OwnerKind::Other, namespace.to_owned(), name.to_owned());
        let Some(owner) = self.owner(at, &key, Some(workload), None)? else {
            return Ok(());
        };
        let identity = (workload.kind.clone(), namespace.to_owned(), name.to_owned());
        self.runs(at, identity, owner, workload.replicas)
    }

    /// The replica count of a workload was changed, through its subresource `scale`.
    pub(crate) fn scaled(
        &mut self,
        instant_ms: i64,
        kind: OwnerKind,
        namespace: &str,
        name: &str,
        replicas: u32,
    ) -> Result<(), ImportError> {
        let at = self.at(instant_ms);
        let key = (kind, namespace.to_owned(), name.to_owned());
        match self.builder.known(&key) {
            Some(owner) => self.wants(at, &key, owner, replicas),
            None => {
                self.unknown += 1;
                Ok(())
            }
        }
    }

    /// An object is gone.
    pub(crate) fn deleted(
        &mut self,
        instant_ms: i64,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), ImportError> {
        let at = self.at(instant_ms);
        let owner_kind = match kind {
            "Deployment" | "ReplicaSet" => OwnerKind::Deployment,
            "StatefulSet" => OwnerKind::StatefulSet,
            "PodDisruptionBudget" => {
                self.builder.budget_is_gone(at, namespace, name);
                return Ok(());
            }
            _ => {
                self.ended(at, kind, namespace, name)?;
                // One that is made again under the name is another one.
                let identity = (kind.to_owned(), namespace.to_owned(), name.to_owned());
                self.ended.remove(&identity);
                return Ok(());
            }
        };
        let key = (owner_kind, namespace.to_owned(), name.to_owned());
        match self.builder.known(&key) {
            Some(owner) => self.wants(at, &key, owner, 0),
            None => Ok(()),
        }
    }

    /// All objects of a kind in a namespace are gone.
    pub(crate) fn deleted_all(
        &mut self,
        instant_ms: i64,
        kind: &str,
        namespace: &str,
    ) -> Result<(), ImportError> {
        let from = (kind.to_owned(), namespace.to_owned(), String::new());
        let is_one = |identity: &&Identity| identity.0 == kind && identity.1 == namespace;
        let running = self.running.range(from.clone()..).map(|(identity, _)| identity);
        let ended = self.ended.range(from..);
        let workloads = self.objects.workloads_of(kind, namespace);
        let mut names: BTreeSet<String> = running
            .take_while(is_one)
            .chain(ended.take_while(is_one))
            .chain(workloads)
            .map(|(_, _, name)| name.clone())
            .collect();
        if kind == "PodDisruptionBudget" {
            let budgets = self.builder.budgets().filter(|key| key.0 == namespace);
            names.extend(budgets.map(|(_, name)| name.clone()));
        }
        for name in names {
            self.deleted(instant_ms, kind, namespace, &name)?;
        }
        Ok(())
    }

    fn workload(&mut self, at: u64, workload: &Workload) -> Result<(), ImportError> {
        let namespace = workload.meta.namespace().to_owned();
        let name = workload.meta.name().to_owned();
        let controller = workload.meta.controller().map(|owner| owner.name.clone());
        let kind = match workload.kind.as_str() {
            "Deployment" => OwnerKind::Deployment,
            "ReplicaSet" if controller.is_none() => OwnerKind::Deployment,
            "StatefulSet" => OwnerKind::StatefulSet,
            "Job" => OwnerKind::Job,
            _ => return Ok(()),
        };
        if kind == OwnerKind::Job {
            return self.job(at, workload, &namespace, &name, controller);
        }
        let key = (kind, namespace, name);
        let Some(owner) = self.owner(at, &key, Some(workload), None)? else {
            return Ok(());
        };
        self.wants(at, &key, owner, workload.replicas)
    }

    fn job(
        &mut self,
        at: u64,
        workload: &Workload,
        namespace: &str,
        name: &str,
        controller: Option<String>,
    ) -> Result<(), ImportError> {
        let identity = ("Job".to_owned(), namespace.to_owned(), name.to_owned());
        // One that is being deleted may say so for a while, with all of its status.
        if workload.ended.is_some() || workload.meta.deletion_timestamp.is_some() {
            let began = self.running.contains_key(&identity);
            // A Job that was over before the recording began is none of its business.
            return if began {
                self.ended(at, "Job", namespace, name)
            } else {
                Ok(())
            };
        }
        let running = self.running.get(&identity);
        let has = running.map_or(0, |running| running.pods.len());
        if has == workload.replicas as usize || self.ended.contains(&identity) {
            return Ok(());
        }
        let above = controller.unwrap_or_else(|| name.to_owned());
        let key = (OwnerKind::Job, namespace.to_owned(), above);
        let Some(owner) = self.owner(at, &key, Some(workload), None)? else {
            return Ok(());
        };
        self.runs(at, identity, owner, workload.replicas)
    }

    fn pod(&mut self, at: u64, pod: &Pod) -> Result<(), ImportError> {
        let (namespace, name) = (pod.meta.namespace().to_owned(), pod.meta.name().to_owned());
        if !is_living(pod) {
            return self.ended(at, "Pod", &namespace, &name);
        }
        // It begins when its gates are gone: whoever takes them off is not simulated.
        if is_gated(pod) {
            return Ok(());
        }
        let key = match self.objects.maker_of(pod) {
            Maker::Node => return Ok(()),
            // Pods of workloads that are recorded themselves are counted there.
            Maker::Of((OwnerKind::Bare, namespace, name)) => (OwnerKind::Bare, namespace, name),
            Maker::Of((kind, namespace, name)) => {
                let controller = pod.meta.controller().map(OwnerReference::own_kind);
                let is_counted = match controller {
                    Some("ReplicaSet") => !self.objects.is_of_a_stranger(pod),
                    Some(kind) => ["Deployment", "StatefulSet", "Job"].contains(&kind),
                    None => false,
                };
                if is_counted {
                    let job = pod.meta.controller().map(|owner| owner.name.clone());
                    let group = match (kind, job) {
                        (OwnerKind::Job, Some(job)) => ("Job".to_owned(), namespace.clone(), job),
                        _ => ("Deployment".to_owned(), namespace.clone(), name.clone()),
                    };
                    self.place(at, &(kind, namespace, name), group, pod);
                    return Ok(());
                }
                // Jobs of others have no scale either.
                let kind = match kind {
                    OwnerKind::Job => OwnerKind::Job,
                    _ => OwnerKind::Other,
                };
                (kind, namespace, name)
            }
        };
        let identity = ("Pod".to_owned(), namespace, name);
        if self.running.contains_key(&identity) || self.ended.contains(&identity) {
            return Ok(());
        }
        let Some(owner) = self.owner(at, &key, None, Some(pod))? else {
            return Ok(());
        };
        self.runs(at, identity.clone(), owner, 1)?;
        self.place(at, &key, identity, pod);
        Ok(())
    }

    /// Notes where a pod is when the recording begins. It is any of its group: the pods of a Deployment are interchangeable, and so are those of one Job.
    fn place(&mut self, at: u64, key: &Key, group: Identity, pod: &Pod) {
        let node = pod.spec.node_name.as_ref();
        let node = node.filter(|node| at == 0 && !node.is_empty());
        let (Some(owner), Some(node)) = (self.builder.known(key), node) else {
            return;
        };
        let wanted = u64::from(self.replicas.get(key).copied().unwrap_or(0));
        let before = self.placed.get(&group).copied().unwrap_or(0);
        let number = match key.0 {
            OwnerKind::StatefulSet => ordinal(&key.2, pod.meta.name()).filter(|number| *number < wanted),
            OwnerKind::Deployment => Some(before as u64).filter(|number| *number < wanted),
            OwnerKind::Job | OwnerKind::Bare | OwnerKind::Other => {
                let pods = self.running.get(&group).map(|running| &running.pods);
                pods.and_then(|pods| pods.get(before)).map(|(number, _)| *number)
            }
        };
        if let Some(number) = number {
            self.placed.insert(group, before + 1);
            self.placements.push(Placement {
                owner,
                pod: number,
                node: node.clone(),
                since: pod.started.or(pod.meta.creation_timestamp),
                works_since: None,
            });
        }
    }

    /// Where pods were when the recording began, as far as it says that.
    pub(crate) fn take_placements(&mut self) -> Vec<Placement> {
        std::mem::take(&mut self.placements)
    }

    /// From now on it has so many pods: they begin, or those end that began last. The pods of a Job that is suspended are deleted, and others begin when it is
    /// resumed.
    fn runs(&mut self, at: u64, identity: Identity, owner: OwnerId, count: u32) -> Result<(), ImportError> {
        if u64::from(count) > MOST_PODS {
            let (kind, namespace, name) = &identity;
            return Err(ImportError::whole(format!(
                "{kind} {namespace}/{name} has {count} pods at once, and at most {MOST_PODS} fit; expected a recording of one cluster"
            )));
        }
        let running = self.running.entry(identity).or_insert(Running {
            owner,
            pods: Vec::new(),
        });
        while running.pods.len() < count as usize {
            let next = self.next_pod.entry(running.owner).or_default();
            let pod = *next;
            *next += 1;
            self.builder
                .event(at, running.owner, Change::Begin { pod, runs_ms: None })?;
            running.pods.push((pod, at));
        }
        for (pod, began_ms) in running.pods.drain(count as usize..) {
            self.builder
                .event(at.max(began_ms), running.owner, Change::End { pod })?;
        }
        Ok(())
    }

    fn ended(&mut self, at: u64, kind: &str, namespace: &str, name: &str) -> Result<(), ImportError> {
        let identity = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let Some(running) = self.running.remove(&identity) else {
            return Ok(());
        };
        self.ended.insert(identity);
        for (pod, began_ms) in running.pods {
            self.builder
                .event(at.max(began_ms), running.owner, Change::End { pod })?;
        }
        Ok(())
    }

    fn wants(&mut self, at: u64, key: &Key, owner: OwnerId, replicas: u32) -> Result<(), ImportError> {
        if self.replicas.get(key) == Some(&replicas) {
            return Ok(());
        }
        self.replicas.insert(key.clone(), replicas);
        self.builder.event(at, owner, Change::Replicas(replicas))
    }

    fn owner(
        &mut self,
        at: u64,
        key: &Key,
        workload: Option<&Workload>,
        pod: Option<&Pod>,
    ) -> Result<Option<OwnerId>, ImportError> {
        if let Some(known) = self.builder.known(key) {
            let alike = match workload {
                Some(_) => Alike::Seen,
                None => Alike::Requests,
            };
            if let Some(now) = self.objects.owner(key, workload, pod) {
                self.builder.template(at, known, &now.template, alike)?;
            }
            return Ok(Some(known));
        }
        match self.objects.owner(key, workload, pod) {
            Some(owner) => self.builder.owner(key, || owner).map(Some),
            None => {
                self.without_template.insert(key.clone());
                Ok(None)
            }
        }
    }

    /// What was recorded. If `jobs_end` is false the format does not record the end of Jobs.
    pub(crate) fn finish(mut self, jobs_end: bool) -> Result<Recorded, ImportError> {
        let mut notes = Vec::new();
        if !jobs_end {
            // A bare pod without an end exists until the end.
            let mut jobs = std::mem::take(&mut self.running);
            jobs.retain(|identity, running| {
                identity.0 == "Job" && !running.pods.is_empty() && !self.runs_on.contains(identity)
            });
            if !jobs.is_empty() {
                notes.push(format!(
                    "{} Jobs have no end in the recording: each is taken to last {} minutes",
                    jobs.len(),
                    RUNS_MS / 60_000
                ));
            }
            for running in jobs.into_values() {
                for (pod, began_ms) in running.pods {
                    let at = began_ms.saturating_add(RUNS_MS);
                    self.builder.event(at, running.owner, Change::End { pod })?;
                }
            }
        }
        if !self.without_template.is_empty() {
            notes.push(format!(
                "{} workloads have no pod template in the recording and are left out",
                self.without_template.len()
            ));
        }
        if self.unknown > 0 {
            notes.push(format!(
                "{} changes of replica counts are of workloads whose template is not in the recording; begin it with a dump, or with their creation",
                self.unknown
            ));
        }
        notes.extend(self.builder.notes());
        let length = self.base_ms.map_or(0, |base| self.last_ms.saturating_sub(base));
        Ok(Recorded {
            timeline: self.builder.finish(),
            recorded_ms: u64::try_from(length).unwrap_or(0),
            notes,
            ..Recorded::default()
        })
    }
}
