//! The last look at a command, right before its nodes are deleted: may their pods still be evicted (invariant 1), and do they have places (invariant 8)?
//!
//! Between the second look and the deletion, pods of others come, and PodDisruptionBudgets: while replacements start, or behind a watch that stood still. Who
//! asks has made sure that the Snapshot knows the pods of the nodes that are to take some. It decides nothing anew: what is cheaper has been judged before.

use super::advance::{Present, WaitsFor};
use super::ground::what_if_options;
use super::simulate::WhatIf;
use crate::policy::Policy;
use jiff::Timestamp;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::snapshot::{NodeId, NodeView, PodId, Snapshot};
use std::collections::BTreeSet;

/// What a last look finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastLook {
    /// Every pod has a place on a node that is there.
    Placed,
    /// Another command takes a destination away, and has found places for these pods, too; but its nodes have not come yet.
    NotYet,
    /// Why the pods have no places any more.
    Lost(String),
    /// Why a node would not be chosen now: no PodDisruptionBudget ever lets one of its pods go.
    Guarded(String),
}

impl Present {
    /// Takes in what a last look has found.
    pub fn look_finds(&mut self, found: LastLook) {
        match found {
            LastLook::Placed => {}
            LastLook::NotYet => self.waits_for = Some(WaitsFor::Places),
            LastLook::Lost(why) => self.crowded = Some(why),
            LastLook::Guarded(why) => self.guarded = Some(why),
        }
    }
}

/// Whether the pods of a command's nodes still have places: none may need a node that is not there yet.
pub fn last_look(disruption: &Disruption, snapshot: &Snapshot, policy: &Policy, now: Timestamp) -> LastLook {
    last_look_in(disruption, &mut snapshot.clone(), policy, now)
}

/// The same on a Snapshot that need not be copied: it is what it was when this returns.
pub fn last_look_in(
    disruption: &Disruption,
    snapshot: &mut Snapshot,
    policy: &Policy,
    now: Timestamp,
) -> LastLook {
    let nodes = disruption.spec.nodes.iter();
    let own: BTreeSet<&str> = nodes.map(|node| node.provider_id.as_str()).collect();
    let before = stand(snapshot, &own);
    let found = look(disruption, &own, snapshot, policy, now);
    for (node, in_command, marked_for_deletion) in before {
        let view = &mut snapshot.nodes[node];
        (view.in_command, view.marked_for_deletion) = (in_command, marked_for_deletion);
    }
    found
}

/// Looks at a Snapshot in which the command's nodes stand.
fn look(
    disruption: &Disruption,
    own: &BTreeSet<&str>,
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
) -> LastLook {
    let taken = snapshot.nodes.iter().any(|view| {
        view.in_command
            && disruption
                .spec
                .destinations
                .iter()
                .any(|name| view.node_name() == Some(name.as_str()))
    });
    let is_own = |node: &NodeId| own.contains(snapshot.node(*node).provider_id.as_str());
    let nodes: Vec<NodeId> = snapshot
        .node_ids()
        .filter(|node| is_own(node) && !snapshot.node(*node).marked_for_deletion)
        .collect();
    if let Some(why) = kept_for_good(disruption, snapshot, &nodes, now) {
        return LastLook::Guarded(why);
    }
    if disruption.spec.method.is_static() {
        // It places no pods.
        return LastLook::Placed;
    }
    let pods: Vec<PodId> = nodes
        .iter()
        .flat_map(|node| snapshot.node(*node).pods.iter().copied())
        .filter(|pod| snapshot.is_currently_reschedulable(*pod, now))
        .collect();
    if pods.is_empty() {
        return LastLook::Placed;
    }
    let options = what_if_options(policy);
    let mut what_if = WhatIf::as_it_is(snapshot, &options);
    let lost = what_if.without(&nodes, &pods, |moved| match moved.claim_count() {
        0 if moved.unplaced.is_empty() => None,
        0 => Some(format!("its pods have no place any more: {}", moved.refusal())),
        _ => Some("its pods would need another node now: others have taken their places".to_owned()),
    });
    let replacements = replacement_nodes(disruption, snapshot);
    match lost {
        None => LastLook::Placed,
        Some(_) if !replacements.is_empty() && what_if.has_places_with_last(&nodes, &pods, &replacements) => {
            LastLook::Placed
        }
        Some(_) if taken => LastLook::NotYet,
        Some(why) => LastLook::Lost(why),
    }
}

/// The nodes that have come for the command.
fn replacement_nodes(disruption: &Disruption, snapshot: &Snapshot) -> Vec<NodeId> {
    let replacements = disruption.spec.replacements.iter();
    let claims: BTreeSet<&str> = replacements.map(|one| one.node_claim.as_str()).collect();
    let is_one = |node: &NodeId| {
        let claim = snapshot.node(*node).claim_name();
        claim.is_some_and(|claim| claims.contains(claim))
    };
    snapshot.node_ids().filter(is_one).collect()
}

/// A pod that no PodDisruptionBudget ever lets go, on a node that would not be chosen now because of it: the pod was bound behind a watch that stood still, or the
/// budget came later. With a terminationGracePeriod it would be deleted against its budget. Drift of such a NodeClaim goes on all the same (D-029).
fn kept_for_good(
    disruption: &Disruption,
    snapshot: &Snapshot,
    nodes: &[NodeId],
    now: Timestamp,
) -> Option<String> {
    let is_drift = disruption.spec.method.is_drift();
    let may_force = |node: &NodeView| {
        let claim = node.claim.as_ref();
        is_drift && claim.is_some_and(|claim| claim.spec.termination_grace_period.is_some())
    };
    let judged = nodes
        .iter()
        .map(|node| snapshot.node(*node))
        .filter(|node| !may_force(node));
    let mut pods = judged.flat_map(|node| node.pods.iter().map(move |pod| (node, *pod)));
    let (node, pod) = pods.find(|(_, pod)| {
        let is_protected = snapshot.pod(*pod).do_not_disrupt().is_active(now);
        snapshot.pod(*pod).reschedulable && !is_protected && !snapshot.is_currently_reschedulable(*pod, now)
    })?;
    let budgets = snapshot
        .pod(pod)
        .budgets()
        .iter()
        .map(|budget| &snapshot.budgets[budget.index()]);
    let budgets: Vec<String> = budgets
        .map(|budget| format!("{}/{}", budget.namespace, budget.name))
        .collect();
    Some(format!(
        "no eviction of pod {} on node {} is allowed (PodDisruptionBudget {})",
        snapshot.pod(pod).key(),
        node.node_name().unwrap_or_default(),
        budgets.join(", ")
    ))
}

/// Lets these nodes stand as if they were in no command, and says what they were. Those that go already, because their NodeClaims were deleted, go here, too.
fn stand(snapshot: &mut Snapshot, own: &BTreeSet<&str>) -> Vec<(usize, bool, bool)> {
    let mut before = Vec::new();
    for (index, view) in snapshot.nodes.iter_mut().enumerate() {
        if own.contains(view.provider_id.as_str()) {
            before.push((index, view.in_command, view.marked_for_deletion));
            let goes = view.claim.as_ref().is_none_or(|claim| claim.is_deleting());
            view.in_command = false;
            view.marked_for_deletion &= goes;
        }
    }
    before
}
