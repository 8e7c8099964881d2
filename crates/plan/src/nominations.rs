//! Which node waiting pods name as the one that they were planned on, so that the scheduler tries it first and keeps its room.
//!
//! Owns when a node is named and when that is taken back. The last pass is right: a name follows the plan, and a pod with one is planned for like any
//! other, so that a name can be late or missing and never in the way. Only nodes that have joined can be named; who is planned on others is told, so that
//! the caller can name the node when it joins.

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::conditions::{Conditioned, INITIALIZED};
use spokeshave_model::planned_node::{self, TakenBack};
use spokeshave_model::snapshot::{NodeId, NodeView, PodId, Snapshot};
use spokeshave_model::{Action, ObjectKind, ObjectRef, Pod, pod, volumes};

use crate::provision::Provisioned;

/// A node that can run pods and has not got one that names it for so long is not named by it any more: the scheduler sees something that the plan
/// does not, and the room is others' to take. A scheduler with thousands of pods to bind takes a minute or two until it tries each.
const LONGEST: SignedDuration = SignedDuration::from_mins(3);
/// The same for a pod that a scheduler may have taken long ago: it waits up to ten minutes for volumes to be made and devices to be allocated before it binds it,
/// and since Kubernetes 1.35 names the node meanwhile, which is the one that is named already.
const LONGEST_BINDING: SignedDuration = SignedDuration::from_mins(15);

/// What a pass means for the nodes that pods name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nominations {
    /// Names to write and to take back.
    pub actions: Vec<Action>,
    /// Pods that are planned on nodes which have yet to join, with the NodeClaim of each.
    pub expected: Vec<(PodId, String)>,
}

impl Nominations {
    /// What follows from the outcome of a pass. O(pods of the pass).
    #[must_use]
    pub fn of(snapshot: &Snapshot, outcome: &Provisioned, now: Timestamp) -> Self {
        let mut nominations = Self::default();
        for (node, pods) in &outcome.placements.existing {
            for pod in pods.iter().filter(|pod| waits(snapshot, **pod)) {
                nominations.add(snapshot, *pod, *node, now);
            }
        }
        let new = outcome
            .placements
            .claims
            .iter()
            .flat_map(|claim| claim.pods.iter());
        let failed = outcome.unschedulable.iter().map(|failed| &failed.pod);
        let ignored = outcome.ignored.iter().map(|(pod, _)| pod);
        for pod in new.chain(failed).chain(ignored) {
            let object = &snapshot.pod(*pod).object;
            nominations
                .actions
                .extend(take_back(object, TakenBack::PlanChanged, now));
        }
        nominations
    }

    fn add(&mut self, snapshot: &Snapshot, pod: PodId, node: NodeId, now: Timestamp) {
        let object = &snapshot.pod(pod).object;
        let view = snapshot.node(node);
        match view.node_name() {
            Some(name) if view.registered => self.actions.extend(name_or_give_up(object, name, view, now)),
            _ if named_since(object, view).is_some() => {}
            _ => {
                self.actions
                    .extend(take_back(object, TakenBack::PlanChanged, now));
                let claim = view.claim_name().map(|claim| (pod, claim.to_owned()));
                self.expected.extend(claim);
            }
        }
    }
}

/// Whether a pod of a pass exists and has no node yet, nor the name of one that somebody else has given it: that is not ours to overwrite, whatever has become of
/// the node.
fn waits(snapshot: &Snapshot, pod: PodId) -> bool {
    let view = snapshot.pod(pod);
    view.provisionable && !view.is_virtual && planned_node::nominated_by_others(&view.object).is_none()
}

/// A pod that was planned on a node which joins names it, unless it has found a place meanwhile.
#[must_use]
pub fn at_registration(object: &Pod, node: &str, now: Timestamp) -> Option<Action> {
    let is_named = planned_node::planned(object).is_some_and(|(name, _)| name == node);
    let wanted = planned_node::is_provisionable(object) && pod::is_active(object) && !is_named;
    (wanted && !planned_node::is_spent(object, node)).then(|| name(object, node, now))
}

/// A pod that has lost the name of its node names it once more. That is right until the node can run pods, and when it can from now on: a scheduler that tries a pod
/// while nothing takes it empties the field, and others would take its room.
#[must_use]
pub fn after_loss(object: &Pod, node: &str, now: Timestamp) -> Option<Action> {
    let is_lost = planned_node::emptied(object).is_some_and(|(name, _)| name == node);
    let wanted = planned_node::is_provisionable(object) && pod::is_active(object) && is_lost;
    wanted.then(|| name(object, node, now))
}

/// Since when a pod that is planned on a node names it. Pods name a Node just before it is registered: until then it counts what was said, as the plan has not
/// changed in between.
#[must_use]
pub fn named_since(object: &Pod, node: &NodeView) -> Option<Timestamp> {
    let known = if node.registered {
        planned_node::planned(object)
    } else {
        planned_node::said(object)
    };
    let (name, since) = known?;
    (node.node_name() == Some(name)).then_some(since)
}

fn name_or_give_up(object: &Pod, node: &str, view: &NodeView, now: Timestamp) -> Option<Action> {
    match named_since(object, view) {
        Some(since) => {
            let since = since.max(initialized_since(view)?);
            let is_over = now.duration_since(since) >= longest(object);
            is_over
                .then(|| take_back(object, TakenBack::NotTaken, now))
                .flatten()
        }
        None if is_due_again(object, node, view) => Some(name(object, node, now)),
        None if planned_node::is_spent(object, node) => take_back(object, TakenBack::PlanChanged, now),
        None => Some(name(object, node, now)),
    }
}

/// How long a pod may name a node that can run it.
fn longest(object: &Pod) -> SignedDuration {
    let has_devices = object.spec.as_deref().is_some_and(pod::uses_resource_claims);
    if has_devices || !volumes::claim_keys(object).is_empty() {
        LONGEST_BINDING
    } else {
        LONGEST
    }
}

/// Whether the name was lost before the node could run pods. After that it is the scheduler's last word.
fn is_due_again(object: &Pod, node: &str, view: &NodeView) -> bool {
    let lost = planned_node::emptied(object).filter(|(name, _)| *name == node);
    lost.is_some_and(|(_, since)| initialized_since(view).is_none_or(|ready| since < ready))
}

/// Since when a node can run pods; `None` while it cannot. One without a NodeClaim could all the time.
fn initialized_since(view: &NodeView) -> Option<Timestamp> {
    let claim = view.claim.as_ref();
    let since = claim.and_then(|claim| claim.condition(INITIALIZED));
    view.initialized
        .then(|| since.map_or(Timestamp::MIN, |condition| condition.last_transition_time))
}

fn name(object: &Pod, node: &str, now: Timestamp) -> Action {
    Action::NominatePod {
        target: pod_ref(object),
        node: Some(node.to_owned()),
        condition: Box::new(planned_node::names(node, now)),
    }
}

/// Takes back what the plan has named; what a scheduler has named is its own.
fn take_back(object: &Pod, why: TakenBack, now: Timestamp) -> Option<Action> {
    let (node, _) = planned_node::planned(object)?;
    Some(Action::NominatePod {
        target: pod_ref(object),
        node: None,
        condition: Box::new(planned_node::no_longer(node, why, now)),
    })
}

fn pod_ref(object: &Pod) -> ObjectRef {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let meta = &object.metadata;
    ObjectRef::namespaced(
        ObjectKind::Pod,
        &text(&meta.namespace),
        &text(&meta.name),
        &text(&meta.uid),
    )
}
