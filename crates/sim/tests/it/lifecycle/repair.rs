//! Broken nodes (D-254 to D-262): replaced after their time, but only behind the gate, and not when many are broken.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_controllers::FeatureGates;
use spokeshave_provider_kwok::KwokOptions;

use crate::faulty::{Cluster, Setup};
use crate::words::*;

/// An operator that repairs.
fn repairing() -> Setup {
    Setup::with_gates(FeatureGates {
        node_repair: true,
        ..FeatureGates::default()
    })
}

// D-254…D-260: broken nodes are replaced after their time, but not when many are broken.
#[tokio::test(start_paused = true)]
async fn g_1_26_d_257_d_260_d_261_node_repair_replaces_one_broken_node_and_stops_at_many() {
    let cluster = Cluster::new(12).await;
    // D-260: a budget of nothing does not keep a broken node, nor does an annotation.
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let closed = json!({"disruption": {"budgets": [{"nodes": "0"}]}, "template": protected});
    cluster.pool("default", closed).await;
    let operator = cluster.operator(repairing());
    cluster.run("web", 5, "6").await;
    let nodes = cluster.names::<Node>().await;
    // Three of five are more than 20 %, and so are three of eight, when their pods have got new nodes.
    say_ready(&cluster, &nodes[..3], "Unknown").await;
    cluster.pass(900).await;
    let left = cluster.list::<Node>().await;
    assert!(
        nodes
            .iter()
            .all(|name| left.iter().any(|node| node.name_any() == *name)),
        "repair is blocked"
    );
    assert!(!cluster.events("NodeRepairBlocked").await.is_empty());
    // One is not.
    say_ready(&cluster, &nodes[1..3], "True").await;
    cluster.until_gone::<Node>(&nodes[0]).await;
    cluster.until_running_of("web", 5).await;
    let text = operator.metrics.render();
    assert!(
        text.contains("karpenter_nodeclaims_unhealthy_disrupted_total{capacity_type=")
            && text.contains("condition=\"ready\""),
        "D-261"
    );
    cluster.assert_no_leak().await;
}

/// The kubelets of these Nodes fall silent, or are heard again.
async fn say_ready(cluster: &Cluster, nodes: &[String], status: &str) {
    for node in nodes {
        cluster.say_ready(node, status).await;
    }
}

/// The Nodes of a team.
async fn nodes_of(cluster: &Cluster, team: &str) -> Vec<String> {
    let mut nodes = cluster.list::<Node>().await;
    nodes.retain(|node| node.labels().get("team").is_some_and(|own| own == team));
    nodes.iter().map(Node::name_any).collect()
}

// D-257: what is too many for a small NodePool may be few in the cluster, and what is too many for that is none of the business of a large one.
#[tokio::test(start_paused = true)]
async fn d_257_the_share_of_broken_nodes_is_that_of_their_nodepool() {
    let cluster = Cluster::new(35).await;
    let _operator = cluster.operator(repairing());
    for (team, replicas) in [("small", 2), ("large", 12)] {
        let labels = json!({"template": {"metadata": {"labels": {"team": team}}}});
        cluster.pool(team, labels).await;
        let there = json!({"spec": {"nodeSelector": {"team": team}}});
        let template = template(team, "6", there);
        cluster.deploy_with(team, replicas, template).await;
        cluster.until_running_of(team, replicas as usize).await;
    }
    let small = nodes_of(&cluster, "small").await;
    let large = nodes_of(&cluster, "large").await;
    assert_eq!((small.len(), large.len()), (2, 12));
    // Both of two, and two of twelve. When the pods have moved, these are two of four, two of fourteen, and four of eighteen.
    say_ready(&cluster, &small, "Unknown").await;
    say_ready(&cluster, &large[..2], "Unknown").await;
    cluster.pass(900).await;
    let left = cluster.names::<Node>().await;
    assert!(small.iter().all(|node| left.contains(node)), "{left:?}");
    assert!(large[..2].iter().all(|node| !left.contains(node)), "{left:?}");
    assert!(large[2..].iter().all(|node| left.contains(node)), "{left:?}");
    let told = cluster.told("NodeRepairBlocked").await;
    for node in &small {
        let about = format!("Node/{node}");
        let is_said =
            |(object, text): &(String, String)| *object == about && text.ends_with("in the nodepool");
        assert!(told.iter().any(is_said), "{told:?}");
    }
    // One of four is not too many.
    say_ready(&cluster, &small[..1], "True").await;
    cluster.until_gone::<Node>(&small[1]).await;
    assert!(cluster.exists::<Node>(&small[0]).await);
    cluster.until_running_of("small", 2).await;
    cluster.until_running_of("large", 12).await;
    cluster.assert_no_leak().await;
}

// D-257: a NodeClaim without NodePool is one of the cluster's.
#[tokio::test(start_paused = true)]
async fn d_257_for_a_nodeclaim_without_nodepool_the_whole_cluster_counts() {
    let (cluster, _operator) = Cluster::started_with(36, json!({}), repairing()).await;
    cluster.run("web", 2, "6").await;
    let nodes = cluster.names::<Node>().await;
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let spec = json!({"nodeClassRef": class, "expireAfter": "Never", "requirements": [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"]},
    ]});
    let alone = json!({"metadata": {"name": "alone"}, "spec": spec});
    cluster.create::<NodeClaim>(alone).await;
    cluster
        .until("it has joined", async |cluster| {
            let said = cluster.condition("alone", "Initialized").await;
            said.is_some_and(|(status, ..)| status == "True")
        })
        .await;
    let own = cluster.get::<NodeClaim>("alone").await.status.unwrap().node_name;
    let own = [own.unwrap()];
    // All three; when the pods have moved, three of five.
    say_ready(&cluster, &nodes, "Unknown").await;
    say_ready(&cluster, &own, "Unknown").await;
    cluster.pass(900).await;
    assert!(cluster.exists::<NodeClaim>("alone").await, "too many are broken");
    let told = cluster.told("NodeRepairBlocked").await;
    let is_said =
        |(object, text): &(String, String)| object == "NodeClaim/alone" && text.ends_with("in the cluster");
    assert!(told.iter().any(is_said), "{told:?}");
    say_ready(&cluster, &nodes, "True").await;
    cluster.until_gone::<NodeClaim>("alone").await;
    cluster.until_running_of("web", 2).await;
    cluster.assert_no_leak().await;
}

