//! What the leader does by itself, and goes on doing when a part of it fails: tags, templates of an earlier leader, instance profiles.

use jiff::SignedDuration;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodeClaim, labels};
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::profiles;

use crate::world::{CLUSTER, World, claim};

/// Writes a NodeClaim whose Node has joined.
async fn joined(world: &World, name: &str, provider_id: &str) {
    let api: Api<NodeClaim> = Api::all(world.client.clone());
    let mut written = claim(name, &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    written.metadata.uid = None;
    api.create(&PostParams::default(), &written).await.unwrap();
    let status =
        Patch::Merge(json!({"status": {"providerID": provider_id, "nodeName": format!("node-{name}")}}));
    api.patch_status(name, &PatchParams::default(), &status)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_095_node_claims_that_cannot_be_tagged_stop_no_other_and_wait_longer_each_time() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider();
    world.pass(60).await;
    let wanted = claim("zz-last", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    let launched = provider.create(&wanted).await.unwrap();
    world.pass(30).await;
    // EC2 does not know these instances; their NodeClaims come first by name.
    for number in 0..20 {
        let provider_id = format!("aws:///us-east-1a/i-0fedcba98765432{number:02}");
        joined(&world, &format!("broken-{number:02}"), &provider_id).await;
    }
    world.pass(15).await;
    joined(&world, "zz-last", launched.provider_id().unwrap()).await;
    world.cloud.fail(
        "CreateTags",
        &ApiError::new("InternalError", "An internal error has occurred"),
        1,
    );
    let described = || {
        world
            .cloud
            .calls()
            .get("DescribeInstances")
            .copied()
            .unwrap_or_default()
    };
    world.pass(60).await;
    let tags = world.cloud.instances()[0].tags.clone();
    assert_eq!(
        (tags.get("karpenter.sh/nodeclaim"), tags.get("Name")),
        (Some(&"zz-last".to_owned()), Some(&"node-zz-last".to_owned()))
    );
    let api: Api<NodeClaim> = Api::all(world.client.clone());
    let tagged = api.get("zz-last").await.unwrap();
    assert_eq!(tagged.annotation("karpenter.k8s.aws/tagged"), Some("true"));
    // 10 s, 20 s … ten minutes: after two hours each of the twenty is tried six times an hour.
    world.pass(7_200).await;
    let before = described();
    world.pass(3_600).await;
    let tried = described() - before;
    assert!((100..=200).contains(&tried), "{tried}");
}

#[tokio::test(start_paused = true)]
async fn a_066_templates_of_an_earlier_leader_are_removed_also_when_ec2_does_not_tell_of_them_at_first() {
    let world = World::new(Options::new(CLUSTER)).await;
    let broken = ApiError::new("RequestLimitExceeded", "Request limit exceeded.");
    let (tx, rx) = tokio::sync::oneshot::channel::<()>();
    let earlier = world.unled_provider();
    let (leader, writes) = (earlier.clone(), world.writes());
    let led = tokio::spawn(async move {
        tokio::select! {
            () = leader.lead(writes) => {}
            _ = rx => {}
        }
    });
    world.pass(60).await;
    let wanted = claim("one", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    earlier.create(&wanted).await.unwrap();
    let left = world.cloud.templates();
    assert!(!left.is_empty());
    tx.send(()).unwrap();
    led.await.unwrap();
    world.cloud.fail("DescribeLaunchTemplates", &broken, 5);
    let _next = world.provider();
    world.pass(30).await;
    let remaining = || -> usize {
        let there = world.cloud.templates();
        left.iter().filter(|name| there.contains(name)).count()
    };
    assert_eq!(remaining(), left.len(), "nobody has told of them yet");
    world.pass(150).await;
    assert_eq!(remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_031_a_033_the_profile_of_an_earlier_role_goes_an_hour_after_nobody_needs_it() {
    let world = World::new(Options::new(CLUSTER)).await;
    let _provider = world.provider();
    world.pass(60).await;
    let first = world.cloud.profiles();
    assert_eq!(first.len(), 1);
    joined(&world, "one", "aws:///us-east-1a/i-0fedcba9876543210").await;
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    let annotated = json!({"metadata": {"annotations": {profiles::ANNOTATION: first[0]}}});
    world.change::<NodeClaim>("one", annotated).await;
    let role = json!({"spec": {"role": "AnotherRole"}});
    world.change::<EC2NodeClass>("default", role).await;
    world.pass(3 * 3600).await;
    assert_eq!(world.cloud.profiles().len(), 2, "a node still has it");
    claims.delete("one", &DeleteParams::default()).await.unwrap();
    let freed = world.clock.now();
    while world.cloud.profiles().len() > 1 {
        world.pass(60).await;
    }
    let stayed = world.clock.now().duration_since(freed);
    assert!(
        stayed >= SignedDuration::from_mins(60) && stayed <= SignedDuration::from_mins(95),
        "{stayed:?}"
    );
    let current = world.class_now("default").await.status.unwrap().instance_profile;
    assert_eq!(world.cloud.profiles(), Vec::from_iter(current));
}
