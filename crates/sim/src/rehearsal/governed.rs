//! A DisruptionPolicy that names one of two NodePools with the same NodeClass, on a cloud (Z-059).
//!
//! Owns the story: the class changes while the policy freezes one NodePool, a spot machine of it is taken back in that time, and then the policy lets one node
//! after the other be replaced. The NodePool that it does not name is never held up.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED};
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool, labels};
use spokeshave_provider_grpc::Way;
use spokeshave_runtime::Api;

use super::steps::failed;
use super::{CloudName, World, checks};
use crate::lab::{self, Asked, LabOptions, Operators};

/// The NodePools: the policy names the first.
const POOLS: [&str; 2] = ["calm", "free"];
const PODS_OF_EACH: usize = 3;
/// Pause between two looks; after so many without anything missing a part of the story has come to its end.
const LOOK: (Duration, u32) = (Duration::from_secs(2), 10);
/// Longer than every period of the operator.
const FROZEN_FOR: Duration = Duration::from_secs(3600);

/// Tells the story, and what the operator has asked the API server for.
///
/// # Errors
/// What did not hold.
pub fn governed(cloud: CloudName, provider_way: Way) -> Result<BTreeSet<Asked>, String> {
    lab::tell(async |operators| story(cloud, provider_way, operators).await)
}

async fn story(
    cloud: CloudName,
    provider_way: Way,
    operators: &mut Operators,
) -> Result<BTreeSet<Asked>, String> {
    const SEED: u64 = 11;
    let options = LabOptions {
        provider_way,
        ..LabOptions::new(SEED)
    };
    let mut world = World::watched(options, cloud, (SEED, false)).await?;
    world.make_class().await?;
    let policies: Api<DisruptionPolicy> = Api::all(world.lab.client.clone());
    let freeze = json!({"metadata": {"name": "calm"}, "spec": {
        "nodePools": {"names": [POOLS[0]]}, "freeze": {"reason": "incident 42"},
    }});
    world.lab.create(&policies, freeze).await.map_err(failed)?;
    make_work(&world).await?;
    world.start();
    until(&world, async |_| Ok(Vec::new())).await?;

    let [calm, free] = [claims(&world, POOLS[0]).await, claims(&world, POOLS[1]).await];
    world.change_class(world.cloud.class_change(7)).await?;
    until(&world, async |world| Ok(kept(world, POOLS[1], &free).await)).await?;
    world.lab.clock.sleep(FROZEN_FOR).await;
    if claims(&world, POOLS[0]).await != calm {
        return Err("a frozen node was replaced".to_owned());
    }
    is_told(&world, &policies).await?;

    let evicted = take_one_back(&world, &calm).await?;
    until(&world, async |world| Ok(kept(world, POOLS[0], &evicted).await)).await?;
    let left: BTreeSet<String> = calm.difference(&evicted).cloned().collect();
    if !left.is_subset(&claims(&world, POOLS[0]).await) {
        return Err("an eviction has replaced more than the evicted node".to_owned());
    }

    let one_by_one = json!({"spec": {"freeze": null, "budgets": [{"limit": "1"}]}});
    let changed = world.lab.merge(&policies, "calm", one_by_one).await;
    changed.map_err(failed)?;
    until(&world, async |world| {
        let missing = kept(world, POOLS[0], &left).await;
        let disrupted = disrupted(world, POOLS[0]).await;
        if disrupted.len() > 1 {
            return Err(format!("the limit is 1, disrupted are {disrupted:?}"));
        }
        Ok(missing)
    })
    .await?;
    *operators = end(&mut world).await?;
    Ok(world.lab.traffic.asked())
}

/// NodePools with a pod on each of their nodes.
async fn make_work(world: &World) -> Result<(), String> {
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    let deployments: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
    for name in POOLS {
        let all_at_once =
            json!({"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}});
        let pool = world.pool(name, &all_at_once);
        world.lab.create(&pools, pool).await.map_err(failed)?;
        let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}},
        ]}});
        let deployment = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
            "replicas": PODS_OF_EACH, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "nodeSelector": {labels::NODE_POOL: name}, "affinity": apart,
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            }},
        }});
        world.lab.create(&deployments, deployment).await.map_err(failed)?;
    }
    Ok(())
}

