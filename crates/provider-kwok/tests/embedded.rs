//! The kwok cloud against the embedded API server, on virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool, Operator, Requirement, labels};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_ports::conformance::{Harness, check_all};
use spokeshave_ports::{CloudError, CloudProvider, Entropy, SharedClock, TokioClock};
use spokeshave_provider_grpc::{ServerOptions, over_pipe};
use spokeshave_provider_kwok::{Failures, KwokOptions, KwokProvider, SlowRegistration, keys};

#[path = "embedded/adoption.rs"]
mod adoption;

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

/// A type that the cloud of the conformance suite has run out of.
const EXHAUSTED: &str = "m-8x-amd64-linux";

fn exhausted() -> KwokOptions {
    KwokOptions {
        insufficient_capacity: patterns(&[EXHAUSTED]),
        ..KwokOptions::default()
    }
}

struct KwokHarness {
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
}

impl Harness for KwokHarness {
    fn provider(&self) -> &dyn CloudProvider {
        &*self.provider
    }
    fn clock(&self) -> SharedClock {
        self.clock.clone()
    }
    fn node_pool(&self) -> NodePool {
        let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"}, "spec": {"template": {"spec": {
            "requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}}});
        serde_json::from_value(pool).expect("a NodePool")
    }
    fn node_claim(&self, name: &str) -> NodeClaim {
        small(name)
    }
    fn impossible_node_claim(&self, name: &str) -> NodeClaim {
        claim(
            name,
            &[
                (labels::INSTANCE_TYPE, Operator::In, &["c-1x-amd64-linux"]),
                (labels::ZONE, Operator::In, &["test-zone-z"]),
            ],
        )
    }
    fn node_claim_without_class(&self, name: &str) -> Option<NodeClaim> {
        let mut claim = small(name);
        claim.spec.node_class_ref.name = "missing".to_owned();
        Some(claim)
    }
    fn exhausted_node_claim(&self, name: &str) -> Option<(NodeClaim, Duration)> {
        let claim = claim(name, &[(labels::INSTANCE_TYPE, Operator::In, &[EXHAUSTED])]);
        Some((claim, KwokOptions::default().unavailable_for))
    }
    fn well_known_labels(&self) -> Vec<String> {
        keys::WELL_KNOWN.map(str::to_owned).to_vec()
    }
}

impl World {
    /// The provider as it is, or through the whole protocol for providers of other processes (G-001, G-025).
    async fn harness(&self, options: KwokOptions, is_remote: bool) -> KwokHarness {
        let provider: Arc<dyn CloudProvider> = self.running(options);
        let clock = self.clock.clone();
        let provider = if is_remote {
            let remote = over_pipe(provider, clock.clone(), ServerOptions::default()).await;
            Arc::new(remote.expect("a connection"))
        } else {
            provider
        };
        KwokHarness { provider, clock }
    }
}

#[tokio::test(start_paused = true)]
async fn conformance_without_delays() {
    let world = World::new().await;
    conforms(&world, world.harness(exhausted(), false).await).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_g_009_g_025_conformance_over_the_protocol() {
    let world = World::new().await;
    conforms(&world, world.harness(exhausted(), true).await).await;
}

async fn conforms(world: &World, harness: KwokHarness) {
    check_all(&harness)
        .await
        .unwrap_or_else(|failures| panic!("{failures}"));
    world.pass(120).await;
    assert_eq!(
        (world.instances().await.len(), world.node_count().await),
        (0, 0),
        "nothing is left"
    );
}

#[tokio::test(start_paused = true)]
async fn conformance_of_a_slow_cloud() {
    let world = World::new().await;
    conforms(&world, world.harness(slow(), false).await).await;
}

#[tokio::test(start_paused = true)]
async fn g_025_conformance_of_a_slow_cloud_over_the_protocol() {
    let world = World::new().await;
    conforms(&world, world.harness(slow(), true).await).await;
}

fn slow() -> KwokOptions {
    KwokOptions {
        launch_delay: seconds(7),
        registration_delay: seconds(20),
        termination_delay: seconds(40),
        ..exhausted()
    }
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
async fn a_registered_node_without_machine_falls_silent_and_an_unregistered_one_goes() {
    let world = World::new().await;
    let provider = world.running(KwokOptions::default());
    let mut names = Vec::new();
    for name in ["registered", "stranger", "offline"] {
        let created = provider.create(&small(name)).await.expect("launched");
        names.push(
            created
                .provider_id()
                .and_then(|id| id.strip_prefix("kwok://"))
                .expect("an ID")
                .to_owned(),
        );
    }
    world.pass(5).await;
    for index in [0, 2] {
        let patch = json!({"metadata": {"labels": {labels::REGISTERED: "true"}}});
        world
            .nodes()
            .patch(&names[index], &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("labelled");
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]}});
        world
            .nodes()
            .patch_status(&names[index], &PatchParams::default(), &Patch::Strategic(&ready))
            .await
            .expect("ready");
    }
    let conditions = async |index: usize| -> Vec<(String, String)> {
        let node = world.nodes().get(&names[index]).await.expect("the Node");
        let conditions = node
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        conditions
            .into_iter()
            .map(|condition| (condition.type_, condition.status))
            .collect()
    };
    let instances: Api<KWOKInstance> = Api::all(world.client.clone());
    for index in [0, 1] {
        instances
            .delete(&names[index], &DeleteParams::default())
            .await
            .expect("the cloud took it back");
    }
    world.pass(1).await;
    assert!(
        conditions(0)
            .await
            .contains(&("Ready".to_owned(), "Unknown".to_owned()))
    );
    assert!(
        conditions(0)
            .await
            .contains(&("DiskPressure".to_owned(), "False".to_owned())),
        "others stay"
    );
    assert!(
        world.nodes().get_opt(&names[1]).await.expect("get").is_none(),
        "it was nobody's"
    );
    assert!(
        conditions(2)
            .await
            .contains(&("Ready".to_owned(), "True".to_owned())),
        "others are not touched"
    );
}

