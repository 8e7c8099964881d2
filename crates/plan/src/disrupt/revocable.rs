//! Commands that may yet be taken back, as they count against the limits of NodePools (invariant 15).
//!
//! It says which nodes such a command would leave or bring; what they add up to is the Snapshot's affair.

use std::sync::Arc;

use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, INITIALIZED};
use spokeshave_api::disruption::{Disruption, DisruptionPhase, Replacement};
use spokeshave_model::Revocable;

use crate::in_flight::stand_in_id;

/// What counts of a command, decided or under way, until the deletion of its nodes is asked for: up to then it can be rolled back, and they stay. `None`
/// once that is past. `claim` finds a NodeClaim by its name.
///
/// Replacements that are initialised stay either way, so that they are not among what would come: they count as every node does.
pub fn revocable(command: &Disruption, claim: impl Fn(&str) -> Option<Arc<NodeClaim>>) -> Option<Revocable> {
    let phase = command.phase();
    let starts = phase == DisruptionPhase::Starting;
    if !starts && !matches!(phase, DisruptionPhase::Replacing | DisruptionPhase::Deleting) {
        return None;
    }
    let stays =
        |name: &str, uid: &str| claim(name).is_some_and(|claim| claim.uid() == uid && !claim.is_deleting());
    let leaves = command
        .spec
        .nodes
        .iter()
        .filter(|node| stays(&node.node_claim, &node.node_claim_uid))
        .map(|node| node.provider_id.clone());
    let comes = |replacement: &Replacement| match claim(&replacement.node_claim) {
        Some(claim) if claim.is_true(INITIALIZED) || claim.is_deleting() => None,
        Some(claim) => Some(match claim.provider_id() {
            Some(id) => id.to_owned(),
            None => stand_in_id(claim.uid()),
        }),
        None => starts.then(|| stand_in_id(&replacement.node_claim)),
    };
    Some(Revocable {
        leaves: leaves.collect(),
        comes: command.spec.replacements.iter().filter_map(comes).collect(),
    })
}
