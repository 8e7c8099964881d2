//! What a provider has written for it, by the same hands as everything else: under the lease, and known to the stores at once.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use spokeshave_ports::{Write, WriteError, WriteTarget, Writes};
use spokeshave_runtime::{Epoch, Object, Store};

use crate::act::hands::Hands;

fn note<K: Object>(store: &Store<K>, written: &Value) {
    // One that cannot be read comes by the watch, or not at all.
    if let Ok(object) = serde_json::from_value(written.clone()) {
        store.note_written(object);
    }
}

impl Writes for Hands {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        async move {
            let target = write.target.clone();
            let written = self.writes.write(write).await?;
            match target {
                WriteTarget::NodeClaim => note(&self.stores.node_claims, &written),
                WriteTarget::Node => note(&self.stores.nodes, &written),
                // Controllers read of a NodeClass what their own watch has told.
                WriteTarget::NodeClass(_) | WriteTarget::NodeClassStatus(_) => {}
            }
            Ok(written)
        }
        .boxed()
    }
}

/// The same hands in one term of leadership.
#[derive(Debug)]
pub(crate) struct TermHands {
    pub(crate) hands: Hands,
    pub(crate) epoch: Epoch,
}

impl Writes for TermHands {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        self.hands.write(write)
    }

    fn leader_term(&self) -> u64 {
        u64::try_from(self.epoch.transitions).unwrap_or(0)
    }
}
