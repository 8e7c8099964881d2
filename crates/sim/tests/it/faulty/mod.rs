//! Clusters in bad company: a cloud with faults, a gate before the API server, and words for what people do and see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_controllers::{Operator, Options as OperatorOptions};
use spokeshave_model::InstanceType;
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, NodeClassKind, RegistrationHook, RepairPolicy,
};
use spokeshave_provider_kwok::{KwokOptions, KwokProvider};
use spokeshave_runtime::client::{ClientOptions, RequestLog, from_service};
use spokeshave_runtime::{Api, Metrics, Shutdown};
use spokeshave_sim::invariants::Actor;
use spokeshave_sim::lab::{Lab, LabOptions};

pub const LIMIT: Duration = Duration::from_secs(3600);

/// What a cloud does wrong.
#[derive(Debug, Default)]
pub struct Faults {
    /// Launches for these NodePools never answer, and make nothing.
    pub hanging_pools: Mutex<BTreeSet<String>>,
    /// Deletions fail with this text.
    pub delete_error: Mutex<Option<String>>,
    /// Deletions and questions never answer.
    pub hang: AtomicBool,
    /// Instances that are left out of lists although they run, by provider ID.
    pub unlisted: Mutex<BTreeSet<String>>,
    /// Every instance is listed twice.
    pub duplicates: AtomicBool,
    /// Deletions answer "gone" and end nothing.
    pub lies: AtomicBool,
    /// What the cloud says of every instance when it is asked about drift; an empty text is an error.
    pub drift: Mutex<Option<String>>,
    /// Launches that were asked for.
    pub launches: AtomicU64,
}

/// The kwok cloud with faults.
#[derive(Debug)]
pub struct Faulty {
    pub inner: Arc<KwokProvider>,
    pub faults: Arc<Faults>,
    pub hooks: Vec<Arc<dyn RegistrationHook>>,
}

impl Faulty {
    fn hangs(&self, claim: &NodeClaim) -> bool {
        let pool = claim.node_pool().unwrap_or_default();
        self.faults.hanging_pools.lock().unwrap().contains(pool)
    }
}

impl CloudProvider for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        self.inner.supported_node_classes()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        if self.hangs(claim) {
            return std::future::pending().boxed();
        }
        self.faults.launches.fetch_add(1, Ordering::Relaxed);
        self.inner.create(claim)
    }

    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        if self.hangs(claim) {
            return std::future::pending().boxed();
        }
        self.faults.launches.fetch_add(1, Ordering::Relaxed);
        self.inner.create_from(claim, types)
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        if self.faults.hang.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        if let Some(error) = self.faults.delete_error.lock().unwrap().clone() {
            return async move { Err(CloudError::Other(error)) }.boxed();
        }
        if self.faults.lies.load(Ordering::Relaxed) {
            return async { Err(CloudError::NodeClaimNotFound("it says".to_owned())) }.boxed();
        }
        self.inner.delete(claim)
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        if self.faults.hang.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        self.inner.get(provider_id)
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        async move {
            let mut found = self.inner.list().await?;
            let unlisted = self.faults.unlisted.lock().unwrap().clone();
            found.retain(|one| !one.provider_id().is_some_and(|id| unlisted.contains(id)));
            if self.faults.duplicates.load(Ordering::Relaxed) {
                found.extend(found.clone());
            }
            Ok(found)
        }
        .boxed()
    }

    fn registration_hooks(&self) -> &[Arc<dyn RegistrationHook>] {
        &self.hooks
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        self.inner.instance_types(pool)
    }

    fn is_drifted<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        let said = self.faults.drift.lock().unwrap().clone();
        match said.as_deref() {
            None => self.inner.is_drifted(claim),
            Some("") => async { Err(CloudError::Other("no images are resolved".to_owned())) }.boxed(),
            Some(_) => async move { Ok(said) }.boxed(),
        }
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        self.inner.repair_policies()
    }
}

