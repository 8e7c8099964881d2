//! What must hold of machines in the cloud: each belongs to one NodeClaim, none is left over, and in the end nothing of a cluster is left.
//!
//! Owns these checks. They see the cloud and the API server, and nothing of the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use spokeshave_api::NodeClaim;

use super::World;
use crate::invariants::Violation;
use spokeshave_cluster::objects::is_deleting;

/// Garbage collection looks every two minutes, and an operator may be down for some of them.
const LEAK_LIMIT: Duration = Duration::from_secs(15 * 60);
/// Longest time that a part of a story may take.
const LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Looks at this interval until nothing was missing for so many looks.
///
/// # Errors
/// Something stays missing for two hours; or what `missing` says that time does not mend.
pub(super) async fn until(
    world: &World,
    (interval, looks): (Duration, u32),
    missing: impl AsyncFn(&World) -> Result<Vec<String>, String>,
) -> Result<(), String> {
    let start = world.lab.clock.now();
    let mut calm = 0;
    while calm < looks {
        world.lab.clock.sleep(interval).await;
        let what = missing(world).await?;
        calm = if what.is_empty() { calm + 1 } else { 0 };
        if world.lab.clock.since(start) > LIMIT {
            return Err(format!("after {LIMIT:?}: {}", what.join("; ")));
        }
    }
    Ok(())
}

/// Machines and since when they are leaked.
#[derive(Debug, Default)]
pub(super) struct Machines {
    unwanted: BTreeMap<String, Timestamp>,
    reported: BTreeSet<String>,
}

/// The machine's own name in a provider ID; Azure names are case-insensitive.
pub(super) fn machine_of(provider_id: &str) -> String {
    provider_id.rsplit('/').next().unwrap_or_default().to_lowercase()
}

impl Machines {
    /// Looks at what there is now.
    pub(super) async fn look(&mut self, world: &World) -> Vec<Violation> {
        let now = world.lab.clock.now();
        let mut found = Vec::new();
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        let claims = world.lab.list::<NodeClaim>().await;
        for (machine, text) in world.launches.look(&claims) {
            found.push(self.violation(&machine, text, now));
        }
        for claim in &claims {
            let id = machine_of(claim.provider_id().unwrap_or_default());
            if id.is_empty() {
                continue;
            }
            if let Some(other) = owners.insert(id.clone(), claim.name().to_owned()) {
                let text = format!("NodeClaims {other} and {} both have it", claim.name());
                found.push(self.violation(&id, text, now));
            }
        }
        let mut tagged: BTreeMap<String, String> = BTreeMap::new();
        let mut unwanted = BTreeMap::new();
        for machine in world.cloud.machines() {
            if machine.is_ending {
                continue;
            }
            if let Some(claim) = &machine.claim
                && let Some(other) = tagged.insert(claim.clone(), machine.id.clone())
            {
                let text = format!("is the second of NodeClaim {claim}, beside {other}");
                found.push(self.violation(&machine.id, text, now));
            }
            if owners.contains_key(&machine.id) {
                continue;
            }
            let since = self.unwanted.get(&machine.id).copied();
            let since = since.filter(|_| !machine.is_held).unwrap_or(now);
            if world.lab.clock.since(since) > LEAK_LIMIT {
                let text = format!("runs, and has had no NodeClaim since {since}");
                found.push(self.violation(&machine.id, text, now));
            }
            unwanted.insert(machine.id, since);
        }
        self.unwanted = unwanted;
        found.into_iter().flatten().collect()
    }

    /// While the operator is down, leaked machines cannot be collected.
    pub(super) fn forgive(&mut self, now: Timestamp) {
        self.unwanted.values_mut().for_each(|since| *since = now);
    }

    fn violation(&mut self, machine: &str, text: String, at: Timestamp) -> Option<Violation> {
        self.reported
            .insert(format!("{machine} {text}"))
            .then(|| Violation {
                invariant: 11,
                object: format!("machine {machine}"),
                at,
                text,
            })
    }
}

/// What keeps a cluster from being at rest.
pub(super) async fn unsettled(world: &World, pods: usize) -> Vec<String> {
    let mut found = Vec::new();
    let all = world.lab.list::<Pod>().await;
    let is_running = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && !is_deleting(&pod.metadata)
    };
    let running = all.iter().filter(is_running).count();
    if (running, all.len()) != (pods, pods) {
        found.push(format!("{running} of {} pods run, expected {pods}", all.len()));
    }
    let claims = world.lab.list::<NodeClaim>().await;
    for claim in claims.iter().filter(|claim| is_deleting(&claim.metadata)) {
        found.push(format!("nodeclaim {} is on its way out", claim.name()));
    }
    let claimed: BTreeSet<String> = claims
        .iter()
        .map(|claim| machine_of(claim.provider_id().unwrap_or_default()))
        .collect();
    let living: BTreeSet<String> = world
        .cloud
        .machines()
        .into_iter()
        .map(|machine| machine.id)
        .collect();
    let nodes = world.lab.list::<Node>().await;
    let with_node: BTreeSet<String> = nodes
        .iter()
        .filter_map(|node| Some(machine_of(node.spec.as_ref()?.provider_id.as_deref()?)))
        .collect();
    if claimed != living || living != with_node {
        found.push(format!(
            "NodeClaims have {claimed:?}, the cloud {living:?}, Nodes {with_node:?}"
        ));
    }
    for node in &nodes {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        for taint in taints.filter(|taint| taint.key.starts_with("karpenter.sh/")) {
            found.push(format!("node {} has the taint {}", node.name_any(), taint.key));
        }
    }
    found
}

/// What is left in the cluster and in the cloud.
pub(super) async fn left(world: &World) -> Vec<String> {
    let mut left = Vec::new();
    let mut add =
        |what: &str, names: Vec<String>| left.extend(names.into_iter().map(|name| format!("{what} {name}")));
    let claims = world.lab.list::<NodeClaim>().await;
    add(
        "nodeclaim",
        claims.iter().map(|one| one.name().to_owned()).collect(),
    );
    let nodes = world.lab.list::<Node>().await;
    add("node", nodes.iter().map(|one| one.name_any()).collect());
    add("class", world.class_names().await);
    add(
        "machine",
        world.cloud.machines().into_iter().map(|one| one.id).collect(),
    );
    for (what, names) in world.cloud.belongings() {
        add(what, names);
    }
    left
}
