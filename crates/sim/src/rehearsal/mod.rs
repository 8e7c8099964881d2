//! Seeds on a cloud: a shipped provider on its simulated cloud, with bad days drawn from the seed, then calm, then the end of everything.
//!
//! Owns the world of such a seed and who runs in it. What a cloud is and what may happen on it is its stage (`ec2`, `azure`); what happens is in `steps`, what
//! must hold of machines in `checks` and `launches`; all else is watched by the same checkers as every other seed, which ask the cloud for its machines. In the
//! end the cloud must be as empty as the cluster: no machine, and nothing that was made for one.

mod azure;
mod checks;
mod ec2;
mod governed;
mod kill_stories;
mod kills;
mod launches;
mod pace;
mod replacements;
mod stage;
mod steps;
mod take_over;
mod taken_back;

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use spokeshave_controllers::Options as OperatorOptions;

use crate::invariants::{Actor, Machine};
use crate::lab::{Lab, LabOptions, Operators, live};
use crate::soak::{RunOptions, SeedResult};
use launches::Launches;
use stage::{HasDied, Stage};
use steps::failed;

pub use governed::governed;
pub use kill_stories::{CloudStory, cloud_stories};
pub use kills::{every_call, lived};
pub use pace::Interruptible;
pub use replacements::{Replaced, replaced};
pub use take_over::taken_over;
pub use taken_back::{TakenBack, taken_back};

const CLUSTER: &str = "rehearsal";
/// The class of all NodePools.
const CLASS: &str = "default";
/// The one replica.
const OPERATOR: &str = "one";

/// A simulated cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudName {
    /// EC2, with the AWS provider.
    Aws,
    /// Azure, with its provider, which makes virtual machines.
    Azure,
    /// Azure, where AKS makes them.
    AzureMachines,
}

/// A cluster on a simulated cloud.
struct World {
    lab: Lab,
    cloud: Box<dyn Stage>,
    launches: Launches,
}

impl World {
    async fn new(
        options: LabOptions,
        cloud: CloudName,
        (seed, is_slow): (u64, bool),
    ) -> Result<Self, String> {
        let stage = |clock| -> Box<dyn Stage> {
            match cloud {
                CloudName::Aws => Box::new(ec2::Ec2::new(clock, ec2::Ec2::options(seed, is_slow))),
                CloudName::Azure => Box::new(azure::OnAzure::new(clock, azure::OnAzure::options(is_slow))),
                CloudName::AzureMachines => {
                    let options = azure::OnAzure::options(is_slow).with_machine_pool(CLUSTER);
                    Box::new(azure::OnAzure::new(clock, options))
                }
            }
        };
        let mut operator = OperatorOptions {
            label_rules: match cloud {
                CloudName::Aws => ec2::label_rules(),
                CloudName::Azure | CloudName::AzureMachines => azure::label_rules(),
            },
            nominate_pods: options.operator.nominate_pods,
            ..OperatorOptions::default()
        };
        operator.feature_gates.clone_from(&options.operator.feature_gates);
        let lab = Lab::new(LabOptions {
            cloud_lives: false,
            operator,
            ..options
        })
        .await;
        let cloud = stage(lab.clock.clone());
        let defined = lab.define(cloud.definitions()).await;
        defined.map_err(|error| format!("the API server refuses a definition: {error}"))?;
        cloud.join(lab.client_as(Actor::Cloud));
        let launches = Launches::new(cloud.census(), lab.invariants.clone());
        Ok(World { lab, cloud, launches })
    }

    /// The same, whose machines the checkers know: they ask for all of them often, which a cluster whose time is measured has no time for.
    async fn watched(options: LabOptions, cloud: CloudName, seed: (u64, bool)) -> Result<Self, String> {
        let world = World::new(options, cloud, seed).await?;
        let (census, word_takes) = (world.cloud.census(), world.cloud.word_takes());
        world.lab.invariants.machines_are(Arc::new(move || {
            let machines = census().into_iter();
            let machines = machines.map(|machine| Machine {
                id: machine.id.to_lowercase(),
                launched_at: machine.launched_at,
                is_ending: machine.is_ending,
                is_taken_back: machine.said.ends_at.is_some(),
                ends_at: machine.said.ends_at,
                is_warned: machine.said.is_warned,
                word_takes,
            });
            machines.collect()
        }));
        Ok(world)
    }

    fn classes(&self) -> kube::Api<DynamicObject> {
        let class = self.cloud.class();
        let text = |field: &str| class[field].as_str().unwrap_or_default().to_owned();
        let (group, version) = {
            let api_version = text("apiVersion");
            let (group, version) = api_version.split_once('/').unwrap_or_default();
            (group.to_owned(), version.to_owned())
        };
        let kind = GroupVersionKind::gvk(&group, &version, &text("kind"));
        kube::Api::all_with(self.lab.client.clone(), &ApiResource::from_gvk(&kind))
    }

