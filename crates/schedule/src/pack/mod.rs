//! The packing pass: first-fit-decreasing over existing nodes, planned NodeClaims and new ones (P §6.2–6.7, §6.17).
//!
//! An `Engine` searches: it reads `tables`, which depend on the Snapshot only, and changes `ledgers`, which can undo what they did. Failures that can no
//! longer change are remembered as bits, so that each (request, node), (variant, claim) and (request, claim) pair is found wanting at most once.
//!
//! Planned NodeClaims are asked to take a pod in the domain and with the place for its volumes that come first. Only pods that would be left over, when a whole
//! round of the queue has made no progress, are tried with every other domain and place (`looks_further`): so others stay where they were put before, and cost
//! what they did. Whoever is the first of pods that want their own kind near them looks further at once: the others have to go where it does.
//!
//! It never looks at a clock, creates an object, or changes what is placed other than through the ledgers.

mod ask;
mod attempt;
mod claims;
mod explain;
mod failures;
mod finish;
mod nominated;
mod orders;
mod reserved;
mod run;
mod zones;

pub use orders::{ClaimOrder, pack_cheapest};
pub use run::sort_by_turn;

use crate::bits::Bits;
#[cfg(debug_assertions)]
use crate::ledger::Fingerprint;
use crate::ledger::{Checkpoint, Ledgers, Target};
use crate::options::PackOptions;
use crate::outcome::{Packing, Statistics};
use crate::start::Start;
use crate::tables::{Tables, VariantId};
use crate::template::Reservations;
use crate::topology::Choice;
use failures::Failures;
use run::Queue;
use smallvec::SmallVec;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::vector::ResourceVector;
use std::collections::BTreeSet;

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
    Packer::new(snapshot, options).pack(request)
}

/// One Snapshot, for more than one question about it: its tables are built once.
pub struct Packer<'a> {
    engine: Engine<'a>,
}

impl<'a> Packer<'a> {
    /// Builds the tables. O(pods + nodes + NodePools × instance types).
    pub fn new(snapshot: &'a Snapshot, options: &'a PackOptions) -> Self {
        Packer {
            engine: Engine::new(snapshot, options),
        }
    }

    /// Places pods, as `pack` does.
    pub fn pack(self, request: &PackRequest) -> Packing {
        let mut engine = self.starting(request);
        engine.place(&request.pods);
        engine.packing(Checkpoint::default())
    }

    fn starting(self, request: &PackRequest) -> Engine<'a> {
        let mut engine = self.engine;
        for node in &request.without_nodes {
            engine.remove_node(*node);
        }
        engine
    }
}

/// Places pods on one Snapshot.
#[derive(Clone)]
pub(crate) struct Engine<'a> {
    tables: Tables<'a>,
    ledgers: Ledgers<'a>,
    failures: Failures,
    claim_order: ClaimOrder,
    /// The order for virtual pods, where it is another one.
    room_order: Option<ClaimOrder>,
    /// Claims are opened on this template and those after it (W-04).
    first_template: usize,
    /// Claims that refuse a pod at first are asked about every other domain and place for its volumes.
    looks_further: bool,
    /// Where the caller gives up when more claims than so many are planned.
    most_claims: Option<usize>,
    /// What the last `place` left over.
    unplaced: Vec<Unplaced>,
    queue: Queue,
    /// By resource, the least that a pod asked for which no existing node took in one of its attempts, since that was last cleared.
    in_vain: Option<ResourceVector>,
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
    /// Some node or type was left out for the sake of the volumes that it would attach.
    met_attach_limit: bool,
    /// Claims, each with when it got its last pod.
    candidates: Vec<(usize, usize)>,
    choice: Choice,
}

/// A pod without a place, and what must be known to say why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unplaced {
    pod: PodId,
    no_place: NoPlace,
}

