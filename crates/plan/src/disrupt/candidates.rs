//! The twelve checks that make a node a candidate, in order; the first that fails is the reason (D §1.4).

use super::hurdle::{Hurdle, Lifted};
use super::register::Entry;
use jiff::Timestamp;
use spokeshave_model::snapshot::{NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::{Event, EventType, ObjectKind, ObjectRef, Price, state_node};
use std::borrow::Cow;

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
    pods: Pods,
}

/// Which of the pods of a node are reschedulable, and which of these will leave.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pods {
    /// So many, and all of them will: they are read off the node when they are asked for.
    All(usize),
    /// These, and of these some.
    Listed { pods: Vec<PodId>, moving: Vec<PodId> },
}

impl Candidate {
    /// How many reschedulable pods it has.
    pub fn pod_count(&self) -> usize {
        match &self.pods {
            Pods::All(count) => *count,
            Pods::Listed { pods, .. } => pods.len(),
        }
    }

    /// How many of its reschedulable pods will leave.
    pub fn moving_count(&self) -> usize {
        match &self.pods {
            Pods::All(count) => *count,
            Pods::Listed { moving, .. } => moving.len(),
        }
    }

    /// The reschedulable pods that will leave, for which a place must be found (D-008, D-136), in order.
    pub fn moving(&self, snapshot: &Snapshot) -> Cow<'_, [PodId]> {
        match &self.pods {
            Pods::All(_) => {
                let pods = snapshot.node(self.node).pods.iter().copied();
                pods.filter(|pod| snapshot.pod(*pod).reschedulable).collect()
            }
            Pods::Listed { moving, .. } => Cow::Borrowed(moving),
        }
    }

    /// Gives its pods other numbers.
    pub(super) fn renumber(&mut self, new: impl Fn(&mut PodId)) {
        if let Pods::Listed { pods, moving } = &mut self.pods {
            pods.iter_mut().chain(moving).for_each(new);
        }
    }

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

/// The same, with what is known of the node.
pub(super) fn checked_with(
    snapshot: &Snapshot,
    node: NodeId,
    class: DisruptionClass,
    now: Timestamp,
    lifted: &Lifted,
    known: Option<&Entry>,
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
    let of_pool = view.pool.filter(|pool| {
        let pool = snapshot.pool(*pool);
        pool.supported && !pool.instance_types.is_empty()
    });
    let pool = of_pool.ok_or(Hurdle::PoolNotFound)?;
    let waived = class == DisruptionClass::Eventual && claim.spec.termination_grace_period.is_some();
    if let Some(entry) = known.filter(|entry| entry.is_plain()) {
        return Ok(Candidate {
            node,
            pool,
            price: view.price,
            disruption_cost: entry.disruption_cost,
            pods: Pods::All(entry.reschedulable),
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
        pods: Pods::Listed {
            pods: reschedulable.clone().collect(),
            moving: reschedulable
                .filter(|pod| will_move(snapshot, *pod, now, lifted))
                .collect(),
        },
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
