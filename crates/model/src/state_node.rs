//! The join of Nodes and NodeClaims into what other decisions call a node (P §8.1).
//!
//! One entry per provider ID. Until its Node registers, a NodeClaim speaks for the node; afterwards the Node does. A NodeClaim that has not
//! been launched has no entry.

use crate::cluster_state::ClusterState;
use crate::price::Price;
use crate::resources::{ResourceName, Resources};
use crate::snapshot::{KindId, NodeView, PoolId, PoolView, pool_id};
use crate::taint;
use crate::vector::ResourceVector;
use crate::{labels, pod};
use k8s_openapi::api::core::v1::{Node, Taint};
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{CONSOLIDATABLE, Conditioned as _, INITIALIZED, INSTANCE_TERMINATING};
use spokeshave_api::labels::PRICE_AT_LAUNCH;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Joins and sorts: initialised first, then by name (P §6.1).
pub(crate) fn join(state: &ClusterState, pools: &[PoolView]) -> Vec<NodeView> {
    let mut entries: BTreeMap<String, (Option<Arc<Node>>, Option<Arc<NodeClaim>>)> = BTreeMap::new();
    // By name, so that of two objects with one provider ID the same one wins whatever the order of arrival.
    let mut claims: Vec<&Arc<NodeClaim>> = state.node_claims.iter().collect();
    claims.sort_by_key(|claim| claim.name());
    let mut nodes: Vec<&Arc<Node>> = state.nodes.iter().collect();
    nodes.sort_by_key(|node| node.metadata.name.as_deref().unwrap_or(""));
    for claim in claims {
        if let Some(id) = claim.provider_id() {
            entries.entry(id.to_owned()).or_default().1 = Some(Arc::clone(claim));
        }
    }
    for node in nodes {
        if let Some(id) = tracked_id(node) {
            entries.entry(id).or_default().0 = Some(Arc::clone(node));
        }
    }
    let mut views: Vec<NodeView> = entries
        .into_iter()
        .map(|(id, (node, claim))| view(id, node, claim, state, pools))
        .collect();
    views.sort_by(|left, right| order(left).cmp(&order(right)));
    views
}

/// The order of nodes (P §6.1): initialised first, then by name.
pub fn order(view: &NodeView) -> (Reverse<bool>, &str, &str) {
    (Reverse(view.initialized), &view.name, &view.provider_id)
}

/// The provider ID under which a Node is tracked: its name for unmanaged nodes without one. A managed Node is ignored until it has a
/// provider ID, and until it has an instance type or is initialised (P-141).
pub(crate) fn tracked_id(node: &Node) -> Option<String> {
    let label = |key: &str| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
            .filter(|value| !value.is_empty())
    };
    let managed = label(labels::NODE_POOL).is_some();
    if managed && label(labels::INSTANCE_TYPE).is_none() && label(labels::INITIALIZED).is_none() {
        return None;
    }
    let id = node
        .spec
        .as_ref()
        .and_then(|spec| spec.provider_id.clone())
        .filter(|id| !id.is_empty());
    match id {
        Some(id) => Some(id),
        None if managed => None,
        None => node.metadata.name.clone(),
    }
}

fn is_true(labels: Option<&BTreeMap<String, String>>, key: &str) -> bool {
    labels
        .and_then(|labels| labels.get(key))
        .is_some_and(|value| value == "true")
}

