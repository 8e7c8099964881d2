//! Pods read one by one, with what they have in common kept once: replicas of one workload differ in name and place only, and are
//! recognised by comparing, which is cheaper than reading them again.

use crate::Pod;
use crate::cluster_state::ClusterState;
use crate::constraints::{self, Constraints, NamespaceLabels, PodProblem};
use crate::planned_node;
use crate::pod;
use crate::resources::Resources;
use crate::scheduler_profiles::SchedulerProfile;
use crate::volumes::{self, Around};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::sync::Arc;

/// One pod, as positions in the lists of `LoweredPods`.
pub(super) struct LoweredPod {
    pub(super) constraints: usize,
    pub(super) requests: usize,
    pub(super) attachments: Vec<(String, String)>,
    pub(super) problem: Option<PodProblem>,
}

/// All pods, in their order.
pub(super) struct LoweredPods {
    pub(super) pods: Vec<LoweredPod>,
    /// Distinct constraints, with all labels.
    pub(super) constraints: Vec<Constraints>,
    /// Distinct requests.
    pub(super) requests: Vec<Resources>,
}

/// Numbers for distinct values.
struct Interner<T> {
    ids: FxHashMap<T, usize>,
    values: Vec<T>,
}

impl<T: Clone + Eq + std::hash::Hash> Interner<T> {
    fn new() -> Self {
        Interner {
            ids: FxHashMap::with_hasher(FxBuildHasher),
            values: Vec::new(),
        }
    }

    fn id(&mut self, value: T) -> usize {
        if let Some(known) = self.ids.get(&value) {
            return *known;
        }
        self.values.push(value.clone());
        self.ids.insert(value, self.values.len() - 1);
        self.values.len() - 1
    }
}

impl LoweredPods {
    pub(super) fn new(
        pods: &[Arc<Pod>],
        namespaces: &NamespaceLabels,
        state: &ClusterState,
        around: &Around,
    ) -> Self {
        let mut constraints: Interner<Constraints> = Interner::new();
        let mut requests: Interner<Resources> = Interner::new();
        let mut latest: FxHashMap<&str, usize> = FxHashMap::with_hasher(FxBuildHasher);
        let mut lowered: Vec<LoweredPod> = Vec::with_capacity(pods.len());
        for (index, pod) in pods.iter().enumerate() {
            let owner = pod.metadata.owner_references.iter().flatten().next();
            let owner = owner.map_or("", |owner| owner.uid.as_str());
            let sibling = latest.get(owner).copied();
            let sibling = sibling.filter(|sibling| is_replica(&pods[*sibling], pod));
            latest.insert(owner, index);
            let (constraints, requests) = match sibling {
                Some(sibling) => (lowered[sibling].constraints, lowered[sibling].requests),
                None => {
                    let (of_pod, asked) = read(pod, namespaces, state, around);
                    (constraints.id(of_pod), requests.id(asked))
                }
            };
            lowered.push(LoweredPod {
                constraints,
                requests,
                attachments: volumes::attachments(pod, &state.volumes),
                problem: problem(pod, state, around),
            });
        }
        LoweredPods {
            pods: lowered,
            constraints: constraints.values,
            requests: requests.values,
        }
    }

    /// The constraints and requests of a pod.
    pub(super) fn of(&self, pod: usize) -> (&Constraints, &Resources) {
        let pod = &self.pods[pod];
        (&self.constraints[pod.constraints], &self.requests[pod.requests])
    }
}

/// The constraints, with all labels, and the requests of one pod, with what its scheduler is configured to add.
pub(super) fn read(
    pod: &Pod,
    namespaces: &NamespaceLabels,
    state: &ClusterState,
    around: &Around,
) -> (Constraints, Resources) {
    let mut lowered = constraints::lower(pod, namespaces);
    if let Some(profile) = state.scheduler_profiles.of(pod) {
        profile.add_affinity(&mut lowered);
        let defaults = &profile.default_constraints;
        if !defaults.is_empty() && lowered.spreads.is_empty() {
            lowered.spreads = constraints::default_spreads(&state.default_spread, defaults, pod);
        }
    }
    if !pod::is_terminal(pod) {
        lowered.volume_terms = volumes::terms(pod, &state.volumes, around);
    }
    (lowered, state.scheduler_profiles.requests(pod))
}

