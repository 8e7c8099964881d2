//! A Command as writes: taint and mark its candidates, delete them, and clean up after commands that are no more (D §3.2, §3.5, §3.6).
//!
//! Each function returns the writes for the present Snapshot and nothing when there is nothing left to write, so that repeating one is harmless.

use super::candidates::objects;
use super::command::{Command, CommandNode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, DISRUPTION_REASON, Status};
use spokeshave_api::labels::disrupted_taint;
use spokeshave_model::snapshot::{NodeId, NodeView, Snapshot};
use spokeshave_model::taint::same_taint;
use spokeshave_model::{Action, Event, EventType, ObjectKind, ObjectRef, Subresource};

/// D-099, D-100: the disrupted taint on each candidate's Node, then the condition DisruptionReason on its NodeClaim. Candidates that are not in the
/// Snapshot any more are left out.
pub fn mark_actions(snapshot: &Snapshot, command: &Command, now: Timestamp) -> Vec<Action> {
    let reason = command.method.reason().to_string();
    let views = || {
        command
            .nodes
            .iter()
            .filter_map(|node| find(snapshot, node))
            .map(|node| snapshot.node(node))
    };
    let taints = views().filter_map(|view| taint_patch(view.node.as_ref()?, true));
    let conditions = views().filter_map(|view| condition_patch(view.claim.as_ref()?, Some(&reason), now));
    taints.chain(conditions).collect()
}

/// D-111: deletes the candidates' NodeClaims; the termination controllers do the rest.
pub fn delete_actions(command: &Command) -> Vec<Action> {
    let claim = |node: &CommandNode| {
        ObjectRef::cluster(ObjectKind::NodeClaim, &node.node_claim, &node.node_claim_uid)
    };
    command
        .nodes
        .iter()
        .map(|node| Action::delete(claim(node)))
        .collect()
}

/// D-112: `Disrupting Node: <Reason>` and `Disrupting NodeClaim: <Reason>` for each candidate that is deleted.
pub fn terminating_events(snapshot: &Snapshot, command: &Command) -> Vec<Event> {
    let reason = command.method.reason().to_string();
    let event = |object: ObjectRef| {
        let kind = if object.kind == ObjectKind::Node {
            "Node"
        } else {
            "NodeClaim"
        };
        let values = [object.uid.clone(), reason.clone()];
        Event::new(
            object,
            EventType::Normal,
            "DisruptionTerminating",
            format!("Disrupting {kind}: {reason}"),
        )
        .deduped_by(values)
    };
    command
        .nodes
        .iter()
        .filter_map(|node| find(snapshot, node))
        .flat_map(|node| objects(snapshot, node))
        .map(event)
        .collect()
}

/// D-070, D-071: takes the taint off managed Nodes that are neither in a command nor on their way out, and clears DisruptionReason on the NodeClaims of
/// initialised ones. Nodes with a deletion timestamp are left alone.
pub fn cleanup_actions(snapshot: &Snapshot, now: Timestamp) -> Vec<Action> {
    let stale = |view: &&NodeView| view.is_managed() && !view.in_command && !view.marked_for_deletion;
    let deleting = |view: &NodeView| {
        view.node
            .as_ref()
            .is_some_and(|node| node.metadata.deletion_timestamp.is_some())
    };
    let views = || snapshot.nodes.iter().filter(stale);
    let taints = views()
        .filter(|view| !deleting(view))
        .filter_map(|view| taint_patch(view.node.as_ref()?, false));
    let conditions = views()
        .filter(|view| view.initialized)
        .filter_map(|view| condition_patch(view.claim.as_ref()?, None, now));
    taints.chain(conditions).collect()
}

fn find(snapshot: &Snapshot, node: &CommandNode) -> Option<NodeId> {
    snapshot
        .nodes
        .iter()
        .position(|view| view.provider_id == node.provider_id)
        .map(NodeId::from)
}

/// Adds or removes the disrupted taint, by key and effect, with an optimistic lock because the list is replaced whole.
pub(super) fn taint_patch(node: &Node, present: bool) -> Option<Action> {
    let wanted = disrupted_taint();
    let mut after = node.clone();
    let taints = after.spec.get_or_insert_default().taints.get_or_insert_default();
    let there = taints.iter().any(|taint| same_taint(taint, &wanted));
    if there == present {
        return None;
    }
    if present {
        taints.push(wanted);
    } else {
        taints.retain(|taint| !same_taint(taint, &wanted));
    }
    let target = ObjectRef::cluster(
        ObjectKind::Node,
        node.metadata.name.as_deref()?,
        node.metadata.uid.as_deref().unwrap_or(""),
    );
    Action::patch(target, Subresource::Main, node, &after, true)
}

/// Sets or clears DisruptionReason on a NodeClaim.
pub(super) fn condition_patch(claim: &NodeClaim, reason: Option<&str>, now: Timestamp) -> Option<Action> {
    let mut after = claim.clone();
    let changed = match reason {
        Some(reason) => after.set(DISRUPTION_REASON, Status::True, reason, reason, now),
        None => after.clear(DISRUPTION_REASON),
    };
    let target = ObjectRef::cluster(ObjectKind::NodeClaim, claim.name(), claim.uid());
    if changed {
        Action::patch(target, Subresource::Status, claim, &after, true)
    } else {
        None
    }
}
