//! The virtual pods of all CapacityBuffers (P §12), as they follow from the objects that are there.
//!
//! Owns the stores that buffers name and the pods made of them. Nothing is remembered that the objects do not say, so that a restart loses no room:
//! before the first plan and the first disruption the pods are the same as before. Only of a buffer that cannot be read what it said last is remembered, until
//! a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplate;
use spokeshave_api::CapacityBuffer;
use spokeshave_model::Pod;
use spokeshave_plan::buffers::{Resolved, Shapes, Workload, WorkloadKind, resolve, virtual_pods};
use spokeshave_runtime::{ObjectKey, StoreOptions};

use crate::state::store_list::{Versions, plain, stores};

fn without_status<K: Workloads + PartialEq>(_: bool) -> StoreOptions<K> {
    StoreOptions::trimmed(|one| one.trim())
}

/// Kinds of which a buffer reads the pod template and the replicas only.
trait Workloads {
    fn trim(&mut self);
}

macro_rules! workloads {
    ($($kind:ty),*) => {$(
        impl Workloads for $kind {
            fn trim(&mut self) {
                self.metadata.managed_fields = None;
                self.metadata.annotations = None;
                self.status = None;
            }
        }
    )*};
}
workloads!(Deployment, StatefulSet, ReplicaSet);

stores! {
    /// The stores; filled only where the feature gate is on.
    pub(crate) struct BufferSources {
        pub(crate) buffers: CapacityBuffer, capacity_buffers, apart, plain;
        pub(crate) pod_templates: PodTemplate, capacity_buffers, apart, plain;
        pub(crate) deployments: Deployment, capacity_buffers, apart, without_status;
        pub(crate) stateful_sets: StatefulSet, capacity_buffers, apart, without_status;
        pub(crate) replica_sets: ReplicaSet, capacity_buffers, apart, without_status;
    }
    indexes {
        /// Buffers by what they name: `kind/namespace/name`.
        pub(crate) by_reference: CapacityBuffer, buffers, references;
    }
    groups {}
}

/// The key of what a buffer names.
pub(crate) fn reference_key(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}

fn references(buffer: &CapacityBuffer) -> Vec<String> {
    let namespace = buffer.metadata.namespace.as_deref().unwrap_or_default();
    let template = buffer.spec.pod_template_ref.as_ref();
    let template = template.map(|reference| reference_key("PodTemplate", namespace, &reference.name));
    let workload = buffer.spec.scalable_ref.as_ref();
    let workload = workload.map(|reference| reference_key(&reference.kind, namespace, &reference.name));
    template.into_iter().chain(workload).collect()
}

impl BufferSources {
    /// How often any of them has changed.
    fn versions(&self) -> Versions {
        let mut versions = Versions::default();
        self.count(&mut versions);
        versions
    }

    /// Buffers that are there and cannot be read.
    fn unreadable(&self) -> BTreeSet<ObjectKey> {
        let rejected = self.buffers.rejected().into_iter();
        rejected.map(|(key, _)| key).collect()
    }

    /// What a buffer asks for; `None` when it keeps no room.
    fn wish(&self, buffer: &CapacityBuffer) -> Option<Resolved> {
        if buffer.metadata.deletion_timestamp.is_some() {
            return None;
        }
        resolve(buffer, self).ok()
    }
}

impl Shapes for BufferSources {
    fn pod_template(&self, namespace: &str, name: &str) -> Option<Arc<PodTemplate>> {
        self.pod_templates.get(&ObjectKey::namespaced(namespace, name))
    }

    fn workload(&self, kind: WorkloadKind, namespace: &str, name: &str) -> Option<Workload> {
        let key = ObjectKey::namespaced(namespace, name);
        match kind {
            WorkloadKind::Deployment => {
                let found = self.deployments.get(&key)?;
                Some(Workload {
                    template: found.spec.template.clone(),
                    replicas: found.spec.replicas,
                })
            }
            WorkloadKind::StatefulSet => {
                let found = self.stateful_sets.get(&key)?;
                Some(Workload {
                    template: found.spec.template.clone(),
                    replicas: found.spec.replicas,
                })
            }
            WorkloadKind::ReplicaSet => {
                let found = self.replica_sets.get(&key)?;
                Some(Workload {
                    template: found.spec.template.clone().unwrap_or_default(),
                    replicas: found.spec.replicas,
                })
            }
        }
    }
}

