//! What is placed where: the state of an engine, as ledgers that each know how to undo their own changes, and the log that puts those changes in order.
//!
//! Everything that placing changes is private to a ledger, and changes by a method of it that returns what undoes the change. While a fork is open these
//! are kept in the log, and `revert` undoes them in reverse: O(what was done since). Nothing here decides where a pod is placed.
#![deny(unused_must_use, unused_variables)]

mod bucket;
mod budget;
mod claims;
mod initial;
mod rooms;
#[cfg(test)]
mod tests;

pub(crate) use budget::{Budget, Lifted};
pub(crate) use claims::{Claim, Claims};
pub(crate) use rooms::Rooms;

use crate::algebra::SetId;
use crate::bits::Bits;
use crate::tables::{Tables, VariantId};
use crate::topology::{Counts, Host};
use budget::{Charged, Refunded};
use claims::{Grown, Growth, Opened};
use rooms::{Closed, Put, TooSmall};
use spokeshave_model::snapshot::{NodeId, PodId, RequestId};
use spokeshave_model::vector::ResourceVector;
use std::collections::BTreeMap;

/// A placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) pod: PodId,
    pub(crate) on: Target,
}

/// Where a pod is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An existing node.
    Node(NodeId),
    /// A NodeClaim that will be launched, by number.
    Claim(usize),
}

/// What a claim becomes with a further pod, as it was worked out.
pub(crate) struct Prospect<'t> {
    pub(crate) set: SetId,
    pub(crate) types: &'t Bits,
    pub(crate) reserved: &'t [u32],
}

/// A point in the history of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    log: usize,
    /// Placements made before.
    pub(crate) placed: usize,
    /// Claims opened before.
    pub(crate) claims: usize,
}

/// One change, as what undoes it.
#[derive(Clone, Debug)]
enum Entry {
    TooSmall(TooSmall),
    Put(Put),
    Grown(Grown),
    Opened(Opened, Charged),
    Uncounted(PodId),
    Removed(NodeId, Option<Closed>, Refunded),
    Withheld(Closed),
}

/// What is placed where.
#[derive(Clone, Debug)]
pub(crate) struct Ledgers<'a> {
    rooms: Rooms<'a>,
    claims: Claims,
    budget: Budget,
    counts: Counts,
    placed: Vec<Placement>,
    /// Placements outside of all forks: they stay.
    settled: usize,
    /// Pods that no longer count where they are bound.
    uncounted: Bits,
    /// Grows whenever something may have become possible again.
    epoch: u64,
    forks: usize,
    log: Vec<Entry>,
}

impl<'a> Ledgers<'a> {
    /// What a Snapshot starts from. O(pods + nodes × resources + NodePools × offerings).
    pub(crate) fn new(tables: &mut Tables<'a>) -> Self {
        Ledgers {
            counts: Counts::new(&mut tables.topology, &tables.algebra),
            rooms: Rooms::new(tables),
            claims: Claims::default(),
            budget: Budget::new(tables),
            placed: Vec::new(),
            settled: 0,
            uncounted: Bits::new(tables.snapshot.pods.len()),
            epoch: 0,
            forks: 0,
            log: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn rooms(&self) -> &Rooms<'a> {
        &self.rooms
    }

    #[inline]
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    #[inline]
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    #[inline]
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Counts what is there in groups that the tables have got since. O(1) if there are none.
    #[inline]
    pub(crate) fn catch_up(&mut self, tables: &mut Tables<'_>) {
        self.counts.catch_up(&mut tables.topology, &tables.algebra);
    }

    /// Pods that no longer count where they are bound.
    pub(crate) fn uncounted(&self) -> impl Iterator<Item = PodId> + '_ {
        self.uncounted.ones().map(PodId::from)
    }

    /// All placements, in order.
    #[inline]
    pub(crate) fn placed(&self) -> &[Placement] {
        &self.placed
    }

    /// Differs whenever something may have become possible that was impossible.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many words of nodes need not be looked at, because every node there is and stays too small for a request.
    pub(crate) fn skip_full_words(&mut self, request: RequestId, tables: &Tables<'_>) -> usize {
        self.rooms.skip_full_words(request, &tables.unmarked)
    }

    /// The first of some of 64 nodes that has enough free for a request, which needs this much, as a number below 64; remembers of those before it that they
    /// have not.
    #[inline]
    pub(crate) fn first_with_room(
        &mut self,
        request: RequestId,
        needs: &ResourceVector,
        position: usize,
        word: u64,
    ) -> Option<usize> {
        let first = self.rooms.first_with_room(needs, position, word);
        let too_small = first.map_or(word, |first| word & ((1 << first) - 1));
        if too_small != 0 {
            let is_forked = self.forks > 0;
            let found = self
                .rooms
                .remember_too_small(request, position, too_small, is_forked);
            self.log.extend(found.map(Entry::TooSmall));
        }
        first
    }

