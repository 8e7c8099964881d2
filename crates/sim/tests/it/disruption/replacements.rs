//! What happens to the nodes of a command while it waits for its replacement, and to that while it waits for the pods.

use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use serde_json::json;
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::{NodeClaim, NodePool};

use crate::faulty::{Cluster, Running, Setup};
use crate::killable::stories::at_once;
use crate::words::*;

/// A node of eight cores on demand whose large pod is gone: the small one, of `web`, needs a cheaper node, as soon as anything is decided.
async fn one_under_used_node(seed: u64) -> (Cluster, Running) {
    let requirements = json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
    ]);
    let change = json!({"template": {"spec": {"requirements": requirements}}, "disruption": at_once()});
    let (cluster, operator) = Cluster::started(seed, change).await;
    cluster.deploy("large", 1, "6").await;
    cluster.deploy("web", 1, "500m").await;
    cluster.until_running(2).await;
    assert_eq!(cluster.names::<NodeClaim>().await.len(), 1);
    cluster.scale("large", 0).await;
    (cluster, operator)
}

/// D-098: a command knows its NodeClaims by their UIDs. One that a user has made anew under the name of another is none of them.
#[tokio::test(start_paused = true)]
async fn d_098_a_nodeclaim_that_is_made_anew_in_mid_command_is_another_one() {
    let (cluster, first) = one_under_used_node(44).await;
    cluster.until_phase(DisruptionPhase::Replacing).await;
    let name = cluster.ledger().await[0].spec.nodes[0].node_claim.clone();
    let old = cluster.get::<NodeClaim>(&name).await;
    assert!(old.condition("DisruptionReason").is_some());
    first.end().await;
    // Nobody is there to end the machine before its NodeClaim.
    cluster.excuse(14);
    cluster.remove_finalizers::<NodeClaim>(&name).await;
    cluster.delete::<NodeClaim>(&name).await;
    let anew = json!({
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": old.spec,
    });
    let new = cluster.create::<NodeClaim>(anew).await;
    // Nothing else is decided about it.
    let never = json!({"spec": {"disruption": {"consolidateAfter": "Never"}}});
    cluster.patch::<NodePool>("default", never).await;
    let _second = cluster.operator(Setup::default());
    cluster
        .until("the command has ended", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::Succeeded).await == 1
        })
        .await;
    // By then the replacement is up, and everything is deleted that the command wants to be gone.
    cluster.pass(180).await;
    let found = cluster.get::<NodeClaim>(&name).await;
    assert_eq!((found.uid(), found.is_deleting()), (new.uid(), false));
    assert_eq!(found.condition("DisruptionReason"), None);
    assert_eq!(cluster.ledger().await.len(), 1);
    cluster.until_running(1).await;
    cluster.assert_no_leak().await;
}

/// D-027, invariant 9: an empty replacement is kept for the pods that it has come for, but not for as long as a drain may hang. Provisioning plans for no pod that
/// its budget never lets go, so that only the command keeps it.
#[tokio::test(start_paused = true)]
async fn d_027_a_replacement_is_kept_for_the_pods_of_a_drain_that_is_held_up_and_not_for_ever() {
    let (cluster, _operator) = one_under_used_node(45).await;
    // The budget would keep the node if it were there before the drain: until it is, somebody else keeps the pod.
    let pod = cluster.pod_of("web").await.name_any();
    cluster.gate.refused.lock().unwrap().insert(pod, 403);
    cluster.until_phase(DisruptionPhase::Draining).await;
    cluster.budget("web", json!({"maxUnavailable": 0})).await;
    cluster.pass(5).await;
    cluster.gate.refused.lock().unwrap().clear();
    let ledger = cluster.ledger().await;
    let replacement = ledger[0].spec.replacements[0].node_claim.clone();
    for second in (0..540).step_by(10) {
        cluster.pass(10).await;
        let claim = cluster.get::<NodeClaim>(&replacement).await;
        assert!(!claim.is_deleting(), "after {second} s");
        assert_eq!(cluster.ledger().await.len(), 1, "after {second} s");
    }
    let launches = cluster.faults.launches.load(Ordering::Relaxed);
    assert_eq!(launches, 2, "the node, and one in its place");
    // Ten minutes are over before long.
    let took = cluster
        .until("the empty replacement goes", async |cluster| {
            cluster.ended("Empty", DisruptionPhase::Succeeded).await == 1
        })
        .await;
    assert!(took < Duration::from_secs(300), "{took:?}");
    assert!(!cluster.exists::<NodeClaim>(&replacement).await);
    assert_eq!(cluster.running_of("web").await, 1, "its budget keeps it");
    // When it may go, another node comes for it.
    let looser = json!({"spec": {"maxUnavailable": 1}});
    cluster.patch::<PodDisruptionBudget>("web", looser).await;
    cluster
        .until("the old node is gone", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::Succeeded).await == 1
        })
        .await;
    cluster.until_running(1).await;
    cluster.assert_no_leak().await;
}
