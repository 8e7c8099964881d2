//! An operator that is killed at any of its calls to AWS, and started again, ends as one that lives on.
//!
//! A story (a class, a pool, pods, an interruption, the end of it all) is told once to count the calls, then with a death at each: the call takes
//! effect, and nobody learns of it. Each telling must come to rest with every pod running and end with nothing left in EC2.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodePool};
use spokeshave_ec2_simulated::{Lifeline, Options};
use spokeshave_runtime::Api;

use super::{CLASS, CLUSTER, OPERATOR, World, checks, pool, violations};
use crate::lab::LabOptions;

/// Longest time that a part of the story may take.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
const LOOK: Duration = Duration::from_secs(10);
const PODS: usize = 3;

/// How many calls to AWS the story makes when nobody dies.
///
/// # Errors
/// The story does not come to its end.
pub fn lived() -> Result<u64, String> {
    tell(u64::MAX)
}

/// Tells the story with a death at this call, counted from one.
///
/// # Errors
/// It does not end as it should.
pub fn every_call(call: u64) -> Result<(), String> {
    tell(call)
        .map(drop)
        .map_err(|problem| format!("killed at call {call} to AWS: {problem}"))
}

fn tell(dies_at: u64) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(telling(dies_at))
}

fn text(error: impl std::fmt::Display) -> String {
    format!("the story cannot go on: {error}")
}

async fn telling(dies_at: u64) -> Result<u64, String> {
    let ec2 = Options {
        join_delay: Duration::from_secs(15),
        ..Options::new(CLUSTER)
    };
    let mut world = World::new(LabOptions::new(11), ec2).await?;
    let mut life = Some(world.start_mortal(dies_at));
    world.class().await?;
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    world
        .lab
        .create(&pools, pool("p", &json!({})))
        .await
        .map_err(text)?;
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
    let spot = world
        .cloud
        .instances()
        .into_iter()
        .find(|one| one.lifecycle == "spot");
    if let Some(instance) = spot {
        world.cloud.interrupt(&instance.id);
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
    let classes: Api<EC2NodeClass> = Api::all(world.lab.client.clone());
    classes
        .delete(CLASS, &DeleteParams::default())
        .await
        .map_err(text)?;
    settle(&mut world, &mut life, async |world| checks::left(world).await).await?;
    let found = violations(&world.lab);
    let calls = world.cloud.calls().values().sum();
    world.lab.end().await;
    match found.first() {
        Some(one) => Err(format!("{} promise(s) broken: {one}", found.len())),
        None => Ok(calls),
    }
}

/// Waits until nothing is missing for half a minute and more. An operator that has died is replaced.
async fn settle(
    world: &mut World,
    life: &mut Option<Lifeline>,
    missing: impl AsyncFn(&World) -> Vec<String>,
) -> Result<(), String> {
    let start = world.lab.clock.now();
    let mut calm = 0;
    while calm < 4 {
        world.lab.clock.sleep(LOOK).await;
        if life.as_ref().is_some_and(Lifeline::has_ended) {
            *life = None;
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
