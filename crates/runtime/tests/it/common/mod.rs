//! What the tests of this folder share: an embedded API server on virtual time, and a line that can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::client::Body;
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_ports::{Entropy, SharedClock, TokioClock};
use spokeshave_runtime::Metrics;
use spokeshave_runtime::client::{ClientOptions, from_service};
use tower::ServiceExt;

/// A world with one API server.
pub struct World {
    pub clock: SharedClock,
    pub entropy: Entropy,
    pub metrics: Metrics,
    pub server: Arc<ApiServer>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        let entropy = Entropy::new(seed);
        let now = clock.clone();
        let config = Config::new(Arc::new(move || now.now()), entropy.number("apiserver"));
        let metrics = Metrics::new(clock.clone());
        Self {
            clock,
            entropy,
            metrics,
            server: ApiServer::new(config),
        }
    }

    pub fn client(&self) -> Client {
        self.client_with(&ClientOptions {
            rate: None,
            ..ClientOptions::default()
        })
    }

    pub fn client_with(&self, options: &ClientOptions) -> Client {
        from_service(self.server.service(), "default", options, self.clock.clone())
    }

    /// A client whose requests hang while the line is cut.
    pub fn client_on(&self, line: &Line, options: &ClientOptions) -> Client {
        let (server, line, clock) = (self.server.service(), line.clone(), self.clock.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, line, clock) = (server.clone(), line.clone(), clock.clone());
            async move {
                while line.is_cut() {
                    clock.sleep(Duration::from_millis(100)).await;
                }
                server.oneshot(request).await.map_err(tower::BoxError::from)
            }
        });
        from_service(service, "default", options, self.clock.clone())
    }

    pub async fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }
}

/// A network that can be cut.
#[derive(Clone, Default)]
pub struct Line(Arc<AtomicBool>);

impl Line {
    pub fn set_cut(&self, cut: bool) {
        self.0.store(cut, Ordering::SeqCst);
    }

    pub fn is_cut(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

pub fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        data: Some(
            data.iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        ),
        ..ConfigMap::default()
    }
}
