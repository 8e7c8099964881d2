//! Emptiness: nodes without pods that matter go, as many at once as budgets allow (D §4.2).

use super::candidates::{Candidate, capitalised};
use super::command::{Command, CommandNode, Method, Move};
use super::cost;
use super::hurdle::{Hurdle, Lifted, Stop};
use super::simulate::Moved;
use spokeshave_api::ConsolidationPolicy;
use spokeshave_model::Price;
use spokeshave_model::snapshot::Snapshot;
use std::sync::Arc;

/// D-127: whether a candidate is to be deleted as empty, as if the lifted hurdles were not there.
pub(super) fn empty(snapshot: &Snapshot, candidate: &Candidate, lifted: &Lifted) -> Result<(), Stop> {
    let pool = snapshot.pool(candidate.pool);
    let disruption = &pool.object.spec.disruption;
    let stands = |hurdle: Hurdle| !lifted.contains(&hurdle);
    if pool.is_static {
        return Err(Hurdle::StaticPool.into());
    }
    if disruption.consolidate_after.is_never() && stands(Hurdle::ConsolidationDisabled) {
        let text = format!("NodePool {:?} has consolidation disabled", pool.name);
        return Err(Stop::new(Hurdle::ConsolidationDisabled, text));
    }
    if !cost::is_empty(candidate) {
        return Err(Hurdle::NotApplicable.into());
    }
    if matches!(disruption.consolidation_policy, ConsolidationPolicy::Other(_)) && stands(Hurdle::Policy) {
        let text = format!(
            "NodePool {:?} has consolidation policy {}, which this version does not know",
            pool.name, disruption.consolidation_policy
        );
        return Err(Stop::new(Hurdle::Policy, text));
    }
    if !snapshot.node(candidate.node).consolidatable && stands(Hurdle::ConsolidateAfter) {
        return Err(Hurdle::ConsolidateAfter.into());
    }
    Ok(())
}

/// W-36: pods that are not worth keeping the node for still need a place on the nodes that stay.
pub(super) fn places(moved: &mut Moved<'_, '_>, lifted: &Lifted) -> Result<(), Stop> {
    if let Some(pod) = moved.unplaced.first().copied() {
        return Err(Stop::new(Hurdle::Pod(pod), capitalised(&moved.refusal())));
    }
    if moved.claim_count() > 0 && !lifted.contains(&Hurdle::TooManyReplacements) {
        let text = "Can't remove without a new node for its pods";
        return Err(Stop::new(Hurdle::TooManyReplacements, text));
    }
    Ok(())
}

/// These nodes at once, and where their pods go.
pub(super) fn command(snapshot: &Snapshot, taken: &[&Candidate], moves: Vec<Move>) -> Command {
    Command {
        method: Method::Emptiness,
        nodes: taken
            .iter()
            .map(|candidate| CommandNode::of(snapshot, candidate.node))
            .collect(),
        replacements: Vec::new(),
        moves: Arc::new(moves),
        price_before: taken.iter().map(|candidate| candidate.price).sum(),
        price_after: Price::ZERO,
    }
}
