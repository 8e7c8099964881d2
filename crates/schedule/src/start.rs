//! What every what-if of a Snapshot starts from, as values that outlive the Snapshot, and how two of them differ.
//!
//! It lets a caller keep answers from one Snapshot to the next: an answer can only change where the start differs in something that the answer has read.
//! Host ports and volumes in use are not part of it, nor what the tables are made of; the caller compares these. It places nothing.

use crate::bits::Bits;
use crate::ledger::{Budget, Ledgers, Target};
use crate::tables::Tables;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId};
use spokeshave_model::vector::ResourceVector;

/// The state of a `Simulation` after its base and before its first fork.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    width: usize,
    /// Free capacity of each node, `width` numbers each.
    free: Vec<i64>,
    /// Nodes that take pods.
    usable: Bits,
    budget: Budget,
    /// Where the pods of the base went, by class and in order.
    placed: Vec<(ClassId, Target)>,
    /// Where pods of the base are bound, by class.
    released: Vec<(ClassId, NodeId)>,
    /// NodeClaims of the base.
    claims: usize,
}

/// How one start differs from the one before, on the same nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Nodes with less room, in some resource, or that take no pods any more.
    pub lost: Vec<NodeId>,
    /// Nodes with more room in some resource, or that take pods now, and what is free there.
    pub gained: Vec<(NodeId, ResourceVector)>,
    /// The pods of the base, or their places, are others: counts of topology may differ everywhere.
    pub base: bool,
}

impl Start {
    pub(crate) fn new(
        ledgers: &Ledgers<'_>,
        tables: &Tables<'_>,
        released: impl Iterator<Item = PodId>,
    ) -> Self {
        let snapshot = tables.snapshot;
        let placed = ledgers.placed().iter();
        let released = released.filter_map(|pod| {
            let view = snapshot.pod(pod);
            Some((view.class, view.node?))
        });
        Start {
            width: snapshot.resources.width(),
            free: ledgers.rooms().all_free().to_vec(),
            usable: ledgers.rooms().usable().clone(),
            budget: ledgers.budget().clone(),
            placed: placed
                .map(|placed| (snapshot.pod(placed.pod).class, placed.on))
                .collect(),
            released: released.collect(),
            claims: ledgers.claims().count(),
        }
    }

    /// How this start differs from another one of the same nodes, NodePools and resources; `None` when limits or reservations leave something else, so
    /// that every answer may differ. `class` says which class of this Snapshot a class of the other is. O(nodes × resources).
    pub fn difference(
        &self,
        before: &Start,
        class: impl Fn(ClassId) -> Option<ClassId>,
    ) -> Option<Difference> {
        if self.width != before.width || self.free.len() != before.free.len() || self.budget != before.budget
        {
            return None;
        }
        let mut difference = Difference {
            base: !self.has_base_of(before, class),
            ..Difference::default()
        };
        let rooms = self.free.chunks_exact(self.width.max(1));
        let rooms = rooms.zip(before.free.chunks_exact(self.width.max(1)));
        for (index, (now, then)) in rooms.enumerate() {
            let (takes, took) = (self.usable.contains(index), before.usable.contains(index));
            if takes == took && (now == then || !takes) {
                continue;
            }
            let node = NodeId::from(index);
            let mut pairs = now.iter().zip(then);
            if took && (!takes || pairs.clone().any(|(now, then)| now < then)) {
                difference.lost.push(node);
            }
            if takes && (!took || pairs.any(|(now, then)| now > then)) {
                difference.gained.push((node, ResourceVector(now.into())));
            }
        }
        Some(difference)
    }

    fn has_base_of(&self, before: &Start, class: impl Fn(ClassId) -> Option<ClassId>) -> bool {
        let is_same = |now: ClassId, then: ClassId| class(then) == Some(now);
        // In which domains a planned NodeClaim can be is not compared: it depends on counts, and others count its pods there.
        self.claims == 0
            && before.claims == 0
            && self.placed.len() == before.placed.len()
            && self.released.len() == before.released.len()
            && self
                .placed
                .iter()
                .zip(&before.placed)
                .all(|(now, then)| now.1 == then.1 && is_same(now.0, then.0))
            && self
                .released
                .iter()
                .zip(&before.released)
                .all(|(now, then)| now.1 == then.1 && is_same(now.0, then.0))
    }
}
