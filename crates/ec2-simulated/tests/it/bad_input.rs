//! What an account may answer that nobody wants: each is told with what to do about it, and other classes go on.

use futures::StreamExt as _;
use serde_json::json;
use spokeshave_api::{EC2NodeClass, labels};
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_aws::errors::ApiError;

use crate::world::{CLUSTER, World, claim, pool};

/// Status, reason and message of a condition.
fn condition(class: &EC2NodeClass, type_: &str) -> (String, String, String) {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    let one = conditions.into_iter().find(|it| it.type_ == type_).unwrap();
    (one.status.clone(), one.reason.clone(), one.message.clone())
}

#[tokio::test(start_paused = true)]
async fn wrong_credentials_and_denied_look_ups_are_told_in_an_event_with_what_to_do_and_pass() {
    for (code, advice) in [
        ("AuthFailure", "check the operator's credentials"),
        ("UnauthorizedOperation", "allow ec2:DescribeSubnets in the policy"),
    ] {
        let world = World::new(Options::new(CLUSTER)).await;
        let error = ApiError::new(code, "no (request 0123-4567)");
        world.cloud.fail("DescribeSubnets", &error, 5);
        let provider = world.provider();
        world.pass(20).await;
        let told = provider.notices().unwrap().next().await.unwrap();
        assert_eq!(
            (
                told.kind.as_str(),
                told.name.as_str(),
                told.is_warning,
                told.reason
            ),
            ("EC2NodeClass", "default", true, "ReconcileFailed")
        );
        assert!(told.message.contains("ec2:DescribeSubnets"), "{}", told.message);
        assert!(told.message.contains(advice), "{}", told.message);
        assert!(!told.message.contains("0123"), "{}", told.message);
        assert_eq!(condition(&world.class_now("default").await, "Ready").0, "Unknown");
        world.pass(180).await;
        assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
    }
}

// Wrong credentials, or a region that does not exist, fail the very first call, before any class has a status.
#[tokio::test(start_paused = true)]
async fn a_040_without_instance_types_every_class_says_which_call_fails_and_what_to_do() {
    for (call, code, advice) in [
        (
            "DescribeInstanceTypes",
            "AuthFailure",
            "check the operator's credentials",
        ),
        (
            "DescribeInstanceTypeOfferings",
            "UnauthorizedOperation",
            "allow ec2:DescribeInstanceTypeOfferings in the policy",
        ),
    ] {
        let world = World::new(Options::new(CLUSTER)).await;
        world.class("second", json!({})).await;
        world.cloud.fail(call, &ApiError::new(code, "no"), 3);
        let provider = world.provider();
        world.pass(25).await;
        let told: Vec<_> = provider.notices().unwrap().take(2).collect().await;
        let about: Vec<_> = told.iter().map(|one| (one.name.as_str(), one.reason)).collect();
        assert_eq!(
            about,
            [("default", "ReconcileFailed"), ("second", "ReconcileFailed")]
        );
        for one in told {
            assert!(
                one.message.starts_with(&format!("ec2:{call}: ")),
                "{}",
                one.message
            );
            assert!(one.message.contains(advice), "{}", one.message);
        }
        world.pass(120).await;
        assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
    }
}

#[tokio::test(start_paused = true)]
async fn a_023_an_image_without_architecture_is_named_and_stops_no_other_class() {
    let world = World::new(Options::new(CLUSTER)).await;
    world.cloud.add_image("ami-0000000000000bad", "built by hand", "");
    let spec = json!({"amiFamily": "AL2023", "amiSelectorTerms": [{"id": "ami-0000000000000bad"}]});
    world.class("hand-made", spec).await;
    let _provider = world.provider();
    world.pass(90).await;
    let (status, reason, message) = condition(&world.class_now("hand-made").await, "AMIsReady");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "AMINotFound"));
    assert!(
        message.contains("ami-0000000000000bad") && message.contains("architecture"),
        "{message}"
    );
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_069_user_data_that_is_broken_mime_is_named() {
    let world = World::new(Options::new(CLUSTER)).await;
    let broken = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"x\"\n\n--x\nnever ends";
    world.class("mime", json!({"userData": broken})).await;
    let _provider = world.provider();
    world.pass(90).await;
    let (status, reason, message) = condition(&world.class_now("mime").await, "ValidationSucceeded");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidUserData"));
    assert!(message.contains("MIME"), "{message}");
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_050_a_spot_offering_without_a_price_is_listed_and_never_launched() {
    let world = World::new(Options::new(CLUSTER)).await;
    world.cloud.forget_price("m5.large");
    let provider = world.provider();
    world.pass(90).await;
    let types = provider.instance_types(&pool()).await.unwrap();
    let one = types.iter().find(|one| one.name == "m5.large").unwrap();
    let is_spot =
        |it: &&spokeshave_model::Offering| it.capacity_type().is_some_and(|it| it.as_str() == "spot");
    assert!(one.offerings.iter().filter(is_spot).count() >= 4, "it is listed");
    assert!(one.offerings.iter().filter(is_spot).all(|it| !it.available));
    let of = |capacity_type: &'static [&'static str]| {
        claim(
            "one",
            &[
                (labels::INSTANCE_TYPE, &["m5.large"]),
                (labels::CAPACITY_TYPE, capacity_type),
            ],
        )
    };
    assert!(provider.create(&of(&["spot"])).await.is_err());
    let launched = provider.create(&of(&["spot", "on-demand"])).await.unwrap();
    assert_eq!(launched.label(labels::CAPACITY_TYPE), Some("on-demand"));
}
