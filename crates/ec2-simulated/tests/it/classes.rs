//! EC2NodeClasses that cannot work: each says what to do, and none keeps another one from being ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodeClaim, NodePool, Operator, Requirement, labels};
use spokeshave_ec2_simulated::{Options, REGION};
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::{profiles, tags, templates};

use crate::world::{CLUSTER, REHEARSED, World, claim, condition, pool, prompt};

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
async fn a_035_one_subnet_that_allows_a_launch_is_enough_and_else_the_first_ones_answer_counts() {
    let unsold = ApiError::new("Unsupported", "The type is not supported in this zone.");
    let denied = ApiError::new("UnauthorizedOperation", "You are not authorized.");
    for (answers, expected) in [
        ([(&unsold, 1), (&unsold, 2)], "True"),
        ([(&denied, 1), (&unsold, 3)], "False"),
        ([(&unsold, 1), (&denied, 3)], "Unknown"),
    ] {
        let world = World::new(prompt()).await;
        for (answer, times) in answers {
            world.cloud.fail("RunInstances", answer, times);
        }
        let _provider = world.provider();
        world.pass(REHEARSED).await;
        assert_eq!(world.cloud.calls()["RunInstances"], 4, "{answers:?}");
        let (status, reason, message) = condition(&world.class_now("default").await, "ValidationSucceeded");
        assert_eq!(status, expected, "{answers:?}: {reason} {message}");
        if expected == "False" {
            assert_eq!(reason, "RunInstancesAuthCheckFailed");
        }
    }
}

/// Of a class with many subnets EC2 may want fewer calls before all of them have been tried.
#[tokio::test(start_paused = true)]
async fn a_035_a_denial_counts_also_when_ec2_then_wants_fewer_calls() {
    let world = World::new(prompt()).await;
    let denied = ApiError::new("UnauthorizedOperation", "You are not authorized.");
    let busy = ApiError::new("RequestLimitExceeded", "Request limit exceeded.");
    for answer in [&denied, &busy] {
        world.cloud.fail("RunInstances", answer, 1);
    }
    let _provider = world.provider();
    world.pass(REHEARSED).await;
    assert_eq!(world.cloud.calls()["RunInstances"], 2);
    let (_, reason, message) = condition(&world.class_now("default").await, "ValidationSucceeded");
    assert_eq!(reason, "RunInstancesAuthCheckFailed", "{message}");
}

/// The first subnet is denied for good, and the call for the second comes at a bad time.
#[tokio::test(start_paused = true)]
async fn a_035_a_class_that_works_stays_valid_when_ec2_wants_fewer_calls_in_mid_rehearsal() {
    let world = World::new(prompt()).await;
    let _provider = world.provider();
    world.pass(REHEARSED).await;
    let valid = async || condition(&world.class_now("default").await, "ValidationSucceeded").0;
    assert_eq!(valid().await, "True");
    let before = world.cloud.calls()["RunInstances"];
    let denied = ApiError::new("UnauthorizedOperation", "You are not authorized.");
    let busy = ApiError::new("RequestLimitExceeded", "Request limit exceeded.");
    for answer in [&denied, &busy] {
        world.cloud.fail("RunInstances", answer, 1);
    }
    let monitored = json!({"spec": {"detailedMonitoring": true}});
    world.change::<EC2NodeClass>("default", monitored).await;
    world.pass(REHEARSED).await;
    assert_eq!(world.cloud.calls()["RunInstances"], before + 2);
    assert_eq!(valid().await, "True");
    world.pass(10).await;
    assert_eq!(world.cloud.calls()["RunInstances"], before + 3, "asked again");
    assert_eq!(valid().await, "True");
}

/// A type that its NodePool asks for is not sold where the first subnets are.
#[tokio::test(start_paused = true)]
async fn a_035_a_type_is_rehearsed_where_it_is_sold() {
    let world = World::new(prompt()).await;
    world.class_in_subnets("own", 4, json!({})).await;
    let mut pool = pool();
    let spec = &mut pool.spec.template.spec;
    spec.node_class_ref.name = "own".to_owned();
    spec.requirements = vec![Requirement::new(
        labels::INSTANCE_TYPE,
        Operator::In,
        &["hpc7g.4xlarge"],
    )];
    let pools: Api<NodePool> = Api::all(world.client.clone());
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let _provider = world.provider();
    world.pass(REHEARSED).await;
    assert_eq!(condition(&world.class_now("own").await, "Ready").0, "True");
    assert_eq!(world.cloud.calls()["RunInstances"], 2, "one for each class");
}

