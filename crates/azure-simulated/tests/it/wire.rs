//! The same provider over HTTP: a server on loopback, a client, the file with the service account's token (Z-035, Z-057, Z-058).

use std::collections::BTreeMap;
use std::sync::Arc;

use spokeshave_api::{AKSNodeClass, AKSNodeClassSpec};
use spokeshave_azure_cloud::{AzureProvider, Outside};
use spokeshave_azure_http::{HttpClient, TokenFile};
use spokeshave_azure_simulated::{Azure, Options, serve};
use spokeshave_ports::conformance::check_all;
use spokeshave_ports::{CloudProvider, NoWrites, SharedClock, TokioClock};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::conformance::Subject;
use crate::world::{on_demand, pool, provider_options};

/// A provider over HTTP, and the Azure behind it. Its tasks end with it.
struct Wire {
    azure: Azure,
    provider: AzureProvider,
    clock: SharedClock,
    _tasks: JoinSet<()>,
    _folder: tempfile::TempDir,
}

/// Cluster time goes a hundred times as fast: what waits for Azure's five seconds waits 50 ms.
const SPEED: f64 = 100.0;

impl Wire {
    async fn new() -> Self {
        let clock = TokioClock::new("2026-09-01T00:00:00Z".parse().unwrap(), SPEED).shared();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut options = Options::instant();
        options.base = format!("http://{}", listener.local_addr().unwrap());
        options.page = 10;
        let azure = Azure::new(options.clone(), clock.clone());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "assertion\n").unwrap();
        let outside = Outside {
            http: Arc::new(HttpClient::new().unwrap()),
            assertion: Arc::new(TokenFile(path)),
        };
        assert_eq!(outside.assertion.token().unwrap(), "assertion\n");
        let provider = AzureProvider::new(outside, clock.clone(), provider_options(&options));
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(azure.clone(), listener));
        let leader = provider.clone();
        tasks.spawn(async move { leader.lead(Arc::new(NoWrites)).await });
        let class = AKSNodeClass::new("class", AKSNodeClassSpec::default());
        let class = provider.reconcile_class(&class, Some("v1.34.1"), true).await.0;
        provider.put_class(class);
        let wire = Wire {
            azure,
            provider,
            clock,
            _tasks: tasks,
            _folder: folder,
        };
        while wire.provider.instance_types(&pool()).await.is_err() {
            wire.clock.sleep(std::time::Duration::from_secs(1)).await;
        }
        wire
    }
}

#[tokio::test]
async fn z_035_z_058_the_provider_keeps_the_promises_of_the_port_over_http() {
    let wire = Wire::new().await;
    // Prices may come a moment after sizes, once.
    while matches!(wire.provider.price_feed(), spokeshave_model::PriceFeed::Fixed) {
        wire.clock.sleep(std::time::Duration::from_secs(1)).await;
    }
    wire.clock.sleep(std::time::Duration::from_secs(30)).await;
    let subject = Subject {
        provider: wire.provider.clone(),
        clock: wire.clock.clone(),
    };
    let outcome = check_all(&subject).await;
    outcome.unwrap_or_else(|failures| panic!("{failures}"));
    assert_eq!(wire.azure.machines().len(), 0, "nothing is left");
    let pages = wire
        .azure
        .log()
        .iter()
        .filter(|line| line.contains("/skus"))
        .count();
    assert_eq!(pages, 8, "72 sizes, ten a page");
}

#[tokio::test]
async fn z_031_a_connection_that_breaks_is_no_reply() {
    let wire = Wire::new().await;
    wire.azure.lose_replies(
        "PUT /subscriptions/sub/resourceGroups/Nodes/providers/Microsoft.Compute/virtualMachines/aks-a",
        20,
    );
    let claim = on_demand("a", "Standard_D4s_v5");
    let error = wire.provider.create(&claim).await.unwrap_err();
    assert!(
        matches!(error, spokeshave_ports::CloudError::Timeout(_)),
        "{error}"
    );
    let created = wire.provider.create(&claim).await.unwrap();
    assert_eq!(wire.azure.machines().len(), 1, "{created:?}");
}

#[tokio::test]
async fn z_056_tags_of_a_machine_that_runs_are_changed_over_http() {
    let wire = Wire::new().await;
    let claim = on_demand("a", "Standard_D4s_v5");
    let created = wire.provider.create(&claim).await.unwrap();
    let wanted = [("team".to_owned(), "b".to_owned())].into();
    let id = created.provider_id().unwrap();
    let changed = wire.provider.change_tags(id, &BTreeMap::new(), &wanted).await;
    changed.unwrap();
    assert_eq!(wire.azure.machines()[0]["tags"]["team"], "b");
    assert_eq!(wire.azure.interface_tags("aks-a")["team"], "b");
}
