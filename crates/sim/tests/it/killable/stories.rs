//! What users do in the scenarios of disruption, and how it ends.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::NodePool;
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_provider_kwok::KwokOptions;

use super::Cluster;
use crate::words::*;

/// Whatever may be consolidated is, as soon as it may.
pub fn at_once() -> Value {
    json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]})
}

/// Cores of each node, sorted.
pub async fn cores(cluster: &Cluster) -> Vec<i64> {
    let mut cores: Vec<i64> = cluster
        .list::<Node>()
        .await
        .iter()
        .map(|node| {
            let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
            capacity.map_or(0, |all| all["cpu"].0.parse().unwrap_or(0))
        })
        .collect();
    cores.sort_unstable();
    cores
}

/// One node of eight cores with a large pod and a small one.
pub async fn one_large_node(cluster: &Cluster) {
    cluster.deploy("large", 1, "6").await;
    cluster.deploy("web", 1, "500m").await;
    cluster.until_running(2).await;
    assert_eq!(cores(cluster).await, [8]);
}

pub async fn without_large(cluster: &Cluster) {
    cluster.scale("large", 0).await;
}

pub async fn on_one_small_node(cluster: &Cluster) -> bool {
    cluster.running().await == 1 && cores(cluster).await == [1]
}

/// Three nodes of eight cores, each with a large pod and a small one.
pub async fn three_large_nodes(cluster: &Cluster) {
    cluster.deploy("large", 3, "6").await;
    cluster.deploy("web", 3, "900m").await;
    cluster.until_running(6).await;
    assert_eq!(cores(cluster).await, [8, 8, 8]);
}

pub async fn three_pods_on_fewer_cores(cluster: &Cluster) -> bool {
    cluster.running().await == 3 && cores(cluster).await.iter().sum::<i64>() <= 4
}

/// [`three_large_nodes`] whose large pods go, until a minute after their small ones have come together.
pub async fn three_large_nodes_become_fewer_cores(cluster: &Cluster) {
    three_large_nodes(cluster).await;
    without_large(cluster).await;
    cluster
        .until("three pods on fewer cores", three_pods_on_fewer_cores)
        .await;
    cluster.pass(60).await;
}

pub async fn one_busy_node(cluster: &Cluster) {
    cluster.deploy("web", 1, "6").await;
    cluster.until_running(1).await;
}

/// Scales `web` to nothing, and waits until no pod runs.
pub async fn without_web(cluster: &Cluster) {
    cluster.scale("web", 0).await;
    cluster
        .until("no pod is left", async |cluster| cluster.running().await == 0)
        .await;
}

/// Two nodes, each with one of these pods and room for little more, and `web` on one of them.
pub async fn two_nodes_and_web(cluster: &impl Scene, [first, second]: [&str; 2]) {
    // One after the other, so that each has its own node.
    cluster.deploy(first, 1, "6500m").await;
    cluster.until_running(1).await;
    cluster.deploy(second, 1, "6500m").await;
    cluster.until_running(2).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(3).await;
}

/// Which of these pods is on the node of `web`, and which is not.
pub async fn beside_web_and_apart<'a>(cluster: &impl Scene, [first, second]: [&'a str; 2]) -> [&'a str; 2] {
    if cluster.node_of(first).await == cluster.node_of("web").await {
        [first, second]
    } else {
        [second, first]
    }
}

pub async fn two_busy_nodes(cluster: &Cluster) {
    cluster.deploy("web", 2, "6").await;
    cluster.until_running(2).await;
}

/// Changes the template: every node is another now.
pub async fn new_team(cluster: &Cluster) {
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}});
    cluster.patch::<NodePool>("default", labels).await;
}

pub async fn two_nodes_of_the_new_team(cluster: &Cluster) -> bool {
    let nodes = cluster.list::<Node>().await;
    let blue = nodes
        .iter()
        .filter(|node| node.labels().get("team").is_some_and(|team| team == "blue"));
    cluster.running().await == 2 && nodes.len() == 2 && blue.count() == 2
}

/// Nothing is removed unless it is deleted.
pub fn by_hand_only() -> Value {
    for_drift("0")
}

/// Nothing is consolidated, and so many nodes may drift at once.
pub fn for_drift(nodes: &str) -> Value {
    json!({"consolidateAfter": "Never", "budgets": [{"nodes": nodes}]})
}

pub fn never_registers() -> KwokOptions {
    KwokOptions {
        never_register: vec!["*".parse().unwrap()],
        ..KwokOptions::default()
    }
}

/// `karpenter.sh/do-not-disrupt` on every pod; null takes it away.
pub async fn annotate_pods(cluster: &Cluster, value: Value) {
    for pod in cluster.names::<Pod>().await {
        cluster
            .annotate::<Pod>(&pod, "karpenter.sh/do-not-disrupt", value.clone())
            .await;
    }
}

/// Waits until a command waits for its replacement.
pub async fn until_replacing(cluster: &Cluster) {
    cluster.until_phase(DisruptionPhase::Replacing).await;
}
