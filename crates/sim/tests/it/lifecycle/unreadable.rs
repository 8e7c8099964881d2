//! NodeClaims that cannot be read, as a later version may have written them: they are not gone, and what belongs to them waits for them.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_model::interruption::InterruptionKind;

use crate::faulty::{Cluster, Setup, message};
use crate::words::*;

// D-308, invariants 11 and 14: without its Node the instance would run on, and nobody knows how long its pods may take. So it is over a restart, too.
#[tokio::test(start_paused = true)]
async fn d_308_a_node_that_is_deleted_waits_for_a_claim_that_cannot_be_read() {
    let (cluster, first, claim) = Cluster::one_node(65, json!({})).await;
    let node = cluster.node_of("web").await;
    cluster.allow_any::<NodeClaim>().await;
    cluster.garble_claim(&claim).await;
    cluster.pass(5).await;
    cluster.delete::<Node>(&node).await;
    cluster.pass(120).await;
    first.end().await;
    let _second = cluster.operator(Setup::default());
    cluster.pass(120).await;
    assert_eq!(cluster.node_of("web").await, node, "not even drained");
    let about = format!("Node/{node}");
    let told = cluster.told("TerminationBlocked").await;
    assert!(
        told.iter()
            .any(|(object, text)| *object == about && text.contains(&claim)),
        "{told:?}"
    );
    cluster.restore_claim(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    assert!(!cluster.exists::<Node>(&node).await);
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// D-317, invariant 14.
#[tokio::test(start_paused = true)]
async fn d_317_a_claim_that_becomes_unreadable_in_mid_drain_keeps_its_node() {
    let (cluster, _operator, claim) = Cluster::one_node(66, json!({})).await;
    let node = cluster.node_of("web").await;
    cluster.allow_any::<NodeClaim>().await;
    cluster.budget("web", json!({"maxUnavailable": 0})).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.pass(20).await;
    cluster.garble_claim(&claim).await;
    cluster.pass(5).await;
    cluster.delete::<PodDisruptionBudget>("web").await;
    cluster.pass(120).await;
    assert!(cluster.exists::<Node>(&node).await, "its instance runs");
    cluster.restore_claim(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    assert!(!cluster.exists::<Node>(&node).await);
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// D-278: an instance that no NodeClaim names may be that of one that cannot be read.
#[tokio::test(start_paused = true)]
async fn d_278_a_message_waits_for_a_claim_that_cannot_be_read() {
    let cluster = Cluster::new(123).await;
    let cloud = cluster.faults.speak();
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::default());
    let claim = cluster.run_one_pod().await;
    let object = cluster.get::<NodeClaim>(&claim).await;
    cluster.allow_any::<NodeClaim>().await;
    cluster.garble_claim(&claim).await;
    cluster.pass(5).await;
    let interrupted = Ok(InterruptionKind::SpotInterrupted);
    let notice = message("notice", object.provider_id().unwrap(), interrupted);
    cloud.unbounded_send(notice).unwrap();
    cluster.pass(120).await;
    let acknowledged = || cluster.faults.acknowledged.lock().unwrap().clone();
    assert!(acknowledged().is_empty(), "{:?}", acknowledged());
    cluster.restore_claim(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    assert_eq!(acknowledged(), ["notice"]);
    cluster.assert_no_leak().await;
}

// Who only looks is told of it: without its NodeClaim a node looks as if nobody managed it.
#[tokio::test(start_paused = true)]
async fn an_observer_names_a_claim_that_cannot_be_read() {
    let (cluster, operator, claim) = Cluster::one_node(67, json!({})).await;
    let seen = operator.observer.observe().await.expect("it leads");
    assert!(seen.unreadable.is_empty(), "{:?}", seen.unreadable);
    cluster.allow_any::<NodeClaim>().await;
    cluster.garble_claim(&claim).await;
    cluster.pass(5).await;
    let seen = operator.observer.observe().await.expect("it leads");
    let named = seen.unreadable.iter();
    let named: Vec<(&str, &str)> = named
        .map(|(kind, key, _)| (kind.as_str(), key.name.as_str()))
        .collect();
    assert_eq!(named, [("NodeClaim", claim.as_str())]);
    let (_, _, problem) = seen.unreadable.first().unwrap();
    assert!(
        problem.starts_with("spec.taints: invalid type: string \"none\""),
        "{problem}"
    );
    cluster.restore_claim(&claim).await;
    cluster.pass(5).await;
    let seen = operator.observer.observe().await.expect("it leads");
    assert!(seen.unreadable.is_empty(), "{:?}", seen.unreadable);
}

// P-207: it has joined once, whatever was written into its NodeClaim since.
#[tokio::test(start_paused = true)]
async fn p_207_a_node_is_counted_once_although_its_claim_could_not_be_read_meanwhile() {
    let (cluster, operator, claim) = Cluster::one_node(68, json!({})).await;
    let joined = || sum(&operator.metrics, "karpenter_nodes_created_total");
    assert_eq!(joined(), 1.0);
    cluster.allow_any::<NodeClaim>().await;
    for _ in 0..2 {
        cluster.garble_claim(&claim).await;
        cluster.pass(5).await;
        cluster.restore_claim(&claim).await;
        cluster.pass(5).await;
    }
    assert_eq!(joined(), 1.0);
}
