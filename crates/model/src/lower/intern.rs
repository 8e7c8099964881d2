//! Numbers for what many pods or nodes share: classes, requests and kinds, in order of first occurrence; and which labels tell them apart.
//!
//! Owns how one pod and one node are reduced to what constraints can see of them. It reads no object twice and keeps nothing.

use super::meta_key;
use super::pods::LoweredPods;
use crate::Pod;
use crate::constraints::{Constraints, PodProblem};
use crate::labels;
use crate::planned_node;
use crate::pod::{self, DoNotDisrupt};
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::resources::{ResourceName, Resources};
use crate::snapshot::{
    BudgetId, BudgetView, ClassId, KindId, NodeId, NodeKind, NodeView, Particulars, PodId, PodView,
    RequestId, Seniority,
};
use crate::vector::{ResourceTable, ResourceVector};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which labels anything in the cluster looks at, with how many distinct constraints do.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    pod_labels: BTreeMap<String, u32>,
    node_labels: BTreeMap<String, u32>,
    selectors: u32,
    /// The hosts that are named.
    hosts: BTreeMap<String, u32>,
    /// How often hosts are compared as numbers.
    host_bounds: u32,
}

impl Observed {
    /// Of all distinct constraints of pods, and of DaemonSets.
    pub(super) fn of(pods: &LoweredPods, daemons: &[(String, Constraints, Resources)]) -> Self {
        let mut observed = Observed::default();
        let all = pods
            .constraints
            .iter()
            .chain(daemons.iter().map(|daemon| &daemon.1));
        all.for_each(|constraints| observed.add(constraints));
        observed
    }

    /// Counts what some constraints look at.
    pub(super) fn add(&mut self, constraints: &Constraints) {
        self.count(constraints, |count| count + 1);
    }

    /// Takes back what [`add`](Self::add) has counted.
    pub(super) fn remove(&mut self, constraints: &Constraints) {
        self.count(constraints, |count| count.saturating_sub(1));
    }

    fn count(&mut self, constraints: &Constraints, step: fn(u32) -> u32) {
        let in_all = |counts: &mut BTreeMap<String, u32>, key: &str| {
            let count = step(counts.get(key).copied().unwrap_or(0));
            if count == 0 {
                counts.remove(key);
            } else if let Some(known) = counts.get_mut(key) {
                *known = count;
            } else {
                counts.insert(key.to_owned(), count);
            }
        };
        for selector in constraints.selectors() {
            self.selectors = step(self.selectors);
            selector.keys().for_each(|key| in_all(&mut self.pod_labels, key));
        }
        of_nodes(constraints, |requirement| {
            in_all(&mut self.node_labels, requirement.key());
            if requirement.key() == labels::HOSTNAME {
                let hosts = requirement.values().iter();
                hosts.for_each(|host| in_all(&mut self.hosts, host));
                if is_bounded(requirement) {
                    self.host_bounds = step(self.host_bounds);
                }
            }
        });
    }

    /// Whether the same labels are observed, however often, and whatever hosts are named.
    pub(super) fn is_same(&self, other: &Observed) -> bool {
        (self.selectors > 0) == (other.selectors > 0)
            && (self.host_bounds > 0) == (other.host_bounds > 0)
            && self.pod_labels.keys().eq(other.pod_labels.keys())
            && self.node_labels.keys().eq(other.node_labels.keys())
    }

    /// Takes over which hosts are named; returns those of which it is otherwise now.
    pub(super) fn take_hosts(&mut self, now: &Observed) -> BTreeSet<String> {
        if self.hosts.keys().eq(now.hosts.keys()) {
            return BTreeSet::new();
        }
        let old = std::mem::replace(&mut self.hosts, now.hosts.clone());
        let gone = old.keys().filter(|host| !self.hosts.contains_key(*host));
        let new = self.hosts.keys().filter(|host| !old.contains_key(*host));
        gone.chain(new).cloned().collect()
    }

    /// Drops of a pod's constraints what no selector can see.
    pub(super) fn reduce(&self, constraints: &mut Constraints) {
        if self.selectors > 0 {
            constraints
                .labels
                .retain(|key, _| self.pod_labels.contains_key(key));
        } else {
            constraints.labels.clear();
            constraints.namespace.clear();
        }
    }

    /// What pods can see of a node: equal values are one kind.
    pub(super) fn kind_of(&self, node: &NodeView) -> KindKey {
        let seen = node.labels.iter().filter(|(key, _)| {
            self.node_labels.contains_key(labels::normalize(key)) && labels::counts(key, &node.labels)
        });
        let mut requirements = Requirements::from_labels(seen);
        if self.node_labels.contains_key(labels::HOSTNAME) {
            // Hosts that nothing names cannot be told apart: `In` fails on all of them, `NotIn` and `Exists` hold.
            let is_seen = self.host_bounds > 0 || self.hosts.contains_key(&node.hostname);
            let host = if is_seen {
                node.hostname.as_str()
            } else {
                labels::OTHER_HOST
            };
            requirements.replace(Requirement::is(labels::HOSTNAME, host));
        }
        let named = node.node_name().filter(|_| labels::name_nodes(&self.node_labels));
        let named = named.map(labels::node_name_key);
        if let Some(key) = named.filter(|key| self.node_labels.contains_key(key)) {
            requirements.add(Requirement::is(&key, "true"));
        }
        let taints: Vec<String> = node.taints.iter().map(crate::taint::format_taint).collect();
        (requirements, taints.join(","))
    }
}

