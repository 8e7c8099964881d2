//! Whether NodePools still have room under their limits for the replacements of a command, right before these are made (invariant 15).
//!
//! Commands that are decided at once do not see each other, and a machine can turn out larger than the smallest of its types.

use std::sync::Arc;

use spokeshave_api::NodeClaim;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::snapshot::Snapshot;

use super::revocable;
use crate::provision::limit_exceeded;

/// Why the replacements that are still missing would bring a NodePool above a limit; `None` when they do not. `there` says of each replacement whether
/// it exists. In the Snapshot they count already, as stand-ins of the largest size that they may have ([`crate::in_flight`]), and so do those of others.
/// `claim` finds a NodeClaim by its name.
pub fn beyond_limits(
    disruption: &Disruption,
    there: &[bool],
    snapshot: &Snapshot,
    claim: impl Fn(&str) -> Option<Arc<NodeClaim>>,
) -> Option<String> {
    // Its own nodes stay no longer than it takes to make these.
    let own = revocable(disruption, claim).unwrap_or_default();
    let replacements = disruption.spec.replacements.iter().zip(there);
    let mut missing = replacements.filter(|(_, there)| !**there);
    missing.find_map(|(replacement, _)| {
        let pool = snapshot.find_pool(&replacement.node_pool)?;
        let view = snapshot.pool(pool);
        let exceeded = limit_exceeded(&view.object, &snapshot.usage_if_it_stands(pool, &own))?;
        Some(format!(
            "NodePool {} has no room for its replacements: {exceeded}",
            view.name
        ))
    })
}
