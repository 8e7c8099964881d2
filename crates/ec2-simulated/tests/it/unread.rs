//! EC2NodeClasses and NodeClaims that are not listed yet or cannot be read: what may be there is not taken for gone.

use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use spokeshave_api::crds::without_schema;
use spokeshave_api::{EC2NodeClass, NodeClaim, labels};
use spokeshave_aws_cloud::AwsProvider;
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_provider_aws::profiles;

use crate::world::{CLUSTER, World, claim, lead, pool};

const SIZE: &[(&str, &[&str])] = &[(labels::INSTANCE_TYPE, &["m5.large"])];

/// Takes the schema of a kind away, as the definitions of another version may allow what this one cannot read.
async fn allow_any(world: &World, name: &str) {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let definition = without_schema(definitions.get(name).await.unwrap());
    let as_it_is = PostParams::default();
    definitions.replace(name, &as_it_is, &definition).await.unwrap();
}

async fn make_claim(world: &World, name: &str, profile: &str) -> Api<NodeClaim> {
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    let mut written = claim(name, SIZE);
    written.metadata.uid = None;
    written.metadata.annotations = Some([(profiles::ANNOTATION.to_owned(), profile.to_owned())].into());
    claims.create(&PostParams::default(), &written).await.unwrap();
    claims
}

/// A launch is refused in words like these, and tried again: the NodeClaim stays. Nor is the class said to be gone to whoever asks for its types.
async fn assert_waited_for(provider: &AwsProvider, words: &str) {
    let refused = provider.create(&claim("one", SIZE)).await.unwrap_err();
    assert!(
        matches!(&refused, CloudError::Create { reason, message } if reason == "NodeClassUnknown" && message.contains(words)),
        "{refused:?}"
    );
    let types = provider.instance_types(&pool()).await.unwrap_err();
    assert!(
        matches!(&types, CloudError::Postponed { message, .. } if message.contains(words)),
        "{types:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_060_a_class_that_was_not_listed_yet_is_waited_for_and_only_one_that_is_gone_ends_the_claim() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.unled_provider();
    assert_waited_for(&provider, "EC2NodeClass default is not known yet").await;
    lead(&provider, world.writes());
    world.pass(60).await;
    provider.create(&claim("one", SIZE)).await.unwrap();
    let mut lost = claim("two", SIZE);
    lost.spec.node_class_ref.name = "gone".to_owned();
    let refused = provider.create(&lost).await.unwrap_err();
    assert!(
        matches!(&refused, CloudError::InsufficientCapacity(message) if message.contains("EC2NodeClass gone does not exist")),
        "{refused:?}"
    );
    let mut of_lost = pool();
    of_lost.spec.template.spec.node_class_ref.name = "gone".to_owned();
    let types = provider.instance_types(&of_lost).await.unwrap_err();
    assert!(matches!(types, CloudError::NodeClassNotReady(_)), "{types:?}");
}

#[tokio::test(start_paused = true)]
async fn a_060_a_class_that_cannot_be_read_is_waited_for_or_known_as_it_was_last() {
    let world = World::new(Options::new(CLUSTER)).await;
    allow_any(&world, "ec2nodeclasses.karpenter.k8s.aws").await;
    let spoilt = json!({"spec": {"tags": "none"}});
    world.change::<EC2NodeClass>("default", spoilt.clone()).await;
    let provider = world.provider();
    world.pass(60).await;
    assert_waited_for(&provider, "EC2NodeClass default cannot be read").await;
    world
        .change::<EC2NodeClass>("default", json!({"spec": {"tags": null}}))
        .await;
    world.pass(90).await;
    provider.create(&claim("one", SIZE)).await.unwrap();
    world.change::<EC2NodeClass>("default", spoilt).await;
    world.pass(30).await;
    provider.create(&claim("two", SIZE)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_034_a_deleted_class_waits_for_nodeclaims_that_cannot_be_read() {
    let world = World::new(Options::new(CLUSTER)).await;
    let claims = make_claim(&world, "one", "profile").await;
    allow_any(&world, "nodeclaims.karpenter.sh").await;
    world
        .change::<NodeClaim>("one", json!({"spec": {"taints": "none"}}))
        .await;
    let provider = world.provider();
    world.pass(60).await;
    let made = world.cloud.profiles();
    assert_eq!(made.len(), 1);
    let classes: Api<EC2NodeClass> = Api::all(world.client.clone());
    classes.delete("default", &DeleteParams::default()).await.unwrap();
    world.pass(60).await;
    assert!(classes.get_opt("default").await.unwrap().is_some());
    assert_eq!(world.cloud.profiles(), made);
    let mut notices = provider.notices().unwrap();
    let told = std::iter::from_fn(|| notices.next().now_or_never().flatten());
    let told: Vec<_> = told
        .filter(|it| it.reason == "WaitingOnNodeClaimTermination")
        .collect();
    assert!(
        !told.is_empty()
            && told
                .iter()
                .all(|it| it.message.contains("cannot be read") && it.message.contains("one")),
        "{told:?}"
    );
    world
        .change::<NodeClaim>("one", json!({"spec": {"taints": null}}))
        .await;
    world.pass(20).await;
    assert!(
        classes.get_opt("default").await.unwrap().is_some(),
        "it is used, as can be read now"
    );
    claims.delete("one", &DeleteParams::default()).await.unwrap();
    world.pass(20).await;
    assert!(classes.get_opt("default").await.unwrap().is_none());
    assert!(world.cloud.profiles().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_033_after_a_restart_profiles_wait_for_nodeclaims_that_cannot_be_read() {
    let world = World::new(Options::new(CLUSTER)).await;
    let led = lead(&world.unled_provider(), world.writes());
    world.pass(60).await;
    let first = world.cloud.profiles();
    assert_eq!(first.len(), 1);
    let claims = make_claim(&world, "one", &first[0]).await;
    world
        .change::<EC2NodeClass>("default", json!({"spec": {"role": "AnotherRole"}}))
        .await;
    world.pass(60).await;
    assert_eq!(world.cloud.profiles().len(), 2);
    led.abort();
    allow_any(&world, "nodeclaims.karpenter.sh").await;
    world
        .change::<NodeClaim>("one", json!({"spec": {"taints": "none"}}))
        .await;
    let _next = world.provider();
    world.pass(3 * 3600).await;
    assert_eq!(world.cloud.profiles().len(), 2, "a node may still have it");
    world
        .change::<NodeClaim>("one", json!({"spec": {"taints": null}}))
        .await;
    claims.delete("one", &DeleteParams::default()).await.unwrap();
    world.pass(3 * 3600).await;
    let left = world.cloud.profiles();
    assert!(left.len() == 1 && left != first, "{left:?}");
}

/// Whoever serves the metrics counts them together with those of all other watches.
#[tokio::test(start_paused = true)]
async fn watches_of_the_provider_that_fail_are_counted_by_kind() {
    let world = World::new(Options::new(CLUSTER)).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = "nodeclaims.karpenter.sh";
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    let provider = world.provider();
    world.pass(10).await;
    let counted: Vec<String> = provider.watch_failures().unwrap().take().into_keys().collect();
    assert_eq!(counted, ["NodeClaim"]);
}