/// Whether a requirement compares values as numbers.
fn is_bounded(requirement: &Requirement) -> bool {
    requirement.gte().is_some() || requirement.lte().is_some()
}

/// Calls `each` with everything that the constraints ask of a label of a node.
fn of_nodes(constraints: &Constraints, mut each: impl FnMut(&Requirement)) {
    let terms = constraints.required_terms.iter().chain(&constraints.volume_terms);
    let terms = terms.chain(constraints.preferred_terms.iter().map(|(_, term)| term));
    for requirements in std::iter::once(&constraints.node_selector).chain(terms) {
        requirements.iter().for_each(&mut each);
    }
}

/// Observed labels, and taints as text.
pub(super) type KindKey = (Requirements, String);

/// Classes, requests, and the views of all pods, which are bound to no node yet.
pub(super) fn intern_pods(
    pods: &[Arc<Pod>],
    lowered: &mut LoweredPods,
    observed: &Observed,
    table: &ResourceTable,
    budgets: &[BudgetView],
) -> (Vec<Arc<Constraints>>, Vec<ResourceVector>, Vec<PodView>) {
    let mut classes: Vec<Arc<Constraints>> = Vec::new();
    let mut class_ids: FxHashMap<Arc<Constraints>, ClassId> = FxHashMap::with_hasher(FxBuildHasher);
    let mut requests: Vec<ResourceVector> = Vec::new();
    let mut request_ids: FxHashMap<ResourceVector, RequestId> = FxHashMap::with_hasher(FxBuildHasher);
    let mut views = Vec::with_capacity(pods.len());
    let mut class_of: Vec<Option<ClassId>> = vec![None; lowered.constraints.len()];
    let mut request_of: Vec<Option<RequestId>> = vec![None; lowered.requests.len()];
    for (object, pod) in pods.iter().zip(&mut lowered.pods) {
        let class = *class_of[pod.constraints].get_or_insert_with(|| {
            let mut constraints = lowered.constraints[pod.constraints].clone();
            observed.reduce(&mut constraints);
            class_ids.get(&constraints).copied().unwrap_or_else(|| {
                let id = ClassId::from(classes.len());
                let constraints = Arc::new(constraints);
                classes.push(Arc::clone(&constraints));
                class_ids.insert(constraints, id);
                id
            })
        });
        let request = *request_of[pod.requests].get_or_insert_with(|| {
            let vector = table.vector(&lowered.requests[pod.requests]);
            request_ids.get(&vector).copied().unwrap_or_else(|| {
                let id = RequestId::from(requests.len());
                requests.push(vector.clone());
                request_ids.insert(vector, id);
                id
            })
        });
        let (attachments, problem) = (std::mem::take(&mut pod.attachments), pod.problem.take());
        let budgets = selecting(object, budgets);
        views.push(pod_view(object, (class, request), budgets, attachments, problem));
    }
    (classes, requests, views)
}

/// The PodDisruptionBudgets that select a pod.
pub(super) fn selecting(object: &Pod, budgets: &[BudgetView]) -> Vec<BudgetId> {
    let (namespace, _) = meta_key(&object.metadata);
    let empty = BTreeMap::new();
    let labels = object.metadata.labels.as_ref().unwrap_or(&empty);
    // Budgets are sorted by namespace, so those of this pod are one run.
    let first = budgets.partition_point(|budget| budget.namespace.as_str() < namespace);
    let same_namespace = budgets[first..]
        .iter()
        .take_while(|budget| budget.namespace == namespace);
    let selected = (first..)
        .zip(same_namespace)
        .filter(|(_, budget)| budget.selector.matches(labels));
    selected.map(|(index, _)| BudgetId::from(index)).collect()
}

/// What of a pod depends on nothing but itself.
pub(super) fn pod_view(
    object: &Arc<Pod>,
    (class, request): (ClassId, RequestId),
    budgets: Vec<BudgetId>,
    attachments: Vec<(String, String)>,
    problem: Option<PodProblem>,
) -> PodView {
    let is_virtual = pod::is_virtual(object);
    let particulars = Particulars {
        do_not_disrupt: DoNotDisrupt::of(object),
        attachments,
        problem,
        budgets: if is_virtual { Vec::new() } else { budgets },
    };
    // D-374: room that is kept costs nobody anything to move.
    let cost = if is_virtual { 0 } else { pod::eviction_cost(object) };
    PodView {
        class,
        request,
        node: None,
        provisionable: planned_node::waits(object),
        promised: false,
        active: pod::is_active(object),
        terminal: pod::is_terminal(object),
        reschedulable: pod::is_reschedulable(object),
        daemon: pod::is_daemon(object),
        mirror: pod::is_mirror(object),
        tolerates_disrupted_taint: pod::tolerates_disrupted_taint(object),
        ready_false: pod::is_ready_false(object),
        // Ten units are the most, which there is room for.
        eviction_cost: i32::try_from(cost).unwrap_or(i32::MAX),
        particulars: particulars.kept(),
        is_virtual,
        seniority: Seniority::of(object),
        object: Arc::clone(object),
    }
}

