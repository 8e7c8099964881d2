//! Seeds on EC2: the shipped AWS provider on the simulated EC2, with bad days drawn from the seed, then calm, then the end of everything.
//!
//! Owns the world of such a seed and who runs in it. What happens is in `steps`, what must hold of instances in `checks`; Kubernetes' side is watched by the
//! same checkers as every other seed. In the end EC2 must be as empty as the cluster: no instance, launch template or instance profile.

mod checks;
mod kills;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use serde_json::{Value, json};
use spokeshave_api::EC2NodeClass;
use spokeshave_api::crds::{Cloud, crds_of};
use spokeshave_api::validation::LabelRules;
use spokeshave_aws_cloud::ports::Aws;
use spokeshave_aws_cloud::{AwsOptions, AwsProvider};
use spokeshave_controllers::Options as OperatorOptions;
use spokeshave_ec2_simulated::{Lifeline, Options, REGION, SimulatedEc2};
use spokeshave_runtime::Api;

use crate::invariants::{Actor, Violation};
use crate::lab::{Lab, LabOptions};
use crate::soak::{Outcome, RunOptions};

pub use kills::{every_call, lived};

const CLUSTER: &str = "rehearsal";
/// The class of all NodePools.
const CLASS: &str = "default";
/// The one replica.
const OPERATOR: &str = "one";
/// Kubernetes' minor version, as the embedded API server has it.
const MINOR: u32 = 36;

/// A cluster on the simulated EC2.
struct World {
    lab: Lab,
    cloud: SimulatedEc2,
}

impl World {
    async fn new(options: LabOptions, ec2: Options) -> Result<Self, String> {
        let mut operator = OperatorOptions {
            label_rules: LabelRules {
                restricted_domains: vec!["karpenter.k8s.aws".to_owned()],
                well_known: spokeshave_provider_aws::labels::WELL_KNOWN
                    .iter()
                    .map(|label| (*label).to_owned())
                    .collect(),
            },
            ..OperatorOptions::default()
        };
        operator.feature_gates.clone_from(&options.operator.feature_gates);
        let lab = Lab::new(LabOptions {
            cloud_lives: false,
            operator,
            ..options
        })
        .await;
        let definitions: Api<CustomResourceDefinition> = Api::all(lab.client.clone());
        for definition in crds_of(Cloud::Aws) {
            let known = spokeshave_api::crds::crds();
            if known
                .iter()
                .all(|known| known.metadata.name != definition.metadata.name)
            {
                let made = definitions.create(&PostParams::default(), &definition).await;
                made.map_err(|error| format!("the API server refuses a definition: {error}"))?;
            }
        }
        let cloud = SimulatedEc2::new(lab.clock.clone(), ec2);
        let (machines, client) = (cloud.clone(), lab.client_as(Actor::Cloud));
        tokio::spawn(async move { machines.join(client, std::future::pending()).await });
        Ok(World { lab, cloud })
    }

    /// Makes the class.
    async fn class(&self) -> Result<(), String> {
        let terms = json!([{"tags": {"karpenter.sh/discovery": CLUSTER}}]);
        let class = json!({"metadata": {"name": CLASS}, "spec": {
            "role": "KarpenterNodeRole", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms,
        }});
        let api: Api<EC2NodeClass> = Api::all(self.lab.client.clone());
        let made = self.lab.create(&api, class).await;
        made.map(drop)
            .map_err(|error| format!("cannot make the class: {error}"))
    }

    /// Starts the operator, unless it runs.
    fn start(&mut self) {
        let services = self.cloud.services();
        self.start_on(services);
    }

    /// Starts an operator that gets no answer any more from its call to AWS of this number on.
    fn start_mortal(&mut self, calls: u64) -> Lifeline {
        let (services, life) = self.cloud.mortal_services(calls);
        self.start_on(services);
        life
    }

    fn start_on(&mut self, services: Aws) {
        if self.lab.is_running(OPERATOR) {
            return;
        }
        let mut options = AwsOptions::new(REGION, CLUSTER);
        options.kubernetes_minor = MINOR;
        options.interruption_queue = Some(CLUSTER.to_owned());
        let client = self.lab.client_as(Actor::Operator(OPERATOR.to_owned()));
        let provider = AwsProvider::new(services, client.clone(), self.lab.clock.clone(), options);
        self.lab.start_provider(OPERATOR, client, Arc::new(provider));
    }
}

fn pool(name: &str, spec: &Value) -> Value {
    let mut pool = json!({"metadata": {"name": name}, "spec": {
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": CLASS},
            "requirements": [
                {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c6i", "r6i", "m7g"]},
                {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["17"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
            ],
            "expireAfter": "Never",
        }},
        "disruption": {"consolidateAfter": "60s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "50%"}]},
    }});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pool["spec"][field] = value.clone();
    }
    pool
}

/// What the checkers of every seed found: of instances these know only those of the kwok cloud, and a NodeClaim whose instance is missing is looked for
/// in `checks`.
fn violations(lab: &Lab) -> Vec<Violation> {
    let mut found = lab.invariants.violations();
    found.retain(|one| !(one.invariant == 11 && one.object.starts_with("nodeclaim ")));
    found
}

/// Runs one seed, in a runtime of its own whose time is paused.
#[must_use]
pub fn run_with(seed: u64, options: RunOptions) -> Outcome {
    let empty = |stuck: String| Outcome {
        seed,
        scenario: String::new(),
        violations: Vec::new(),
        stuck: Some(stuck),
        log: Vec::new(),
        lasted: Duration::ZERO,
        steps: 0,
        requests: 0,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(story(seed, options)).unwrap_or_else(empty),
        Err(error) => empty(format!("no runtime: {error}")),
    }
}

async fn story(seed: u64, options: RunOptions) -> Result<Outcome, String> {
    let scenario = steps::Scenario::draw(seed);
    let text = format!("{scenario} on EC2");
    let mut lab_options = LabOptions::new(seed);
    lab_options.keep_log = options.keep_log;
    lab_options.log_cluster = options.log_cluster;
    // Machines take half a minute, and a launch that finds nothing takes three until it may try again.
    lab_options.expectations.launch_within = Duration::from_secs(15 * 60);
    let mut world = World::new(lab_options, scenario.ec2()).await?;
    let start = world.lab.clock.now();
    world.lab.log.note(&text);
    let traffic = world.lab.traffic.clone();
    let mut days = steps::Days::new(scenario, &world);
    let stuck = tokio::select! {
        biased;
        () = traffic.exceeds(options.request_limit) => {
            Some(format!("given up after {} requests: something spins", options.request_limit))
        }
        lived = days.live(&mut world) => lived.err(),
    };
    for (call, count) in world.cloud.calls() {
        world.lab.log.note(&format!("{count} calls: {call}"));
    }
    let mut found = violations(&world.lab);
    found.append(&mut days.found);
    let outcome = Outcome {
        seed,
        scenario: text,
        violations: found,
        stuck,
        log: world.lab.log.bytes(),
        lasted: world.lab.clock.since(start),
        steps: days.steps,
        requests: traffic.requests(),
    };
    world.lab.end().await;
    Ok(outcome)
}
