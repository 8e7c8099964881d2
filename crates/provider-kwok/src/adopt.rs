//! Instances that Karpenter's own kwok provider has made: there a Node is the instance, and nothing else knows of it. Each gets a record when it is first asked
//! for, so that a cluster can be taken over.
//!
//! Owns which Nodes count, and their records. A Node counts when a NodeClaim names it by provider ID: whatever else carries the mark of kwok is left
//! alone. On the way back nothing has to be done: Karpenter's provider reads Nodes only, and ours carry the same labels and provider IDs.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::{KWOKInstance, KWOKInstanceSpec, NodeClaim, QuantityMap, labels};
use spokeshave_ports::{CloudError, is_conflict};

use crate::errors::request_error;
use crate::{KwokProvider, keys, record};

impl KwokProvider {
    /// The records, and those of instances that have none yet.
    pub(crate) async fn with_adopted(
        &self,
        mut known: Vec<KWOKInstance>,
    ) -> Result<Vec<KWOKInstance>, CloudError> {
        let parameters = ListParams::default().labels(&format!("{}={}", keys::NODE, keys::NODE_FAKE));
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = nodes
            .list(&parameters)
            .await
            .map_err(|error| request_error("list Nodes", &error))?;
        let names: BTreeSet<String> = known.iter().map(|one| one.name().to_owned()).collect();
        let unmarked = nodes.items.into_iter().filter(is_adoptable);
        let (half_done, strangers): (Vec<Node>, Vec<Node>) =
            unmarked.partition(|node| instance_name(node).is_some_and(|name| names.contains(name)));
        for node in &half_done {
            self.mark(node).await?;
        }
        if strangers.is_empty() {
            return Ok(known);
        }
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        let claims = claims
            .list(&ListParams::default())
            .await
            .map_err(|error| request_error("list NodeClaims", &error))?;
        let claims: BTreeMap<&str, &NodeClaim> = claims
            .items
            .iter()
            .filter_map(|claim| Some((claim.provider_id()?, claim)))
            .collect();
        for node in &strangers {
            if let Some(claim) = provider_id(node).and_then(|id| claims.get(id)) {
                known.extend(self.adopt(node, claim).await?);
            }
        }
        known.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(known)
    }

    /// The same for one instance.
    pub(crate) async fn adopt_one(&self, name: &str) -> Result<Option<KWOKInstance>, CloudError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes
            .get_opt(name)
            .await
            .map_err(|error| request_error("get Node", &error))?;
        let Some(node) = node.filter(|node| instance_name(node) == Some(name)) else {
            return Ok(None);
        };
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        let claims = claims
            .list(&ListParams::default())
            .await
            .map_err(|error| request_error("list NodeClaims", &error))?;
        let claim = claims
            .items
            .iter()
            .find(|claim| claim.provider_id() == provider_id(&node));
        match claim {
            Some(claim) => self.adopt(&node, claim).await,
            None => Ok(None),
        }
    }

    /// Writes the record, then marks the Node: a crash in between is made up for by the next list. `None` when the Node has gone meanwhile.
    async fn adopt(&self, node: &Node, claim: &NodeClaim) -> Result<Option<KWOKInstance>, CloudError> {
        let wanted = record_of(node, claim);
        let name = wanted.name().to_owned();
        let instance = match self.instances().create(&PostParams::default(), &wanted).await {
            Ok(instance) => instance,
            Err(kube::Error::Api(status)) if status.is_already_exists() => return self.find(&name).await,
            Err(error) => return Err(request_error("create KWOKInstance", &error)),
        };
        if !self.mark(node).await? {
            self.end(&instance).await?;
            return Ok(None);
        }
        tracing::info!(
            Node = name,
            NodeClaim = claim.name(),
            "took over an instance of Karpenter's kwok provider"
        );
        Ok(Some(instance))
    }

    /// Writes on the Node which record it runs on; false when it has gone meanwhile. A Node that says so and has no record is one whose instance is gone.
    async fn mark(&self, node: &Node) -> Result<bool, CloudError> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mark = json!({"metadata": {"uid": node.metadata.uid, "annotations": {keys::INSTANCE: name}}});
        match nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(&mark))
            .await
        {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_not_found() || is_conflict(&status) => Ok(false),
            Err(error) => Err(request_error("patch Node", &error)),
        }
    }
}