/// Another replica has made the template, and EC2 does not list it yet.
#[tokio::test(start_paused = true)]
async fn a_066_a_template_without_a_known_id_is_looked_for_again_and_deleted_once() {
    let world = World::new(Options::new(CLUSTER)).await;
    let taken = ApiError::new(
        "InvalidLaunchTemplateName.AlreadyExistsException",
        "Launch template name already in use",
    );
    world.cloud.fail("CreateLaunchTemplate", &taken, 1);
    let _provider = world.provider();
    world.pass(60).await;
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
    world.pass(10 * 60).await;
    assert!(world.cloud.templates().is_empty());
    assert_eq!(world.cloud.calls()["DeleteLaunchTemplate"], 1);
}

/// A new image is seen within the interval at which images are looked for, and not a day later, as when the values of parameters are kept for long.
#[tokio::test(start_paused = true)]
async fn a_030_a_class_on_the_newest_images_follows_a_release_within_minutes() {
    let world = World::new(Options::new(CLUSTER)).await;
    let _provider = world.provider();
    world.pass(60).await;
    let images = async || {
        let class = world.class_now("default").await;
        let amis = class.status.into_iter().flat_map(|status| status.amis);
        amis.map(|ami| ami.id).collect::<BTreeSet<_>>()
    };
    let before = images().await;
    world.cloud.release_images();
    world.pass(120).await;
    let after = images().await;
    assert!(
        !before.is_empty() && before.is_disjoint(&after),
        "{before:?} {after:?}"
    );
}

/// A control plane is upgraded under a running operator: images of the new version are found within minutes, also where found ones are kept for a day, and
/// an API server that still answers in the old version brings none of the old ones back.
#[tokio::test(start_paused = true)]
async fn a_026_images_of_aliases_follow_an_upgrade_of_the_control_plane() {
    let world = World::new(Options::new(CLUSTER)).await;
    world
        .class(
            "windows",
            json!({"amiSelectorTerms": [{"alias": "windows2025@latest"}]}),
        )
        .await;
    let _provider =
        world.provider_set(|options| options.ami_refresh_interval = Duration::from_secs(24 * 3600));
    world.pass(60).await;
    let images = async || {
        let class = world.class_now("default").await;
        let amis = class.status.into_iter().flat_map(|status| status.amis);
        amis.map(|ami| ami.id).collect::<BTreeSet<_>>()
    };
    let windows = async || condition(&world.class_now("windows").await, "AMIsReady");
    let before = images().await;
    assert_eq!(windows().await.1, "UnsupportedAlias");
    // Nothing changes before the version does.
    world.pass(10 * 60).await;
    assert_eq!(images().await, before);
    world.serve_version(35);
    world.pass(7 * 60).await;
    let after = images().await;
    assert!(
        !before.is_empty() && !after.is_empty() && before.is_disjoint(&after),
        "{before:?} {after:?}"
    );
    assert_eq!(windows().await.0, "True");
    world.serve_version(34);
    world.pass(20 * 60).await;
    assert_eq!(images().await, after);
    assert_eq!(windows().await.0, "True");
}

