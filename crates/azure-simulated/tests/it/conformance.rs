//! The suite that every provider passes (P §14), on an Azure that answers at once and on one that takes its time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use serde_json::json;
use spokeshave_api::{AKSNodeClassSpec, NodeClaim, NodePool, labels};
use spokeshave_azure_cloud::AzureProvider;
use spokeshave_azure_simulated::{Options, Refusal};
use spokeshave_ports::conformance::{Harness, check_all};
use spokeshave_ports::{CloudProvider, SharedClock};
use spokeshave_provider_grpc::{ServerOptions, over_pipe};

use crate::world::{World, claim, on_demand, pool, shown};

/// A size that Azure has run out of.
const EXHAUSTED: &str = "Standard_E8s_v5";
/// For so long a size without capacity is left out.
const LEFT_OUT_FOR: Duration = Duration::from_secs(3600);

/// A provider alone, whatever it speaks with.
pub(crate) struct Subject {
    pub(crate) provider: AzureProvider,
    pub(crate) clock: SharedClock,
}

impl Harness for Subject {
    fn provider(&self) -> &dyn CloudProvider {
        &self.provider
    }
    fn clock(&self) -> SharedClock {
        self.clock.clone()
    }
    fn node_pool(&self) -> NodePool {
        pool()
    }
    fn node_claim(&self, name: &str) -> NodeClaim {
        claim(name, &[(labels::INSTANCE_TYPE, &["Standard_D4s_v5"])])
    }
    fn impossible_node_claim(&self, name: &str) -> NodeClaim {
        claim(name, &[(labels::ZONE, &["southcentralus-9"])])
    }
    fn node_claim_without_class(&self, name: &str) -> Option<NodeClaim> {
        let mut claim = self.node_claim(name);
        claim.spec.node_class_ref.name = "missing".to_owned();
        Some(claim)
    }
}

struct AzureHarness<'a> {
    world: &'a World,
    provider: Arc<dyn CloudProvider>,
}

impl Harness for AzureHarness<'_> {
    fn provider(&self) -> &dyn CloudProvider {
        &*self.provider
    }
    fn clock(&self) -> SharedClock {
        self.world.clock.clone()
    }
    fn node_pool(&self) -> NodePool {
        pool()
    }
    fn node_claim(&self, name: &str) -> NodeClaim {
        claim(
            name,
            &[(labels::INSTANCE_TYPE, &["Standard_D4s_v5", "Standard_D2ds_v5"])],
        )
    }
    fn impossible_node_claim(&self, name: &str) -> NodeClaim {
        claim(name, &[(labels::ZONE, &["southcentralus-9"])])
    }
    fn node_claim_without_class(&self, name: &str) -> Option<NodeClaim> {
        let mut claim = self.node_claim(name);
        claim.spec.node_class_ref.name = "missing".to_owned();
        Some(claim)
    }
    fn exhausted_node_claim(&self, name: &str) -> Option<(NodeClaim, Duration)> {
        Some((on_demand(name, EXHAUSTED), LEFT_OUT_FOR))
    }
    fn node_class(&self) -> BoxFuture<'_, Option<DynamicObject>> {
        async {
            let class = self.world.class("class", AKSNodeClassSpec::default()).await;
            Some(shown(&class))
        }
        .boxed()
    }
    fn change_node_class(&self, class: &mut DynamicObject) {
        let images = class.data["status"]["images"].as_array_mut().unwrap();
        for image in images {
            image["id"] = json!(format!("{}-of-tomorrow", image["id"].as_str().unwrap()));
        }
    }
    fn well_known_labels(&self) -> Vec<String> {
        self.world.provider.well_known_labels()
    }
}

pub(crate) async fn passes(options: Options, is_remote: bool) {
    let world = World::new(options).await;
    world.azure.refuse(Refusal {
        size: Some(EXHAUSTED.to_owned()),
        status: Some(409),
        code: "AllocationFailed".to_owned(),
        message: "Allocation failed.".to_owned(),
        ..Refusal::default()
    });
    let local = Arc::new(world.provider.clone());
    let provider: Arc<dyn CloudProvider> = if is_remote {
        let remote = over_pipe(local, world.clock.clone(), ServerOptions::default()).await;
        Arc::new(remote.expect("a connection"))
    } else {
        local
    };
    let harness = AzureHarness {
        world: &world,
        provider,
    };
    let outcome = check_all(&harness).await;
    outcome.unwrap_or_else(|failures| panic!("{failures}"));
    world.pass(600).await;
    assert_eq!(world.machines(), [], "nothing is left");
    assert_eq!(world.azure.interfaces(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn z_050_z_051_the_provider_keeps_the_promises_of_the_port() {
    passes(Options::instant(), false).await;
}

#[tokio::test(start_paused = true)]
async fn z_050_z_051_and_keeps_them_when_azure_takes_its_time_and_its_graph_is_late() {
    passes(Options::slow(), false).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_the_same_provider_keeps_them_over_the_protocol() {
    passes(Options::instant(), true).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_and_when_azure_takes_its_time_as_well() {
    passes(Options::slow(), true).await;
}
