//! The kwok cloud against the embedded API server, on virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool, Operator, Requirement, labels};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_ports::{CloudError, CloudProvider, Entropy, SharedClock, TokioClock};
use spokeshave_provider_kwok::{Failures, KwokOptions, KwokProvider, keys};

#[path = "embedded/adoption.rs"]
mod adoption;
#[path = "embedded/conformance.rs"]
mod conformance;
#[path = "embedded/machines.rs"]
mod machines;

struct World {
    clock: SharedClock,
    client: kube::Client,
}

impl World {
    /// An API server with our definitions and a NodeClass called `default`.
    async fn new() -> Self {
        let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().expect("a time"), 1.0).shared();
        let source = clock.clone();
        let server = ApiServer::new(Config::new(Arc::new(move || source.now()), 1));
        let client = kube::Client::new(server.service(), "default");
        let definitions: Api<
            k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        > = Api::all(client.clone());
        for definition in spokeshave_api::crds::crds() {
            definitions
                .create(&PostParams::default(), &definition)
                .await
                .expect("a definition");
        }
        let world = Self { clock, client };
        world.class("default", json!({})).await;
        world
    }

    async fn class(&self, name: &str, spec: Value) {
        let class = json!({"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": name}, "spec": spec});
        let api: Api<KWOKNodeClass> = Api::all(self.client.clone());
        let class = serde_json::from_value(class).expect("a NodeClass");
        api.create(&PostParams::default(), &class)
            .await
            .expect("created NodeClass");
    }

    fn provider(&self, options: KwokOptions) -> Arc<KwokProvider> {
        Arc::new(KwokProvider::new(
            self.client.clone(),
            self.clock.clone(),
            &Entropy::new(1),
            options,
        ))
    }

    /// A provider whose background part runs as long as the test.
    fn running(&self, options: KwokOptions) -> Arc<KwokProvider> {
        let provider = self.provider(options);
        let background = provider.clone();
        tokio::spawn(async move { background.run(std::future::pending()).await });
        provider
    }

    async fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn node_count(&self) -> usize {
        self.nodes()
            .list(&Default::default())
            .await
            .expect("nodes")
            .items
            .len()
    }

    async fn instances(&self) -> Vec<KWOKInstance> {
        let api: Api<KWOKInstance> = Api::all(self.client.clone());
        api.list(&Default::default()).await.expect("instances").items
    }
}

fn claim(name: &str, requirements: &[(&str, Operator, &[&str])]) -> NodeClaim {
    let value = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "labels": {labels::NODE_POOL: "general", "team": "a"}},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        },
    });
    let mut claim: NodeClaim = serde_json::from_value(value).expect("a NodeClaim");
    claim.spec.requirements = requirements
        .iter()
        .map(|(key, operator, values)| Requirement::new(key, operator.clone(), values))
        .collect();
    claim
}

fn node_pool() -> NodePool {
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"}, "spec": {"template": {"spec": {
        "requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}}});
    serde_json::from_value(pool).expect("a NodePool")
}

/// A NodeClaim that two types satisfy, the first of them the cheaper.
fn small(name: &str) -> NodeClaim {
    claim(
        name,
        &[(
            labels::INSTANCE_TYPE,
            Operator::In,
            &["c-1x-amd64-linux", "c-2x-amd64-linux"],
        )],
    )
}

fn patterns(texts: &[&str]) -> Vec<spokeshave_provider_kwok::OfferingPattern> {
    texts
        .iter()
        .map(|text| text.parse().expect("a pattern"))
        .collect()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test(start_paused = true)]
