//! Every change of an engine's state, and how it is taken back.
//!
//! While a fork is open each change leaves an entry in the log, and `revert` undoes entries in reverse: O(what was done since).
//! Nothing here decides anything.

use super::{Claim, Engine, On, Placed};
use crate::algebra::SetId;
use crate::template::{Reservations, UNLIMITED};
use crate::topology::Host;
use smallvec::SmallVec;
use spokeshave_model::ResourceName;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, PoolId};
use std::collections::BTreeMap;

/// One entry of the log.
#[derive(Clone, Debug)]
pub(super) enum Undo {
    /// A node was found too small for a request.
    TooSmall { request: u32, node: u32 },
    /// A pod was put on a node, with so many new ports and attachments.
    Node { ports: u32, attachments: u32 },
    /// A pod was put on a claim that existed; its former value is on the stack of saved claims.
    Grown { claim: usize },
    /// A claim was opened with one pod.
    Opened { remaining: SmallVec<[i64; 7]> },
    /// A bound pod no longer counts.
    Uncounted { pod: PodId },
    /// A node was taken away.
    Removed { node: NodeId, was_usable: bool },
    /// A node takes no further pods.
    Withheld { node: NodeId },
}

/// A point in the history of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    log: usize,
    /// Placements made before.
    pub(super) placed: usize,
    /// Claims opened before.
    pub(crate) claims: usize,
}

