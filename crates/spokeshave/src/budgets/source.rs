//! Where NodePools and their node counts come from: files, or the cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use serde_json::Value;
use spokeshave_api::{DisruptionReason, NodeClaim, NodePool, NodePoolSpec};
use spokeshave_model::{ClusterState, lower};
use spokeshave_plan::budget_lint::NodeCounts;
use spokeshave_plan::disrupt::BudgetMapping;

use super::lines::Lines;
use crate::cluster::Cluster;
use crate::manifests;

/// One NodePool as written.
pub(crate) struct Pool {
    /// Its name.
    pub(crate) name: String,
    /// The whole object.
    pub(crate) object: Value,
    /// Its nodes; absent when a file says nothing about nodes.
    pub(crate) counts: Option<NodeCounts>,
    /// The file it is from, with the lines of its fields.
    pub(crate) origin: Option<Origin>,
}

/// Where a NodePool is written.
pub(crate) struct Origin {
    /// The file's name, as given.
    pub(crate) file: String,
    /// The lines of its fields.
    pub(crate) lines: Lines,
}

/// Reads NodePools, and Nodes and NodeClaims where there are any.
///
/// # Errors
/// Names the file and what is wrong with it.
pub(crate) fn from_files(paths: &[PathBuf], now: Timestamp) -> Result<Vec<Pool>> {
    let mut pools = Vec::new();
    let (mut nodes, mut claims) = (Vec::new(), Vec::new());
    for file in manifests::files_of_all(paths)? {
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {shown}"))?;
        for manifest in manifests::parse(&shown, &text)? {
            let value = serde_json::to_value(&manifest.object)?;
            let origin = manifest.origin;
            match (value["apiVersion"].as_str(), value["kind"].as_str()) {
                (Some("karpenter.sh/v1"), Some("NodePool")) => {
                    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    let lines = Lines::of_node_pool(&text, &name);
                    pools.push(Pool {
                        name,
                        object: value,
                        counts: None,
                        origin: Some(Origin {
                            file: shown.clone(),
                            lines,
                        }),
                    });
                }
                (Some("karpenter.sh/v1"), Some("NodeClaim")) => {
                    claims.push(Arc::new(serde_json::from_value(value).context(origin)?));
                }
                (Some("v1"), Some("Node")) => {
                    nodes.push(Arc::new(serde_json::from_value(value).context(origin)?))
                }
                _ => {}
            }
        }
    }
    if !nodes.is_empty() || !claims.is_empty() {
        count(&mut pools, nodes, claims, now);
    }
    pools.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(pools)
}

/// Lists NodePools, Nodes and NodeClaims; with the instant that counts, by default the cluster's.
///
/// # Errors
/// The cluster cannot be reached, or it refuses.
pub(crate) async fn from_cluster(
    kubeconfig: Option<&Path>,
    now: Option<Timestamp>,
) -> Result<(Vec<Pool>, Timestamp)> {
    let cluster = Cluster::reach(kubeconfig).await?;
    let (client, now) = (cluster.client, now.unwrap_or(cluster.now));
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(NodePool::GROUP, NodePool::VERSION, NodePool::KIND),
        NodePool::PLURAL,
    );
    // As written, so that a pool that an older schema has let in is judged too.
    let written: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let mut pools = Vec::new();
    for object in written
        .list(&ListParams::default())
        .await
        .context("cannot list NodePools")?
    {
        pools.push(Pool {
            name: object.metadata.name.clone().unwrap_or_default(),
            object: serde_json::to_value(&object)?,
            counts: None,
            origin: None,
        });
    }
    let nodes: Vec<Arc<Node>> = all(&client, "Nodes").await?;
    let claims: Vec<Arc<NodeClaim>> = all(&client, "NodeClaims").await?;
    count(&mut pools, nodes, claims, now);
    pools.sort_by(|left, right| left.name.cmp(&right.name));
    Ok((pools, now))
}

async fn all<K>(client: &Client, kind: &str) -> Result<Vec<Arc<K>>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: spokeshave_runtime::Api<K> = spokeshave_runtime::Api::all(client.clone());
    let list = api
        .list(&ListParams::default())
        .await
        .with_context(|| format!("cannot list {kind}"))?;
    Ok(list.items.into_iter().map(Arc::new).collect())
}

/// Fills in how many nodes each pool has, as the controllers count them (D-199, D-200).
fn count(pools: &mut [Pool], nodes: Vec<Arc<Node>>, claims: Vec<Arc<NodeClaim>>, now: Timestamp) {
    // Counting needs the pools' names only; what cannot be typed must not lose its count.
    let node_pools = pools
        .iter()
        .map(|pool| Arc::new(NodePool::new(&pool.name, NodePoolSpec::default())));
    let snapshot = lower(&ClusterState {
        node_pools: node_pools.collect(),
        nodes,
        node_claims: claims,
        ..ClusterState::default()
    });
    let mapping = BudgetMapping::build(&snapshot, &DisruptionReason::Empty, now);
    let counts: BTreeMap<&str, NodeCounts> = mapping
        .pools
        .iter()
        .map(|(id, budget)| {
            let counts = NodeCounts {
                nodes: budget.nodes,
                disrupting: budget.disrupting,
            };
            (snapshot.pool(*id).name.as_str(), counts)
        })
        .collect();
    for pool in pools {
        pool.counts = Some(counts.get(pool.name.as_str()).copied().unwrap_or_default());
    }
}
