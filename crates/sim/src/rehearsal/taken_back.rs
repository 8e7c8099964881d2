//! Many spot instances with pods that EC2 takes back at once, while the operator is killed in the middle, again and again.
//!
//! Owns the story, and what must hold of it: each NodeClaim is deleted before EC2 terminates its instance, so no message was lost; no other NodeClaim is
//! touched, though messages about strangers' instances arrive between them; and the queue is empty in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_runtime::Api;

use super::stage::HasDied;
use super::{CloudName, OPERATOR, World, checks};
use crate::lab::{self, LabOptions};

/// Longest time that the cluster may take to come to rest.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
const LOOK: Duration = Duration::from_secs(1);
/// EC2 ends a spot instance so long after its notice.
const NOTICE: Duration = Duration::from_secs(120);
/// On-demand nodes, which are not interrupted.
const BYSTANDERS: usize = 3;
/// Messages about instances of other clusters.
const STRANGERS: usize = 25;

/// What a story came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// Spot instances that EC2 took back.
    pub interrupted: usize,
    /// How often the operator was killed.
    pub deaths: usize,
    /// Calls to EC2 between its start and the interruptions.
    pub calls_before: u64,
    /// Calls to EC2 from the interruptions until the last NodeClaim was deleted.
    pub calls_until_deleted: u64,
}

/// Runs the scenario with this many spot instances. The operator that is running at the interruptions is killed at its call of number `first_death` (as counted
/// from its start), and each that is started in its place at the next number of `later_deaths`; the last one is not killed.
///
/// # Errors
/// What did not hold.
pub fn taken_back(instances: usize, first_death: u64, later_deaths: &[u64]) -> Result<TakenBack, String> {
    lab::tell(async |all| story(instances, first_death, later_deaths, all).await)
}

/// Pods that want a node each.
fn apart(name: &str, replicas: usize, capacity_type: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}},
            ]}},
            "nodeSelector": {"karpenter.sh/capacity-type": capacity_type}, "terminationGracePeriodSeconds": 10,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}],
        }},
    }})
}

fn calls(world: &World) -> u64 {
    world.cloud.calls().into_iter().map(|(_, count)| count).sum()
}

/// An operator that may die, and those that come after it.
struct Operators<'a> {
    has_died: Option<HasDied>,
    later: &'a [u64],
    deaths: usize,
}

impl Operators<'_> {
    /// Replaces an operator that has died.
    async fn look(&mut self, world: &mut World) {
        if self.has_died.as_ref().is_none_or(|has_died| !has_died()) {
            return;
        }
        self.deaths += 1;
        world.lab.kill(OPERATOR).await;
        match self.later.split_first() {
            Some((next, rest)) => {
                self.later = rest;
                self.has_died = Some(world.start_mortal(*next));
            }
            None => {
                self.has_died = None;
                world.start();
            }
        }
    }
}

