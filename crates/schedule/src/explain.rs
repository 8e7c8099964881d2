//! Why pods have no place, down to the smallest set of things in the way. Worked out on demand, apart from placing, so that placing stays cheap.
//!
//! The minimal set comes from deletion: with everything lifted that could be, each thing is put back in turn, and stays lifted only if the pod
//! loses its place with it. Complexity: the pods are placed once; then each shape costs O(nodes + things to lift × one attempt).

use crate::options::PackOptions;
use crate::outcome::UnplacedPod;
use crate::pack::{Engine, PackRequest, pack};
use crate::tables::names_what_is_demanded;
use spokeshave_model::Requirements;
use spokeshave_model::constraints::Constraints;
use spokeshave_model::derivation::{Blocker, Derivation, NodeObstacle};
use spokeshave_model::reason::Reason;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, RequestId, Snapshot};
use spokeshave_model::taint::{self, Toleration};
use spokeshave_model::vector::{PODS, ResourceVector};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Shapes of pods that are explained in one go; those beyond it have the reason of their NodePools only.
const MOST_SHAPES: usize = 500;

/// Explains why `pack` with this request leaves a pod of it over. `None` when it does not.
pub fn explain_unplaced(
    snapshot: &Snapshot,
    request: &PackRequest,
    options: &PackOptions,
    pod: PodId,
) -> Option<Derivation> {
    let packing = pack(snapshot, request, options);
    let left = packing.unplaced.into_iter().find(|left| left.pod == pod)?;
    let mut found = explain_left_over(snapshot, request, options, std::slice::from_ref(&left));
    found.remove(&pod).map(Arc::unwrap_or_clone)
}

/// Explains the pods that `pack` with this request left over. Pods of one shape share a derivation.
pub fn explain_left_over(
    snapshot: &Snapshot,
    request: &PackRequest,
    options: &PackOptions,
    left_over: &[UnplacedPod],
) -> BTreeMap<PodId, Arc<Derivation>> {
    if left_over.is_empty() {
        return BTreeMap::new();
    }
    let (world, ghosts) = with_ghosts(snapshot, left_over);
    let mut alone = Engine::new(&world, options);
    for node in &request.without_nodes {
        alone.remove_node(*node);
    }
    alone.release(&request.pods);
    let mut after = alone.clone();
    after.place(&request.pods);
    let mut explainer = Explainer {
        world: &world,
        request,
        ghosts,
        alone,
        after,
    };
    let mut known: BTreeMap<Shape<'_>, Arc<Derivation>> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for left in left_over {
        let shape = shape_of(snapshot, left);
        let derivation = match known.get(&shape) {
            Some(derivation) => Arc::clone(derivation),
            None if known.len() < MOST_SHAPES => {
                let derivation = Arc::new(explainer.explain(left));
                known.insert(shape, Arc::clone(&derivation));
                derivation
            }
            None => Arc::new(Derivation::of(Arc::clone(&left.reason))),
        };
        found.insert(left.pod, derivation);
    }
    found
}

/// What tells pods apart as far as a place is concerned.
type Shape<'a> = (ClassId, RequestId, &'a [(String, String)], &'a Reason);

fn shape_of<'a>(snapshot: &'a Snapshot, left: &'a UnplacedPod) -> Shape<'a> {
    let view = snapshot.pod(left.pod);
    (view.class, view.request, view.attachments(), &left.reason)
}

/// The Snapshot with one more pod for each class that was left over, which asks for as little as a pod can.
fn with_ghosts(snapshot: &Snapshot, left_over: &[UnplacedPod]) -> (Snapshot, BTreeMap<ClassId, PodId>) {
    let mut world = snapshot.clone();
    let mut least = ResourceVector::zero(world.resources.width());
    least.0[PODS] = 1;
    let request = RequestId::from(world.requests.len());
    std::sync::Arc::make_mut(&mut world.requests).push(least);
    let mut ghosts = BTreeMap::new();
    for left in left_over {
        let view = snapshot.pod(left.pod);
        ghosts.entry(view.class).or_insert_with(|| {
            let mut ghost = view.clone();
            ghost.request = request;
            ghost.node = None;
            ghost.forget_attachments();
            world.pods.push(ghost);
            PodId::from(world.pods.len() - 1)
        });
    }
    (world, ghosts)
}

struct Explainer<'a> {
    world: &'a Snapshot,
    request: &'a PackRequest,
    ghosts: BTreeMap<ClassId, PodId>,
    /// Before anything was placed.
    alone: Engine<'a>,
    /// When everything was placed that could be.
    after: Engine<'a>,
}

