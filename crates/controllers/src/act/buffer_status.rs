//! What a provisioning pass has found out about the room of CapacityBuffers, written to their status.
//!
//! Owns the writing. What it says is decided by `plan::buffers`.

use std::collections::BTreeMap;

use spokeshave_plan::buffers::{Tally, provisioning_action};
use spokeshave_runtime::ObjectKey;

use crate::act::hands::Hands;

impl Hands {
    /// Writes what a pass has found for each buffer (P-185). What cannot be written now is written after the next pass.
    pub(crate) async fn report_buffers(&self, tallies: &BTreeMap<String, Tally>) {
        for buffer in self.stores.buffers.buffers.snapshot() {
            let key = ObjectKey::of(&*buffer).to_string();
            let tally = tallies.get(&key).copied();
            let Some(action) = provisioning_action(&buffer, tally, self.clock.now()) else {
                continue;
            };
            if let Err(error) = self.run(&action).await
                && !error.is_not_found()
            {
                tracing::debug!(CapacityBuffer = key, %error, "writing the condition of a capacitybuffer; the next pass tries again");
            }
        }
    }
}
