//! An operator that is killed at any of its calls to the cloud, and started again, ends as one that lives on.
//!
//! Each scenario starts with a class, a pool and pods, lets something happen, and ends with the deletion of everything. It is run once to count the calls, then
//! with a kill at each: the call takes effect, but its result is lost. In each run the operator must die, and it must converge with every pod running and its goal
//! reached, launch no machine twice, and end with nothing left in the cloud.
//!
//! Owns the run; what happens is in `kill_stories`.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use serde_json::json;
use spokeshave_api::NodePool;
use spokeshave_runtime::Api;

use super::kill_stories::CloudStory;
use super::stage::HasDied;
use super::steps::failed;
use super::{OPERATOR, World, checks};
use crate::lab::{self, LabOptions, Operators};

/// Longest time that a part of the story may take.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
const LOOK: Duration = Duration::from_secs(10);
/// The answer of a call that was made when the story ended is there after so many looks.
const DEATH_LOOKS: u32 = 12;

/// Number of calls to the cloud in the scenario without a kill.
///
/// # Errors
/// The scenario does not complete.
pub fn lived(story: &CloudStory) -> Result<u64, String> {
    tell(story, None)
}

/// Runs the scenario with a kill at this call, counted from one.
///
/// # Errors
/// It does not end as it should, or the operator does not die.
pub fn every_call(story: &CloudStory, call: u64) -> Result<(), String> {
    tell(story, Some(call))
        .map(drop)
        .map_err(|problem| format!("{}, killed at call {call}: {problem}", story.name))
}

fn tell(story: &CloudStory, dies_at: Option<u64>) -> Result<u64, String> {
    lab::tell(async |operators| telling(story, dies_at, operators).await)
}

/// A cluster of which a story is told.
pub(super) struct Teller {
    pub(super) world: World,
    /// `None` once the operator that will die has died and been replaced.
    pub(super) life: Option<HasDied>,
    machines: checks::Machines,
    found: Vec<String>,
    /// Pods that there are to be.
    pub(super) pods: usize,
}

async fn telling(story: &CloudStory, dies_at: Option<u64>, operators: &mut Operators) -> Result<u64, String> {
    const SEED: u64 = 11;
    let mut world = World::watched(LabOptions::new(SEED), story.cloud, (SEED, false)).await?;
    (story.prepare)(&world)?;
    let life = Some(world.start_mortal(dies_at.unwrap_or(u64::MAX)));
    let mut teller = Teller {
        world,
        life,
        machines: checks::Machines::default(),
        found: Vec::new(),
        pods: 3,
    };
    teller.world.make_class().await?;
    let class = (story.class)();
    if class.is_object() {
        teller.world.change_class(class).await?;
    }
    let pools: Api<NodePool> = Api::all(teller.world.lab.client.clone());
    let mut pool = teller.world.pool("p", &json!({}));
    (story.pool)(&mut pool);
    teller.world.lab.create(&pools, pool).await.map_err(failed)?;
    let deployments: Api<Deployment> = Api::namespaced(teller.world.lab.client.clone(), "default");
    let deployment = json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {
        "replicas": teller.pods, "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]}},
    }});
    teller
        .world
        .lab
        .create(&deployments, deployment)
        .await
        .map_err(failed)?;
    teller.rest().await?;
    (story.act)(&mut teller).await?;
    deployments
        .delete("w", &DeleteParams::default())
        .await
        .map_err(failed)?;
    pools
        .delete("p", &DeleteParams::default())
        .await
        .map_err(failed)?;
    teller.world.delete_class().await?;
    teller.until(async |world| checks::left(world).await).await?;
    if dies_at.is_some() && teller.life.is_some() {
        teller.until_dead().await?;
        teller.until(async |world| checks::left(world).await).await?;
    }
    let Teller {
        mut world, mut found, ..
    } = teller;
    found.extend(world.lab.invariants.violations().iter().map(ToString::to_string));
    let calls = world.cloud.calls().into_iter().map(|(_, count)| count).sum();
    *operators = world.lab.end().await;
    match found.first() {
        Some(one) => Err(format!("{} promise(s) broken: {one}", found.len())),
        None => Ok(calls),
    }
}

impl Teller {
    /// One look: an operator that has died is replaced, and machines are counted.
    async fn look(&mut self) {
        self.world.lab.clock.sleep(LOOK).await;
        if self.life.as_ref().is_some_and(|has_died| has_died()) {
            self.life = None;
            self.world.lab.kill(OPERATOR).await;
            self.machines.forgive(self.world.lab.clock.now());
            self.world.start();
        }
        let found = self.machines.look(&self.world).await;
        self.found.extend(found.iter().map(ToString::to_string));
    }

    /// Waits until the operator that will die has died.
    async fn until_dead(&mut self) -> Result<(), String> {
        for _ in 0..DEATH_LOOKS {
            self.look().await;
            if self.life.is_none() {
                return Ok(());
            }
        }
        Err("nobody died".to_owned())
    }

    /// Lets time pass.
    pub(super) async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds.div_ceil(LOOK.as_secs()) {
            self.look().await;
        }
    }

    /// Waits until all pods run on machines that are whole.
    pub(super) async fn rest(&mut self) -> Result<(), String> {
        self.rest_when(async |_| Vec::new()).await
    }

    /// The same, and until nothing is missing besides.
    pub(super) async fn rest_when(
        &mut self,
        missing: impl AsyncFn(&World) -> Vec<String>,
    ) -> Result<(), String> {
        let pods = self.pods;
        self.until(async |world| {
            let mut what = checks::unsettled(world, pods).await;
            what.extend(missing(world).await);
            what
        })
        .await
    }

    /// Waits until nothing is missing for half a minute and more.
    async fn until(&mut self, missing: impl AsyncFn(&World) -> Vec<String>) -> Result<(), String> {
        let start = self.world.lab.clock.now();
        let mut calm = 0;
        while calm < 4 {
            self.look().await;
            let what = missing(&self.world).await;
            calm = if what.is_empty() { calm + 1 } else { 0 };
            if self.world.lab.clock.since(start) > LIMIT {
                return Err(format!("after {LIMIT:?}: {}", what.join("; ")));
            }
        }
        Ok(())
    }
}
