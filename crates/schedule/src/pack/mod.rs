//! The packing pass: first-fit-decreasing over existing nodes, planned NodeClaims and new ones (P §6.2–6.7, §6.17).
//!
//! State changes only through `Pass::put_on_node`, `put_on_claim` and `open_claim`. Failures that can no longer change in a pass are remembered
//! as bits, per class (constraints) and per distinct request (resources), so that each (class, node), (request, node), (class, claim)
//! and (request, claim) pair is found wanting at most once.

mod attempt;
mod finish;
mod setup;

use crate::algebra::{Algebra, SetId};
use crate::outcome::{Packing, Statistics, UnplacedPod};
use crate::relax::{PreferencePolicy, relax, without_preferences};
use crate::template::{SkippedPool, Template, bits};
use crate::topology::{Bindings, Topology};
use fixedbitset::FixedBitSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::{Constraints, HostPort};
use spokeshave_model::reason::{PoolRefusal, Reason};
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, PoolId, RequestId, Snapshot};
use spokeshave_model::taint;
use spokeshave_model::vector::{CPU, MEMORY, ResourceVector};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// What to do when too few distinct values are left for minValues (P §6.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinValuesPolicy {
    /// The option is out.
    #[default]
    Strict,
    /// New NodeClaims lower minValues to what is there.
    BestEffort,
}

/// What to do when reserved capacity exists but is used up (P §6.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReservedPolicy {
    /// Defer the pod to a later pass: provisioning.
    #[default]
    Strict,
    /// Launch other capacity: disruption's what-ifs.
    Fallback,
}

/// Policy of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackOptions {
    /// Preferences.
    pub preferences: PreferencePolicy,
    /// minValues.
    pub min_values: MinValuesPolicy,
    /// Reserved capacity.
    pub reserved: ReservedPolicy,
    /// How many instance types a NodeClaim names at most; 600 (P §0.1).
    pub instance_types_per_claim: usize,
}

impl Default for PackOptions {
    fn default() -> Self {
        PackOptions {
            preferences: PreferencePolicy::Respect,
            min_values: MinValuesPolicy::Strict,
            reserved: ReservedPolicy::Strict,
            instance_types_per_claim: 600,
        }
    }
}

/// What to place, and where not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackRequest {
    /// The pods to place; their present nodes do not matter.
    pub pods: Vec<PodId>,
    /// Nodes that take no pods besides those marked for deletion: the candidates of a what-if. Their capacity does not count
    /// against limits (D-078).
    pub without_nodes: BTreeSet<NodeId>,
}

/// Places pods. Equal inputs give equal results, byte for byte.
pub fn pack(snapshot: &Snapshot, request: &PackRequest, options: &PackOptions) -> Packing {
    let mut pass = Pass::new(snapshot, request, options);
    pass.run(&request.pods);
    pass.finish()
}

/// A class after some steps of relaxation.
#[derive(Debug)]
struct Variant {
    constraints: Constraints,
    /// Requirements with the heaviest preference.
    all: SetId,
    /// Requirements without preferences.
    strict: SetId,
    bindings: Bindings,
    /// Nothing topological binds or counts it.
    plain: bool,
    volume_sets: Vec<SetId>,
    /// Existing nodes that may still take it.
    nodes: FixedBitSet,
    /// Templates whose taints it tolerates.
    templates: FixedBitSet,
    /// Planned claims that can no longer take it.
    failed_claims: FixedBitSet,
    /// Requests for which no template can open a claim any more, whatever happens in this pass.
    closed: BTreeSet<RequestId>,
}

#[derive(Debug, Default)]
struct Class {
    variants: Vec<Variant>,
    /// No further relaxation exists.
    complete: bool,
}

#[derive(Debug)]
struct Claim {
    template: usize,
    set: SetId,
    types: FixedBitSet,
    requests: ResourceVector,
    headroom: ResourceVector,
    ports: Vec<HostPort>,
    pods: Vec<PodId>,
    /// Reservations held: label and ID.
    reserved: BTreeSet<(String, String)>,
    /// minValues lowered for these keys.
    relaxed_min_values: BTreeMap<String, u32>,
}

/// What a NodePool may still grow by.
#[derive(Debug)]
struct Remaining {
    resources: Vec<Option<i64>>,
    nodes: Option<i64>,
}

