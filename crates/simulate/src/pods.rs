//! Pods as objects: made from their owner's template, bound, started, stopped.
//!
//! Owns the slab of pods and their object at each point of their lifecycle. It never decides where a pod runs or when it is removed.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use spokeshave_model::Pod;
use spokeshave_scenario::pods::has_gates;

use crate::times::whole_seconds;

/// What a pod is given to stop that does not say how long it takes, in seconds.
const GRACE_SECONDS: i64 = 30;

/// A pod: its place in the slab, and which of the pods that had this place it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodId {
    pub(crate) slot: u32,
    pub(crate) life: u32,
}

/// Whose pod it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Parent {
    /// An owner of the timeline.
    Owner(u32),
    /// A DaemonSet of the world.
    Daemon(u32),
}

/// Where a pod is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Without a node.
    Waiting,
    /// On a node, not ready yet.
    Starting,
    /// On a node and ready.
    Ready,
    /// Terminating.
    Stopping,
}

/// A pod with what the object does not say.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedPod {
    pub(crate) object: Arc<Pod>,
    pub(crate) parent: Parent,
    /// Its number within its owner.
    pub(crate) number: u64,
    /// From which template of its owner it was made.
    pub(crate) template: u32,
    /// How the scheduler sees it.
    pub(crate) shape: usize,
    pub(crate) stage: Stage,
    /// The machine on which it is.
    pub(crate) machine: Option<u32>,
    /// Since when it has existed without a node, in milliseconds.
    pub(crate) waits_since_ms: u64,
    /// It replaces a pod that was evicted.
    pub(crate) replaces: bool,
    /// When the pod that it replaces was evicted voluntarily, in milliseconds.
    pub(crate) moved_ms: Option<u64>,
    /// How long it runs once it is ready.
    pub(crate) runs_ms: Option<u64>,
    /// How often its eviction was refused in a row.
    pub(crate) refusals: u32,
    /// When its eviction is tried next, in milliseconds, while one is queued.
    pub(crate) eviction_ms: Option<u64>,
    /// The scheduler has said that it fits nowhere.
    pub(crate) unschedulable: bool,
    /// What the scheduler has written about that last.
    pub(crate) refusal: u64,
}

/// When the scheduler takes a pod: by priority, by the second of its creation, and by namespace and name.
pub(crate) type Turn = (std::cmp::Reverse<i32>, i64, String);

/// When the scheduler takes a pod.
pub(crate) fn turn(pod: &Pod) -> Turn {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let created = pod.metadata.creation_timestamp.as_ref();
    (
        std::cmp::Reverse(priority),
        created.map_or(0, |created| created.0.as_second()),
        spokeshave_model::pod::key(pod),
    )
}

/// All pods that exist.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    slots: Vec<(u32, Option<SimulatedPod>)>,
    free: Vec<u32>,
}

impl Pods {
    pub(crate) fn insert(&mut self, pod: SimulatedPod) -> PodId {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            entry.0 += 1;
            entry.1 = Some(pod);
            return PodId { slot, life: entry.0 };
        }
        self.slots.push((0, Some(pod)));
        PodId {
            // Slots are as many as pods at one time, which memory bounds far below four billion.
            slot: (self.slots.len() - 1) as u32,
            life: 0,
        }
    }

    pub(crate) fn get(&self, id: PodId) -> Option<&SimulatedPod> {
        let (life, pod) = self.slots.get(id.slot as usize)?;
        pod.as_ref().filter(|_| *life == id.life)
    }

    pub(crate) fn get_mut(&mut self, id: PodId) -> Option<&mut SimulatedPod> {
        let (life, pod) = self.slots.get_mut(id.slot as usize)?;
        let life = *life;
        pod.as_mut().filter(|_| life == id.life)
    }

    pub(crate) fn remove(&mut self, id: PodId) -> Option<SimulatedPod> {
        let (life, pod) = self.slots.get_mut(id.slot as usize)?;
        if *life != id.life {
            return None;
        }
        let removed = pod.take();
        if removed.is_some() {
            self.free.push(id.slot);
        }
        removed
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PodId, &SimulatedPod)> {
        (0..).zip(&self.slots).filter_map(|(slot, (life, pod))| {
            let id = PodId { slot, life: *life };
            Some((id, pod.as_ref()?))
        })
    }
}

