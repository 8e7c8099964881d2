//! Objects of an operator with another cloud in the same cluster: that operator launches, writes, drains, repairs and collects them, and nobody here does.

use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::FeatureGates;
use spokeshave_model::interruption::InterruptionKind;

use crate::faulty::{Cluster, Setup, message};
use crate::words::objects::Kind;
use crate::words::*;

/// The NodeClass of all that is theirs.
fn class() -> Value {
    json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"})
}

/// The provider ID of the machine of a NodeClaim.
fn machine(claim: &str) -> String {
    format!("aws:///zone-a/i-{claim}")
}

fn condition(cluster: &Cluster, kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": cluster.clock.now().to_string()})
}

/// A NodePool of theirs, changed by a merge patch of its spec: ready, as their operator says, with the label `team` of its name.
async fn their_pool(cluster: &Cluster, name: &str, change: Value) {
    let template = json!({"metadata": {"labels": {"team": name}}, "spec": {"nodeClassRef": class()}});
    let mut spec = json!({"template": template});
    json_patch::merge(&mut spec, &change);
    cluster.pool(name, spec).await;
    let ready = json!({"conditions": [condition(cluster, "Ready", "True")]});
    cluster.patch_status::<NodePool>(name, ready).await;
}

/// A NodeClaim of their NodePool `theirs`, changed by a merge patch, which nobody has launched yet.
async fn their_claim(cluster: &Cluster, name: &str, change: Value) {
    let labels = json!({"karpenter.sh/nodepool": "theirs"});
    let mut claim = json!({
        "metadata": {"name": name, "labels": labels, "finalizers": ["karpenter.sh/termination"]},
        "spec": {"nodeClassRef": class(), "requirements": []},
    });
    json_patch::merge(&mut claim, &change);
    cluster.create::<NodeClaim>(claim).await;
}

/// The same, whose machine has joined; its Node need not be there any more.
async fn their_joined_claim(cluster: &Cluster, name: &str, change: Value) {
    their_claim(cluster, name, change).await;
    let conditions = ["Launched", "Registered", "Initialized"].map(|kind| condition(cluster, kind, "True"));
    let status = json!({"providerID": machine(name), "nodeName": name, "conditions": conditions});
    cluster.patch_status::<NodeClaim>(name, status).await;
}

/// The Node of such a NodeClaim.
async fn their_node(cluster: &Cluster, name: &str, ready: &str) {
    let labels = json!({
        "karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/nodepool": "theirs",
        "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
    });
    let node = json!({
        "metadata": {"name": name, "labels": labels, "finalizers": ["karpenter.sh/termination"]},
        "spec": {"providerID": machine(name), "unschedulable": true},
    });
    cluster.create::<Node>(node).await;
    let status = json!({"conditions": [condition(cluster, "Ready", ready)]});
    cluster.patch_status::<Node>(name, status).await;
}

/// All that are theirs, with versions, which change with every write.
async fn theirs<K: Kind>(cluster: &Cluster) -> Vec<(String, Option<String>)> {
    let objects = cluster.list::<K>().await;
    let versions = objects.iter().map(|one| (one.name_any(), one.resource_version()));
    versions.filter(|(name, _)| name != "default").collect()
}

// D-299, D-356: whatever would be done to each of them if it were ours.
#[tokio::test(start_paused = true)]
async fn d_299_nodepools_and_nodeclaims_of_another_cloud_are_left_alone() {
    let cluster = Cluster::new(65).await;
    // The checkers take every NodeClaim for ours: each is to have its instance, and one that goes is to say what it waits for.
    cluster.excuse(11);
    cluster.excuse(13);
    let cloud = cluster.faults.speak();
    cluster.pool("default", json!({})).await;
    their_pool(&cluster, "theirs", json!({})).await;
    their_pool(&cluster, "fixed", json!({"replicas": 3})).await;
    // To be launched; to be deleted with its command; without Node or instance; expired, broken and interrupted; and going.
    their_claim(&cluster, "young", json!({})).await;
    let of_no_command = json!({"metadata": {"annotations": {"spokeshave.dev/disruption": "gone"}}});
    their_claim(&cluster, "orphaned", of_no_command).await;
    their_joined_claim(&cluster, "bare", json!({})).await;
    their_joined_claim(&cluster, "broken", json!({"spec": {"expireAfter": "1m"}})).await;
    their_node(&cluster, "broken", "False").await;
    their_joined_claim(&cluster, "going", json!({})).await;
    their_node(&cluster, "going", "True").await;
    cluster.delete::<NodeClaim>("going").await;
    cluster.delete::<Node>("going").await;
    // No other NodePool could take it.
    let there = json!({"spec": {"nodeSelector": {"team": "theirs"}}});
    cluster.pod("waiting", "1", there).await;
    let (claims, pools) = (
        theirs::<NodeClaim>(&cluster).await,
        theirs::<NodePool>(&cluster).await,
    );
    assert_eq!((claims.len(), pools.len()), (5, 2));
    let _operator = cluster.operator(Setup::with_gates(FeatureGates {
        node_repair: true,
        static_capacity: true,
        ..FeatureGates::default()
    }));
    cluster.pass(10).await;
    let interrupted = Ok(InterruptionKind::SpotInterrupted);
    let notice = message("notice", &machine("broken"), interrupted);
    cloud.unbounded_send(notice).unwrap();
    cluster.pass(30 * 60).await;
    assert_eq!(theirs::<NodeClaim>(&cluster).await, claims);
    assert_eq!(theirs::<NodePool>(&cluster).await, pools);
    for name in ["broken", "going"] {
        let node = cluster.get::<Node>(name).await;
        assert_eq!(node.finalizers(), ["karpenter.sh/termination"], "{name}");
        let is_going = node.metadata.deletion_timestamp.is_some();
        assert_eq!(is_going, name == "going", "{name}");
        let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
        let mut keys = taints.iter().map(|taint| taint.key.as_str());
        assert!(keys.all(|key| !key.starts_with("karpenter.sh/")), "{taints:?}");
    }
    assert_eq!(*cluster.faults.acknowledged.lock().unwrap(), ["notice"]);
    let launches = || cluster.faults.launches.load(Ordering::Relaxed);
    assert_eq!(launches(), 0);
    // What is ours goes on beside them.
    cluster.run_one_pod().await;
    assert_eq!(launches(), 1);
    cluster.assert_no_leak().await;
}

// D-036: what pods on their nodes do is written on their NodeClaims by their operator.
#[tokio::test(start_paused = true)]
async fn d_036_a_pod_on_a_node_of_another_cloud_is_not_written_on_its_nodeclaim() {
    let cluster = Cluster::new(66).await;
    their_pool(&cluster, "theirs", json!({})).await;
    their_joined_claim(&cluster, "busy", json!({})).await;
    their_node(&cluster, "busy", "True").await;
    let _operator = cluster.operator(Setup::default());
    cluster.pass(10).await;
    let before = theirs::<NodeClaim>(&cluster).await;
    let there = json!({"spec": {"nodeName": "busy"}});
    cluster.pod("guest", "10m", there).await;
    cluster.pass(60).await;
    assert_eq!(theirs::<NodeClaim>(&cluster).await, before);
}