    #[inline]
    fn note(&mut self, entry: Entry) {
        if self.forks > 0 {
            self.log.push(entry);
        }
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            log: self.log.len(),
            placed: self.placed.len(),
            claims: self.claims.count(),
        }
    }

    /// Starts logging.
    pub(crate) fn fork(&mut self) -> Checkpoint {
        if self.forks == 0 {
            self.settle();
        }
        self.forks += 1;
        self.checkpoint()
    }

    /// Keeps what was done since the checkpoint. O(1).
    pub(crate) fn commit(&mut self) {
        self.forks = self.forks.saturating_sub(1);
        if self.forks == 0 {
            self.settle();
            self.log.clear();
            self.rooms.keep_too_small();
            self.claims.forget_saved();
        }
    }

    /// What is placed now stays: remembers what it leaves free. Amortised O(1) a placement.
    fn settle(&mut self) {
        for placed in &self.placed[self.settled..] {
            if let Target::Node(node) = placed.on {
                self.rooms.settle(node);
            }
        }
        self.settled = self.placed.len();
    }

    /// Undoes what was done since the checkpoint. O(that).
    pub(crate) fn revert(&mut self, checkpoint: Checkpoint, tables: &mut Tables<'_>) {
        self.forks = self.forks.saturating_sub(1);
        self.epoch += 1;
        while self.log.len() > checkpoint.log {
            let Some(entry) = self.log.pop() else {
                break;
            };
            self.undo(entry, tables);
        }
    }

    fn undo(&mut self, entry: Entry, tables: &mut Tables<'_>) {
        match entry {
            Entry::TooSmall(found) => self.rooms.undo_too_small(found),
            Entry::Put(put) => {
                self.counts.unrecord(&mut tables.topology, &tables.algebra);
                self.placed.pop();
                self.rooms.undo_put(put);
            }
            Entry::Grown(grown) => {
                self.counts.unrecord(&mut tables.topology, &tables.algebra);
                self.placed.pop();
                let (index, held) = self.claims.undo_grow(grown);
                let claim = self.claims.get(index);
                self.budget.exchange(&held, &claim.reserved);
                if let Some(set) = claim.set {
                    let shape = &mut tables.topology;
                    self.counts
                        .set_claim(index, claim.template, set, shape, &tables.algebra);
                }
            }
            Entry::Opened(opened, charged) => {
                self.counts.unrecord(&mut tables.topology, &tables.algebra);
                self.placed.pop();
                self.counts.drop_claim();
                let held = self.claims.undo_open(opened);
                self.budget.exchange(&held, &[]);
                self.budget.undo_charge(&charged);
            }
            Entry::Uncounted(pod) => {
                self.uncounted.remove(pod.index());
                self.counts
                    .set_counted(pod, true, &mut tables.topology, &tables.algebra);
            }
            Entry::Removed(node, closed, refunded) => {
                if let Some(closed) = closed {
                    self.rooms.undo_close(closed);
                }
                self.counts.set_removed(node, false, &tables.topology);
                self.budget.undo_refund(refunded, tables);
            }
            Entry::Withheld(closed) => self.rooms.undo_close(closed),
        }
    }

    /// The pods no longer count where they are bound (P-107: pods of the batch).
    pub(crate) fn uncount(&mut self, pods: &[PodId], tables: &mut Tables<'_>) {
        for pod in pods.iter().copied() {
            let view = tables.snapshot.pod(pod);
            if view.node.is_some() && view.is_counted() && !self.uncounted.contains(pod.index()) {
                self.uncounted.insert(pod.index());
                self.counts
                    .set_counted(pod, false, &mut tables.topology, &tables.algebra);
                self.epoch += 1;
                self.note(Entry::Uncounted(pod));
            }
        }
    }

    /// Removes a node. Its pods stay until they are placed elsewhere.
    pub(crate) fn remove_node(&mut self, node: NodeId, tables: &Tables<'_>) {
        if self.counts.is_removed(node) {
            return;
        }
        let closed = self.rooms.close(node);
        self.counts.set_removed(node, true, &tables.topology);
        let refunded = self.budget.refund(node, tables);
        self.epoch += 1;
        self.note(Entry::Removed(node, closed, refunded));
    }

    /// A node that stays, but takes no further pods.
    pub(crate) fn withhold(&mut self, node: NodeId) {
        if let Some(closed) = self.rooms.close(node) {
            self.note(Entry::Withheld(closed));
        }
    }

    /// The claims planned so far take no further pods.
    pub(crate) fn close_claims(&mut self) {
        self.claims.close();
    }

    /// Puts a pod on an existing node.
    pub(crate) fn put_on_node(
        &mut self,
        pod: PodId,
        variant: VariantId,
        node: NodeId,
        tables: &mut Tables<'_>,
    ) {
        let request = tables.snapshot.pod(pod).request;
        let variant = &tables.variants[variant];
        let volumes = match tables.attachments.of_pod(pod) {
            Some(volumes) if tables.attachments.limits(node).is_some() => volumes.as_slice(),
            _ => &[],
        };
        let put = self.rooms.put(node, request, &variant.ports, volumes);
        self.placed.push(Placement {
            pod,
            on: Target::Node(node),
        });
        self.counts.record(
            variant.class,
            Host::Node(node),
            &mut tables.topology,
            &tables.algebra,
        );
        self.note(Entry::Put(put));
    }

    /// Puts a further pod on a claim.
    pub(crate) fn put_on_claim(
        &mut self,
        pod: PodId,
        variant: VariantId,
        index: usize,
        prospect: &Prospect<'_>,
        tables: &mut Tables<'_>,
    ) {
        if self.forks > 0 {
            let grown = self.claims.save(index);
            self.log.push(Entry::Grown(grown));
        }
        self.grow_claim(pod, variant, index, prospect, tables);
    }

    /// Opens a claim with its first pod.
    pub(crate) fn open_claim(
        &mut self,
        pod: PodId,
        variant: VariantId,
        template: usize,
        prospect: &Prospect<'_>,
        relaxed_min_values: BTreeMap<String, u32>,
        tables: &mut Tables<'_>,
    ) {
        let width = tables.snapshot.resources.width();
        let opened = self.claims.open(template, width, relaxed_min_values);
        self.grow_claim(pod, variant, opened.claim(), prospect, tables);
        let charged = self
            .budget
            .charge(template, &tables.templates[template], prospect.types);
        self.note(Entry::Opened(opened, charged));
    }

    fn grow_claim(
        &mut self,
        pod: PodId,
        variant: VariantId,
        index: usize,
        prospect: &Prospect<'_>,
        tables: &mut Tables<'_>,
    ) {
        let variant = &tables.variants[variant];
        let claim = self.claims.get(index);
        let template = claim.template;
        self.budget.exchange(&claim.reserved, prospect.reserved);
        let growth = Growth {
            requests: tables.snapshot.requests(pod),
            set: prospect.set,
            types: prospect.types,
            ports: &variant.ports,
            volumes: tables.attachments.of_planned(pod),
            reserved: prospect.reserved,
            placements: self.placed.len(),
        };
        self.claims.grow(index, &growth, &tables.templates[template]);
        self.placed.push(Placement {
            pod,
            on: Target::Claim(index),
        });
        let set = prospect.set;
        let shape = &mut tables.topology;
        self.counts
            .set_claim(index, template, set, shape, &tables.algebra);
        let host = Host::Planned { index, template, set };
        self.counts.record(variant.class, host, shape, &tables.algebra);
    }

    /// Lifts all limits of NodePools until `restore_limits`.
    pub(crate) fn lift_limits(&mut self) -> Lifted {
        self.budget.lift_limits()
    }

    /// Puts limits back in force.
    pub(crate) fn restore_limits(&mut self, lifted: Lifted) {
        self.budget.restore(lifted);
    }

    /// Replaces what was placed by what was decided earlier. Nothing can be placed or undone after it.
    pub(crate) fn replace(&mut self, claims: Vec<Claim>, placed: Vec<Placement>) {
        self.claims.replace(claims);
        self.placed = placed;
    }

    /// Everything that a fork may change, to compare what was reverted with what it was.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            own: format!(
                "{} {} {:?} {:?} {:?}",
                self.rooms.fingerprint(),
                self.claims.fingerprint(),
                self.budget,
                self.uncounted.ones().collect::<Vec<_>>(),
                self.placed,
            ),
            topology: self.counts.fingerprint(),
        }
    }

    /// Asserts that a revert left nothing behind: groups and keys that have come into being since are all that may be new, and what is remembered of
    /// failures must be true of the state as it is.
    #[cfg(debug_assertions)]
    pub(crate) fn assert_equals(&self, before: &Fingerprint) {
        let now = self.fingerprint();
        assert_eq!(before.own, now.own, "a revert left something behind");
        for (before, now) in before.topology.iter().zip(&now.topology) {
            assert!(
                now.starts_with(before),
                "a revert left something behind: {before:?} became {now:?}"
            );
        }
        self.rooms.assert_memory_is_true();
    }
}

/// What a fork found and a revert must bring back.
#[cfg(any(test, debug_assertions))]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    own: String,
    /// Of pods that are placed, groups, censuses and keys; of the last three more may come into being.
    topology: [Vec<String>; 4],
}