/// What stands between an operator and the API server: counts requests, and refuses some evictions.
#[derive(Clone, Default)]
pub struct Gate {
    /// Pods whose eviction is answered with this status.
    pub refused: Arc<Mutex<BTreeMap<String, u16>>>,
    pub writes: Arc<AtomicU64>,
    pub reads: Arc<AtomicU64>,
    /// When off, nothing passes.
    pub cut: Arc<AtomicBool>,
    /// So many writes to paths that contain a text are answered with a status.
    pub stumbles: Arc<Mutex<Vec<(&'static str, u16, u32)>>>,
}

#[derive(Clone)]
pub struct Gated<S> {
    pub inner: S,
    pub gate: Gate,
}

impl<S> tower::Service<http::Request<kube::client::Body>> for Gated<S>
where
    S: tower::Service<http::Request<kube::client::Body>> + Clone + Send + 'static,
    S::Response: IntoAnswer,
    S::Future: Send + 'static,
    S::Error: std::fmt::Debug,
{
    type Response = http::Response<AnswerBody>;
    type Error = std::io::Error;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<http::Response<AnswerBody>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), std::io::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let counter = if request.method() == http::Method::GET {
            &self.gate.reads
        } else {
            &self.gate.writes
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let cut = self.gate.cut.load(Ordering::Relaxed);
        let write = request.method() != http::Method::GET;
        let path = request.uri().path();
        let stumble = if write { self.gate.stumble(path) } else { None };
        let refused = self.gate.refusal(path).or(stumble);
        let mut inner = self.inner.clone();
        Box::pin(async move {
            if cut {
                return Err(std::io::Error::other("the network is cut"));
            }
            if let Some(answer) = refused {
                return Ok(answer);
            }
            inner
                .call(request)
                .await
                .map(IntoAnswer::into_answer)
                .map_err(|error| std::io::Error::other(format!("{error:?}")))
        })
    }
}

fn answer(code: u16, reason: &str, message: &str) -> http::Response<AnswerBody> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    let response = http::Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(serde_json::to_string(&body).unwrap());
    response.unwrap().into_answer()
}

pub type AnswerBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, tower::BoxError>;

/// Any response as one of one type.
pub trait IntoAnswer {
    fn into_answer(self) -> http::Response<AnswerBody>;
}

impl<B> IntoAnswer for http::Response<B>
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError> + 'static,
{
    fn into_answer(self) -> http::Response<AnswerBody> {
        self.map(|body| body.map_err(Into::into).boxed_unsync())
    }
}

impl Gate {
    /// The next writes fail whose path contains all the parts between `*`.
    pub fn trip(&self, path: &'static str, status: u16, times: u32) {
        self.stumbles.lock().unwrap().push((path, status, times));
    }

    /// Every failure that was asked for was met.
    pub fn assert_tripped(&self) {
        let stumbles = self.stumbles.lock().unwrap();
        assert!(
            stumbles.iter().all(|(.., left)| *left == 0),
            "every failure was met: {stumbles:?}"
        );
    }

    pub fn stumble(&self, path: &str) -> Option<http::Response<AnswerBody>> {
        let mut stumbles = self.stumbles.lock().unwrap();
        let (_, code, left) = stumbles
            .iter_mut()
            .find(|(parts, _, left)| *left > 0 && parts.split('*').all(|part| path.contains(part)))?;
        *left -= 1;
        let reason = if *code == 409 { "Conflict" } else { "InternalError" };
        Some(answer(*code, reason, "stumbled"))
    }

    pub fn refusal(&self, path: &str) -> Option<http::Response<AnswerBody>> {
        let pod = path.strip_suffix("/eviction")?.rsplit('/').next()?;
        let code = *self.refused.lock().unwrap().get(pod)?;
        let message = format!("admission webhook \"guard.example.com\" denied the request: {pod} is holy");
        Some(answer(code, "Forbidden", &message))
    }
}

/// A laboratory in which the checkers watch; what a test does against a promise on purpose, it excuses.
pub struct Cluster {
    pub lab: Arc<Lab>,
    pub shutdown: Shutdown,
    pub faults: Arc<Faults>,
    pub gate: Gate,
    pub excused: Arc<Mutex<BTreeSet<u8>>>,
}

