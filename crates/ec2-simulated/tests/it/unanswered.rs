//! Fleets that EC2 launches and whose answers come late, or never: each NodeClaim gets one instance, and none that may be its own is taken for nobody's
//!

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodeClaim, labels};
use spokeshave_aws_cloud::AwsProvider;
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_provider_aws::class_hash::HASH_ANNOTATION;
use tokio::task::JoinHandle;

use crate::world::{CLUSTER, World, claim, lead, pool};

/// Core waits so long for a call.
const LIMIT: Duration = Duration::from_secs(120);
/// Garbage collection ends what is as old as this and belongs to nobody.
const LEAKED: i64 = 30;

async fn at_work() -> (World, Arc<AwsProvider>) {
    let world = World::new(Options::new(CLUSTER)).await;
    world.cloud.unlimited();
    let provider = world.provider();
    world.pass(60).await;
    (world, provider)
}

fn large(name: &str) -> NodeClaim {
    claim(name, &[(labels::INSTANCE_TYPE, &["m5.large"])])
}

fn fleets(world: &World) -> u64 {
    let calls = world.cloud.calls();
    calls.get("CreateFleet").copied().unwrap_or_default()
}

/// A launch as core asks for it: `None` when it has no answer in time.
async fn in_time(
    world: &World,
    provider: &AwsProvider,
    wanted: &NodeClaim,
) -> Option<Result<NodeClaim, CloudError>> {
    tokio::select! {
        biased;
        answer = provider.create(wanted) => Some(answer),
        () = world.clock.sleep(LIMIT) => None,
    }
}

/// A launch that goes on beside the test.
fn launch(provider: &Arc<AwsProvider>, wanted: &NodeClaim) -> JoinHandle<Result<NodeClaim, CloudError>> {
    let (provider, wanted) = (provider.clone(), wanted.clone());
    tokio::spawn(async move { provider.create(&wanted).await })
}

/// How old the only instance is that is listed, as garbage collection counts.
async fn listed_age(world: &World, provider: &AwsProvider) -> i64 {
    let listed = provider.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    age(world, &listed[0])
}

