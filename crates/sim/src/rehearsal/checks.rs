//! What must hold of instances on EC2: each belongs to one NodeClaim, none is left over, and in the end nothing of a cluster is left.
//!
//! Owns these checks. They see EC2 and the API server, and nothing of the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use spokeshave_api::{EC2NodeClass, NodeClaim};

use super::World;
use crate::invariants::Violation;
use crate::objects::is_deleting;

/// Garbage collection looks every two minutes, and an operator may be down for some of them.
const LEAK_LIMIT: Duration = Duration::from_secs(15 * 60);
/// The tag of an instance with its NodeClaim.
const CLAIM_TAG: &str = "karpenter.sh/nodeclaim";

/// Instances and since when nobody wants them.
#[derive(Debug, Default)]
pub(super) struct Instances {
    unwanted: BTreeMap<String, Timestamp>,
    reported: BTreeSet<String>,
}

fn instance_of(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or_default()
}

impl Instances {
    /// Looks at what there is now.
    pub(super) async fn look(&mut self, world: &World) -> Vec<Violation> {
        let now = world.lab.clock.now();
        let mut found = Vec::new();
        let mut owners: BTreeMap<String, String> = BTreeMap::new();
        for claim in world.lab.list::<NodeClaim>().await {
            let id = instance_of(claim.provider_id().unwrap_or_default()).to_owned();
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
        for instance in world.cloud.instances() {
            if instance.state == "shutting-down" {
                continue;
            }
            if let Some(claim) = instance.tags.get(CLAIM_TAG)
                && let Some(other) = tagged.insert(claim.clone(), instance.id.clone())
            {
                let text = format!("is the second of NodeClaim {claim}, beside {other}");
                found.push(self.violation(&instance.id, text, now));
            }
            if owners.contains_key(&instance.id) {
                continue;
            }
            let since = self.unwanted.get(&instance.id).copied().unwrap_or(now);
            if world.lab.clock.since(since) > LEAK_LIMIT {
                let text = format!(
                    "runs since {:?} and has had no NodeClaim since {since}",
                    instance.launched_at
                );
                found.push(self.violation(&instance.id, text, now));
            }
            unwanted.insert(instance.id, since);
        }
        self.unwanted = unwanted;
        found.into_iter().flatten().collect()
    }

    /// While the operator is down nobody can collect what is left over.
    pub(super) fn forgive(&mut self, now: Timestamp) {
        self.unwanted.values_mut().for_each(|since| *since = now);
    }

    fn violation(&mut self, instance: &str, text: String, at: Timestamp) -> Option<Violation> {
        self.reported
            .insert(format!("{instance} {text}"))
            .then(|| Violation {
                invariant: 11,
                object: format!("instance {instance}"),
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
    let claimed: BTreeSet<&str> = claims
        .iter()
        .map(|claim| instance_of(claim.provider_id().unwrap_or_default()))
        .collect();
    let instances = world.cloud.instances();
    let living: BTreeSet<&str> = instances.iter().map(|instance| instance.id.as_str()).collect();
    let nodes = world.lab.list::<Node>().await;
    let with_node: BTreeSet<&str> = nodes
        .iter()
        .filter_map(|node| Some(instance_of(node.spec.as_ref()?.provider_id.as_deref()?)))
        .collect();
    if claimed != living || living != with_node {
        found.push(format!(
            "NodeClaims have {claimed:?}, EC2 {living:?}, Nodes {with_node:?}"
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

/// What is left in the cluster and in EC2.
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
    let classes = world.lab.list::<EC2NodeClass>().await;
    add("class", classes.iter().map(|one| one.name().to_owned()).collect());
    add(
        "instance",
        world.cloud.instances().into_iter().map(|one| one.id).collect(),
    );
    add("launch template", world.cloud.templates());
    add("instance profile", world.cloud.profiles());
    left
}