/// Rehearsals are made once in half an hour while nothing changes, again at once when the class does, and never where they are switched off.
#[tokio::test(start_paused = true)]
async fn a_035_rehearsals_are_made_when_something_changes_and_every_half_hour_or_never() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider();
    world.pass(60).await;
    let rehearsed = || {
        world
            .cloud
            .calls()
            .get("RunInstances")
            .copied()
            .unwrap_or_default()
    };
    // EC2 does not know the new profile at first, which is no verdict.
    let first = rehearsed();
    assert!((1..=2).contains(&first), "{first}");
    world.pass(25 * 60).await;
    assert_eq!(rehearsed(), first, "the verdict stands");
    world.pass(20 * 60).await;
    assert_eq!(rehearsed(), first + 1);
    let monitored = json!({"spec": {"detailedMonitoring": true}});
    world.change::<EC2NodeClass>("default", monitored).await;
    world.pass(10).await;
    assert_eq!(rehearsed(), first + 2);
    drop(provider);

    let world = World::new(Options::new(CLUSTER)).await;
    let _provider = world.provider_set(|options| options.disable_dry_run = true);
    world.pass(60 * 60).await;
    assert_eq!(condition(&world.class_now("default").await, "Ready").0, "True");
    let calls = world.cloud.calls();
    assert!(
        !calls.contains_key("RunInstances") && !calls.contains_key("CreateFleet"),
        "{calls:?}"
    );
}

/// Launches take addresses and ends give them back, so that the order of a class's subnets changes all the time.
#[tokio::test(start_paused = true)]
async fn a_035_a_050_subnets_that_fill_and_empty_are_no_reason_to_rehearse_again_or_to_make_types_anew() {
    let world = World::new(prompt()).await;
    world.class_in_subnets("own", 2, json!({})).await;
    let provider = world.provider();
    world.pass(60).await;
    let mut pool = pool();
    pool.spec.template.spec.node_class_ref.name = "own".to_owned();
    let rehearsed = || world.cloud.calls()["RunInstances"];
    let (first, types) = (rehearsed(), provider.instance_types(&pool).await.unwrap());
    for turn in 0..8 {
        let (fuller, emptier) = if turn % 2 == 0 {
            ("subnet-1", "subnet-2")
        } else {
            ("subnet-2", "subnet-1")
        };
        world.cloud.set_free_addresses(fuller, 10);
        world.cloud.set_free_addresses(emptier, 4_000);
        world.pass(130).await;
        let status = world.class_now("own").await.status.unwrap();
        assert_eq!(status.subnets[0].id, emptier, "most free addresses first");
        assert_eq!(rehearsed(), first);
        let now = provider.instance_types(&pool).await.unwrap();
        assert!(Arc::ptr_eq(&now, &types), "what is kept by it would be made anew");
    }
}

/// Karpenter before 1.7 made one profile for a class, without a path, and a takeover keeps it. A role that is in a profile cannot be deleted.
#[tokio::test(start_paused = true)]
async fn a_034_a_profile_that_an_earlier_karpenter_has_made_goes_with_its_class_and_a_strangers_stays() {
    for role in ["KarpenterNodeRole", "AnotherRole"] {
        let world = World::new(Options::new(CLUSTER)).await;
        let iam = world.cloud.services().iam;
        let made = profiles::legacy_name(REGION, CLUSTER, "default");
        let own = [
            (tags::cluster(CLUSTER), "owned"),
            (tags::CLUSTER_NAME.to_owned(), CLUSTER),
            (tags::NODE_CLASS.to_owned(), "default"),
            (tags::REGION.to_owned(), REGION),
        ];
        let own: BTreeMap<String, String> = own.map(|(key, value)| (key, value.to_owned())).into();
        iam.create_profile(&made, "/", &own).await.unwrap();
        iam.add_role(&made, "KarpenterNodeRole").await.unwrap();
        // Somebody else's by accident, of a class that has another.
        let stranger = profiles::legacy_name(REGION, CLUSTER, "other");
        iam.create_profile(&stranger, "/", &BTreeMap::new())
            .await
            .unwrap();
        world.class("other", json!({})).await;
        let classes: Api<EC2NodeClass> = Api::all(world.client.clone());
        let status = Patch::Merge(json!({"status": {"instanceProfile": made}}));
        let parameters = PatchParams::default();
        classes
            .patch_status("default", &parameters, &status)
            .await
            .unwrap();
        let _provider = world.provider();
        world.pass(60).await;
        let kept = world.class_now("default").await.status.unwrap().instance_profile;
        assert_eq!(kept.as_deref(), Some(made.as_str()), "its role is right");
        let changed = json!({"spec": {"role": role}});
        world.change::<EC2NodeClass>("default", changed).await;
        world.pass(60).await;
        assert!(world.cloud.profiles().contains(&made), "nodes may have it");
        for name in ["default", "other"] {
            classes.delete(name, &DeleteParams::default()).await.unwrap();
        }
        world.pass(30).await;
        assert!(
            classes
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .is_empty()
        );
        assert_eq!(world.cloud.profiles(), [stranger], "{role}");
    }
}

