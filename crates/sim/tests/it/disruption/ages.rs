//! Soft ages of DisruptionPolicies through the whole stack: a wave of nodes of the same age is replaced within the budget, before `expireAfter`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool};

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

/// Nodes on their way out.
async fn leaving(cluster: &Cluster) -> usize {
    let claims = cluster.list::<NodeClaim>().await;
    let deleting = claims.iter().filter(|claim| claim.is_deleting());
    let mut names: BTreeSet<String> = deleting.map(|claim| claim.name().to_owned()).collect();
    let ledger = cluster.list::<Disruption>().await;
    for one in ledger.iter().filter(|one| !one.is_finished()) {
        names.extend(one.spec.nodes.iter().map(|node| node.node_claim.clone()));
    }
    names.len()
}

/// Nodes that were born within a minute and expire after 80 minutes go a few at a time from their 40th minute on, all of them by commands, although
/// the operator is killed in the middle. Returns the most that went at once.
async fn wave(seed: u64, nodes: usize, limit: usize) -> usize {
    let cluster = Cluster::new(seed, for_drift("100%")).await;
    let template = json!({"spec": {"template": {"spec": {"expireAfter": "80m"}}}});
    cluster.patch::<NodePool>("default", template).await;
    let spec = json!({"expiry": {"softPercent": 50}, "budgets": [{"limit": limit.to_string(), "reasons": ["Expired"]}]});
    let object = json!({"metadata": {"name": "age"}, "spec": spec});
    let _: DisruptionPolicy = cluster.create(object).await;
    let mut operator = Some(cluster.operator());
    cluster.deploy("web", i32::try_from(nodes).unwrap(), "6").await;
    cluster.until_running(nodes).await;
    let born = cluster.clock.now();
    let first: BTreeSet<String> = cluster.names::<NodeClaim>().await.into_iter().collect();
    assert_eq!(first.len(), nodes);
    let (mut most, mut by_command) = (0, BTreeSet::new());
    while cluster.clock.since(born).as_secs() < 78 * 60 {
        cluster.pass(10).await;
        most = most.max(leaving(&cluster).await);
        for one in cluster.list::<Disruption>().await {
            assert_eq!(one.spec.reason.as_str(), "Expired");
            by_command.extend(one.spec.nodes.iter().map(|node| node.node_claim.clone()));
        }
        if by_command.len() == nodes / 2
            && let Some(running) = operator.take()
        {
            running.kill().await;
            operator = Some(cluster.operator());
        }
        let here = cluster.names::<NodeClaim>().await;
        if here.iter().all(|name| !first.contains(name)) {
            break;
        }
    }
    assert!(first.is_subset(&by_command), "none was left for expireAfter");
    cluster.until_running(nodes).await;
    assert!(cluster.list::<Node>().await.len() >= nodes);
    most
}

/// Three hundred nodes with `FULL_SIZE` in the environment, which takes minutes.
#[tokio::test(start_paused = true)]
async fn invariant_27_a_wave_of_age_never_takes_more_at_once_than_its_budget() {
    let is_full = std::env::var_os("FULL_SIZE").is_some();
    let (nodes, limit) = if is_full { (300, 20) } else { (24, 3) };
    let most = wave(231, nodes, limit).await;
    assert!((2..=limit).contains(&most), "{most} at once");
}

/// Nodes that budgets do not allow in time are removed by `expireAfter`; a policy never delays it, and warns before.
#[tokio::test(start_paused = true)]
async fn the_hard_age_wins_over_freezes_and_is_told_of_before() {
    let cluster = Cluster::new(233, for_drift("100%")).await;
    let template = json!({"spec": {"template": {"spec": {"expireAfter": "3h"}}}});
    cluster.patch::<NodePool>("default", template).await;
    let spec = json!({"expiry": {"softPercent": 50}, "budgets": [{"limit": "0"}]});
    let object = json!({"metadata": {"name": "age"}, "spec": spec});
    let _: DisruptionPolicy = cluster.create(object).await;
    let operator = cluster.operator();
    one_busy_node(&cluster).await;
    let born = cluster.clock.now();
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.pass(600).await;
    let policy: DisruptionPolicy = cluster.get("age").await;
    let status = serde_json::to_value(policy.status).expect("JSON");
    assert_eq!(status["expiry"][0]["late"], 1, "long before it: {status}");
    let late = "spokeshave_disruption_policy_late_expirations";
    assert_eq!(value(&operator.metrics, late, r#"policy="age""#), 1.0);
    assert!(
        cluster
            .events("ExpiryTooSlow")
            .await
            .iter()
            .any(|text| text.contains("expireAfter")),
        "somebody is told"
    );
    cluster.pass(9_900).await;
    assert!(cluster.exists::<NodeClaim>(&claim).await, "not before its time");
    cluster.until_gone::<NodeClaim>(&claim).await;
    let age = cluster.clock.since(born).as_secs();
    assert!((10_700..=11_100).contains(&age), "{age} s");
}