async fn p_201_a_node_appears_after_the_delay_with_labels_taint_and_capacity() {
    let world = World::new().await;
    world
        .class("slow", json!({"nodeRegistrationDelay": "1m30s"}))
        .await;
    let provider = world.running(KwokOptions::default());
    let mut wanted = small("general-abcde");
    wanted.spec.node_class_ref.name = "slow".to_owned();
    let created = provider.create(&wanted).await.expect("launched");
    let id = created.provider_id().expect("a provider ID").to_owned();
    let name = id.strip_prefix("kwok://").expect("the prefix").to_owned();
    assert!(name.starts_with("kwok-general-abcde-"), "{name}");

    world.pass(85).await;
    assert_eq!(world.node_count().await, 0, "the Node is not due yet");
    assert_eq!(
        provider.list().await.expect("list").len(),
        1,
        "B-54: listed before its Node exists"
    );
    provider
        .get(&id)
        .await
        .expect("B-54: found before its Node exists");

    world.pass(10).await;
    let node = world.nodes().get(&name).await.expect("the Node");
    let node_labels = node.metadata.labels.expect("labels");
    for (key, value) in [
        (labels::INSTANCE_TYPE, "c-1x-amd64-linux"),
        (labels::CAPACITY_TYPE, "spot"),
        (labels::ARCH, "amd64"),
        (labels::OS, "linux"),
        (labels::HOSTNAME, "general-abcde"),
        (labels::NODE_POOL, "general"),
        ("team", "a"),
        (keys::INSTANCE_SIZE, "1"),
        (keys::INSTANCE_FAMILY, "c"),
        (keys::INSTANCE_CPU, "1"),
        (keys::INSTANCE_MEMORY, "2Gi"),
        (keys::INSTANCE_PRICE, "0.019003239"),
        (keys::PARTITION, "a"),
        (keys::NODE, "fake"),
        ("karpenter.kwok.sh/kwoknodeclass", "slow"),
    ] {
        assert_eq!(node_labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(node_labels.contains_key(labels::ZONE));
    let spec = node.spec.expect("spec");
    assert_eq!(spec.provider_id.as_deref(), Some(id.as_str()));
    assert!(
        spec.taints
            .expect("taints")
            .contains(&labels::unregistered_taint())
    );
    let status = node.status.expect("status");
    let amount =
        |map: &Option<spokeshave_api::QuantityMap>, key: &str| map.as_ref().map(|map| map[key].0.clone());
    assert_eq!(amount(&status.capacity, "cpu").as_deref(), Some("1"));
    assert_eq!(amount(&status.allocatable, "cpu").as_deref(), Some("900m"));
    let tags = &world.instances().await[0].spec.tags;
    assert_eq!(tags["karpenter.sh/nodeclaim"], "general-abcde");
    assert_eq!(tags["karpenter.sh/nodepool"], "general");
    assert_eq!(tags["kubernetes.io/cluster/kwok"], "owned");
}

#[tokio::test(start_paused = true)]
async fn p_201_the_cheapest_offering_wins_and_zones_are_used_evenly() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions::default());
    let mut zones = BTreeSet::new();
    for index in 0..24 {
        let created = provider
            .create(&small(&format!("c{index}")))
            .await
            .expect("launched");
        assert_eq!(created.label(labels::INSTANCE_TYPE), Some("c-1x-amd64-linux"));
        assert_eq!(created.label(labels::CAPACITY_TYPE), Some("spot"));
        zones.insert(created.label(labels::ZONE).expect("a zone").to_owned());
    }
    assert_eq!(zones.len(), 4, "{zones:?}");
    let dear = claim(
        "dear",
        &[
            (
                labels::INSTANCE_TYPE,
                Operator::In,
                &["c-1x-amd64-linux", "c-2x-amd64-linux"],
            ),
            (labels::CAPACITY_TYPE, Operator::In, &["on-demand"]),
            (labels::ZONE, Operator::In, &["test-zone-c"]),
            (keys::INSTANCE_CPU, Operator::Gt, &["1"]),
        ],
    );
    let created = provider.create(&dear).await.expect("launched");
    let chosen = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE].map(|key| created.label(key));
    assert_eq!(
        chosen,
        [Some("c-2x-amd64-linux"), Some("test-zone-c"), Some("on-demand")]
    );
    let mut big = small("big");
    big.spec.resources.requests.insert(
        "cpu".to_owned(),
        serde_json::from_value(json!("1500m")).expect("a quantity"),
    );
    let created = provider.create(&big).await.expect("launched");
    assert_eq!(
        created.label(labels::INSTANCE_TYPE),
        Some("c-2x-amd64-linux"),
        "what does not fit is not chosen"
    );
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_crashes_after_the_record_is_found_again() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions {
        launch_delay: seconds(30),
        ..KwokOptions::default()
    });
    let wanted = small("crash");
    tokio::select! {
        biased;
        _ = provider.create(&wanted) => panic!("the launch takes 30 s"),
        () = world.pass(5) => {}
    }
    drop(provider);
    let after_restart = world.running(KwokOptions {
        insufficient_capacity: patterns(&["*"]),
        launch_errors: Failures::EveryNth(1),
        ..KwokOptions::default()
    });
    let found = after_restart
        .create(&wanted)
        .await
        .expect("the instance that is already there");
    let listed = after_restart.list().await.expect("list");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].provider_id(), found.provider_id());
    world.pass(5).await;
    assert_eq!(
        world.node_count().await,
        1,
        "its Node comes although the first process died"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leaked_instance_can_be_ended_by_what_list_says() {
    let world = World::new().await;
    let provider = world.running(KwokOptions {
        termination_delay: seconds(10),
        ..KwokOptions::default()
    });
    provider.create(&small("leaked")).await.expect("launched");
    let listed = provider.list().await.expect("list").remove(0);
    assert_eq!(listed.name(), "leaked");
    assert!(listed.metadata.creation_timestamp.is_some() && !listed.is_deleting());
    provider.delete(&listed).await.expect("begun");
    assert!(
        provider.list().await.expect("list")[0].is_deleting(),
        "terminating instances say so"
    );
    provider.delete(&listed).await.expect("still terminating");
    world.pass(11).await;
    let gone = provider.delete(&listed).await.expect_err("gone");
    assert!(gone.is_not_found(), "{gone}");
    assert!(world.instances().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_with_nodes_and_terminations() {
    let world = World::new().await;
    let options = KwokOptions {
        registration_delay: seconds(60),
        termination_delay: seconds(60),
        ..KwokOptions::default()
    };
    let first = world.provider(options.clone());
    first.create(&small("one")).await.expect("launched");
    let two = first.create(&small("two")).await.expect("launched");
    first.delete(&two).await.expect("begun");
    tokio::select! {
        biased;
        () = first.run(world.pass(30)) => {}
    }
    assert_eq!((world.node_count().await, world.instances().await.len()), (0, 2));
    drop(first);
    world.running(options);
    world.pass(35).await;
    assert_eq!(
        (world.node_count().await, world.instances().await.len()),
        (1, 1),
        "due times survived"
    );
}

#[tokio::test(start_paused = true)]
async fn offerings_without_capacity_are_passed_over_and_listed_as_unavailable_for_a_while() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions {
        insufficient_capacity: patterns(&["c-1x-amd64-linux/*/spot", "c-2x-*"]),
        ..KwokOptions::default()
    });
    let pool = node_pool();
    let unavailable = async || {
        let types = provider.instance_types(&pool).await.expect("types");
        types
            .iter()
            .flat_map(|it| &it.offerings)
            .filter(|offering| !offering.available)
            .count()
    };
    assert_eq!(unavailable().await, 0);
    let created = provider.create(&small("second-best")).await.expect("launched");
    assert_eq!(created.label(labels::CAPACITY_TYPE), Some("on-demand"));
    assert_eq!(unavailable().await, 4, "the four spot offerings that were tried");
    let hopeless = claim(
        "hopeless",
        &[(labels::INSTANCE_TYPE, Operator::In, &["c-2x-amd64-linux"])],
    );
    let error = provider.create(&hopeless).await.expect_err("no capacity");
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("all 8 offerings that NodeClaim hopeless allows"),
        "{error}"
    );
    assert_eq!(unavailable().await, 12);
    world.pass(181).await;
    assert_eq!(unavailable().await, 0, "tried again after three minutes");
}