pub(crate) struct Pass<'a> {
    snapshot: &'a Snapshot,
    options: &'a PackOptions,
    width: usize,
    algebra: Algebra<'a>,
    templates: Vec<Template<'a>>,
    skipped: Vec<(PoolId, SkippedPool)>,
    remaining: Vec<Remaining>,
    /// Instances left per reservation.
    reservations: BTreeMap<(String, String), i64>,
    topology: Topology,
    classes: Vec<Class>,
    tolerate_prefer_no_schedule: bool,
    usable_nodes: FixedBitSet,
    free: Vec<ResourceVector>,
    node_ports: Vec<Vec<HostPort>>,
    node_attachments: Vec<BTreeSet<(String, String)>>,
    node_pods: BTreeMap<NodeId, Vec<PodId>>,
    nodes_too_small: FxHashMap<RequestId, FixedBitSet>,
    claims: Vec<Claim>,
    /// Claims by number of pods.
    buckets: Vec<FixedBitSet>,
    claims_too_full: FxHashMap<RequestId, FixedBitSet>,
    placements: u64,
    unplaced: Vec<UnplacedPod>,
    statistics: Statistics,
}

/// Why an attempt found no place, as far as the pass must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Miss {
    /// Nothing that happens later in this pass can help.
    Final,
    /// A later placement may help.
    Open,
    /// Reserved capacity is used up.
    Reserved,
}