impl std::ops::Deref for Cluster {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// What a test may change of an operator.
pub struct Setup {
    pub options: OperatorOptions,
    pub kwok: KwokOptions,
    pub rate: Option<(f64, u32)>,
    pub identity: &'static str,
    pub log: Option<RequestLog>,
    /// What the cloud wants done before a Node registers.
    pub hooks: Vec<Arc<dyn RegistrationHook>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            options: OperatorOptions::default(),
            kwok: KwokOptions {
                termination_delay: Duration::from_secs(3),
                ..KwokOptions::default()
            },
            rate: None,
            identity: "operator",
            log: None,
            hooks: Vec::new(),
        }
    }
}

pub struct Running {
    pub metrics: Metrics,
    /// Ends it in order.
    pub stop: Shutdown,
    pub task: tokio::task::JoinHandle<Result<(), spokeshave_controllers::OperatorError>>,
}

pub fn pool(name: &str, change: Value) -> Value {
    let mut whole = json!({"metadata": {"name": name}, "spec": {
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "expireAfter": "Never",
            "requirements": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
            ],
        }},
        "disruption": {"consolidateAfter": "Never"},
    }});
    merge(&mut whole, change);
    whole
}

pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

impl Cluster {
    pub async fn new(seed: u64) -> Self {
        Self::with(seed, spokeshave_sim::Options::all()).await
    }

