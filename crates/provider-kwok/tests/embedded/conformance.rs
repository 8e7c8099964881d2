//! The promises of the port, kept by the kwok cloud in process and over the protocol, fast and slow.

use crate::{World, claim, node_pool, patterns, seconds, small};
use spokeshave_api::{NodeClaim, NodePool, Operator, labels};
use spokeshave_ports::conformance::{Harness, check_all};
use spokeshave_ports::{CloudProvider, SharedClock};
use spokeshave_provider_grpc::{ServerOptions, Way};
use spokeshave_provider_kwok::{KwokOptions, keys};
use std::sync::Arc;
use std::time::Duration;

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
        node_pool()
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

#[tokio::test(start_paused = true)]
async fn conformance_without_delays() {
    let world = World::new().await;
    conforms(&world, world.harness(exhausted(), Way::InProcess).await).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_g_009_g_025_conformance_over_the_protocol() {
    let world = World::new().await;
    conforms(&world, world.harness(exhausted(), Way::Pipe).await).await;
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
    conforms(&world, world.harness(slow(), Way::InProcess).await).await;
}

#[tokio::test(start_paused = true)]
async fn g_025_conformance_of_a_slow_cloud_over_the_protocol() {
    let world = World::new().await;
    conforms(&world, world.harness(slow(), Way::Pipe).await).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_conformance_of_a_slow_cloud_over_a_genuine_unix_socket() {
    let world = World::new().await;
    conforms(&world, world.harness(slow(), Way::UnixSocket).await).await;
}

fn slow() -> KwokOptions {
    KwokOptions {
        launch_delay: seconds(7),
        registration_delay: seconds(20),
        termination_delay: seconds(40),
        ..exhausted()
    }
}

impl World {
    /// The provider, however the suite reaches it (G-001, G-025).
    async fn harness(&self, options: KwokOptions, way: Way) -> KwokHarness {
        let provider: Arc<dyn CloudProvider> = self.running(options);
        let clock = self.clock.clone();
        let reached = way.to(provider, clock.clone(), ServerOptions::default()).await;
        let provider = reached.expect("a connection");
        KwokHarness { provider, clock }
    }
}
