//! Nodes that somebody takes away, finalizers and all, while their machines run on: a kubelet that starts again makes its Node anew, as it made the first one.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, NodeClaim};

use crate::faulty::{Cluster, Setup};
use crate::words::*;

const REGISTERED: &str = "karpenter.sh/registered";
const INITIALIZED: &str = "karpenter.sh/initialized";
const UNREGISTERED: &str = "karpenter.sh/unregistered";

/// Takes a Node away and gives what its kubelet makes of it when it starts again.
async fn take_away(cluster: &Cluster, node: &str) -> Value {
    let before = cluster.get::<Node>(node).await;
    cluster.remove_finalizers::<Node>(node).await;
    cluster.delete::<Node>(node).await;
    let mut labels = before.labels().clone();
    labels.retain(|key, _| key != REGISTERED && key != INITIALIZED);
    let mut annotations = before.annotations().clone();
    annotations.retain(|key, _| key.starts_with("kwok"));
    let (spec, status) = (before.spec.unwrap(), before.status.unwrap());
    json!({
        "metadata": {"name": node, "labels": labels, "annotations": annotations},
        "spec": {"providerID": spec.provider_id, "taints": [{"key": UNREGISTERED, "effect": "NoExecute"}]},
        "status": {"capacity": status.capacity, "allocatable": status.allocatable},
    })
}

fn is_labelled(node: &Node, key: &str) -> bool {
    node.labels().get(key).is_some_and(|value| value == "true")
}

fn has_taint(node: &Node, key: &str) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == key)
}

async fn until_initialized(cluster: &Cluster, node: &str) {
    cluster
        .until(&format!("{node} can run pods"), async |cluster| {
            let found = cluster.find::<Node>(node).await;
            found.is_some_and(|node| is_labelled(&node, REGISTERED) && is_labelled(&node, INITIALIZED))
        })
        .await;
}

// D-253, invariants 12 and 22: also when the operator was not there to see it.
#[tokio::test(start_paused = true)]
async fn d_253_a_node_that_comes_back_is_registered_again_and_takes_pods() {
    for (seed, sees_it) in [(66, true), (67, false)] {
        let (cluster, first, claim) = Cluster::one_node(seed, json!({})).await;
        let node = cluster.node_of("web").await;
        let operator = if sees_it {
            let anew = take_away(&cluster, &node).await;
            cluster.create::<Node>(anew).await;
            first
        } else {
            first.end().await;
            let anew = take_away(&cluster, &node).await;
            cluster.create::<Node>(anew).await;
            cluster.operator(Setup::default())
        };
        until_initialized(&cluster, &node).await;
        let back = cluster.get::<Node>(&node).await;
        let claim = cluster.get::<NodeClaim>(&claim).await;
        assert!(!has_taint(&back, UNREGISTERED), "{:?}", back.spec);
        assert_eq!(back.finalizers(), ["karpenter.sh/termination"]);
        let owners: Vec<&str> = back
            .owner_references()
            .iter()
            .map(|one| one.uid.as_str())
            .collect();
        assert_eq!(owners, [claim.uid()]);
        let host = json!({"kubernetes.io/hostname": back.labels()["kubernetes.io/hostname"]});
        cluster
            .pod("here", "100m", json!({"spec": {"nodeSelector": host}}))
            .await;
        cluster.until_running_of("here", 1).await;
        cluster.until_running_of("web", 1).await;
        // What was launched for its pods meanwhile has joined by then.
        cluster.pass(90).await;
        assert!(
            cluster.told("NodeMissing").await.is_empty(),
            "it was back at once"
        );
        if sees_it {
            // One that comes back was not launched.
            let launched = sum(&operator.metrics, "karpenter_nodeclaims_created_total");
            assert_eq!(sum(&operator.metrics, "karpenter_nodes_created_total"), launched);
        }
        cluster.assert_tidy().await;
    }
}

/// Removes the startup taint from all nodes but one, as an agent that runs on the others.
async fn prepare(cluster: &Cluster, but: &str) {
    for node in cluster.list::<Node>().await {
        let name = node.name_any();
        if name == but || !has_taint(&node, "agent") {
            continue;
        }
        let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        taints.retain(|taint| taint.key != "agent");
        cluster
            .patch::<Node>(&name, json!({"spec": {"taints": taints}}))
            .await;
    }
}

