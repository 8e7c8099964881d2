//! Machines join the cluster with what their user data says, and leave it when they end.

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::labels;
use spokeshave_ec2_simulated::{MESSAGE, Options, SETTINGS};
use spokeshave_ports::CloudProvider as _;

use crate::world::{CLUSTER, World, claim};

async fn nodes(world: &World) -> Vec<Node> {
    let api: Api<Node> = Api::all(world.client.clone());
    api.list(&ListParams::default()).await.unwrap().items
}

fn joins(world: &World) {
    let (cloud, client) = (world.cloud.clone(), world.client.clone());
    tokio::spawn(async move { cloud.join(client, std::future::pending()).await });
}

#[tokio::test(start_paused = true)]
async fn a_069_a_070_machines_of_each_family_register_with_the_labels_and_taints_of_their_nodeclaim() {
    for (alias, kubernetes) in [
        ("al2023@latest", 34),
        ("al2@latest", 32),
        ("bottlerocket@latest", 34),
    ] {
        let world = World::new(Options::new(CLUSTER)).await;
        world
            .class(
                "of-family",
                json!({"amiSelectorTerms": [{"alias": alias}], "kubelet": {"maxPods": 42}}),
            )
            .await;
        joins(&world);
        let provider = world.provider_of(kubernetes);
        world.pass(60).await;
        let mut wanted = claim("one", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
        wanted.spec.node_class_ref.name = "of-family".to_owned();
        wanted
            .metadata
            .labels
            .get_or_insert_default()
            .insert("team".to_owned(), "a".to_owned());
        wanted.spec.taints =
            serde_json::from_value(json!([{"key": "dedicated", "value": "a", "effect": "NoSchedule"}]))
                .unwrap();
        let launched = provider.create(&wanted).await.unwrap();
        assert!(nodes(&world).await.is_empty(), "a machine needs its time");
        world.pass(60).await;
        let nodes = nodes(&world).await;
        assert_eq!(nodes.len(), 1, "{alias}");
        let node = serde_json::to_value(&nodes[0]).unwrap();
        assert_eq!(
            node["spec"]["providerID"],
            launched.provider_id().unwrap(),
            "{alias}"
        );
        assert_eq!(node["metadata"]["labels"]["team"], "a", "{alias}");
        assert_eq!(
            node["metadata"]["labels"][labels::NODE_POOL],
            "general",
            "{alias}"
        );
        let taints: Vec<&str> = node["spec"]["taints"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|taint| taint["key"].as_str())
            .collect();
        assert!(
            taints.contains(&"dedicated") && taints.contains(&"karpenter.sh/unregistered"),
            "{alias}: {taints:?}"
        );
        assert_eq!(
            (
                &node["status"]["capacity"]["cpu"],
                &node["status"]["capacity"]["pods"]
            ),
            (&json!("2"), &json!("42")),
            "{alias}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_plays_fate_by_an_annotation_and_a_machine_that_never_registered_leaves_no_node() {
    let world = World::new(Options::new(CLUSTER)).await;
    joins(&world);
    let provider = world.provider();
    world.pass(60).await;
    let wanted = claim(
        "one",
        &[
            (labels::INSTANCE_TYPE, &["m5.large"]),
            (labels::CAPACITY_TYPE, &["spot"]),
        ],
    );
    provider.create(&wanted).await.unwrap();
    world.pass(60).await;
    let api: Api<Node> = Api::all(world.client.clone());
    let name = nodes(&world).await[0].metadata.name.clone().unwrap();
    let write = async |value: &str| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {MESSAGE: value}}}));
        api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        world.pass(1).await;
    };
    write("nonsense").await;
    assert_eq!(world.cloud.messages(), 0, "what is not understood is ignored");
    write("spot_interrupted").await;
    assert_eq!(world.cloud.messages(), 1);
    world.pass(200).await;
    assert!(world.cloud.instances().is_empty() && nodes(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn settings_that_are_deleted_give_back_capacity_zones_and_traffic() {
    let world = World::new(Options::new(CLUSTER)).await;
    joins(&world);
    let provider = world.provider();
    world.pass(60).await;
    let api: Api<ConfigMap> = Api::namespaced(world.client.clone(), "kube-system");
    let settings = json!({"metadata": {"name": SETTINGS}, "data": {
        "capacity": "m5.large=0", "outages": "us-east-1b", "zonalShifts": "us-east-1c",
    }});
    let wanted = |name: &str| claim(name, &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    let in_zone = |name: &str| {
        claim(
            name,
            &[
                (labels::INSTANCE_TYPE, &["c6i.large"]),
                (labels::ZONE, &["us-east-1b"]),
            ],
        )
    };
    let settings: ConfigMap = serde_json::from_value(settings).unwrap();
    api.create(&PostParams::default(), &settings).await.unwrap();
    world.pass(5).await;
    assert!(world.cloud.is_shifted("us-east-1c"));
    assert!(provider.create(&wanted("one")).await.is_err());
    assert!(provider.create(&in_zone("two")).await.is_err());
    api.delete(SETTINGS, &DeleteParams::default()).await.unwrap();
    // Longer than an offering is left out that had no capacity.
    world.pass(200).await;
    assert!(!world.cloud.is_shifted("us-east-1c"));
    provider.create(&wanted("three")).await.unwrap();
    provider.create(&in_zone("four")).await.unwrap();
}