    async fn make_class(&self) -> Result<(), String> {
        let class = serde_json::from_value(self.cloud.class()).map_err(failed)?;
        let made = self.classes().create(&PostParams::default(), &class).await;
        made.map(drop)
            .map_err(|error| format!("cannot make the class: {error}"))
    }

    async fn change_class(&self, patch: Value) -> Result<(), String> {
        let patched = self
            .classes()
            .patch(CLASS, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.map(drop).map_err(failed)
    }

    async fn delete_class(&self) -> Result<(), String> {
        let deleted = self.classes().delete(CLASS, &DeleteParams::default()).await;
        deleted.map(drop).map_err(failed)
    }

    async fn class_names(&self) -> Vec<String> {
        let classes = self.classes().list(&ListParams::default()).await;
        classes
            .map(|list| list.items.iter().map(|class| class.name_any()).collect())
            .unwrap_or_default()
    }

    /// A NodePool of the class, as a manifest, with these fields of its `spec` besides.
    fn pool(&self, name: &str, spec: &Value) -> Value {
        let class = self.cloud.class();
        let group = class["apiVersion"].as_str().unwrap_or_default();
        let group = group.split('/').next().unwrap_or_default();
        let mut pool = json!({"metadata": {"name": name}, "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": group, "kind": class["kind"], "name": CLASS},
                "requirements": self.cloud.requirements(),
                "expireAfter": "Never",
            }},
            "disruption": {"consolidateAfter": "60s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "50%"}]},
        }});
        for (field, value) in spec.as_object().into_iter().flatten() {
            pool["spec"][field] = value.clone();
        }
        pool
    }

    /// Starts the operator, unless it runs.
    fn start(&mut self) {
        if !self.lab.is_running(OPERATOR) {
            let client = self.lab.client_outside(OPERATOR);
            let provider = self.cloud.provider(&self.lab, client.clone());
            let provider = self.launches.of_next_operator(provider);
            self.lab.start_provider(OPERATOR, client, provider);
        }
    }

    /// Starts an operator that gets no answer any more from its call to the cloud of this number on.
    fn start_mortal(&mut self, calls: u64) -> HasDied {
        let client = self.lab.client_as(Actor::Operator(OPERATOR.to_owned()));
        let (provider, has_died) = self.cloud.mortal_provider(&self.lab, client.clone(), calls);
        let provider = self.launches.of_next_operator(provider);
        self.lab.start_provider(OPERATOR, client, provider);
        has_died
    }
}

/// Runs one seed, in a separate runtime with paused time.
#[must_use]
pub fn run_with(cloud: CloudName, seed: u64, options: RunOptions) -> SeedResult {
    let unlived = |error| SeedResult::unlived(seed, error);
    match live(async |operators| story(cloud, seed, options, operators).await) {
        Ok((lived, operators)) => {
            let mut result = lived.unwrap_or_else(unlived);
            result.stuck = result.stuck.or_else(|| operators.outlived());
            result
        }
        Err(error) => unlived(error),
    }
}

async fn story(
    cloud: CloudName,
    seed: u64,
    options: RunOptions,
    operators: &mut Operators,
) -> Result<SeedResult, String> {
    let scenario = steps::Scenario::draw(seed);
    let cloud = match cloud {
        CloudName::Azure if azure::has_machine_pool(seed) => CloudName::AzureMachines,
        named => named,
    };
    let mut lab_options = LabOptions::new(seed);
    lab_options.provider_way = options.provider_way;
    lab_options.keep_log = options.keep_log;
    lab_options.log_cluster = options.log_cluster;
    lab_options.operator.nominate_pods = options.nominate_pods;
    // Machines take half a minute, and a launch that finds nothing takes three until it may try again.
    lab_options.expectations.launch_within = Duration::from_secs(15 * 60);
    let mut world = World::watched(lab_options, cloud, (scenario.seed, scenario.is_slow)).await?;
    let text = format!("{scenario} on {}", world.cloud.name());
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
    let mut found = world.lab.invariants.violations();
    found.append(&mut days.found);
    let outcome = SeedResult {
        seed,
        scenario: text,
        violations: found,
        refused: world.lab.refused(),
        stuck,
        log: world.lab.log.bytes(),
        lasted: world.lab.clock.since(start),
        steps: days.steps,
        requests: traffic.requests(),
        asked: traffic.asked(),
    };
    *operators = world.lab.end().await;
    Ok(outcome)
}
