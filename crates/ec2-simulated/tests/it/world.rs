//! A cluster's API server with one EC2NodeClass, and the shipped provider on the simulated EC2.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use spokeshave_api::crds::{Cloud, crds_of};
use spokeshave_api::{EC2NodeClass, NodeClaim, NodePool, Operator, Requirement, labels};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_aws_cloud::ports::Aws;
use spokeshave_aws_cloud::{AwsOptions, AwsProvider};
use spokeshave_ec2_simulated::{Options, REGION, SimulatedEc2};
use spokeshave_ports::{CloudProvider as _, SharedClock, SharedWrites, TokioClock};
use spokeshave_runtime::{ClientWrites, read_only};
use tokio::task::JoinHandle;
use tower::BoxError;

pub(crate) const CLUSTER: &str = "rehearsal";

/// Where EC2 is [`prompt`], the first rehearsal is over after so many seconds; the next one is not made before ten have passed.
pub(crate) const REHEARSED: u64 = 9;

/// EC2 knows new instance profiles at once.
pub(crate) fn prompt() -> Options {
    Options {
        profile_delay: Duration::ZERO,
        ..Options::new(CLUSTER)
    }
}

pub(crate) struct World {
    pub(crate) clock: SharedClock,
    pub(crate) client: kube::Client,
    pub(crate) cloud: SimulatedEc2,
    answers: Answers,
}

/// What the API server says to providers.
#[derive(Clone, Default)]
struct Answers {
    /// Its version is Kubernetes `1.<minor>`.
    minor: Arc<AtomicU32>,
    /// The status with which it refuses to tell of the DNS service; 0 where it does not.
    dns_refusal: Arc<AtomicU32>,
}

/// A client whose API server answers so.
fn answering(client: kube::Client, answers: Answers) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, minor) = (client.clone(), answers.minor.load(Ordering::Relaxed));
        let refusal = answers.dns_refusal.load(Ordering::Relaxed);
        async move {
            if refusal != 0 && request.uri().path().ends_with("/kube-system/services/kube-dns") {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": refusal, "message": "refused"});
                let code = u16::try_from(refusal).unwrap();
                let response = Response::builder().status(code);
                return Ok(response
                    .body(Body::from(status.to_string().into_bytes()))
                    .unwrap());
            }
            if request.uri().path() != "/version" {
                return client.send(request).await.map_err(BoxError::from);
            }
            let version = json!({
                "major": "1", "minor": format!("{minor}+"), "gitVersion": format!("v1.{minor}.0-eks-0123456"), "gitCommit": "",
                "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.25", "compiler": "gc", "platform": "linux/amd64",
            });
            Ok(Response::new(Body::from(version.to_string().into_bytes())))
        }
    });
    kube::Client::new(service, "default")
}

impl World {
    pub(crate) async fn new(options: Options) -> Self {
        let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        let source = clock.clone();
        let server = ApiServer::new(Config::new(Arc::new(move || source.now()), 1));
        let client = kube::Client::new(server.service(), "default");
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in crds_of(Cloud::Aws) {
            let created = definitions.create(&PostParams::default(), &definition).await;
            created.unwrap();
        }
        let cloud = SimulatedEc2::new(clock.clone(), options);
        let world = World {
            clock,
            client,
            cloud,
            answers: Answers::default(),
        };
        world.class("default", json!({})).await;
        world
    }

