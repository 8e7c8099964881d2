//! Room on existing nodes: free capacity, host ports and volumes in use, which nodes take pods at all, and which of them are known to be too small
//! for a request.
//!
//! Each change returns what undoes it; changes are undone in reverse order. It does not know which pod is where, and asks nobody whether one may be there.

use super::initial;
use crate::bits::{Bits, ones_of};
use crate::tables::{Attachments, Tables, are_attachable};
use crate::template::Numbers;
use rustc_hash::FxHashMap;
use spokeshave_model::snapshot::{NodeId, RequestId};
use spokeshave_model::vector::ResourceVector;

/// Room on existing nodes.
#[derive(Clone, Debug)]
pub(crate) struct Rooms<'a> {
    requests: &'a [ResourceVector],
    width: usize,
    usable: Bits,
    /// Free capacity of each node, `width` numbers each.
    free: Vec<i64>,
    /// The same outside of all forks: a node that is too small there stays too small.
    settled_free: Vec<i64>,
    ports: FxHashMap<NodeId, Vec<u32>>,
    volumes: FxHashMap<NodeId, Vec<u32>>,
    /// Per request, the nodes that were found too small for it.
    too_small: Vec<Bits>,
    /// Per request, how many words of nodes from the first on hold only nodes that stay too small.
    full_words: Vec<u32>,
    /// How many of `too_small` were found inside a fork, and are undone with it.
    too_small_for_now: usize,
}

/// A pod was put on a node.
#[derive(Clone, Copy, Debug)]
#[must_use = "without it the change cannot be undone"]
pub(super) struct Put {
    node: NodeId,
    request: RequestId,
    ports: u32,
    volumes: u32,
}

/// A node takes no further pods.
#[derive(Clone, Copy, Debug)]
#[must_use = "without it the change cannot be undone"]
pub(super) struct Closed {
    node: NodeId,
}

/// Nodes were found too small for a request, as long as what was placed inside a fork stays there.
#[derive(Clone, Copy, Debug)]
#[must_use = "without it the change cannot be undone"]
pub(super) struct TooSmall {
    request: RequestId,
    /// Of the word that they are in.
    position: u32,
    nodes: u64,
}

/// Nothing fits where capacity is overdrawn (P §3). Most Snapshots have the first four resources only: these are compared without a loop, because this is said
/// of every node that a pod looks at.
#[inline]
fn fits(needs: &[i64], free: &[i64]) -> bool {
    let fits = |need: &i64, free: &i64| (*need).max(0) <= *free;
    match (needs, free) {
        ([a, b, c, d], [e, f, g, h]) => fits(a, e) & fits(b, f) & fits(c, g) & fits(d, h),
        _ => needs.iter().zip(free).all(|(need, free)| fits(need, free)),
    }
}

impl<'a> Rooms<'a> {
    pub(super) fn new(tables: &mut Tables<'a>) -> Self {
        let snapshot = tables.snapshot;
        let free = initial::free_capacity(snapshot);
        Rooms {
            requests: &snapshot.requests,
            width: snapshot.resources.width(),
            usable: tables.unmarked.clone(),
            settled_free: free.clone(),
            free,
            ports: initial::ports_in_use(snapshot, &mut tables.numbers),
            volumes: initial::attached_volumes(snapshot, &tables.attachments),
            too_small: vec![Bits::default(); snapshot.requests.len()],
            full_words: vec![0; snapshot.requests.len()],
            too_small_for_now: 0,
        }
    }

    /// Which nodes take pods.
    #[inline]
    pub(crate) fn usable(&self) -> &Bits {
        &self.usable
    }

    /// Free capacity of a node, by resource; below zero where it is overdrawn.
    #[inline]
    pub(crate) fn free(&self, node: usize) -> &[i64] {
        &self.free[node * self.width..(node + 1) * self.width]
    }

    /// Free capacity of all nodes, one after the other.
    pub(crate) fn all_free(&self) -> &[i64] {
        &self.free
    }

    /// 64 nodes: those that take pods and are not known to be too small for a request.
    #[inline]
    pub(crate) fn open_word(&self, request: RequestId, position: usize) -> u64 {
        self.usable.word(position) & !self.too_small[request.index()].word(position)
    }

    /// The first of some of 64 nodes that has enough free for what a pod needs, as a number below 64.
    #[inline]
    pub(super) fn first_with_room(
        &self,
        needs: &ResourceVector,
        position: usize,
        word: u64,
    ) -> Option<usize> {
        let needs = needs.0.as_slice();
        ones_of(word).find(|bit| fits(needs, self.free(position * 64 + bit)))
    }

    /// Whether none of these host ports is in use on a node.
    #[inline]
    pub(crate) fn has_ports_free(&self, node: NodeId, ports: &[u32], numbers: &Numbers<'_>) -> bool {
        ports.is_empty() || self.are_ports_free(node, ports, numbers)
    }

    fn are_ports_free(&self, node: NodeId, ports: &[u32], numbers: &Numbers<'_>) -> bool {
        let taken = self.ports.get(&node);
        taken.is_none_or(|taken| !numbers.conflict(taken, ports))
    }

    /// Whether the attach limits of a node admit these volumes.
    #[inline]
    pub(crate) fn can_attach(
        &self,
        node: NodeId,
        volumes: &[u32],
        attachments: &Attachments,
        numbers: &Numbers<'_>,
    ) -> bool {
        attachments.limits(node).is_none_or(|limits| {
            let attached = self.volumes.get(&node).map_or(&[][..], Vec::as_slice);
            are_attachable(limits, attached, volumes, numbers)
        })
    }

