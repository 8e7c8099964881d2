//! Nodes that a scheduler has named for pods which are not bound yet (P-056). Kube-scheduler does so while it makes room for a pod, and since Kubernetes 1.35
//! for as long as a binding takes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use kube::api::PostParams;
use serde_json::{Value, json};
use spokeshave_api::NodeClaim;

use crate::plain::Cluster;
use crate::words::*;

/// Nodes have four processors, and go once they are empty.
fn of_four() -> Value {
    let four = json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]});
    json!({"template": {"spec": {"requirements": [four]}}})
}

/// A pod that waits and that only the test binds, with the node that its scheduler has named.
pub async fn waiting(cluster: &Cluster, name: &str, cpu: &str, node: Option<&str>) {
    let elsewhere = json!({"spec": {"schedulerName": "elsewhere"}});
    cluster.pod(name, cpu, elsewhere).await;
    let unschedulable = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    let status = json!({"nominatedNodeName": node, "conditions": unschedulable});
    cluster.patch_status::<Pod>(name, status).await;
}

/// As a scheduler does.
pub async fn bind(cluster: &impl Scene, name: &str, node: &str) {
    let binding =
        json!({"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    let binding: Binding = serde_json::from_value(binding).unwrap();
    let parameters = PostParams::default();
    let pods = cluster.api::<Pod>();
    let _: Value = pods
        .create_subresource("binding", name, &parameters, &binding)
        .await
        .unwrap();
}

/// A cluster with one node, on which a pod has run that is about to go.
async fn with_node(seed: u64, change: Value) -> (Cluster, String) {
    let cluster = Cluster::started(seed, change).await;
    cluster.run("web", 1, "1").await;
    let node = cluster.node_of("web").await;
    (cluster, node)
}

impl Cluster {
    /// Waits until a place is planned for a pod.
    async fn until_planned(&self, pod: &str) -> Duration {
        let object = format!("Pod/{pod}");
        self.until(&format!("a place is planned for {pod}"), async |cluster| {
            let told = cluster.told("Nominated").await;
            told.iter().any(|(about, _)| *about == object)
        })
        .await
    }

    async fn claims(&self) -> usize {
        self.list::<NodeClaim>().await.len()
    }
}

/// The volumes of a pod take a minute. Meanwhile all others leave its node, and another pod asks for as much.
#[tokio::test(start_paused = true)]
async fn p_056_the_node_on_which_a_pod_is_being_bound_is_kept_for_it() {
    let (cluster, node) = with_node(104, of_four()).await;
    waiting(&cluster, "db-0", "2500m", Some(&node)).await;
    cluster.scale("web", 0).await;
    waiting(&cluster, "more", "2500m", None).await;
    cluster
        .until("the other gets a node of its own", async |cluster| {
            cluster.claims().await == 2
        })
        .await;
    cluster.pass(60).await;
    assert!(cluster.exists::<Node>(&node).await, "it is not empty");
    bind(&cluster, "db-0", &node).await;
    cluster.until_running_of("db-0", 1).await;
    assert_eq!(cluster.node_of("db-0").await, node);
    assert_eq!(cluster.claims().await, 2);
}

/// It waits like any other, although nobody clears the name.
#[tokio::test(start_paused = true)]
async fn p_056_a_pod_whose_named_node_goes_gets_another() {
    let never = json!({"disruption": {"consolidateAfter": "Never"}});
    let (cluster, node) = with_node(105, never).await;
    waiting(&cluster, "db-0", "100m", Some(&node)).await;
    cluster.pass(30).await;
    let told = cluster.told("Nominated").await;
    assert!(told.iter().all(|(about, _)| about != "Pod/db-0"), "{told:?}");
    assert_eq!(cluster.claims().await, 1);
    let claim = cluster.claim_of(&node).await.name().to_owned();
    cluster.delete::<NodeClaim>(&claim).await;
    let took = cluster.until_planned("db-0").await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    let status = cluster.get::<Pod>("db-0").await.status.unwrap();
    assert_eq!(status.nominated_node_name, Some(node), "the name is another's");
}

/// A scheduler that has died, or somebody who wrote the name by hand.
#[tokio::test(start_paused = true)]
async fn p_056_a_name_that_nobody_clears_keeps_neither_its_node_nor_its_pod_for_good() {
    let (cluster, node) = with_node(106, json!({})).await;
    // More than the node has.
    waiting(&cluster, "big", "6", Some(&node)).await;
    cluster.scale("web", 0).await;
    cluster.pass(14 * 60).await;
    assert!(cluster.exists::<Node>(&node).await, "so long it is believed");
    assert_eq!(cluster.claims().await, 1);
    let took = cluster.until_planned("big").await;
    assert!(took < Duration::from_secs(120), "{took:?}");
    let took = cluster.until_gone::<Node>(&node).await;
    assert!(took < Duration::from_secs(300), "{took:?}");
}
