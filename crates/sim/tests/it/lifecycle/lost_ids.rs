//! NodeClaims whose `status.providerID` somebody takes away: it is found again, and their machines stay what they are. Nothing is launched in their place.

use std::sync::atomic::Ordering;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::{KWOKInstance, NodeClaim};

use crate::faulty::{Cluster, Setup};
use crate::words::*;

async fn id_of(cluster: &Cluster, claim: &str) -> Option<String> {
    let claim = cluster.find::<NodeClaim>(claim).await?;
    claim.provider_id().map(str::to_owned)
}

async fn take_id(cluster: &Cluster, claim: &str) {
    let nothing = json!({"providerID": null});
    cluster.patch_status::<NodeClaim>(claim, nothing).await;
}

async fn until_found(cluster: &Cluster, claim: &str, id: &str) {
    cluster
        .until("the provider ID is back", async |cluster| {
            id_of(cluster, claim).await.as_deref() == Some(id)
        })
        .await;
}

/// Waits until a NodeClaim is launched, and gives its name.
async fn until_launched(cluster: &Cluster) -> String {
    let mut found = None;
    cluster
        .until("it is launched", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            let launched = claims.iter().find(|claim| claim.is_true("Launched"));
            found = launched.map(|claim| claim.name().to_owned());
            found.is_some()
        })
        .await;
    found.unwrap()
}

/// Requested launches so far.
fn launches(cluster: &Cluster) -> u64 {
    cluster.faults.launches.load(Ordering::Relaxed)
}

// D-307, invariant 11: the Node knows it, whatever the cloud has to sell, and whether or not it lists the instance.
#[tokio::test(start_paused = true)]
async fn d_307_a_removed_provider_id_comes_from_the_node_and_nothing_is_launched() {
    let (cluster, first, claim) = Cluster::one_node(71, json!({})).await;
    let id = id_of(&cluster, &claim).await.unwrap();
    cluster
        .faults
        .short_pools
        .lock()
        .unwrap()
        .insert("default".to_owned());
    cluster.faults.unlisted.lock().unwrap().insert(id.clone());
    let before = launches(&cluster);
    take_id(&cluster, &claim).await;
    until_found(&cluster, &claim, &id).await;
    // Whoever starts afterwards remembers no launch.
    first.end().await;
    take_id(&cluster, &claim).await;
    let _second = cluster.operator(Setup::default());
    until_found(&cluster, &claim, &id).await;
    cluster.pass(600).await;
    assert_eq!(launches(&cluster), before);
    assert_eq!(cluster.names::<NodeClaim>().await, [claim.as_str()]);
    assert_eq!(cluster.running_of("web").await, 1);
    cluster.faults.unlisted.lock().unwrap().clear();
    cluster.assert_tidy().await;
}

// D-307: before its Node has joined, the cloud knows it by the NodeClaim's UID.
#[tokio::test(start_paused = true)]
async fn d_307_a_removed_provider_id_comes_from_the_cloud_where_no_node_has_joined() {
    let (cluster, _operator) = Cluster::started(72, json!({})).await;
    cluster.deploy("web", 1, "1").await;
    let claim = until_launched(&cluster).await;
    let registered = cluster.condition(&claim, "Registered").await;
    assert!(registered.is_none_or(|(status, ..)| status != "True"));
    let id = id_of(&cluster, &claim).await.unwrap();
    let before = launches(&cluster);
    take_id(&cluster, &claim).await;
    until_found(&cluster, &claim, &id).await;
    cluster.until_running_of("web", 1).await;
    assert_eq!(launches(&cluster), before);
    cluster.assert_tidy().await;
}

// Invariants 13 and 30: one that is deleted without its provider ID is drained all the same.
#[tokio::test(start_paused = true)]
async fn d_307_a_nodeclaim_without_provider_id_is_drained_before_its_instance_ends() {
    let (cluster, first, claim) = Cluster::one_node(73, json!({})).await;
    cluster.budget("web", json!({"minAvailable": 1})).await;
    cluster.pass(5).await;
    first.end().await;
    take_id(&cluster, &claim).await;
    cluster.delete::<NodeClaim>(&claim).await;
    let _second = cluster.operator(Setup::default());
    cluster.until_blocked(&claim, "PodDisruptionBudget").await;
    assert_eq!(cluster.running_of("web").await, 1);
    let instances = cluster.list::<KWOKInstance>().await;
    assert!(
        instances
            .iter()
            .any(|instance| instance.spec.node_claim_name == claim),
        "it has what its pod needs"
    );
    cluster.delete::<PodDisruptionBudget>("web").await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// Where nobody knows its instance any more, a NodeClaim whose node has not joined ends when that takes too long.
#[tokio::test(start_paused = true)]
async fn d_307_a_launched_nodeclaim_whose_instance_nobody_knows_is_given_up_and_not_launched_again() {
    let (cluster, _operator) = Cluster::started(74, json!({})).await;
    cluster.deploy("web", 1, "1").await;
    let claim = until_launched(&cluster).await;
    let id = id_of(&cluster, &claim).await.unwrap();
    // The machine ends, as it may, and with it whatever would tell of it.
    cluster.excuse(11);
    cluster
        .delete::<KWOKInstance>(id.strip_prefix("kwok://").unwrap())
        .await;
    let before = launches(&cluster);
    take_id(&cluster, &claim).await;
    cluster.pass(600).await;
    assert_eq!(launches(&cluster), before, "its node may still join");
    assert_eq!(cluster.names::<NodeClaim>().await, [claim.as_str()]);
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_tidy().await;
}
