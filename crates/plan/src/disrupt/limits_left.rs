//! Whether NodePools still have room under their limits for the replacements of a command, right before these are made (invariant 15).
//!
//! A command is decided as if the nodes of others under way were gone. When one of these is rolled back its nodes stay, and what was free is not.

use spokeshave_api::disruption::Disruption;
use spokeshave_model::snapshot::Snapshot;

use crate::provision::limit_exceeded;

/// Why the replacements that are still missing would bring a NodePool above a limit; `None` when they do not. `there` says of each replacement whether
/// it exists. In the Snapshot they count already, as stand-ins of the largest size that they may have ([`crate::in_flight`]), and so do those of others.
pub fn beyond_limits(disruption: &Disruption, there: &[bool], snapshot: &Snapshot) -> Option<String> {
    let replacements = disruption.spec.replacements.iter().zip(there);
    let mut missing = replacements.filter(|(_, there)| !**there);
    missing.find_map(|(replacement, _)| {
        let view = snapshot.pool(snapshot.find_pool(&replacement.node_pool)?);
        let exceeded = limit_exceeded(&view.object, &view.usage)?;
        Some(format!(
            "NodePool {} has no room for its replacements: {exceeded}",
            view.name
        ))
    })
}
