//! A cluster on EC2 whose nodes Karpenter has launched, taken over.
//!
//! Owns the story. Machines, their tags and Nodes are as either operator leaves them; what differs is put back to Karpenter's: the hashes of class, pool and
//! NodeClaims with their versions, and annotations that only ours writes. Nothing may drift, be launched or end by the take-over; what the users ask for
//! afterwards must work as for nodes of our own.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use spokeshave_api::conditions::{Conditioned as _, DRIFTED};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_runtime::Api;

use super::steps::failed;
use super::{CloudName, OPERATOR, World, checks};
use crate::lab::{self, LabOptions, Operators};

const PODS: usize = 4;
/// Pause between two looks; after so many without anything missing a part of the story has come to its end.
const LOOK: (Duration, u32) = (Duration::from_secs(10), 4);
/// Longer than every period of the operator: drift, garbage collection, reconciliation of classes.
const WATCHED_FOR: Duration = Duration::from_secs(3600);

/// Annotation with the hash of the class, and that with its version.
const CLASS_HASH: [&str; 2] = [
    "karpenter.k8s.aws/ec2nodeclass-hash",
    "karpenter.k8s.aws/ec2nodeclass-hash-version",
];
const POOL_HASH: [&str; 2] = ["karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version"];

/// Hashes as Karpenter writes them, of versions that are not ours; `ours` are taken away.
fn as_karpenters(pairs: &[([&str; 2], [&str; 2])], ours: &[&str]) -> Value {
    let mut annotations = json!({});
    for ([hash, version], [value, number]) in pairs {
        annotations[hash] = json!(value);
        annotations[version] = json!(number);
    }
    for annotation in ours {
        annotations[annotation] = Value::Null;
    }
    json!({"metadata": {"annotations": annotations}})
}

/// Tells the story.
///
/// # Errors
/// What did not hold.
pub fn taken_over() -> Result<(), String> {
    lab::tell(async |operators| story(operators).await)
}

/// What a take-over must leave alone.
#[derive(Debug, PartialEq, Eq)]
struct Fleet {
    claims: BTreeSet<String>,
    machines: BTreeSet<String>,
    ends_asked_for: u64,
}

async fn fleet(world: &World) -> Fleet {
    let claims = world.lab.list::<NodeClaim>().await;
    let machines = world.cloud.machines().into_iter();
    let calls = world.cloud.calls().into_iter();
    Fleet {
        claims: claims.iter().map(|claim| claim.name().to_owned()).collect(),
        machines: machines.map(|machine| machine.id).collect(),
        ends_asked_for: calls
            .filter(|(call, _)| call == "TerminateInstances")
            .map(|(_, count)| count)
            .sum(),
    }
}

async fn story(operators: &mut Operators) -> Result<(), String> {
    const SEED: u64 = 5;
    let mut world = World::watched(LabOptions::new(SEED), CloudName::Aws, (SEED, false)).await?;
    let deployments = run_pods(&mut world).await?;
    world.lab.stop(OPERATOR).await;
    give_back_to_karpenter(&world).await?;
    let before = fleet(&world).await;
    if before.machines.len() < 2 {
        return Err(failed("there are too few machines"));
    }
    world.start();
    world.lab.clock.sleep(WATCHED_FOR).await;
    let after = fleet(&world).await;
    if before != after {
        return Err(format!(
            "before the take-over {before:?}, an hour later {after:?}"
        ));
    }
    is_taken_over(&world).await?;
    lists_all(&world, &after.machines).await?;
    deletes_one(&world).await?;
    drifts_by_a_change(&mut world).await?;
    *operators = end(&mut world, &deployments).await?;
    Ok(())
}

async fn run_pods(world: &mut World) -> Result<Api<Deployment>, String> {
    world.start();
    world.make_class().await?;
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    let still = json!({"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}});
    let pool = world.pool("p", &still);
    world.lab.create(&pools, pool).await.map_err(failed)?;
    let deployments: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
    let deployment = json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {
        "replicas": PODS, "selector": {"matchLabels": {"app": "w"}},
        "template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "5"}}}]}},
    }});
    world.lab.create(&deployments, deployment).await.map_err(failed)?;
    rest(world, async |_| Vec::new()).await?;
    Ok(deployments)
}