#[tokio::test(start_paused = true)]
async fn node_class_errors() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions::default());
    let classes: Api<KWOKNodeClass> = Api::all(world.client.clone());
    let broken = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "NoImage", "message": "no image", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    world.class("broken", json!({})).await;
    classes
        .patch_status("broken", &PatchParams::default(), &Patch::Merge(&broken))
        .await
        .expect("patched");
    let of_class = |group: &str, name: &str| {
        let mut claim = small(name);
        claim.spec.node_class_ref.name = name.to_owned();
        claim.spec.node_class_ref.group = group.to_owned();
        claim
    };
    let missing = provider
        .create(&of_class("karpenter.kwok.sh", "missing"))
        .await
        .expect_err("missing");
    assert!(
        matches!(&missing, CloudError::InsufficientCapacity(text) if text.contains("KWOKNodeClass missing")),
        "{missing}"
    );
    let not_ready = provider
        .create(&of_class("karpenter.kwok.sh", "broken"))
        .await
        .expect_err("not ready");
    assert!(
        matches!(&not_ready, CloudError::NodeClassNotReady(text) if text.contains("no image")),
        "{not_ready}"
    );
    let foreign = provider
        .create(&of_class("karpenter.k8s.aws", "default"))
        .await
        .expect_err("foreign");
    assert!(
        matches!(&foreign, CloudError::Create { reason, .. } if reason == "UnsupportedNodeClass"),
        "{foreign}"
    );
    let unknown = claim("unknown", &[(labels::INSTANCE_TYPE, Operator::In, &["t9.none"])]);
    let unknown = provider.create(&unknown).await.expect_err("B-54: no panic");
    assert!(
        matches!(unknown, CloudError::InsufficientCapacity(_)),
        "{unknown}"
    );
    let senseless = claim(
        "senseless",
        &[(labels::ZONE, Operator::Other("Near".to_owned()), &["x"])],
    );
    let senseless = provider.create(&senseless).await.expect_err("no such operator");
    assert!(
        matches!(&senseless, CloudError::Create { reason, .. } if reason == "InvalidRequirements"),
        "{senseless}"
    );
    assert!(world.instances().await.is_empty(), "nothing was launched");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_not_sold_twice() {
    let world = World::new().await;
    let text = include_str!("data/instance_types.json");
    let catalog =
        spokeshave_provider_kwok::Catalog::from_json("instance_types.json", text).expect("a catalog");
    let provider = world.provider(KwokOptions {
        catalog,
        ..KwokOptions::default()
    });
    let gpu = |name: &str| claim(name, &[(labels::INSTANCE_TYPE, Operator::In, &["p4d.24xlarge"])]);
    let claims = [gpu("a"), gpu("b"), gpu("c")];
    let pool = NodePool::new("general", Default::default());
    let listed = async || provider.instance_types(&pool).await.expect("types");
    let before = listed().await;
    assert!(Arc::ptr_eq(&before, &listed().await), "nothing was sold");
    let created = futures::future::join_all(claims.iter().map(|claim| provider.create(claim))).await;
    let reserved = created.into_iter().map(|it| it.expect("launched"));
    let reserved = reserved
        .filter(|it| it.label(labels::CAPACITY_TYPE) == Some("reserved"))
        .count();
    assert_eq!(
        reserved, 2,
        "the reservation has two instances, the third is on demand"
    );
    let after = listed().await;
    assert!(!Arc::ptr_eq(&before, &after), "less is left of the reservation");
    assert!(Arc::ptr_eq(&after, &listed().await), "and then nothing changes");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_launches_the_same() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let world = World::new().await;
        let provider = world.running(KwokOptions {
            never_register_failures: Failures::Rate(0.5),
            ..KwokOptions::default()
        });
        for index in 0..10 {
            provider
                .create(&small(&format!("c{index}")))
                .await
                .expect("launched");
        }
        world.pass(5).await;
        let nodes = world
            .nodes()
            .list(&Default::default())
            .await
            .expect("nodes")
            .items;
        runs.push(serde_json::to_string(&(world.instances().await, nodes)).expect("JSON"));
    }
    assert_eq!(runs[0], runs[1]);
}

/// Whoever serves the metrics counts them together with those of all other watches.
#[tokio::test(start_paused = true)]
async fn watches_of_instances_that_fail_are_counted() {
    let world = World::new().await;
    let definitions: Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = Api::all(world.client.clone());
    let name = format!("{}.{}", KWOKInstance::PLURAL, KWOKInstance::GROUP);
    let deleted = definitions.delete(&name, &Default::default()).await;
    deleted.expect("deleted definition");
    let provider = world.running(KwokOptions::default());
    world.pass(10).await;
    let counted: Vec<String> = provider
        .watch_failures()
        .expect("it watches")
        .take()
        .into_keys()
        .collect();
    assert_eq!(counted, ["KWOKInstance"]);
}