impl Explainer<'_> {
    fn explain(&mut self, left: &UnplacedPod) -> Derivation {
        let mut derivation = Derivation::of(Arc::clone(&left.reason));
        if !matches!(
            *left.reason,
            Reason::DynamicResources | Reason::ReservedOfferings { .. }
        ) {
            derivation.nodes = self.node_obstacles(left.pod);
            derivation.minimal = self.minimal_blockers(left.pod);
        }
        derivation
    }

    /// What each existing node says to the pod in the end, counted.
    fn node_obstacles(&mut self, pod: PodId) -> Vec<(NodeObstacle, usize)> {
        let mut found: BTreeMap<NodeObstacle, usize> = BTreeMap::new();
        let mut shortest: BTreeMap<String, (i64, usize)> = BTreeMap::new();
        let removed = &self.request.without_nodes;
        for node in self.world.node_ids().filter(|node| !removed.contains(node)) {
            match obstacle_of(self.world, &mut self.after, pod, node) {
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

    fn minimal_blockers(&mut self, pod: PodId) -> Vec<Blocker> {
        let candidates = candidates(self.world, pod);
        let mut lifted: BTreeSet<Blocker> = candidates.iter().cloned().collect();
        if !self.has_place(pod, &lifted) {
            return Vec::new();
        }
        for blocker in candidates {
            lifted.remove(&blocker);
            if !self.has_place(pod, &lifted) {
                lifted.insert(blocker);
            }
        }
        if lifted.is_empty() {
            // Only the order of the others kept it from a place.
            return vec![Blocker::OtherPods];
        }
        lifted.into_iter().collect()
    }

    /// Whether the pod finds a place when some things are lifted.
    fn has_place(&mut self, pod: PodId, lifted: &BTreeSet<Blocker>) -> bool {
        let engine = if lifted.contains(&Blocker::OtherPods) {
            &mut self.alone
        } else {
            &mut self.after
        };
        let stand_in = if lifted.contains(&Blocker::Requests) {
            self.ghosts.get(&self.world.pod(pod).class)
        } else {
            None
        };
        let constraints = lift(self.world.constraints(pod), lifted);
        let stand_in = *stand_in.unwrap_or(&pod);
        engine.has_place_with(stand_in, constraints, lifted)
    }
}

/// The first failing fact: what no free room would mend (taints, labels) before what more room would, and else in the order of P §6.4.
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
    let reaches = |wanted: &Requirements| kind.requirements.satisfy(wanted);
    let goes = |wanted: &Requirements| reaches(wanted) && names_what_is_demanded(view, wanted);
    let terms = &constraints.required_terms;
    if !goes(&constraints.node_selector) || (!terms.is_empty() && !terms.iter().any(goes)) {
        return Some(NodeObstacle::Labels);
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
    if !constraints.volume_terms.is_empty() && !constraints.volume_terms.iter().any(reaches) {
        return Some(NodeObstacle::Volumes);
    }
    let (kind, key) = engine.topology_obstacle(pod, node)?;
    Some(NodeObstacle::Topology { kind, key })
}

/// The things that can be lifted from a pod, as far as it has them. What comes first is put back first, so it is named only where nothing later would do.
fn candidates(snapshot: &Snapshot, pod: PodId) -> Vec<Blocker> {
    let constraints = snapshot.constraints(pod);
    let others = snapshot
        .classes
        .iter()
        .any(|class| !class.anti_affinity.is_empty());
    let limited = snapshot.pools.iter().any(|pool| !pool.limits.is_empty());
    let attaches = !snapshot.pod(pod).attachments().is_empty();
    let has = [
        (Blocker::OtherPods, true),
        (Blocker::Requests, true),
        (Blocker::OthersAntiAffinity, others),
        (Blocker::HostPorts, !constraints.host_ports.is_empty()),
        (Blocker::Volumes, attaches || !constraints.volume_terms.is_empty()),
        (Blocker::PodAntiAffinity, !constraints.anti_affinity.is_empty()),
        (Blocker::PodAffinity, !constraints.affinity.is_empty()),
        (
            Blocker::TopologySpread,
            constraints.spreads.iter().any(|spread| spread.required),
        ),
        (Blocker::Taints, true),
        (Blocker::NodeAffinity, !constraints.required_terms.is_empty()),
        (Blocker::NodeSelector, !constraints.node_selector.is_empty()),
        (Blocker::Limits, limited),
    ];
    has.into_iter()
        .filter(|(_, has)| *has)
        .map(|(blocker, _)| blocker)
        .collect()
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
