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
use spokeshave_runtime::Api;

use super::{CloudName, World, checks, violations};
use crate::lab::LabOptions;

/// The NodePools: the policy names the first.
const POOLS: [&str; 2] = ["calm", "free"];
const PODS_OF_EACH: usize = 3;
/// Longest time that a part of the story may take.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
/// How something begins that time does not mend.
const BROKEN: &str = "broken:";
/// Longer than every period of the operator.
const FROZEN_FOR: Duration = Duration::from_secs(3600);

/// Tells the story.
///
/// # Errors
/// What did not hold.
pub fn governed(cloud: CloudName) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    runtime.block_on(story(cloud))
}

fn text(error: impl std::fmt::Display) -> String {
    format!("the story cannot go on: {error}")
}

async fn story(cloud: CloudName) -> Result<(), String> {
    const SEED: u64 = 11;
    let mut world = World::new(LabOptions::new(SEED), cloud, (SEED, false)).await?;
    world.make_class().await?;
    let policies: Api<DisruptionPolicy> = Api::all(world.lab.client.clone());
    let freeze = json!({"metadata": {"name": "calm"}, "spec": {
        "nodePools": {"names": [POOLS[0]]}, "freeze": {"reason": "incident 42"},
    }});
    world.lab.create(&policies, freeze).await.map_err(text)?;
    make_work(&world).await?;
    world.start();
    until(&world, async |_| Vec::new()).await?;

    let [calm, free] = [claims(&world, POOLS[0]).await, claims(&world, POOLS[1]).await];
    world.change_class(world.cloud.class_change(7)).await?;
    until(&world, async |world| kept(world, POOLS[1], &free).await).await?;
    world.lab.clock.sleep(FROZEN_FOR).await;
    if claims(&world, POOLS[0]).await != calm {
        return Err("a frozen node was replaced".to_owned());
    }
    is_told(&world, &policies).await?;

    let evicted = take_one_back(&world, &calm).await?;
    until(&world, async |world| kept(world, POOLS[0], &evicted).await).await?;
    let left: BTreeSet<String> = calm.difference(&evicted).cloned().collect();
    if !left.is_subset(&claims(&world, POOLS[0]).await) {
        return Err("an eviction has replaced more than the evicted node".to_owned());
    }

    let one_by_one = json!({"spec": {"freeze": null, "budgets": [{"limit": "1"}]}});
    let changed = world.lab.merge(&policies, "calm", one_by_one).await;
    changed.map_err(text)?;
    until(&world, async |world| {
        let mut missing = kept(world, POOLS[0], &left).await;
        let disrupted = disrupted(world, POOLS[0]).await;
        if disrupted.len() > 1 {
            missing.push(format!("{BROKEN} the limit is 1, disrupted are {disrupted:?}"));
        }
        missing
    })
    .await?;
    end(&mut world).await
}

/// NodePools with a pod on each of their nodes.
async fn make_work(world: &World) -> Result<(), String> {
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    let deployments: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
    for name in POOLS {
        let all_at_once =
            json!({"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}});
        let pool = world.pool(name, &all_at_once);
        world.lab.create(&pools, pool).await.map_err(text)?;
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
        world.lab.create(&deployments, deployment).await.map_err(text)?;
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
    let policy = policies.get("calm").await.map_err(text)?;
    let status = serde_json::to_value(&policy.status).map_err(text)?;
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
    Err(text("there is no spot machine"))
}

async fn end(world: &mut World) -> Result<(), String> {
    let deployments: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    let parameters = DeleteParams::default();
    for name in POOLS {
        deployments.delete(name, &parameters).await.map_err(text)?;
        pools.delete(name, &parameters).await.map_err(text)?;
    }
    world.delete_class().await?;
    look_until(world, async |world| checks::left(world).await).await?;
    let found = violations(&world.lab);
    world.lab.end().await;
    found
        .first()
        .map_or(Ok(()), |one| Err(format!("a promise is broken: {one}")))
}

/// Until all pods run on nodes that stay, and nothing else is missing.
async fn until(world: &World, missing: impl AsyncFn(&World) -> Vec<String>) -> Result<(), String> {
    look_until(world, async |world| {
        let mut what = missing(world).await;
        what.extend(checks::unsettled(world, POOLS.len() * PODS_OF_EACH).await);
        what
    })
    .await
}

async fn look_until(world: &World, missing: impl AsyncFn(&World) -> Vec<String>) -> Result<(), String> {
    let start = world.lab.clock.now();
    let mut calm = 0;
    while calm < 10 {
        world.lab.clock.sleep(Duration::from_secs(2)).await;
        let what = missing(world).await;
        if let Some(broken) = what.iter().find(|one| one.starts_with(BROKEN)) {
            return Err(broken.clone());
        }
        calm = if what.is_empty() { calm + 1 } else { 0 };
        if world.lab.clock.since(start) > LIMIT {
            return Err(format!("after {LIMIT:?}: {}", what.join("; ")));
        }
    }
    Ok(())
}
