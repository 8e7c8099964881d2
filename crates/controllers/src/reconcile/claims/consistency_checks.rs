//! Whether nodes have what was promised of them, looked at every ten minutes (P-173).
//!
//! Owns the period, and what is told. What counts as too little is decided in `plan::consistency`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_api::constants::CONSISTENCY_PERIOD;
use spokeshave_plan::consistency;
use spokeshave_runtime::ReconcileError;

use super::Claims;

impl Claims {
    /// P-173: every ten minutes. Returns the time to the next check.
    pub(super) async fn check_consistency(
        &self,
        claim: &NodeClaim,
        nodes: &[Arc<Node>],
        now: Timestamp,
    ) -> Result<Option<Duration>, ReconcileError> {
        let [node] = nodes else { return Ok(None) };
        if !consistency::applies(claim) {
            return Ok(None);
        }
        let last = self.checked.get(claim);
        let passed = last.map(|last| Duration::try_from(now.duration_since(last)).unwrap_or_default());
        if let Some(passed) = passed.filter(|passed| *passed < CONSISTENCY_PERIOD) {
            return Ok(Some(CONSISTENCY_PERIOD - passed));
        }
        let (action, events) = consistency::check(claim, node, now);
        for event in &events {
            tracing::error!(
                NodeClaim = claim.name(),
                error = event.message,
                "consistency error"
            );
            self.hands.tell(event);
        }
        if let Some(action) = action
            && !self.write(&[action]).await?
        {
            // The news of the claim brings the next look; this is for news that do not come.
            return Ok(Some(Duration::from_secs(10)));
        }
        self.checked.insert(claim, now);
        Ok(Some(CONSISTENCY_PERIOD))
    }
}