/// What each NodePool said to an attempt, for the reason and for what may be remembered.
struct Failure {
    refusals: Vec<PoolRefusal>,
    /// Nothing that happens later in this pass can help.
    is_final: bool,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, request: &PackRequest, options: &'a PackOptions) -> Self {
        let mut algebra = Algebra::new(&snapshot.well_known);
        let mut templates = Vec::new();
        let mut skipped = Vec::new();
        for pool in (0..snapshot.pools.len()).map(PoolId::from) {
            match Template::build(snapshot, pool, &mut algebra) {
                Ok(template) => templates.push(template),
                Err(why) => skipped.push((pool, why)),
            }
        }
        let remaining = templates
            .iter()
            .map(|template| setup::remaining(snapshot, template.pool, &request.without_nodes))
            .collect();
        let prefers = |template: &Template<'_>| {
            snapshot
                .pool(template.pool)
                .taints
                .iter()
                .any(|taint| taint.effect == taint::PREFER_NO_SCHEDULE)
        };
        let usable = snapshot.nodes.iter().enumerate().filter(|(index, node)| {
            !node.marked_for_deletion && !request.without_nodes.contains(&NodeId::from(*index))
        });
        let usable_nodes = bits(snapshot.nodes.len(), usable.map(|(index, _)| index));
        let batch: BTreeSet<PodId> = request.pods.iter().copied().collect();
        let mut pass = Pass {
            snapshot,
            options,
            width: snapshot.resources.width(),
            tolerate_prefer_no_schedule: templates.iter().any(prefers),
            reservations: setup::reservations(snapshot),
            topology: Topology::new(snapshot, setup::counted_pods(snapshot, &batch)),
            classes: snapshot.classes.iter().map(|_| Class::default()).collect(),
            free: setup::free_capacity(snapshot),
            node_ports: setup::node_ports(snapshot, &batch),
            node_attachments: setup::node_attachments(snapshot, &batch),
            node_pods: BTreeMap::new(),
            nodes_too_small: FxHashMap::with_hasher(FxBuildHasher),
            claims: Vec::new(),
            buckets: Vec::new(),
            claims_too_full: FxHashMap::with_hasher(FxBuildHasher),
            placements: 0,
            unplaced: Vec::new(),
            statistics: Statistics::default(),
            algebra,
            templates,
            skipped,
            remaining,
            usable_nodes,
        };
        pass.register_inverse(&batch);
        pass
    }

    /// Anti-affinity of bound pods keeps others away even when none of theirs is being placed (P-110).
    fn register_inverse(&mut self, batch: &BTreeSet<PodId>) {
        let bound = self.snapshot.pod_ids().filter(|pod| {
            let view = self.snapshot.pod(*pod);
            view.node.is_some() && view.active && !batch.contains(pod)
        });
        let owners: BTreeSet<ClassId> = bound
            .map(|pod| self.snapshot.pod(pod).class)
            .filter(|class| !self.snapshot.classes[class.index()].anti_affinity.is_empty())
            .collect();
        for class in owners {
            for group in self
                .topology
                .add_inverse(self.snapshot, class, &self.templates, &self.algebra)
            {
                self.topology.count_inverse(group, class);
            }
        }
        let classes: BTreeSet<ClassId> = batch.iter().map(|pod| self.snapshot.pod(*pod).class).collect();
        // Every group exists before the first placement, so that each placement is seen by all of them.
        for class in &classes {
            self.topology
                .add_inverse(self.snapshot, *class, &self.templates, &self.algebra);
        }
        for class in classes {
            self.variant(class, 0);
        }
    }

    /// These nodes take no pods any more, nor do the claims planned so far.
    pub(crate) fn withhold(&mut self, nodes: impl Iterator<Item = usize>) {
        for node in nodes {
            self.usable_nodes.set(node, false);
            for variant in self.classes.iter_mut().flat_map(|class| &mut class.variants) {
                variant.nodes.set(node, false);
            }
        }
        self.buckets.clear();
    }

    /// Takes a node away.
    pub(crate) fn remove(&mut self, node: NodeId) {
        let view = self.snapshot.node(node);
        self.usable_nodes.set(node.index(), false);
        for variant in self.classes.iter_mut().flat_map(|class| &mut class.variants) {
            variant.nodes.set(node.index(), false);
            variant.closed.clear();
        }
        for (template, remaining) in self.templates.iter().zip(&mut self.remaining) {
            if view.pool == Some(template.pool) && !view.marked_for_deletion {
                for (index, left) in remaining.resources.iter_mut().enumerate() {
                    let capacity = view.capacity.get(self.snapshot.resources.name(index));
                    *left = left.map(|left| left.saturating_add(capacity));
                }
                remaining.nodes = remaining.nodes.map(|left| left + 1);
            }
        }
    }

    pub(crate) fn run(&mut self, pods: &[PodId]) {
        let mut order: Vec<PodId> = pods.to_vec();
        let snapshot = self.snapshot;
        let created = |pod: PodId| {
            snapshot
                .pod(pod)
                .object
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0)
        };
        order.sort_by(|left, right| {
            let (a, b) = (snapshot.requests(*left), snapshot.requests(*right));
            (b[CPU], b[MEMORY])
                .cmp(&(a[CPU], a[MEMORY]))
                .then_with(|| created(*left).cmp(&created(*right)))
                .then_with(|| (snapshot.pod(*left).uid(), *left).cmp(&(snapshot.pod(*right).uid(), *right)))
        });
        let mut queue: VecDeque<PodId> = order.into();
        let mut pushed_at: FxHashMap<PodId, usize> = FxHashMap::with_hasher(FxBuildHasher);
        let mut failed: FxHashMap<(ClassId, RequestId), (u64, bool, Arc<Reason>)> =
            FxHashMap::with_hasher(FxBuildHasher);
        let mut reasons: BTreeMap<PodId, Arc<Reason>> = BTreeMap::new();
        while let Some(pod) = queue.pop_front() {
            if pushed_at.get(&pod) == Some(&(queue.len() + 1)) {
                break;
            }
            let view = snapshot.pod(pod);
            let shape = (view.class, view.request);
            // Attach limits tell pods of one shape apart, so what one could not, another may.
            let known = failed.get(&shape).filter(|(placements, is_final, _)| {
                view.attachments.is_empty() && (*is_final || *placements == self.placements)
            });
            let (is_final, reason) = match known {
                Some((_, is_final, reason)) => (*is_final, Arc::clone(reason)),
                None => match self.place(pod) {
                    Ok(()) => {
                        reasons.remove(&pod);
                        continue;
                    }
                    Err((is_final, reason)) => {
                        let reason = Arc::new(reason);
                        failed.insert(shape, (self.placements, is_final, Arc::clone(&reason)));
                        (is_final, reason)
                    }
                },
            };
            reasons.insert(pod, reason);
            if !is_final {
                queue.push_back(pod);
                pushed_at.insert(pod, queue.len());
            }
        }
        self.unplaced.extend(
            reasons
                .into_iter()
                .map(|(pod, reason)| UnplacedPod { pod, reason }),
        );
    }

    /// Tries a pod with all its preferences, then with one fewer at a time.
    fn place(&mut self, pod: PodId) -> Result<(), (bool, Reason)> {
        let class = self.snapshot.pod(pod).class;
        if self.snapshot.classes[class.index()].uses_resource_claims {
            return Err((true, Reason::DynamicResources));
        }
        let mut is_final = true;
        let mut step = 0;
        loop {
            if !self.variant(class, step) {
                break;
            }
            self.statistics.attempts += 1;
            match self.attempt(pod, class, step) {
                Ok(()) => return Ok(()),
                // No relaxation: the pod waits for a pass in which the reservation is free or gone (P-119).
                Err(Miss::Reserved) => {
                    return Err((false, Reason::ReservedOfferings { would_remove: false }));
                }
                Err(Miss::Final) => {}
                Err(Miss::Open) => is_final = false,
            }
            step += 1;
        }
        let failure = self.explain(pod, class, step - 1);
        let reason = if self.templates.is_empty() {
            if self
                .skipped
                .iter()
                .all(|(_, why)| *why == SkippedPool::NotProvisionable)
            {
                Reason::NoNodePools
            } else {
                Reason::NoTemplates
            }
        } else {
            Reason::Pools(failure.refusals)
        };
        Err((is_final && failure.is_final, reason))
    }

    /// Makes the variant exist; false when the class cannot be relaxed that far.
    fn variant(&mut self, class: ClassId, step: usize) -> bool {
        while self.classes[class.index()].variants.len() <= step {
            let state = &self.classes[class.index()];
            let constraints = match state.variants.last() {
                None => match self.options.preferences {
                    PreferencePolicy::Respect => self.snapshot.classes[class.index()].clone(),
                    PreferencePolicy::Ignore => without_preferences(&self.snapshot.classes[class.index()]),
                },
                Some(_) if state.complete => return false,
                Some(last) => {
                    let mut relaxed = last.constraints.clone();
                    if !relax(&mut relaxed, self.tolerate_prefer_no_schedule) {
                        self.classes[class.index()].complete = true;
                        return false;
                    }
                    relaxed
                }
            };
            let variant = self.build_variant(class, constraints);
            self.classes[class.index()].variants.push(variant);
        }
        true
    }

    fn build_variant(&mut self, class: ClassId, constraints: Constraints) -> Variant {
        let all = self.algebra.intern(constraints.all_requirements());
        let strict = self.algebra.intern(constraints.strict_requirements());
        let bindings = self
            .topology
            .bind(self.snapshot, class, &constraints, &self.templates, &self.algebra);
        let plain = self.topology.is_free(class, &bindings) && !self.topology.is_counted(class, &bindings);
        let volume_sets = constraints
            .volume_terms
            .iter()
            .map(|term| self.algebra.intern(term.clone()))
            .collect();
        let asked = self.algebra.shared(all);
        let none = BTreeSet::new();
        let accepts: Vec<bool> = self
            .snapshot
            .kinds
            .iter()
            .map(|kind| {
                taint::first_untolerated(&kind.taints, &constraints.tolerations).is_none()
                    && kind.requirements.compatible(&asked, &none).is_ok()
                    && (constraints.volume_terms.is_empty()
                        || constraints
                            .volume_terms
                            .iter()
                            .any(|term| kind.requirements.compatible(term, &none).is_ok()))
            })
            .collect();
        let nodes = self
            .usable_nodes
            .ones()
            .filter(|node| accepts[self.snapshot.nodes[*node].kind.index()]);
        let tolerated = self.templates.iter().enumerate().filter(|(_, template)| {
            taint::first_untolerated(
                &self.snapshot.pool(template.pool).taints,
                &constraints.tolerations,
            )
            .is_none()
        });
        Variant {
            nodes: bits(self.snapshot.nodes.len(), nodes),
            templates: bits(self.templates.len(), tolerated.map(|(index, _)| index)),
            failed_claims: FixedBitSet::new(),
            closed: BTreeSet::new(),
            constraints,
            all,
            strict,
            bindings,
            plain,
            volume_sets,
        }
    }
}
