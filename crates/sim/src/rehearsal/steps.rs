//! What happens on a seed: workloads that grow and shrink, a cloud at its worst, operators that are killed; then calm, then the end.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_runtime::Api;

use super::stage::HasDied;
use super::{World, checks};
use crate::invariants::{FITS, Violation};
use crate::soak::pick;

/// Looks at instances are so far apart.
const LOOK: Duration = Duration::from_secs(20);
/// Longest time that a cluster may take to come to rest, and to end.
const SETTLES_WITHIN: Duration = Duration::from_secs(3 * 3600);
/// It must be at rest for so many looks in a row.
const CALM_LOOKS: u32 = 15;

/// What a seed chooses before anything happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pools: usize,
    workloads: usize,
    minutes: u64,
    /// What may happen, one bit each: a run in which one thing never happens finds what a run with everything hides.
    kinds: u32,
    /// Whether the cloud takes its time.
    pub(super) is_slow: bool,
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
            kinds: chance.random_range(1..=u32::MAX),
            is_slow: chance.random_bool(0.4),
        }
    }

    /// What happens: what may happen anywhere, and these troubles of a cloud, as far as the seed has chosen them; at least workloads grow and shrink.
    fn steps(&self, troubles: &[Step]) -> Vec<Step> {
        let all = ANYWHERE.iter().chain(troubles).enumerate();
        let chosen = all.filter(|(bit, _)| *bit == 0 || self.kinds & (1 << bit) != 0);
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
        if self.is_slow {
            f.write_str(", slow answers")?;
        }
        Ok(())
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A workload grows or shrinks.
    Scale,
    /// The class asks for something else.
    ChangeClass,
    /// A user deletes a NodeClaim.
    DeleteClaim,
    /// The operator is killed, and stays away for a while.
    Kill,
    /// The operator is killed in the middle of a call to the cloud.
    DieAtCall,
    /// The cloud takes a machine back, with notice.
    Interrupt,
    /// A user ends a machine.
    TerminateByHand,
    /// A machine fails its checks.
    Impair,
    /// The cloud announces maintenance of a machine.
    Maintenance,
    /// There is no more of some offering.
    RunOut,
    /// There is nothing in a zone.
    ZoneOutage,
    /// Traffic is shifted away from a zone, or back.
    ShiftZone,
    /// Launches are accepted and fail afterwards.
    FailLater,
    /// Quota is nearly used up.
    Quota,
    /// Calls are throttled, or fail.
    FailCalls,
    /// Calls take effect, and their replies are lost.
    LoseReplies,
    /// Credentials are worthless from now on.
    RevokeTokens,
    /// There are new images.
    ReleaseImages,
    /// A user deletes a launch template.
    RemoveTemplate,
    /// A machine never joins.
    KeepFromJoining,
    /// The queue has a message that is none.
    StrangeMessage,
}

/// What may happen on every cloud.
const ANYWHERE: [Step; 5] = [
    Step::Scale,
    Step::ChangeClass,
    Step::DeleteClaim,
    Step::Kill,
    Step::DieAtCall,
];

/// The days of a seed.
pub(super) struct Days {
    scenario: Scenario,
    chance: ChaCha8Rng,
    machines: checks::Machines,
    has_died: Option<HasDied>,
    replicas: Vec<usize>,
    pub(super) steps: usize,
    pub(super) found: Vec<Violation>,
}

pub(super) fn failed(error: impl fmt::Display) -> String {
    format!("the story cannot go on: {error}")
}

impl Days {
    pub(super) fn new(scenario: Scenario, world: &World) -> Self {
        Days {
            scenario,
            chance: world.lab.entropy.child("rehearsal").rng("days"),
            machines: checks::Machines::default(),
            has_died: None,
            replicas: Vec::new(),
            steps: 0,
            found: Vec::new(),
        }
    }

    pub(super) async fn live(&mut self, world: &mut World) -> Result<(), String> {
        world.start();
        world.make_class().await?;
        let pools: Api<NodePool> = Api::all(world.lab.client.clone());
        for index in 0..self.scenario.pools {
            let after = *pick(&mut self.chance, &["0s", "30s", "Never"]);
            let disruption = json!({"consolidateAfter": after, "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "50%"}]});
            let made = world.pool(&format!("p{index}"), &json!({"disruption": disruption}));
            world.lab.create(&pools, made).await.map_err(failed)?;
        }
        for index in 0..self.scenario.workloads {
            let replicas = self.chance.random_range(1..=6);
            let cpu = *pick(&mut self.chance, &["300m", "1", "2500m"]);
            self.deploy(world, index, replicas, cpu).await?;
        }
        let steps = self.scenario.steps(world.cloud.troubles());
        world.lab.log.note(&format!("what may happen: {steps:?}"));
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
            if self.has_died.as_ref().is_some_and(|has_died| has_died()) {
                self.has_died = None;
                world.lab.kill(super::OPERATOR).await;
                self.machines.forgive(world.lab.clock.now());
            }
            if self.has_died.is_none() && !world.lab.is_running(super::OPERATOR) {
                world.start();
            }
            let found = self.machines.look(world).await;
            self.found.extend(found);
        }
    }

    async fn act(&mut self, world: &mut World, step: Step) -> Result<(), String> {
        world.lab.log.note(&format!("trouble: {step:?}"));
        match step {
            Step::Scale => {
                let index = self.chance.random_range(0..self.replicas.len());
                let replicas = self.chance.random_range(0..=12);
                self.scale(world, index, replicas).await?;
            }
            Step::ChangeClass => {
                let change = world.cloud.class_change(self.chance.random_range(0..3));
                world.change_class(change).await?;
            }
            Step::DeleteClaim => {
                let claims = world.lab.list::<NodeClaim>().await;
                if !claims.is_empty() {
                    let name = pick(&mut self.chance, &claims).name().to_owned();
                    let api: Api<NodeClaim> = Api::all(world.lab.client.clone());
                    drop(api.delete(&name, &DeleteParams::default()).await);
                }
            }
            Step::Kill => {
                self.has_died = None;
                world.lab.kill(super::OPERATOR).await;
                let down = Duration::from_secs(self.chance.random_range(0..90));
                world.lab.clock.sleep(down).await;
                self.machines.forgive(world.lab.clock.now());
                world.start();
            }
            Step::DieAtCall => {
                self.has_died = None;
                world.lab.kill(super::OPERATOR).await;
                self.machines.forgive(world.lab.clock.now());
                let calls = self.chance.random_range(1..80);
                self.has_died = Some(world.start_mortal(calls));
            }
            trouble => world.cloud.act(&world.lab, trouble, &mut self.chance).await?,
        }
        Ok(())
    }

    /// The cloud is whole again, the operator lives: the cluster must come to rest.
    async fn calm(&mut self, world: &mut World) -> Result<(), String> {
        world.lab.log.note("calm");
        world.cloud.heal();
        self.has_died = None;
        world.lab.kill(super::OPERATOR).await;
        world.start();
        world.lab.invariants.disturb();
        self.machines.forgive(world.lab.clock.now());
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

    /// Workloads, pools and class go: nothing may be left in the cluster and in the cloud.
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
        world.delete_class().await?;
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
