//! Writes that fail in the middle of a life or an end: conflicts, errors, objects that vanish. Nothing is done twice, and nothing is left.

use std::sync::atomic::Ordering;

use crate::faulty::{Cluster, Setup, pool};
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use serde_json::json;
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};
use spokeshave_runtime::Metrics;

/// Reconciliations that ended in an error.
fn errors(metrics: &Metrics, controller: &str) -> f64 {
    let text = metrics.render();
    let name = format!("controller_runtime_reconcile_errors_total{{controller=\"{controller}\"}}");
    let line = text.lines().find(|line| line.starts_with(&name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}

// D-352: conflicts on annotation, status and finalizer requeue and are no error; a NodeClaim that has vanished is done.
#[tokio::test(start_paused = true)]
async fn d_352_conflicts_requeue_and_what_has_vanished_is_done() {
    let cluster = Cluster::new(40).await;
    let deadline = json!({"spec": {"template": {"spec": {"terminationGracePeriod": "5m"}}}});
    cluster.create::<NodePool>(pool("default", deadline)).await;
    let operator = cluster.operator(Setup::default());
    cluster.deploy("web", 2, "6", json!({})).await;
    cluster.until_running("web", 2).await;
    let before = errors(&operator.metrics, "nodeclaim.lifecycle");
    let claims = cluster.claims().await;
    // Annotation, conditions, finalizer: each meets a conflict several times.
    cluster.gate.trip("/nodeclaims/", 409, 9);
    cluster.delete_claim(&claims[0]).await;
    cluster.until_gone(&claims[0]).await;
    cluster.gate.assert_tripped();
    // The second vanishes in the middle of its end.
    cluster.delete_claim(&claims[1]).await;
    cluster.pass(2).await;
    let free = json!({"metadata": {"finalizers": null}});
    if cluster.claims().await.contains(&claims[1]) {
        cluster.patch(cluster.all::<NodeClaim>(), &claims[1], free).await;
    }
    cluster.until_gone(&claims[1]).await;
    cluster.until_running("web", 2).await;
    cluster.pass(300).await;
    assert_eq!(
        errors(&operator.metrics, "nodeclaim.lifecycle"),
        before,
        "none of this is an error"
    );
    assert_eq!(cluster.list::<KWOKInstance>().await.len(), 2);
    cluster.assert_no_leak().await;
}

// D-352, D-241: a deletion that meets a conflict brings no news of the NodeClaim; it is tried again all the same.
#[tokio::test(start_paused = true)]
async fn d_352_a_deletion_that_meets_a_conflict_is_tried_again() {
    let cluster = Cluster::new(46).await;
    let short = json!({"spec": {"template": {"spec": {"expireAfter": "10m"}}}});
    cluster.create::<NodePool>(pool("default", short)).await;
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 1, "1", json!({})).await;
    cluster.until_running("web", 1).await;
    let claim = cluster.claim_of_pod("web").await;
    cluster.pass(500).await;
    cluster.gate.trip("/nodeclaims/", 409, 2);
    cluster.until_gone(&claim).await;
    cluster.gate.assert_tripped();
    cluster.until_running("web", 1).await;
}

// P-162: a launch whose result cannot be written is not done again.
#[tokio::test(start_paused = true)]
async fn p_162_a_launch_that_is_not_written_down_is_not_repeated() {
    let cluster = Cluster::new(41).await;
    cluster.create::<NodePool>(pool("default", json!({}))).await;
    let _operator = cluster.operator(Setup::default());
    cluster.gate.trip("/nodeclaims/*/status", 500, 4);
    cluster.deploy("web", 1, "1", json!({})).await;
    cluster.until_running("web", 1).await;
    cluster.pass(60).await;
    cluster.gate.assert_tripped();
    assert_eq!(cluster.faults.launches.load(Ordering::Relaxed), 1);
    assert_eq!(cluster.list::<KWOKInstance>().await.len(), 1);
    cluster.assert_no_leak().await;
}

// P-147, D-048: a NodeClaim that was never launched and is gone holds nothing up.
#[tokio::test(start_paused = true)]
async fn p_147_d_048_a_nodeclaim_that_vanished_before_its_launch_holds_nothing_up() {
    let cluster = Cluster::new(42).await;
    cluster.teams_a_and_b_where_launches_of_a_hang().await;
    let operator = cluster.operator(Setup::default());
    let of = |team: &str| json!({"spec": {"nodeSelector": {"team": team}}});
    cluster.deploy("stuck", 1, "1", of("a")).await;
    cluster
        .until("a launch hangs", async |cluster| {
            cluster.claims().await.len() == 1
        })
        .await;
    let synced = |metrics: &Metrics| metrics.render().contains("\nkarpenter_cluster_state_synced 1\n");
    cluster.pass(2).await;
    assert!(!synced(&operator.metrics), "the launch is under way");
    let deployments = spokeshave_runtime::Api::<k8s_openapi::api::apps::v1::Deployment>::default_namespaced(
        cluster.client.clone(),
    );
    deployments
        .delete("stuck", &DeleteParams::default())
        .await
        .unwrap();
    let claim = cluster.claims().await.remove(0);
    let free = json!({"metadata": {"finalizers": null}});
    cluster.patch(cluster.all::<NodeClaim>(), &claim, free).await;
    cluster.delete_claim(&claim).await;
    cluster.pass(15).await;
    assert!(synced(&operator.metrics), "D-048");
    cluster.deploy("free", 1, "1", of("b")).await;
    cluster.until_running("free", 1).await;
    assert_eq!(cluster.list::<Node>().await.len(), 1);
    cluster.assert_no_leak().await;
}

// A Node whose finalizer somebody took away, deleted: the NodeClaim says that its Node is missing, the pods run elsewhere, and the end of the
// NodeClaim takes the instance along.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_torn_away_is_told_and_its_pods_move() {
    let cluster = Cluster::new(43).await;
    cluster.create::<NodePool>(pool("default", json!({}))).await;
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 1, "1", json!({})).await;
    cluster.until_running("web", 1).await;
    let claim = cluster.claims().await.remove(0);
    let node = kube::ResourceExt::name_any(&cluster.list::<Node>().await.remove(0));
    let free = json!({"metadata": {"finalizers": null}});
    cluster.patch(cluster.all::<Node>(), &node, free).await;
    let nodes = cluster.all::<Node>();
    nodes.delete(&node, &DeleteParams::default()).await.unwrap();
    cluster
        .until("the claim says that its Node is missing", async |cluster| {
            let told = cluster.events("NodeMissing").await;
            told.iter()
                .any(|(about, _)| *about == format!("NodeClaim/{claim}"))
                || !cluster.claims().await.contains(&claim)
        })
        .await;
    cluster.until_running("web", 1).await;
    if cluster.claims().await.contains(&claim) {
        cluster.delete_claim(&claim).await;
    }
    cluster.until_gone(&claim).await;
    cluster.until_running("web", 1).await;
    cluster.assert_no_leak().await;
}
