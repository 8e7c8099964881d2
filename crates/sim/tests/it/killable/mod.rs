//! A cluster whose operator can be killed, also at any of its writes, and brings its cloud along.
//!
//! It knows nothing of how the controllers decide.
pub mod stories;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use spokeshave_api::NodePool;
use spokeshave_controllers::{Operator, Options as OperatorOptions};
use spokeshave_ports::{SharedClock, TokioClock};
use spokeshave_provider_kwok::{KwokOptions, KwokProvider};
use spokeshave_runtime::client::{ClientOptions, from_service};
use spokeshave_runtime::{Metrics, Shutdown};
use spokeshave_sim::invariants::Actor;
use spokeshave_sim::lab::{Lab, LabOptions, Observed};

use crate::words::*;

/// A cluster without an operator, with the checkers watching.
pub struct Cluster {
    pub lab: Lab,
    pub shutdown: Shutdown,
}

impl std::ops::Deref for Cluster {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Scene for Cluster {
    const LIMIT: Duration = Duration::from_secs(900);

    fn lab(&self) -> &Lab {
        &self.lab
    }
}

/// An operator that can be killed.
pub struct Running {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    pub metrics: Metrics,
}

impl Running {
    /// As `kill -9`: nothing is said and nothing is finished.
    pub async fn kill(self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            drop(task.await);
        }
    }
}

fn client_of<S>(way: S, clock: &SharedClock) -> Client
where
    S: tower::Service<
            http::Request<kube::client::Body>,
            Response = http::Response<spokeshave_apiserver::ResponseBody>,
        > + Send
        + Clone
        + 'static,
    S::Future: Send,
    S::Error: Into<tower::BoxError> + Send,
{
    let options = ClientOptions {
        rate: None,
        ..ClientOptions::default()
    };
    from_service(way, "default", &options, clock.clone())
}

impl Cluster {
    /// With one NodePool `default`: `spec.disruption` as given, on machines below nine cores. An operator brings its cloud along.
    pub async fn new(seed: u64, disruption: Value) -> Self {
        let options = LabOptions {
            cloud_lives: false,
            ..LabOptions::new(seed)
        };
        let cluster = Self {
            lab: Lab::new(options).await,
            shutdown: Shutdown::new(),
        };
        cluster.node_class().await;
        cluster.disrupted_pool("default", disruption).await;
        cluster
    }

    /// NodePool `default` launches only these instance types.
    pub async fn sells_only(&self, types: &[String], kinds: &[&str]) {
        let requirements = json!([
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": kinds},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
        ]);
        let patch = json!({"spec": {"template": {"spec": {"requirements": requirements}}}});
        self.patch::<NodePool>("default", patch).await;
    }

    /// A NodePool on machines below nine cores, on demand and of one architecture: `spec.disruption` as given.
    pub async fn disrupted_pool(&self, name: &str, disruption: Value) {
        let requirements = json!([
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        ]);
        let template = json!({"spec": {"requirements": requirements, "expireAfter": null}});
        self.pool(name, json!({"template": template, "disruption": disruption}))
            .await;
    }

    /// The ways of an operator and of its cloud.
    fn ways(&self) -> [Observed; 2] {
        let name = "operator".to_owned();
        [Actor::Operator(name.clone()), Actor::CloudCalls(name)].map(|actor| self.lab.way(actor))
    }

    fn clients(&self) -> [Client; 2] {
        self.ways().map(|way| client_of(way, &self.clock))
    }

    pub fn operator(&self) -> Running {
        self.operator_with(KwokOptions::default())
    }

    /// An operator whose every request fails once it, or its cloud, has written so often.
    pub fn mortal_operator(
        &self,
        writes: u64,
        cloud: KwokOptions,
        options: OperatorOptions,
    ) -> (Running, Arc<AtomicU64>) {
        let (clients, writes_left) = self.mortal_clients(writes, |_| true);
        let operator = self.operator_by(self.clock.clone(), clients, cloud, options);
        (operator, writes_left)
    }

    /// An operator whose writes are counted, those of events aside. The number decreases.
    pub fn counted_operator(&self) -> (Running, Arc<AtomicU64>) {
        let (clients, writes_left) = self.mortal_clients(u64::MAX, |path| !path.contains("/events"));
        let running = self.operator_by(
            self.clock.clone(),
            clients,
            KwokOptions::default(),
            OperatorOptions::default(),
        );
        (running, writes_left)
    }

    fn mortal_clients(&self, writes: u64, counts: fn(&str) -> bool) -> ([Client; 2], Arc<AtomicU64>) {
        let writes_left = Arc::new(AtomicU64::new(writes));
        let clients = self.ways().map(|inner| {
            let writes_left = writes_left.clone();
            client_of(
                Mortal {
                    inner,
                    writes_left,
                    counts,
                },
                &self.clock,
            )
        });
        (clients, writes_left)
    }

    pub fn operator_with(&self, cloud: KwokOptions) -> Running {
        self.operator_by(
            self.clock.clone(),
            self.clients(),
            cloud,
            OperatorOptions::default(),
        )
    }

    /// An operator with custom settings.
    pub fn operator_set(&self, options: OperatorOptions) -> Running {
        self.operator_by(
            self.clock.clone(),
            self.clients(),
            KwokOptions::default(),
            options,
        )
    }

    /// An operator on a machine whose clock is wrong by so many seconds.
    pub fn operator_off_by(&self, seconds: i64) -> Running {
        let now = self.clock.now() + jiff::SignedDuration::from_secs(seconds);
        let clock = TokioClock::new(now, 1.0).shared();
        self.operator_by(
            clock,
            self.clients(),
            KwokOptions::default(),
            OperatorOptions::default(),
        )
    }

    fn operator_by(
        &self,
        clock: SharedClock,
        clients: [Client; 2],
        cloud: KwokOptions,
        operator: OperatorOptions,
    ) -> Running {
        self.invariants.disturb();
        let [client, cloud_client] = clients;
        let options = KwokOptions {
            termination_delay: Duration::from_secs(3),
            ..cloud
        };
        let provider = Arc::new(KwokProvider::new(
            cloud_client,
            clock.clone(),
            &self.entropy.child("kwok"),
            options,
        ));
        let operator = Operator::new(
            client,
            provider.clone(),
            clock,
            self.entropy.child("operator"),
            operator,
        );
        let metrics = operator.metrics().clone();
        let stop = self.shutdown.clone();
        let cloud = tokio::spawn(async move { provider.run(stop.requested()).await });
        let stop = self.shutdown.clone();
        let controllers = tokio::spawn(async move { operator.run(stop).await.unwrap() });
        Running {
            tasks: vec![cloud, controllers],
            metrics,
        }
    }
}

/// A service that lets so many writes through and then dies: every later request of this operator fails.
#[derive(Clone)]
struct Mortal<S> {
    inner: S,
    writes_left: Arc<AtomicU64>,
    /// Which writes count.
    counts: fn(&str) -> bool,
}

impl<S, B> tower::Service<http::Request<B>> for Mortal<S>
where
    S: tower::Service<http::Request<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: std::fmt::Debug,
    S::Response: Send + 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = std::io::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<S::Response, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), std::io::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let write = request.method() != http::Method::GET && (self.counts)(request.uri().path());
        let alive = if write {
            self.writes_left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
        } else {
            self.writes_left.load(Ordering::Relaxed) > 0
        };
        let mut inner = self.inner.clone();
        Box::pin(async move {
            if !alive {
                return Err(std::io::Error::other("the operator was killed"));
            }
            inner
                .call(request)
                .await
                .map_err(|error| std::io::Error::other(format!("{error:?}")))
        })
    }
}
