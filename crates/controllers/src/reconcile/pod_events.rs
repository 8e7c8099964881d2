//! Pods that come and go restart the clock of their node (D-036): the time is written on its NodeClaim.
//!
//! Owns the events that are not written yet. Lost: the clock is not restarted for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use spokeshave_plan::consolidatable::{disturbed_node, pod_event_action, pod_event_time};
use spokeshave_runtime::Requeue;

use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::state::cluster::Cluster;

/// The controller of pod events, by name of the Node.
#[derive(Debug)]
pub(crate) struct PodEvents {
    cluster: Arc<Cluster>,
    hands: Hands,
    /// The newest event of nodes that is not written yet.
    newest: Mutex<BTreeMap<String, Timestamp>>,
}

impl PodEvents {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            hands,
            newest: Mutex::default(),
        })
    }

    fn newest(&self) -> MutexGuard<'_, BTreeMap<String, Timestamp>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, node: &str, time: Timestamp) {
        let mut newest = self.newest();
        let known = newest.entry(node.to_owned()).or_insert(time);
        *known = (*known).max(time);
    }
}

impl Controller for PodEvents {
    const NAME: &'static str = "nodeclaim.podevents";
    type Key = String;

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        let this = self.clone();
        on.change(
            |stores| &stores.pods,
            move |_, change| {
                let (old, new) = (change.old.as_deref(), change.new.as_deref()?);
                let node = disturbed_node(old, Some(new))?;
                this.note(node, pod_event_time(old, new, this.cluster.now()));
                Some(node.to_owned())
            },
        );
    }

    /// Writes the event of a node.
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let Some(time) = self.newest().remove(&name) else {
            return Ok(Requeue::Done);
        };
        let stores = &self.cluster.stores;
        let Some(node) = stores.nodes.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        let id = node
            .spec
            .as_ref()
            .and_then(|spec| spec.provider_id.clone())
            .unwrap_or_default();
        for claim in stores.claims_by_provider_id.get(&id) {
            if let Some(action) = pod_event_action(&claim, time)
                && let Err(error) = self.hands.run_unless_stale(&[action]).await
            {
                self.note(&name, time);
                return Err(error.into());
            }
        }
        Ok(Requeue::Done)
    }
}
