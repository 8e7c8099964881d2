//! What an account may answer that nobody wants: each is told with what to do about it, and other classes go on.

use std::collections::BTreeSet;

use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use spokeshave_api::labels;
use spokeshave_aws_cloud::AwsProvider;
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::{CloudError, CloudProvider as _, Notice};
use spokeshave_provider_aws::errors::ApiError;

use crate::world::{CLUSTER, World, claim, condition, lead, pool};

/// The notices that wait to be read.
fn told(provider: &AwsProvider) -> Vec<Notice> {
    let mut notices = provider.notices().unwrap();
    std::iter::from_fn(|| notices.next().now_or_never().flatten()).collect()
}

/// A cluster whose class is ready, and whose leader is gone.
async fn left_ready() -> World {
    let world = World::new(Options::new(CLUSTER)).await;
    let leading = lead(&world.unled_provider(), world.writes());
    world.pass(120).await;
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
    leading.abort();
    world
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
        // As `aws-http` says it of a host that does not exist (a_region_that_does_not_exist_… there).
        (
            "DescribeInstanceTypes",
            "",
            "check that region nowhere-1 (AWS_REGION) exists",
        ),
    ] {
        let world = World::new(Options::new(CLUSTER)).await;
        world.class("second", json!({})).await;
        let text = if code.is_empty() { advice } else { "no" };
        world.cloud.fail(call, &ApiError::new(code, text), 3);
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
    world.class("second", json!({})).await;
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
    let mut priced = claim(
        "two",
        &[
            (labels::INSTANCE_TYPE, &["m5.xlarge"]),
            (labels::CAPACITY_TYPE, &["spot"]),
        ],
    );
    priced.spec.node_class_ref.name = "second".to_owned();
    let launched = provider.create(&priced).await.unwrap();
    assert_eq!(
        launched.label(labels::CAPACITY_TYPE),
        Some("spot"),
        "what has a price is launched"
    );
}

/// Of equal NodeClaims that share a fleet, some get an instance, and the others are told why; those of another class, launched at the same time, all get theirs.
#[tokio::test(start_paused = true)]
async fn a_074_a_076_a_fleet_that_answers_partly_gives_each_nodeclaim_its_own_answer() {
    let world = World::new(Options::new(CLUSTER)).await;
    world.class("second", json!({})).await;
    let provider = world.provider();
    world.pass(60).await;
    for zone in ["a", "b", "c", "d"] {
        let left = if zone == "b" { 3 } else { 0 };
        let pool = format!("m5.large/us-east-1{zone}/on-demand");
        world.cloud.limit(pool.parse().unwrap(), left);
    }
    let of = |name: &str, class: &str, instance_type: &'static [&'static str]| {
        let wanted = [
            (labels::INSTANCE_TYPE, instance_type),
            (labels::CAPACITY_TYPE, &["on-demand"][..]),
        ];
        let mut claim = claim(name, &wanted);
        claim.spec.node_class_ref.name = class.to_owned();
        claim
    };
    let scarce: Vec<_> = (0..5)
        .map(|number| of(&format!("scarce-{number}"), "default", &["m5.large"]))
        .collect();
    let others: Vec<_> = (0..4)
        .map(|number| of(&format!("other-{number}"), "second", &["m5.xlarge"]))
        .collect();
    let fleets = || {
        world
            .cloud
            .calls()
            .get("CreateFleet")
            .copied()
            .unwrap_or_default()
    };
    let before = fleets();
    let (scarce, others) = futures::join!(
        futures::future::join_all(scarce.iter().map(|claim| provider.create(claim))),
        futures::future::join_all(others.iter().map(|claim| provider.create(claim))),
    );
    assert_eq!(fleets() - before, 2, "one call for each kind");
    let (got, went_without): (Vec<_>, Vec<_>) = scarce.into_iter().partition(Result::is_ok);
    let ids: BTreeSet<_> = got
        .iter()
        .filter_map(|one| one.as_ref().ok()?.provider_id())
        .collect();
    assert_eq!((ids.len(), went_without.len()), (3, 2), "{went_without:?}");
    for refused in went_without {
        match refused.unwrap_err() {
            CloudError::InsufficientCapacity(text) => {
                assert!(text.contains("InsufficientInstanceCapacity"), "{text}")
            }
            other => panic!("{other}"),
        }
    }
    let zones: BTreeSet<_> = got
        .iter()
        .filter_map(|one| one.as_ref().ok()?.label(labels::ZONE))
        .collect();
    assert_eq!(zones, BTreeSet::from(["us-east-1b"]));
    assert!(others.iter().all(Result::is_ok), "{others:?}");
}