/// A Node was broken for a moment, and what came after has not been heard: the API server is asked before it is replaced.
#[tokio::test(start_paused = true)]
async fn d_256_invariant_38_a_node_that_is_well_again_behind_a_watch_that_stands_still_is_kept() {
    let cluster = Cluster::new(34).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(repairing());
    let claim = cluster.run_one_pod().await;
    let node = cluster.node_of("web").await;
    cluster.say_ready(&node, "Unknown").await;
    cluster.pass(5).await;
    cluster.gate.still.lock().unwrap().insert("/nodes");
    cluster.say_ready(&node, "True").await;
    cluster.pass(900).await;
    assert_eq!(cluster.names::<NodeClaim>().await, [claim.as_str()]);
    cluster.gate.still.lock().unwrap().clear();
    // It can break again.
    cluster.say_ready(&node, "Unknown").await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

/// Whose it is comes last, as with a cloud controller manager that sets provider IDs; nothing else of the Node changes after that.
#[tokio::test(start_paused = true)]
async fn d_256_a_node_that_was_broken_before_anybody_knew_whose_it_is_is_replaced() {
    let setup = Setup {
        kwok: KwokOptions {
            never_register_failures: "first:1".parse().unwrap(),
            termination_delay: Duration::from_secs(3),
            ..KwokOptions::default()
        },
        ..repairing()
    };
    let (cluster, _operator) = Cluster::started_with(37, json!({}), setup).await;
    cluster.deploy("web", 1, "1").await;
    cluster
        .until("an instance", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims.iter().any(|claim| claim.provider_id().is_some())
        })
        .await;
    let claim = cluster.list::<NodeClaim>().await.remove(0);
    let taints = json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]);
    let node = json!({"metadata": {"name": "late"}, "spec": {"taints": taints}});
    cluster.create::<Node>(node).await;
    cluster.say_ready("late", "Unknown").await;
    cluster.pass(1).await;
    let id = json!({"spec": {"providerID": claim.provider_id()}});
    cluster.patch::<Node>("late", id).await;
    cluster
        .until("it has joined", async |cluster| {
            let joined = cluster.condition(claim.name(), "Registered").await;
            joined.is_some_and(|(status, ..)| status == "True")
        })
        .await;
    let took = cluster.until_gone::<NodeClaim>(claim.name()).await;
    assert!(
        (590..700).contains(&took.as_secs()),
        "after its toleration: {took:?}"
    );
    assert!(!cluster.exists::<Node>("late").await);
    cluster.assert_no_leak().await;
}

/// Two NodeClaims say that the instance is theirs when its Node breaks: it is looked at again when one of them is gone.
#[tokio::test(start_paused = true)]
async fn d_256_a_node_that_broke_while_two_nodeclaims_had_it_is_replaced() {
    let (cluster, _operator) = Cluster::started_with(38, json!({}), repairing()).await;
    // Somebody gives one NodeClaim the instance of the other, and its own is no longer known to it.
    cluster.excuse(14);
    cluster.run("web", 2, "6").await;
    let claims = cluster.list::<NodeClaim>().await;
    let [one, two] = &claims[..] else {
        panic!("two claims: {claims:?}")
    };
    let (id, other) = (one.provider_id().unwrap(), two.provider_id().unwrap());
    let node = one.status.as_ref().unwrap().node_name.clone().unwrap();
    let provider_id = async |id: &str| {
        let status = json!({"providerID": id});
        cluster.patch_status::<NodeClaim>(two.name(), status).await;
        cluster.pass(5).await;
    };
    provider_id(id).await;
    cluster.say_ready(&node, "Unknown").await;
    cluster.pass(1).await;
    provider_id(other).await;
    cluster.until_gone::<NodeClaim>(one.name()).await;
    assert!(cluster.exists::<NodeClaim>(two.name()).await);
    cluster.until_running_of("web", 2).await;
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn d_262_the_kwok_cloud_gives_nodes_ten_minutes() {
    use spokeshave_ports::CloudProvider as _;
    let cluster = Cluster::new(33).await;
    let provider = spokeshave_provider_kwok::KwokProvider::new(
        cluster.client.clone(),
        cluster.clock.clone(),
        &cluster.entropy,
        KwokOptions::default(),
    );
    let policies: Vec<_> = provider
        .repair_policies()
        .iter()
        .map(|policy| {
            (
                policy.condition_type.as_str(),
                policy.condition_status.as_str(),
                policy.toleration.as_secs(),
            )
        })
        .collect();
    assert_eq!(policies, [("Ready", "False", 600), ("Ready", "Unknown", 600)]);
}

// D-254: without the gate nothing is repaired; D-265: no time-out for initialisation.
#[tokio::test(start_paused = true)]
async fn d_254_without_the_gate_a_broken_node_stays() {
    let (cluster, _operator, claim) = Cluster::one_node(31, json!({})).await;
    let node = cluster.names::<Node>().await.remove(0);
    let broken = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "Broken", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    cluster.patch_status::<Node>(&node, broken).await;
    cluster.pass(3600).await;
    assert!(cluster.names::<NodeClaim>().await.contains(&claim));
}
