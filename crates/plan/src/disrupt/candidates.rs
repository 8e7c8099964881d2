//! The twelve checks that make a node a candidate, in order; the first that fails is the reason (D §1.4).

use super::hurdle::{Hurdle, Lifted};
use jiff::Timestamp;
use spokeshave_model::pod::{DoNotDisrupt, EVICTION_COST_UNIT};
use spokeshave_model::snapshot::{NodeId, PodId, PodView, PoolId, Snapshot};
use spokeshave_model::{Event, EventType, ObjectKind, ObjectRef, Price, state_node};

/// How strictly pods that must not be disturbed are taken (D §0.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisruptionClass {
    /// Blocking pods always block: all consolidation methods.
    Graceful,
    /// Blocking pods are tolerated when the NodeClaim has a terminationGracePeriod: drift (D-029).
    Eventual,
}

/// A node that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Its pool.
    pub pool: PoolId,
    /// What it costs; zero when unknown (D-032).
    pub price: Price,
    /// Reschedule disruption cost in units of 2^-27 (D-052).
    pub disruption_cost: i64,
    /// Its reschedulable pods.
    pub pods: Vec<PodId>,
    /// Of these, the ones that will leave, for which a place must be found (D-008, D-136).
    pub moving: Vec<PodId>,
}

impl Candidate {
    /// Its pool and itself, as budgets count it.
    pub(super) fn place(&self) -> (PoolId, NodeId) {
        (self.pool, self.node)
    }
}

/// All candidates of a class, in node order, and for each other node the first blocker.
pub fn candidates(
    snapshot: &Snapshot,
    class: DisruptionClass,
    now: Timestamp,
) -> (Vec<Candidate>, Vec<(NodeId, Hurdle)>) {
    let mut passed = Vec::new();
    let mut blocked = Vec::new();
    for node in snapshot.node_ids() {
        match candidate(snapshot, node, class, now) {
            Ok(candidate) => passed.push(candidate),
            Err(blocker) => blocked.push((node, blocker)),
        }
    }
    (passed, blocked)
}

/// D-022: runs the checks for one node.
pub fn candidate(
    snapshot: &Snapshot,
    node: NodeId,
    class: DisruptionClass,
    now: Timestamp,
) -> Result<Candidate, Hurdle> {
    checked(snapshot, node, class, now, &Lifted::new())
}

/// The same, as if the lifted hurdles were not there.
pub(super) fn checked(
    snapshot: &Snapshot,
    node: NodeId,
    class: DisruptionClass,
    now: Timestamp,
    lifted: &Lifted,
) -> Result<Candidate, Hurdle> {
    checked_with(snapshot, node, class, now, lifted, None)
}

/// The little that the checks read of a pod which is in nobody's way, for all pods: those of a node are far apart in memory, and this is not.
pub(super) struct PodFacts {
    /// What its eviction costs, never less than nothing; `NOT_RESCHEDULABLE` and `NOT_PLAIN` for others.
    costs: Vec<i64>,
}

/// Neither protected nor under a budget, and it stays.
const NOT_RESCHEDULABLE: i64 = -1;
/// Protected or under a budget, now or at some time.
const NOT_PLAIN: i64 = -2;

impl PodFacts {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let cost = |pod: &PodView| {
            let is_plain = matches!(pod.do_not_disrupt(), DoNotDisrupt::Absent) && pod.budgets().is_empty();
            match (is_plain, pod.reschedulable) {
                (false, _) => NOT_PLAIN,
                (true, false) => NOT_RESCHEDULABLE,
                (true, true) => pod.eviction_cost.max(0).into(),
            }
        };
        PodFacts {
            costs: snapshot.pods.iter().map(cost).collect(),
        }
    }

    fn is_plain(&self, pod: PodId) -> bool {
        self.costs[pod.index()] != NOT_PLAIN
    }

    /// What its eviction costs, if it is reschedulable.
    fn cost(&self, pod: PodId) -> Option<i64> {
        Some(self.costs[pod.index()]).filter(|cost| *cost >= 0)
    }
}

/// The same, with what is known of all pods.
pub(super) fn checked_with(
    snapshot: &Snapshot,
    node: NodeId,
    class: DisruptionClass,
    now: Timestamp,
    lifted: &Lifted,
    facts: Option<&PodFacts>,
) -> Result<Candidate, Hurdle> {
    let view = snapshot.node(node);
    let stands = |holds: bool, hurdle: Hurdle| {
        if holds && !lifted.contains(&hurdle) {
            Err(hurdle)
        } else {
            Ok(())
        }
    };
    stands(view.in_command, Hurdle::InCommand)?;
    let claim = view.claim.as_ref().ok_or(Hurdle::NotManaged)?;
    if view.node.is_none() {
        return Err(Hurdle::NoNode);
    }
    stands(!view.initialized, Hurdle::NotInitialized)?;
    if view.marked_for_deletion {
        return Err(Hurdle::Deleting);
    }
    stands(view.is_nominated(now), Hurdle::Nominated)?;
    stands(state_node::is_protected(view), Hurdle::NodeDoNotDisrupt)?;
    if view.pool_name.is_none() {
        return Err(Hurdle::NoPoolLabel);
    }
    let known = view.pool.filter(|pool| {
        let pool = snapshot.pool(*pool);
        pool.supported && !pool.instance_types.is_empty()
    });
    let pool = known.ok_or(Hurdle::PoolNotFound)?;
    let waived = class == DisruptionClass::Eventual && claim.spec.termination_grace_period.is_some();
    if let Some(facts) = facts.filter(|facts| view.pods.iter().all(|pod| facts.is_plain(*pod))) {
        let reschedulable = view.pods.iter().copied();
        let reschedulable = reschedulable.filter(|pod| facts.cost(*pod).is_some());
        let costs = view.pods.iter().filter_map(|pod| facts.cost(*pod));
        let pods: Vec<PodId> = reschedulable.collect();
        return Ok(Candidate {
            node,
            pool,
            price: view.price,
            disruption_cost: costs.fold(EVICTION_COST_UNIT, i64::saturating_add),
            moving: pods.clone(),
            pods,
        });
    }
    if !waived {
        check_pods(snapshot, &view.pods, now, lifted)?;
    }
    let reschedulable = view
        .pods
        .iter()
        .copied()
        .filter(|pod| snapshot.pod(*pod).reschedulable);
    Ok(Candidate {
        node,
        pool,
        price: view.price,
        disruption_cost: snapshot.disruption_cost(node),
        pods: reschedulable.clone().collect(),
        moving: reschedulable
            .filter(|pod| will_move(snapshot, *pod, now, lifted))
            .collect(),
    })
}

