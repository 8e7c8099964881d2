//! An operator that is killed at any of its calls to the cloud, and started again, ends as one that lives on.
//!
//! A scenario (a class, a pool, pods, an interruption, deletion) is run once to count the calls, then with a kill at each: the call takes
//! effect, but its result is lost. Each run must converge with every pod running and end with nothing left in the cloud.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use serde_json::json;
use spokeshave_api::NodePool;
use spokeshave_runtime::Api;

use super::stage::HasDied;
use super::{CloudName, OPERATOR, World, checks, violations};
use crate::lab::LabOptions;

/// Longest time that a part of the story may take.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
const LOOK: Duration = Duration::from_secs(10);
const PODS: usize = 3;

/// Number of calls to the cloud in the scenario without a kill.
///
/// # Errors
/// The scenario does not complete.
pub fn lived(cloud: CloudName) -> Result<u64, String> {
    tell(cloud, u64::MAX)
}

/// Runs the scenario with a kill at this call, counted from one.
///
/// # Errors
/// It does not end as it should.
pub fn every_call(cloud: CloudName, call: u64) -> Result<(), String> {
    tell(cloud, call)
        .map(drop)
        .map_err(|problem| format!("killed at call {call} to {cloud:?}: {problem}"))
}

fn tell(cloud: CloudName, dies_at: u64) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(telling(cloud, dies_at))
}

fn text(error: impl std::fmt::Display) -> String {
    format!("the story cannot go on: {error}")
}

async fn telling(cloud: CloudName, dies_at: u64) -> Result<u64, String> {
    const SEED: u64 = 11;
    let mut world = World::new(LabOptions::new(SEED), cloud, (SEED, false)).await?;
    let mut life = Some(world.start_mortal(dies_at));
    world.make_class().await?;
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    let pool = world.pool("p", &json!({}));
    world.lab.create(&pools, pool).await.map_err(text)?;
    let deployments: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
    let deployment = json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {
        "replicas": PODS, "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]}},
    }});
    world.lab.create(&deployments, deployment).await.map_err(text)?;
    settle(&mut world, &mut life, async |world| {
        checks::unsettled(world, PODS).await
    })
    .await?;
    let spot = world.cloud.machines().into_iter().find(|one| one.is_spot);
    if let Some(machine) = spot {
        world.cloud.interrupt(&world.lab, &machine.id).await?;
    }
    settle(&mut world, &mut life, async |world| {
        checks::unsettled(world, PODS).await
    })
    .await?;
    deployments
        .delete("w", &DeleteParams::default())
        .await
        .map_err(text)?;
    pools.delete("p", &DeleteParams::default()).await.map_err(text)?;
    world.delete_class().await?;
    settle(&mut world, &mut life, async |world| checks::left(world).await).await?;
    let found = violations(&world.lab);
    let calls = world.cloud.calls().into_iter().map(|(_, count)| count).sum();
    world.lab.end().await;
    match found.first() {
        Some(one) => Err(format!("{} promise(s) broken: {one}", found.len())),
        None => Ok(calls),
    }
}

/// Waits until nothing is missing for half a minute and more. An operator that has died is replaced.
async fn settle(
    world: &mut World,
    has_died: &mut Option<HasDied>,
    missing: impl AsyncFn(&World) -> Vec<String>,
) -> Result<(), String> {
    let start = world.lab.clock.now();
    let mut calm = 0;
    while calm < 4 {
        world.lab.clock.sleep(LOOK).await;
        if has_died.as_ref().is_some_and(|has_died| has_died()) {
            *has_died = None;
            world.lab.kill(OPERATOR).await;
            world.start();
        }
        let what = missing(world).await;
        calm = if what.is_empty() { calm + 1 } else { 0 };
        if world.lab.clock.since(start) > LIMIT {
            return Err(format!("after {LIMIT:?}: {}", what.join("; ")));
        }
    }
    Ok(())
}