/// A rehearsal that fails in a way that is no verdict about permissions (here once as a mistake in the class would, once for wrong credentials) is told with
/// what EC2 says and what to do; it is tried again, and the other class is ready meanwhile.
#[tokio::test(start_paused = true)]
async fn a_035_a_rehearsal_that_fails_otherwise_is_told_and_stops_no_other_class() {
    let mixed = "Security group sg-1 and subnet subnet-1 belong to different networks.";
    for (call, code, text, said) in [
        (
            "RunInstances",
            "InvalidParameter",
            mixed,
            "belong to different networks",
        ),
        (
            "CreateFleet",
            "AuthFailure",
            "AWS was not able to validate the provided access credentials",
            "check the operator's credentials",
        ),
        (
            "DescribeLaunchTemplates",
            "UnauthorizedOperation",
            "no",
            "allow ec2:DescribeLaunchTemplates in the policy",
        ),
    ] {
        let world = World::new(Options::new(CLUSTER)).await;
        let provider = world.provider();
        world.pass(60).await;
        assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
        // Four times, with a pause that grows. An instance is rehearsed in each of the four subnets.
        let times = if call == "RunInstances" { 4 * 4 } else { 4 };
        world.cloud.fail(call, &ApiError::new(code, text), times);
        world.class("wrong", json!({"detailedMonitoring": true})).await;
        world.pass(60).await;
        let told = told(&provider);
        let about: Vec<_> = told
            .iter()
            .filter(|one| one.name == "wrong" && one.reason == "ReconcileFailed")
            .collect();
        assert!(!about.is_empty(), "{call}: {told:?}");
        for part in ["a launch cannot be rehearsed", call, said] {
            assert!(about[0].message.contains(part), "{}", about[0].message);
        }
        let ready = condition(&world.class_now("wrong").await, "Ready");
        assert_eq!(ready.0, "Unknown", "{ready:?}");
        assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
        world.pass(180).await;
        assert_eq!(
            condition(&world.class_now("wrong").await, "Ready").0,
            "True",
            "{call}"
        );
    }
}

/// A cluster name that EKS does not know: AL2023 needs the cluster's address range, Bottlerocket does not.
#[tokio::test(start_paused = true)]
async fn a_069_a_cluster_that_eks_does_not_know_is_told_and_stops_no_class_that_can_do_without() {
    let world = World::new(Options::new(CLUSTER)).await;
    world
        .class(
            "bottlerocket",
            json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}),
        )
        .await;
    let unknown = ApiError::new(
        "ResourceNotFoundException",
        "No cluster found for name: rehearsal.",
    );
    world.cloud.fail("DescribeCluster", &unknown, 20);
    let provider =
        world.provider_set(|options| options.cluster_endpoint = Some("https://cluster.example".to_owned()));
    world.pass(150).await;
    let (status, reason, message) = condition(&world.class_now("default").await, "ValidationSucceeded");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "ClusterCIDRResolutionFailed")
    );
    assert!(message.contains("eks:DescribeCluster"), "{message}");
    let told = told(&provider);
    let mut about = told
        .iter()
        .filter(|one| one.name == "default" && one.reason == "CallFailed");
    assert!(about.any(|one| one.message.contains("CLUSTER_NAME")), "{told:?}");
    assert_eq!(
        condition(&world.class_now("bottlerocket").await, "Ready").0,
        "True"
    );
    world.pass(15 * 60).await;
    assert_eq!(
        condition(&world.class_now("default").await, "Ready").0,
        "True",
        "it recovers"
    );
}

/// Bottlerocket can do without the cluster's address range, and not without the API server's address.
#[tokio::test(start_paused = true)]
async fn a_070_without_the_address_of_the_api_server_nothing_is_launched() {
    let world = World::new(Options::new(CLUSTER)).await;
    let spec = json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]});
    world.class("bottlerocket", spec).await;
    let busy = ApiError::new("ThrottlingException", "Rate exceeded");
    world.cloud.fail("DescribeCluster", &busy, 10);
    let _leader = world.provider();
    world.pass(50).await;
    let (status, reason, message) = condition(&world.class_now("bottlerocket").await, "ValidationSucceeded");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "ClusterEndpointResolutionFailed")
    );
    assert!(message.contains("CLUSTER_ENDPOINT"), "{message}");
    world.pass(5 * 60).await;
    let ready = condition(&world.class_now("bottlerocket").await, "Ready");
    assert_eq!(ready.0, "True", "it recovers");

    // Another process finds the class ready, and has not heard of EKS yet.
    world.cloud.fail("DescribeCluster", &busy, 4);
    let next = world.reading_provider(|_| {});
    world.pass(20).await;
    let mut wanted = claim("one", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    wanted.spec.node_class_ref.name = "bottlerocket".to_owned();
    let error = next.create(&wanted).await.unwrap_err();
    assert!(matches!(error, CloudError::NodeClassNotReady(_)), "{error}");
    assert!(world.cloud.instances().is_empty());
    world.pass(60).await;
    next.create(&wanted).await.unwrap();
}