fn is_protected_pod(snapshot: &Snapshot, pod: PodId, now: Timestamp, lifted: &Lifted) -> bool {
    let view = snapshot.pod(pod);
    view.active && view.do_not_disrupt().is_active(now) && !lifted.contains(&Hurdle::PodDoNotDisrupt(pod))
}

fn is_evictable(snapshot: &Snapshot, pod: PodId, now: Timestamp, lifted: &Lifted) -> bool {
    let view = snapshot.pod(pod);
    view.active
        && !view.tolerates_disrupted_taint
        && !view.mirror
        && !is_protected_pod(snapshot, pod, now, lifted)
}

/// D-008, as if the lifted hurdles were not there.
fn will_move(snapshot: &Snapshot, pod: PodId, now: Timestamp, lifted: &Lifted) -> bool {
    if is_protected_pod(snapshot, pod, now, lifted) {
        return false;
    }
    if !is_evictable(snapshot, pod, now, lifted) {
        return true;
    }
    let view = snapshot.pod(pod);
    match view.budgets() {
        [] => true,
        [only] => {
            let budget = &snapshot.budgets[only.index()];
            let exempt = budget.always_allows_unhealthy && view.ready_false;
            !budget.fully_blocking || exempt || lifted.contains(&Hurdle::PodDisruptionBudget(*only))
        }
        _ => lifted.contains(&Hurdle::SeveralBudgets(pod)),
    }
}

/// Checks 10 to 12 (D-014, D-017…D-021).
fn check_pods(snapshot: &Snapshot, pods: &[PodId], now: Timestamp, lifted: &Lifted) -> Result<(), Hurdle> {
    if let Some(pod) = pods
        .iter()
        .find(|pod| is_protected_pod(snapshot, **pod, now, lifted))
    {
        return Err(Hurdle::PodDoNotDisrupt(*pod));
    }
    let mut several = None;
    for pod in pods
        .iter()
        .filter(|pod| !snapshot.pod(**pod).budgets().is_empty())
    {
        if !is_evictable(snapshot, *pod, now, lifted) {
            continue;
        }
        let view = snapshot.pod(*pod);
        if let [only] = view.budgets() {
            let budget = &snapshot.budgets[only.index()];
            let exempt = budget.always_allows_unhealthy && view.ready_false;
            let hurdle = Hurdle::PodDisruptionBudget(*only);
            if budget.disruptions_allowed <= 0 && !exempt && !lifted.contains(&hurdle) {
                return Err(hurdle);
            }
        } else if several.is_none() && !lifted.contains(&Hurdle::SeveralBudgets(*pod)) {
            several = Some(Hurdle::SeveralBudgets(*pod));
        }
    }
    several.map_or(Ok(()), Err)
}

/// Capitalises the first letter, as events do.
pub(crate) fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(characters).collect()
    })
}

/// The Node and the NodeClaim of a node, as far as they exist.
pub(crate) fn objects(snapshot: &Snapshot, node: NodeId) -> Vec<ObjectRef> {
    let view = snapshot.node(node);
    let node = view.node.as_ref().map(|node| (ObjectKind::Node, &node.metadata));
    let claim = view
        .claim
        .as_ref()
        .map(|claim| (ObjectKind::NodeClaim, &claim.metadata));
    let reference = |(kind, meta): (
        ObjectKind,
        &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    )| {
        ObjectRef::cluster(
            kind,
            meta.name.as_deref().unwrap_or(""),
            meta.uid.as_deref().unwrap_or(""),
        )
    };
    node.into_iter().chain(claim).map(reference).collect()
}

/// The `DisruptionBlocked` events of a blocked node: none for checks 1 and 2, the NodeClaim only for check 3 (D §1.4).
pub fn blocked_events(snapshot: &Snapshot, node: NodeId, hurdle: Hurdle) -> Vec<Event> {
    if matches!(hurdle, Hurdle::InCommand | Hurdle::NotManaged) {
        return Vec::new();
    }
    let message = capitalised(&hurdle.words(snapshot, node));
    // W-43: another reason is another event.
    let event = |object: ObjectRef| {
        let values = [object.uid.clone(), message.clone()];
        Event::new(object, EventType::Normal, "DisruptionBlocked", message.clone()).deduped_by(values)
    };
    objects(snapshot, node).into_iter().map(event).collect()
}
