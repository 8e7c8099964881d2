//! A wave of a roll-out: how many nodes it may take, and which it has taken.
//!
//! Owns which commands count for a wave, those of the ledger and those that are not in it yet. When a wave begins and ends is the roll-out's.

use super::budget::amount;
use super::memo::moving;
use super::rules::Scene;
use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED};
use spokeshave_api::disruption::{DisruptedNode, Disruption};
use spokeshave_api::disruption_policy::Rollout;
use spokeshave_api::{DisruptionPolicy, DisruptionReason};
use spokeshave_model::snapshot::{NodeId, NodeView, Snapshot};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Waves are doubled so many times at most.
const MOST_DOUBLINGS: i64 = 20;

/// The nodes that a wave may take, by its number from 1.
pub(super) fn size(rollout: &Rollout, wave: i64, nodes: i64) -> i64 {
    let canary = rollout.canary.unwrap_or(1).max(1);
    let later = wave - 2;
    if later < 0 {
        return canary;
    }
    let written = rollout.waves.len().checked_sub(1).map(|last| {
        let index = usize::try_from(later).unwrap_or(usize::MAX).min(last);
        // What cannot be read is a fault, which stops all of it.
        amount(&rollout.waves[index], nodes, 1).unwrap_or(0).max(1)
    });
    written.unwrap_or_else(|| {
        let doublings = u32::try_from((wave - 1).min(MOST_DOUBLINGS)).unwrap_or(0);
        canary.saturating_mul(1_i64.checked_shl(doublings).unwrap_or(i64::MAX))
    })
}

/// Commands for drift of a NodePool that were decided since a time and were not taken back, with its nodes among theirs.
pub(super) struct Taken<'a> {
    pub(super) nodes: Vec<&'a DisruptedNode>,
    pub(super) is_under_way: bool,
    /// One of them brings a node, of this NodePool or another.
    pub(super) has_launched: bool,
    pub(super) finished: Option<Timestamp>,
}

/// What was taken of a NodePool since a time. `own` are the nodes that are judged, by provider ID.
pub(super) fn taken<'a>(
    snapshot: &'a Snapshot,
    pool: &str,
    since: Timestamp,
    own: &BTreeSet<&str>,
) -> Taken<'a> {
    let mut taken = Taken {
        nodes: Vec::new(),
        is_under_way: false,
        has_launched: false,
        finished: None,
    };
    let counts = |one: &Disruption| {
        one.spec.reason == DisruptionReason::Drifted && one.spec.decided_at.0 >= since && one.is_counted()
    };
    for one in snapshot.disruptions.iter().filter(|one| counts(one)) {
        let nodes = one.spec.nodes.iter();
        let before = taken.nodes.len();
        taken
            .nodes
            .extend(nodes.filter(|node| node.node_pool == pool && !own.contains(node.provider_id.as_str())));
        if taken.nodes.len() > before {
            taken.is_under_way |= !one.is_finished();
            taken.has_launched |= !one.spec.replacements.is_empty();
            let finished = one.status.as_ref().and_then(|status| status.finished_at.as_ref());
            taken.finished = taken.finished.max(finished.map(|time| time.0));
        }
    }
    taken
}

/// Whether a command counts for the present wave of some roll-out: the ledger keeps it for as long as that lasts (invariant 25).
pub(super) fn is_of_wave(one: &Disruption, policies: &[Arc<DisruptionPolicy>], now: Timestamp) -> bool {
    if one.spec.reason != DisruptionReason::Drifted {
        return false;
    }
    let statuses = policies.iter().filter_map(|policy| policy.status.as_ref());
    let mut rollouts = statuses.flat_map(|status| &status.rollouts);
    rollouts.any(|rollout| {
        // By a clock that was set back, the wave counts what was decided since now, as soon as its status is written again.
        one.spec.decided_at.0 >= rollout.wave_since.0.min(now)
            && one
                .spec
                .nodes
                .iter()
                .any(|node| node.node_pool == rollout.node_pool)
    })
}

/// Nodes of commands that are not in the ledger, where these may be for drift. Those that are stand there from their decision on, also in a shadow, which writes
/// none; what waits for its second look is of another reason, and counts on doubt until the status says what a wave has taken. For certain it takes nothing
/// of one where its nodes have not drifted, or are empty, which emptiness takes first.
pub(super) fn unwritten(scene: &Scene<'_>, pool: u32, written: &[&DisruptedNode]) -> usize {
    let pools = scene.memo.pools();
    let is_pending = |node: &NodeId| {
        if pools.domain(*node) != pool {
            return false;
        }
        let view = scene.snapshot.node(*node);
        let id = view.provider_id.as_str();
        view.in_command
            && may_be_for_drift(scene.snapshot, view)
            && !scene.own.contains(id)
            && !scene
                .snapshot
                .disruptions
                .iter()
                .any(|one| one.spec.nodes.iter().any(|node| node.provider_id == id))
            && !written.iter().any(|node| node.provider_id == id)
    };
    scene.snapshot.node_ids().filter(is_pending).count()
}

/// Whether a node that is in some command may be so because it has drifted. On doubt it may.
fn may_be_for_drift(snapshot: &Snapshot, node: &NodeView) -> bool {
    let has_drifted = node.claim.as_ref().is_some_and(|claim| claim.is_true(DRIFTED));
    has_drifted && (!node.consolidatable || moving(snapshot, node) > 0)
}
