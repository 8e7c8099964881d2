//! Which nodes to launch for the pods that have none (P §5): collect the pods, pack them, and say what was decided and why.
//!
//! It creates nothing: `Provisioned::plan` turns the outcome into a [`Plan`], with the objects that `node_claim` makes of planned claims.

use crate::node_claim::to_node_claim;
use crate::policy::Policy;
use crate::standing;
use jiff::Timestamp;
use spokeshave_api::NodePool;
use spokeshave_api::constants::MINIMUM_NOMINATION;
use spokeshave_model::constraints::PodProblem;
use spokeshave_model::placement::Placements;
use spokeshave_model::reason::Reason;
use spokeshave_model::snapshot::{ClassId, NodeId, NodeView, PodId, Snapshot};
use spokeshave_model::{
    Action, Derivation, Event, EventType, ObjectKind, ObjectRef, Plan, Price, ResourceName, Resources,
};
use spokeshave_schedule::{
    ClaimOrder, PackRequest, Packer, Packing, SkippedPool, Statistics, UnplacedPod, explain_left_over,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a provisioning pass decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provisioned {
    /// The pods the pass was about: pending ones, and those of nodes that are going away, in pod order.
    pub pods: Vec<PodId>,
    /// Nodes to launch, and pods that go to existing nodes.
    pub placements: Placements,
    /// Pods without a place, with reasons, in pod order.
    pub unschedulable: Vec<UnplacedPod>,
    /// Pods that are not considered until they are changed (P-057), in pod order.
    pub ignored: Vec<(PodId, PodProblem)>,
    /// What happened, in numbers and names.
    pub report: ProvisionReport,
}

/// A summary for logs, metrics and the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProvisionReport {
    /// Pending pods that were considered.
    pub pending_pods: usize,
    /// Virtual pods of CapacityBuffers that were considered.
    pub virtual_pods: usize,
    /// Pods of nodes marked for deletion that were considered (P-058).
    pub displaced_pods: usize,
    /// The price of launching each planned claim at its cheapest.
    pub price: Price,
    /// NodePools that could not take part, by name, in pool order.
    pub skipped_pools: Vec<(String, SkippedPool)>,
    /// Work done by the packing pass.
    pub statistics: Statistics,
}

/// Decides which nodes to launch. With nothing to place the outcome is empty.
pub fn provision(snapshot: &Snapshot, policy: &Policy, now: Timestamp) -> Provisioned {
    provision_only(snapshot, policy, now, |_| true)
}

/// The same for some of the pods.
pub fn provision_only(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    is_meant: impl Fn(PodId) -> bool,
) -> Provisioned {
    provision_beside(snapshot, policy, now, is_meant, |_, _| ()).0
}

/// The same, and the pods of the pass by the zone they will be in, as far as that is certain (P-123). Virtual pods are not among them.
pub fn provision_by_zone(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    is_meant: impl Fn(PodId) -> bool,
) -> (Provisioned, BTreeMap<String, Vec<PodId>>) {
    provision_beside(snapshot, policy, now, is_meant, |packer, pods| {
        let mut real = pods.to_vec();
        real.retain(|pod| !snapshot.pod(*pod).is_virtual);
        packer.effective_zones(&real)
    })
}

/// Decides which nodes to launch, and asks something else about the same pods before.
fn provision_beside<T: Default>(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    is_meant: impl Fn(PodId) -> bool,
    ask: impl FnOnce(&mut Packer<'_>, &[PodId]) -> T,
) -> (Provisioned, T) {
    let (mut pending, ignored) = pending_pods(snapshot);
    pending.retain(|pod| is_meant(*pod));
    let mut displaced = displaced_pods(snapshot, now);
    displaced.retain(|pod| is_meant(*pod));
    let virtual_pods = pending
        .iter()
        .filter(|pod| snapshot.pod(**pod).is_virtual)
        .count();
    let mut report = ProvisionReport {
        pending_pods: pending.len() - virtual_pods,
        virtual_pods,
        displaced_pods: displaced.len(),
        ..ProvisionReport::default()
    };
    let pods: BTreeSet<PodId> = pending.into_iter().chain(displaced).collect();
    if pods.is_empty() {
        let outcome = Provisioned {
            ignored,
            report,
            ..Provisioned::default()
        };
        return (outcome, T::default());
    }
    let pods: Vec<PodId> = pods.into_iter().collect();
    let request = PackRequest {
        pods: pods.clone(),
        ..PackRequest::default()
    };
    let options = policy.pack_options();
    let mut packer = Packer::new(snapshot, &options);
    let asked = ask(&mut packer, &pods);
    let packing = cheapest_packing(snapshot, packer, &request);
    report.price = price(&packing);
    report.statistics = packing.statistics;
    report.skipped_pools = packing
        .skipped_pools
        .into_iter()
        .map(|(pool, why)| (snapshot.pool(pool).name.clone(), why))
        .collect();
    let outcome = Provisioned {
        pods,
        placements: packing.placements,
        unschedulable: packing.unplaced,
        ignored,
        report,
    };
    (outcome, asked)
}

/// Up to this many pods every order of claims is tried, also the one that looks at all claims for each pod.
const MOST_PODS_FOR_EVERY_ORDER: usize = 400;

/// Up to this many pods several orders are tried; beyond it one is good enough, because what a node is rounded up to matters less.
const MOST_PODS_FOR_SEVERAL_ORDERS: usize = 2_000;

/// The orders of claims in which so many pods are packed, upstream's first.
fn orders_of(count: usize) -> &'static [ClaimOrder] {
    if count <= MOST_PODS_FOR_EVERY_ORDER {
        &ClaimOrder::ALL
    } else if count <= MOST_PODS_FOR_SEVERAL_ORDERS {
        &ClaimOrder::FIRST_FIT
    } else {
        &[ClaimOrder::FewestPods]
    }
}

