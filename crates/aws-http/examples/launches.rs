//! The whole provider as the operator has it, at a recording proxy: it makes the EC2NodeClasses of a scenario ready and launches its NodeClaims.
//!
//! ```sh
//! AWS_ENDPOINT_URL=http://127.0.0.1:5000 AWS_REGION=us-west-2 AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b \
//!     cargo run -p spokeshave-aws-http --example launches -- e2e/aws/cases/launch-concurrent.yaml [--at-once]
//! ```
//!
//! Scenarios are those of `e2e/aws`. NodeClaims are launched one after the other, or all at once where the scenario or `--at-once` says so. Prints what came
//! of each, a line of JSON a NodeClaim. It launches instances: it refuses to run without `AWS_ENDPOINT_URL`. `just parity-aws` compares what it asks AWS for
//! with what upstream's own provider asks for.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spokeshave_api::crds::{Cloud, crds_of};
use spokeshave_api::{EC2NodeClass, NodeClaim, NodePool};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_aws_cloud::{AwsOptions, AwsProvider};
use spokeshave_model::CapacityType;
use spokeshave_ports::{CloudProvider as _, Entropy, SharedClock, TokioClock};
use spokeshave_runtime::{ClientWrites, read_only};

/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(100);
/// Classes that find nothing are not waited for any longer than this.
const PATIENCE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error>;

/// A file of `e2e/aws`: at most one Scenario, and objects.
struct Scenario(Vec<Value>);

impl Scenario {
    fn read(path: &str) -> Result<Self, Failure> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(path)?)?;
        Ok(Scenario(
            documents.into_iter().filter(|one| !one.is_null()).collect(),
        ))
    }

    fn setting(&self, name: &str) -> &Value {
        let scenario = self.0.iter().find(|one| one["kind"] == "Scenario");
        scenario.map_or(&Value::Null, |scenario| &scenario[name])
    }

    /// The value of one of upstream's flags.
    fn argument(&self, name: &str) -> Option<&str> {
        let arguments = self.setting("args").as_array()?.iter();
        let mut arguments = arguments.filter_map(Value::as_str);
        arguments.find_map(|one| one.strip_prefix(name)?.strip_prefix('='))
    }

    fn options(&self, region: &str) -> Result<AwsOptions, Failure> {
        let name = self.argument("--cluster-name").unwrap_or("oracle");
        let mut options = AwsOptions::new(region, name);
        let endpoint = self.argument("--cluster-endpoint");
        options.cluster_endpoint = Some(endpoint.unwrap_or("https://oracle.example").to_owned());
        options.cluster_ca_bundle = Some("b3JhY2xlIENB".to_owned());
        options.cluster_dns = self.setting("clusterDNS").as_str().map(str::parse).transpose()?;
        options.types.reserved_enis = self.argument("--reserved-enis").map_or(Ok(0), str::parse)?;
        let version = self.setting("kubernetesVersion").as_str().unwrap_or("1.34");
        options.kubernetes_minor = version.rsplit('.').next().unwrap_or_default().parse()?;
        Ok(options)
    }

    /// Makes the objects of a kind, as the API server then has them. What it refuses is left out, and said.
    async fn make<T>(&self, client: &kube::Client, kind: &str) -> Result<Vec<T>, Failure>
    where
        T: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        let api: Api<T> = Api::all(client.clone());
        let mut made = Vec::new();
        for document in self.0.iter().filter(|one| one["kind"] == kind) {
            let object = serde_json::from_value(document.clone())?;
            match api.create(&PostParams::default(), &object).await {
                Ok(object) => made.push(object),
                Err(error) => eprintln!("{kind} {} is refused: {error}", document["metadata"]["name"]),
            }
        }
        Ok(made)
    }
}

/// Waits until it is so, or patience ends.
async fn until(clock: &SharedClock, mut is_so: impl AsyncFnMut() -> bool) {
    let start = clock.now();
    while !is_so().await && clock.since(start) < PATIENCE {
        clock.sleep(LOOK).await;
    }
}

/// Whether it is known what this class may launch.
fn is_judged(class: &EC2NodeClass) -> bool {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|ready| ready.status != "Unknown")
}

async fn is_spot_priced(provider: &AwsProvider, pools: &[NodePool]) -> bool {
    for pool in pools {
        let types = provider.instance_types(pool).await;
        let is_cheaper = types.iter().flat_map(|types| types.iter()).any(|one| {
            let price = |capacity_type| {
                let mut offerings = one.offerings.iter();
                offerings.find_map(|it| (it.capacity_type() == Some(capacity_type)).then_some(it.price))
            };
            let (spot, on_demand) = (price(CapacityType::Spot), price(CapacityType::OnDemand));
            spot.is_some() && on_demand.is_some() && spot != on_demand
        });
        if is_cheaper {
            return true;
        }
    }
    false
}

async fn launch(provider: &AwsProvider, claim: &NodeClaim) -> Value {
    match provider.create(claim).await {
        Ok(launched) => json!({"name": claim.name(), "labels": launched.metadata.labels}),
        Err(error) => json!({"name": claim.name(), "error": error.to_string()}),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    #[expect(clippy::disallowed_methods, reason = "an example is its own binary")]
    let (endpoint, mut arguments) = (std::env::var("AWS_ENDPOINT_URL"), std::env::args().skip(1));
    if endpoint.is_err() {
        return Err("set AWS_ENDPOINT_URL to a recording proxy: this launches instances".into());
    }
    let path = arguments.next().ok_or("name a scenario file")?;
    let scenario = Scenario::read(&path)?;
    let at_once = scenario.setting("concurrent") == true || arguments.any(|one| one == "--at-once");
    let clock = TokioClock::wall(1.0).shared();
    let source = clock.clone();
    let server = ApiServer::new(Config::new(Arc::new(move || source.now()), 1));
    let client = kube::Client::new(server.service(), "default");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in crds_of(Cloud::Aws) {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    let classes: Vec<EC2NodeClass> = scenario.make(&client, "EC2NodeClass").await?;
    let pools: Vec<NodePool> = scenario.make(&client, "NodePool").await?;
    let claims: Vec<NodeClaim> = scenario.make(&client, "NodeClaim").await?;

    let session =
        spokeshave_aws_http::load(None, "spokeshave-launches", clock.clone(), &Entropy::new(1)).await?;
    let provider = Arc::new(AwsProvider::new(
        spokeshave_aws_http::services(&session),
        read_only(client.clone()),
        clock.clone(),
        scenario.options(session.region())?,
    ));
    let (leader, writes) = (provider.clone(), Arc::new(ClientWrites::new(client.clone())));
    tokio::spawn(async move { leader.lead(writes).await });
    let api: Api<EC2NodeClass> = Api::all(client.clone());
    until(&clock, async || {
        let found = api.list(&ListParams::default()).await;
        found.is_ok_and(|found| found.items.len() == classes.len() && found.items.iter().all(is_judged))
    })
    .await;
    if scenario.setting("spotPrices") == true {
        until(&clock, async || is_spot_priced(&provider, &pools).await).await;
    }
    let launches = claims.iter().map(|claim| launch(&provider, claim));
    let results: Vec<Value> = if at_once {
        futures::future::join_all(launches).await
    } else {
        let mut results = Vec::new();
        for launch in launches {
            results.push(launch.await);
        }
        results
    };
    for result in results {
        println!("{result}");
    }
    Ok(())
}
