//! The end of Nodes and NodeClaims (D §8, P §9.6), step by step, as functions of their objects and now.
//!
//! Owns the order of the steps, the tiers of the drain and the deadline rules: the NodeClaim's end here, the Node's in `node`, which pods go when and
//! what is told of them in `pods`, in which order across nodes in `turns`. It never calls a cloud and never evicts: it says what to do.

mod node;
mod pods;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, INSTANCE_TERMINATING, REGISTERED};
use spokeshave_api::constants::INSTANCE_TERMINATION_POLL;
use spokeshave_api::labels::{self, TERMINATION_FINALIZER};
use spokeshave_model::{Action, Event, EventType, ObjectRef, Plan, Subresource};

use crate::lifecycle::{claim_ref, node_ref};

pub use node::{NodeEnd, NodeNext, NodeStep, asked_for, blocking_attachments, node_step, stuck_events};
pub(crate) use pods::tier;
pub use pods::{
    EvictionStep, claims_of_kept_pods, could_have_waited, delete_after, evicted_event, eviction_reason,
    eviction_step, refused_event, rejected_event,
};
pub use turns::{LONGEST_WAIT, Size, Turns, takes_turn};

/// Pause between two looks while pods are past their deadline (D-340), and after writes whose result is to be seen.
const POLL: Duration = Duration::from_secs(1);
/// Longest pause between two looks: every change of a pod, an attachment or the Node itself brings one at once.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// When termination stops waiting (D-301…D-304).
///
/// # Errors
/// The annotation is not RFC 3339; the termination stalls until somebody mends it (D-303).
pub fn deadline(claim: &NodeClaim) -> Result<Option<Timestamp>, String> {
    let Some(text) = claim.annotation(labels::TERMINATION_TIMESTAMP) else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|error| {
        format!(
            "NodeClaim {}: annotation {} is {text:?}, which is not an RFC 3339 time ({error})",
            claim.name(),
            labels::TERMINATION_TIMESTAMP
        )
    })
}

/// When to ask the cloud again for an instance that is ending (D-314, D-348): soon at first, since some end at once, and every five seconds
/// when it takes longer.
#[must_use]
pub fn instance_poll(claim: &NodeClaim, now: Timestamp) -> Duration {
    let asked = claim.condition(INSTANCE_TERMINATING);
    let since = asked.map(|asked| now.duration_since(asked.last_transition_time));
    let since = since.and_then(|since| Duration::try_from(since).ok());
    since.unwrap_or_default().clamp(POLL, INSTANCE_TERMINATION_POLL)
}

fn deadline_event(object: ObjectRef, deadline: Timestamp) -> Event {
    let name = object.name.clone();
    let text = Timestamp::from_second(deadline.as_second()).unwrap_or(deadline);
    Event::new(
        object,
        EventType::Warning,
        "TerminationGracePeriodExpiring",
        format!("All pods will be deleted by {text}"),
    )
    .deduped_by([name])
}

/// What a deleting NodeClaim needs next (D §8.7).
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimStep {
    /// These writes, then another look.
    Write(Plan),
    /// Node events will wake us.
    WaitForNodes,
    /// Ask the cloud to end the instance; with "not found" go on to `RemoveFinalizer`.
    TerminateInstance,
    /// Nothing is left.
    RemoveFinalizer,
}

/// The next step of a NodeClaim that is being deleted; `nodes` are those with its provider ID.
#[must_use]
pub fn claim_step(claim: &NodeClaim, nodes: &[Arc<Node>]) -> ClaimStep {
    if let Some(step) = write_deadline(claim) {
        return step;
    }
    if claim.is_true(REGISTERED) && !nodes.is_empty() {
        let deletes: Vec<Action> = nodes
            .iter()
            .filter(|node| node.metadata.deletion_timestamp.is_none())
            .map(|node| Action::delete(node_ref(node)))
            .collect();
        return if deletes.is_empty() {
            ClaimStep::WaitForNodes
        } else {
            ClaimStep::Write(Plan::writing(deletes))
        };
    }
    if claim.provider_id().is_some() {
        ClaimStep::TerminateInstance
    } else {
        ClaimStep::RemoveFinalizer
    }
}

/// D-301: deletion time + terminationGracePeriod.
fn own_deadline(claim: &NodeClaim) -> Option<Timestamp> {
    grace_ends(claim, claim.metadata.deletion_timestamp.as_ref()?.0)
}

/// When the terminationGracePeriod of a NodeClaim that is deleted then is over.
pub(crate) fn grace_ends(claim: &NodeClaim, deleted: Timestamp) -> Option<Timestamp> {
    let grace = claim.spec.termination_grace_period.as_ref()?;
    let deadline = deleted.saturating_add(grace.to_signed()).unwrap_or(deleted);
    Some(Timestamp::from_second(deadline.as_second()).unwrap_or(deadline))
}

/// The patch that gives a NodeClaim this deadline; `lock` as for [`Action::patch`].
pub(crate) fn set_deadline(claim: &NodeClaim, deadline: Timestamp, lock: bool) -> Option<Action> {
    let mut after = claim.clone();
    after
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_string());
    Action::patch(claim_ref(claim), Subresource::Main, claim, &after, lock)
}

/// D-301: the NodeClaim's own deadline, once.
fn write_deadline(claim: &NodeClaim) -> Option<ClaimStep> {
    if claim.annotation(labels::TERMINATION_TIMESTAMP).is_some() {
        return None;
    }
    let deadline = own_deadline(claim)?;
    let action = set_deadline(claim, deadline, true)?;
    Some(ClaimStep::Write(Plan {
        events: vec![deadline_event(claim_ref(claim), deadline)],
        ..Plan::writing(vec![action])
    }))
}

/// The patch that records that the cloud was asked to end the instance (D-314, D-348).
#[must_use]
pub fn instance_terminating(claim: &NodeClaim, now: Timestamp) -> Option<Action> {
    let mut after = claim.clone();
    after.set_true(INSTANCE_TERMINATING, now);
    Action::patch(claim_ref(claim), Subresource::Status, claim, &after, true)
}

/// The patch that lets a NodeClaim go.
#[must_use]
pub fn release_claim(claim: &NodeClaim) -> Option<Action> {
    let mut after = claim.clone();
    after
        .metadata
        .finalizers
        .as_mut()?
        .retain(|one| one != TERMINATION_FINALIZER);
    Action::patch(claim_ref(claim), Subresource::Main, claim, &after, true)
}

/// The patch that lets a Node go.
#[must_use]
pub fn release_node(node: &Node) -> Option<Action> {
    let mut after = node.clone();
    after
        .metadata
        .finalizers
        .as_mut()?
        .retain(|one| one != TERMINATION_FINALIZER);
    Action::patch(node_ref(node), Subresource::Main, node, &after, true)
}
