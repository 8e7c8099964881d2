//! Room that CapacityBuffers keep, as disruption sees it (D §9.3, W-06): each virtual pod counts as a pod of the node where provisioning would put it.
//!
//! So a node that holds room is not empty, what-ifs find that room anew elsewhere before they let the node go, and yet virtual pods cost nothing to
//! move. There is no second memory of where virtual pods are (D-370): it follows from the Snapshot, also after a restart.

use super::candidates::Candidate;
use super::ground::what_if_options;
use crate::policy::Policy;
use crate::provision::{displaced_from, displaced_pods, pending_pods};
use jiff::Timestamp;
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_schedule::{PackRequest, pack};
use std::collections::BTreeSet;

/// The Snapshot with virtual pods on nodes, and nodes kept for pods that wait; `None` when there are no virtual pods. Ids stay what they are. Virtual pods that need a new node stay
/// pending, and block nothing (D-373).
pub(super) fn settle(snapshot: &Snapshot, policy: &Policy, now: Timestamp) -> Option<Snapshot> {
    if !snapshot.classes.has_virtual() {
        return None;
    }
    let leaving =
        |node: &NodeId| snapshot.node(*node).in_command && !snapshot.node(*node).marked_for_deletion;
    let without_nodes: BTreeSet<NodeId> = snapshot.node_ids().filter(leaving).collect();
    let moving = without_nodes
        .iter()
        .flat_map(|node| displaced_from(snapshot, snapshot.node(*node), now));
    let pods: BTreeSet<PodId> = pending_pods(snapshot)
        .0
        .into_iter()
        .chain(displaced_pods(snapshot, now))
        .chain(moving)
        .collect();
    let request = PackRequest {
        pods: pods.into_iter().collect(),
        without_nodes,
    };
    let packing = pack(snapshot, &request, &what_if_options(policy));
    let mut settled = snapshot.clone();
    for (node, pods) in &packing.placements.existing {
        for pod in pods {
            if snapshot.pod(*pod).is_virtual {
                bind(&mut settled, *node, *pod);
            } else {
                // Provisioning is about to nominate it (D-027). Room has no nomination, so that it would be sought on the next node, and this one
                // be taken for empty.
                settled.nodes[node.index()].nominated_until = Some(Timestamp::MAX);
            }
        }
    }
    Some(settled)
}

fn bind(snapshot: &mut Snapshot, node: NodeId, pod: PodId) {
    let view = &mut snapshot.pods[pod.index()];
    view.node = Some(node);
    view.provisionable = false;
    let request = view.request;
    let node = &mut snapshot.nodes[node.index()];
    node.requested.add(&snapshot.requests[request.index()]);
    if let Err(position) = node.pods.binary_search(&pod) {
        node.pods.insert(position, pod);
    }
}

/// Whether room would have to be found elsewhere.
pub(super) fn holds(snapshot: &Snapshot, candidate: &Candidate) -> bool {
    let is_virtual = |pod: &PodId| snapshot.pod(*pod).is_virtual;
    snapshot.classes.has_virtual() && candidate.moving(snapshot).iter().any(is_virtual)
}
