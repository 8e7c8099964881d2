//! What happens on a seed: workloads that grow and shrink, EC2 at its worst, operators that are killed; then calm, then the end.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodeClaim, NodePool};
use spokeshave_ec2_simulated::{Check, Lifeline, Options};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_runtime::Api;

use super::{CLASS, CLUSTER, World, checks, pool};
use crate::invariants::{FITS, Violation};
use crate::soak::pick;

/// Looks at instances are so far apart.
const LOOK: Duration = Duration::from_secs(20);
/// Longest time that a cluster may take to come to rest, and to end.
const SETTLES_WITHIN: Duration = Duration::from_secs(3 * 3600);
/// It must be at rest for so many looks in a row.
const CALM_LOOKS: u32 = 15;
const ZONES: [&str; 4] = ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d"];

/// What a seed chooses before anything happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    seed: u64,
    pools: usize,
    workloads: usize,
    minutes: u64,
    /// What may happen, one bit each: a run in which one thing never happens finds what a run with everything hides.
    kinds: u32,
    slow: bool,
}

impl Scenario {
    pub(super) fn draw(seed: u64) -> Self {
        let mut chance = spokeshave_ports::Entropy::new(seed)
            .child("rehearsal")
            .rng("scenario");
        Scenario {
            seed,
            pools: chance.random_range(1..=2),
            workloads: chance.random_range(2..=4),
            minutes: *pick(&mut chance, &[15, 30, 60]),
            kinds: chance.random_range(1..1 << STEPS.len()),
            slow: chance.random_bool(0.4),
        }
    }

    pub(super) fn ec2(&self) -> Options {
        let usual = Options {
            seed: self.seed,
            ..Options::new(CLUSTER)
        };
        if !self.slow {
            return usual;
        }
        Options {
            latency: Duration::from_millis(1500),
            visibility_delay: Duration::from_secs(12),
            join_delay: Duration::from_secs(90),
            termination_delay: Duration::from_secs(100),
            profile_delay: Duration::from_secs(20),
            ..usual
        }
    }

    fn steps(&self) -> Vec<Step> {
        let chosen = STEPS
            .iter()
            .enumerate()
            .filter(|(bit, _)| self.kinds & (1 << bit) != 0);
        chosen.map(|(_, step)| *step).collect()
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario {
            seed,
            pools,
            workloads,
            minutes,
            ..
        } = self;
        write!(
            f,
            "seed {seed}: {pools} pool(s), {workloads} workload(s), {minutes} minutes"
        )?;
        if self.slow {
            f.write_str(", slow answers")?;
        }
        self.steps().iter().try_for_each(|step| write!(f, ", {step:?}"))
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Scale,
    Interrupt,
    TerminateByHand,
    Impair,
    Maintenance,
    RunOut,
    ZoneOutage,
    FailCalls,
    ReleaseImages,
    ChangeClass,
    DeleteClaim,
    RemoveTemplate,
    KeepFromJoining,
    StrangeMessage,
    Kill,
    DieAtCall,
}

const STEPS: [Step; 16] = [
    Step::Scale,
    Step::Interrupt,
    Step::TerminateByHand,
    Step::Impair,
    Step::Maintenance,
    Step::RunOut,
    Step::ZoneOutage,
    Step::FailCalls,
    Step::ReleaseImages,
    Step::ChangeClass,
    Step::DeleteClaim,
    Step::RemoveTemplate,
    Step::KeepFromJoining,
    Step::StrangeMessage,
    Step::Kill,
    Step::DieAtCall,
];

/// Calls that are made to fail.
const CALLS: [&str; 10] = [
    "CreateFleet",
    "CreateLaunchTemplate",
    "DescribeInstances",
    "TerminateInstances",
    "DescribeLaunchTemplates",
    "DeleteLaunchTemplate",
    "DescribeSubnets",
    "GetInstanceProfile",
    "CreateTags",
    "ReceiveMessage",
];

/// The days of a seed.
pub(super) struct Days {
    scenario: Scenario,
    chance: ChaCha8Rng,
    instances: checks::Instances,
    life: Option<Lifeline>,
    replicas: Vec<usize>,
    pub(super) steps: usize,
    pub(super) found: Vec<Violation>,
}

fn failed(error: impl fmt::Display) -> String {
    format!("the story cannot go on: {error}")
}

impl Days {
    pub(super) fn new(scenario: Scenario, world: &World) -> Self {
        Days {
            scenario,
            chance: world.lab.entropy.child("rehearsal").rng("days"),
            instances: checks::Instances::default(),
            life: None,
            replicas: Vec::new(),
            steps: 0,
            found: Vec::new(),
        }
    }