/// The pods of one buffer, and what they were made of.
#[derive(Debug)]
struct Made {
    uid: Option<String>,
    resolved: Resolved,
    pods: Vec<Arc<Pod>>,
}

#[derive(Debug, Default)]
struct State {
    versions: Option<Versions>,
    /// Buffers that could not be read.
    unreadable: BTreeSet<ObjectKey>,
    made: BTreeMap<ObjectKey, Made>,
    changes: u64,
}

impl State {
    /// Of buffers that were not found keeps those that are there and cannot be read: nobody knows that their room is not needed. True when others are gone.
    fn keep_unreadable(&mut self, missing: BTreeMap<ObjectKey, Made>, sources: &BufferSources) -> bool {
        let mut are_gone = false;
        // In this order: one that is corrected meanwhile leaves the unreadable ones for the others, and is looked at next time.
        let unreadable = sources.unreadable();
        for (key, made) in missing {
            if unreadable.contains(&key) || sources.buffers.get(&key).is_some() {
                self.made.insert(key, made);
            } else {
                are_gone = true;
            }
        }
        are_gone
    }

    /// Says once of each buffer that cannot be read what becomes of its room.
    fn tell_unreadable(&self, unreadable: &BTreeSet<ObjectKey>) {
        for key in unreadable.difference(&self.unreadable) {
            if self.made.contains_key(key) {
                tracing::warn!(CapacityBuffer = %key, "capacitybuffer cannot be read and keeps the room that it asked for last, until a restart: correct it, or delete it");
            } else {
                tracing::warn!(CapacityBuffer = %key, "capacitybuffer cannot be read and keeps no room: correct it, or delete it");
            }
        }
    }
}

/// The virtual pods, made anew only for buffers whose pods have changed.
#[derive(Debug, Default)]
pub(crate) struct VirtualPods(Mutex<State>);

impl VirtualPods {
    /// Brings the pods up to date with the stores.
    fn current(&self, sources: &BufferSources) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let versions = sources.versions();
        // What is deleted while it cannot be read changes no version.
        let unreadable = sources.unreadable();
        if state.versions == Some(versions) && state.unreadable == unreadable {
            return state;
        }
        let mut before = std::mem::take(&mut state.made);
        let mut changed = false;
        for buffer in sources.buffers.snapshot() {
            let key = ObjectKey::of(&*buffer);
            let known = before.remove(&key);
            let Some(resolved) = sources.wish(&buffer) else {
                changed |= known.is_some();
                continue;
            };
            let uid = buffer.metadata.uid.clone();
            let same = known.filter(|made| made.uid == uid && made.resolved == resolved);
            let made = same.unwrap_or_else(|| {
                changed = true;
                let pods = virtual_pods(&buffer, &resolved).into_iter().map(Arc::new);
                Made {
                    pods: pods.collect(),
                    uid,
                    resolved,
                }
            });
            state.made.insert(key, made);
        }
        changed |= state.keep_unreadable(before, sources);
        state.tell_unreadable(&unreadable);
        state.changes += u64::from(changed);
        state.versions = Some(versions);
        state.unreadable = unreadable;
        state
    }

    /// How often the pods have changed.
    pub(crate) fn changes(&self, sources: &BufferSources) -> u64 {
        self.current(sources).changes
    }

    /// Adds all of them to pods in order of namespace and name, and keeps that order.
    pub(crate) fn join(&self, mut pods: Vec<Arc<Pod>>, sources: &BufferSources) -> Vec<Arc<Pod>> {
        let state = self.current(sources);
        let count = pods.len();
        pods.extend(state.made.values().flat_map(|made| made.pods.iter().cloned()));
        if pods.len() > count {
            // Stable: a pod that exists stays before a virtual one of the same name.
            let name = |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
            pods.sort_by_cached_key(|pod| name(pod));
        }
        pods
    }

    /// Whether there are any.
    pub(crate) fn exist(&self, sources: &BufferSources) -> bool {
        self.current(sources)
            .made
            .values()
            .any(|made| !made.pods.is_empty())
    }
}