/// Why an attempt found no place, as far as the pass must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoPlace {
    /// Nothing that happens later in this pass can help.
    ForGood,
    /// A later placement may help.
    ForNow,
    /// Reserved capacity is used up.
    Reserved,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, options: &'a PackOptions) -> Self {
        let mut tables = Tables::new(snapshot, options);
        Engine {
            ledgers: Ledgers::new(&mut tables),
            failures: Failures::new(snapshot.requests.len()),
            tables,
            claim_order: ClaimOrder::default(),
            room_order: None,
            first_template: 0,
            looks_further: false,
            most_claims: None,
            unplaced: Vec::new(),
            queue: Queue::default(),
            in_vain: None,
            statistics: Statistics::default(),
            scratch: Scratch {
                choice: Choice::new(snapshot.nodes.len()),
                ..Scratch::default()
            },
        }
    }

    /// A class after some steps of relaxation; `None` when it cannot be relaxed that far. Amortised O(1).
    #[inline]
    fn variant(&mut self, class: ClassId, step: usize) -> Option<VariantId> {
        self.tables
            .known_variant(class, step)
            .or_else(|| self.new_variant(class, step))
    }

    fn new_variant(&mut self, class: ClassId, step: usize) -> Option<VariantId> {
        let variant = self.tables.variant(class, step);
        self.ledgers.catch_up(&mut self.tables);
        variant
    }

    /// A class after all steps of relaxation.
    fn most_relaxed(&mut self, class: ClassId) -> Option<VariantId> {
        let variant = self.tables.most_relaxed(class);
        self.ledgers.catch_up(&mut self.tables);
        variant
    }

    /// A point to which `revert` can go back.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.ledgers.checkpoint()
    }

    /// Marks the present state, so that what is done from now on can be undone.
    pub(crate) fn fork(&mut self) -> Checkpoint {
        self.ledgers.fork()
    }

    /// Keeps what was done since the youngest fork. O(1).
    pub(crate) fn commit(&mut self) {
        self.ledgers.commit();
    }

    /// Undoes what was done since the checkpoint. O(that).
    pub(crate) fn revert(&mut self, checkpoint: Checkpoint) {
        self.unplaced.clear();
        self.ledgers.revert(checkpoint, &mut self.tables);
    }

    /// Removes a node. Its pods stay until they are placed elsewhere.
    pub(crate) fn remove_node(&mut self, node: NodeId) {
        self.ledgers.remove_node(node, &self.tables);
    }

    /// A node that stays, but takes no further pods.
    pub(crate) fn withhold(&mut self, node: NodeId) {
        self.ledgers.withhold(node);
    }

    /// Nodes that are still starting take no further pods (P §6.18).
    pub(crate) fn withhold_uninitialized(&mut self) {
        for (index, node) in self.tables.snapshot.nodes.iter().enumerate() {
            if !node.initialized {
                self.ledgers.withhold(NodeId::from(index));
            }
        }
    }

    /// The pods no longer count where they are bound.
    pub(crate) fn release(&mut self, pods: &[PodId]) {
        self.ledgers.uncount(pods, &mut self.tables);
    }

    /// The claims planned so far take no further pods.
    pub(crate) fn close_claims(&mut self) {
        self.ledgers.close_claims();
    }

    /// Claims are opened only on NodePools after this one, or on any again.
    pub(crate) fn open_after(&mut self, pool: Option<PoolId>) {
        self.first_template = pool.map_or(0, |pool| {
            let templates = &self.tables.templates;
            templates.partition_point(|template| template.pool <= pool)
        });
    }

    /// By resource, the least that a pod asked for which no existing node took in one of its attempts.
    pub(crate) fn in_vain(&self) -> Option<&ResourceVector> {
        self.in_vain.as_ref()
    }

    /// Forgets which pods looked at all existing nodes in vain.
    pub(crate) fn clear_in_vain(&mut self) {
        self.in_vain = None;
    }

    fn note_in_vain(&mut self, pod: PodId) {
        let requests = self.tables.snapshot.requests(pod);
        match &mut self.in_vain {
            None => self.in_vain = Some(requests.clone()),
            Some(least) => least.lower_to(requests),
        }
    }

    /// What what-ifs start from.
    pub(crate) fn start(&self) -> Start {
        Start::new(&self.ledgers, &self.tables, self.ledgers.uncounted())
    }

    /// The nodes that pods were put on since the checkpoint, each as often as it took one.
    pub(crate) fn nodes_since(&self, checkpoint: Checkpoint) -> impl Iterator<Item = NodeId> + '_ {
        let placed = self.ledgers.placed()[checkpoint.placed..].iter();
        placed.filter_map(|placed| match placed.on {
            Target::Node(node) => Some(node),
            Target::Claim(_) => None,
        })
    }

    /// Everything that a fork may change. Only where that is cheap, and only in debug builds.
    #[cfg(debug_assertions)]
    pub(crate) fn fingerprint_if_small(&self) -> Option<Fingerprint> {
        (self.tables.snapshot.nodes.len() <= 64).then(|| self.ledgers.fingerprint())
    }

    /// Asserts that a revert left nothing behind.
    #[cfg(debug_assertions)]
    pub(crate) fn assert_equals(&self, before: Option<&Fingerprint>) {
        if let Some(before) = before {
            self.ledgers.assert_equals(before);
        }
    }
}
