//! Broken nodes (D-254 to D-262): replaced after their time, but only behind the gate, and not when many are broken.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_controllers::FeatureGates;
use spokeshave_provider_kwok::KwokOptions;

use crate::faulty::{Cluster, Setup};
use crate::words::*;

// D-254…D-260: broken nodes are replaced after their time, but not when many are broken.
#[tokio::test(start_paused = true)]
async fn g_1_26_d_257_d_260_d_261_node_repair_replaces_one_broken_node_and_stops_at_many() {
    let options = spokeshave_cluster::Options {
        kubelets: true,
        ..spokeshave_cluster::Options::all()
    };
    let cluster = Cluster::with(12, options).await;
    // D-260: a budget of nothing does not keep a broken node, nor does an annotation.
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let closed = json!({"disruption": {"budgets": [{"nodes": "0"}]}, "template": protected});
    cluster.pool("default", closed).await;
    let setup = Setup::with_gates(FeatureGates {
        node_repair: true,
        ..FeatureGates::default()
    });
    let operator = cluster.operator(setup);
    cluster.run("web", 5, "6").await;
    let nodes = cluster.names::<Node>().await;
    let fell = cluster.clock.now();
    let break_node = async |name: &str| {
        let since = fell.to_string();
        let status = json!({"conditions": [
            {"type": "Ready", "status": "Unknown", "reason": "Broken", "message": "", "lastTransitionTime": since, "lastHeartbeatTime": since},
        ]});
        cluster.patch_status::<Node>(name, status).await;
    };
    // Three of five are more than 20 %, and so are three of eight, when their pods have got new nodes.
    for name in &nodes[..3] {
        break_node(name).await;
    }
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
    let well = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Well", "message": "", "lastTransitionTime": cluster.clock.now().to_string()}]});
    for name in &nodes[1..3] {
        cluster.patch_status::<Node>(name, well.clone()).await;
    }
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

/// A Node was broken for a moment, and what came after has not been heard: the API server is asked before it is replaced.
#[tokio::test(start_paused = true)]
async fn d_256_invariant_38_a_node_that_is_well_again_behind_a_watch_that_stands_still_is_kept() {
    let cluster = Cluster::new(34).await;
    cluster.pool("default", json!({})).await;
    let _operator = cluster.operator(Setup::with_gates(FeatureGates {
        node_repair: true,
        ..FeatureGates::default()
    }));
    let claim = cluster.run_one_pod().await;
    let node = cluster.node_of("web").await;
    let ready = async |status: &str| {
        let since = cluster.clock.now().to_string();
        let condition = json!({"type": "Ready", "status": status, "reason": "Said", "message": "", "lastTransitionTime": since, "lastHeartbeatTime": since});
        cluster
            .patch_status::<Node>(&node, json!({"conditions": [condition]}))
            .await;
    };
    ready("Unknown").await;
    cluster.pass(5).await;
    cluster.gate.still.lock().unwrap().insert("/nodes");
    ready("True").await;
    cluster.pass(900).await;
    assert_eq!(cluster.names::<NodeClaim>().await, [claim.as_str()]);
    cluster.gate.still.lock().unwrap().clear();
    // It can break again.
    ready("Unknown").await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
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