#[tokio::test(start_paused = true)]
async fn instances_that_went_while_nobody_watched_are_noticed() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions::default());
    let created = provider.create(&small("lost")).await.expect("launched");
    let name = created
        .provider_id()
        .and_then(|id| id.strip_prefix("kwok://"))
        .expect("an ID")
        .to_owned();
    provider.run(world.pass(5)).await;
    assert_eq!(world.node_count().await, 1);
    let instances: Api<KWOKInstance> = Api::all(world.client.clone());
    instances
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    provider.run(world.pass(5)).await;
    assert_eq!(world.node_count().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_deleted_does_not_come_back() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions::default());
    let created = provider.create(&small("once")).await.expect("launched");
    let name = created
        .provider_id()
        .and_then(|id| id.strip_prefix("kwok://"))
        .expect("an ID")
        .to_owned();
    provider.run(world.pass(5)).await;
    world
        .nodes()
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    provider.run(world.pass(600)).await;
    assert_eq!(world.node_count().await, 0);
    assert_eq!(
        provider.list().await.expect("list").len(),
        1,
        "the machine still runs"
    );
}

#[tokio::test(start_paused = true)]
async fn offerings_without_capacity_are_passed_over_and_listed_as_unavailable_for_a_while() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions {
        insufficient_capacity: patterns(&["c-1x-amd64-linux/*/spot", "c-2x-*"]),
        ..KwokOptions::default()
    });
    let pool = KwokHarness {
        provider: provider.clone(),
        clock: world.clock.clone(),
    }
    .node_pool();
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
async fn injected_launch_errors_and_hanging_calls_pass_over() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions {
        launch_errors: Failures::FirstAttempts(2),
        ..KwokOptions::default()
    });
    let wanted = small("third-time");
    for _ in 0..2 {
        let error = provider.create(&wanted).await.expect_err("injected");
        assert!(matches!(error, CloudError::Create { .. }), "{error}");
        assert!(world.instances().await.is_empty());
    }
    provider.create(&wanted).await.expect("the third attempt");

    let provider = world.provider(KwokOptions {
        hanging_calls: Failures::EveryNth(1),
        ..KwokOptions::default()
    });
    let wanted = small("hanging");
    let start = world.clock.now();
    let error = provider.create(&wanted).await.expect_err("hangs");
    assert!(matches!(error, CloudError::Timeout(_)), "{error}");
    assert_eq!(world.clock.since(start), seconds(60));
    provider
        .create(&wanted)
        .await
        .expect("the instance was there all the time");
    assert_eq!(world.instances().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_late_or_never() {
    let world = World::new().await;
    let provider = world.running(KwokOptions {
        never_register: patterns(&["c-2x-amd64-linux"]),
        slow_register: vec![SlowRegistration {
            pattern: patterns(&["c-4x-amd64-linux"]).remove(0),
            delay: seconds(300),
        }],
        ..KwokOptions::default()
    });
    for size in ["c-1x-amd64-linux", "c-2x-amd64-linux", "c-4x-amd64-linux"] {
        provider
            .create(&claim(size, &[(labels::INSTANCE_TYPE, Operator::In, &[size])]))
            .await
            .expect("launched");
    }
    world.pass(10).await;
    assert_eq!(world.node_count().await, 1);
    world.pass(300).await;
    assert_eq!(world.node_count().await, 2);
    world.pass(86_400).await;
    assert_eq!(world.node_count().await, 2);
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
