//! The marks of a Command on its nodes, and cleaning up after commands that are no more (D §3.2, §3.6). `advance` carries commands out.
//!
//! Each function returns the writes for what is there and nothing when there is nothing left to write, so that repeating one is harmless.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, DISRUPTION_REASON, Status};
use spokeshave_api::labels::disrupted_taint;
use spokeshave_model::snapshot::{NodeView, Snapshot};
use spokeshave_model::taint::same_taint;
use spokeshave_model::{Action, ObjectKind, ObjectRef, Subresource};

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

/// Adds or removes the disrupted taint, by key and effect, with an optimistic lock because the list is replaced whole.
pub(super) fn taint_patch(node: &Node, present: bool) -> Option<Action> {
    let wanted = disrupted_taint();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let mut taints = taints.unwrap_or_default().iter();
    // Every pass asks for every node: the copy is made only where something is to be written.
    if taints.any(|taint| same_taint(taint, &wanted)) == present {
        return None;
    }
    let mut after = node.clone();
    let taints = after.spec.get_or_insert_default().taints.get_or_insert_default();
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
    if reason.is_none() && claim.condition(DISRUPTION_REASON).is_none() {
        return None;
    }
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
