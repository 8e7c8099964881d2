//! The packing pass: first-fit-decreasing over existing nodes, planned NodeClaims and new ones (P §6.2–6.7, §6.17).
//!
//! `Engine` holds the state of placing on one Snapshot: tables that only grow (by class, by requirement set, by request), and the state proper, which
//! changes only in `apply` and can be taken back there. Failures that can no longer change are remembered as bits, so that each (request, node),
//! (class, claim) and (request, claim) pair is found wanting at most once. It never looks at a clock or creates an object.

mod apply;
mod ask;
mod attempt;
mod bucket;
mod claims;
mod explain;
mod finish;
mod orders;
mod run;
mod setup;
mod zones;

#[cfg(debug_assertions)]
pub(crate) use apply::Fingerprint;
pub(crate) use apply::Mark;
pub use orders::{ClaimOrder, pack_cheapest};
pub use zones::effective_zones;

use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use crate::outcome::{Packing, Statistics};
use crate::relax::{PreferencePolicy, relax, without_preferences};
use crate::template::{Numbers, Reservations, SkippedPool, Template, TypeTables};
use crate::topology::{Bindings, Topology};
use apply::Undo;
use bucket::Bucket;
use run::Queue;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use spokeshave_model::constraints::Constraints;
use spokeshave_model::placement::Launch;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, PoolId, RequestId, Snapshot};
use spokeshave_model::taint;
use spokeshave_model::vector::ResourceVector;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
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
    /// What is known of instance types from Snapshot to Snapshot; it changes nothing but the time that it takes.
    pub tables: TypeTables,
}

impl Default for PackOptions {
    fn default() -> Self {
        PackOptions {
            preferences: PreferencePolicy::Respect,
            min_values: MinValuesPolicy::Strict,
            reserved: ReservedPolicy::Strict,
            instance_types_per_claim: 600,
            tables: TypeTables::default(),
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
    let mut engine = Engine::new(snapshot, options);
    for node in &request.without_nodes {
        engine.remove_node(*node);
    }
    engine.place(&request.pods);
    engine.packing(Mark::default())
}

/// A class after some steps of relaxation.
#[derive(Clone, Debug)]
struct Variant<'a> {
    constraints: Cow<'a, Constraints>,
    /// Requirements with the heaviest preference.
    all: SetId,
    /// Requirements without preferences.
    strict: SetId,
    bindings: Bindings,
    /// Nothing topological binds it.
    is_free: bool,
    volume_sets: Vec<SetId>,
    /// Host ports, by number.
    ports: SmallVec<[u32; 2]>,
    /// Existing nodes whose kind accepts it. Most classes have the same.
    nodes: Arc<Bits>,
    /// Templates whose taints it tolerates.
    templates: Bits,
    /// Planned claims that can no longer take it, as of `epoch`.
    failed_claims: Bits,
    /// Requests for which no template can open a claim any more, as of `epoch`.
    closed: Vec<RequestId>,
    epoch: u64,
}

#[derive(Clone, Debug, Default)]
struct Class<'a> {
    variants: Vec<Variant<'a>>,
    /// No further relaxation exists.
    complete: bool,
}

/// A node that will be launched.
#[derive(Clone, Debug, Default)]
struct Claim {
    template: usize,
    set: Option<SetId>,
    types: Bits,
    requests: ResourceVector,
    headroom: ResourceVector,
    ports: SmallVec<[u32; 4]>,
    pods: usize,
    /// Placements made before its last pod.
    grown: usize,
    /// Reservations held, by number, in order.
    reserved: Reservations,
    /// minValues lowered for these keys.
    relaxed_min_values: BTreeMap<String, u32>,
}

/// What a NodePool may still grow by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remaining {
    /// By resource; `UNLIMITED` without a limit.
    resources: Vec<i64>,
    nodes: i64,
}

/// A set of claims, as of an epoch.
#[derive(Clone, Debug, Default)]
struct EpochBits {
    bits: Bits,
    epoch: u64,
}

