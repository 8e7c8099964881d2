//! Writes that fail in the middle of a life or an end: conflicts, errors, objects that vanish. Nothing is done twice, and nothing is left.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::faulty::{Cluster, Setup};
use crate::words::*;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::{KWOKInstance, NodeClaim};
use spokeshave_runtime::Metrics;

/// Reconciliations of NodeClaims that ended in an error.
fn errors(metrics: &Metrics) -> f64 {
    let labels = "{controller=\"nodeclaim.lifecycle\"}";
    value(metrics, "controller_runtime_reconcile_errors_total", labels)
}

// D-352: conflicts on annotation, status and finalizer requeue and are no error; a NodeClaim that has vanished is done.
#[tokio::test(start_paused = true)]
async fn d_352_conflicts_requeue_and_what_has_vanished_is_done() {
    let deadline = json!({"template": {"spec": {"terminationGracePeriod": "5m"}}});
    let (cluster, operator) = Cluster::started(40, deadline).await;
    cluster.run("web", 2, "6").await;
    let before = errors(&operator.metrics);
    let claims = cluster.names::<NodeClaim>().await;
    // Annotation, conditions, finalizer: each meets a conflict several times.
    cluster.gate.trip("/nodeclaims/", 409, 9);
    cluster.delete::<NodeClaim>(&claims[0]).await;
    cluster.until_gone::<NodeClaim>(&claims[0]).await;
    cluster.gate.assert_tripped();
    // The second vanishes during its termination.
    cluster.delete::<NodeClaim>(&claims[1]).await;
    cluster.pass(2).await;
    if cluster.names::<NodeClaim>().await.contains(&claims[1]) {
        cluster.remove_finalizers::<NodeClaim>(&claims[1]).await;
    }
    cluster.until_gone::<NodeClaim>(&claims[1]).await;
    cluster.until_running_of("web", 2).await;
    cluster.pass(300).await;
    assert_eq!(errors(&operator.metrics), before, "none of this is an error");
    assert_eq!(cluster.list::<KWOKInstance>().await.len(), 2);
    cluster.assert_no_leak().await;
}

// D-352, D-241: a deletion with a conflict causes no event for the NodeClaim; it is retried anyway.
#[tokio::test(start_paused = true)]
async fn d_352_a_deletion_that_meets_a_conflict_is_tried_again() {
    let short = json!({"template": {"spec": {"expireAfter": "10m"}}});
    let (cluster, _operator, claim) = Cluster::one_node(46, short).await;
    cluster.pass(500).await;
    cluster.gate.trip("/nodeclaims/", 409, 2);
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.gate.assert_tripped();
    cluster.until_running_of("web", 1).await;
}

// P-162: a launch whose result cannot be written is not done again.
#[tokio::test(start_paused = true)]
async fn p_162_a_launch_that_is_not_written_down_is_not_repeated() {
    let (cluster, _operator) = Cluster::started(41, json!({})).await;
    cluster.gate.trip("/nodeclaims/*/status", 500, 4);
    cluster.run("web", 1, "1").await;
    cluster.pass(60).await;
    cluster.gate.assert_tripped();
    assert_eq!(cluster.faults.launches.load(Ordering::Relaxed), 1);
    assert_eq!(cluster.list::<KWOKInstance>().await.len(), 1);
    cluster.assert_no_leak().await;
}

// D-311: a machine may be about to end; its pods do not wait for a write that tells of the drain.
#[tokio::test(start_paused = true)]
async fn d_311_a_status_that_cannot_be_written_holds_up_no_eviction() {
    let (cluster, _operator, claim) = Cluster::one_node(47, json!({})).await;
    cluster.gate.trip("/nodeclaims/*/status", 500, u32::MAX);
    cluster.delete::<NodeClaim>(&claim).await;
    let took = cluster
        .until("the pod is asked to go", async |cluster| {
            cluster.running_of("web").await == 0
        })
        .await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    cluster.gate.stumbles.lock().unwrap().clear();
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// P-147, D-048: a NodeClaim that was never launched and is gone holds nothing up.
#[tokio::test(start_paused = true)]
async fn p_147_d_048_a_nodeclaim_that_vanished_before_its_launch_holds_nothing_up() {
    let cluster = Cluster::new(42).await;
    cluster.teams_a_and_b_where_launches_of_a_hang().await;
    let operator = cluster.operator(Setup::default());
    let of = |team: &str| json!({"spec": {"nodeSelector": {"team": team}}});
    cluster
        .deploy_with("stuck", 1, template("stuck", "1", of("a")))
        .await;
    cluster
        .until("a launch hangs", async |cluster| {
            cluster.names::<NodeClaim>().await.len() == 1
        })
        .await;
    let synced = |metrics: &Metrics| metrics.render().contains("\nkarpenter_cluster_state_synced 1\n");
    cluster.pass(2).await;
    assert!(!synced(&operator.metrics), "the launch is under way");
    cluster.delete::<Deployment>("stuck").await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.remove_finalizers::<NodeClaim>(&claim).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(15).await;
    assert!(synced(&operator.metrics), "D-048");
    cluster
        .deploy_with("free", 1, template("free", "1", of("b")))
        .await;
    cluster.until_running_of("free", 1).await;
    assert_eq!(cluster.list::<Node>().await.len(), 1);
    cluster.assert_no_leak().await;
}

// A deleted Node whose finalizer was removed: the NodeClaim reports that its Node is missing, the pods run elsewhere, and the end of the
// NodeClaim takes the instance along.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_torn_away_is_told_and_its_pods_move() {
    let (cluster, _operator) = Cluster::started(43, json!({})).await;
    cluster.run("web", 1, "1").await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    let node = cluster.names::<Node>().await.remove(0);
    cluster.remove_finalizers::<Node>(&node).await;
    cluster.delete::<Node>(&node).await;
    cluster
        .until("the claim says that its Node is missing", async |cluster| {
            let told = cluster.told("NodeMissing").await;
            told.iter()
                .any(|(about, _)| *about == format!("NodeClaim/{claim}"))
                || !cluster.names::<NodeClaim>().await.contains(&claim)
        })
        .await;
    cluster.until_running_of("web", 1).await;
    if cluster.names::<NodeClaim>().await.contains(&claim) {
        cluster.delete::<NodeClaim>(&claim).await;
    }
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}
