//! The packing pass: first-fit-decreasing over existing nodes, planned NodeClaims and new ones (P §6.2–6.7, §6.17).
//!
//! State changes only through `Pass::put_on_node`, `put_on_claim` and `open_claim`. Failures that can no longer change in a pass are remembered
//! as bits, per class (constraints) and per distinct request (resources), so that each (class, node), (request, node), (class, claim)
//! and (request, claim) pair is found wanting at most once.

use crate::algebra::{Algebra, SetId};
use crate::outcome::{Packing, Statistics, UnplacedPod};
use crate::relax::{PreferencePolicy, relax, without_preferences};
use crate::template::{SkippedPool, Template, bits, daemon_alternatives};
use crate::topology::{Bindings, Host, Topology};
use fixedbitset::FixedBitSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::{Constraints, HostPort};
use spokeshave_model::placement::{Launch, Placements, PlannedClaim};
use spokeshave_model::reason::{FilterFailure, Obstacle, PoolRefusal, Reason};
use spokeshave_model::snapshot::{ClassId, KindId, NodeId, PodId, PoolId, RequestId, Snapshot};
use spokeshave_model::vector::{CPU, MEMORY, ResourceVector};
use spokeshave_model::{ResourceName, labels, taint};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
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

/// Policy of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackOptions {
    /// Preferences.
    pub preferences: PreferencePolicy,
    /// minValues.
    pub min_values: MinValuesPolicy,
    /// How many instance types a NodeClaim names at most; 600 (P §0.1).
    pub instance_types_per_claim: usize,
}

