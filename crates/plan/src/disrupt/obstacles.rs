//! What takes a command under way back while its nodes can still stay: what has come in between since it was decided (invariants 6, 7 and 8).
//!
//! It looks at what is there and says why in words. Which phase asks, and what follows, is up to `advance`.

use super::advance::{Present, PresentNode};
use super::record::is_protected;
use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned, DRIFTED, Status};
use spokeshave_api::disruption::{DisruptedNode, Disruption, DisruptionPhase, RollBackCause};
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::state_node::{is_cordoned, is_node_ready};
use spokeshave_model::{Pod, pod};
use std::sync::Arc;

/// Why nodes of a command should not go any more, in any phase before they are deleted.
pub(super) fn unwanted(
    disruption: &Disruption,
    present: &Present,
    now: Timestamp,
) -> Option<(RollBackCause, String)> {
    protection(disruption, present, now)
        .map(because(RollBackCause::Protected))
        .or_else(|| reverted(disruption, present).map(because(RollBackCause::NotDrifted)))
}

/// Why nodes that are about to be deleted have to stay. What reached a node between the second look and its taint keeps it (invariants 6 and 7), and so
/// does the loss of a place that its pods were to have, to other pods or with its node (invariant 8).
pub(super) fn before_deletion(
    disruption: &Disruption,
    present: &Present,
    now: Timestamp,
) -> Option<(RollBackCause, String)> {
    unwanted(disruption, present, now)
        .or_else(|| present.guarded.clone().map(because(RollBackCause::Protected)))
        .or_else(|| newcomer(disruption, present).map(because(RollBackCause::PodBound)))
        .or_else(|| lost_destination(present).map(because(RollBackCause::PlaceLost)))
        .or_else(|| present.crowded.clone().map(because(RollBackCause::PlaceLost)))
}

fn because(cause: RollBackCause) -> impl FnOnce(String) -> (RollBackCause, String) {
    move |why| (cause, why)
}

/// Whether a node of the command may not go any more: annotated by hand, or a pod on it, since it was decided. Drift of a NodeClaim with a
/// terminationGracePeriod goes on all the same (D-029).
fn protection(disruption: &Disruption, present: &Present, now: Timestamp) -> Option<String> {
    let of = |(spec, node): (&DisruptedNode, &PresentNode)| {
        let claim = node.live()?;
        let annotations = node.node.as_ref()?.metadata.annotations.as_ref();
        if annotations
            .and_then(|all| all.get(labels::DO_NOT_DISRUPT))
            .is_some_and(|value| value == "true")
        {
            return Some(format!(
                "node {} is annotated {}",
                spec.name,
                labels::DO_NOT_DISRUPT
            ));
        }
        if disruption.spec.method.is_drift() && claim.spec.termination_grace_period.is_some() {
            return None;
        }
        let pod = node.pods.iter().find(|pod| is_protected(pod, now))?;
        let pod = pod::key(pod);
        Some(format!(
            "pod {pod} on node {} is annotated {}",
            spec.name,
            labels::DO_NOT_DISRUPT
        ))
    };
    let frozen = present.frozen.clone().filter(|_| !is_begun(disruption, present));
    frozen.or_else(|| disruption.spec.nodes.iter().zip(&present.nodes).find_map(of))
}

/// What has deleted a node goes on to its end, so that no command is left half done.
fn is_begun(disruption: &Disruption, present: &Present) -> bool {
    disruption.phase() == DisruptionPhase::Deleting && present.nodes.iter().any(|node| !node.is_live())
}

/// A drifted node that is what is asked for again, because the change was taken back: its replacement is what was asked for in between. A condition that
/// is Unknown says nothing.
fn reverted(disruption: &Disruption, present: &Present) -> Option<String> {
    if !disruption.spec.method.is_drift() || is_begun(disruption, present) {
        return None;
    }
    let is_back = |claim: &Arc<NodeClaim>| {
        let condition = claim.condition(DRIFTED);
        condition.is_none_or(|drifted| drifted.status == Status::False.as_str())
    };
    let mut nodes = disruption.spec.nodes.iter().zip(&present.nodes);
    let (spec, _) = nodes.find(|(_, node)| node.live().is_some_and(is_back))?;
    Some(format!("node {} is not drifted any more", spec.name))
}

/// A pod that nobody found a place for: bound to a node that was empty, or bound since the command was decided.
fn newcomer(disruption: &Disruption, present: &Present) -> Option<String> {
    if disruption.spec.method.is_static() {
        // It places no pods.
        return None;
    }
    let decided = disruption.spec.decided_at.0;
    let of = |(spec, node): (&DisruptedNode, &PresentNode)| {
        node.live()?;
        let known = usize::try_from(spec.pods).unwrap_or(0);
        let here = || node.pods.iter().filter(|pod| pod::is_reschedulable(pod));
        let more = here().count() > known;
        let is_new = |pod: &&Arc<Pod>| {
            // Pods tell the time of their binding in whole seconds: in the second of the decision their number has to speak, too.
            let bound = bound_at(pod).map_or(decided.as_second(), Timestamp::as_second);
            let late = bound > decided.as_second() || (bound == decided.as_second() && more);
            !pod::tolerates_disrupted_taint(pod) && (known == 0 || late)
        };
        let pod = pod::key(here().find(is_new)?);
        Some(format!(
            "pod {pod} was bound to node {} after it was decided",
            spec.name
        ))
    };
    disruption.spec.nodes.iter().zip(&present.nodes).find_map(of)
}

/// Invariant 8: a node that was to take pods, and will not.
pub(super) fn lost_destination(present: &Present) -> Option<String> {
    present.destinations.iter().find_map(|(name, node)| {
        let why = match node {
            None => "is gone",
            Some(node) if node.metadata.deletion_timestamp.is_some() => "is going itself",
            Some(node) if is_cordoned(node) => "is cordoned",
            Some(node) if !is_node_ready(node) => "is not ready",
            Some(_) => return None,
        };
        Some(format!("node {name}, which was to take pods, {why}"))
    })
}

/// When a pod was bound: its condition says so, or it came with the name of a node.
fn bound_at(pod: &Pod) -> Option<Timestamp> {
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    pod::true_since(pod, "PodScheduled").or_else(created)
}
