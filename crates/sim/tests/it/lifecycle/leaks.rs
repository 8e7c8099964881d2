//! Inconsistent objects: from clouds that report or list wrongly, and from users who edit and delete. Nothing that runs is lost,
//! and nothing is left over.

use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;
use spokeshave_api::{KWOKInstance, NodeClaim};
use spokeshave_provider_kwok::KwokOptions;

use crate::faulty::{Cluster, Setup};
use crate::words::*;

/// The NodePool has an event that names the NodeClaim whose instance was left over.
async fn assert_told_of_leaked(cluster: &Cluster, claim: &str) {
    let told = cluster.told("LeakedInstanceTerminated").await;
    assert!(
        told.iter()
            .any(|(about, text)| about == "NodePool/default" && text.contains(claim)),
        "{told:?}"
    );
}

// D-252, D-253, invariant 11: a cloud that says "gone" of an instance that runs cannot make us lose it.
#[tokio::test(start_paused = true)]
async fn d_253_a_cloud_that_lies_about_the_end_is_found_out() {
    let (cluster, _operator, claim) = Cluster::one_node(6, json!({})).await;
    // The finalizer is removed because of a wrong reply of the cloud.
    cluster.excuse(14);
    cluster.faults.lies.store(true, Ordering::Relaxed);
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.faults.lies.store(false, Ordering::Relaxed);
    cluster
        .until("the instance that was lied about is ended", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            let instances = cluster.list::<KWOKInstance>().await;
            instances.iter().all(|instance| {
                claims
                    .iter()
                    .any(|claim| claim.uid() == instance.spec.node_claim_uid)
            })
        })
        .await;
    cluster.until_running_of("web", 1).await;
    assert_told_of_leaked(&cluster, &claim).await;
}

// D-252: an instance that terminates at once is reported, and its Node is removed with it.
#[tokio::test(start_paused = true)]
async fn d_252_a_leaked_instance_that_ends_at_once_takes_its_node_along() {
    let cluster = Cluster::new(62).await;
    cluster.pool("default", json!({})).await;
    let at_once = || Setup::with_cloud(KwokOptions::default());
    let first = cluster.operator(at_once());
    let claim = cluster.run_one_pod().await;
    let node = cluster.names::<Node>().await.remove(0);
    first.end().await;
    // The NodeClaim is removed and its Node is left, while the operator is down.
    cluster.excuse(14);
    cluster.clock.sleep(Duration::from_secs(60)).await;
    cluster.remove_finalizers::<NodeClaim>(&claim).await;
    cluster.delete_alone::<NodeClaim>(&claim).await;
    let _second = cluster.operator(at_once());
    cluster.until_gone::<Node>(&node).await;
    cluster.until_running_of("web", 1).await;
    assert_told_of_leaked(&cluster, &claim).await;
    cluster.assert_no_leak().await;
}