    pub(super) async fn live(&mut self, world: &mut World) -> Result<(), String> {
        world.start();
        world.class().await?;
        let pools: Api<NodePool> = Api::all(world.lab.client.clone());
        for index in 0..self.scenario.pools {
            let after = *pick(&mut self.chance, &["0s", "30s", "Never"]);
            let disruption = json!({"consolidateAfter": after, "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "50%"}]});
            let made = pool(&format!("p{index}"), &json!({"disruption": disruption}));
            world.lab.create(&pools, made).await.map_err(failed)?;
        }
        for index in 0..self.scenario.workloads {
            let replicas = self.chance.random_range(1..=6);
            let cpu = *pick(&mut self.chance, &["300m", "1", "2500m"]);
            self.deploy(world, index, replicas, cpu).await?;
        }
        let steps = self.scenario.steps();
        let end = world.lab.clock.now()
            + jiff::SignedDuration::from_mins(i64::try_from(self.scenario.minutes).unwrap_or_default());
        while world.lab.clock.now() < end {
            let pause = Duration::from_secs(self.chance.random_range(15..150));
            self.pass(world, pause).await;
            let step = *pick(&mut self.chance, &steps);
            self.steps += 1;
            self.act(world, step).await?;
        }
        self.calm(world).await?;
        self.end(world).await
    }

    async fn deploy(
        &mut self,
        world: &World,
        index: usize,
        replicas: usize,
        cpu: &str,
    ) -> Result<(), String> {
        let app = format!("w{index}");
        let api: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
        let deployment = json!({"metadata": {"name": app, "namespace": "default"}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": app}},
            "template": {
                "metadata": {"labels": {"app": app}, "annotations": {FITS: "yes"}},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
            },
        }});
        self.replicas.push(replicas);
        world.lab.create(&api, deployment).await.map(drop).map_err(failed)
    }

    async fn scale(&mut self, world: &World, index: usize, replicas: usize) -> Result<(), String> {
        let api: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
        self.replicas[index] = replicas;
        let patch = json!({"spec": {"replicas": replicas}});
        let scaled = world
            .lab
            .merge::<Deployment>(&api, &format!("w{index}"), patch)
            .await;
        scaled.map(drop).map_err(failed)
    }

    /// Lets time pass, with looks at the instances. An operator that got no answer any more is replaced.
    async fn pass(&mut self, world: &mut World, time: Duration) {
        let start = world.lab.clock.now();
        while world.lab.clock.since(start) < time {
            let left = time.saturating_sub(world.lab.clock.since(start));
            world.lab.clock.sleep(left.min(LOOK)).await;
            if self.life.as_ref().is_some_and(Lifeline::has_ended) {
                self.life = None;
                world.lab.kill(super::OPERATOR).await;
                self.instances.forgive(world.lab.clock.now());
            }
            if self.life.is_none() && !world.lab.is_running(super::OPERATOR) {
                world.start();
            }
            let found = self.instances.look(world).await;
            self.found.extend(found);
        }
    }

    fn some_instance(&mut self, world: &World) -> Option<String> {
        let instances = world.cloud.instances();
        (!instances.is_empty()).then(|| pick(&mut self.chance, &instances).id.clone())
    }

    async fn act(&mut self, world: &mut World, step: Step) -> Result<(), String> {
        world.lab.log.note(&format!("trouble: {step:?}"));
        match step {
            Step::Scale => {
                let index = self.chance.random_range(0..self.replicas.len());
                let replicas = self.chance.random_range(0..=12);
                self.scale(world, index, replicas).await?;
            }
            Step::Interrupt
            | Step::TerminateByHand
            | Step::Impair
            | Step::Maintenance
            | Step::KeepFromJoining => {
                if let Some(id) = self.some_instance(world) {
                    world.lab.invariants.disturb();
                    let cloud = &world.cloud;
                    match step {
                        Step::Interrupt => drop(cloud.interrupt(&id)),
                        Step::TerminateByHand => drop(cloud.terminate(&id)),
                        Step::Impair => cloud.impair(
                            &id,
                            *pick(&mut self.chance, &[Check::Instance, Check::System]),
                            true,
                        ),
                        Step::Maintenance => cloud.announce_maintenance(&id),
                        _ => cloud.keep_from_joining(&id),
                    }
                }
            }
            Step::RunOut => {
                let pattern = *pick(
                    &mut self.chance,
                    &["*/*/spot", "m5.*", "c6i.large", "*/us-east-1a", "m7g.*//spot"],
                );
                let left = self.chance.random_range(0..3);
                let pattern = pattern.parse().map_err(failed)?;
                world.cloud.limit(pattern, left);
            }
            Step::ZoneOutage => {
                let zone = *pick(&mut self.chance, &ZONES);
                let is_out = self.chance.random_bool(0.6);
                world.cloud.set_outage(zone, is_out);
            }
            Step::FailCalls => {
                let errors = [
                    ApiError::new("RequestLimitExceeded", "Request limit exceeded."),
                    ApiError::new("", "no answer"),
                    ApiError {
                        server_fault: true,
                        ..ApiError::new("InternalError", "An internal error has occurred")
                    },
                ];
                let (call, error) = (
                    *pick(&mut self.chance, &CALLS),
                    pick(&mut self.chance, &errors).clone(),
                );
                let times = self.chance.random_range(1..6);
                world.cloud.fail(call, &error, times);
                world.lab.invariants.disturb();
            }
            Step::ReleaseImages => world.cloud.release_images(),
            Step::ChangeClass => {
                let api: Api<EC2NodeClass> = Api::all(world.lab.client.clone());
                let text = format!("#!/bin/sh\necho {}\n", self.chance.random_range(0..3));
                let patch = json!({"spec": {"userData": text}});
                world
                    .lab
                    .merge::<EC2NodeClass>(&api, CLASS, patch)
                    .await
                    .map_err(failed)?;
            }
            Step::DeleteClaim => {
                let claims = world.lab.list::<NodeClaim>().await;
                if !claims.is_empty() {
                    let name = pick(&mut self.chance, &claims).name().to_owned();
                    let api: Api<NodeClaim> = Api::all(world.lab.client.clone());
                    drop(api.delete(&name, &DeleteParams::default()).await);
                }
            }
            Step::RemoveTemplate => {
                let templates = world.cloud.templates();
                if !templates.is_empty() {
                    let name = pick::<String>(&mut self.chance, &templates);
                    world.cloud.remove_template(name);
                }
            }
            Step::StrangeMessage => {
                let body = *pick(
                    &mut self.chance,
                    &[
                        "",
                        "hello",
                        "{}",
                        "{\"version\":\"0\",\"source\":\"aws.ec2\"}",
                        "[1]",
                    ],
                );
                world.cloud.send_message(body.to_owned());
            }
            Step::Kill => {
                self.life = None;
                world.lab.kill(super::OPERATOR).await;
                let down = Duration::from_secs(self.chance.random_range(0..90));
                world.lab.clock.sleep(down).await;
                self.instances.forgive(world.lab.clock.now());
                world.start();
            }
            Step::DieAtCall => {
                self.life = None;
                world.lab.kill(super::OPERATOR).await;
                self.instances.forgive(world.lab.clock.now());
                let calls = self.chance.random_range(1..80);
                self.life = Some(world.start_mortal(calls));
            }
        }
        Ok(())
    }

    /// EC2 is whole again, the operator lives: the cluster must come to rest.
    async fn calm(&mut self, world: &mut World) -> Result<(), String> {
        world.lab.log.note("calm");
        world.cloud.heal();
        world.cloud.unlimited();
        ZONES.iter().for_each(|zone| world.cloud.set_outage(zone, false));
        self.life = None;
        world.lab.kill(super::OPERATOR).await;
        world.start();
        world.lab.invariants.disturb();
        self.instances.forgive(world.lab.clock.now());
        let pods: usize = self.replicas.iter().sum();
        let start = world.lab.clock.now();
        let mut calm = 0;
        while calm < CALM_LOOKS {
            self.pass(world, LOOK).await;
            let unsettled = checks::unsettled(world, pods).await;
            calm = if unsettled.is_empty() { calm + 1 } else { 0 };
            if world.lab.clock.since(start) > SETTLES_WITHIN {
                return Err(format!(
                    "{SETTLES_WITHIN:?} after the last trouble: {}",
                    unsettled.join("; ")
                ));
            }
        }
        Ok(())
    }

    /// Workloads, pools and class go: nothing may be left in the cluster and in EC2.
    async fn end(&mut self, world: &mut World) -> Result<(), String> {
        world.lab.log.note("the end");
        let deployments: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
        for index in 0..self.replicas.len() {
            let deleted = deployments
                .delete(&format!("w{index}"), &DeleteParams::default())
                .await;
            deleted.map_err(failed)?;
        }
        while !world.lab.list::<Pod>().await.is_empty() {
            self.pass(world, LOOK).await;
        }
        let pools: Api<NodePool> = Api::all(world.lab.client.clone());
        for index in 0..self.scenario.pools {
            pools
                .delete(&format!("p{index}"), &DeleteParams::default())
                .await
                .map_err(failed)?;
        }
        let classes: Api<EC2NodeClass> = Api::all(world.lab.client.clone());
        classes
            .delete(CLASS, &DeleteParams::default())
            .await
            .map_err(failed)?;
        let start = world.lab.clock.now();
        loop {
            self.pass(world, LOOK).await;
            let left = checks::left(world).await;
            if left.is_empty() {
                return Ok(());
            }
            if world.lab.clock.since(start) > SETTLES_WITHIN {
                return Err(format!(
                    "{SETTLES_WITHIN:?} after the end there is left: {}",
                    left.join(", ")
                ));
            }
        }
    }
}
