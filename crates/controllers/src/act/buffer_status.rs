//! What a provisioning pass has found out about the room of CapacityBuffers, written to their status.
//!
//! Owns the writing. What it says is decided by `plan::buffers`.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use spokeshave_model::Action;
use spokeshave_plan::buffers::{Tally, provisioning_action};
use spokeshave_runtime::ObjectKey;

use crate::act::hands::{AT_ONCE, Hands};

impl Hands {
    /// Writes what a pass has found for each buffer (P-185), many at once. What cannot be written now is written after the next pass.
    pub(crate) async fn report_buffers(&self, tallies: &BTreeMap<String, Tally>) {
        let buffers = self.stores.buffers.buffers.snapshot().into_iter();
        let reports = buffers.filter_map(|buffer| {
            let key = ObjectKey::of(&*buffer).to_string();
            let tally = tallies.get(&key).copied();
            let action = provisioning_action(&buffer, tally, self.clock.now())?;
            Some((key, action))
        });
        let write = |(key, action)| self.report_buffer(key, action);
        futures::stream::iter(reports)
            .for_each_concurrent(AT_ONCE, write)
            .await;
    }

    async fn report_buffer(&self, key: String, action: Action) {
        if let Err(error) = self.run(&action).await
            && !error.is_not_found()
        {
            tracing::debug!(CapacityBuffer = key, %error, "writing the condition of a capacitybuffer; the next pass tries again");
        }
    }
}
