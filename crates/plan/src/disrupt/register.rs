//! What a pass knows of every node: whether it is a candidate, and the little of it that goes into sums over all nodes.
//!
//! What is said of a node depends on it, its pods and its NodePool. So from pass to pass only nodes are gone through of which one of these has changed, or of
//! which the time or a PodDisruptionBudget has a say. It owns no sums: each pass adds up what it needs. It decides nothing but who is a candidate, by the rules
//! of [`candidates`](super::candidates).

use super::alike::{Likeness, Likenesses};
use super::balanced::cost_of_other;
use super::candidates::{Candidate, DisruptionClass, checked_with};
use super::cost;
use super::evaluate::qualifies;
use super::ground::{changed_at, drifted_since};
use super::hurdle::{Hurdle, Lifted};
use super::kept::{Delta, NodeNumbers, Renumbered};
use super::rounds::has_leaving_pods;
use super::signature::Signature;
use jiff::Timestamp;
use spokeshave_api::hash::digest;
use spokeshave_model::Price;
use spokeshave_model::pod::DoNotDisrupt;
use spokeshave_model::snapshot::{NodeId, PodId, PodView, PoolId, Snapshot};
use std::cmp::Reverse;
use std::sync::Arc;

/// All nodes and their candidates.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Register {
    /// By node.
    entries: Vec<Entry>,
    /// For each node, whether it is a candidate of the graceful class.
    graceful: Vec<Result<Candidate, Hurdle>>,
    /// Candidates that pass the common filter of consolidation, highest savings ratio first.
    order: Vec<NodeId>,
    /// Pods that wait or whose annotation asks not to be disrupted, in order.
    restless: Vec<PodId>,
    /// Of the pods that need places.
    signature: Signature,
    /// What each node of a NodePool costs, by a hash of its provider ID, in order.
    prices: Vec<(u64, Price)>,
    likenesses: Likenesses,
}

/// One node. Small, because every pass goes through all of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) pool: Option<PoolId>,
    pub(super) price: Price,
    pub(super) is_managed: bool,
    pub(super) is_initialized: bool,
    /// It counts for the budgets of its NodePool (D-199).
    pub(super) is_counted: bool,
    /// It is not Ready or marked for deletion: it uses up allowance.
    pub(super) is_out: bool,
    pub(super) is_marked: bool,
    pub(super) in_command: bool,
    pub(super) is_consolidatable: bool,
    pub(super) is_drifted: bool,
    /// Pods are leaving it.
    pub(super) has_leaving_pods: bool,
    /// When a pod came to it or left it for the last time, once it is initialised.
    pub(super) changed_at: Option<Timestamp>,
    /// Until when it is kept for pods.
    pub(super) nominated_until: Option<Timestamp>,
    /// None of its pods is protected, at any time.
    is_timeless: bool,
    /// None of its pods is under a PodDisruptionBudget.
    is_unbudgeted: bool,
    /// What its candidate passes of the common filter of consolidation.
    is_qualified: bool,
    /// How many of its pods are reschedulable.
    pub(super) reschedulable: usize,
    /// Reschedule disruption cost: one for the node, plus the positive eviction cost of its reschedulable pods (D-052).
    pub(super) disruption_cost: i64,
    /// The same as it counts where the node is no candidate (D-057).
    other_cost: i64,
    digest: u64,
    /// What it shares with candidates of which the same is true.
    likeness: Option<Arc<Likeness>>,
}

impl Entry {
    fn of(snapshot: &Snapshot, node: NodeId) -> Self {
        let view = snapshot.node(node);
        let pods = || view.present_pods().iter().map(|pod| snapshot.pod(*pod));
        Entry {
            pool: view.pool,
            price: view.price,
            is_managed: view.is_managed(),
            is_initialized: view.initialized,
            is_counted: view.is_managed() && view.initialized && !view.instance_terminating,
            is_out: !view.ready || view.marked_for_deletion,
            is_marked: view.marked_for_deletion,
            in_command: view.in_command,
            is_consolidatable: view.consolidatable,
            is_drifted: drifted_since(view).is_some(),
            has_leaving_pods: has_leaving_pods(snapshot, view),
            changed_at: changed_at(view),
            nominated_until: view.nominated_until,
            is_timeless: pods().all(|pod| matches!(pod.do_not_disrupt(), DoNotDisrupt::Absent)),
            is_unbudgeted: pods().all(|pod| pod.budgets().is_empty()),
            is_qualified: false,
            reschedulable: pods().filter(|pod| pod.reschedulable).count(),
            disruption_cost: snapshot.disruption_cost(node),
            other_cost: cost_of_other(snapshot, view),
            digest: digest(&view.provider_id),
            likeness: None,
        }
    }