/// Whether a Node is cordoned.
pub fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// Whether a Node's condition Ready is True.
pub fn is_node_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The view of an entry, without pods, kind and vectors.
pub(crate) fn view(
    provider_id: String,
    node: Option<Arc<Node>>,
    claim: Option<Arc<NodeClaim>>,
    state: &ClusterState,
    pools: &[PoolView],
) -> NodeView {
    let node_labels = node.as_ref().and_then(|node| node.metadata.labels.as_ref());
    let unmanaged = claim.is_none();
    let registered = unmanaged || (node.is_some() && is_true(node_labels, labels::REGISTERED));
    let initialized = unmanaged || (node.is_some() && is_true(node_labels, labels::INITIALIZED));
    let meta = match (&node, &claim) {
        (Some(node), _) if registered => &node.metadata,
        (_, Some(claim)) => &claim.metadata,
        (Some(node), None) => &node.metadata,
        (None, None) => unreachable_meta(),
    };
    let labels_map = meta.labels.clone().unwrap_or_default();
    let name = meta.name.clone().unwrap_or_default();
    let pool_name = labels_map.get(labels::NODE_POOL).cloned();
    let pool = pool_name.as_deref().and_then(|name| pool_id(pools, name));
    let instance_type = pool.and_then(|pool| {
        let wanted = labels_map.get(labels::INSTANCE_TYPE)?;
        pools[pool.index()]
            .instance_types
            .iter()
            .position(|instance_type| instance_type.name == *wanted)
    });
    // An offering that is not sold any more leaves its nodes with the price they were launched at (W-07).
    let price = pool
        .zip(instance_type)
        .and_then(|place| known_price(place, &labels_map, pools))
        .or_else(|| price_at_launch(claim.as_deref()?));
    let instance_terminating = claim
        .as_ref()
        .is_some_and(|claim| claim.is_true(INSTANCE_TERMINATING));
    let claim_deleting = claim.as_ref().is_some_and(|claim| claim.is_deleting());
    let node_deleting = unmanaged
        && node
            .as_ref()
            .is_some_and(|node| node.metadata.deletion_timestamp.is_some());
    let marked = state.marked_for_deletion.contains(&provider_id);
    let (capacity, allocatable_resources) = amounts(node.as_deref(), claim.as_deref(), initialized);
    NodeView {
        hostname: labels_map
            .get(labels::HOSTNAME)
            .cloned()
            .unwrap_or_else(|| name.clone()),
        annotations: meta.annotations.clone().unwrap_or_default(),
        taints: effective_taints(node.as_deref(), claim.as_deref(), registered, initialized),
        ready: node.as_deref().is_some_and(is_node_ready),
        marked_for_deletion: marked || claim_deleting || instance_terminating || node_deleting,
        in_command: state.in_command.contains(&provider_id),
        consolidatable: claim.as_ref().is_some_and(|claim| claim.is_true(CONSOLIDATABLE)),
        nominated_until: state
            .nominations
            .get(&provider_id)
            .map(|nomination| nomination.until),
        promised: false,
        kind: KindId(0),
        allocatable: ResourceVector::default(),
        requested: ResourceVector::default(),
        daemon_requested: ResourceVector::default(),
        pods: Vec::new(),
        attach_limits: node
            .as_ref()
            .and_then(|node| node.metadata.name.as_deref())
            .map(|name| crate::volumes::attach_limits(name, &state.volumes))
            .unwrap_or_default(),
        price: price.unwrap_or(Price::ZERO),
        labels: labels_map,
        name,
        provider_id,
        pool_name,
        pool,
        registered,
        initialized,
        instance_terminating,
        capacity,
        allocatable_resources,
        instance_type,
        node,
        claim,
    }
}

/// What a node costs by the catalogue of its NodePool, given as pool and index of its type; `None` where nobody knows.
fn known_price(
    (pool, instance_type): (PoolId, usize),
    own_labels: &BTreeMap<String, String>,
    pools: &[PoolView],
) -> Option<Price> {
    let (zone, capacity_type) = (
        own_labels.get(labels::ZONE)?,
        own_labels.get(labels::CAPACITY_TYPE)?,
    );
    pools[pool.index()].instance_types[instance_type].known_price_of(zone, capacity_type)
}

/// Whether a node costs nothing by the catalogue of its NodePool: of others, a price of 0 says that nobody knows it.
pub fn is_free(view: &NodeView, pools: &[PoolView]) -> bool {
    let place = view.pool.zip(view.instance_type);
    let price = place.and_then(|place| known_price(place, &view.labels, pools));
    price == Some(Price::ZERO)
}

/// What a NodeClaim cost when it was launched, if it says so (W-07).
pub fn price_at_launch(claim: &NodeClaim) -> Option<Price> {
    let price: Price = claim.annotation(PRICE_AT_LAUNCH)?.parse().ok()?;
    price.is_known().then_some(price)
}