/// Why a pod that waits for a place cannot be considered; of one that runs and may be moved, why its successor could not. What a running pod asks by selectors
/// and affinity is what it has been placed by: kube-scheduler finds nodes for its successor by that, also where no node is launched for it (P-057).
pub(super) fn problem(pod: &Pod, state: &ClusterState, around: &Around) -> Option<PodProblem> {
    let objects = &state.volumes;
    if planned_node::waits(pod) {
        let profile = state.scheduler_profiles.of(pod);
        if profile.is_some_and(SchedulerProfile::opts_out) {
            return Some(PodProblem::OptedOut);
        }
        let volumes = || volumes::validate(pod, objects, around).map_err(PodProblem::Volume);
        return constraints::validate(pod).and_then(|()| volumes()).err();
    }
    let spec = pod.spec.as_ref()?;
    if has_no_claims(spec) || pod::node_name(pod).is_none() || !pod::is_reschedulable(pod) {
        return None;
    }
    let stays = volumes::validate_successor(pod, objects);
    stays.err().map(PodProblem::Volume)
}

/// Whether nothing that scheduling sees tells two pods apart: equal constraints and requests, and no volumes that could differ.
/// Never true by mistake; false also where it would take longer to find out.
pub(super) fn is_replica(left: &Pod, right: &Pod) -> bool {
    let (Some(one), Some(other)) = (&left.spec, &right.spec) else {
        return false;
    };
    left.metadata.namespace == right.metadata.namespace
        && pod::is_virtual(left) == pod::is_virtual(right)
        && left.metadata.owner_references == right.metadata.owner_references
        && left.metadata.labels == right.metadata.labels
        && has_no_claims(one)
        && has_no_claims(other)
        && asks_the_same(one, other)
        && !is_resized(left.status.as_ref())
        && !is_resized(right.status.as_ref())
}

fn has_no_claims(spec: &PodSpec) -> bool {
    !spec.volumes.iter().flatten().any(volumes::is_claim)
}

fn asks_the_same(one: &Arc<PodSpec>, other: &Arc<PodSpec>) -> bool {
    Arc::ptr_eq(one, other) || asks_for_equal(one, other)
}

fn asks_for_equal(one: &PodSpec, other: &PodSpec) -> bool {
    one.node_selector == other.node_selector
        && one.scheduler_name == other.scheduler_name
        && one.affinity == other.affinity
        && one.tolerations == other.tolerations
        && one.topology_spread_constraints == other.topology_spread_constraints
        && one.overhead == other.overhead
        && one.resources == other.resources
        && one.resource_claims == other.resource_claims
        && one.host_network == other.host_network
        && same_containers(Some(&one.containers), Some(&other.containers))
        && same_containers(one.init_containers.as_ref(), other.init_containers.as_ref())
}

fn same_containers(one: Option<&Vec<Container>>, other: Option<&Vec<Container>>) -> bool {
    let (one, other) = (
        one.map(Vec::as_slice).unwrap_or_default(),
        other.map(Vec::as_slice).unwrap_or_default(),
    );
    let same = |(one, other): (&Container, &Container)| {
        one.resources == other.resources
            && one.ports == other.ports
            && one.restart_policy == other.restart_policy
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// Whether the status has a say in the requests (in-place resize).
fn is_resized(status: Option<&PodStatus>) -> bool {
    let mut statuses = status.into_iter().flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        status.container_statuses.iter().flatten().chain(init)
    });
    statuses.any(|status| status.allocated_resources.is_some() || status.resources.is_some())
}