/// A node by the name that a pod has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// It is bound there.
    Bound(&'a str),
    /// Somebody else than the plan has named it (P-056).
    Promised(&'a str),
}

impl<'a> Place<'a> {
    /// The node that a pod names.
    pub(super) fn of(pod: &'a Pod) -> Option<Self> {
        let bound = pod::node_name(pod).map(Place::Bound);
        bound.or_else(|| planned_node::promised(pod).map(Place::Promised))
    }

    pub(super) fn name(self) -> &'a str {
        match self {
            Place::Bound(name) | Place::Promised(name) => name,
        }
    }

    /// Whether the pod counts on the node of this name. What is about to go is nobody's to promise.
    pub(super) fn is_on(self, node: &NodeView) -> bool {
        match self {
            Place::Bound(_) => true,
            Place::Promised(_) => !node.marked_for_deletion,
        }
    }
}

/// The pod is on this node from now on, or on none.
pub(super) fn put_on(pod: &mut PodView, node: Option<NodeId>) {
    pod.node = node;
    if pod::node_name(&pod.object).is_none() {
        // Who is on a node without being bound was promised to it.
        pod.promised = node.is_some();
        pod.provisionable = !pod.promised && planned_node::waits(&pod.object);
    }
}

/// Puts pods on the nodes that they name.
pub(super) fn bind_pods(
    nodes: &mut [NodeView],
    pods: &mut [PodView],
    table: &ResourceTable,
    requests: &[ResourceVector],
) {
    let by_name: FxHashMap<String, usize> = nodes
        .iter()
        .enumerate()
        .filter_map(|(index, node)| Some((node.bound_name()?.to_owned(), index)))
        .collect();
    for node in nodes.iter_mut() {
        node.requested = ResourceVector::zero(table.width());
        node.daemon_requested = ResourceVector::zero(table.width());
    }
    for (index, pod) in pods.iter_mut().enumerate() {
        let Some(place) = Place::of(&pod.object) else {
            continue;
        };
        let Some(number) = by_name.get(place.name()).copied() else {
            continue;
        };
        let node = &mut nodes[number];
        if !place.is_on(node) {
            continue;
        }
        put_on(pod, Some(NodeId::from(number)));
        node.promised |= pod.promised;
        node.pods.push(PodId::from(index));
        if !pod.terminal {
            let request = &requests[pod.request.index()];
            node.requested.add(request);
            if pod.daemon {
                node.daemon_requested.add(request);
            }
        }
    }
}

/// Kinds, and the kind of each node.
pub(super) fn intern_kinds(nodes: &mut [NodeView], observed: &Observed) -> Vec<NodeKind> {
    let mut kinds: Vec<NodeKind> = Vec::new();
    let mut ids: FxHashMap<KindKey, KindId> = FxHashMap::with_hasher(FxBuildHasher);
    for node in nodes {
        let key = observed.kind_of(node);
        node.kind = ids.get(&key).copied().unwrap_or_else(|| {
            let id = KindId::from(kinds.len());
            kinds.push(NodeKind {
                requirements: key.0.clone(),
                taints: node.taints.clone(),
            });
            ids.insert(key, id);
            id
        });
    }
    kinds
}

/// What the nodes of a NodePool add up to (P §8.4): a sum from which can be taken what was added, whatever came in between.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage(BTreeMap<ResourceName, (i128, u32)>);

impl Usage {
    /// Counts a node.
    pub(super) fn add(&mut self, capacity: &Resources) {
        for (name, amount) in capacity.iter().chain([(ResourceName::NODES, 1)]) {
            match self.0.get_mut(name) {
                Some((sum, count)) => (*sum, *count) = (*sum + i128::from(amount), *count + 1),
                None => _ = self.0.insert(ResourceName::new(name), (i128::from(amount), 1)),
            }
        }
    }

    /// Takes a node back that was counted.
    pub(super) fn subtract(&mut self, capacity: &Resources) {
        for (name, amount) in capacity.iter().chain([(ResourceName::NODES, 1)]) {
            let Some((sum, count)) = self.0.get_mut(name) else {
                continue;
            };
            (*sum, *count) = (*sum - i128::from(amount), *count - 1);
            if *count == 0 {
                self.0.remove(name);
            }
        }
    }

    /// The sums.
    pub(super) fn total(&self) -> Resources {
        let amount = |sum: i128| {
            let limit = if sum < 0 { i64::MIN } else { i64::MAX };
            i64::try_from(sum).unwrap_or(limit)
        };
        let sums = self.0.iter();
        sums.map(|(name, (sum, _))| (name.clone(), amount(*sum)))
            .collect()
    }
}