async fn story(
    instances: usize,
    first_death: u64,
    later: &[u64],
    all: &mut lab::Operators,
) -> Result<TakenBack, String> {
    const SEED: u64 = 17;
    let mut options = LabOptions::new(SEED);
    options.keep_log = false;
    let mut world = World::watched(options, CloudName::Aws, (SEED, false)).await?;
    world.make_class().await?;
    let text = |error: kube::Error| format!("the API server refuses an object: {error}");
    let pools: Api<NodePool> = Api::all(world.lab.client.clone());
    // Nothing but interruptions takes nodes away.
    let never = json!({"disruption": {"consolidateAfter": "Never"}});
    let pool = world.pool("p", &never);
    world.lab.create(&pools, pool).await.map_err(text)?;
    let deployments: Api<Deployment> = Api::namespaced(world.lab.client.clone(), "default");
    for (name, replicas, capacity_type) in [
        ("spot", instances, "spot"),
        ("bystanders", BYSTANDERS, "on-demand"),
    ] {
        let deployment = apart(name, replicas, capacity_type);
        world.lab.create(&deployments, deployment).await.map_err(text)?;
    }
    let pods = instances + BYSTANDERS;
    let mut operators = Operators {
        has_died: Some(world.start_mortal(first_death)),
        later,
        deaths: 0,
    };
    settle(&mut world, &mut operators, pods).await?;
    if operators.deaths > 0 {
        return Err("the operator has died before the interruptions".to_owned());
    }
    let calls_before = calls(&world);

    let spot: BTreeSet<String> = world
        .cloud
        .machines()
        .into_iter()
        .filter(|machine| machine.is_spot)
        .map(|machine| machine.id)
        .collect();
    if spot.len() != instances {
        return Err(format!("{} spot instances instead of {instances}", spot.len()));
    }
    let mut doomed = BTreeSet::new();
    let mut bystanders = BTreeSet::new();
    for claim in world.lab.list::<NodeClaim>().await {
        let id = claim
            .provider_id()
            .unwrap_or_default()
            .rsplit('/')
            .next()
            .unwrap_or_default();
        let of = if spot.contains(id) {
            &mut doomed
        } else {
            &mut bystanders
        };
        of.insert(claim.name().to_owned());
    }
    world.lab.invariants.disturb();
    let start = world.lab.clock.now();
    for (number, id) in spot.iter().enumerate() {
        if number * STRANGERS / spot.len() != (number + 1) * STRANGERS / spot.len() {
            world.cloud.interrupt_stranger(&format!("i-0{number:016x}"));
        }
        world.cloud.interrupt(&world.lab, id).await?;
    }

    let mut deleted: BTreeMap<String, Timestamp> = BTreeMap::new();
    let mut calls_until_deleted = 0;
    while world.lab.clock.since(start) < NOTICE {
        world.lab.clock.sleep(LOOK).await;
        operators.look(&mut world).await;
        let now = world.lab.clock.now();
        let claims = world.lab.list::<NodeClaim>().await;
        let living: BTreeSet<&str> = claims
            .iter()
            .filter(|claim| claim.metadata.deletion_timestamp.is_none())
            .map(NodeClaim::name)
            .collect();
        if let Some(name) = bystanders.iter().find(|name| !living.contains(name.as_str())) {
            return Err(format!(
                "NodeClaim {name} is deleted, whose instance nobody interrupts"
            ));
        }
        for name in doomed.iter().filter(|name| !living.contains(name.as_str())) {
            deleted.entry(name.clone()).or_insert(now);
        }
        if deleted.len() == doomed.len() && calls_until_deleted == 0 {
            calls_until_deleted = calls(&world) - calls_before;
        }
    }
    let late: Vec<&String> = doomed
        .iter()
        .filter(|name| !deleted.contains_key(*name))
        .collect();
    if !late.is_empty() {
        return Err(format!(
            "{} of {} NodeClaims are not deleted when EC2 ends their instances, after {} death(s): {late:?}",
            late.len(),
            doomed.len(),
            operators.deaths
        ));
    }
    settle(&mut world, &mut operators, pods).await?;
    if world.cloud.messages() > 0 {
        return Err(format!(
            "{} messages are left in the queue",
            world.cloud.messages()
        ));
    }
    let found = world.lab.invariants.violations();
    *all = world.lab.end().await;
    match found.first() {
        Some(one) => Err(format!("{} promise(s) broken: {one}", found.len())),
        None => Ok(TakenBack {
            interrupted: doomed.len(),
            deaths: operators.deaths,
            calls_before,
            calls_until_deleted,
        }),
    }
}

/// Waits until everything has been at rest for half a minute.
async fn settle(world: &mut World, operators: &mut Operators<'_>, pods: usize) -> Result<(), String> {
    let start = world.lab.clock.now();
    let mut calm = 0;
    while calm < 30 {
        world.lab.clock.sleep(LOOK).await;
        operators.look(world).await;
        let what = checks::unsettled(world, pods).await;
        calm = if what.is_empty() { calm + 1 } else { 0 };
        if world.lab.clock.since(start) > LIMIT {
            return Err(format!("after {LIMIT:?}: {}", what.join("; ")));
        }
    }
    Ok(())
}
