//! Nodes that say they are ours and that no NodeClaim matches, or several: told by an event, each once.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_plan::identity::{Finding, is_ours, look_at_node};
use spokeshave_ports::CloudProvider as _;
use spokeshave_runtime::Requeue;

use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::state::cluster::Cluster;

/// The controller of lost Nodes.
#[derive(Debug)]
pub(crate) struct Identity {
    cluster: Arc<Cluster>,
    hands: Hands,
    class_labels: Vec<String>,
}

impl Identity {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands) -> Arc<Self> {
        let kinds = cluster.cloud.supported_node_classes();
        let class_labels = kinds.iter().map(spokeshave_ports::NodeClassKind::label).collect();
        Arc::new(Self {
            cluster,
            hands,
            class_labels,
        })
    }
}

impl Controller for Identity {
    const NAME: &'static str = "node.identity";
    const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
    type Key = String;

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        on.change(
            |stores| &stores.nodes,
            |_, change| {
                let provider_id =
                    |node: Option<&Node>| node.and_then(|node| node.spec.as_ref()?.provider_id.clone());
                let (old, new) = (change.old.as_deref(), change.new.as_deref());
                let is_news = new.is_some() && (old.is_none() || provider_id(old) != provider_id(new));
                is_news.then(|| change.key.name.clone())
            },
        );
        on.change(
            |stores| &stores.node_claims,
            |stores, change| {
                let id = |claim: Option<&NodeClaim>| {
                    claim.and_then(|claim| claim.provider_id()).map(str::to_owned)
                };
                let mut ids = [id(change.old.as_deref()), id(change.new.as_deref())];
                if ids[0] == ids[1] {
                    ids = [None, None];
                }
                let nodes = ids.map(|id| id.map(|id| stores.nodes_by_provider_id.get(&id)));
                let nodes = nodes.into_iter().flatten().flatten();
                nodes.map(|node| node.metadata.name.clone().unwrap_or_default())
            },
        );
    }

    /// One look at a Node.
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let stores = &self.cluster.stores;
        let Some(node) = stores
            .nodes
            .get_named(&name)
            .filter(|node| is_ours(node, &self.class_labels))
        else {
            return Ok(Requeue::Done);
        };
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
        let claims = stores.claims_by_provider_id.get(&id.unwrap_or_default());
        match look_at_node(&node, &claims, self.cluster.now()) {
            Finding::Fine => {}
            Finding::Young(left) => return Ok(Requeue::After(left)),
            Finding::Tell(event) => {
                tracing::warn!(
                    Node = name,
                    reason = event.reason,
                    detail = event.message,
                    "lost node"
                );
                self.hands.tell(&event);
            }
        }
        Ok(Requeue::Done)
    }
}
