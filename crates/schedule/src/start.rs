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

    /// The same with the numbers that nodes have on another Snapshot with so many of them. What was on nodes that have gone is left out, and those that have
    /// come take no pods. O(nodes × resources).
    #[must_use]
    pub fn renumbered(&self, count: usize, number: impl Fn(NodeId) -> Option<NodeId>) -> Start {
        let mut start = Start {
            width: self.width,
            free: vec![0; count * self.width],
            usable: Bits::new(count),
            budget: self.budget.clone(),
            placed: Vec::new(),
            released: Vec::new(),
            claims: self.claims,
        };
        for (was, free) in self.free.chunks_exact(self.width.max(1)).enumerate() {
            if let Some(node) = number(NodeId::from(was)).map(NodeId::index) {
                start.free[node * self.width..(node + 1) * self.width].copy_from_slice(free);
                if self.usable.contains(was) {
                    start.usable.insert(node);
                }
            }
        }
        let placed = self.placed.iter().filter_map(|(class, target)| match target {
            Target::Node(node) => Some((*class, Target::Node(number(*node)?))),
            Target::Claim(_) => Some((*class, *target)),
        });
        start.placed = placed.collect();
        let released = self.released.iter();
        start.released = released
            .filter_map(|(class, node)| Some((*class, number(*node)?)))
            .collect();
        start
    }

    /// How this start differs from another one of the same nodes, NodePools and resources; `None` when limits or reservations leave something else, so
    /// that every answer may differ. `others` are nodes, in order, that have become others: what they took they take no more, and the other way round. `class`
    /// says which class of this Snapshot a class of the other is. O(nodes × resources).
    pub fn difference(
        &self,
        before: &Start,
        others: &[NodeId],
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
            let node = NodeId::from(index);
            let is_other = others.binary_search(&node).is_ok();
            if takes == took && ((now == then && !is_other) || !takes) {
                continue;
            }
            let mut pairs = now.iter().zip(then);
            if took && (!takes || is_other || pairs.clone().any(|(now, then)| now < then)) {
                difference.lost.push(node);
            }
            if takes && (!took || is_other || pairs.any(|(now, then)| now > then)) {
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