/// Packs in each order of claims and takes the cheapest result that places the most pods; of equal ones the first, which is upstream's order. How many orders are
/// tried for pods that exist does not depend on how many virtual ones there are (P-186).
fn cheapest_packing(snapshot: &Snapshot, packer: Packer<'_>, request: &PackRequest) -> Packing {
    let pods = &request.pods;
    let real = pods.iter().filter(|pod| !snapshot.pod(**pod).is_virtual).count();
    let (orders, orders_of_real) = (orders_of(pods.len()), orders_of(real));
    if real > 0 && orders_of_real.len() > orders.len() {
        packer.pack_cheapest_beside_room(request, orders, orders_of_real)
    } else if orders.len() > 1 {
        packer.pack_cheapest(request, orders)
    } else {
        packer.pack(request)
    }
}

/// What the planned claims cost at their cheapest, as far as prices are known.
fn price(packing: &Packing) -> Price {
    let claims = packing.placements.claims.iter();
    claims
        .filter_map(|claim| claim.launches.first())
        .map(|launch| launch.price.known_or_zero())
        .sum()
}

/// P-056, P-057: pending pods worth considering, and those that are not, with the reason.
pub fn pending_pods(snapshot: &Snapshot) -> (Vec<PodId>, Vec<(PodId, PodProblem)>) {
    pending_among(snapshot, snapshot.pod_ids())
}

/// The same among these.
pub(crate) fn pending_among(
    snapshot: &Snapshot,
    pods: impl Iterator<Item = PodId>,
) -> (Vec<PodId>, Vec<(PodId, PodProblem)>) {
    let mut pending = Vec::new();
    let mut ignored = Vec::new();
    for pod in pods.filter(|pod| snapshot.pod(*pod).provisionable) {
        let view = snapshot.pod(pod);
        match view.problem() {
            // A pod that is on its way out asks for nothing any more.
            None if view.active => pending.push(pod),
            None => {}
            Some(problem) => ignored.push((pod, problem.clone())),
        }
    }
    (pending, ignored)
}

/// P-058: pods that need a new place because their node is going away.
pub fn displaced_pods(snapshot: &Snapshot, now: Timestamp) -> Vec<PodId> {
    let leaving = snapshot.nodes.iter().filter(|node| node.marked_for_deletion);
    leaving
        .flat_map(|node| displaced_from(snapshot, node, now))
        .collect()
}

/// The pods of a node that need a new place when it goes. None is sought for one whose successor no node could take.
pub(crate) fn displaced_from(
    snapshot: &Snapshot,
    node: &NodeView,
    now: Timestamp,
) -> impl Iterator<Item = PodId> {
    let pods = node.pods.iter().copied();
    pods.filter(move |pod| {
        snapshot.is_currently_reschedulable(*pod, now) && snapshot.pod(*pod).problem().is_none()
    })
}

fn pod_ref(snapshot: &Snapshot, pod: PodId) -> ObjectRef {
    let view = snapshot.pod(pod);
    let meta = &view.object.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    ObjectRef::namespaced(
        ObjectKind::Pod,
        &text(&meta.namespace),
        &text(&meta.name),
        view.uid(),
    )
}

impl Provisioned {
    /// Takes the pods without a place out of the outcome, for somebody else to place.
    pub fn take_unschedulable(&mut self) -> Vec<PodId> {
        let left: Vec<PodId> = self.unschedulable.drain(..).map(|one| one.pod).collect();
        // They are in pod order.
        self.pods.retain(|pod| left.binary_search(pod).is_err());
        left
    }

