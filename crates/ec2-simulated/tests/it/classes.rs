//! EC2NodeClasses that cannot work: each says what to do, and none keeps another one from being ready.

use serde_json::json;
use spokeshave_api::EC2NodeClass;
use spokeshave_ec2_simulated::Options;
use spokeshave_provider_aws::errors::ApiError;

use crate::world::{CLUSTER, World};

/// Status, reason and message of a condition.
fn condition(class: &EC2NodeClass, type_: &str) -> (String, String, String) {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|it| it.type_ == type_);
    let one = found.unwrap_or_else(|| panic!("{} has no condition {type_}", class.name()));
    (one.status.clone(), one.reason.clone(), one.message.clone())
}

#[tokio::test(start_paused = true)]
async fn a_014_what_is_wrong_with_a_class_is_named_and_stops_no_other() {
    let world = World::new(Options {
        roles: Some(["KarpenterNodeRole".to_owned()].into()),
        ..Options::new(CLUSTER)
    })
    .await;
    let nowhere = json!([{"tags": {"karpenter.sh/discovery": "nowhere"}}]);
    let long = "# a line of a script\n".repeat(1000);
    let cases = [
        (
            "subnets",
            json!({"subnetSelectorTerms": nowhere}),
            "SubnetsReady",
            "SubnetsNotFound",
        ),
        (
            "groups",
            json!({"securityGroupSelectorTerms": nowhere}),
            "SecurityGroupsReady",
            "SecurityGroupsNotFound",
        ),
        (
            "images",
            json!({"amiFamily": "AL2023", "amiSelectorTerms": [{"id": "ami-00000000000000000"}]}),
            "AMIsReady",
            "AMINotFound",
        ),
        (
            "role",
            json!({"role": "missing"}),
            "InstanceProfileReady",
            "RoleNotFound",
        ),
        (
            "toml",
            json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "userData": "a = ["}),
            "ValidationSucceeded",
            "InvalidUserData",
        ),
        (
            "long",
            json!({"userData": long}),
            "ValidationSucceeded",
            "UserDataSizeLimitExceeded",
        ),
        (
            "group",
            json!({"placementGroupSelector": {"name": "x"}}),
            "ValidationSucceeded",
            "UnsupportedField",
        ),
    ];
    for (name, spec, ..) in &cases {
        world.class(name, spec.clone()).await;
    }
    let provider = world.provider();
    world.pass(120).await;
    for (name, _, type_, reason) in &cases {
        let class = world.class_now(name).await;
        let (status, found, message) = condition(&class, type_);
        assert_eq!(
            (status.as_str(), found.as_str()),
            ("False", *reason),
            "{name}: {message}"
        );
        assert!(!message.is_empty(), "{name}");
        assert_eq!(condition(&class, "Ready").0, "False", "{name}");
    }
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
    drop(provider);
}

#[tokio::test(start_paused = true)]
async fn a_035_a_denied_call_is_named_and_the_class_recovers_when_it_is_allowed() {
    let world = World::new(Options::new(CLUSTER)).await;
    let denied = ApiError::new(
        "UnauthorizedOperation",
        "You are not authorized to perform this operation.",
    );
    world.cloud.fail("CreateFleet", &denied, 1);
    let _provider = world.provider();
    world.pass(60).await;
    let (status, reason, message) = condition(&world.class_now("default").await, "ValidationSucceeded");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "CreateFleetAuthCheckFailed")
    );
    assert!(message.contains("ec2:CreateFleet"), "{message}");
    world.pass(31 * 60).await;
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_035_throttling_and_a_profile_that_ec2_does_not_know_yet_are_no_verdict() {
    let world = World::new(Options {
        profile_delay: std::time::Duration::from_secs(45),
        ..Options::new(CLUSTER)
    })
    .await;
    let busy = ApiError::new("RequestLimitExceeded", "Request limit exceeded.");
    world.cloud.fail("CreateFleet", &busy, 2);
    let _provider = world.provider();
    world.pass(30).await;
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "Unknown");
    world.pass(90).await;
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_030_a_class_on_the_newest_images_follows_a_release() {
    let world = World::new(Options::new(CLUSTER)).await;
    let _provider = world.provider();
    world.pass(60).await;
    let images = async || {
        let class = world.class_now("default").await;
        let amis = class.status.into_iter().flat_map(|status| status.amis);
        amis.map(|ami| ami.id).collect::<std::collections::BTreeSet<_>>()
    };
    let before = images().await;
    world.cloud.release_images();
    world.pass(25 * 3600).await;
    let after = images().await;
    assert!(
        !before.is_empty() && before.is_disjoint(&after),
        "{before:?} {after:?}"
    );
}
