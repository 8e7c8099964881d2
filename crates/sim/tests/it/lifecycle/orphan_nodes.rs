//! Nodes whose NodeClaim was taken away, finalizers and all: the collector ends their instance, and they go with it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::{KWOKInstance, NodeClaim};

use crate::faulty::{Cluster, Setup};
use crate::words::*;

// D-309: what keeps pods on a node keeps no Node without a machine, whose pods nobody could run or stop.
#[tokio::test(start_paused = true)]
async fn d_309_a_node_without_nodeclaim_goes_with_its_instance_whatever_keeps_its_pods() {
    let cluster = Cluster::new(75).await;
    cluster.pool("default", json!({})).await;
    let first = cluster.operator(Setup::default());
    // Nobody drives it out of a node that has fallen silent, and its budget lets nobody evict it.
    let tolerations = json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]);
    let change = json!({"spec": {"tolerations": tolerations}});
    cluster.deploy_with("web", 1, template("web", "1", change)).await;
    cluster.until_running_of("web", 1).await;
    cluster.budget("web", json!({"minAvailable": 1})).await;
    let node = cluster.node_of("web").await;
    let claim = cluster.claim_of_pod("web").await;
    let instance = cluster.names::<KWOKInstance>().await.remove(0);
    first.end().await;
    cluster.excuse(14);
    cluster.pass(60).await;
    cluster.remove_finalizers::<NodeClaim>(&claim).await;
    cluster.delete_alone::<NodeClaim>(&claim).await;
    let _second = cluster.operator(Setup::default());
    cluster.until_gone::<KWOKInstance>(&instance).await;
    let took = cluster.until_gone::<Node>(&node).await;
    assert!(took < Duration::from_secs(120), "{took:?}");
    cluster.until_running_of("web", 1).await;
    assert_ne!(cluster.node_of("web").await, node);
    cluster.assert_no_leak().await;
}