    /// Makes a class; `spec` goes over the usual one.
    pub(crate) async fn class(&self, name: &str, spec: Value) {
        let terms = json!([{"tags": {"karpenter.sh/discovery": CLUSTER}}]);
        let mut class = json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name},
            "spec": {"role": "KarpenterNodeRole", "amiSelectorTerms": [{"alias": "al2023@latest"}], "subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms},
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            class["spec"][field] = value.clone();
        }
        let api: Api<EC2NodeClass> = Api::all(self.client.clone());
        let class = serde_json::from_value(class).unwrap();
        api.create(&PostParams::default(), &class).await.unwrap();
    }

    /// Makes a class in so many subnets, which it names, and the subnets. They take the four zones in turn: the first and the fifth are in one.
    pub(crate) async fn class_in_subnets(&self, name: &str, count: u32, mut spec: Value) {
        let term = |number: u32| json!({"id": format!("subnet-{number}")});
        spec["subnetSelectorTerms"] = (1..=count).map(term).collect();
        self.class(name, spec).await;
        self.cloud.fit(&self.class_now(name).await);
    }

    /// Changes an object, whatever becomes of it.
    pub(crate) async fn change<K: Resource<DynamicType = ()>>(&self, name: &str, patch: Value) {
        let kind = ApiResource::erase::<K>(&());
        let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let patched = objects
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap();
    }

    /// The provider at work, as a leader has it.
    pub(crate) fn provider(&self) -> Arc<AwsProvider> {
        self.provider_on(self.cloud.services())
    }

    pub(crate) fn provider_on(&self, services: Aws) -> Arc<AwsProvider> {
        self.provider_with(services, 34)
    }

    /// The provider in a cluster of Kubernetes `1.<minor>`.
    pub(crate) fn provider_of(&self, minor: u32) -> Arc<AwsProvider> {
        self.provider_with(self.cloud.services(), minor)
    }

    fn provider_with(&self, services: Aws, minor: u32) -> Arc<AwsProvider> {
        self.provider_from(services, |options| options.kubernetes_minor = minor)
    }

    /// The provider with other settings.
    pub(crate) fn provider_set(&self, set: impl FnOnce(&mut AwsOptions)) -> Arc<AwsProvider> {
        self.provider_from(self.cloud.services(), set)
    }

    fn provider_from(&self, services: Aws, set: impl FnOnce(&mut AwsOptions)) -> Arc<AwsProvider> {
        let provider = self.built(services, set);
        lead(&provider, self.writes());
        provider
    }

    /// What writes for it.
    pub(crate) fn writes(&self) -> SharedWrites {
        Arc::new(ClientWrites::new(self.client.clone()))
    }

    /// The provider before it leads.
    pub(crate) fn unled_provider(&self) -> Arc<AwsProvider> {
        self.built(self.cloud.services(), |_| {})
    }

    /// A provider that follows classes and the market, and writes nothing.
    pub(crate) fn reading_provider(&self, set: impl FnOnce(&mut AwsOptions)) -> Arc<AwsProvider> {
        let provider = self.built(self.cloud.services(), set);
        let follower = provider.clone();
        tokio::spawn(async move { follower.follow().await });
        provider
    }

    fn built(&self, services: Aws, set: impl FnOnce(&mut AwsOptions)) -> Arc<AwsProvider> {
        let mut options = AwsOptions::new(REGION, CLUSTER);
        options.kubernetes_minor = 34;
        options.interruption_queue = Some(CLUSTER.to_owned());
        set(&mut options);
        self.serve_version(options.kubernetes_minor);
        Arc::new(AwsProvider::new(
            services,
            read_only(answering(self.client.clone(), self.answers.clone())),
            self.clock.clone(),
            options,
        ))
    }

    /// From now on the API server is Kubernetes `1.<minor>`.
    pub(crate) fn serve_version(&self, minor: u32) {
        self.answers.minor.store(minor, Ordering::Relaxed);
    }

    /// From now on the API server answers with this status who asks for the DNS service; 0 has it say what is so.
    pub(crate) fn refuse_dns(&self, status: u32) {
        self.answers.dns_refusal.store(status, Ordering::Relaxed);
    }

    pub(crate) async fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    pub(crate) async fn class_now(&self, name: &str) -> EC2NodeClass {
        let api: Api<EC2NodeClass> = Api::all(self.client.clone());
        api.get(name).await.unwrap()
    }
}

/// Has a provider lead.
pub(crate) fn lead(provider: &Arc<AwsProvider>, writes: SharedWrites) -> JoinHandle<()> {
    let leader = provider.clone();
    tokio::spawn(async move { leader.lead(writes).await })
}

/// Status, reason and message of a condition.
pub(crate) fn condition(class: &EC2NodeClass, type_: &str) -> (String, String, String) {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|it| it.type_ == type_);
    let one = found.unwrap_or_else(|| panic!("{} has no condition {type_}", class.name()));
    (one.status.clone(), one.reason.clone(), one.message.clone())
}

/// A class as core shows it to the provider.
pub(crate) fn shown(class: &EC2NodeClass) -> DynamicObject {
    let value = serde_json::to_value(class).unwrap();
    serde_json::from_value(value).unwrap()
}

pub(crate) fn pool() -> NodePool {
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general"}, "spec": {"template": {"spec": {
        "requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}}});
    serde_json::from_value(pool).unwrap()
}

pub(crate) fn claim(name: &str, requirements: &[(&str, &[&str])]) -> NodeClaim {
    let value = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "labels": {labels::NODE_POOL: "general"}},
        "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
    });
    let mut claim: NodeClaim = serde_json::from_value(value).unwrap();
    let requirements = requirements.iter();
    claim.spec.requirements = requirements
        .map(|(key, values)| Requirement::new(key, Operator::In, values))
        .collect();
    claim
}
