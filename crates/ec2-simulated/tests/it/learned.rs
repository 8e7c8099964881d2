//! What the provider learns from nodes, and how often it asks EC2 for what a class selects.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodeClaim, labels};
use spokeshave_ec2_simulated::Options;
use spokeshave_model::{InstanceType, ResourceName};
use spokeshave_ports::CloudProvider as _;

use crate::world::{CLUSTER, World, claim, pool};

const MIB: i64 = 1 << 20;

fn memory_mib(types: &[InstanceType], name: &str) -> i64 {
    let found = types.iter().find(|one| one.name == name).unwrap();
    found.capacity.get(ResourceName::MEMORY) / MIB
}

/// A node of a NodeClaim that has registered.
async fn join(world: &World, name: &str, image: &str, memory: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {labels::NODE_POOL: "general"}}});
    let node: Node = serde_json::from_value(node).unwrap();
    let nodes: Api<Node> = Api::all(world.client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let capacity = Patch::Merge(json!({"status": {"capacity": {"memory": memory}}}));
    nodes
        .patch_status(name, &PatchParams::default(), &capacity)
        .await
        .unwrap();
    let mut written = claim(name, &[]);
    written.metadata.uid = None;
    let labels = written.metadata.labels.get_or_insert_default();
    labels.insert(labels::INSTANCE_TYPE.to_owned(), "m5.large".to_owned());
    let claims: Api<NodeClaim> = Api::all(world.client.clone());
    claims.create(&PostParams::default(), &written).await.unwrap();
    let status = Patch::Merge(json!({"status": {"nodeName": name, "imageID": image}}));
    claims
        .patch_status(name, &PatchParams::default(), &status)
        .await
        .unwrap();
    world.pass(10).await;
}

#[tokio::test(start_paused = true)]
async fn a_048_the_memory_of_nodes_that_have_joined_takes_the_place_of_the_formula() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider();
    world.pass(60).await;
    let launched = provider
        .create(&claim("launched", &[(labels::INSTANCE_TYPE, &["m5.large"])]))
        .await
        .unwrap();
    let image = launched.status.unwrap().image_id.unwrap();
    let before = provider.instance_types(&pool()).await.unwrap();
    assert_eq!(memory_mib(&before, "m5.large"), 7577, "the formula");
    join(&world, "stranger", "ami-of-another-class", "6000Mi").await;
    let types = provider.instance_types(&pool()).await.unwrap();
    assert_eq!(memory_mib(&types, "m5.large"), 7577, "other images say nothing");
    join(&world, "first", &image, "7864Mi").await;
    join(&world, "second", &image, "7860Mi").await;
    join(&world, "third", &image, "7900Mi").await;
    let types = provider.instance_types(&pool()).await.unwrap();
    assert_eq!(memory_mib(&types, "m5.large"), 7860, "the least of them");
    assert_eq!(memory_mib(&types, "m5.xlarge"), memory_mib(&before, "m5.xlarge"));
    // Another leader learns it from the nodes that are there.
    let heir = world.provider();
    world.pass(60).await;
    let types = heir.instance_types(&pool()).await.unwrap();
    assert_eq!(memory_mib(&types, "m5.large"), 7860);
}

#[tokio::test(start_paused = true)]
async fn a_120_images_and_subnets_are_looked_for_as_often_as_the_settings_say_and_at_once_when_a_class_changes()
 {
    let world = World::new(Options::new(CLUSTER)).await;
    let _provider = world.provider_set(|options| {
        options.ami_refresh_interval = Duration::from_secs(3600);
        options.subnet_refresh_interval = Duration::from_secs(1800);
    });
    world.pass(60).await;
    let calls = |before: &BTreeMap<String, u64>| {
        let now = world.cloud.calls();
        ["DescribeImages", "DescribeSubnets", "DescribeSecurityGroups"]
            .map(|call| now[call] - before.get(call).copied().unwrap_or_default())
    };
    let start = world.cloud.calls();
    world.pass(1500).await;
    let [images, subnets, groups] = calls(&start);
    assert_eq!((images, subnets), (0, 0));
    assert!((20..=25).contains(&groups), "{groups}: once a minute");
    let before = world.cloud.calls();
    world.pass(3600).await;
    let [images, subnets, _] = calls(&before);
    assert_eq!((images, subnets), (1, 2));
    let before = world.cloud.calls();
    let monitored = json!({"spec": {"detailedMonitoring": true}});
    world.change::<EC2NodeClass>("default", monitored).await;
    world.pass(10).await;
    let [images, subnets, _] = calls(&before);
    assert_eq!((images, subnets), (1, 1), "the selectors may be others");
}

#[tokio::test(start_paused = true)]
async fn a_120_what_a_class_does_not_find_is_looked_for_every_minute_whatever_the_interval() {
    let world = World::new(Options::new(CLUSTER)).await;
    let nowhere = json!([{"tags": {"karpenter.sh/discovery": "nowhere"}}]);
    world.class("lost", json!({"subnetSelectorTerms": nowhere})).await;
    let _provider = world.provider_set(|options| options.subnet_refresh_interval = Duration::from_secs(3600));
    world.pass(60).await;
    let before = world.cloud.calls()["DescribeSubnets"];
    world.pass(600).await;
    let asked = world.cloud.calls()["DescribeSubnets"] - before;
    assert!((8..=11).contains(&asked), "{asked}");
}
