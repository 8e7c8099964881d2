//! Nodes that are taken out of their NodePool by the label of their NodeClaim, as one takes a machine out of a set to look at it.

use serde_json::{Value, json};
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::FeatureGates;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

/// NodeClaims of a NodePool, by their label, whose nodes can run pods.
async fn ready_of(cluster: &Cluster, pool: &str) -> Vec<String> {
    let mut claims = cluster.list::<NodeClaim>().await;
    claims.retain(|claim| claim.node_pool() == Some(pool) && !claim.is_deleting());
    claims.retain(|claim| claim.is_true("Initialized"));
    claims.iter().map(|claim| claim.name().to_owned()).collect()
}

/// A NodePool `fixed` with one node, and an operator that looks after it.
async fn fixed(seed: u64, limits: Value) -> (Cluster, Running) {
    let gates = FeatureGates {
        static_capacity: true,
        ..FeatureGates::default()
    };
    let disruption = json!({"budgets": [{"nodes": "100%"}]});
    let change = json!({"replicas": 1, "limits": limits, "disruption": disruption});
    let cluster = Cluster::new(seed).await;
    cluster.pool("fixed", change).await;
    let operator = cluster.operator(Setup::with_gates(gates));
    (cluster, operator)
}

/// Waits until the NodePool has its node, and gives the name of its NodeClaim.
async fn until_one(cluster: &Cluster) -> String {
    cluster
        .until("one node", async |cluster| {
            ready_of(cluster, "fixed").await.len() == 1
        })
        .await;
    ready_of(cluster, "fixed").await.remove(0)
}

/// Takes the node of the NodePool out of it, and gives the name of its NodeClaim.
async fn take_out(cluster: &Cluster) -> String {
    let taken_out = until_one(cluster).await;
    let label = json!({"metadata": {"labels": {"karpenter.sh/nodepool": "other"}}});
    cluster.patch::<NodeClaim>(&taken_out, label).await;
    taken_out
}

async fn drift(cluster: &Cluster) {
    let template = json!({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}});
    cluster.patch::<NodePool>("fixed", template).await;
}

// D-103, D-139: nor do they use up the limit on nodes, however many they are, where a replacement is made.
#[tokio::test(start_paused = true)]
async fn d_103_d_139_what_was_taken_out_of_a_static_pool_leaves_its_limit_to_its_own_nodes() {
    let (cluster, _operator) = fixed(88, json!({"nodes": "2"})).await;
    let taken_out = [take_out(&cluster).await, take_out(&cluster).await];
    let before = until_one(&cluster).await;
    drift(&cluster).await;
    cluster.until_gone::<NodeClaim>(&before).await;
    until_one(&cluster).await;
    let names = cluster.names::<NodeClaim>().await;
    assert!(
        taken_out.iter().all(|taken_out| names.contains(taken_out)),
        "{names:?}"
    );
    cluster.assert_no_leak().await;
}

// D-139, D-355: the NodePool makes another one in its place, and goes on replacing what has drifted of its own.
#[tokio::test(start_paused = true)]
async fn d_355_d_139_a_static_pool_replaces_its_own_nodes_whoever_was_taken_out_of_it() {
    let (cluster, _operator) = fixed(78, json!({})).await;
    let taken_out = take_out(&cluster).await;
    let before = until_one(&cluster).await;
    assert_ne!(before, taken_out);
    drift(&cluster).await;
    cluster.until_gone::<NodeClaim>(&before).await;
    until_one(&cluster).await;
    cluster.pass(600).await;
    assert_eq!(ready_of(&cluster, "fixed").await.len(), 1);
    let mut names = cluster.names::<NodeClaim>().await;
    assert_eq!(names.len(), 2, "{names:?}");
    names.retain(|name| *name == taken_out);
    assert_eq!(
        names,
        [taken_out.as_str()],
        "nobody's number, and nobody's to replace"
    );
    cluster.assert_no_leak().await;
}
