//! What nodes that have joined show of their instance type: how much memory is really there.
//!
//! Owns which Nodes were read. Each is read once, when its NodeClaim has registered; what it means is the market's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use spokeshave_api::{EC2NodeClass, NodeClaim, Quantity, labels};

use crate::provider::Inner;

/// NodeClaims that have registered are looked for this often.
const PERIOD: Duration = Duration::from_secs(5);
/// With more Nodes to read than this they are listed instead.
const SINGLE: usize = 20;
/// Nodes in one page of a list, and read at once.
const PAGE: u32 = 500;
const AT_ONCE: usize = 4;

impl Inner {
    /// Learns for as long as it is polled.
    pub(crate) async fn learn_memory(&self) {
        // By UID of their NodeClaim.
        let mut read: BTreeSet<String> = BTreeSet::new();
        loop {
            self.clock.sleep(PERIOD).await;
            // Each Node is read once: not before there is a class to learn it for.
            let (Some(claims), Some(_)) = (self.claims.all(), self.classes.all()) else {
                continue;
            };
            let uids: BTreeSet<&str> = claims.iter().filter_map(|claim| uid(claim)).collect();
            read.retain(|uid| uids.contains(uid.as_str()));
            let fresh: Vec<Arc<NodeClaim>> = claims
                .into_iter()
                .filter(|claim| has_registered(claim) && uid(claim).is_some_and(|uid| !read.contains(uid)))
                .collect();
            if fresh.is_empty() {
                continue;
            }
            match self.read_nodes(&fresh).await {
                Ok(nodes) => {
                    for (claim, node) in fresh.iter().zip(nodes) {
                        if let Some(node) = node {
                            self.learn_from(claim, &node);
                        }
                        read.extend(uid(claim).map(str::to_owned));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot read Nodes to learn how much memory they have; it is tried again")
                }
            }
        }
    }

    /// The Nodes of these NodeClaims; `None` for one that is gone.
    async fn read_nodes(&self, claims: &[Arc<NodeClaim>]) -> kube::Result<Vec<Option<Node>>> {
        let api: Api<Node> = Api::all(self.client.clone());
        if claims.len() <= SINGLE {
            let names: Vec<String> = claims.iter().map(|claim| node_name(claim).to_owned()).collect();
            let reads = stream::iter(names).map(|name| {
                let api = api.clone();
                async move { api.get_opt(&name).await }
            });
            let reads: Vec<kube::Result<Option<Node>>> = reads.buffered(AT_ONCE).collect().await;
            return reads.into_iter().collect();
        }
        let mut nodes = vec![None; claims.len()];
        let mut params = ListParams::default().labels(labels::NODE_POOL).limit(PAGE);
        loop {
            let page = api.list(&params).await?;
            for node in page.items {
                let name = node.metadata.name.as_deref();
                let at = claims.iter().position(|claim| Some(node_name(claim)) == name);
                if let Some(at) = at {
                    nodes[at] = Some(node);
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(nodes),
            }
        }
    }

    fn learn_from(&self, claim: &NodeClaim, node: &Node) {
        let Some(class) = self.class_of(claim) else {
            return;
        };
        let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
        let memory = capacity
            .and_then(|capacity| capacity.get("memory"))
            .and_then(|memory| memory.0.parse::<Quantity>().ok());
        let name = claim.label(labels::INSTANCE_TYPE).unwrap_or_default();
        let now = self.clock.now();
        let instance_type = self.market.instance_type(&class, name, &self.options, now);
        let image = claim
            .status
            .as_ref()
            .and_then(|status| status.image_id.as_deref());
        if let (Some(memory), Some(instance_type), Some(image)) = (memory, instance_type, image) {
            self.market
                .learn(&class, (&instance_type, image), memory.to_units(), now);
        }
    }
}

fn uid(claim: &NodeClaim) -> Option<&str> {
    claim.metadata.uid.as_deref()
}

fn node_name(claim: &NodeClaim) -> &str {
    let name = claim
        .status
        .as_ref()
        .and_then(|status| status.node_name.as_deref());
    name.unwrap_or_default()
}

fn has_registered(claim: &NodeClaim) -> bool {
    claim.spec.node_class_ref.group == EC2NodeClass::GROUP && !node_name(claim).is_empty()
}