    /// None of its pods is protected or under a PodDisruptionBudget.
    pub(super) fn is_plain(&self) -> bool {
        self.is_timeless && self.is_unbudgeted
    }

    /// It comes, goes, or pods are leaving it.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_managed && (!self.is_initialized || self.is_leaving() || self.has_leaving_pods)
    }

    /// It is in a command or being deleted.
    pub(super) fn is_leaving(&self) -> bool {
        self.in_command || self.is_marked
    }
}

/// Whether a pod waits, or its annotation asks not to be disrupted.
pub(super) fn is_restless(view: &PodView) -> bool {
    view.provisionable || !matches!(view.do_not_disrupt(), DoNotDisrupt::Absent)
}

impl Register {
    /// Of all nodes.
    pub(super) fn of(snapshot: &Snapshot, now: Timestamp) -> Self {
        let restless = snapshot.pods.iter().enumerate();
        let restless = restless.filter(|(_, view)| is_restless(view));
        let mut register = Register {
            restless: restless.map(|(index, _)| PodId::from(index)).collect(),
            signature: Signature::of(snapshot),
            likenesses: Likenesses::of(&snapshot.classes),
            ..Register::default()
        };
        for node in snapshot.node_ids() {
            let (entry, candidate) = register.judge(snapshot, node, now);
            register.entries.push(entry);
            register.graceful.push(candidate);
        }
        register.order = snapshot
            .node_ids()
            .filter(|node| register.entry(*node).is_qualified)
            .collect();
        register.sort();
        register.list_prices();
        register
    }

    /// The same for a second look at a command, whose nodes are in none on this Snapshot. It asks for single nodes and sums: without what only passes look at.
    pub(super) fn of_second_look(snapshot: &Snapshot, now: Timestamp) -> Self {
        let judged = snapshot.node_ids().map(|node| judged(snapshot, node, now));
        let (entries, graceful) = judged.unzip();
        Register {
            entries,
            graceful,
            ..Register::default()
        }
    }

    /// Becomes the register of another Snapshot, which differs in so much; says of which nodes the candidate may be another.
    pub(super) fn renew(&mut self, snapshot: &Snapshot, now: Timestamp, delta: &Delta) -> Vec<NodeId> {
        self.signature.renew(snapshot, delta);
        self.renew_restless(snapshot, &delta.pods);
        let has_other_nodes = !delta.nodes.are_same();
        if has_other_nodes {
            self.renumber_nodes(snapshot, &delta.nodes);
        }
        if delta.are_shapes_renumbered() {
            self.likenesses = Likenesses::of(&snapshot.classes);
            for (index, entry) in self.entries.iter_mut().enumerate() {
                let is_candidate = self.graceful[index].is_ok() && entry.is_plain();
                let find = || self.likenesses.find(snapshot, &snapshot.nodes[index]);
                entry.likeness = is_candidate.then(find).flatten();
            }
        }
        let mut changed = Vec::new();
        let mut touched = delta.touched.iter().copied().peekable();
        let mut has_other_prices = has_other_nodes;
        for (index, node) in snapshot.node_ids().enumerate() {
            let known = &self.entries[index];
            let is_touched = touched.next_if_eq(&node).is_some();
            let is_open = !known.is_timeless
                || known.nominated_until.is_some()
                || (delta.budgets && !known.is_unbudgeted);
            if !is_touched && !is_open {
                if !known.is_unbudgeted && !delta.pods.is_same() {
                    renumber(&mut self.graceful[index], &delta.pods);
                }
                continue;
            }
            renumber(&mut self.graceful[index], &delta.pods);
            let (entry, candidate) = self.judge(snapshot, node, now);
            let known = &self.entries[index];
            if is_touched || entry != *known || candidate != self.graceful[index] {
                has_other_prices |= (entry.digest, entry.price, entry.is_managed)
                    != (known.digest, known.price, known.is_managed);
                self.entries[index] = entry;
                changed.push(node);
            }
            self.graceful[index] = candidate;
        }
        if !changed.is_empty() {
            self.order.retain(|node| changed.binary_search(node).is_err());
            let qualified = |node: &&NodeId| self.entry(**node).is_qualified;
            let qualified: Vec<NodeId> = changed.iter().filter(qualified).copied().collect();
            self.sort_in(&qualified);
        }
        if has_other_prices {
            self.list_prices();
        }
        self.likenesses.forget_unused(self.entries.len());
        changed
    }

