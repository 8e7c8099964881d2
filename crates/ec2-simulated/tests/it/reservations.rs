//! Capacity reservations in use: instances that lose theirs, and blocks that end.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, labels};
use spokeshave_ec2_simulated::Options;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_aws::labels::{
    CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_RESERVATION_TYPE,
};
use spokeshave_provider_aws::replies::CapacityReservation;

use crate::world::{CLUSTER, World, claim};

const ID: &str = "cr-0123456789abcdef0";

fn reservation(kind: &str) -> CapacityReservation {
    CapacityReservation {
        id: ID.to_owned(),
        owner_id: "123456789012".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        zone_id: "use1-az1".to_owned(),
        state: "active".to_owned(),
        instance_match_criteria: "targeted".to_owned(),
        reservation_type: kind.to_owned(),
        total: 2,
        available: 2,
        ..CapacityReservation::default()
    }
}

/// Writes a NodeClaim and its Node as core does after a launch.
async fn write(world: &World, launched: &NodeClaim) {
    let labels = json!(launched.metadata.labels);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": labels}});
    let nodes: Api<Node> = Api::all(world.client.clone());
    let node: Node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let mut written = claim("one", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    written.metadata.uid = None;
    written.metadata.labels.clone_from(&launched.metadata.labels);
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    claims.create(&PostParams::default(), &written).await.unwrap();
    let status = json!({"status": {"providerID": launched.provider_id(), "nodeName": "node-1"}});
    claims
        .patch_status("one", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

async fn reserved(
    kind: &str,
) -> (
    World,
    std::sync::Arc<spokeshave_aws_cloud::AwsProvider>,
    NodeClaim,
) {
    let world = World::new(Options::new(CLUSTER)).await;
    world.cloud.reserve(reservation(kind));
    world
        .class(
            "reserving",
            json!({"capacityReservationSelectorTerms": [{"id": ID}]}),
        )
        .await;
    let provider = world.provider();
    world.pass(120).await;
    let mut wanted = claim(
        "one",
        &[
            (labels::INSTANCE_TYPE, &["m5.large"]),
            (labels::CAPACITY_TYPE, &["reserved"]),
        ],
    );
    wanted.spec.node_class_ref.name = "reserving".to_owned();
    let launched = provider.create(&wanted).await.unwrap();
    assert_eq!(launched.label(CAPACITY_RESERVATION_ID), Some(ID));
    write(&world, &launched).await;
    world.pass(60).await;
    (world, provider, launched)
}

#[tokio::test(start_paused = true)]
async fn d_293_an_instance_that_has_lost_its_reservation_is_on_demand_and_its_node_says_so() {
    let (world, _provider, launched) = reserved("default").await;
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    let nodes: Api<Node> = Api::all(world.client.clone());
    let labels_of = async || {
        let claim = claims.get("one").await.unwrap().metadata.labels.unwrap();
        let node = nodes.get("node-1").await.unwrap().metadata.labels.unwrap();
        [claim, node]
    };
    world.pass(120).await;
    for labels in labels_of().await {
        assert_eq!(labels[labels::CAPACITY_TYPE], "reserved", "it still has it");
    }
    let id = launched.provider_id().unwrap().rsplit('/').next().unwrap();
    world.cloud.lose_reservation(id);
    world.pass(70).await;
    for labels in labels_of().await {
        assert_eq!(labels[labels::CAPACITY_TYPE], "on-demand");
        for gone in [
            CAPACITY_RESERVATION_ID,
            CAPACITY_RESERVATION_TYPE,
            CAPACITY_RESERVATION_INTERRUPTIBLE,
        ] {
            assert!(!labels.contains_key(gone), "{gone}");
        }
        assert_eq!(labels[labels::INSTANCE_TYPE], "m5.large", "the rest stays");
    }
}

/// As by a message of the queue, so that core tells users and counts it (W-53).
#[tokio::test(start_paused = true)]
async fn d_294_w_53_nodes_of_a_capacity_block_go_forty_minutes_before_it_ends() {
    let (world, provider, launched) = reserved("capacity-block").await;
    let ends_at = world.clock.now() + SignedDuration::from_mins(50);
    world.cloud.reserve(CapacityReservation {
        ends_at: Some(ends_at),
        ..reservation("capacity-block")
    });
    let mut messages = provider.interruptions().unwrap();
    let early = tokio::select! {
        biased;
        message = messages.next() => message,
        () = world.clock.sleep(Duration::from_secs(9 * 60)) => None,
    };
    assert_eq!(early, None);
    let message = tokio::select! {
        biased;
        message = messages.next() => message.unwrap(),
        () = world.clock.sleep(Duration::from_secs(4 * 60)) => panic!("nobody says that the block ends"),
    };
    assert_eq!(message.kind, Ok(InterruptionKind::CapacityReservationInterrupted));
    assert_eq!(message.provider_id, launched.provider_id().unwrap());
    assert_eq!(message.ends_at, Some(ends_at));
    assert_eq!(provider.acknowledge(&message).await, Ok(()));
    let status: Value = json!(world.class_now("reserving").await.status);
    assert_eq!(status["capacityReservations"][0]["state"], "expiring");
}