    /// Existing nodes that are to receive pods, with these; each is to be nominated (P-071). Virtual pods nominate nothing (P-186).
    pub fn nominated_nodes(&self, snapshot: &Snapshot) -> Vec<(NodeId, Vec<PodId>)> {
        let existing = self.placements.existing.iter();
        let real = existing.map(|(node, pods)| {
            let real = pods.iter().copied().filter(|pod| !snapshot.pod(*pod).is_virtual);
            (*node, real.collect::<Vec<_>>())
        });
        real.filter(|(_, pods)| !pods.is_empty()).collect()
    }

    /// D-027: nominates in a Snapshot what the controllers would nominate: a node that is to receive pods does not go. Returns the nodes that were
    /// not nominated before.
    pub fn nominate(&self, snapshot: &mut Snapshot, now: Timestamp) -> BTreeSet<NodeId> {
        let until = now.saturating_add(MINIMUM_NOMINATION).unwrap_or(Timestamp::MAX);
        let mut fresh = BTreeSet::new();
        for (node, _) in self.nominated_nodes(snapshot) {
            let view = &mut snapshot.nodes[node.index()];
            if !view.is_nominated(now) {
                fresh.insert(node);
            }
            view.nominated_until = view.nominated_until.max(Some(until));
        }
        fresh
    }

    /// The pods of the pass that exist, and so are told of and counted.
    pub fn real_pods(&self, snapshot: &Snapshot) -> Vec<PodId> {
        let pods = self.pods.iter().copied();
        pods.filter(|pod| !snapshot.pod(*pod).is_virtual).collect()
    }

    /// The pods of the pass without a place, with what is said of them: those that were not tried, then those that failed.
    pub fn left_over(&self) -> impl Iterator<Item = (PodId, Arc<str>)> {
        let ignored = self
            .ignored
            .iter()
            .map(|(pod, problem)| (*pod, problem.to_string().into()));
        ignored.chain(self.failed().map(|(unplaced, text)| (unplaced.pod, text)))
    }

    /// The pods that were tried and failed, with their reasons in words. Pods of one shape share a reason, which is worded once: while many nodes
    /// end at the same time, tens of thousands of pods have the same few.
    pub fn failed(&self) -> impl Iterator<Item = (&UnplacedPod, Arc<str>)> {
        let mut texts: BTreeMap<*const Reason, Arc<str>> = BTreeMap::new();
        self.unschedulable.iter().map(move |unplaced| {
            let text = texts
                .entry(Arc::as_ptr(&unplaced.reason))
                .or_insert_with(|| unplaced.reason.to_string().into());
            (unplaced, text.clone())
        })
    }

    /// The pods that exist, were tried and failed, with what events and log lines say of them: the NodePools that a pod asks for are named first. Pods
    /// of one class share a text.
    pub fn worded(
        &self,
        snapshot: &Snapshot,
        policy: &Policy,
    ) -> impl Iterator<Item = (&UnplacedPod, Arc<str>)> {
        let mut known: BTreeMap<(ClassId, *const Reason), Arc<str>> = BTreeMap::new();
        let real = self
            .failed()
            .filter(|(unplaced, _)| !snapshot.pod(unplaced.pod).is_virtual);
        real.map(move |(unplaced, text)| {
            let (pod, reason) = (unplaced.pod, &unplaced.reason);
            let key = (snapshot.pod(pod).class, Arc::as_ptr(reason));
            let make = || standing::asked_first(snapshot, pod, reason, &text, policy.min_values).into();
            (unplaced, Arc::clone(known.entry(key).or_insert_with(make)))
        })
    }

    /// Why each pod without a place has none: what NodePools and nodes say, the smallest set of things in the way, what would help. The
    /// texts of the events are those of its reasons. Worked out on demand.
    pub fn explain(&self, snapshot: &Snapshot, policy: &Policy) -> BTreeMap<PodId, Arc<Derivation>> {
        let request = PackRequest {
            pods: self.pods.clone(),
            ..PackRequest::default()
        };
        explain_left_over(snapshot, &request, &policy.pack_options(), &self.unschedulable)
    }

    /// What makes the outcome true: its events, and a NodeClaim for each planned claim, in their order.
    pub fn plan(&self, snapshot: &Snapshot, policy: &Policy) -> Plan {
        let claims = self.placements.claims.iter();
        let actions = claims.map(|planned| Action::CreateNodeClaim {
            claim: Box::new(to_node_claim(snapshot, planned)),
            reason: "provisioned".to_owned(),
        });
        Plan {
            events: self.events(snapshot, policy),
            actions: actions.collect(),
            report: (),
        }
    }

