//! Of two operators only the leader writes (36).

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_runtime::Api;

use super::stage::*;

#[tokio::test(start_paused = true)]
async fn invariant_36_only_the_leader_writes() {
    let stage = with_node().await;
    let leases: Api<Lease> = Api::namespaced(stage.lab.client.clone(), "kube-system");
    let lease = json!({"metadata": {"name": "karpenter-leader-election"}, "spec": {"holderIdentity": "a"}});
    stage.lab.create(&leases, lease).await.unwrap();
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    stage.as_operator::<Node>("n", label.clone()).await;
    stage.assert_silent();
    let held = json!({"spec": {"holderIdentity": "b"}});
    stage
        .lab
        .merge(&leases, "karpenter-leader-election", held)
        .await
        .unwrap();
    stage.as_operator::<Node>("n", label).await;
    stage.assert_broken(36, "/api/v1/nodes/n");
}
