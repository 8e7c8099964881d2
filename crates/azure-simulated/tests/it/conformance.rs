//! The suite that every provider passes (P §14), on an Azure that answers at once and on one that takes its time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use spokeshave_api::validation::LabelRules;
use spokeshave_api::{AKSNodeClassSpec, NodeClaim, NodePool, labels};
use spokeshave_azure_cloud::AzureProvider;
use spokeshave_azure_simulated::{Options, Refusal};
use spokeshave_ports::conformance::{Harness, check_all};
use spokeshave_ports::{CloudProvider, SharedClock};
use spokeshave_provider_grpc::sanity::{SanityOptions, Untried, check};
use spokeshave_provider_grpc::{
    ConnectError, Server, ServerOptions, TlsAcceptor, TlsConnector, Way, over_tcp, piped,
};
use tokio::net::TcpListener;

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

/// As `provider-serve` serves it.
fn served(world: &World) -> ServerOptions {
    ServerOptions {
        label_rules: LabelRules {
            well_known: world.provider.well_known_labels(),
            ..LabelRules::default()
        },
        ..ServerOptions::default()
    }
}

/// Certificates of one authority for both sides.
fn papers(address: &str) -> (TlsAcceptor, TlsConnector) {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &authority).unwrap();
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    };
    let root = authority.pem().into_bytes();
    let (certificate, key) = issue("localhost");
    let acceptor = TlsAcceptor::new(&root, &certificate, &key).unwrap();
    let (certificate, key) = issue("operator");
    let connector = TlsConnector::new(address, &root, &certificate, &key).unwrap();
    (acceptor, connector)
}

pub(crate) async fn passes(options: Options, way: Way) {
    passes_over(options, async |local, clock, served| {
        way.to(local, clock, served).await
    })
    .await;
}

async fn passes_over(
    options: Options,
    reach: impl AsyncFnOnce(
        Arc<dyn CloudProvider>,
        SharedClock,
        ServerOptions,
    ) -> Result<Arc<dyn CloudProvider>, ConnectError>,
) {
    let world = World::new(options).await;
    world.azure.refuse(Refusal {
        size: Some(EXHAUSTED.to_owned()),
        status: Some(409),
        code: "AllocationFailed".to_owned(),
        message: "Allocation failed.".to_owned(),
        ..Refusal::default()
    });
    let local = Arc::new(world.provider.clone());
    let reached = reach(local, world.clock.clone(), served(&world)).await;
    let provider = reached.expect("a connection");
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
    passes(Options::instant(), Way::InProcess).await;
}

#[tokio::test(start_paused = true)]
async fn z_050_z_051_and_keeps_them_when_azure_takes_its_time_and_its_graph_is_late() {
    passes(Options::slow(), Way::InProcess).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_the_same_provider_keeps_them_over_the_protocol() {
    passes(Options::instant(), Way::Pipe).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_and_when_azure_takes_its_time_as_well() {
    passes(Options::slow(), Way::Pipe).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_and_over_a_genuine_unix_socket() {
    passes(Options::slow(), Way::UnixSocket).await;
}

#[tokio::test(start_paused = true)]
async fn g_001_g_003_and_over_tcp_with_certificates_of_both_sides() {
    let over_tls = async |local, clock, served| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let (acceptor, connector) = papers(&address);
        let remote = over_tcp(local, clock, served, listener, acceptor, connector).await?;
        Ok(Arc::new(remote) as Arc<dyn CloudProvider>)
    };
    passes_over(Options::slow(), over_tls).await;
}

/// What authors of providers run finds nothing in this one.
#[tokio::test(start_paused = true)]
async fn g_014_g_024_the_kit_for_providers_finds_nothing() {
    let world = World::without_leader(Options::slow());
    let clock = world.clock.clone();
    let provider = Arc::new(world.provider.clone());
    let connector = piped(Server::new(provider, clock.clone(), served(&world)));
    // Nobody leads: the kit looks on, and what the provider reads then is enough.
    let class = world.class("class", AKSNodeClassSpec::default()).await;
    world.provider.put_class(class.clone());
    let options = SanityOptions {
        connector: Arc::new(connector),
        node_class: Some(shown(&class)),
        changed_node_class: None,
        node_class_name: "class".to_owned(),
        cluster_uid: "kit".to_owned(),
        run: "run".to_owned(),
        restart: None,
        is_time_virtual: true,
    };
    let untried = check(&options, &clock).await;
    let untried = untried.unwrap_or_else(|failures| panic!("{failures}"));
    assert_eq!(untried, [Untried::DriftOfAChangedClass, Untried::Restart]);
    world.pass(600).await;
    assert_eq!(world.machines(), [], "nothing is left");
}