// D-252: then the cloud lists the instance no more, and its Node would be left.
#[tokio::test(start_paused = true)]
async fn d_252_the_node_of_a_leaked_instance_goes_though_its_deletion_fails_once() {
    let cluster = Cluster::new(65).await;
    cluster.pool("default", json!({})).await;
    let at_once = || Setup::with_cloud(KwokOptions::default());
    let first = cluster.operator(at_once());
    let claim = cluster.run_one_pod().await;
    let node = cluster.names::<Node>().await.remove(0);
    first.end().await;
    cluster.excuse(14);
    cluster.pass(60).await;
    cluster.remove_finalizers::<NodeClaim>(&claim).await;
    cluster.delete_alone::<NodeClaim>(&claim).await;
    cluster.gate.trip("/nodes/", 500, 1);
    let _second = cluster.operator(at_once());
    cluster.until_gone::<Node>(&node).await;
    cluster.gate.assert_tripped();
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

/// What needs no list of the cloud: Nodes that were taken away, and replacements of commands that are no more.
#[tokio::test(start_paused = true)]
async fn d_253_w_33_a_cloud_that_cannot_list_keeps_no_other_garbage() {
    let (cluster, first, claim) = Cluster::one_node(66, json!({})).await;
    let node = cluster.names::<Node>().await.remove(0);
    first.end().await;
    cluster.excuse(14);
    let denied = "not authorized to perform: ec2:DescribeInstances";
    *cluster.faults.list_error.lock().unwrap() = Some(denied.to_owned());
    cluster.remove_finalizers::<Node>(&node).await;
    cluster.delete::<Node>(&node).await;
    let _second = cluster.operator(Setup::default());
    // A replacement whose launch never answers.
    {
        let mut hanging = cluster.faults.hanging_pools.lock().unwrap();
        hanging.insert("other".to_owned());
    }
    cluster.pool("other", json!({"limits": {"cpu": "0"}})).await;
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let requirements = json!([{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]);
    let labels = json!({"karpenter.sh/nodepool": "other"});
    let annotations = json!({"spokeshave.dev/disruption": "deleted"});
    cluster
        .create::<NodeClaim>(json!({
            "metadata": {"name": "spare", "labels": labels, "annotations": annotations},
            "spec": {"nodeClassRef": class, "expireAfter": "Never", "requirements": requirements},
        }))
        .await;
    let took = cluster
        .until("the replacement goes", async |cluster| {
            let spare = cluster.find::<NodeClaim>("spare").await;
            spare.is_none_or(|spare| spare.is_deleting())
        })
        .await;
    let early = Duration::from_secs(200);
    assert!(took < early, "before its launch times out: {took:?}");
    let took = cluster.until_gone::<NodeClaim>(&claim).await;
    assert!(took < Duration::from_secs(1_100), "{took:?}");
    assert!(!cluster.events("NodeMissing").await.is_empty());
    *cluster.faults.list_error.lock().unwrap() = None;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// D-252: a NodeClaim that cannot be read, as a later version may have written it, is not gone: what runs for it runs on, over a restart too.
#[tokio::test(start_paused = true)]
async fn d_252_the_instance_of_a_claim_that_cannot_be_read_is_not_leaked() {
    let (cluster, first, claim) = Cluster::one_node(64, json!({})).await;
    cluster.allow_any::<NodeClaim>().await;
    cluster.garble_claim(&claim).await;
    cluster.pass(600).await;
    first.end().await;
    let _second = cluster.operator(Setup::default());
    cluster.pass(600).await;
    let instances = cluster.list::<KWOKInstance>().await;
    let names: Vec<&str> = instances
        .iter()
        .map(|one| one.spec.node_claim_name.as_str())
        .collect();
    assert_eq!(names, [claim.as_str()]);
    assert_eq!(cluster.running_of("web").await, 1);
    assert!(cluster.told("LeakedInstanceTerminated").await.is_empty());
    // It can be read again and is managed as before.
    cluster.restore_claim(&claim).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// D-253: a Node that was removed including finalizers is detected, reported and replaced, although its instance is running.
#[tokio::test(start_paused = true)]
async fn d_253_a_claim_whose_node_was_taken_away_is_told_and_goes_after_fifteen_minutes() {
    let (cluster, first, claim) = Cluster::one_node(63, json!({})).await;
    let node = cluster.names::<Node>().await.remove(0);
    first.end().await;
    cluster.excuse(14);
    cluster.remove_finalizers::<Node>(&node).await;
    cluster.delete::<Node>(&node).await;
    let _second = cluster.operator(Setup::default());
    cluster.pass(5 * 60).await;
    let about = format!("NodeClaim/{claim}");
    let told = cluster.told("NodeMissing").await;
    assert!(
        told.iter()
            .any(|(object, text)| *object == about && text.contains(&node)),
        "{told:?}"
    );
    cluster.pass(9 * 60).await;
    assert!(
        cluster.names::<NodeClaim>().await.contains(&claim),
        "its Node may still come back"
    );
    cluster.pass(4 * 60).await;
    assert!(
        !cluster.names::<NodeClaim>().await.contains(&claim),
        "{:?}",
        cluster.names::<NodeClaim>().await
    );
    assert!(!cluster.events("NodeMissingTooLong").await.is_empty());
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

// D-249, D-250: lists that come late or twice end nothing that runs.
#[tokio::test(start_paused = true)]
async fn d_249_late_and_doubled_lists_end_nothing_that_runs() {
    let (cluster, _operator) = Cluster::started(7, json!({})).await;
    cluster.faults.duplicates.store(true, Ordering::Relaxed);
    cluster.run("web", 3, "6").await;
    let before = cluster.names::<NodeClaim>().await;
    let ids = cluster.list::<NodeClaim>().await;
    let ids = ids
        .iter()
        .filter_map(|claim| claim.provider_id().map(str::to_owned));
    cluster.faults.unlisted.lock().unwrap().extend(ids);
    cluster.pass(600).await;
    assert_eq!(cluster.names::<NodeClaim>().await, before);
    assert_eq!(cluster.running_of("web").await, 3);
}

#[tokio::test(start_paused = true)]
async fn nodes_without_or_with_a_foreign_provider_id_are_told_and_left_alone() {
    let (cluster, _operator) = Cluster::started(8, json!({})).await;
    let labels = json!({"karpenter.sh/nodepool": "default"});
    for (name, spec) in [
        ("nameless", json!({})),
        ("foreign", json!({"providerID": "aws:///zone-a/i-0123"})),
    ] {
        cluster
            .create::<Node>(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))
            .await;
    }
    cluster.run("web", 1, "1").await;
    cluster.pass(120).await;
    let about = |told: Vec<(String, String)>| told.into_iter().map(|(about, _)| about).collect::<Vec<_>>();
    assert_eq!(about(cluster.told("ProviderIDMissing").await), ["Node/nameless"]);
    assert_eq!(about(cluster.told("NodeClaimMissing").await), ["Node/foreign"]);
    let nodes = cluster.names::<Node>().await;
    assert!(nodes.contains(&"nameless".to_owned()) && nodes.contains(&"foreign".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn d_307_claims_edited_by_hand_are_mended_or_told() {
    let (cluster, _operator) = Cluster::started(9, json!({})).await;
    cluster.run("web", 2, "6").await;
    let claims = cluster.names::<NodeClaim>().await;
    let [one, two] = &claims[..] else {
        panic!("two claims: {claims:?}")
    };
    let id = async |name: &str| {
        let claim = cluster.get::<NodeClaim>(name).await;
        claim.provider_id().map(str::to_owned)
    };
    // A removed provider ID is restored.
    let own = id(one).await;
    cluster
        .patch_status::<NodeClaim>(one, json!({"providerID": null}))
        .await;
    cluster
        .until("the provider ID is back", async |_| id(one).await == own)
        .await;
    // A removed finalizer is restored.
    cluster.remove_finalizers::<NodeClaim>(one).await;
    cluster
        .until("the finalizer is back", async |cluster| {
            let claim = cluster.get::<NodeClaim>(one).await;
            claim
                .finalizers()
                .iter()
                .any(|name| name == "karpenter.sh/termination")
        })
        .await;
    // Another's provider ID is reported, and the other's instance survives the claim.
    // The claim's own instance is no longer known to it, and is garbage-collected.
    cluster.excuse(14);
    let stolen = id(two).await.unwrap();
    cluster
        .patch_status::<NodeClaim>(one, json!({"providerID": stolen}))
        .await;
    cluster.pass(30).await;
    assert!(!cluster.events("ProviderIDShared").await.is_empty());
    cluster.delete::<NodeClaim>(one).await;
    cluster.until_gone::<NodeClaim>(one).await;
    cluster.pass(300).await;
    assert!(
        cluster.names::<NodeClaim>().await.contains(two),
        "the other was not touched"
    );
    let instances = cluster.list::<KWOKInstance>().await;
    assert!(
        instances.iter().any(|instance| stolen.ends_with(instance.name())),
        "the other's instance runs on"
    );
    cluster.until_running_of("web", 2).await;
    cluster.assert_no_leak().await;
}