/// An entry exists because a Node or a NodeClaim made it; this keeps the impossible case from being a panic.
fn unreachable_meta() -> &'static k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
    static EMPTY: std::sync::OnceLock<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta> =
        std::sync::OnceLock::new();
    EMPTY.get_or_init(Default::default)
}

/// P-100: Node status; until initialised, missing and zero entries come from the NodeClaim's status.
fn amounts(node: Option<&Node>, claim: Option<&NodeClaim>, initialized: bool) -> (Resources, Resources) {
    let status = node.and_then(|node| node.status.as_ref());
    let mut capacity = Resources::from_quantities_lossy(status.and_then(|status| status.capacity.as_ref()));
    let mut allocatable =
        Resources::from_quantities_lossy(status.and_then(|status| status.allocatable.as_ref()));
    if let (false, Some(claim)) = (initialized, claim.and_then(|claim| claim.status.as_ref())) {
        for (into, from) in [
            (&mut capacity, &claim.capacity),
            (&mut allocatable, &claim.allocatable),
        ] {
            for (name, amount) in Resources::from_quantities_lossy(Some(from)).iter() {
                if into.get(name) == 0 {
                    into.set(name, amount);
                }
            }
        }
    }
    capacity.remove(ResourceName::NODES);
    (capacity, allocatable)
}

/// What a launched NodeClaim adds to the usage of its NodePool: the capacity of its Node, and before that is initialised, what the cloud has promised
/// for what the Node does not report yet.
pub fn claim_capacity(node: Option<&Node>, claim: &NodeClaim) -> Resources {
    let found = node.and_then(|node| node.metadata.labels.as_ref());
    let initialized = is_true(found, labels::INITIALIZED);
    amounts(node, Some(claim), initialized).0
}

/// Whether a Node was made after its NodeClaim had been initialised: somebody had taken the first one away, and nobody knows when this one can run pods.
fn is_successor(node: &Node, claim: &NodeClaim) -> bool {
    let initialized = claim.true_condition(INITIALIZED);
    let created = node.metadata.creation_timestamp.as_ref();
    initialized
        .zip(created)
        .is_some_and(|(initialized, created)| created.0 > initialized.last_transition_time)
}

/// P §6.11: NodeClaim taints until registered, Node taints after; startup and known ephemeral taints do not count until initialised. All of them count on a
/// Node that comes back: it may never get ready, and pods that are planned onto it would wait for ever (D-253).
fn effective_taints(
    node: Option<&Node>,
    claim: Option<&NodeClaim>,
    registered: bool,
    initialized: bool,
) -> Vec<Taint> {
    let node_taints = || {
        node.and_then(|node| node.spec.as_ref())
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default()
    };
    let Some(claim) = claim else {
        return with_unschedulable(node_taints(), node);
    };
    let comes_back = !initialized && node.is_some_and(|node| is_successor(node, claim));
    let mut taints = if registered || comes_back {
        with_unschedulable(node_taints(), node)
    } else {
        claim.spec.taints.clone()
    };
    if !initialized && !comes_back {
        let startup = &claim.spec.startup_taints;
        taints.retain(|taint| {
            !taint::is_known_ephemeral(taint) && !startup.iter().any(|other| taint::same_taint(other, taint))
        });
    }
    taints
}

/// A cordoned node counts as tainted even before the node lifecycle controller has written the taint.
fn with_unschedulable(mut taints: Vec<Taint>, node: Option<&Node>) -> Vec<Taint> {
    const KEY: &str = "node.kubernetes.io/unschedulable";
    if node.is_some_and(is_cordoned) && !taints.iter().any(|taint| taint.key == KEY) {
        taints.push(Taint {
            key: KEY.to_owned(),
            effect: taint::NO_SCHEDULE.to_owned(),
            value: None,
            time_added: None,
        });
    }
    taints
}

/// Whether the Node annotation forbids voluntary disruption: exactly `"true"` (D-009).
pub fn is_protected(view: &NodeView) -> bool {
    let annotations = view
        .node
        .as_ref()
        .and_then(|node| node.metadata.annotations.as_ref());
    annotations
        .and_then(|annotations| annotations.get(pod::DO_NOT_DISRUPT))
        .is_some_and(|value| value == "true")
}
