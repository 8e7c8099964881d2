//! What a launch costs, which is written onto its NodeClaim with the labels of its instance: the catalogue of tomorrow may not know it (W-07).
//!
//! Owns for how long the price is waited for. What is written is decided in `plan::lifecycle`.

use std::time::Duration;

use spokeshave_api::NodeClaim;
use spokeshave_model::Price;
use spokeshave_plan::lifecycle;

use super::Claims;

/// Providers answer from memory. Until one that does not has answered, its instance is running and nobody has written down whose it is.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

impl Claims {
    /// What was launched for a NodeClaim, with its price where the cloud has not said it.
    pub(super) async fn priced(&self, claim: &NodeClaim, instance: NodeClaim) -> NodeClaim {
        let launched = lifecycle::launched(claim, &instance, self.cluster.now());
        let price = tokio::select! {
            biased;
            price = self.journal.note_price(&launched) => price,
            () = self.cluster.clock.sleep(LONGEST_WAIT) => Price::ZERO,
        };
        lifecycle::priced(instance, price)
    }
}