async fn until_running_where_prepared(cluster: &Cluster, count: usize, but: &str) {
    cluster
        .until(&format!("{count} pods of web run"), async |cluster| {
            prepare(cluster, but).await;
            cluster.running_of("web").await == count
        })
        .await;
}

// Nothing limits the time in which a Node gets ready that has been so before: no pod may wait for it meanwhile.
#[tokio::test(start_paused = true)]
async fn d_253_no_pod_waits_for_a_node_that_comes_back_and_does_not_get_ready() {
    let startup = json!([{"key": "agent", "effect": "NoSchedule"}]);
    let change = json!({"template": {"spec": {"startupTaints": startup}}});
    let (cluster, _operator) = Cluster::started(68, change).await;
    cluster.deploy("web", 1, "1").await;
    until_running_where_prepared(&cluster, 1, "").await;
    let node = cluster.node_of("web").await;
    until_initialized(&cluster, &node).await;
    let anew = take_away(&cluster, &node).await;
    // Made at a later time than its NodeClaim was initialised.
    cluster.pass(2).await;
    cluster.create::<Node>(anew).await;
    until_running_where_prepared(&cluster, 1, &node).await;
    cluster.scale("web", 2).await;
    until_running_where_prepared(&cluster, 2, &node).await;
    let back = cluster.get::<Node>(&node).await;
    assert!(is_labelled(&back, REGISTERED) && !is_labelled(&back, INITIALIZED));
    assert!(has_taint(&back, "agent"), "its agent has not started yet");
    prepare(&cluster, "").await;
    until_initialized(&cluster, &node).await;
}

// Its NodeClaim is on its way out: nothing holds the Node up that comes back, and nothing is left.
#[tokio::test(start_paused = true)]
async fn d_253_a_node_that_comes_back_to_a_nodeclaim_that_goes_goes_too() {
    let (cluster, _operator, claim) = Cluster::one_node(69, json!({})).await;
    let node = cluster.node_of("web").await;
    let anew = take_away(&cluster, &node).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.create::<Node>(anew).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_gone::<Node>(&node).await;
    cluster.until_running_of("web", 1).await;
    assert_eq!(cluster.list::<KWOKInstance>().await.len(), 1);
    cluster.assert_no_leak().await;
}

// D-307: whoever looks first must not get the Node that comes back, whose owner would then end with the wrong one.
#[tokio::test(start_paused = true)]
async fn d_253_d_307_a_node_that_comes_back_is_nobodys_while_two_claim_its_instance() {
    for (seed, position) in [(80, 0), (81, 1)] {
        let (cluster, _operator) = Cluster::started(seed, json!({})).await;
        cluster.run("web", 2, "6").await;
        let mut claims = cluster.names::<NodeClaim>().await;
        assert_eq!(claims.len(), 2, "{claims:?}");
        let thief = claims.remove(position);
        let owner = cluster.get::<NodeClaim>(&claims[0]).await;
        let node = owner.node_name().unwrap().to_owned();
        // Nobody knows the instance of the other any more, and it is garbage-collected.
        cluster.excuse(14);
        let stolen = json!({"providerID": owner.provider_id()});
        cluster.patch_status::<NodeClaim>(&thief, stolen).await;
        let anew = take_away(&cluster, &node).await;
        cluster.create::<Node>(anew).await;
        cluster.pass(30).await;
        let back = cluster.get::<Node>(&node).await;
        assert!(back.owner_references().is_empty(), "{:?}", back.metadata);
        assert!(has_taint(&back, UNREGISTERED));
        cluster.delete::<NodeClaim>(&thief).await;
        cluster.until_gone::<NodeClaim>(&thief).await;
        cluster
            .until("it is its owner's again", async |cluster| {
                let back = cluster.find::<Node>(&node).await;
                let mut owners = back
                    .iter()
                    .flat_map(|node| node.owner_references())
                    .map(|one| one.uid.as_str());
                owners.next() == Some(owner.uid()) && owners.next().is_none()
            })
            .await;
    }
}
