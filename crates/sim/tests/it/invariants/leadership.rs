//! Of two operators only the leader writes, and only it asks their cloud for anything (36).

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_runtime::Api;

use super::stage::*;

const LEASE: &str = "karpenter-leader-election";

fn leases(stage: &Stage) -> Api<Lease> {
    Api::namespaced(stage.lab.client.clone(), "kube-system")
}

/// A node, and operator `a` leads.
async fn with_leader() -> Stage {
    let stage = with_node().await;
    let lease = json!({"metadata": {"name": LEASE}, "spec": {"holderIdentity": "a"}});
    stage.lab.create(&leases(&stage), lease).await.unwrap();
    stage
}

/// Operator `b` leads from now on.
async fn pass_on(stage: &Stage) {
    let held = json!({"spec": {"holderIdentity": "b"}});
    stage.lab.merge(&leases(stage), LEASE, held).await.unwrap();
}

/// A machine that no NodeClaim asks for, launched by operator `a`.
async fn launch(stage: &Stage, name: &str) {
    let machine = json!({"metadata": {"name": name}, "spec": {
        "nodeClaimName": name, "nodeClaimUID": name, "nodePool": "p", "instanceType": "t", "zone": "z", "capacityType": "spot",
        "price": "0.1", "nodeName": name, "capacity": {"cpu": "4"},
    }});
    stage.lab.create(&stage.machines(), machine).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn invariant_36_only_the_leader_writes() {
    let stage = with_leader().await;
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    stage.as_operator::<Node>("n", label.clone()).await;
    stage.assert_silent();
    pass_on(&stage).await;
    stage.as_operator::<Node>("n", label).await;
    stage.assert_broken(36, "/api/v1/nodes/n");
}

/// A cloud knows no Lease: what was asked for in time may reach it in the very moment in which another leads, and nothing later.
#[tokio::test(start_paused = true)]
async fn invariant_36_only_the_leader_launches_machines() {
    let stage = with_leader().await;
    launch(&stage, "early").await;
    pass_on(&stage).await;
    launch(&stage, "under-way").await;
    stage.assert_silent();
    stage.pass(5).await;
    launch(&stage, "late").await;
    stage.assert_broken(36, "/kwokinstances");
}

#[tokio::test(start_paused = true)]
async fn invariant_36_only_the_leader_ends_machines() {
    let stage = with_leader().await;
    for name in ["m", "o"] {
        stage.live_node(name).await;
    }
    stage.end_instance("n").await;
    pass_on(&stage).await;
    stage.end_instance("m").await;
    stage.assert_silent();
    stage.pass(5).await;
    stage.end_instance("o").await;
    stage.assert_broken(36, "instance o");
}
