//! The nodes of a cluster that was dumped, as a simulation begins with them.
//!
//! Owns which Nodes and NodeClaims of a dump a run can go on with, and how they are written for it: with their ages, and without what was under way. It reads no
//! file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use spokeshave_api::conditions::{Conditioned as _, INITIALIZED, LAUNCHED, REGISTERED};
use spokeshave_api::{NodeClaim, NodeClaimStatus, NodePool, hash, labels};
use spokeshave_model::{CapacityType, InstanceType, Offering, labels as well_known, state_node};

use crate::fixed::{self, lasting_spec, moved_creation, ready_status};
use crate::left_out::{LeftOut, Why};
use crate::standing::{Standing, StandingNode, label, name_of};
use crate::world::{Policy, World};

/// What a dump has of nodes. Of two objects with one name the later one counts.
#[derive(Debug, Clone, Copy)]
pub struct Dumped<'a> {
    /// Nodes, of whomever.
    pub nodes: &'a [Arc<Node>],
    /// NodeClaims.
    pub node_claims: &'a [Arc<NodeClaim>],
    /// NodePools as they were when the nodes were made; of two with one name the first counts.
    pub node_pools: &'a [Arc<NodePool>],
    /// When the dump was written, by the clock of its cluster.
    pub taken_at: Timestamp,
}

impl Standing {
    /// The nodes of a dump that all of these policies can begin with, and what is left out of it.
    #[must_use]
    pub fn of(dumped: &Dumped<'_>, world: &World, policies: &[Policy]) -> (Self, Vec<LeftOut>) {
        let mut standing = Standing {
            taken_at: dumped.taken_at,
            ..Standing::default()
        };
        let nodes: BTreeMap<&str, &Arc<Node>> =
            dumped.nodes.iter().map(|node| (name_of(node), node)).collect();
        let mut by_instance: BTreeMap<&str, Vec<&Arc<Node>>> = BTreeMap::new();
        for node in nodes.values() {
            if let Some(id) = provider_id(node) {
                by_instance.entry(id).or_default().push(node);
            }
        }
        let named: BTreeMap<&str, &Arc<NodeClaim>> = dumped
            .node_claims
            .iter()
            .map(|claim| (claim.name(), claim))
            .collect();
        let mut claims: Vec<&Arc<NodeClaim>> = named.into_values().collect();
        claims.sort_by_key(|claim| created(claim));
        let mut known: BTreeSet<&str> = BTreeSet::new();
        let mut left_out = Vec::new();
        for claim in claims {
            let own = claim.provider_id().and_then(|id| by_instance.get(id));
            let is_twin = claim.provider_id().is_some_and(|id| !known.insert(id));
            let judged = match own.map(Vec::as_slice) {
                _ if is_twin => Err(Why::Twin),
                None | Some([]) => Err(Why::NoNode),
                Some([node]) => judge(claim, node, world, policies).map(|sold| (*node, sold)),
                Some(_) => Err(Why::Twin),
            };
            match judged {
                Ok((node, sold)) => {
                    let written = standing.written(claim, node, sold, dumped, world.start);
                    standing.nodes.push(written);
                }
                Err(why) => left_out.push(LeftOut {
                    kind: "NodeClaim",
                    name: claim.name().to_owned(),
                    why,
                }),
            }
        }
        for (name, node) in &nodes {
            // What is said of a NodeClaim is said of its Node.
            if provider_id(node).is_some_and(|id| known.contains(id)) {
                continue;
            }
            let own = provider_id(node).and_then(|id| by_instance.get(id));
            let has_twin = own.is_some_and(|own| own.len() > 1);
            match judge_unclaimed(node, has_twin, dumped) {
                Ok(()) => {
                    let moved = |time: Timestamp| standing.moved(time, world.start);
                    let written = fixed::written(node, standing.fixed.len(), &moved);
                    standing.fixed.push(Arc::new(written));
                }
                Err(why) => left_out.push(LeftOut {
                    kind: "Node",
                    name: (*name).to_owned(),
                    why,
                }),
            }
        }
        (standing, left_out)
    }

    fn written(
        &self,
        claim: &NodeClaim,
        node: &Node,
        (instance_type, offering, capacity_type): Sold<'_>,
        dumped: &Dumped<'_>,
        start: Timestamp,
    ) -> StandingNode {
        let moved = |time: Timestamp| self.moved(time, start);
        let number = self.nodes.len();
        let mut pools = dumped.node_pools.iter();
        let pool = pools.find(|pool| Some(pool.name()) == claim.node_pool());
        let claim = written_claim(
            claim,
            name_of(node),
            (instance_type, offering),
            pool.map(|pool| &**pool),
            number,
            &moved,
        );
        let node = written_node(node, &claim, instance_type, number, &moved);
        StandingNode {
            claim: Arc::new(claim),
            node: Arc::new(node),
            price: offering.price,
            capacity_type,
        }
    }
}