impl Engine<'_> {
    pub(super) fn note(&mut self, undo: Undo) {
        if self.forks > 0 {
            self.log.push(undo);
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            log: self.log.len(),
            placed: self.placed.len(),
            claims: self.live,
        }
    }

    /// Starts logging.
    pub(crate) fn fork(&mut self) -> Mark {
        if self.forks == 0 {
            self.settle();
        }
        self.forks += 1;
        self.mark()
    }

    /// Keeps what was done since the mark. O(1).
    pub(crate) fn commit(&mut self) {
        self.forks = self.forks.saturating_sub(1);
        if self.forks == 0 {
            self.settle();
            self.log.clear();
            self.too_small_for_now = 0;
            self.saved_live = 0;
        }
    }

    /// What is placed now stays: remembers what it leaves free. Amortised O(1) a placement.
    fn settle(&mut self) {
        for placed in &self.placed[self.settled..] {
            if let On::Node(node) = placed.on {
                let range = node.index() * self.width..(node.index() + 1) * self.width;
                self.settled_free[range.clone()].copy_from_slice(&self.free[range]);
            }
        }
        self.settled = self.placed.len();
    }

    /// Takes back what was done since the mark. O(that).
    pub(crate) fn revert(&mut self, mark: Mark) {
        self.forks = self.forks.saturating_sub(1);
        self.epoch += 1;
        self.unplaced.clear();
        while self.log.len() > mark.log {
            match self.log.pop() {
                Some(Undo::TooSmall { request, node }) => {
                    self.nodes_too_small[request as usize].remove(node as usize);
                    self.too_small_for_now -= 1;
                }
                Some(Undo::Node { ports, attachments }) => self.take_off_node(ports, attachments),
                Some(Undo::Grown { claim }) => self.shrink(claim),
                Some(Undo::Opened { remaining }) => self.unopen(&remaining),
                Some(Undo::Uncounted { pod }) => {
                    self.uncounted.remove(pod.index());
                    self.count(pod, true);
                }
                Some(Undo::Removed { node, was_usable }) => {
                    if was_usable {
                        self.usable.insert(node.index());
                    }
                    self.topology.set_removed(node, false);
                    self.charge_node(node, true);
                }
                Some(Undo::Withheld { node }) => self.usable.insert(node.index()),
                None => break,
            }
        }
    }

    /// The pods no longer count where they are bound (P-107: pods of the batch).
    pub(super) fn uncount(&mut self, pods: &[PodId]) {
        for pod in pods.iter().copied() {
            let view = self.snapshot.pod(pod);
            if view.node.is_some() && view.active && !self.uncounted.contains(pod.index()) {
                self.uncounted.insert(pod.index());
                self.count(pod, false);
                self.epoch += 1;
                self.note(Undo::Uncounted { pod });
            }
        }
    }

    fn count(&mut self, pod: PodId, counts: bool) {
        self.topology.set_counted(pod, counts, &self.algebra);
    }

    /// Takes a node away. Its pods stay until they are placed elsewhere.
    pub(crate) fn remove_node(&mut self, node: NodeId) {
        if self.topology.is_removed(node) {
            return;
        }
        let was_usable = self.usable.contains(node.index());
        self.usable.remove(node.index());
        self.topology.set_removed(node, true);
        self.charge_node(node, false);
        self.epoch += 1;
        self.note(Undo::Removed { node, was_usable });
    }

    /// A node that stays, but takes no further pods.
    pub(crate) fn withhold(&mut self, node: NodeId) {
        if self.usable.contains(node.index()) {
            self.usable.remove(node.index());
            self.note(Undo::Withheld { node });
        }
    }

    /// Claims are opened only on NodePools after this one, or on any again.
    pub(crate) fn open_after(&mut self, pool: Option<PoolId>) {
        self.first_template = pool.map_or(0, |pool| {
            self.templates.partition_point(|template| template.pool <= pool)
        });
    }

    /// Nodes that are still starting take no further pods (P §6.18).
    pub(crate) fn withhold_uninitialized(&mut self) {
        for (index, node) in self.snapshot.nodes.iter().enumerate() {
            if !node.initialized {
                self.withhold(NodeId::from(index));
            }
        }
    }

    /// The claims planned so far take no further pods.
    pub(crate) fn close_claims(&mut self) {
        self.closed_claims = self.live;
        self.buckets.clear();
    }

    /// Counts a node's capacity against its NodePool's limits again, or no longer (D-078).
    fn charge_node(&mut self, node: NodeId, charge: bool) {
        let view = self.snapshot.node(node);
        if view.marked_for_deletion {
            return;
        }
        for (template, remaining) in self.templates.iter().zip(&mut self.remaining) {
            if view.pool != Some(template.pool) {
                continue;
            }
            let change = |left: &mut i64, amount: i64| {
                if *left != UNLIMITED {
                    *left = if charge {
                        left.wrapping_sub(amount)
                    } else {
                        left.wrapping_add(amount)
                    };
                }
            };
            for (index, left) in remaining.resources.iter_mut().enumerate() {
                change(left, view.capacity.get(self.snapshot.resources.name(index)));
            }
            change(&mut remaining.nodes, 1);
            debug_assert!(self.snapshot.resources.index(ResourceName::NODES).is_none());
        }
    }

    pub(super) fn put_on_node(&mut self, pod: PodId, class: ClassId, step: usize, node: NodeId) {
        let start = node.index() * self.width;
        for (free, need) in self.free[start..].iter_mut().zip(&self.snapshot.requests(pod).0) {
            *free = free.wrapping_sub(*need);
        }
        let variant = &self.classes[class.index()].variants[step];
        if !variant.ports.is_empty() {
            self.node_ports.entry(node).or_default().extend(&variant.ports);
        }
        let ports = variant.ports.len() as u32;
        let mut attachments = 0;
        if let Some(volumes) = self.pod_attachments.get(&pod)
            && self.node_limits.contains_key(&node)
        {
            let attached = self.node_attachments.entry(node).or_default();
            for volume in volumes {
                if !attached.contains(volume) {
                    attached.push(*volume);
                    attachments += 1;
                }
            }
        }
        self.placed.push(Placed {
            pod,
            on: On::Node(node),
        });
        self.topology.record(class, Host::Node(node), &self.algebra);
        self.note(Undo::Node { ports, attachments });
    }

    fn take_off_node(&mut self, ports: u32, attachments: u32) {
        self.topology.unrecord(&self.algebra);
        let Some(Placed {
            pod,
            on: On::Node(node),
        }) = self.placed.pop()
        else {
            return;
        };
        let start = node.index() * self.width;
        for (free, need) in self.free[start..].iter_mut().zip(&self.snapshot.requests(pod).0) {
            *free = free.wrapping_add(*need);
        }
        let shorten = |list: Option<&mut Vec<u32>>, by: u32| {
            if let Some(list) = list {
                list.truncate(list.len().saturating_sub(by as usize));
            }
        };
        if ports > 0 {
            shorten(self.node_ports.get_mut(&node), ports);
        }
        if attachments > 0 {
            shorten(self.node_attachments.get_mut(&node), attachments);
        }
    }

    /// Exchanges the reservations a claim holds.
    fn hold(&mut self, index: usize, reserved: &[u32]) {
        for id in &self.claims[index].reserved {
            self.reservations[*id as usize] += 1;
        }
        for id in reserved {
            self.reservations[*id as usize] -= 1;
        }
        self.claims[index].reserved = Reservations::from_slice(reserved);
    }

    fn rebucket(&mut self, index: usize, from: usize, to: usize) {
        if let Some(bucket) = self.buckets.get_mut(from) {
            bucket.remove(index);
        }
        if to > 0 {
            if self.buckets.len() <= to {
                self.buckets.resize_with(to + 1, Default::default);
            }
            self.buckets[to].insert(index);
        }
    }

    /// A further pod for a claim, which becomes what `scratch` says.
    pub(super) fn put_on_claim(&mut self, pod: PodId, class: ClassId, step: usize, index: usize, set: SetId) {
        if self.forks > 0 {
            if self.saved.len() == self.saved_live {
                self.saved.push(Claim::default());
            }
            let (saved, claim) = (&mut self.saved[self.saved_live], &self.claims[index]);
            saved.set = claim.set;
            saved.types.copy_from(&claim.types);
            saved.requests.clone_from(&claim.requests);
            saved.headroom.clone_from(&claim.headroom);
            saved.ports.clone_from(&claim.ports);
            saved.reserved.clone_from(&claim.reserved);
            saved.grown = claim.grown;
            self.saved_live += 1;
            self.log.push(Undo::Grown { claim: index });
        }
        self.add_to_claim(pod, class, step, index, set);
    }

    fn shrink(&mut self, index: usize) {
        self.topology.unrecord(&self.algebra);
        self.placed.pop();
        self.saved_live -= 1;
        let reserved = std::mem::take(&mut self.saved[self.saved_live].reserved);
        self.hold(index, &reserved);
        let (saved, claim) = (&mut self.saved[self.saved_live], &mut self.claims[index]);
        claim.set = saved.set;
        std::mem::swap(&mut claim.types, &mut saved.types);
        claim.requests.clone_from(&saved.requests);
        claim.headroom.clone_from(&saved.headroom);
        claim.ports.clone_from(&saved.ports);
        claim.grown = saved.grown;
        claim.pods -= 1;
        let (pods, template) = (claim.pods, claim.template);
        if let Some(set) = claim.set {
            self.topology.set_claim(index, template, set, &self.algebra);
        }
        self.rebucket(index, pods + 1, pods);
    }

    /// A new claim with its first pod; it is what `scratch` says.
    pub(super) fn open_claim(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        (template, set): (usize, SetId),
        relaxed_min_values: BTreeMap<String, u32>,
    ) {
        let index = self.live;
        if self.claims.len() == index {
            self.claims.push(Claim::default());
        }
        self.live += 1;
        let claim = &mut self.claims[index];
        claim.template = template;
        claim.requests.clone_from(&self.snapshot.requests[0]);
        claim.requests.0.fill(0);
        claim.ports.clear();
        claim.reserved.clear();
        claim.pods = 0;
        claim.relaxed_min_values = relaxed_min_values;
        self.add_to_claim(pod, class, step, index, set);
        let remaining = self.charge(index);
        self.note(Undo::Opened { remaining });
    }

    fn add_to_claim(&mut self, pod: PodId, class: ClassId, step: usize, index: usize, set: SetId) {
        let reserved = std::mem::take(&mut self.scratch.reserved);
        self.hold(index, &reserved);
        self.scratch.reserved = reserved;
        let claim = &mut self.claims[index];
        claim.requests.add(self.snapshot.requests(pod));
        claim.pods += 1;
        claim.grown = self.placed.len();
        claim.set = Some(set);
        let variant = &self.classes[class.index()].variants[step];
        claim.ports.extend_from_slice(&variant.ports);
        claim.types.copy_from(&self.scratch.types);
        let template = &self.templates[claim.template];
        template.set_headroom(&claim.types, self.width, &mut claim.headroom);
        claim.headroom.subtract(&claim.requests);
        let (pods, template) = (claim.pods, claim.template);
        self.rebucket(index, pods - 1, pods);
        self.placed.push(Placed {
            pod,
            on: On::Claim(index),
        });
        self.topology.set_claim(index, template, set, &self.algebra);
        let host = Host::Planned { index, template, set };
        self.topology.record(class, host, &self.algebra);
    }

    /// P-093: charges a new claim against its pool's limits, with the largest capacity it could turn out to have. Returns what was left before.
    fn charge(&mut self, index: usize) -> SmallVec<[i64; 7]> {
        let claim = &self.claims[index];
        let remaining = &mut self.remaining[claim.template];
        let mut before = SmallVec::new();
        if remaining.nodes == UNLIMITED && remaining.resources.iter().all(|left| *left == UNLIMITED) {
            return before;
        }
        before.extend_from_slice(&remaining.resources);
        before.push(remaining.nodes);
        if remaining.nodes != UNLIMITED {
            remaining.nodes -= 1;
        }
        for (resource, left) in remaining.resources.iter_mut().enumerate() {
            if *left != UNLIMITED {
                let largest = self.templates[claim.template].largest_capacity(&claim.types, resource);
                *left = left.saturating_sub(largest);
            }
        }
        before
    }

    fn unopen(&mut self, remaining: &[i64]) {
        self.topology.unrecord(&self.algebra);
        self.placed.pop();
        let index = self.live - 1;
        self.hold(index, &[]);
        self.rebucket(index, self.claims[index].pods, 0);
        self.topology.drop_claim();
        self.live = index;
        if let Some((nodes, resources)) = remaining.split_last() {
            let left = &mut self.remaining[self.claims[index].template];
            left.nodes = *nodes;
            left.resources.clear();
            left.resources.extend_from_slice(resources);
        }
    }

    /// Everything that a fork may change, to compare what was reverted with what it was. Only where that is cheap, and only in debug builds.
    #[cfg(debug_assertions)]
    pub(crate) fn fingerprint_if_small(&self) -> Option<Fingerprint> {
        (self.snapshot.nodes.len() <= 64).then(|| self.fingerprint())
    }

    /// Asserts that a revert left nothing behind: groups and keys that have come into being since are all that may be new, and what is remembered of
    /// failures must be true of the state as it is.
    #[cfg(debug_assertions)]
    pub(crate) fn assert_equals(&self, before: Option<&Fingerprint>) {
        let Some(before) = before else { return };
        let now = self.fingerprint();
        assert_eq!(before.own, now.own, "a revert left something behind");
        for (before, now) in before.topology.iter().zip(&now.topology) {
            assert!(
                now.starts_with(before),
                "a revert left something behind: {before:?} became {now:?}"
            );
        }
        self.assert_memory_is_true();
    }

    /// A node that is passed over as too small for a request is too small for it.
    #[cfg(debug_assertions)]
    fn assert_memory_is_true(&self) {
        for (request, nodes) in self.nodes_too_small.iter().enumerate() {
            let needs = &self.snapshot.requests[request].0;
            for node in nodes.ones() {
                let free = &self.free[node * self.width..(node + 1) * self.width];
                let is_too_small = needs
                    .iter()
                    .zip(free)
                    .any(|(need, free)| need > free || *free < 0);
                assert!(
                    is_too_small,
                    "node {node} is remembered as too small for request {request}"
                );
            }
        }
    }

    #[cfg(debug_assertions)]
    fn fingerprint(&self) -> Fingerprint {
        fn used(map: &rustc_hash::FxHashMap<NodeId, Vec<u32>>) -> BTreeMap<NodeId, &Vec<u32>> {
            let used = map.iter().filter(|(_, list)| !list.is_empty());
            used.map(|(node, list)| (*node, list)).collect()
        }
        let claims: Vec<String> = self.claims[..self.live]
            .iter()
            .map(|claim| {
                // Every field, so that a further one cannot be forgotten.
                let Claim {
                    template,
                    set,
                    types,
                    requests,
                    headroom,
                    ports,
                    pods,
                    grown,
                    reserved,
                    relaxed_min_values,
                } = claim;
                let types: Vec<usize> = types.ones().collect();
                format!(
                    "{template} {set:?} {types:?} {requests:?} {headroom:?} {ports:?} {pods} {grown} {reserved:?} {relaxed_min_values:?}"
                )
            })
            .collect();
        let buckets: Vec<Vec<usize>> = self
            .buckets
            .iter()
            .map(|bucket| bucket.ones().collect())
            .collect();
        let buckets: Vec<_> = buckets.iter().filter(|bucket| !bucket.is_empty()).collect();
        let own = format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {claims:?} {buckets:?} {} {}",
            self.free,
            self.usable.ones().collect::<Vec<_>>(),
            self.remaining,
            used(&self.node_ports),
            used(&self.node_attachments),
            self.reservations,
            self.uncounted.ones().collect::<Vec<_>>(),
            self.placed,
            self.saved_live,
            self.too_small_for_now,
        );
        Fingerprint {
            own,
            topology: self.topology.fingerprint(),
        }
    }
}

/// What [`Engine::fork`] found and a revert must bring back.
#[cfg(debug_assertions)]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    own: String,
    /// Of pods that are placed, groups, censuses and keys; of the last three more may come into being.
    topology: [Vec<String>; 4],
}