/// Whether the provider would take a Node for an instance that it can take over, if a NodeClaim names it.
#[must_use]
pub fn is_adoptable(node: &Node) -> bool {
    instance_name(node).is_some()
}

fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// The name of the instance that a Node of Karpenter's kwok provider is; `None` for any other, ours included: whose instance is gone stays gone.
fn instance_name(node: &Node) -> Option<&str> {
    let name = provider_id(node).and_then(record::instance_of)?;
    let own = |map: Option<&BTreeMap<String, String>>, key: &str| {
        map.and_then(|map| map.get(key)).map(String::as_str) == Some(keys::NODE_FAKE)
    };
    let annotations = node.metadata.annotations.as_ref();
    let is_ours = annotations.is_some_and(|all| all.contains_key(keys::INSTANCE));
    let is_fake = own(node.metadata.labels.as_ref(), keys::NODE) && own(annotations, keys::NODE);
    (is_fake && !is_ours && node.metadata.name.as_deref() == Some(name)).then_some(name)
}

/// The same quantities as our kinds write them.
fn quantities(from: Option<&BTreeMap<String, Quantity>>) -> QuantityMap {
    let value = from.and_then(|from| serde_json::to_value(from).ok());
    let read = value.and_then(|value| serde_json::from_value(value).ok());
    read.unwrap_or_default()
}

/// The record of an instance whose Node is there.
fn record_of(node: &Node, claim: &NodeClaim) -> KWOKInstance {
    let all = node.metadata.labels.clone().unwrap_or_default();
    let label = |key: &str| all.get(key).cloned().unwrap_or_default();
    let status = node.status.as_ref();
    let name = node.metadata.name.clone().unwrap_or_default();
    let spec = KWOKInstanceSpec {
        node_claim_name: claim.name().to_owned(),
        node_claim_uid: claim.uid().to_owned(),
        node_pool: claim.node_pool().map(str::to_owned),
        instance_type: label(labels::INSTANCE_TYPE),
        zone: label(labels::ZONE),
        capacity_type: label(labels::CAPACITY_TYPE),
        price: label(keys::INSTANCE_PRICE),
        node_name: name.clone(),
        capacity: quantities(status.and_then(|status| status.capacity.as_ref())),
        allocatable: quantities(status.and_then(|status| status.allocatable.as_ref())),
        tags: BTreeMap::from([(keys::TAG_NODE_CLAIM.to_owned(), claim.name().to_owned())]),
        labels: all,
        // Its Node is there: none is ever made for it again.
        registration_delay: None,
        ..KWOKInstanceSpec::default()
    };
    KWOKInstance::new(&name, spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: serde_json::Value) -> Node {
        serde_json::from_value(value).expect("a Node")
    }

    #[test]
    fn only_nodes_of_karpenters_kwok_provider_count() {
        let of = |name: &str, id: &str, label: &str, annotations: serde_json::Value| {
            node(
                json!({"metadata": {"name": name, "labels": {"kwok.x-k8s.io/node": label}, "annotations": annotations}, "spec": {"providerID": id}}),
            )
        };
        let fake = json!({"kwok.x-k8s.io/node": "fake"});
        assert!(is_adoptable(&of("kwok-a", "kwok://kwok-a", "fake", fake.clone())));
        for (name, id, label, annotations) in [
            ("kwok-a", "kwok://kwok-b", "fake", fake.clone()),
            ("kwok-a", "aws:///z/i-1", "fake", fake.clone()),
            ("kwok-a", "kwok://kwok-a", "real", fake.clone()),
            ("kwok-a", "kwok://kwok-a", "fake", json!({})),
            (
                "kwok-a",
                "kwok://kwok-a",
                "fake",
                json!({"kwok.x-k8s.io/node": "fake", "kwok.spokeshave.dev/instance": "kwok-a"}),
            ),
        ] {
            assert!(
                !is_adoptable(&of(name, id, label, annotations)),
                "{name} {id} {label}"
            );
        }
        assert!(!is_adoptable(&node(json!({"metadata": {"name": "kwok-a"}}))));
    }
}