/// What a node is, as its NodePool sells it.
type Sold<'a> = (&'a InstanceType, &'a Offering, CapacityType);

fn provider_id(node: &Node) -> Option<&str> {
    let id = node.spec.as_ref()?.provider_id.as_deref();
    id.filter(|id| !id.is_empty())
}

/// When it was made; of two at one time the first by name.
fn created(claim: &NodeClaim) -> (Option<Timestamp>, String) {
    let created = claim.metadata.creation_timestamp.as_ref();
    (created.map(|created| created.0), claim.name().to_owned())
}

/// Whether a run can go on with a NodeClaim and its Node, and what they are.
fn judge<'a>(
    claim: &NodeClaim,
    node: &Node,
    world: &'a World,
    policies: &'a [Policy],
) -> Result<Sold<'a>, Why> {
    let pool = claim.node_pool().filter(|name| {
        let mut policies = policies.iter();
        policies.all(|policy| policy.node_pools.iter().any(|pool| pool.name() == *name))
    });
    let pool = pool.ok_or(Why::NoNodePool)?;
    if claim.is_deleting() || node.metadata.deletion_timestamp.is_some() {
        return Err(Why::Deleting);
    }
    if ![LAUNCHED, REGISTERED, INITIALIZED]
        .into_iter()
        .all(|condition| claim.is_true(condition))
    {
        return Err(Why::NotInitialized);
    }
    if !state_node::is_node_ready(node) {
        return Err(Why::NotReady);
    }
    let told = |key: &str| claim.label(key).or_else(|| label(node, key));
    let capacity_type = told(well_known::CAPACITY_TYPE).and_then(|told| told.parse::<CapacityType>().ok());
    let capacity_type = capacity_type.ok_or(Why::NotSold)?;
    if capacity_type == CapacityType::Reserved {
        return Err(Why::Reserved);
    }
    let what = (
        told(well_known::INSTANCE_TYPE),
        told(well_known::ZONE),
        capacity_type,
    );
    let sold = offered(pool, what, world, policies);
    sold.map(|(instance_type, offering)| (instance_type, offering, capacity_type))
        .ok_or(Why::NotSold)
}

/// What a NodePool sells of an instance type, zone and capacity type, at a price that is known: as the first policy has it that has it at all.
pub(crate) fn offered<'a>(
    pool: &str,
    (name, zone, capacity_type): (Option<&str>, Option<&str>, CapacityType),
    world: &'a World,
    policies: &'a [Policy],
) -> Option<(&'a InstanceType, &'a Offering)> {
    let is_it = |offering: &&Offering| {
        let is_there = offering.zone().is_none_or(|own| Some(own) == zone);
        is_there && offering.capacity_type() == Some(capacity_type) && offering.known_price().is_some()
    };
    let types = policies
        .iter()
        .flat_map(|policy| policy.types_of(world, pool).iter());
    let mut alike = types.filter(|one| Some(one.name.as_str()) == name);
    alike.find_map(|one| Some((one, one.offerings.iter().find(is_it)?)))
}

/// Whether a run can go on with a Node without NodeClaim, which only one of no NodePool has to be.
fn judge_unclaimed(node: &Node, has_twin: bool, dumped: &Dumped<'_>) -> Result<(), Why> {
    if label(node, labels::NODE_POOL).is_some() {
        return Err(Why::NoNodeClaim);
    }
    // Of such a cluster it is asked what NodePools would make of it: beside all of its nodes they would have nothing to do.
    if dumped.node_claims.is_empty() {
        return Err(Why::NoNodeClaims);
    }
    if has_twin {
        return Err(Why::Twin);
    }
    fixed::judge(node)
}