/// The state of placing pods on one Snapshot.
#[derive(Clone)]
pub(crate) struct Engine<'a> {
    snapshot: &'a Snapshot,
    options: &'a PackOptions,
    claim_order: ClaimOrder,
    width: usize,
    // Tables: they depend on the Snapshot only and grow on demand.
    algebra: Algebra<'a>,
    numbers: Numbers<'a>,
    templates: Vec<Template>,
    skipped: Vec<(PoolId, SkippedPool)>,
    classes: Vec<Class<'a>>,
    tolerate_prefer_no_schedule: bool,
    kind_nodes: Vec<Bits>,
    /// Nodes that are not marked for deletion.
    usable_at_first: Bits,
    accepting: FxHashMap<SetId, Arc<Bits>>,
    price_orders: FxHashMap<(usize, SetId), Arc<Vec<Launch>>>,
    shortlists: FxHashMap<(usize, SetId, Bits), finish::Shortlist>,
    node_limits: FxHashMap<NodeId, Vec<(u32, i64)>>,
    pod_attachments: FxHashMap<PodId, SmallVec<[u32; 2]>>,
    // State: changed and taken back in `apply`.
    topology: Topology<'a>,
    remaining: Vec<Remaining>,
    reservations: Vec<i64>,
    usable: Bits,
    /// Claims are opened on this template and those after it (W-04).
    first_template: usize,
    /// Free capacity of each node, `width` numbers each.
    free: Vec<i64>,
    /// The same outside of all forks: what is too small there is too small for good.
    settled_free: Vec<i64>,
    /// Placements that `settled_free` knows of.
    settled: usize,
    node_ports: FxHashMap<NodeId, Vec<u32>>,
    node_attachments: FxHashMap<NodeId, Vec<u32>>,
    /// Pods that no longer count where they are bound.
    uncounted: Bits,
    claims: Vec<Claim>,
    /// How many of `claims` exist; those beyond are kept for their memory.
    live: usize,
    /// Claims below this number take no pods any more.
    closed_claims: usize,
    /// Claims by number of pods.
    buckets: Vec<Bucket>,
    placed: Vec<Placed>,
    // Memory of failures.
    nodes_too_small: Vec<Bits>,
    /// Per request: how many words of nodes from the first on are all too small for good.
    full_words: Vec<u32>,
    /// Entries of the log about nodes that are too small for now.
    too_small_for_now: usize,
    claims_too_full: Vec<EpochBits>,
    /// Grows whenever something may have become possible again.
    epoch: u64,
    // Log.
    forks: usize,
    log: Vec<Undo>,
    saved: Vec<Claim>,
    saved_live: usize,
    // What the last `place` left over.
    unplaced: Vec<Unplaced>,
    queue: Queue,
    statistics: Statistics,
    scratch: Scratch,
}

/// Buffers of one attempt.
#[derive(Clone, Debug, Default)]
struct Scratch {
    nodes: Bits,
    claims: Bits,
    types: Bits,
    reserved: Reservations,
    total: ResourceVector,
    ports: SmallVec<[u32; 4]>,
    /// Claims, each with when it got its last pod.
    candidates: Vec<(usize, usize)>,
}

/// A placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    pod: PodId,
    on: On,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Node(NodeId),
    Claim(usize),
}

/// A pod without a place, and what must be known to say why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unplaced {
    pod: PodId,
    miss: Miss,
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

