//! Capacity reservations: how many instances are free in them, instances that lose theirs, and blocks that end.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::{EC2NodeClass, NodeClaim, labels};
use spokeshave_aws_cloud::AwsProvider;
use spokeshave_ec2_simulated::Options;
use spokeshave_model::Offering;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudError, CloudProvider as _, Interruption, Interruptions};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::labels::{
    CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_INTERRUPTIBLE, CAPACITY_RESERVATION_TYPE,
};
use spokeshave_provider_aws::replies::CapacityReservation;

use crate::world::{CLUSTER, World, claim, condition, pool};

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

fn wanted(name: &str, capacity_types: &[&str]) -> NodeClaim {
    let mut wanted = claim(
        name,
        &[
            (labels::INSTANCE_TYPE, &["m5.large"]),
            (labels::CAPACITY_TYPE, capacity_types),
        ],
    );
    wanted.spec.node_class_ref.name = "reserving".to_owned();
    wanted
}

/// How many instances may be launched into the reservation; `None` while it is not for sale.
async fn for_sale(provider: &AwsProvider) -> Option<i64> {
    let mut pool = pool();
    pool.spec.template.spec.node_class_ref.name = "reserving".to_owned();
    let types = provider.instance_types(&pool).await.unwrap();
    let one = types.iter().find(|one| one.name == "m5.large").unwrap();
    let is_it = |offering: &&Offering| offering.reservation_id() == Some(ID);
    let offering = one.offerings.iter().find(is_it).unwrap();
    offering.available.then_some(offering.reservation_capacity)
}

/// With one of its two instances launched.
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
    let one = wanted("one", &["reserved"]);
    let launched = provider.create(&one).await.unwrap();
    assert_eq!(launched.label(CAPACITY_RESERVATION_ID), Some(ID));
    write(&world, &launched).await;
    world.pass(60).await;
    (world, provider, launched)
}

/// With a capacity block of which an instance is used, and when that ends.
async fn in_block(minutes: i64) -> (World, std::sync::Arc<AwsProvider>, NodeClaim, Timestamp) {
    let (world, provider, launched) = reserved("capacity-block").await;
    let ends_at = world.clock.now() + SignedDuration::from_mins(minutes);
    world.cloud.reserve(CapacityReservation {
        ends_at: Some(ends_at),
        ..reservation("capacity-block")
    });
    (world, provider, launched, ends_at)
}

/// The next message, unless it takes longer than that.
async fn heard(world: &World, messages: &mut Interruptions<'_>, minutes: u64) -> Option<Interruption> {
    tokio::select! {
        biased;
        message = messages.next() => message,
        () = world.clock.sleep(Duration::from_secs(minutes * 60)) => None,
    }
}

/// EC2's reply names no reservation, and what it counts as free need not be for what is asked for.
#[tokio::test(start_paused = true)]
async fn a_057_a_076_a_reservation_that_ec2_refuses_is_left_out_whatever_it_counts_as_free() {
    let (world, provider, _) = reserved("default").await;
    assert_eq!(for_sale(&provider).await, Some(1));
    world.cloud.reserve(CapacityReservation {
        available: 0,
        ..reservation("default")
    });
    let both = ["reserved", "on-demand"];
    let error = provider.create(&wanted("two", &both)).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    assert_eq!(for_sale(&provider).await, None);
    let launched = provider.create(&wanted("three", &both)).await.unwrap();
    assert_eq!(launched.label(labels::CAPACITY_TYPE), Some("on-demand"));
    world.cloud.reserve(reservation("default"));
    world.pass(120).await;
    assert_eq!(
        for_sale(&provider).await,
        None,
        "EC2 says that two are free, as it may have said before it refused"
    );
    world.pass(70).await;
    assert_eq!(for_sale(&provider).await, Some(2));
}

/// another subnet of its zone may have addresses for it, and a zone without any does not sell it.
#[tokio::test(start_paused = true)]
async fn a_064_a_076_a_subnet_without_addresses_leaves_the_reservation_to_others_of_its_zone() {
    let world = World::new(Options::new(CLUSTER)).await;
    world.cloud.unlimited();
    let spec = json!({"capacityReservationSelectorTerms": [{"id": ID}]});
    world.class_in_subnets("reserving", 5, spec).await;
    world.cloud.reserve(reservation("default"));
    world.cloud.set_free_addresses("subnet-5", 1_000);
    let provider = world.provider();
    world.pass(50).await;
    assert_eq!(for_sale(&provider).await, Some(2));
    // Others have taken them since EC2 was asked.
    world.cloud.set_free_addresses("subnet-1", 0);
    let error = provider.create(&wanted("one", &["reserved"])).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    assert_eq!(for_sale(&provider).await, Some(2));
    provider.create(&wanted("two", &["reserved"])).await.unwrap();
    let instances = world.cloud.instances();
    let used: Vec<&str> = instances.iter().map(|it| it.subnet_id.as_str()).collect();
    assert_eq!(used, ["subnet-5"]);
    world.cloud.set_free_addresses("subnet-5", 0);
    let error = provider
        .create(&wanted("three", &["reserved"]))
        .await
        .unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    assert_eq!(for_sale(&provider).await, None, "no subnet of its zone has any");
}

