//! Why a pod has no place, down to the smallest set of things in the way. Worked out on demand, apart from placing, so that placing stays cheap.
//!
//! The minimal set comes from deletion: with everything lifted that could be, each thing is put back in turn, and stays lifted only if the pod
//! loses its place with it. That is one packing of one pod for each thing: O(blockers × (pods + nodes)).

use crate::pack::{Engine, PackOptions, PackRequest, pack};
use spokeshave_model::constraints::Constraints;
use spokeshave_model::derivation::{Blocker, Derivation, NodeObstacle};
use spokeshave_model::reason::Reason;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, RequestId, Snapshot};
use spokeshave_model::taint::{self, Toleration};
use spokeshave_model::vector::{PODS, ResourceVector};
use spokeshave_model::{Requirements, Resources};
use std::collections::{BTreeMap, BTreeSet};

/// Explains why `pack` with this request leaves a pod of it over. `None` when it does not.
pub fn explain_unplaced(
    snapshot: &Snapshot,
    request: &PackRequest,
    options: &PackOptions,
    pod: PodId,
) -> Option<Derivation> {
    let packing = pack(snapshot, request, options);
    let left = packing.unplaced.iter().find(|left| left.pod == pod)?;
    let pools = match &*left.reason {
        Reason::Pools(refusals) => refusals.clone(),
        _ => Vec::new(),
    };
    Some(Derivation {
        pools,
        nodes: node_obstacles(snapshot, request, options, pod),
        minimal: minimal_blockers(snapshot, request, options, pod),
    })
}

/// What each existing node says to the pod, as of the start of the pass, counted.
fn node_obstacles(
    snapshot: &Snapshot,
    request: &PackRequest,
    options: &PackOptions,
    pod: PodId,
) -> Vec<(NodeObstacle, usize)> {
    let mut engine = Engine::new(snapshot, options);
    for node in &request.without_nodes {
        engine.remove_node(*node);
    }
    let mut found: BTreeMap<NodeObstacle, usize> = BTreeMap::new();
    let mut shortest: BTreeMap<String, (i64, usize)> = BTreeMap::new();
    for node in snapshot
        .node_ids()
        .filter(|node| !request.without_nodes.contains(node))
    {
        match obstacle_of(snapshot, &mut engine, pod, node) {
            Some(NodeObstacle::Insufficient { resource, short }) => {
                let entry = shortest.entry(resource).or_insert((short, 0));
                *entry = (entry.0.min(short), entry.1 + 1);
            }
            Some(obstacle) => *found.entry(obstacle).or_insert(0) += 1,
            None => {}
        }
    }
    found.extend(
        shortest
            .into_iter()
            .map(|(resource, (short, count))| (NodeObstacle::Insufficient { resource, short }, count)),
    );
    let mut found: Vec<(NodeObstacle, usize)> = found.into_iter().collect();
    found.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    found
}

/// The first failing fact, in the order of P §6.4.
fn obstacle_of(
    snapshot: &Snapshot,
    engine: &mut Engine<'_>,
    pod: PodId,
    node: NodeId,
) -> Option<NodeObstacle> {
    let (view, constraints) = (snapshot.node(node), snapshot.constraints(pod));
    if view.marked_for_deletion {
        return Some(NodeObstacle::Leaving);
    }
    let kind = &snapshot.kinds[view.kind.index()];
    if let Some(taint) = taint::first_untolerated(&kind.taints, &constraints.tolerations) {
        return Some(NodeObstacle::Taint(taint::format_taint(taint)));
    }
    if !engine.can_attach(pod, node) {
        return Some(NodeObstacle::Volumes);
    }
    if !engine.has_ports_free(pod, node) {
        return Some(NodeObstacle::HostPort);
    }
    if let Some((resource, short)) = engine.shortage(pod, node) {
        let resource = snapshot.resources.name(resource).to_owned();
        return Some(NodeObstacle::Insufficient { resource, short });
    }
    let none = BTreeSet::new();
    let goes = |wanted: &Requirements| kind.requirements.compatible(wanted, &none).is_ok();
    let terms = &constraints.required_terms;
    if !goes(&constraints.node_selector) || (!terms.is_empty() && !terms.iter().any(goes)) {
        return Some(NodeObstacle::Labels);
    }
    if !constraints.volume_terms.is_empty() && !constraints.volume_terms.iter().any(goes) {
        return Some(NodeObstacle::Volumes);
    }
    let (kind, key) = engine.topology_obstacle(pod, node)?;
    Some(NodeObstacle::Topology { kind, key })
}