impl Default for PackOptions {
    fn default() -> Self {
        PackOptions {
            preferences: PreferencePolicy::Respect,
            min_values: MinValuesPolicy::Strict,
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
    /// minValues lowered for these keys.
    relaxed_min_values: BTreeMap<String, u32>,
}

/// What a NodePool may still grow by.
#[derive(Debug)]
struct Remaining {
    resources: Vec<Option<i64>>,
    nodes: Option<i64>,
}

struct Pass<'a> {
    snapshot: &'a Snapshot,
    options: &'a PackOptions,
    width: usize,
    algebra: Algebra<'a>,
    templates: Vec<Template<'a>>,
    skipped: Vec<(PoolId, SkippedPool)>,
    remaining: Vec<Remaining>,
    topology: Topology,
    classes: Vec<Class>,
    tolerate_prefer_no_schedule: bool,
    usable_nodes: FixedBitSet,
    free: Vec<ResourceVector>,
    node_ports: Vec<Vec<HostPort>>,
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

/// One attempt's failure, for the reason and for what may be remembered.
struct Failure {
    refusals: Vec<PoolRefusal>,
    /// Nothing that happens later in this pass can help.
    is_final: bool,
}

impl<'a> Pass<'a> {
    fn new(snapshot: &'a Snapshot, request: &PackRequest, options: &'a PackOptions) -> Self {
        let mut algebra = Algebra::new(&snapshot.well_known);
        let mut templates = Vec::new();
        let mut skipped = Vec::new();
        for pool in (0..snapshot.pools.len()).map(PoolId::from) {
            match Template::build(snapshot, pool, &mut algebra, true) {
                Ok(template) => templates.push(template),
                Err(why) => skipped.push((pool, why)),
            }
        }
        let remaining = templates
            .iter()
            .map(|template| remaining(snapshot, template.pool, &request.without_nodes))
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
            topology: Topology::new(snapshot, counted_pods(snapshot, &batch)),
            classes: snapshot.classes.iter().map(|_| Class::default()).collect(),
            free: free_capacity(snapshot),
            node_ports: node_ports(snapshot, &batch),
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

    fn run(&mut self, pods: &[PodId]) {
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
            let known = failed
                .get(&shape)
                .filter(|(placements, is_final, _)| *is_final || *placements == self.placements);
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
                Err(attempt_is_final) => is_final &= attempt_is_final,
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

    /// One attempt; the error says whether it is final for this pass.
    fn attempt(&mut self, pod: PodId, class: ClassId, step: usize) -> Result<(), bool> {
        if self.try_nodes(pod, class, step) || self.try_claims(pod, class, step) {
            self.placements += 1;
            return Ok(());
        }
        self.try_new_claim(pod, class, step)
            .inspect(|()| self.placements += 1)
    }

    fn try_nodes(&mut self, pod: PodId, class: ClassId, step: usize) -> bool {
        let request_id = self.snapshot.pod(pod).request;
        let requests = &self.snapshot.requests[request_id.index()];
        let variant = &mut self.classes[class.index()].variants[step];
        let count = self.snapshot.nodes.len();
        let too_small = self
            .nodes_too_small
            .entry(request_id)
            .or_insert_with(|| FixedBitSet::with_capacity(count));
        let mut found = None;
        let mut gone = Vec::new();
        for index in variant.nodes.difference(too_small).collect::<Vec<_>>() {
            self.statistics.nodes_tried += 1;
            if !requests.fits(&self.free[index]) || self.free[index].has_negative() {
                too_small.insert(index);
                continue;
            }
            let taken = &self.node_ports[index];
            if variant
                .constraints
                .host_ports
                .iter()
                .any(|port| taken.iter().any(|other| other.conflicts_with(port)))
            {
                gone.push(index);
                continue;
            }
            if variant.plain {
                found = Some(index);
                break;
            }
            let host = Host::Node(NodeId::from(index));
            match self
                .topology
                .narrow(class, &variant.bindings, variant.strict, host, &mut self.algebra)
            {
                Ok(_) => {
                    found = Some(index);
                    break;
                }
                Err(refusal) if refusal.final_ => gone.push(index),
                Err(_) => {}
            }
        }
        for index in gone {
            variant.nodes.set(index, false);
        }
        let Some(index) = found else { return false };
        let node = NodeId::from(index);
        self.free[index].subtract(requests);
        self.node_ports[index].extend(variant.constraints.host_ports.iter().cloned());
        self.node_pods.entry(node).or_default().push(pod);
        if !variant.plain {
            self.topology.record(
                self.snapshot,
                class,
                &variant.bindings,
                Host::Node(node),
                &self.algebra,
            );
        }
        true
    }

    fn try_claims(&mut self, pod: PodId, class: ClassId, step: usize) -> bool {
        let request_id = self.snapshot.pod(pod).request;
        self.claims_too_full.entry(request_id).or_default();
        for bucket in 0..self.buckets.len() {
            if self.buckets[bucket].is_clear() {
                continue;
            }
            let variant = &self.classes[class.index()].variants[step];
            let mut open = self.buckets[bucket].clone();
            open.difference_with(&variant.failed_claims);
            open.difference_with(&self.claims_too_full[&request_id]);
            for index in open.ones() {
                self.statistics.claims_tried += 1;
                if let Some((set, types)) = self.accepts(pod, class, step, index) {
                    self.put_on_claim(pod, class, step, index, set, types);
                    return true;
                }
            }
        }
        false
    }

    /// Whether a planned claim takes the pod, and what it then is. Remembers failures that are final.
    fn accepts(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        index: usize,
    ) -> Option<(SetId, FixedBitSet)> {
        let request_id = self.snapshot.pod(pod).request;
        let requests = &self.snapshot.requests[request_id.index()];
        let claim = &self.claims[index];
        if !requests.fits(&claim.headroom) {
            self.claims_too_full
                .entry(request_id)
                .or_default()
                .grow_and_insert(index);
            return None;
        }
        let variant = &mut self.classes[class.index()].variants[step];
        let ports = &variant.constraints.host_ports;
        let conflict = ports
            .iter()
            .any(|port| claim.ports.iter().any(|other| other.conflicts_with(port)));
        if conflict || !variant.templates.contains(claim.template) {
            variant.failed_claims.grow_and_insert(index);
            return None;
        }
        let Some(joined) = self.algebra.join(claim.set, variant.all) else {
            variant.failed_claims.grow_and_insert(index);
            return None;
        };
        let host = |set| Host::Planned { index, set };
        let set = match self.narrow(class, step, joined, host) {
            Ok(set) => set,
            Err(is_final) => {
                if is_final {
                    self.classes[class.index()].variants[step]
                        .failed_claims
                        .grow_and_insert(index);
                }
                return None;
            }
        };
        let claim = &self.claims[index];
        let total = claim.requests.plus(requests);
        let mut types = claim.types.clone();
        let template = &mut self.templates[claim.template];
        if set != claim.set {
            types.intersect_with(&template.facts(set, &self.algebra).both);
        }
        if types.is_clear() {
            return None;
        }
        let variant = &self.classes[class.index()].variants[step];
        let ports: Vec<HostPort> = claim
            .ports
            .iter()
            .chain(&variant.constraints.host_ports)
            .cloned()
            .collect();
        template.keep_fitting(&mut types, &total, &ports);
        if types.is_clear() {
            return None;
        }
        let wanted = self.algebra.get(set);
        if wanted.has_min_values() && template.check_min_values(&types, wanted).is_err() {
            return None;
        }
        Some((set, types))
    }

    /// Applies volume alternatives and topology to a joined requirement set.
    fn narrow(
        &mut self,
        class: ClassId,
        step: usize,
        joined: SetId,
        host: impl Fn(SetId) -> Host,
    ) -> Result<SetId, bool> {
        let variant = &self.classes[class.index()].variants[step];
        if variant.plain && variant.volume_sets.is_empty() {
            return Ok(joined);
        }
        let alternatives: Vec<Option<SetId>> = if variant.volume_sets.is_empty() {
            vec![None]
        } else {
            variant.volume_sets.iter().copied().map(Some).collect()
        };
        let mut is_final = true;
        for alternative in alternatives {
            let base = match alternative {
                None => Some(joined),
                Some(volume) => self.algebra.join(joined, volume),
            };
            let Some(base) = base else { continue };
            let variant = &self.classes[class.index()].variants[step];
            match self.topology.narrow(
                class,
                &variant.bindings,
                variant.strict,
                host(base),
                &mut self.algebra,
            ) {
                Ok(set) => return Ok(set.unwrap_or(base)),
                Err(refusal) => is_final &= refusal.final_,
            }
        }
        Err(is_final)
    }

    fn put_on_claim(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        index: usize,
        set: SetId,
        types: FixedBitSet,
    ) {
        let requests = self.snapshot.requests(pod);
        let claim = &mut self.claims[index];
        let count = claim.pods.len();
        claim.requests.add(requests);
        claim.pods.push(pod);
        claim.set = set;
        let variant = &self.classes[class.index()].variants[step];
        claim.ports.extend(variant.constraints.host_ports.iter().cloned());
        claim.headroom = self.templates[claim.template].headroom(&types, self.width);
        claim.headroom.subtract(&claim.requests);
        claim.types = types;
        if let Some(bucket) = self.buckets.get_mut(count) {
            if bucket.contains(index) {
                bucket.set(index, false);
            }
        }
        if self.buckets.len() <= count + 1 {
            self.buckets.resize_with(count + 2, FixedBitSet::new);
        }
        self.buckets[count + 1].grow_and_insert(index);
        if !variant.plain {
            let host = Host::Planned { index, set };
            self.topology
                .record(self.snapshot, class, &variant.bindings, host, &self.algebra);
        }
    }

    fn try_new_claim(&mut self, pod: PodId, class: ClassId, step: usize) -> Result<(), bool> {
        let request_id = self.snapshot.pod(pod).request;
        if self.classes[class.index()].variants[step]
            .closed
            .contains(&request_id)
        {
            return Err(true);
        }
        let mut is_final = true;
        for template in 0..self.templates.len() {
            match self.open_on(pod, class, step, template) {
                Ok((set, types, relaxed)) => {
                    let index = self.open_claim(template, relaxed);
                    self.put_on_claim(pod, class, step, index, set, types);
                    self.charge(index);
                    return Ok(());
                }
                Err((_, template_is_final)) => is_final &= template_is_final,
            }
        }
        if is_final {
            self.classes[class.index()].variants[step]
                .closed
                .insert(request_id);
        }
        Err(is_final)
    }

    /// Whether a template could open a claim for the pod; otherwise the obstacle, and whether it is final.
    fn open_on(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        template: usize,
    ) -> Result<(SetId, FixedBitSet, BTreeMap<String, u32>), (Obstacle, bool)> {
        let requests = self.snapshot.requests(pod);
        let pool = self.snapshot.pool(self.templates[template].pool);
        if self.remaining[template].nodes.is_some_and(|left| left <= 0) {
            return Err((Obstacle::NodeLimit, true));
        }
        let mut candidates = self.templates[template].eligible.clone();
        self.templates[template].keep_within(&mut candidates, &self.remaining[template].resources);
        if candidates.is_clear() {
            return Err((Obstacle::Limits, true));
        }
        let variant = &self.classes[class.index()].variants[step];
        if !variant.templates.contains(template) {
            let taint = taint::first_untolerated(&pool.taints, &variant.constraints.tolerations);
            return Err((
                Obstacle::Taint(taint.map(taint::format_taint).unwrap_or_default()),
                true,
            ));
        }
        let base = self.templates[template].set;
        let Some(joined) = self.algebra.join(base, variant.all) else {
            let why = self.algebra.why_not(base, variant.all);
            return Err((why.map_or(Obstacle::NodeResources, Obstacle::Incompatible), true));
        };
        let index = self.claims.len();
        let set = match self.narrow(class, step, joined, |set| Host::Planned { index, set }) {
            Ok(set) => set,
            Err(is_final) => return Err((self.explain_narrow(class, step, joined, index), is_final)),
        };
        let variant = &self.classes[class.index()].variants[step];
        let ports = &variant.constraints.host_ports;
        let facts = self.templates[template].facts(set, &self.algebra);
        let mut types = candidates.clone();
        types.intersect_with(&facts.both);
        self.templates[template].keep_fitting(&mut types, requests, ports);
        let refuse = |failure| self.filter_obstacle(template, set, requests, failure);
        if types.is_clear() {
            let failure = self.templates[template].explain(&candidates, &facts, requests, ports);
            // A domain chosen by topology may be another one next time.
            return Err((refuse(failure), set == joined || variant.plain));
        }
        let wanted = self.algebra.get(set);
        let mut relaxed = BTreeMap::new();
        if wanted.has_min_values() {
            if let Err(reached) = self.templates[template].check_min_values(&types, wanted) {
                match self.options.min_values {
                    MinValuesPolicy::Strict => {
                        return Err((
                            refuse(FilterFailure::MinValues(reached)),
                            set == joined || variant.plain,
                        ));
                    }
                    MinValuesPolicy::BestEffort => relaxed = reached,
                }
            }
        }
        let set = if relaxed.is_empty() {
            set
        } else {
            self.lower_min_values(set, &relaxed)
        };
        Ok((set, types, relaxed))
    }

    fn lower_min_values(&mut self, set: SetId, reached: &BTreeMap<String, u32>) -> SetId {
        let mut lowered = self.algebra.get(set).clone();
        for (key, count) in reached {
            if let Some(mut requirement) = lowered.find(key).cloned() {
                requirement.set_min_values(Some(*count));
                lowered.replace(requirement);
            }
        }
        self.algebra.intern(lowered)
    }

    fn filter_obstacle(
        &self,
        template: usize,
        set: SetId,
        requests: &ResourceVector,
        failure: FilterFailure,
    ) -> Obstacle {
        let totals: Vec<ResourceVector> = self.templates[template]
            .groups
            .iter()
            .map(|group| requests.plus(&group.overhead))
            .collect();
        let fold = |pick: fn(&mut ResourceVector, &ResourceVector)| {
            let folded = totals.iter().cloned().reduce(|mut all, next| {
                pick(&mut all, &next);
                all
            });
            self.snapshot
                .resources
                .resources(&folded.unwrap_or_else(|| requests.clone()))
        };
        Obstacle::InstanceTypes {
            failure,
            requirements: shown(self.algebra.get(set)),
            min: fold(ResourceVector::lower_to),
            max: fold(ResourceVector::raise_to),
        }
    }

    fn explain_narrow(&mut self, class: ClassId, step: usize, joined: SetId, index: usize) -> Obstacle {
        let variant = &self.classes[class.index()].variants[step];
        let base = match variant.volume_sets.first() {
            None => joined,
            Some(volume) => match self.algebra.join(joined, *volume) {
                Some(base) => base,
                None => {
                    let why = self.algebra.why_not(joined, *volume);
                    return why.map_or(Obstacle::NodeResources, Obstacle::Volume);
                }
            },
        };
        let host = Host::Planned { index, set: base };
        match self
            .topology
            .narrow(class, &variant.bindings, variant.strict, host, &mut self.algebra)
        {
            Err(refusal) => self
                .topology
                .explain(refusal, variant.strict, base, &self.algebra),
            Ok(_) => Obstacle::NodeResources,
        }
    }

    fn explain(&mut self, pod: PodId, class: ClassId, step: usize) -> Failure {
        let mut failure = Failure {
            refusals: Vec::new(),
            is_final: true,
        };
        for template in 0..self.templates.len() {
            if let Err((obstacle, is_final)) = self.open_on(pod, class, step, template) {
                let pool = self.snapshot.pool(self.templates[template].pool).name.clone();
                failure.is_final &= is_final;
                failure.refusals.push(PoolRefusal { pool, obstacle });
            }
        }
        // A pod bound by topology to existing or planned hosts may find one later.
        failure.is_final &= self.classes[class.index()].variants[step]
            .bindings
            .groups
            .is_empty();
        failure
    }

    fn open_claim(&mut self, template: usize, relaxed_min_values: BTreeMap<String, u32>) -> usize {
        self.claims.push(Claim {
            template,
            set: self.templates[template].set,
            types: FixedBitSet::new(),
            requests: ResourceVector::zero(self.width),
            headroom: ResourceVector::zero(self.width),
            ports: Vec::new(),
            pods: Vec::new(),
            relaxed_min_values,
        });
        self.claims.len() - 1
    }
}

impl Pass<'_> {
    /// P-093: charges a new claim against its pool's limits, with the largest capacity it could turn out to have.
    fn charge(&mut self, index: usize) {
        let claim = &self.claims[index];
        let remaining = &mut self.remaining[claim.template];
        if let Some(nodes) = &mut remaining.nodes {
            *nodes -= 1;
        }
        if remaining.resources.iter().any(Option::is_some) {
            let largest = self.templates[claim.template].largest_capacity(&claim.types, self.width);
            for (left, used) in remaining.resources.iter_mut().zip(&largest.0) {
                if let Some(left) = left {
                    *left = left.saturating_sub(*used);
                }
            }
        }
    }

    fn finish(mut self) -> Packing {
        let mut claims = Vec::new();
        let mut orders: FxHashMap<(usize, SetId), Rc<Vec<Launch>>> = FxHashMap::with_hasher(FxBuildHasher);
        for claim in std::mem::take(&mut self.claims) {
            let template = &self.templates[claim.template];
            let requirements = self.algebra.get(claim.set);
            let order = orders.entry((claim.template, claim.set)).or_insert_with(|| {
                Rc::new(template.by_price(&template.eligible, requirements, &self.algebra))
            });
            let kept = bits(
                template.eligible.len().max(1),
                template.type_indexes(&claim.types),
            );
            let launches: Vec<_> = order
                .iter()
                .filter(|launch| kept.contains(launch.instance_type))
                .take(self.options.instance_types_per_claim)
                .cloned()
                .collect();
            if requirements.has_min_values() {
                let types = launches
                    .iter()
                    .map(|launch| template.instance_type(launch.instance_type));
                if let Err(reached) = requirements.satisfies_min_values(types) {
                    if self.options.min_values == MinValuesPolicy::Strict {
                        let pool = self.snapshot.pool(template.pool).name.clone();
                        let reason = Arc::new(Reason::TruncatedMinValues {
                            pool,
                            failure: FilterFailure::MinValues(reached),
                        });
                        self.unplaced.extend(claim.pods.iter().map(|pod| UnplacedPod {
                            pod: *pod,
                            reason: Arc::clone(&reason),
                        }));
                        continue;
                    }
                }
            }
            let mut requests = claim.requests.clone();
            if let Some(overhead) = template.least_overhead(&claim.types) {
                requests.add(&overhead);
            }
            claims.push(PlannedClaim {
                pool: template.pool,
                launches,
                capacity_types: template.capacity_types(&claim.types, requirements, &self.algebra),
                requirements: shown(requirements),
                requests: self.snapshot.resources.resources(&requests),
                min_values_relaxed: !claim.relaxed_min_values.is_empty(),
                pods: claim.pods,
            });
        }
        self.unplaced.sort_by_key(|unplaced| unplaced.pod);
        Packing {
            placements: Placements {
                claims,
                existing: self.node_pods,
            },
            unplaced: self.unplaced,
            skipped_pools: self.skipped,
            statistics: self.statistics,
        }
    }
}

/// Without the keys that exist in the simulation only.
fn shown(requirements: &spokeshave_model::Requirements) -> spokeshave_model::Requirements {
    let mut shown = requirements.clone();
    for key in [labels::HOSTNAME, labels::REGISTERED, labels::INITIALIZED] {
        shown.remove(key);
    }
    shown
}

fn remaining(snapshot: &Snapshot, pool: PoolId, without: &BTreeSet<NodeId>) -> Remaining {
    let view = snapshot.pool(pool);
    let mut usage = view.usage.clone();
    let freed = without.iter().map(|node| snapshot.node(*node));
    for node in freed.filter(|node| node.pool == Some(pool) && !node.marked_for_deletion) {
        let mut capacity = node.capacity.clone();
        capacity.set(ResourceName::NODES, 1);
        usage.subtract(&capacity);
    }
    let left = |name: &str| {
        view.limits
            .contains(name)
            .then(|| view.limits.get(name).saturating_sub(usage.get(name)))
    };
    Remaining {
        resources: (0..snapshot.resources.width())
            .map(|index| left(snapshot.resources.name(index)))
            .collect(),
        nodes: left(ResourceName::NODES),
    }
}

/// P §6.1: allocatable minus what is bound minus what DaemonSets will still take.
fn free_capacity(snapshot: &Snapshot) -> Vec<ResourceVector> {
    let width = snapshot.resources.width();
    let mut expected: FxHashMap<KindId, ResourceVector> = FxHashMap::with_hasher(FxBuildHasher);
    let none = BTreeSet::new();
    let free = snapshot.nodes.iter().map(|node| {
        let daemons = expected.entry(node.kind).or_insert_with(|| {
            let kind = &snapshot.kinds[node.kind.index()];
            let mut sum = ResourceVector::zero(width);
            for daemon in snapshot
                .daemons
                .iter()
                .filter(|daemon| !daemon.constraints.uses_resource_claims)
            {
                let tolerated =
                    taint::first_untolerated(&kind.taints, &daemon.constraints.tolerations).is_none();
                let wanted = daemon_alternatives(daemon);
                if tolerated
                    && wanted
                        .iter()
                        .any(|strict| kind.requirements.compatible(strict, &none).is_ok())
                {
                    sum.add(&daemon.requests);
                }
            }
            sum
        });
        let mut free = node.allocatable.clone();
        free.subtract(&node.requested);
        for (index, left) in free.0.iter_mut().enumerate() {
            *left = left.saturating_sub((daemons[index] - node.daemon_requested[index]).max(0));
        }
        free
    });
    free.collect()
}

/// Bound, running pods outside the batch, by class and node (P-107).
fn counted_pods(snapshot: &Snapshot, batch: &BTreeSet<PodId>) -> Vec<(ClassId, NodeId, u32)> {
    let mut counted: BTreeMap<(ClassId, NodeId), u32> = BTreeMap::new();
    for pod in snapshot.pod_ids().filter(|pod| !batch.contains(pod)) {
        let view = snapshot.pod(pod);
        if let (Some(node), true) = (view.node, view.active) {
            *counted.entry((view.class, node)).or_insert(0) += 1;
        }
    }
    counted
        .into_iter()
        .map(|((class, node), number)| (class, node, number))
        .collect()
}

fn node_ports(snapshot: &Snapshot, batch: &BTreeSet<PodId>) -> Vec<Vec<HostPort>> {
    let ports = snapshot.nodes.iter().map(|node| {
        let pods = node
            .pods
            .iter()
            .filter(|pod| !batch.contains(pod) && !snapshot.pod(**pod).terminal);
        pods.flat_map(|pod| snapshot.constraints(*pod).host_ports.iter().cloned())
            .collect()
    });
    ports.collect()
}
