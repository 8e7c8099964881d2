//! The suite that every provider passes (P §14), on an EC2 that answers at once and on one that is slow and forgetful.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use serde_json::json;
use spokeshave_api::validation::LabelRules;
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::conformance::{Harness, check_all};
use spokeshave_ports::{CloudProvider, SharedClock};
use spokeshave_provider_grpc::sanity::{SanityOptions, Untried, check};
use spokeshave_provider_grpc::{Server, ServerOptions, Way, piped};

use crate::world::{CLUSTER, World, claim, pool, shown};

/// A type that the cloud has run out of.
const EXHAUSTED: &str = "r5.large";
/// For so long an offering without capacity is left out.
const LEFT_OUT_FOR: Duration = Duration::from_secs(180);

struct AwsHarness<'a> {
    world: &'a World,
    provider: Arc<dyn CloudProvider>,
    well_known: Vec<String>,
    clock: SharedClock,
}

impl Harness for AwsHarness<'_> {
    fn provider(&self) -> &dyn CloudProvider {
        &*self.provider
    }
    fn clock(&self) -> SharedClock {
        self.clock.clone()
    }
    fn node_pool(&self) -> NodePool {
        pool()
    }
    fn node_claim(&self, name: &str) -> NodeClaim {
        claim(name, &[(labels::INSTANCE_TYPE, &["m5.large", "m6i.large"])])
    }
    fn impossible_node_claim(&self, name: &str) -> NodeClaim {
        let nowhere: &[&str] = &["us-east-1z"];
        claim(
            name,
            &[(labels::INSTANCE_TYPE, &["m5.large"]), (labels::ZONE, nowhere)],
        )
    }
    fn node_claim_without_class(&self, name: &str) -> Option<NodeClaim> {
        let mut claim = self.node_claim(name);
        claim.spec.node_class_ref.name = "missing".to_owned();
        Some(claim)
    }
    fn exhausted_node_claim(&self, name: &str) -> Option<(NodeClaim, Duration)> {
        let of_one_kind: [(&str, &[&str]); 2] = [
            (labels::INSTANCE_TYPE, &[EXHAUSTED]),
            (labels::CAPACITY_TYPE, &["on-demand"]),
        ];
        Some((claim(name, &of_one_kind), LEFT_OUT_FOR))
    }
    fn node_class(&self) -> BoxFuture<'_, Option<DynamicObject>> {
        async { Some(shown(&self.world.class_now("default").await)) }.boxed()
    }
    fn change_node_class(&self, class: &mut DynamicObject) {
        for image in class.data["status"]["amis"].as_array_mut().unwrap() {
            image["id"] = json!("ami-of-tomorrow");
        }
    }
    fn unknown_provider_id(&self, real: &str) -> String {
        format!("{real}00")
    }
    fn well_known_labels(&self) -> Vec<String> {
        let keys = self.well_known.iter().cloned();
        // The zone's ID stands at the offerings: a type has as many as zones.
        keys.filter(|key| key != "topology.k8s.aws/zone-id").collect()
    }
}

/// As `provider-serve` serves it.
fn served(well_known: &[String]) -> ServerOptions {
    ServerOptions {
        label_rules: LabelRules {
            well_known: well_known.to_vec(),
            ..LabelRules::default()
        },
        ..ServerOptions::default()
    }
}

async fn passes(options: Options, way: Way) {
    let world = World::new(options).await;
    let is_out = format!("{EXHAUSTED}/*/on-demand");
    world.cloud.limit(is_out.parse().unwrap(), 0);
    let local = world.provider();
    let well_known = local.well_known_labels();
    let reached = way.to(local, world.clock.clone(), served(&well_known)).await;
    let provider = reached.expect("a connection");
    let harness = AwsHarness {
        world: &world,
        provider,
        well_known,
        clock: world.clock.clone(),
    };
    world.pass(60).await;
    let outcome = check_all(&harness).await;
    outcome.unwrap_or_else(|failures| panic!("{failures}"));
    world.pass(300).await;
    assert_eq!(world.cloud.instances(), [], "nothing is left");
    assert_eq!(
        world.cloud.templates(),
        Vec::<String>::new(),
        "a_066: templates that nobody uses go"
    );
}

#[tokio::test(start_paused = true)]
async fn a_080_a_091_the_provider_keeps_the_promises_of_the_port() {
    passes(Options::instant(CLUSTER), Way::InProcess).await;
}

#[tokio::test(start_paused = true)]
async fn a_080_a_091_and_keeps_them_when_ec2_is_slow_and_does_not_know_its_own_launches_yet() {
    passes(slow(), Way::InProcess).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_the_same_provider_keeps_them_over_the_protocol() {
    passes(Options::instant(CLUSTER), Way::Pipe).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_and_when_ec2_is_slow_as_well() {
    passes(slow(), Way::Pipe).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_and_over_a_genuine_unix_socket() {
    passes(slow(), Way::UnixSocket).await;
}

/// What authors of providers run finds nothing in this one.
#[tokio::test(start_paused = true)]
async fn g_014_g_024_the_kit_for_providers_finds_nothing() {
    let world = World::new(slow()).await;
    let clock = world.clock.clone();
    let provider = world.provider();
    let options = served(&provider.well_known_labels());
    let connector = piped(Server::new(provider, clock.clone(), options));
    world.pass(60).await;
    let options = SanityOptions {
        connector: Arc::new(connector),
        node_class: Some(shown(&world.class_now("default").await)),
        changed_node_class: None,
        node_class_name: "default".to_owned(),
        cluster_uid: "kit".to_owned(),
        run: "run".to_owned(),
        restart: None,
        is_time_virtual: true,
    };
    let untried = check(&options, &clock).await;
    let untried = untried.unwrap_or_else(|failures| panic!("{failures}"));
    assert_eq!(untried, [Untried::DriftOfAChangedClass, Untried::Restart]);
    world.pass(300).await;
    assert_eq!(world.cloud.instances(), [], "nothing is left");
}

fn slow() -> Options {
    Options {
        latency: Duration::from_millis(800),
        visibility_delay: Duration::from_secs(9),
        termination_delay: Duration::from_secs(90),
        ..Options::new(CLUSTER)
    }
}