/// The NodeClaim as it would be if nothing were under way.
fn written_claim(
    claim: &NodeClaim,
    node: &str,
    (instance_type, offering): (&InstanceType, &Offering),
    pool: Option<&NodePool>,
    number: usize,
    moved: &impl Fn(Timestamp) -> Timestamp,
) -> NodeClaim {
    let class = &claim.spec.node_class_ref;
    let mut own = claim.metadata.labels.clone().unwrap_or_default();
    // The ID of a zone, for one, is another one in each account, and may be unknown here: it would drift from what is sold.
    own.retain(|key, value| {
        let sold = offering.requirements.find(key);
        sold.is_none_or(|sold| sold.has(value))
    });
    own.insert(class.label_key(), class.name.clone());
    let mut annotations = claim.metadata.annotations.clone().unwrap_or_default();
    // It was made for a command that is not there.
    annotations.remove(labels::DISRUPTION);
    stamp(&mut annotations, pool);
    let mut after = NodeClaim::new(claim.name(), claim.spec.clone());
    after.metadata = ObjectMeta {
        name: Some(claim.name().to_owned()),
        uid: Some(format!("claim-{number}")),
        labels: Some(own),
        annotations: Some(annotations),
        finalizers: Some(vec![labels::TERMINATION_FINALIZER.to_owned()]),
        creation_timestamp: moved_creation(&claim.metadata, moved),
        ..ObjectMeta::default()
    };
    let known = claim.status.clone().unwrap_or_default();
    let mut status = NodeClaimStatus {
        node_name: Some(node.to_owned()),
        provider_id: known.provider_id,
        image_id: known.image_id,
        capacity: known.capacity,
        allocatable: known.allocatable,
        last_pod_event_time: known.last_pod_event_time.map(|time| Time(moved(time.0))),
        ..NodeClaimStatus::default()
    };
    if status.capacity.is_empty() {
        status.capacity = instance_type.capacity.to_quantities();
    }
    if status.allocatable.is_empty() {
        status.allocatable = instance_type.allocatable().to_quantities();
    }
    after.status = Some(status);
    for type_ in [LAUNCHED, REGISTERED, INITIALIZED] {
        if let Some(condition) = claim.condition(type_) {
            after.set_true(type_, moved(condition.last_transition_time));
        }
    }
    after
}

/// Writes of which NodePool's template a NodeClaim is, as Spokeshave does it: of the one that the dump has, unless the NodeClaim has drifted from that.
fn stamp(annotations: &mut BTreeMap<String, String>, pool: Option<&NodePool>) {
    let Some(pool) = pool else {
        annotations.remove(labels::NODE_POOL_HASH);
        annotations.remove(labels::NODE_POOL_HASH_VERSION);
        return;
    };
    let both = |key: &str| Some((annotations.get(key)?.as_str(), pool.annotation(key)?));
    let is_comparable = both(labels::NODE_POOL_HASH_VERSION).is_some_and(|(own, wanted)| own == wanted);
    let has_drifted =
        is_comparable && both(labels::NODE_POOL_HASH).is_some_and(|(own, wanted)| own != wanted);
    if !has_drifted {
        annotations.insert(labels::NODE_POOL_HASH.to_owned(), hash::node_pool_hash(pool));
    }
    annotations.insert(
        labels::NODE_POOL_HASH_VERSION.to_owned(),
        hash::VERSION.to_owned(),
    );
}

/// The Node of a NodeClaim that has been written, ready and registered.
fn written_node(
    node: &Node,
    claim: &NodeClaim,
    instance_type: &InstanceType,
    number: usize,
    moved: &impl Fn(Timestamp) -> Timestamp,
) -> Node {
    let class = &claim.spec.node_class_ref;
    let mut own = node.metadata.labels.clone().unwrap_or_default();
    own.insert(class.label_key(), class.name.clone());
    own.insert(labels::REGISTERED.to_owned(), "true".to_owned());
    own.insert(labels::INITIALIZED.to_owned(), "true".to_owned());
    let known = node.status.clone().unwrap_or_default();
    let capacity = known.capacity.filter(|amounts| !amounts.is_empty());
    let allocatable = known.allocatable.filter(|amounts| !amounts.is_empty());
    Node {
        metadata: ObjectMeta {
            name: Some(name_of(node).to_owned()),
            uid: Some(format!("node-{number}")),
            labels: Some(own),
            annotations: node.metadata.annotations.clone(),
            finalizers: Some(vec![labels::TERMINATION_FINALIZER.to_owned()]),
            owner_references: Some(vec![OwnerReference {
                api_version: "karpenter.sh/v1".to_owned(),
                kind: "NodeClaim".to_owned(),
                name: claim.name().to_owned(),
                uid: format!("claim-{number}"),
                block_owner_deletion: Some(true),
                controller: None,
            }]),
            creation_timestamp: moved_creation(&node.metadata, moved),
            ..ObjectMeta::default()
        },
        spec: Some(lasting_spec(node)),
        status: Some(ready_status(
            capacity.unwrap_or_else(|| instance_type.capacity.to_quantities()),
            allocatable.unwrap_or_else(|| instance_type.allocatable().to_quantities()),
        )),
    }
}
