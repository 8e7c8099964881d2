//! Expired nodes are removed on time, regardless of budgets, and many at once.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use serde_json::json;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::FeatureGates;

use crate::faulty::{Cluster, Running, Setup};
use crate::killable;
use crate::killable::stories::{by_hand_only, one_busy_node};
use crate::words::*;

/// One node with a pod, which expires after an hour, and its expiry time.
async fn an_hour_to_live() -> (Cluster, Running, String, Timestamp) {
    let expiring =
        json!({"template": {"spec": {"expireAfter": "1h"}}, "disruption": {"budgets": [{"nodes": "0"}]}});
    let (cluster, operator, claim) = Cluster::one_node(24, expiring).await;
    cluster.budget("web", json!({"minAvailable": 1})).await;
    let created = cluster.get::<NodeClaim>(&claim).await;
    let due = created.metadata.creation_timestamp.unwrap().0 + Duration::from_secs(3600);
    (cluster, operator, claim, due)
}

#[tokio::test(start_paused = true)]
async fn d_241_d_246_d_247_expiry_comes_on_time_whoever_objects_and_the_drain_still_respects_budgets() {
    let (cluster, _operator, claim, due) = an_hour_to_live().await;
    for node in cluster.names::<Node>().await {
        cluster
            .annotate::<Node>(&node, "karpenter.sh/do-not-disrupt", "true")
            .await;
    }
    cluster
        .clock
        .sleep(cluster.clock.until(due - Duration::from_secs(1)))
        .await;
    assert!(
        !cluster.get::<NodeClaim>(&claim).await.is_deleting(),
        "not before"
    );
    cluster.pass(3).await;
    assert!(
        cluster.get::<NodeClaim>(&claim).await.is_deleting(),
        "on time, whatever budgets and annotations say"
    );
    cluster.pass(600).await;
    assert_eq!(
        cluster.running_of("web").await,
        1,
        "the drain respects the PodDisruptionBudget"
    );
    cluster.delete::<PodDisruptionBudget>("web").await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn d_242_d_243_d_248_expiry_launches_nothing_in_advance_and_is_counted_once() {
    let (cluster, operator, claim, due) = an_hour_to_live().await;
    cluster.clock.sleep(cluster.clock.until(due)).await;
    assert_eq!(cluster.names::<NodeClaim>().await, [claim], "nothing in advance");
    // Capacity for the evicted pods is launched while their node drains.
    cluster
        .until("a second node waits for the pod", async |cluster| {
            cluster.list::<Node>().await.len() == 2
        })
        .await;
    cluster.pass(600).await;
    let labels = "reason=\"expired\"";
    for family in [
        "karpenter_nodeclaims_disrupted_total",
        "karpenter_pods_disruption_initiated_total",
    ] {
        assert_counted_once(&operator.metrics, family, labels);
    }
}

// W-20: nodes of the same age are all deleted within a minute. A tenth of a thousand nodes at a tenth of the default rate of requests; the whole
// thousand is `scale -- 1000 0 --expire`.
#[tokio::test(start_paused = true)]
async fn w_20_nodes_that_expire_at_once_all_start_within_a_minute() {
    const NODES: usize = 100;
    let options = spokeshave_cluster::Options {
        workloads: false,
        scheduler: false,
        volumes: false,
        disruption_budgets: false,
        ..spokeshave_cluster::Options::all()
    };
    let cluster = Cluster::with(15, options).await;
    let spec = json!({"replicas": NODES, "template": {"spec": {"expireAfter": "1h"}}});
    cluster.pool("fixed", spec).await;
    let gates = FeatureGates {
        static_capacity: true,
        ..FeatureGates::default()
    };
    let setup = Setup {
        rate: Some((20.0, 30)),
        ..Setup::with_gates(gates)
    };
    let operator = cluster.operator(setup);
    let count = async |cluster: &Cluster| cluster.list::<NodeClaim>().await.len();
    while count(&cluster).await < NODES {
        cluster.pass(10).await;
    }
    let claims = cluster.list::<NodeClaim>().await;
    let created = |claim: &NodeClaim| claim.metadata.creation_timestamp.as_ref().unwrap().0;
    let last = claims.iter().map(created).max().unwrap();
    let names: BTreeSet<String> = claims.iter().map(|claim| claim.name().to_owned()).collect();
    // P §16, invariant 41: the number of series does not grow with the nodes.
    let text = operator.metrics.render();
    let series = operator.metrics.series_count();
    assert!(series <= 500, "{series} series:\n{text}");
    assert!(
        !text.contains(names.first().unwrap()),
        "a series names a NodeClaim"
    );
    let deadline = last + Duration::from_secs(3600 + 60);
    cluster.clock.sleep(cluster.clock.until(deadline)).await;
    let idle = cluster
        .list::<NodeClaim>()
        .await
        .iter()
        .filter(|claim| names.contains(claim.name()) && !claim.is_deleting())
        .count();
    assert_eq!(
        idle, 0,
        "{idle} of {NODES} were not told to go a minute after the last was due"
    );
}

/// "Automated forceful methods will begin draining nodes as soon as the condition is met. Note that these methods blow past NodePool Disruption Budgets,
/// and do not wait for a pre-spin replacement node to be healthy" (seed 000; 004 alike; of 003, which has budgets bind expiry, D §10.2 topic 3 says
/// that it is wrong).
#[tokio::test(start_paused = true)]
async fn seed_000_seed_003_seed_004_expiry_asks_no_budget_and_waits_for_no_replacement() {
    let cluster = killable::Cluster::new(44, by_hand_only()).await;
    let expire = json!({"spec": {"template": {"spec": {"expireAfter": "10m"}}}});
    cluster.patch::<NodePool>("default", expire).await;
    let _operator = cluster.operator();
    one_busy_node(&cluster).await;
    let first = cluster.names::<NodeClaim>().await.remove(0);
    cluster
        .until("the first claim is told to go", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims
                .iter()
                .all(|claim| claim.name_any() != first || claim.is_deleting())
        })
        .await;
    assert_eq!(cluster.list::<Node>().await.len(), 1, "nothing came before");
    assert!(
        cluster.ledger().await.is_empty(),
        "no command: it is not voluntary"
    );
    cluster
        .until("another node has the pod", async |cluster| {
            let names = cluster.names::<NodeClaim>().await;
            cluster.running().await == 1 && names.len() == 1 && names[0] != first
        })
        .await;
}