/// A pod that has just been created.
pub(crate) fn created(
    metadata: &ObjectMeta,
    spec: &Arc<PodSpec>,
    name: String,
    uid: String,
    owner: Option<&OwnerReference>,
    now: Timestamp,
) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            uid: Some(uid),
            creation_timestamp: Some(Time(whole_seconds(now))),
            owner_references: owner.map(|owner| vec![owner.clone()]),
            ..metadata.clone()
        },
        spec: Some(Arc::clone(spec)),
        node_name: None,
        status: Some(PodStatus {
            phase: Some("Pending".to_owned()),
            ..PodStatus::default()
        }),
    }
}

/// It has scheduling gates: the scheduler does not look at it, and no plan is made for it.
pub(crate) fn is_gated(pod: &Pod) -> bool {
    pod.spec.as_deref().is_some_and(has_gates)
}

/// What an API server says of a pod with gates.
pub(crate) fn held_back(pod: &mut Pod) {
    unscheduled(pod, "SchedulingGated");
}

/// The scheduler has found no place.
pub(crate) fn unschedulable(pod: &mut Pod) {
    unscheduled(pod, "Unschedulable");
}

fn unscheduled(pod: &mut Pod, reason: &str) {
    pod.status.get_or_insert_default().conditions = Some(vec![PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some(reason.to_owned()),
        ..PodCondition::default()
    }]);
}

/// It was bound to a node, on which it starts.
pub(crate) fn bound(pod: &mut Pod, node: &str, now: Timestamp) {
    pod.node_name = Some(node.to_owned());
    let status = pod.status.get_or_insert_default();
    status.start_time = Some(Time(whole_seconds(now)));
    status.conditions = Some(vec![
        PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(whole_seconds(now))),
            ..PodCondition::default()
        },
        PodCondition {
            type_: "Ready".to_owned(),
            status: "False".to_owned(),
            ..PodCondition::default()
        },
    ]);
}

/// It is ready.
pub(crate) fn ready(pod: &mut Pod) {
    let status = pod.status.get_or_insert_default();
    status.phase = Some("Running".to_owned());
    for condition in status.conditions.iter_mut().flatten() {
        if condition.type_ == "Ready" {
            condition.status = "True".to_owned();
        }
    }
}

/// It was deleted with a grace period, in seconds.
pub(crate) fn stopping(pod: &mut Pod, grace_seconds: i64, now: Timestamp) {
    let due = now.saturating_add(jiff::SignedDuration::from_secs(grace_seconds));
    pod.metadata.deletion_timestamp = Some(Time(whole_seconds(due.unwrap_or(Timestamp::MAX))));
    pod.metadata.deletion_grace_period_seconds = Some(grace_seconds);
}

/// The grace period of a pod, in seconds.
pub(crate) fn grace_seconds(pod: &Pod) -> i64 {
    let spec = pod.spec.as_deref();
    spec.and_then(|spec| spec.termination_grace_period_seconds)
        .unwrap_or(GRACE_SECONDS)
        .max(0)
}

/// A specification with what an API server adds to it, as far as a decision reads that: the deadline of a node ends pods by their grace periods (D-334).
pub(crate) fn with_defaults(mut spec: PodSpec) -> PodSpec {
    spec.termination_grace_period_seconds.get_or_insert(GRACE_SECONDS);
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: u64) -> SimulatedPod {
        SimulatedPod {
            object: Arc::new(Pod::default()),
            parent: Parent::Owner(0),
            number,
            template: 0,
            shape: 0,
            stage: Stage::Waiting,
            machine: None,
            waits_since_ms: 0,
            replaces: false,
            moved_ms: None,
            runs_ms: None,
            refusals: 0,
            eviction_ms: None,
            unschedulable: false,
            refusal: 0,
        }
    }

    #[test]
    fn an_id_of_a_pod_that_is_gone_does_not_find_its_successor() {
        let mut pods = Pods::default();
        let first = pods.insert(pod(1));
        assert_eq!(pods.remove(first).map(|pod| pod.number), Some(1));
        let second = pods.insert(pod(2));
        assert_eq!(second.slot, first.slot);
        assert!(pods.get(first).is_none() && pods.remove(first).is_none());
        assert_eq!(pods.get(second).map(|pod| pod.number), Some(2));
        assert_eq!(pods.iter().count(), 1);
    }
}