/// A new leader has not heard of EKS yet, and then finds that it may not ask.
#[tokio::test(start_paused = true)]
async fn a_069_a_class_that_was_ready_stays_so_until_eks_has_answered_a_new_leader() {
    let world = left_ready().await;
    let ready = async || condition(&world.class_now("default").await, "Ready").0;
    let busy = ApiError::new("ThrottlingException", "Rate exceeded");
    let denied = ApiError::new("AccessDeniedException", "no policy allows it");
    world.cloud.fail("DescribeCluster", &busy, 10);
    world.cloud.fail("DescribeCluster", &denied, 20);
    let _next = world.provider();
    for _ in 0..9 {
        world.pass(10).await;
        assert_eq!(ready().await, "True");
    }
    world.pass(90).await;
    assert_eq!(ready().await, "False", "nothing can be launched");
    world.pass(5 * 60).await;
    assert_eq!(ready().await, "True", "it recovers");
}

/// A new leader cannot reach EKS, and nothing can be launched: the class may not say for ever that it is ready.
#[tokio::test(start_paused = true)]
async fn a_069_a_class_that_was_ready_is_not_so_any_more_when_eks_answers_no_new_leader_for_long() {
    let world = left_ready().await;
    let ready = async || condition(&world.class_now("default").await, "Ready").0;
    let busy = ApiError::new("ThrottlingException", "Rate exceeded");
    world.cloud.fail("DescribeCluster", &busy, 1000);
    // It has only followed for longer than that when it begins to lead.
    let next = world.unled_provider();
    let follower = next.clone();
    let following = tokio::spawn(async move { follower.follow().await });
    world.pass(10 * 60).await;
    following.abort();
    lead(&next, world.writes());
    world.pass(4 * 60).await;
    assert_eq!(ready().await, "True");
    world.pass(2 * 60).await;
    assert_eq!(ready().await, "False", "nothing can be launched");
    world.cloud.heal();
    world.pass(15 * 60).await;
    assert_eq!(ready().await, "True", "it recovers");
}

#[tokio::test(start_paused = true)]
async fn a_070_a_cluster_without_an_address_yet_is_asked_for_every_minute() {
    let world = World::new(Options {
        endpoint: String::new(),
        ..Options::new(CLUSTER)
    })
    .await;
    let _provider = world.provider();
    world.pass(5 * 60).await;
    let class = world.class_now("default").await;
    let (_, reason, message) = condition(&class, "ValidationSucceeded");
    assert_eq!(reason, "ClusterEndpointResolutionFailed", "{message}");
    let asked = world.cloud.calls()["DescribeCluster"];
    assert!((4..=6).contains(&asked), "{asked}");
}

/// A cluster that EKS cannot describe yet, and one that it has described.
#[tokio::test(start_paused = true)]
async fn a_070_nodes_get_the_operators_own_certificates_until_eks_has_told_the_clusters() {
    let (of_eks, own) = ("b2YgRUtT", "b3duIG9uZXM=");
    for (failures, expected) in [(0, of_eks), (50, own)] {
        let world = World::new(Options {
            certificate_authority: of_eks.to_owned(),
            ..Options::new(CLUSTER)
        })
        .await;
        let spec = json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]});
        world.class("bottlerocket", spec).await;
        let denied = ApiError::new("AccessDeniedException", "no policy allows it");
        world.cloud.fail("DescribeCluster", &denied, failures);
        let provider = world.provider_set(|options| {
            options.cluster_endpoint = Some("https://cluster.example".to_owned());
            options.own_ca_bundle = Some(own.to_owned());
        });
        world.pass(90).await;
        let mut wanted = claim("one", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
        wanted.spec.node_class_ref.name = "bottlerocket".to_owned();
        provider.create(&wanted).await.unwrap();
        let templates = world.cloud.templates();
        let mut templates = templates.iter().filter_map(|name| world.cloud.template(name));
        let line = format!("cluster-certificate = \"{expected}\"");
        assert!(
            templates.any(|template| template.user_data.contains(&line)),
            "{line}"
        );
    }
}