fn age(world: &World, listed: &NodeClaim) -> i64 {
    let created = listed.metadata.creation_timestamp.as_ref().unwrap();
    world.clock.now().duration_since(created.0).as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_081_what_a_fleet_has_launched_is_not_collected_before_its_answer_is_heard() {
    let (world, provider) = at_work().await;
    // Of another operator, and nobody's since.
    let other = world.provider();
    world.pass(60).await;
    other.create(&large("stray")).await.unwrap();
    world.pass(120).await;
    let strays = world.cloud.instances();
    world.cloud.answer_late("CreateFleet", Duration::from_secs(70), 1);
    let wanted = large("one");
    let launching = launch(&provider, &wanted);
    world.pass(45).await;
    let listed = provider.list().await.unwrap();
    assert_eq!(listed.len(), 2);
    for one in &listed {
        let id = one.provider_id().unwrap().rsplit('/').next().unwrap();
        let is_stray = strays.iter().any(|stray| stray.id == id);
        assert_eq!(age(&world, one) >= LEAKED, is_stray, "{id}");
    }
    let launched = launching.await.unwrap().unwrap();
    let listed = provider.list().await.unwrap();
    let one = listed.iter().find(|one| one.metadata.uid == wanted.metadata.uid);
    assert_eq!(one.unwrap().provider_id(), launched.provider_id());
    assert_eq!(world.cloud.instances().len(), 2);
}

/// Core gives the call up, and asks again a second later.
#[tokio::test(start_paused = true)]
async fn a_080_a_launch_that_was_given_up_goes_on_where_it_stood() {
    let (world, provider) = at_work().await;
    let before = fleets(&world);
    world
        .cloud
        .answer_late("CreateFleet", Duration::from_secs(130), 1);
    let wanted = large("one");
    assert!(in_time(&world, &provider, &wanted).await.is_none());
    world.pass(1).await;
    assert!(
        listed_age(&world, &provider).await < LEAKED,
        "somebody may come back to it"
    );
    let launched = in_time(&world, &provider, &wanted).await.unwrap().unwrap();
    assert_eq!((world.cloud.instances().len(), fleets(&world) - before), (1, 1));
    let listed = provider.list().await.unwrap();
    assert_eq!(listed[0].provider_id(), launched.provider_id());
    assert_eq!(listed[0].metadata.uid, wanted.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn a_080_a_launch_whose_answers_are_lost_is_asked_for_until_ec2_says_what_it_has_launched() {
    let (world, provider) = at_work().await;
    let before = fleets(&world);
    world
        .cloud
        .lose_answers("CreateFleet", Duration::from_secs(60), 2);
    let wanted = large("one");
    for _ in 0..2 {
        let error = in_time(&world, &provider, &wanted).await.unwrap().unwrap_err();
        assert!(matches!(error, CloudError::Timeout(_)), "{error}");
        world.pass(60).await;
        assert!(listed_age(&world, &provider).await < LEAKED);
    }
    in_time(&world, &provider, &wanted).await.unwrap().unwrap();
    assert_eq!((world.cloud.instances().len(), fleets(&world) - before), (1, 3));
}

/// They come back one after the other, each after a pause of its own.
#[tokio::test(start_paused = true)]
async fn a_074_a_080_nodeclaims_that_share_a_lost_answer_share_the_next_one() {
    let (world, provider) = at_work().await;
    let before = fleets(&world);
    world.cloud.lose_answers("CreateFleet", Duration::from_secs(1), 1);
    let (one, two) = (large("one"), large("two"));
    let (first, second) = futures::join!(provider.create(&one), provider.create(&two));
    assert!(first.is_err() && second.is_err());
    let mut ids = Vec::new();
    for wanted in [&two, &one] {
        world.pass(10).await;
        let launched = provider.create(wanted).await.unwrap();
        ids.push(launched.provider_id().unwrap().to_owned());
    }
    assert_ne!(ids[0], ids[1]);
    assert_eq!((world.cloud.instances().len(), fleets(&world) - before), (2, 2));
}

/// What ends meanwhile is of other NodeClaims.
#[tokio::test(start_paused = true)]
async fn a_080_a_launch_under_way_is_remembered_when_another_instance_ends() {
    let (world, provider) = at_work().await;
    let first = provider.create(&large("one")).await.unwrap();
    world.pass(60).await;
    world.cloud.answer_late("CreateFleet", Duration::from_secs(20), 1);
    let wanted = large("two");
    let launching = launch(&provider, &wanted);
    world.pass(5).await;
    provider.delete(&first).await.unwrap();
    let launched = launching.await.unwrap().unwrap();
    world.pass(60).await;
    let again = provider.create(&wanted).await.unwrap();
    assert_eq!(again.provider_id(), launched.provider_id());
    let listed = provider.list().await.unwrap();
    let one = listed.iter().find(|one| one.metadata.uid == wanted.metadata.uid);
    assert_eq!(one.and_then(|one| one.provider_id()), launched.provider_id());
    assert_eq!(world.cloud.instances().len(), 1);
}

/// What it was launched as counts: else nobody would notice that it has drifted.
#[tokio::test(start_paused = true)]
async fn a_080_a_class_that_changes_before_the_answer_is_not_what_was_launched() {
    let (world, provider) = at_work().await;
    let hash = async || {
        let class = world.class_now("default").await;
        class.annotation(HASH_ANNOTATION).map(str::to_owned)
    };
    let before = hash().await;
    world.cloud.lose_answers("CreateFleet", Duration::from_secs(1), 1);
    let wanted = large("one");
    assert!(provider.create(&wanted).await.is_err());
    let other = json!({"spec": {"userData": "#!/bin/sh\n"}});
    world.change::<EC2NodeClass>("default", other).await;
    world.pass(90).await;
    assert_ne!(hash().await, before);
    let launched = provider.create(&wanted).await.unwrap();
    assert_eq!(launched.annotation(HASH_ANNOTATION).map(str::to_owned), before);
    assert_eq!(world.cloud.instances().len(), 1);
}

/// What is for sale when the answer comes is something else.
#[tokio::test(start_paused = true)]
async fn a_080_types_that_change_before_the_answer_are_not_those_that_were_asked_for() {
    let (world, provider) = at_work().await;
    let types = provider.instance_types(&pool()).await.unwrap();
    world.cloud.lose_answers("CreateFleet", Duration::from_secs(1), 1);
    let wanted = large("one");
    assert!(provider.create_from(&wanted, &types).await.is_err());
    let mut others = types.to_vec();
    others.retain(|one| one.name != "m5.large");
    world.pass(10).await;
    let launched = provider.create_from(&wanted, &others).await.unwrap();
    assert_eq!(launched.label(labels::INSTANCE_TYPE), Some("m5.large"));
    let asked_for = types.iter().find(|one| one.name == "m5.large").unwrap();
    assert_eq!(
        launched.status.as_ref().unwrap().capacity,
        asked_for.capacity.to_quantities()
    );
    assert_eq!(world.cloud.instances().len(), 1);
}

/// Of two subnets of a zone the one with more free addresses is taken: less those that nobody will take it would be the other one.
#[tokio::test(start_paused = true)]
async fn a_064_what_is_given_up_before_ec2_is_asked_gives_its_addresses_back() {
    for comes_back in [false, true] {
        let world = World::new(Options::new(CLUSTER)).await;
        world.cloud.unlimited();
        world.class_in_subnets("own", 5, json!({})).await;
        // An instance needs 29.
        world.cloud.set_free_addresses("subnet-1", 1_000);
        world.cloud.set_free_addresses("subnet-5", 960);
        let provider = world.provider();
        world.pass(50).await;
        let wanted = |name: &str| {
            let zone: (&str, &[&str]) = (labels::ZONE, &["us-east-1a"]);
            let mut wanted = claim(name, &[(labels::INSTANCE_TYPE, &["m5.large"]), zone]);
            wanted.spec.node_class_ref.name = "own".to_owned();
            wanted
        };
        // Makes the launch template, so that the next one is about to ask for an instance at once.
        provider.create(&wanted("one")).await.unwrap();
        let two = wanted("two");
        tokio::select! {
            biased;
            answer = provider.create(&two) => panic!("{answer:?}"),
            () = world.clock.sleep(Duration::from_millis(10)) => {}
        }
        if comes_back {
            provider.create(&two).await.unwrap();
        } else {
            assert!(provider.delete(&two).await.is_err(), "it has no instance");
            provider.create(&wanted("three")).await.unwrap();
        }
        let instances = world.cloud.instances();
        let subnets: Vec<&str> = instances.iter().map(|it| it.subnet_id.as_str()).collect();
        assert_eq!(subnets, ["subnet-1", "subnet-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_081_what_was_launched_for_a_nodeclaim_that_is_given_up_is_collected() {
    let (world, provider) = at_work().await;
    world.cloud.lose_answers("CreateFleet", Duration::from_secs(1), 1);
    let wanted = large("one");
    assert!(provider.create(&wanted).await.is_err());
    world.pass(40).await;
    assert!(listed_age(&world, &provider).await < LEAKED);
    let gone = provider.delete(&wanted).await;
    assert!(gone.is_err_and(|error| error.is_not_found()));
    assert!(listed_age(&world, &provider).await >= LEAKED);
}

/// Also when nobody says so, and when another operator has led in between.
#[tokio::test(start_paused = true)]
async fn a_081_nothing_waits_for_ever_for_a_launch_that_nobody_asks_for_again() {
    for is_led_again in [false, true] {
        let world = World::new(Options::new(CLUSTER)).await;
        let provider = world.unled_provider();
        let led = lead(&provider, world.writes());
        world.pass(60).await;
        world.cloud.lose_answers("CreateFleet", Duration::from_secs(1), 1);
        assert!(provider.create(&large("one")).await.is_err());
        world.pass(60).await;
        assert!(listed_age(&world, &provider).await < LEAKED);
        if is_led_again {
            led.abort();
            lead(&provider, world.writes());
            world.pass(1).await;
        } else {
            world.pass(9 * 60).await;
        }
        assert!(listed_age(&world, &provider).await >= LEAKED, "{is_led_again}");
    }
}
