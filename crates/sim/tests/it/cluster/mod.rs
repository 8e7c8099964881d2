//! A cluster on virtual time for scenarios: the embedded API server, the simulated components, and an operator that can be killed at any write.
//!
//! It says what a user does and asks what is there; it knows nothing of how the controllers decide.
pub mod stories;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_controllers::{Operator, Options as OperatorOptions};
use spokeshave_ports::{SharedClock, TokioClock};
use spokeshave_provider_kwok::{KwokOptions, KwokProvider};
use spokeshave_runtime::client::{ClientOptions, from_service};
use spokeshave_runtime::{Api, Metrics, Shutdown};
use spokeshave_sim::invariants::Actor;
use spokeshave_sim::lab::{Lab, LabOptions, Observed};

pub const LIMIT: Duration = Duration::from_secs(900);

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
        cluster
            .create::<KWOKNodeClass>(
                json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "5s"}}),
            )
            .await;
        cluster.pool("default", disruption, json!([])).await;
        cluster
    }

    /// NodePool `default` buys only these instance types.
    pub async fn sells_only(&self, types: &[String], kinds: &[&str]) {
        let requirements = json!([
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": kinds},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]},
        ]);
        let patch = json!({"spec": {"template": {"spec": {"requirements": requirements}}}});
        self.patch::<NodePool>("default", patch).await;
    }

    pub async fn pool(&self, name: &str, disruption: Value, requirements: Value) {
        let mut all = vec![
            json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}),
            json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}),
            json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}),
            json!({"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]}),
        ];
        all.extend(requirements.as_array().unwrap().iter().cloned());
        self.create::<NodePool>(json!({"metadata": {"name": name}, "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": all,
            }},
            "disruption": disruption,
        }}))
        .await;
    }

    pub async fn create<K>(&self, value: Value) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let api = Api::all(self.client.clone());
        self.lab.create(&api, value).await.unwrap()
    }

    pub async fn deploy(&self, name: &str, replicas: i32, cpu: &str) {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}},
            },
        }))
        .unwrap();
        Api::<Deployment>::default_namespaced(self.client.clone())
            .create(&PostParams::default(), &deployment)
            .await
            .unwrap();
    }

    pub async fn scale(&self, name: &str, replicas: i32) {
        let api: Api<Deployment> = Api::default_namespaced(self.client.clone());
        api.patch(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"replicas": replicas}})),
        )
        .await
        .unwrap();
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

    /// An operator whose writes are counted, those of events aside. The number goes down.
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

    /// An operator with settings of its own.
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

    pub async fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        Api::<K>::all(self.client.clone())
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    /// Waits in virtual time until the cluster looks as it should.
    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) {
        let start = self.clock.now();
        while !holds(self).await {
            self.invariants.assert_kept();
            assert!(
                self.clock.since(start) < LIMIT,
                "{what}: not within {LIMIT:?}; nodes {:?}, claims {:?}, ledger {:?}",
                self.names::<Node>().await,
                self.names::<NodeClaim>().await,
                self.ledger_text().await
            );
            self.clock.sleep(Duration::from_secs(1)).await;
        }
    }

    pub async fn names<K>(&self) -> Vec<String>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        self.list::<K>().await.iter().map(ResourceExt::name_any).collect()
    }

    pub async fn running(&self) -> usize {
        let phase = |pod: &Pod| {
            pod.status
                .as_ref()
                .and_then(|status| status.phase.clone())
                .unwrap_or_default()
        };
        self.list::<Pod>()
            .await
            .iter()
            .filter(|pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none())
            .count()
    }

    pub async fn until_running(&self, count: usize) {
        self.until(&format!("{count} pods run"), async |cluster| {
            cluster.running().await == count && cluster.list::<Pod>().await.len() == count
        })
        .await;
    }

    pub async fn until_empty(&self) {
        self.until("nothing is left", async |cluster| {
            cluster.list::<Node>().await.is_empty()
                && cluster.list::<NodeClaim>().await.is_empty()
                && cluster.list::<KWOKInstance>().await.is_empty()
        })
        .await;
    }

    /// Invariants 10 and 11: each instance has its claim, and no node keeps a taint that nobody works on.
    pub async fn assert_tidy(&self) {
        self.invariants.assert_kept();
        let claims = self.list::<NodeClaim>().await;
        for instance in self.list::<KWOKInstance>().await {
            let owners = claims
                .iter()
                .filter(|claim| claim.uid() == instance.spec.node_claim_uid)
                .count();
            assert_eq!(owners, 1, "instance {} belongs to no NodeClaim", instance.name());
        }
        for node in self.list::<Node>().await {
            let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
            assert!(
                taints.iter().all(|taint| !taint.key.starts_with("karpenter.sh/")),
                "stray taint: {taints:?}"
            );
        }
    }

    /// All commands, oldest first.
    pub async fn ledger(&self) -> Vec<Disruption> {
        self.list::<Disruption>().await
    }

    /// One line a command, for messages.
    pub async fn ledger_text(&self) -> Vec<String> {
        let line = |one: &Disruption| {
            let message = one.status.as_ref().and_then(|status| status.message.clone());
            format!(
                "{} {} {} -> {} {} ({})",
                one.spec.reason,
                one.spec.decision,
                one.spec.node_summary,
                one.spec.replacement_summary,
                one.phase(),
                message.unwrap_or_default()
            )
        };
        self.ledger().await.iter().map(line).collect()
    }

    /// How many commands of a reason ended in a phase.
    pub async fn ended(&self, reason: &str, phase: DisruptionPhase) -> usize {
        let ledger = self.ledger().await;
        let found = ledger
            .iter()
            .filter(|one| one.spec.reason.as_str() == reason && one.phase() == phase);
        found.count()
    }

    /// No command is under way, no stray taint, no leaked instance, no condition of a command that is no more.
    pub async fn assert_at_rest(&self) {
        self.assert_tidy().await;
        for one in self.ledger().await {
            assert!(one.is_finished(), "{:?}", self.ledger_text().await);
        }
        for claim in self.list::<NodeClaim>().await {
            let conditions = claim.status.unwrap_or_default().conditions;
            assert!(
                conditions.iter().all(|one| one.type_ != "DisruptionReason"),
                "stray condition: {conditions:?}"
            );
        }
    }

    pub async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        Api::<K>::all(self.client.clone())
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub async fn wait(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
        self.invariants.assert_kept();
    }

    /// Nothing was ever decided.
    pub async fn assert_no_commands(&self) {
        assert!(self.ledger().await.is_empty(), "{:?}", self.ledger_text().await);
    }

    /// There is an event of this reason with exactly this message.
    pub async fn assert_said(&self, reason: &str, message: &str) {
        let said = self.events(reason).await;
        assert!(said.iter().any(|one| one == message), "{said:?}");
    }

    /// Messages of events with a reason.
    pub async fn events(&self, reason: &str) -> Vec<String> {
        let events = self.list::<k8s_openapi::api::core::v1::Event>().await;
        let of = events
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason));
        of.filter_map(|event| event.message).collect()
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