async fn claims(world: &World, pool: &str) -> BTreeSet<String> {
    let all = world.lab.list::<NodeClaim>().await;
    let its = all.iter().filter(|claim| claim.node_pool() == Some(pool));
    its.map(|claim| claim.name().to_owned()).collect()
}

/// Those that are still there.
async fn kept(world: &World, pool: &str, before: &BTreeSet<String>) -> Vec<String> {
    let now = claims(world, pool).await;
    let kept = now.intersection(before);
    kept.map(|name| format!("NodeClaim {name} is of before"))
        .collect()
}

/// Nodes that are on their way out.
async fn disrupted(world: &World, pool: &str) -> Vec<String> {
    let nodes = world.lab.list::<Node>().await;
    let is_disrupted = |node: &&Node| {
        let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        node.labels()
            .get(labels::NODE_POOL)
            .is_some_and(|one| one == pool)
            && taints.any(|taint| taint.key == "karpenter.sh/disrupted")
    };
    let found = nodes.iter().filter(is_disrupted);
    found.map(|node| node.name_any()).collect()
}

/// The policy says what it stops, and its nodes that it does.
async fn is_told(world: &World, policies: &Api<DisruptionPolicy>) -> Result<(), String> {
    let policy = policies.get("calm").await.map_err(failed)?;
    let status = serde_json::to_value(&policy.status).map_err(failed)?;
    if status["active"][0]["field"] != "spec.freeze" {
        return Err(format!("the status of the policy says {status}"));
    }
    for claim in world.lab.list::<NodeClaim>().await {
        let is_frozen = claim.node_pool() == Some(POOLS[0]);
        if claim.is_true(DRIFTED) != is_frozen {
            return Err(format!(
                "NodeClaim {} is not as the class is, or is",
                claim.name()
            ));
        }
        let conditions = claim.status.iter().flat_map(|status| &status.conditions);
        let mut verdicts = conditions.filter(|one| one.type_ == "spokeshave.dev/Disruptable");
        let names_it = verdicts.any(|one| one.message.contains("DisruptionPolicy calm"));
        if names_it != is_frozen {
            return Err(format!(
                "NodeClaim {} of NodePool {:?}: its verdict names the policy: {names_it}",
                claim.name(),
                claim.node_pool()
            ));
        }
    }
    Ok(())
}

/// Takes a spot machine of these NodeClaims back: its NodeClaim.
async fn take_one_back(world: &World, of: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
    for machine in world.cloud.machines().iter().filter(|machine| machine.is_spot) {
        let all = world.lab.list::<NodeClaim>().await;
        let its = |claim: &&NodeClaim| {
            claim.provider_id().map(checks::machine_of).as_ref() == Some(&machine.id)
                && of.contains(claim.name())
        };
        if let Some(claim) = all.iter().find(its) {
            world.cloud.interrupt(&world.lab, &machine.id).await?;
            return Ok(BTreeSet::from([claim.name().to_owned()]));
        }
    }
    Err(failed("there is no spot machine"))
}

async fn end(world: &mut World) -> Result<Operators, String> {
    let deployments: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    let parameters = DeleteParams::default();
    for name in POOLS {
        deployments.delete(name, &parameters).await.map_err(failed)?;
        pools.delete(name, &parameters).await.map_err(failed)?;
    }
    world.delete_class().await?;
    checks::until(world, LOOK, async |world| Ok(checks::left(world).await)).await?;
    let found = world.lab.invariants.violations();
    let operators = world.lab.end().await;
    found
        .first()
        .map_or(Ok(operators), |one| Err(format!("a promise is broken: {one}")))
}

/// Until all pods run on nodes that stay, and nothing else is missing.
async fn until(
    world: &World,
    missing: impl AsyncFn(&World) -> Result<Vec<String>, String>,
) -> Result<(), String> {
    checks::until(world, LOOK, async |world| {
        let mut what = missing(world).await?;
        what.extend(checks::unsettled(world, POOLS.len() * PODS_OF_EACH).await);
        Ok(what)
    })
    .await
}
