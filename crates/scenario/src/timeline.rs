//! What workloads do over time: owners of pods, how many replicas they want when, and pods that end by themselves.
//!
//! Owns the types that generators and trace readers produce and that engines consume. Everything random in it has already been drawn, except what depends on
//! a pod's life (how long it takes to become ready): those are [`Spread`]s, drawn by (seed, owner, pod), so every policy gets the same draws. It never
//! decides where a pod runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// A lognormal duration, given by two of its quantiles, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Half of all draws are below it.
    pub median_ms: u64,
    /// 99 of 100 draws are below it; never less than the median.
    pub p99_ms: u64,
}

/// What kind of controller an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerKind {
    /// A Deployment (through its ReplicaSet): pods are interchangeable.
    Deployment,
    /// A StatefulSet: pods keep their ordinal and their volumes.
    StatefulSet,
    /// A Job: pods that end by themselves, and begin again when they were evicted.
    Job,
    /// None: a removed pod is not recreated.
    Bare,
    /// A controller of another API group, such as a Rollout or a CloneSet, whose pods are recorded one by one: they begin again when they were evicted. It has a
    /// scale, which is as many pods as there are.
    Other,
}

/// What a PodDisruptionBudget says: a number or a percentage of the pods that it selects. The two are not each other's complement, because Kubernetes rounds
/// both percentages up, and because a number that has to stay does not grow with the replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Budget {
    /// So many may be away.
    MaxUnavailable(String),
    /// So many have to be there.
    MinAvailable(String),
}

/// A PodDisruptionBudget, over all pods of its namespace that it selects, of however many owners.
#[derive(Debug, Clone, PartialEq)]
pub struct DisruptionBudget {
    /// Which pods: an empty one selects all.
    pub selector: LabelSelector,
    /// How many of them may be away or have to be there. One that says neither lets none go.
    pub amount: Option<Budget>,
}

/// A workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Owner {
    /// Its namespace.
    pub namespace: String,
    /// Its name, unique among owners of its namespace and kind.
    pub name: String,
    /// What it is.
    pub kind: OwnerKind,
    /// What its pods are made from at first: labels, annotations, specification.
    pub template: Arc<PodTemplateSpec>,
    /// What they are made from later, each once, in the order in which they come; [`Change::Template`] says when.
    pub later: Vec<Arc<PodTemplateSpec>>,
    /// From the start on a node until it is ready.
    pub ready: Spread,
    /// A PodDisruptionBudget of its own, over pods with its labels; those that select pods by labels of their choice are in [`Timeline::budgets`].
    pub budget: Option<Budget>,
    /// The volumes that each pod keeps under its ordinal (StatefulSet): created in the zone in which the pod first runs, and usable only there from then on.
    pub claims: Vec<PersistentVolumeClaim>,
}

impl Owner {
    /// What its pods are made from at any time, by the number that [`Change::Template`] names.
    pub fn templates(&self) -> impl Iterator<Item = &Arc<PodTemplateSpec>> {
        std::iter::once(&self.template).chain(&self.later)
    }

    /// The same, to be changed.
    pub fn templates_mut(&mut self) -> impl Iterator<Item = &mut Arc<PodTemplateSpec>> {
        std::iter::once(&mut self.template).chain(&mut self.later)
    }
}

/// Position of an owner in [`Timeline::owners`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u32);

/// What happens to an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It wants so many pods from now on (Deployment, StatefulSet).
    Replicas(u32),
    /// Its pods are made from this one of [`Owner::templates`] from now on, of which 0 is the first. Those of a Deployment or StatefulSet are replaced, as its
    /// controller rolls them out; of any other owner only pods that begin later have it.
    Template(u32),
    /// One more pod of its own number, which ends on its own after this run time, or never (Job, Bare, Other).
    Begin {
        /// Unique within the owner; draws of the pod's life go by it.
        pod: u64,
        /// How long it runs once it is ready; `None`: until [`Change::End`].
        runs_ms: Option<u64>,
    },
    /// The pod with this number is deleted, wherever it is in its life.
    End {
        /// As in [`Change::Begin`].
        pod: u64,
    },
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Milliseconds since the scenario's start.
    pub at_ms: u64,
    /// To whom.
    pub owner: OwnerId,
    /// What.
    pub change: Change,
}

/// A pod that has a node when everything begins, as in a cluster that was dumped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Whose pod it is.
    pub owner: OwnerId,
    /// Its number within the owner: one of those that the owner wants from the first instant on.
    pub pod: u64,
    /// The name of its Node. Where no such Node is simulated, it begins without one.
    pub node: String,
    /// Since when it is there, by the clock of the dump; `None` where that says nothing of it.
    pub since: Option<Timestamp>,
    /// Since when it has been at what [`Change::Begin`] says the length of, by the clock of the dump; `None`: all of it is still to come.
    pub works_since: Option<Timestamp>,
}

/// A whole history of workloads.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeline {
    /// Every workload that exists at any time.
    pub owners: Vec<Owner>,
    /// PodDisruptionBudgets by namespace and name, which are there from the start to the end.
    pub budgets: BTreeMap<(String, String), DisruptionBudget>,
    /// In order of time; events of one instant in the order in which they apply.
    pub events: Vec<Event>,
    /// Pods that have a node from the first instant on.
    pub placements: Vec<Placement>,
}