    /// The events that follow from the outcome alone: FailedScheduling, Nominated for existing nodes, NoCompatibleInstanceTypes. Those for
    /// pods on new NodeClaims need the claim's name: `nominated_event`.
    pub fn events(&self, snapshot: &Snapshot, policy: &Policy) -> Vec<Event> {
        let ignored = self
            .ignored
            .iter()
            .map(|(pod, problem)| (*pod, Reason::Problem(problem.clone())));
        let ignored = ignored
            .filter(|(pod, reason)| reason.is_reported() && !snapshot.pod(*pod).is_virtual)
            .map(|(pod, reason)| failed_scheduling_event(snapshot, pod, &reason.to_string()));
        let failed = self
            .worded(snapshot, policy)
            .filter(|(unplaced, _)| unplaced.reason.is_reported())
            .map(|(unplaced, text)| failed_scheduling_event(snapshot, unplaced.pod, &text));
        let nominated = self
            .nominated_nodes(snapshot)
            .into_iter()
            .flat_map(|(node, pods)| {
                let view = snapshot.node(node);
                pods.into_iter()
                    .map(move |pod| nominated_event(snapshot, pod, view.claim_name(), view.node_name()))
            });
        let pools = self
            .report
            .skipped_pools
            .iter()
            .filter_map(|(name, why)| no_compatible_event(snapshot, name, why));
        pools.chain(ignored).chain(failed).chain(nominated).collect()
    }
}

/// Event FailedScheduling (P §17).
pub fn failed_scheduling_event(snapshot: &Snapshot, pod: PodId, reason: &str) -> Event {
    let message = format!("Failed to schedule pod, {reason}");
    Event::new(
        pod_ref(snapshot, pod),
        EventType::Warning,
        "FailedScheduling",
        message,
    )
    .within_seconds(300)
}

/// Event Nominated (P §17): `Pod should schedule on: nodeclaim/<n>, node/<n>` with the parts that are known.
pub fn nominated_event(
    snapshot: &Snapshot,
    pod: PodId,
    node_claim: Option<&str>,
    node: Option<&str>,
) -> Event {
    let parts = [("nodeclaim", node_claim), ("node", node)];
    let parts: Vec<String> = parts
        .iter()
        .filter_map(|(kind, name)| Some(format!("{kind}/{}", (*name)?)))
        .collect();
    let message = format!("Pod should schedule on: {}", parts.join(", "));
    let mut event = Event::new(pod_ref(snapshot, pod), EventType::Normal, "Nominated", message);
    event.rate_limited = true;
    event
}

fn no_compatible_event(snapshot: &Snapshot, pool: &str, why: &SkippedPool) -> Option<Event> {
    let SkippedPool::NoCompatibleInstanceTypes { min_values } = why else {
        return None;
    };
    let view = snapshot.pool(snapshot.find_pool(pool)?);
    let suffix = if *min_values {
        " due to minValues incompatibility"
    } else {
        ""
    };
    let message =
        format!("NodePool requirements filtered out all compatible available instance types{suffix}");
    let object = ObjectRef::cluster(ObjectKind::NodePool, pool, &view.uid);
    Some(Event::new(object, EventType::Warning, "NoCompatibleInstanceTypes", message).within_seconds(60))
}

/// A limit that a NodePool is already above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    /// The resource.
    pub resource: String,
    /// Its limit.
    pub limit: i64,
    /// Its usage.
    pub usage: i64,
}

impl std::fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let amount = |value| ResourceName::format(&self.resource, value);
        write!(
            f,
            "resource usage exceeds limit (limit={}, resource-name={}, usage={})",
            amount(self.limit),
            self.resource,
            amount(self.usage)
        )
    }
}

/// P-065: whether a NodePool already uses more than it may, checked again just before each creation: with the limits that it has now.
pub fn limit_exceeded(pool: &NodePool, usage: &Resources) -> Option<LimitExceeded> {
    let limits = Resources::from_quantities_lossy(pool.spec.limits.as_ref());
    limits
        .iter()
        .find(|(resource, limit)| usage.get(resource) > *limit)
        .map(|(resource, limit)| LimitExceeded {
            resource: resource.to_owned(),
            limit,
            usage: usage.get(resource),
        })
}

/// Why a NodePool says what it says in logs (P §5.3).
pub fn skipped_pool_text(why: &SkippedPool) -> &'static str {
    match why {
        SkippedPool::NotProvisionable => "ignoring nodepool, not ready",
        SkippedPool::NoInstanceTypes => "skipping, no resolved instance types found",
        SkippedPool::NoCompatibleInstanceTypes { .. } => {
            "skipping, nodepool requirements filtered out all instance types"
        }
    }
}