    /// How many words of nodes need not be looked at, because every node there that takes pods is and stays too small for a request. Amortised O(1).
    pub(super) fn skip_full_words(&mut self, request: RequestId, unmarked: &Bits) -> usize {
        let too_small = &self.too_small[request.index()];
        let full = &mut self.full_words[request.index()];
        if self.too_small_for_now == 0 {
            let total = unmarked.word_count();
            let is_full = |word: usize| unmarked.word(word) & !too_small.word(word) == 0;
            while (*full as usize) < total && is_full(*full as usize) {
                *full += 1;
            }
        }
        *full as usize
    }

    /// Remembers that some of 64 nodes are too small for a request. Free capacity only falls, so this stays so until it is undone; there is nothing to undo for
    /// nodes that were too small before the outermost fork, or if there is no fork.
    pub(super) fn remember_too_small(
        &mut self,
        request: RequestId,
        position: usize,
        nodes: u64,
        is_forked: bool,
    ) -> Option<TooSmall> {
        self.too_small[request.index()].union_word(position, nodes);
        if !is_forked {
            return None;
        }
        let needs = self.requests[request.index()].0.as_slice();
        let settled = |bit: usize| {
            let start = (position * 64 + bit) * self.width;
            &self.settled_free[start..start + self.width]
        };
        let for_now = ones_of(nodes).filter(|bit| fits(needs, settled(*bit)));
        let for_now = for_now.fold(0, |all: u64, bit| all | 1 << bit);
        (for_now != 0).then(|| {
            self.too_small_for_now += for_now.count_ones() as usize;
            TooSmall {
                request,
                position: position as u32,
                nodes: for_now,
            }
        })
    }

    pub(super) fn undo_too_small(&mut self, found: TooSmall) {
        let position = found.position as usize;
        self.too_small[found.request.index()].subtract_word(position, found.nodes);
        self.too_small_for_now -= found.nodes.count_ones() as usize;
    }

    /// Takes what a pod needs. `volumes` are those that count against a limit of the node.
    #[inline]
    pub(super) fn put(&mut self, node: NodeId, request: RequestId, ports: &[u32], volumes: &[u32]) -> Put {
        let needs = &self.requests[request.index()].0;
        let start = node.index() * self.width;
        for (free, need) in self.free[start..].iter_mut().zip(needs) {
            *free = free.wrapping_sub(*need);
        }
        if !ports.is_empty() {
            self.ports.entry(node).or_default().extend(ports);
        }
        let mut new_volumes = 0;
        if !volumes.is_empty() {
            let attached = self.volumes.entry(node).or_default();
            for volume in volumes {
                if !attached.contains(volume) {
                    attached.push(*volume);
                    new_volumes += 1;
                }
            }
        }
        Put {
            node,
            request,
            ports: ports.len() as u32,
            volumes: new_volumes,
        }
    }

    #[inline]
    pub(super) fn undo_put(&mut self, put: Put) {
        let Put {
            node,
            request,
            ports,
            volumes,
        } = put;
        let needs = &self.requests[request.index()].0;
        let start = node.index() * self.width;
        for (free, need) in self.free[start..].iter_mut().zip(needs) {
            *free = free.wrapping_add(*need);
        }
        let shorten = |list: Option<&mut Vec<u32>>, by: u32| {
            if let Some(list) = list {
                list.truncate(list.len().saturating_sub(by as usize));
            }
        };
        if ports > 0 {
            shorten(self.ports.get_mut(&node), ports);
        }
        if volumes > 0 {
            shorten(self.volumes.get_mut(&node), volumes);
        }
    }

    /// A node takes no further pods; nothing to undo if it took none.
    pub(super) fn close(&mut self, node: NodeId) -> Option<Closed> {
        let was_usable = self.usable.contains(node.index());
        self.usable.remove(node.index());
        was_usable.then_some(Closed { node })
    }

    pub(super) fn undo_close(&mut self, Closed { node }: Closed) {
        self.usable.insert(node.index());
    }

    /// What is on a node now stays there.
    #[inline]
    pub(super) fn settle(&mut self, node: NodeId) {
        let range = node.index() * self.width..(node.index() + 1) * self.width;
        self.settled_free[range.clone()].copy_from_slice(&self.free[range]);
    }

    /// Nodes that were found too small stay too small.
    pub(super) fn keep_too_small(&mut self) {
        self.too_small_for_now = 0;
    }

    /// Everything that undoing must bring back; what is remembered of nodes that are too small may differ, but must be true.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn fingerprint(&self) -> String {
        // Every field, so that a further one cannot be forgotten.
        let Rooms {
            requests: _,
            width: _,
            usable,
            free,
            settled_free: _,
            ports,
            volumes,
            too_small: _,
            full_words: _,
            too_small_for_now,
        } = self;
        fn used(map: &FxHashMap<NodeId, Vec<u32>>) -> std::collections::BTreeMap<NodeId, &Vec<u32>> {
            let used = map.iter().filter(|(_, list)| !list.is_empty());
            used.map(|(node, list)| (*node, list)).collect()
        }
        let usable: Vec<usize> = usable.ones().collect();
        format!(
            "{free:?} {usable:?} {:?} {:?} {too_small_for_now}",
            used(ports),
            used(volumes)
        )
    }

    /// A node that is passed over as too small for a request is too small for it.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn assert_memory_is_true(&self) {
        for (request, nodes) in self.too_small.iter().enumerate() {
            for node in nodes.ones() {
                assert!(
                    !fits(&self.requests[request].0, self.free(node)),
                    "node {node} is remembered as too small for request {request}"
                );
            }
        }
    }
}