async fn give_back_to_karpenter(world: &World) -> Result<(), String> {
    let (class, pool) = (["15821742016532430087", "v6"], ["7283849237474382910", "v3"]);
    world
        .change_class(as_karpenters(&[(CLASS_HASH, class)], &[]))
        .await?;
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    let patch = as_karpenters(&[(POOL_HASH, pool)], &[]);
    world.lab.merge(&pools, "p", patch).await.map_err(failed)?;
    let claims: Api<NodeClaim> = Api::all(world.lab.client.clone());
    for claim in world.lab.list::<NodeClaim>().await {
        let annotations = claim.metadata.annotations.iter().flatten();
        let ours: Vec<&str> = annotations
            .map(|(key, _)| key.as_str())
            .filter(|key| key.starts_with("spokeshave.dev/"))
            .collect();
        let patch = as_karpenters(&[(CLASS_HASH, class), (POOL_HASH, pool)], &ours);
        world
            .lab
            .merge(&claims, claim.name(), patch)
            .await
            .map_err(failed)?;
    }
    Ok(())
}

/// Hashes are ours now, and nothing has drifted.
async fn is_taken_over(world: &World) -> Result<(), String> {
    for claim in world.lab.list::<NodeClaim>().await {
        let name = claim.name();
        if claim.is_true(DRIFTED) {
            return Err(format!("NodeClaim {name} has drifted"));
        }
        if claim.annotation(CLASS_HASH[1]) == Some("v6") {
            return Err(format!("NodeClaim {name} still has Karpenter's hash"));
        }
    }
    Ok(())
}

/// A provider lists every machine, with its NodeClaim.
async fn lists_all(world: &World, machines: &BTreeSet<String>) -> Result<(), String> {
    let provider = world.cloud.provider(&world.lab, world.lab.client.clone());
    let listed = provider.list().await.map_err(failed)?;
    let ids = listed.iter().filter_map(NodeClaim::provider_id);
    let ids: BTreeSet<String> = ids.map(checks::machine_of).collect();
    if ids == *machines {
        Ok(())
    } else {
        Err(format!("listed are {ids:?} of {machines:?}"))
    }
}

/// A NodeClaim that is deleted takes its machine along, and its pods get another.
async fn deletes_one(world: &World) -> Result<(), String> {
    let claims = world.lab.list::<NodeClaim>().await;
    let claim = claims.first().ok_or_else(|| failed("there is no NodeClaim"))?;
    let api: Api<NodeClaim> = Api::all(world.lab.client.clone());
    let deleted = api.delete(claim.name(), &DeleteParams::default()).await;
    deleted.map_err(failed)?;
    let machine = checks::machine_of(claim.provider_id().unwrap_or_default());
    rest(world, async |world| {
        let machines = world.cloud.machines();
        let is_there = machines.iter().any(|one| one.id == machine);
        is_there
            .then(|| format!("machine {machine} runs"))
            .into_iter()
            .collect()
    })
    .await
}

/// A change of the class replaces all, those of before the take-over included.
async fn drifts_by_a_change(world: &mut World) -> Result<(), String> {
    let before = fleet(world).await;
    world.change_class(world.cloud.class_change(7)).await?;
    rest(world, async |world| {
        let left = fleet(world).await.claims;
        let left = left.intersection(&before.claims);
        left.map(|name| format!("NodeClaim {name} is of before the change"))
            .collect()
    })
    .await
}

async fn end(world: &mut World, deployments: &Api<Deployment>) -> Result<Operators, String> {
    let parameters = DeleteParams::default();
    deployments.delete("w", &parameters).await.map_err(failed)?;
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    pools.delete("p", &parameters).await.map_err(failed)?;
    world.delete_class().await?;
    checks::until(world, LOOK, async |world| Ok(checks::left(world).await)).await?;
    let found = world.lab.invariants.violations();
    let operators = world.lab.end().await;
    found
        .first()
        .map_or(Ok(operators), |one| Err(format!("a promise is broken: {one}")))
}

async fn rest(world: &World, missing: impl AsyncFn(&World) -> Vec<String>) -> Result<(), String> {
    checks::until(world, LOOK, async |world| {
        let mut what = checks::unsettled(world, PODS).await;
        what.extend(missing(world).await);
        Ok(what)
    })
    .await
}
