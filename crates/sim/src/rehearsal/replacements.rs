//! How many nodes are launched to replace those that EC2 reclaims, while the operator sees everything late.
//!
//! Owns the scenario: pods that need a node each, some of whose instances are interrupted at once; slow responses of EC2, watches that stand
//! still, as on a machine with too much to do.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use rand::RngExt as _;
use serde_json::json;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_ports::Entropy;
use spokeshave_runtime::Api;

use super::{CloudName, OPERATOR, World, checks};
use crate::lab::{self, LabOptions, Operators};

/// Longest time that a part of the story may take.
const LIMIT: Duration = Duration::from_secs(3600);
const PODS: usize = 6;

/// What a story came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Instances that EC2 took back.
    pub interrupted: usize,
    /// NodeClaims that were made since.
    pub made: usize,
}

/// Runs the scenario of a seed.
///
/// # Errors
/// It does not come to rest.
pub fn replaced(seed: u64) -> Result<Replaced, String> {
    lab::tell(async |operators| story(seed, operators).await)
}

async fn story(seed: u64, operators: &mut Operators) -> Result<Replaced, String> {
    let mut chance = Entropy::new(seed).child("replacements").rng("story");
    let is_slow = chance.random_bool(0.5);
    let mut world = World::new(LabOptions::new(seed), CloudName::Aws, (seed, is_slow)).await?;
    world.make_class().await?;
    let text = |error: kube::Error| format!("the API server refuses an object: {error}");
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    let never = json!({"disruption": {"consolidateAfter": "Never"}});
    world
        .lab
        .create(&pools, world.pool("p", &never))
        .await
        .map_err(text)?;
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "w"}}},
    ]}});
    let deployments: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
    let grace = chance.random_range(0..40);
    let deployment = json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {
        "replicas": PODS, "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {
            "affinity": apart, "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        }},
    }});
    world.lab.create(&deployments, deployment).await.map_err(text)?;
    world.start();
    let mut seen = BTreeSet::new();
    settle(&mut world, &mut seen, |_| {}).await?;
    let before = seen.len();
    let wanted = chance.random_range(1..=4);
    let mut interrupted = 0;
    for machine in world.cloud.machines() {
        if interrupted < wanted && machine.is_spot {
            world.cloud.interrupt(&world.lab, &machine.id).await?;
            interrupted += 1;
            if chance.random_bool(0.5) {
                let pause = Duration::from_millis(chance.random_range(0..5_000));
                world.lab.clock.sleep(pause).await;
            }
        }
    }
    let weather = world.lab.weather(OPERATOR);
    settle(&mut world, &mut seen, |_| {
        if chance.random_bool(0.4) {
            weather.hold_watches(Duration::from_millis(chance.random_range(0..6_000)));
        }
    })
    .await?;
    let made = seen.len() - before;
    *operators = world.lab.end().await;
    Ok(Replaced { interrupted, made })
}

/// Waits until everything has been at rest for a while, and notes every NodeClaim.
async fn settle(
    world: &mut World,
    seen: &mut BTreeSet<String>,
    mut trouble: impl FnMut(&mut World),
) -> Result<(), String> {
    let start = world.lab.clock.now();
    let mut calm = 0;
    while calm < 60 {
        world.lab.clock.sleep(Duration::from_secs(1)).await;
        let claims = world.lab.list::<NodeClaim>().await;
        seen.extend(claims.iter().map(|claim| claim.name().to_owned()));
        let what = checks::unsettled(world, PODS).await;
        calm = if what.is_empty() { calm + 1 } else { 0 };
        if calm == 0 {
            trouble(world);
        }
        if world.lab.clock.since(start) > LIMIT {
            return Err(format!("after {LIMIT:?}: {}", what.join("; ")));
        }
    }
    Ok(())
}