    /// Gives nodes the numbers that they have now. What is said of those that have come is to be judged.
    fn renumber_nodes(&mut self, snapshot: &Snapshot, nodes: &NodeNumbers) {
        let entries = std::mem::take(&mut self.entries).into_iter();
        let both = entries.zip(std::mem::take(&mut self.graceful));
        let mut known: Vec<Option<(Entry, Result<Candidate, Hurdle>)>> = Vec::new();
        known.resize_with(snapshot.nodes.len(), || None);
        for (was, (entry, mut candidate)) in (0..).map(NodeId).zip(both) {
            let Some(node) = nodes.of(was) else { continue };
            if let Ok(candidate) = &mut candidate {
                candidate.node = node;
            }
            known[node.index()] = Some((entry, candidate));
        }
        for (node, known) in snapshot.node_ids().zip(known) {
            let (entry, candidate) =
                known.unwrap_or_else(|| (Entry::of(snapshot, node), Err(Hurdle::NotManaged)));
            self.entries.push(entry);
            self.graceful.push(candidate);
        }
        let order = std::mem::take(&mut self.order);
        self.order = order.into_iter().filter_map(|was| nodes.of(was)).collect();
    }

    /// What is known of a node, and whether it is a candidate.
    fn judge(
        &mut self,
        snapshot: &Snapshot,
        node: NodeId,
        now: Timestamp,
    ) -> (Entry, Result<Candidate, Hurdle>) {
        let (mut entry, candidate) = judged(snapshot, node, now);
        let qualifies = |candidate: &Candidate| qualifies(snapshot, candidate, &Lifted::new()).is_ok();
        entry.is_qualified = candidate.as_ref().is_ok_and(qualifies);
        if candidate.is_ok() && entry.is_plain() {
            entry.likeness = self.likenesses.find(snapshot, snapshot.node(node));
        }
        (entry, candidate)
    }

    fn renew_restless(&mut self, snapshot: &Snapshot, pods: &Renumbered) {
        if pods.is_same() {
            return;
        }
        let restless = std::mem::take(&mut self.restless);
        self.restless = restless.into_iter().filter_map(|pod| pods.of(pod)).collect();
        let new = pods.changed_now();
        self.restless
            .extend(new.filter(|pod| is_restless(snapshot.pod(*pod))));
        self.restless.sort_unstable();
    }

    fn sort(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.sort_by_key(|node| self.rank(*node));
        self.order = order;
    }

    /// Puts nodes where they belong in the order, which is right without them.
    fn sort_in(&mut self, nodes: &[NodeId]) {
        if nodes.len() > MOST_SORTED_IN {
            self.order.extend(nodes);
            return self.sort();
        }
        for node in nodes {
            let rank = self.rank(*node);
            let at = self.order.partition_point(|other| self.rank(*other) < rank);
            self.order.insert(at, *node);
        }
    }

    /// Candidates are initialised, and such nodes are in order of their names.
    fn rank(&self, node: NodeId) -> (Reverse<Option<cost::Ratio>>, NodeId) {
        let candidate = self.graceful[node.index()].as_ref().ok();
        (Reverse(candidate.map(cost::Ratio::of)), node)
    }

    fn list_prices(&mut self) {
        let managed = self.entries.iter().filter(|entry| entry.is_managed);
        self.prices = managed.map(|entry| (entry.digest, entry.price)).collect();
        self.prices.sort_unstable();
    }

    pub(super) fn entry(&self, node: NodeId) -> &Entry {
        &self.entries[node.index()]
    }

