//! Instances that Karpenter's own kwok provider has made.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_ports::CloudProvider;
use spokeshave_provider_kwok::{KwokOptions, keys};

use crate::{World, claim, seconds};

/// A Node as Karpenter's own kwok provider makes it, and the NodeClaim that names it.
async fn karpenters(world: &World, name: &str, with_claim: bool) -> NodeClaim {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "finalizers": ["karpenter.sh/termination"],
            "labels": {
                "kwok.x-k8s.io/node": "fake", "karpenter.sh/nodepool": "general", "karpenter.sh/registered": "true", "kubernetes.io/hostname": "general-abc",
                "node.kubernetes.io/instance-type": "c-4x-amd64-linux", "topology.kubernetes.io/zone": "test-zone-a", "karpenter.sh/capacity-type": "spot",
                "eks-node-viewer/instance-price": "0.042000",
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"providerID": format!("kwok://{name}")},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3900m", "memory": "8Gi"}},
    });
    let node: Node = serde_json::from_value(node).expect("a Node");
    world
        .nodes()
        .create(&PostParams::default(), &node)
        .await
        .expect("created");
    let mut claim = claim("general-abc", &[]);
    claim.status = Some(spokeshave_api::NodeClaimStatus {
        provider_id: Some(format!("kwok://{name}")),
        node_name: Some(name.to_owned()),
        ..Default::default()
    });
    if with_claim {
        let claims: Api<NodeClaim> = Api::all(world.client.clone());
        let made = claims
            .create(&PostParams::default(), &claim)
            .await
            .expect("created");
        let status =
            Patch::Merge(json!({"status": {"providerID": format!("kwok://{name}"), "nodeName": name}}));
        claims
            .patch_status(made.name(), &PatchParams::default(), &status)
            .await
            .expect("patched");
        claim.metadata.uid = made.metadata.uid;
    }
    claim
}

async fn mark_of(world: &World, node: &str) -> Option<String> {
    let node = world.nodes().get(node).await.expect("the Node");
    node.metadata.annotations?.get(keys::INSTANCE).cloned()
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_karpenters_own_provider_gets_a_record_when_it_is_met() {
    let world = World::new().await;
    let provider = world.running(KwokOptions {
        termination_delay: seconds(3),
        ..KwokOptions::default()
    });
    let claim = karpenters(&world, "kwok-general-abc-funny-1", true).await;
    let id = claim.provider_id().expect("an ID");
    let seen = provider.get(id).await.expect("it is known");
    assert_eq!(seen.provider_id(), Some(id));
    assert_eq!(seen.label(labels::INSTANCE_TYPE), Some("c-4x-amd64-linux"));
    let recorded = world.instances().await;
    assert_eq!(recorded.len(), 1);
    let spec = &recorded[0].spec;
    assert_eq!(
        (spec.node_claim_name.as_str(), spec.node_claim_uid.as_str()),
        (claim.name(), claim.uid())
    );
    assert_eq!(
        (
            spec.zone.as_str(),
            spec.capacity_type.as_str(),
            spec.price.as_str()
        ),
        ("test-zone-a", "spot", "0.042000")
    );
    assert_eq!(
        mark_of(&world, "kwok-general-abc-funny-1").await.as_deref(),
        Some("kwok-general-abc-funny-1")
    );
    assert_eq!(provider.list().await.expect("a list").len(), 1, "and only once");
    world.pass(60).await;
    assert_eq!(world.node_count().await, 1, "no second Node is made for it");

    provider.delete(&claim).await.expect("its end begins");
    world.pass(10).await;
    assert!(world.instances().await.is_empty());
    assert!(provider.get(id).await.expect_err("it is gone").is_not_found());
    assert!(
        provider.list().await.expect("a list").is_empty(),
        "whose instance is gone stays gone, though its Node is there"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_no_nodeclaim_names_is_nobodys_instance() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions::default());
    let claim = karpenters(&world, "kwok-stray", false).await;
    assert!(provider.list().await.expect("a list").is_empty());
    assert!(
        provider
            .get("kwok://kwok-stray")
            .await
            .expect_err("unknown")
            .is_not_found()
    );
    assert!(provider.delete(&claim).await.expect_err("unknown").is_not_found());
    assert_eq!(
        (world.instances().await.len(), mark_of(&world, "kwok-stray").await),
        (0, None)
    );
}

/// A crash between the record and the mark.
#[tokio::test(start_paused = true)]
async fn a_half_done_take_over_is_finished_by_the_next_list() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions::default());
    let claim = karpenters(&world, "kwok-half", true).await;
    provider
        .get(claim.provider_id().expect("an ID"))
        .await
        .expect("known");
    let unmark = Patch::Merge(json!({"metadata": {"annotations": {keys::INSTANCE: null}}}));
    world
        .nodes()
        .patch("kwok-half", &PatchParams::default(), &unmark)
        .await
        .expect("patched");
    assert_eq!(
        world
            .provider(KwokOptions::default())
            .list()
            .await
            .expect("a list")
            .len(),
        1
    );
    assert_eq!(mark_of(&world, "kwok-half").await.as_deref(), Some("kwok-half"));
}