/// The things that can be lifted from a pod, as far as it has them.
fn candidates(snapshot: &Snapshot, pod: PodId) -> Vec<Blocker> {
    let constraints = snapshot.constraints(pod);
    let others = snapshot
        .classes
        .iter()
        .any(|class| !class.anti_affinity.is_empty());
    let limited = snapshot.pools.iter().any(|pool| !pool.limits.is_empty());
    let has = [
        (Blocker::OtherPods, true),
        (Blocker::Limits, limited),
        (Blocker::OthersAntiAffinity, others),
        (Blocker::HostPorts, !constraints.host_ports.is_empty()),
        (Blocker::Volumes, !constraints.volume_terms.is_empty()),
        (Blocker::PodAntiAffinity, !constraints.anti_affinity.is_empty()),
        (Blocker::PodAffinity, !constraints.affinity.is_empty()),
        (
            Blocker::TopologySpread,
            constraints.spreads.iter().any(|spread| spread.required),
        ),
        (Blocker::Taints, true),
        (Blocker::NodeAffinity, !constraints.required_terms.is_empty()),
        (Blocker::NodeSelector, !constraints.node_selector.is_empty()),
        (Blocker::Requests, true),
    ];
    has.into_iter()
        .filter(|(_, has)| *has)
        .map(|(blocker, _)| blocker)
        .collect()
}

fn minimal_blockers(
    snapshot: &Snapshot,
    request: &PackRequest,
    options: &PackOptions,
    pod: PodId,
) -> Vec<Blocker> {
    let mut lifted: BTreeSet<Blocker> = candidates(snapshot, pod).into_iter().collect();
    if !has_place(snapshot, request, options, pod, &lifted) {
        return Vec::new();
    }
    for blocker in candidates(snapshot, pod) {
        lifted.remove(&blocker);
        if !has_place(snapshot, request, options, pod, &lifted) {
            lifted.insert(blocker);
        }
    }
    lifted.into_iter().collect()
}

/// Whether the pod finds a place when some things are lifted.
fn has_place(
    snapshot: &Snapshot,
    request: &PackRequest,
    options: &PackOptions,
    pod: PodId,
    lifted: &BTreeSet<Blocker>,
) -> bool {
    let mut world = snapshot.clone();
    if lifted.contains(&Blocker::Limits) {
        world
            .pools
            .iter_mut()
            .for_each(|pool| pool.limits = Resources::new());
    }
    if lifted.contains(&Blocker::OthersAntiAffinity) {
        world
            .classes
            .iter_mut()
            .for_each(|class| class.anti_affinity.clear());
    }
    let constraints = lift(snapshot.constraints(pod), lifted);
    let view = &mut world.pods[pod.index()];
    view.class = ClassId::from(world.classes.len());
    world.classes.push(constraints);
    if lifted.contains(&Blocker::Requests) {
        let mut least = ResourceVector::zero(world.resources.width());
        least.0[PODS] = 1;
        view.request = RequestId::from(world.requests.len());
        world.requests.push(least);
    }
    if lifted.contains(&Blocker::Volumes) {
        view.attachments.clear();
    }
    let alone = PackRequest {
        pods: if lifted.contains(&Blocker::OtherPods) {
            vec![pod]
        } else {
            request.pods.clone()
        },
        without_nodes: request.without_nodes.clone(),
    };
    let packing = pack(&world, &alone, options);
    packing.unplaced.iter().all(|left| left.pod != pod)
}

fn lift(constraints: &Constraints, lifted: &BTreeSet<Blocker>) -> Constraints {
    let mut rest = constraints.clone();
    for blocker in lifted {
        match blocker {
            Blocker::NodeSelector => rest.node_selector = Requirements::new(),
            Blocker::NodeAffinity => rest.required_terms.clear(),
            Blocker::Taints => rest.tolerations.push(Toleration {
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }),
            Blocker::TopologySpread => rest.spreads.retain(|spread| !spread.required),
            Blocker::PodAffinity => rest.affinity.clear(),
            Blocker::PodAntiAffinity => rest.anti_affinity.clear(),
            Blocker::HostPorts => rest.host_ports.clear(),
            Blocker::Volumes => rest.volume_terms.clear(),
            Blocker::Requests | Blocker::OthersAntiAffinity | Blocker::Limits | Blocker::OtherPods => {}
        }
    }
    rest
}