/// Without a way to IAM and pricing neither is ever called; a class that names its profile works, one that names a role is told what to do.
#[tokio::test(start_paused = true)]
async fn a_036_in_an_isolated_vpc_neither_iam_nor_pricing_is_called() {
    let world = World::new(Options::new(CLUSTER)).await;
    world
        .class("named", json!({"instanceProfile": "mine", "role": null}))
        .await;
    let provider = world.provider_set(|options| options.isolated_vpc = true);
    world.pass(3600).await;
    let (status, _, message) = condition(&world.class_now("default").await, "InstanceProfileReady");
    assert_eq!(status, "False");
    assert!(message.contains("spec.instanceProfile"), "{message}");
    let named = world.class_now("named").await;
    assert_eq!(condition(&named, "InstanceProfileReady").0, "True");
    assert_eq!(named.status.unwrap().instance_profile.as_deref(), Some("mine"));
    let classes: Api<EC2NodeClass> = Api::all(world.client.clone());
    for name in ["default", "named"] {
        classes.delete(name, &DeleteParams::default()).await.unwrap();
    }
    world.pass(60).await;
    let left = classes.list(&ListParams::default()).await.unwrap().items;
    assert!(left.is_empty(), "nothing of IAM is waited for");
    let calls = world.cloud.calls();
    let kept_from: Vec<_> = calls
        .keys()
        .filter(|call| call.contains("InstanceProfile") || *call == "GetProducts")
        .collect();
    assert!(kept_from.is_empty(), "{kept_from:?}");
    drop(provider);
}

/// A class that is deleted waits for its NodeClaims, and says so; then its instance profile and launch templates go, and those of another class stay.
#[tokio::test(start_paused = true)]
async fn a_034_a_deleted_class_waits_for_its_nodeclaims_and_takes_its_profile_and_templates_along() {
    let world = World::new(Options::new(CLUSTER)).await;
    world.class("other", json!({"role": "AnotherRole"})).await;
    let provider = world.provider();
    world.pass(60).await;
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    let mut written = claim("one", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    provider.create(&written).await.unwrap();
    written.metadata.uid = None;
    claims.create(&PostParams::default(), &written).await.unwrap();
    let profile = async |name: &str| {
        world
            .class_now(name)
            .await
            .status
            .unwrap()
            .instance_profile
            .unwrap()
    };
    let (gone, stays) = (profile("default").await, profile("other").await);
    let of_class = async |name: &str| {
        let found = world
            .cloud
            .services()
            .ec2
            .launch_templates(&templates::of_class(CLUSTER, name))
            .await;
        found.unwrap().len()
    };
    assert!(of_class("default").await > 0 && of_class("other").await > 0);
    let classes: Api<EC2NodeClass> = Api::all(world.client.clone());
    classes.delete("default", &DeleteParams::default()).await.unwrap();
    world.pass(20).await;
    assert!(
        classes.get_opt("default").await.unwrap().is_some(),
        "a NodeClaim is there"
    );
    assert!(world.cloud.profiles().contains(&gone));
    let mut notices = provider.notices().unwrap();
    let told = std::iter::from_fn(|| notices.next().now_or_never().flatten());
    let told: Vec<_> = told
        .filter(|one| one.reason == "WaitingOnNodeClaimTermination")
        .collect();
    assert!(
        !told.is_empty()
            && told
                .iter()
                .all(|one| one.name == "default" && one.message.contains("one")),
        "{told:?}"
    );
    claims.delete("one", &DeleteParams::default()).await.unwrap();
    world.pass(20).await;
    assert!(classes.get_opt("default").await.unwrap().is_none());
    assert_eq!(world.cloud.profiles(), [stays]);
    assert_eq!(of_class("default").await, 0);
    assert_eq!(condition(&world.class_now("other").await, "Ready").0, "True");
}