    pub async fn with(seed: u64, options: spokeshave_sim::Options) -> Self {
        let options = LabOptions {
            cluster: options,
            cloud_lives: false,
            ..LabOptions::new(seed)
        };
        let cluster = Self {
            lab: Arc::new(Lab::new(options).await),
            shutdown: Shutdown::new(),
            faults: Arc::default(),
            gate: Gate::default(),
            excused: Arc::default(),
        };
        cluster
            .create::<KWOKNodeClass>(
                json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "5s"}}),
            )
            .await;
        cluster
    }

    /// Starts an operator and, for it, a cloud.
    pub fn operator(&self, setup: Setup) -> Running {
        let options = ClientOptions {
            rate: setup.rate,
            log: setup.log,
            ..ClientOptions::default()
        };
        self.invariants.disturb();
        let name = setup.identity.to_owned();
        let gated = Gated {
            inner: self.lab.way(Actor::Operator(name.clone())),
            gate: self.gate.clone(),
        };
        let client = from_service(gated, "default", &options, self.clock.clone());
        let provider = Arc::new(KwokProvider::new(
            self.lab.client_as(Actor::CloudCalls(name)),
            self.clock.clone(),
            &self.entropy.child("kwok"),
            setup.kwok,
        ));
        let cloud = Arc::new(Faulty {
            inner: provider.clone(),
            faults: self.faults.clone(),
            hooks: setup.hooks,
        });
        let operator = Operator::new(
            client,
            cloud,
            self.clock.clone(),
            self.entropy.child(setup.identity),
            setup.options,
        );
        let metrics = operator.metrics().clone();
        let stop = self.shutdown.child();
        let until = stop.clone();
        tokio::spawn(async move { provider.run(until.requested()).await });
        let until = stop.clone();
        let task = tokio::spawn(async move { operator.run(until).await });
        Running { metrics, stop, task }
    }

    /// NodePools `a` and `b`, each with the label `team` of its name; launches for `a` never answer.
    pub async fn teams_a_and_b_where_launches_of_a_hang(&self) {
        for team in ["a", "b"] {
            let spec = json!({"spec": {"template": {"metadata": {"labels": {"team": team}}}}});
            self.create::<NodePool>(pool(team, spec)).await;
        }
        let mut hanging = self.faults.hanging_pools.lock().unwrap();
        hanging.insert("a".to_owned());
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

    pub async fn deploy(&self, name: &str, replicas: i32, cpu: &str, change: Value) {
        let mut template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}},
        ]}});
        merge(&mut template, change);
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        }))
        .unwrap();
        Api::<Deployment>::default_namespaced(self.client.clone())
            .create(&PostParams::default(), &deployment)
            .await
            .unwrap();
    }

    pub async fn budget(&self, name: &str, spec: Value) {
        let budget: PodDisruptionBudget =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        Api::<PodDisruptionBudget>::default_namespaced(self.client.clone())
            .create(&PostParams::default(), &budget)
            .await
            .unwrap();
    }

    pub fn all<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    pub async fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        self.all::<K>().list(&ListParams::default()).await.unwrap().items
    }

    pub async fn patch<K>(&self, api: Api<K>, name: &str, patch: Value)
    where
        K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    pub async fn delete_claim(&self, name: &str) {
        self.all::<NodeClaim>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// The test breaks this promise on purpose.
    pub fn excuse(&self, invariant: u8) {
        self.excused.lock().unwrap().insert(invariant);
    }

    /// Every other promise is kept.
    pub fn assert_kept(&self) {
        let excused = self.excused.lock().unwrap();
        let mut found = self.invariants.violations();
        found.retain(|one| !excused.contains(&one.invariant));
        assert!(found.is_empty(), "{found:#?}");
    }

    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) {
        let start = self.clock.now();
        while !holds(self).await {
            self.assert_kept();
            if self.clock.since(start) >= LIMIT {
                let claims = self.list::<NodeClaim>().await;
                let told: Vec<_> = claims.iter().map(|claim| (claim.name(), &claim.status)).collect();
                panic!("{what}: not within {LIMIT:?}; {told:#?}");
            }
            self.clock.sleep(Duration::from_secs(1)).await;
        }
    }

    pub async fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
        self.assert_kept();
    }

    pub async fn running(&self, app: &str) -> usize {
        let pods = self.list::<Pod>().await;
        let runs = |pod: &&Pod| {
            pod.labels().get("app").map(String::as_str) == Some(app)
                && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
                && pod.metadata.deletion_timestamp.is_none()
        };
        pods.iter().filter(runs).count()
    }

    pub async fn until_running(&self, app: &str, count: usize) {
        self.until(&format!("{count} pods of {app} run"), async |cluster| {
            cluster.running(app).await == count
        })
        .await;
    }

    pub async fn claims(&self) -> Vec<String> {
        self.list::<NodeClaim>()
            .await
            .iter()
            .map(|claim| claim.name().to_owned())
            .collect()
    }

    pub async fn until_gone(&self, claim: &str) {
        self.until(&format!("{claim} is gone"), async |cluster| {
            !cluster.claims().await.iter().any(|name| name == claim)
        })
        .await;
    }

    /// Status, reason and message of a condition.
    pub async fn condition(&self, claim: &str, type_: &str) -> Option<(String, String, String)> {
        let claim = self.all::<NodeClaim>().get_opt(claim).await.unwrap()?;
        let conditions = claim.status?.conditions;
        let one = conditions.into_iter().find(|one| one.type_ == type_)?;
        Some((one.status, one.reason, one.message))
    }

    pub async fn blocked(&self, claim: &str) -> Option<(String, String)> {
        let (_, reason, message) = self.condition(claim, "spokeshave.dev/TerminationBlocked").await?;
        Some((reason, message))
    }

    pub async fn until_blocked(&self, claim: &str, reason: &str) -> String {
        self.until(&format!("{claim} says {reason}"), async |cluster| {
            cluster
                .blocked(claim)
                .await
                .is_some_and(|(found, _)| found == reason)
        })
        .await;
        self.blocked(claim).await.unwrap().1
    }

    pub async fn events(&self, reason: &str) -> Vec<(String, String)> {
        let events = self.list::<Event>().await;
        events
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .map(|event| {
                let object = event.involved_object;
                (
                    format!(
                        "{}/{}",
                        object.kind.unwrap_or_default(),
                        object.name.unwrap_or_default()
                    ),
                    event.message.unwrap_or_default(),
                )
            })
            .collect()
    }

    /// Invariant 11: each instance has its claim.
    pub async fn assert_no_leak(&self) {
        self.assert_kept();
        let claims = self.list::<NodeClaim>().await;
        for instance in self.list::<KWOKInstance>().await {
            let owned = claims
                .iter()
                .any(|claim| claim.uid() == instance.spec.node_claim_uid);
            assert!(owned, "instance {} belongs to nobody", instance.name());
        }
    }

    pub async fn claim_of_pod(&self, app: &str) -> String {
        let pods = self.list::<Pod>().await;
        let pod = pods
            .iter()
            .find(|pod| pod.labels().get("app").map(String::as_str) == Some(app))
            .unwrap();
        let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
        let claims = self.list::<NodeClaim>().await;
        let found = claims
            .iter()
            .find(|claim| claim.status.as_ref().unwrap().node_name.as_deref() == Some(&node));
        found.unwrap().name().to_owned()
    }
}
