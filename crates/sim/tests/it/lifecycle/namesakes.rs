//! Pods that take the place and the name of one that was to be evicted: nobody takes them for it, whatever still waits under that name.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::DeleteParams;
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_runtime::client::RequestLog;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

/// How many evictions were answered so.
fn answered(operator: &Running, code: &str) -> f64 {
    let family = "karpenter_pods_eviction_requests_total";
    value(&operator.metrics, family, &format!("code=\"{code}\""))
}

/// A StatefulSet of one pod whose node is on its way out and which its budget keeps there, and an empty node beside it. Gives the NodeClaim of the pod's node.
async fn kept_by_its_budget(cluster: &Cluster) -> String {
    cluster.run("room", 1, "5").await;
    cluster
        .stateful_set("db", 1, template("db", "6", json!({})))
        .await;
    cluster.until_running_of("db", 1).await;
    cluster.budget("db", json!({"maxUnavailable": 0})).await;
    cluster.scale("room", 0).await;
    cluster.until_running(1).await;
    cluster.pass(5).await;
    let claim = cluster.claim_of_pod("db").await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_blocked(&claim, "PodDisruptionBudget").await;
    claim
}

/// The user removes the pod at once; gives the UID of the one that runs in its place, on the other node.
async fn removed_by_hand(cluster: &Cluster) -> Option<String> {
    let (old, node) = (cluster.pod_of("db").await, cluster.node_of("db").await);
    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    cluster.api::<Pod>().delete("db-0", &at_once).await.unwrap();
    cluster.until_running_of("db", 1).await;
    let new = cluster.pod_of("db").await.metadata;
    assert_eq!(new.name, old.metadata.name);
    assert_ne!(new.uid, old.metadata.uid);
    assert_ne!(cluster.node_of("db").await, node);
    new.uid
}

/// Its budget lets the pod go.
async fn loosen(cluster: &Cluster) {
    let looser = json!({"spec": {"maxUnavailable": 1}});
    cluster.patch::<PodDisruptionBudget>("db", looser).await;
}

/// D-326: the try that waited for the pod finds another one.
#[tokio::test(start_paused = true)]
async fn d_326_the_next_pod_of_the_name_is_not_evicted_from_its_healthy_node() {
    let (cluster, operator) = Cluster::started(67, json!({})).await;
    let claim = kept_by_its_budget(&cluster).await;
    let uid = removed_by_hand(&cluster).await;
    loosen(&cluster).await;
    cluster.pass(60).await;
    assert_eq!(cluster.pod_of("db").await.metadata.uid, uid);
    assert_eq!(answered(&operator, "200"), 0.0, "nobody was to be evicted");
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.assert_no_leak().await;
}

/// D-326, invariant 38: behind a watch that stands still the pod is there as before, and only the API server knows that it is another one.
#[tokio::test(start_paused = true)]
async fn d_326_invariant_38_an_eviction_is_of_the_pod_that_was_meant_and_of_no_other_of_its_name() {
    let (cluster, operator) = Cluster::started(68, json!({})).await;
    let claim = kept_by_its_budget(&cluster).await;
    cluster.gate.still.lock().unwrap().insert("/pods");
    let uid = removed_by_hand(&cluster).await;
    loosen(&cluster).await;
    cluster.pass(60).await;
    assert_eq!(cluster.pod_of("db").await.metadata.uid, uid);
    let (evicted, refused) = (answered(&operator, "200"), answered(&operator, "409"));
    assert!(evicted == 0.0 && refused >= 1.0, "{evicted}, {refused}");
    cluster.gate.still.lock().unwrap().clear();
    cluster.until_gone::<NodeClaim>(&claim).await;
    assert_eq!(cluster.pod_of("db").await.metadata.uid, uid);
    cluster.assert_no_leak().await;
}

/// The same where the deadline of its old node does not ask the budget.
#[tokio::test(start_paused = true)]
async fn d_326_invariant_38_a_deadline_deletes_the_pod_that_was_meant_and_no_other_of_its_name() {
    let grace = json!({"template": {"spec": {"terminationGracePeriod": "3m"}}});
    let log = RequestLog::new();
    let setup = Setup {
        log: Some(log.clone()),
        ..Setup::default()
    };
    let (cluster, _operator) = Cluster::started_with(69, grace, setup).await;
    let claim = kept_by_its_budget(&cluster).await;
    cluster.gate.still.lock().unwrap().insert("/pods");
    let uid = removed_by_hand(&cluster).await;
    cluster.pass(180).await;
    let asked = log.text();
    let asks = |line: &str| line.starts_with("DELETE ") && line.contains("/pods/db-0");
    assert!(asked.lines().any(asks), "it was to be deleted");
    assert_eq!(cluster.pod_of("db").await.metadata.uid, uid);
    cluster.gate.still.lock().unwrap().clear();
    cluster.until_gone::<NodeClaim>(&claim).await;
    assert_eq!(cluster.pod_of("db").await.metadata.uid, uid);
    cluster.assert_no_leak().await;
}