    /// All nodes, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (NodeId, &Entry)> {
        (0..).map(NodeId).zip(&self.entries)
    }

    /// Nodes in commands or being deleted, in order.
    pub(super) fn leaving(&self) -> impl Iterator<Item = NodeId> + '_ {
        let leaving = self.entries().filter(|(_, entry)| entry.is_leaving());
        leaving.map(|(node, _)| node)
    }

    /// For each node, whether it is a candidate of the graceful class, and else the first hurdle.
    pub(super) fn graceful(&self) -> &[Result<Candidate, Hurdle>] {
        &self.graceful
    }

    /// How many candidates pass the common filter of consolidation.
    pub(super) fn qualified_count(&self) -> usize {
        self.order.len()
    }

    /// Candidates that pass the common filter of consolidation, highest savings ratio first.
    pub(super) fn qualified(&self) -> impl Iterator<Item = &Candidate> {
        let candidate = |node: &NodeId| self.graceful[node.index()].as_ref().ok();
        self.order.iter().filter_map(candidate)
    }

    /// Candidates that do not, in node order.
    pub(super) fn unqualified(&self) -> impl Iterator<Item = &Candidate> {
        let both = self.entries.iter().zip(&self.graceful);
        both.filter_map(|(entry, candidate)| candidate.as_ref().ok().filter(|_| !entry.is_qualified))
    }

    /// What the disruption of a node counts in the sum of its NodePool.
    pub(super) fn disruption_of(&self, node: NodeId) -> i64 {
        match &self.graceful[node.index()] {
            Ok(candidate) => candidate.disruption_cost,
            Err(_) => self.entry(node).other_cost,
        }
    }

    /// What a candidate shares with those of which the same is true; one likeness is at one address.
    pub(super) fn likeness(&self, node: NodeId) -> Option<*const Likeness> {
        self.entry(node).likeness.as_ref().map(Arc::as_ptr)
    }

    /// Pods that wait or whose annotation asks not to be disrupted, in order.
    pub(super) fn restless<'s>(
        &'s self,
        snapshot: &'s Snapshot,
    ) -> impl Iterator<Item = (PodId, &'s PodView)> {
        self.restless.iter().map(|pod| (*pod, snapshot.pod(*pod)))
    }

    pub(super) fn signature(&self) -> u64 {
        self.signature.value()
    }

    /// The same without these pods.
    pub(super) fn signature_without(&self, snapshot: &Snapshot, pods: &[PodId]) -> u64 {
        self.signature.without(snapshot, pods)
    }

    pub(super) fn prices(&self) -> &[(u64, Price)] {
        &self.prices
    }

    /// The nodes without a pod that would have to move, as `prices` has them.
    pub(super) fn unused(&self) -> impl Iterator<Item = u64> + '_ {
        let unused = self.entries.iter().filter(|entry| entry.reschedulable == 0);
        unused.map(|entry| entry.digest)
    }

    /// Of these, those that have yet to come up.
    pub(super) fn coming(&self) -> impl Iterator<Item = u64> + '_ {
        let coming = self
            .entries
            .iter()
            .filter(|entry| entry.reschedulable == 0 && !entry.is_initialized);
        coming.map(|entry| entry.digest)
    }
}

/// What is known of a node, besides what only passes look at, and whether it is a candidate.
fn judged(snapshot: &Snapshot, node: NodeId, now: Timestamp) -> (Entry, Result<Candidate, Hurdle>) {
    let entry = Entry::of(snapshot, node);
    let class = DisruptionClass::Graceful;
    let candidate = checked_with(snapshot, node, class, now, &Lifted::new(), Some(&entry));
    (entry, candidate)
}

/// Where more nodes than this have changed, all are sorted.
const MOST_SORTED_IN: usize = 64;

/// Gives pods the numbers that they have now.
fn renumber(candidate: &mut Result<Candidate, Hurdle>, pods: &Renumbered) {
    let new = |pod: &mut PodId| *pod = pods.of(*pod).unwrap_or(*pod);
    match candidate {
        Ok(candidate) => candidate.renumber(new),
        Err(Hurdle::SeveralBudgets(pod) | Hurdle::PodDoNotDisrupt(pod)) => new(pod),
        Err(_) => {}
    }
}