impl<'a> Engine<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, options: &'a PackOptions) -> Self {
        let mut algebra = Algebra::new(&snapshot.well_known);
        let mut numbers = Numbers::new();
        let (mut templates, mut skipped) = (Vec::new(), Vec::new());
        let tables = &options.tables;
        let relaxes = options.min_values == MinValuesPolicy::BestEffort;
        for pool in (0..snapshot.pools.len()).map(PoolId::from) {
            match Template::build(snapshot, pool, relaxes, &mut algebra, &mut numbers, tables) {
                Ok(template) => templates.push(template),
                Err(why) => skipped.push((pool, why)),
            }
        }
        let prefers = |template: &Template| {
            let mut taints = snapshot.pool(template.pool).taints.iter();
            taints.any(|taint| taint.effect == taint::PREFER_NO_SCHEDULE)
        };
        let usable = snapshot.nodes.iter().enumerate();
        let usable = usable.filter(|(_, node)| !node.marked_for_deletion);
        let usable = Bits::of(snapshot.nodes.len(), usable.map(|(index, _)| index));
        let mut kind_nodes = vec![Bits::new(snapshot.nodes.len()); snapshot.kinds.len()];
        for (index, node) in snapshot.nodes.iter().enumerate() {
            kind_nodes[node.kind.index()].insert(index);
        }
        let topology = Topology::new(snapshot, &templates, &algebra);
        let free = setup::free_capacity(snapshot);
        let attached = setup::Attached::new(snapshot, &mut numbers);
        Engine {
            snapshot,
            options,
            claim_order: ClaimOrder::default(),
            width: snapshot.resources.width(),
            tolerate_prefer_no_schedule: templates.iter().any(prefers),
            remaining: templates
                .iter()
                .map(|template| setup::remaining(snapshot, template.pool))
                .collect(),
            reservations: setup::reservations(snapshot, &numbers),
            classes: vec![Class::default(); snapshot.classes.len()],
            usable_at_first: usable.clone(),
            usable,
            first_template: 0,
            settled_free: free.clone(),
            settled: 0,
            free,
            node_ports: setup::node_ports(snapshot, &mut numbers),
            kind_nodes,
            accepting: FxHashMap::with_hasher(FxBuildHasher),
            price_orders: FxHashMap::with_hasher(FxBuildHasher),
            shortlists: FxHashMap::with_hasher(FxBuildHasher),
            node_limits: attached.limits,
            node_attachments: attached.nodes,
            pod_attachments: attached.pods,
            uncounted: Bits::new(snapshot.pods.len()),
            claims: Vec::new(),
            live: 0,
            closed_claims: 0,
            buckets: Vec::new(),
            placed: Vec::new(),
            nodes_too_small: vec![Bits::default(); snapshot.requests.len()],
            full_words: vec![0; snapshot.requests.len()],
            too_small_for_now: 0,
            claims_too_full: vec![EpochBits::default(); snapshot.requests.len()],
            epoch: 0,
            forks: 0,
            log: Vec::new(),
            saved: Vec::new(),
            saved_live: 0,
            unplaced: Vec::new(),
            queue: Queue::default(),
            statistics: Statistics::default(),
            scratch: Scratch::default(),
            algebra,
            numbers,
            templates,
            skipped,
            topology,
        }
    }

    /// Makes the variant exist; false when the class cannot be relaxed that far. Amortised O(1).
    fn variant(&mut self, class: ClassId, step: usize) -> bool {
        while self.classes[class.index()].variants.len() <= step {
            let original = &self.snapshot.classes[class.index()];
            let state = &mut self.classes[class.index()];
            let constraints = match state.variants.last() {
                None => match self.options.preferences {
                    PreferencePolicy::Respect => Cow::Borrowed(original),
                    PreferencePolicy::Ignore => Cow::Owned(without_preferences(original)),
                },
                Some(_) if state.complete => return false,
                Some(last) => {
                    let mut relaxed = Constraints::clone(&last.constraints);
                    if !relax(&mut relaxed, self.tolerate_prefer_no_schedule) {
                        state.complete = true;
                        return false;
                    }
                    Cow::Owned(relaxed)
                }
            };
            let variant = self.build_variant(class, constraints);
            self.classes[class.index()].variants.push(variant);
        }
        true
    }

    fn build_variant(&mut self, class: ClassId, constraints: Cow<'a, Constraints>) -> Variant<'a> {
        let all = self.algebra.intern(constraints.all_requirements());
        let strict = self.algebra.intern(constraints.strict_requirements());
        let bindings = self
            .topology
            .bind(class, &constraints, &self.templates, &self.algebra);
        let terms = constraints.volume_terms.iter();
        let volume_sets: Vec<SetId> = terms.map(|term| self.algebra.intern(term.clone())).collect();
        let accepted = self.accepting(all);
        let mut nodes = Bits::clone(&accepted);
        let kinds = self.snapshot.kinds.iter().zip(&self.kind_nodes);
        for (_, members) in kinds.filter(|(kind, _)| {
            !kind.taints.is_empty()
                && taint::first_untolerated(&kind.taints, &constraints.tolerations).is_some()
        }) {
            nodes.subtract(members);
        }
        if !volume_sets.is_empty() {
            let mut reachable = Bits::new(self.snapshot.nodes.len());
            for set in &volume_sets {
                reachable.union(&self.accepting(*set));
            }
            nodes.intersect(&reachable);
        }
        let nodes = if nodes == *accepted {
            accepted
        } else {
            Arc::new(nodes)
        };
        let tolerated = self.templates.iter().enumerate().filter(|(_, template)| {
            let taints = &self.snapshot.pool(template.pool).taints;
            taint::first_untolerated(taints, &constraints.tolerations).is_none()
        });
        // The ports of a class do not change when it is relaxed, and live as long as the Snapshot.
        let ports = &self.snapshot.classes[class.index()].host_ports;
        Variant {
            nodes,
            templates: Bits::of(self.templates.len(), tolerated.map(|(index, _)| index)),
            failed_claims: Bits::default(),
            closed: Vec::new(),
            epoch: self.epoch,
            is_free: self.topology.is_free(class, &bindings),
            ports: ports.iter().map(|port| self.numbers.port(port)).collect(),
            constraints,
            all,
            strict,
            bindings,
            volume_sets,
        }
    }

    /// The existing nodes whose labels go with a requirement set; nothing undefined is allowed there (P §6.4).
    fn accepting(&mut self, set: SetId) -> Arc<Bits> {
        if let Some(known) = self.accepting.get(&set) {
            return Arc::clone(known);
        }
        let asked = self.algebra.get(set);
        let none = BTreeSet::new();
        let mut nodes = Bits::new(self.snapshot.nodes.len());
        for (kind, members) in self.snapshot.kinds.iter().zip(&self.kind_nodes) {
            if kind.requirements.compatible(asked, &none).is_ok() {
                nodes.union(members);
            }
        }
        let nodes = Arc::new(nodes);
        self.accepting.insert(set, Arc::clone(&nodes));
        nodes
    }
}
