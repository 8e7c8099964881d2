//! Operators that were down, and answers that were lost: who comes next goes on where the world is, not where it would have been.

use std::time::Duration;

use serde_json::{Value, json};
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

/// Writes of the status of NodeClaims.
const STATUS: &str = "/nodeclaims/*/status";

/// A NodeClaim `alone`, which belongs to no NodePool.
fn alone() -> Value {
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let spec = json!({"nodeClassRef": class, "expireAfter": "Never", "requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"]},
    ]});
    json!({"metadata": {"name": "alone"}, "spec": spec})
}

async fn until_true(cluster: &Cluster, claim: &str, kind: &str) -> Duration {
    cluster
        .until(kind, async |cluster| {
            let said = cluster.condition(claim, kind).await;
            said.is_some_and(|(status, ..)| status == "True")
        })
        .await
}

/// What the NodePool says of the nodes that it has launched lately.
async fn health(cluster: &Cluster) -> String {
    let pool = cluster.get::<NodePool>("default").await;
    let one = pool.condition("NodeRegistrationHealthy").cloned();
    one.map(|one| one.status).unwrap_or_default()
}

// P-169, D-263: its time is over, for its launch or for its registration too, and nothing was tried.
#[tokio::test(start_paused = true)]
async fn p_169_d_263_a_nodeclaim_that_nobody_was_there_to_launch_is_launched_late() {
    for (seed, outage) in [(161, 400), (162, 1_200)] {
        let cluster = Cluster::new(seed).await;
        let first = cluster.operator(Setup::default());
        cluster.pass(30).await;
        first.end().await;
        cluster.create::<NodeClaim>(alone()).await;
        cluster.pass(outage).await;
        let operator = cluster.operator(Setup::default());
        let took = until_true(&cluster, "alone", "Initialized").await;
        assert!(took < Duration::from_secs(60), "{took:?}");
        cluster.pass(60).await;
        assert!(cluster.exists::<NodeClaim>("alone").await);
        let given_up = sum(&operator.metrics, "karpenter_nodeclaims_disrupted_total");
        assert_eq!(given_up, 0.0);
        cluster.assert_no_leak().await;
    }
}

// P-162, D-263: the machine runs, and nobody could write down whose it is before its time was over.
#[tokio::test(start_paused = true)]
async fn p_162_d_263_a_machine_whose_launch_was_not_written_in_time_is_taken_over() {
    let cluster = Cluster::new(163).await;
    cluster.pool("default", json!({})).await;
    let first = cluster.operator(Setup::default());
    cluster.gate.trip(STATUS, 500, u32::MAX);
    cluster.deploy("web", 1, "1").await;
    cluster
        .until("a machine", async |cluster| {
            !cluster.names::<KWOKInstance>().await.is_empty()
        })
        .await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    let machine = cluster.names::<KWOKInstance>().await.remove(0);
    first.end().await;
    cluster.pass(400).await;
    cluster.gate.stumbles.lock().unwrap().clear();
    let _second = cluster.operator(Setup::default());
    cluster.until_running_of("web", 1).await;
    until_true(&cluster, &claim, "Initialized").await;
    assert!(cluster.names::<KWOKInstance>().await.contains(&machine));
    cluster.assert_no_leak().await;
}

// The same operator writes it as soon as it can, as long as the node may still join.
#[tokio::test(start_paused = true)]
async fn p_162_d_263_a_launch_that_cannot_be_written_for_minutes_is_no_failed_launch() {
    let cluster = Cluster::new(164).await;
    cluster.pool("default", json!({})).await;
    let operator = cluster.operator(Setup::default());
    cluster.gate.trip(STATUS, 500, u32::MAX);
    cluster.deploy("web", 1, "1").await;
    cluster.pass(400).await;
    cluster.gate.stumbles.lock().unwrap().clear();
    cluster.until_running_of("web", 1).await;
    let labels = "reason=\"launch_timeout\"";
    let given_up = value(&operator.metrics, "karpenter_nodeclaims_disrupted_total", labels);
    assert_eq!(given_up, 0.0);
    cluster.assert_no_leak().await;
}

/// One node has joined, and the answer to the write that says so was lost.
async fn joined_unheard(seed: u64) -> (Cluster, Running) {
    let (cluster, operator) = Cluster::started(seed, json!({})).await;
    cluster.deploy("web", 1, "1").await;
    cluster
        .until("a NodeClaim", async |cluster| {
            !cluster.names::<NodeClaim>().await.is_empty()
        })
        .await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    until_true(&cluster, &claim, "Launched").await;
    *cluster.gate.lost.lock().unwrap() = Some(STATUS);
    until_true(&cluster, &claim, "Registered").await;
    (cluster, operator)
}

// P-182.
#[tokio::test(start_paused = true)]
async fn p_182_a_node_that_has_joined_counts_once_though_the_answer_was_lost() {
    let (cluster, operator) = joined_unheard(165).await;
    *cluster.gate.lost.lock().unwrap() = None;
    cluster.until_running_of("web", 1).await;
    cluster.pass(30).await;
    assert_eq!(health(&cluster).await, "True");
    let labels = "nodepool=\"default\"";
    assert_counted_once(&operator.metrics, "karpenter_nodes_created_total", labels);
}

// P-182, invariant 37.
#[tokio::test(start_paused = true)]
async fn p_182_a_node_that_has_joined_counts_though_the_operator_ended_right_after() {
    let (cluster, operator) = joined_unheard(166).await;
    operator.end().await;
    *cluster.gate.lost.lock().unwrap() = None;
    assert_ne!(health(&cluster).await, "True", "nobody has taken it in");
    let second = cluster.operator(Setup::default());
    cluster.until_running_of("web", 1).await;
    cluster.pass(30).await;
    assert_eq!(health(&cluster).await, "True");
    // What the health says already is not taken in once more.
    second.end().await;
    cluster.pass(60).await;
    let third = cluster.operator(Setup::default());
    cluster.pass(30).await;
    assert_eq!(health(&cluster).await, "True");
    let created = sum(&third.metrics, "karpenter_nodes_created_total");
    assert_eq!(created, 0.0, "by another one");
}
