//! Verdicts on NodeClaims whose status cannot be written: they come late, and nothing else does.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::Conditioned as _;

use crate::faulty::{Cluster, Running, Setup};
use crate::words::*;

/// Three empty nodes of each of two NodePools, of which no budget lets one go, with their verdicts.
async fn six_kept_nodes(seed: u64) -> (Cluster, Running) {
    let cluster = Cluster::new(seed).await;
    for team in ["a", "b"] {
        let change = json!({
            "template": {"metadata": {"labels": {"team": team}}},
            "disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "0"}]},
        });
        cluster.pool(team, change).await;
    }
    let operator = cluster.operator(Setup::default());
    for team in ["a", "b"] {
        let of_team = json!({"spec": {"nodeSelector": {"team": team}}});
        let pods = template(team, "5", of_team);
        cluster.deploy_with(team, 3, pods).await;
    }
    cluster.until_running(6).await;
    for team in ["a", "b"] {
        cluster.scale(team, 0).await;
    }
    // Until all is said, and nodes are worth to be judged again.
    cluster.pass(120).await;
    (cluster, operator)
}

/// Protects every node: each has another verdict after the next pass.
async fn protect(cluster: &Cluster) {
    for node in cluster.names::<Node>().await {
        cluster
            .annotate::<Node>(&node, "karpenter.sh/do-not-disrupt", "true")
            .await;
    }
}

/// How many NodeClaims of a NodePool say that their node is protected.
async fn told(cluster: &Cluster, pool: &str) -> usize {
    let claims = cluster.list::<NodeClaim>().await;
    let says_so = |claim: &&NodeClaim| {
        let verdict = claim.condition("spokeshave.dev/Disruptable");
        claim.node_pool() == Some(pool)
            && verdict.is_some_and(|verdict| verdict.message.contains("do-not-disrupt"))
    };
    claims.iter().filter(says_so).count()
}

/// Decisions wait for these writes: where all would fail, a turn tries one. What was to be said is said once it can be.
#[tokio::test(start_paused = true)]
async fn a_verdict_that_cannot_be_written_ends_the_turn_and_is_not_forgotten() {
    const MANY: u32 = 1_000;
    let (cluster, _operator) = six_kept_nodes(25).await;
    cluster.gate.trip("/nodeclaims/*/status", 500, MANY);
    let tries = || MANY - cluster.gate.stumbles.lock().unwrap()[0].2;
    protect(&cluster).await;
    cluster
        .until("a verdict cannot be written", async |_| tries() > 0)
        .await;
    cluster.pass(5).await;
    assert!(tries() <= 2, "{} tries", tries());
    cluster.gate.stumbles.lock().unwrap().clear();
    let took = cluster
        .until("all say it", async |cluster| {
            told(cluster, "a").await + told(cluster, "b").await == 6
        })
        .await;
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// Their names come first, and each turn ends with one of them; the next begins with those after it.
#[tokio::test(start_paused = true)]
async fn verdicts_that_are_always_denied_stop_no_other() {
    let (cluster, _operator) = six_kept_nodes(26).await;
    cluster.gate.trip("/nodeclaims/a-*/status", 403, u32::MAX);
    protect(&cluster).await;
    let took = cluster
        .until("others say it", async |cluster| told(cluster, "b").await == 3)
        .await;
    assert!(took < Duration::from_secs(120), "{took:?}");
    assert_eq!(told(&cluster, "a").await, 0);
    cluster.gate.stumbles.lock().unwrap().clear();
    let took = cluster
        .until("all say it", async |cluster| told(cluster, "a").await == 3)
        .await;
    assert!(took < Duration::from_secs(30), "{took:?}");
}
