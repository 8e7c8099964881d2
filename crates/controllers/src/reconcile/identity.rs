//! Nodes that say they are ours and that no NodeClaim matches, or several: told by an event, each once.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use spokeshave_plan::identity::{Finding, is_ours, look_at_node};
use spokeshave_runtime::{ReconcileError, Requeue, WorkQueue};

use crate::shared::Shared;

/// The controller of lost Nodes.
#[derive(Debug)]
pub(crate) struct Identity {
    shared: Arc<Shared>,
    pub(crate) queue: WorkQueue<String>,
    class_labels: Vec<String>,
}

impl Identity {
    pub(crate) fn new(shared: Arc<Shared>, queue: WorkQueue<String>) -> Arc<Self> {
        let kinds = shared.provider.supported_node_classes();
        let class_labels = kinds.iter().map(spokeshave_ports::NodeClassKind::label).collect();
        let this = Arc::new(Self {
            shared,
            queue,
            class_labels,
        });
        let queue = this.queue.clone();
        let provider_id = |node: Option<&Node>| node.and_then(|node| node.spec.as_ref()?.provider_id.clone());
        let stores = &this.shared.stores;
        stores.nodes.on_change(move |change| {
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            if new.is_some() && (old.is_none() || provider_id(old) != provider_id(new)) {
                queue.add(change.key.name.clone());
            }
        });
        let (queue, nodes) = (this.queue.clone(), stores.nodes_by_provider_id.clone());
        stores.node_claims.on_change(move |change| {
            let id = |claim: Option<&spokeshave_api::NodeClaim>| {
                claim.and_then(|claim| claim.provider_id()).map(str::to_owned)
            };
            let (old, new) = (id(change.old.as_deref()), id(change.new.as_deref()));
            if old == new {
                return;
            }
            for node in [old, new].into_iter().flatten().flat_map(|id| nodes.get(&id)) {
                queue.add(node.metadata.name.clone().unwrap_or_default());
            }
        });
        this
    }

    /// One look at a Node.
    pub(crate) async fn reconcile(self: Arc<Self>, name: String) -> Result<Requeue, ReconcileError> {
        let stores = &self.shared.stores;
        let Some(node) = stores
            .nodes
            .get_named(&name)
            .filter(|node| is_ours(node, &self.class_labels))
        else {
            return Ok(Requeue::Done);
        };
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
        let claims = stores.claims_by_provider_id.get(&id.unwrap_or_default());
        match look_at_node(&node, &claims, self.shared.now()) {
            Finding::Fine => {}
            Finding::Young(left) => return Ok(Requeue::After(left)),
            Finding::Tell(event) => {
                tracing::warn!(
                    Node = name,
                    reason = event.reason,
                    message = event.message,
                    "lost node"
                );
                self.shared.execute.tell(&event);
            }
        }
        Ok(Requeue::Done)
    }
}
