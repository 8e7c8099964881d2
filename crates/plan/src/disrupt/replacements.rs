//! Until when nodes that have come for the pods of a command are kept for them.
//!
//! Owns that instant. Which nodes they are, and that they are not taken until then, is said by whoever makes the Snapshot.

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};

/// How long replacements are kept for pods of nodes that drain.
const KEPT_WHILE_DRAINING: SignedDuration = SignedDuration::from_mins(10);

/// Until when the replacements of a command are kept for the pods of its nodes: for as long as it waits for them, and for a while once its nodes drain. A drain
/// that hangs longer makes its pods wait, but does not keep an empty node from going, or a drifted one from being replaced.
#[must_use]
pub fn kept_until(command: &Disruption) -> Timestamp {
    let status = command.status.as_ref();
    let deleted = status.and_then(|status| status.deleted_at.as_ref());
    let deleted = deleted.filter(|_| command.phase() == DisruptionPhase::Draining);
    let until = deleted.and_then(|deleted| deleted.0.checked_add(KEPT_WHILE_DRAINING).ok());
    until.unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A drain that hangs keeps no empty replacement from going.
    #[test]
    fn replacements_are_kept_while_they_are_waited_for_and_ten_minutes_into_a_drain() {
        let command = |status| {
            let object = json!({
                "apiVersion": "spokeshave.dev/v1alpha1", "kind": "Disruption", "metadata": {"name": "d"},
                "spec": {
                    "method": "SingleNodeConsolidation", "reason": "Underutilized", "decision": "Replace",
                    "decidedAt": "2026-03-02T00:00:00.000000Z", "nodes": [], "priceBefore": "2", "priceAfter": "1",
                    "savings": "1", "evictions": 0, "nodeSummary": "", "replacementSummary": "",
                },
                "status": status,
            });
            serde_json::from_value::<Disruption>(object).unwrap()
        };
        let until = |status| kept_until(&command(status));
        let deleted = "2026-03-02T01:00:00.000000Z";
        assert_eq!(until(json!({"phase": "Replacing"})), Timestamp::MAX);
        assert_eq!(
            until(json!({"phase": "Deleting", "deletedAt": deleted})),
            Timestamp::MAX
        );
        assert_eq!(
            until(json!({"phase": "Draining", "deletedAt": deleted})),
            "2026-03-02T01:10:00Z".parse().unwrap()
        );
    }
}