/// EC2 is asked for one reservation after the other.
#[tokio::test(start_paused = true)]
async fn a_057_what_is_launched_while_ec2_is_asked_for_other_reservations_counts() {
    let world = World::new(Options {
        latency: Duration::from_secs(2),
        ..Options::new(CLUSTER)
    })
    .await;
    world.cloud.reserve(reservation("default"));
    let others = (1..20).map(|number| json!({"id": format!("cr-{number:017x}")}));
    let terms: Vec<Value> = std::iter::once(json!({"id": ID})).chain(others).collect();
    let spec = json!({"capacityReservationSelectorTerms": terms});
    world.class("reserving", spec).await;
    let provider = world.provider();
    world.pass(300).await;
    assert_eq!(for_sale(&provider).await, Some(2));
    let asked = || world.cloud.calls()["DescribeCapacityReservations"] % 20;
    let until = async |rest: u64| {
        for _ in 0..300 {
            if asked() == rest {
                return;
            }
            world.pass(1).await;
        }
        panic!("EC2 is not asked for {rest} of 20 reservations");
    };
    until(1).await;
    provider.create(&wanted("one", &["reserved"])).await.unwrap();
    assert_ne!(asked(), 0, "EC2 is still asked for the others");
    until(0).await;
    world.pass(2).await;
    assert_eq!(for_sale(&provider).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_057_what_is_launched_counts_in_a_reservation_at_once_and_what_has_ended_when_ec2_says_so() {
    let (world, provider, launched) = reserved("default").await;
    assert_eq!(for_sale(&provider).await, Some(1));
    let broken = ApiError::new("InternalError", "An internal error has occurred.");
    let call = "DescribeCapacityReservations";
    world.cloud.fail(call, &broken, 1_000);
    let two = wanted("two", &["reserved"]);
    provider.create(&two).await.unwrap();
    assert_eq!(for_sale(&provider).await, None, "both are taken");
    provider.delete(&launched).await.unwrap();
    world.pass(120).await;
    // Core asks until it hears so, and once more before the finalizer goes.
    for _ in 0..2 {
        let gone = provider.delete(&launched).await;
        assert!(gone.is_err_and(|error| error.is_not_found()));
    }
    assert_eq!(for_sale(&provider).await, None, "EC2 may have counted it already");
    world.cloud.heal();
    world.pass(70).await;
    assert_eq!(for_sale(&provider).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn d_283_a_reservation_from_which_ec2_takes_an_instance_back_is_left_out() {
    let (world, provider, launched) = reserved("default").await;
    assert_eq!(for_sale(&provider).await, Some(1));
    let id = launched.provider_id().unwrap().rsplit('/').next().unwrap();
    let mut messages = provider.interruptions().unwrap();
    for (told, seconds) in [(None, 120), (Some(90), 90)] {
        let now = world.clock.now();
        let after = |seconds: i64| now + SignedDuration::from_secs(seconds);
        let mut detail = json!({"instance-id": id, "instance-action": "terminate"});
        if let Some(told) = told {
            detail["instance-termination-time"] = json!(after(told).to_string());
        }
        let body = json!({
            "version": "0", "id": "1", "source": "aws.ec2", "detail-type": "EC2 Capacity Reservation Instance Interruption Warning",
            "time": now.to_string(), "region": "us-east-1", "detail": detail,
        });
        world.cloud.send_message(body.to_string());
        let message = heard(&world, &mut messages, 1).await;
        let message = message.expect("somebody says that it is taken back");
        assert_eq!(message.kind, Ok(InterruptionKind::CapacityReservationInterrupted));
        assert_eq!(message.provider_id, launched.provider_id().unwrap());
        assert_eq!(message.ends_at, Some(after(seconds)), "its pods have so long");
        assert_eq!(for_sale(&provider).await, None);
        provider.acknowledge(&message).await.unwrap();
    }
}

/// A shadow looks at no class, and a new leader later than at what is for sale.
#[tokio::test(start_paused = true)]
async fn a_057_who_only_follows_and_who_has_just_begun_to_lead_know_what_is_free() {
    let (world, leader, _) = reserved("default").await;
    assert_eq!(for_sale(&leader).await, Some(1));
    let follower = world.reading_provider(|_| {});
    world.pass(30).await;
    assert_eq!(for_sale(&follower).await, Some(1));
    leader.create(&wanted("two", &["reserved"])).await.unwrap();
    world.pass(65).await;
    assert_eq!(for_sale(&follower).await, None, "it is read again every minute");
    world.cloud.reserve(reservation("default"));
    let mut of_class = pool();
    of_class.spec.template.spec.node_class_ref.name = "reserving".to_owned();
    let next = world.provider();
    while next.instance_types(&of_class).await.is_err() {
        world.clock.sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(for_sale(&next).await, Some(2), "as soon as it says anything");
    // What cannot be read keeps nothing else from being sold.
    let denied = ApiError::new("UnauthorizedOperation", "You are not authorized.");
    world.cloud.fail("DescribeCapacityReservations", &denied, 1_000);
    let blind = world.reading_provider(|_| {});
    world.pass(30).await;
    assert_eq!(for_sale(&blind).await, None);
    world.cloud.heal();
    world.pass(65).await;
    assert_eq!(for_sale(&blind).await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_020_a_reservation_that_ec2_no_longer_knows_leaves_the_others_of_its_class_as_they_are() {
    let world = World::new(Options::new(CLUSTER)).await;
    world.cloud.reserve(reservation("default"));
    let terms = json!([{"id": "cr-0fedcba9876543210"}, {"id": ID}]);
    world
        .class("reserving", json!({"capacityReservationSelectorTerms": terms}))
        .await;
    let provider = world.provider();
    world.pass(120).await;
    assert_eq!(for_sale(&provider).await, Some(2));
    let class = world.class_now("reserving").await;
    let found = condition(&class, "CapacityReservationsReady");
    assert_eq!(found.0, "True", "{found:?}");
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

/// As by a message of the queue, so that core tells users and counts it (W-53). EC2 begins to terminate the instances of a block half an hour before it ends.
#[tokio::test(start_paused = true)]
async fn d_294_w_53_nodes_of_a_capacity_block_go_before_ec2_ends_them() {
    let (world, provider, launched, ends_at) = in_block(50).await;
    let mut messages = provider.interruptions().unwrap();
    assert_eq!(heard(&world, &mut messages, 9).await, None);
    let message = heard(&world, &mut messages, 4).await;
    let message = message.expect("somebody says that the block ends");
    assert_eq!(message.kind, Ok(InterruptionKind::CapacityReservationInterrupted));
    assert_eq!(message.provider_id, launched.provider_id().unwrap());
    assert_eq!(message.ends_at, Some(ends_at - SignedDuration::from_mins(30)));
    assert_eq!(provider.acknowledge(&message).await, Ok(()));
    world.pass(120).await;
    let status: Value = json!(world.class_now("reserving").await.status);
    assert_eq!(status["capacityReservations"][0]["state"], "expiring");
}

#[tokio::test(start_paused = true)]
async fn d_294_nodes_of_a_block_go_whether_or_not_their_class_still_selects_it() {
    for is_deleted in [false, true] {
        let (world, provider, launched, ends_at) = in_block(50).await;
        let mut messages = provider.interruptions().unwrap();
        if is_deleted {
            let classes: Api<EC2NodeClass> = Api::all(world.client.clone());
            let deleted = classes.delete("reserving", &DeleteParams::default()).await;
            deleted.unwrap();
        } else {
            let nothing = json!({"spec": {"capacityReservationSelectorTerms": null}});
            world.change::<EC2NodeClass>("reserving", nothing).await;
        }
        let message = heard(&world, &mut messages, 14).await;
        let message = message.expect("somebody says that the block ends");
        assert_eq!(message.provider_id, launched.provider_id().unwrap());
        assert_eq!(message.ends_at, Some(ends_at - SignedDuration::from_mins(30)));
    }
}

/// What was to go before, and waits for a pod, must not wait beyond the end of its machine.
#[tokio::test(start_paused = true)]
async fn d_294_what_is_on_its_way_out_of_a_block_is_told_of_until_it_has_a_deadline() {
    let (world, provider, _, ends_at) = in_block(50).await;
    let kept = json!({"metadata": {"finalizers": ["karpenter.sh/termination"]}});
    world.change::<NodeClaim>("one", kept).await;
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    claims.delete("one", &DeleteParams::default()).await.unwrap();
    let mut messages = provider.interruptions().unwrap();
    for minutes in [14, 2] {
        let message = heard(&world, &mut messages, minutes).await;
        let message = message.expect("somebody says that the block ends");
        assert_eq!(message.ends_at, Some(ends_at - SignedDuration::from_mins(30)));
    }
    let sooner = deadline_of(ends_at - SignedDuration::from_mins(31));
    world.change::<NodeClaim>("one", sooner).await;
    world.pass(5).await;
    assert_eq!(heard(&world, &mut messages, 5).await, None);
}

fn deadline_of(at: Timestamp) -> Value {
    json!({"metadata": {"annotations": {labels::TERMINATION_TIMESTAMP: at.to_string()}}})
}
