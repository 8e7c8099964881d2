//! Nodes and NodeClaims of a [`LiveSnapshot`]: entries by provider ID, and the view that each makes.
//!
//! Owns where a view stands among the nodes, its kind, and what its NodePool uses. What pods are on it belongs to `pods`.

use super::numbering::Shift;
use super::{LiveSnapshot, Tracked};
use crate::Nomination;
use crate::snapshot::{KindId, NodeId, NodeKind, NodeView, Snapshot};
use crate::state_node;
use crate::vector::ResourceVector;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use smallvec::SmallVec;
use spokeshave_api::NodeClaim;
use std::cmp::Ordering;
use std::sync::Arc;

impl LiveSnapshot {
    /// The indexes of nodes, from scratch.
    pub(super) fn index_nodes(&mut self, nodes: Vec<Arc<Node>>, claims: Vec<Arc<NodeClaim>>) {
        for node in nodes {
            let name = node.metadata.name.clone().unwrap_or_default();
            let id = state_node::tracked_id(&node);
            if let Some(id) = &id {
                let entry = self.entries.entry(id.clone()).or_default();
                put(&mut entry.nodes, &node, node_name);
            }
            self.nodes.insert(name, Tracked { object: node, id });
        }
        for claim in claims {
            let id = claim.provider_id().map(str::to_owned);
            if let Some(id) = &id {
                let entry = self.entries.entry(id.clone()).or_default();
                put(&mut entry.claims, &claim, claim_name);
            }
            self.unlaunched += usize::from(id.is_none());
            let name = claim.name().to_owned();
            self.claims.insert(name, Tracked { object: claim, id });
        }
        let snapshot = Arc::clone(&self.snapshot);
        let mut kinds = Vec::with_capacity(snapshot.kinds.len());
        for node in &snapshot.nodes {
            if let Some(entry) = self.entries.get_mut(&node.provider_id) {
                entry.shown = Some((node.initialized, node.name.clone()));
            }
            if let Some(name) = node.bound_name() {
                self.shown_nodes.insert(name.to_owned(), node.provider_id.clone());
            }
            self.name(&node.capacity);
            self.name(&node.allocatable_resources);
            if node.kind.index() == kinds.len() {
                kinds.push(self.observed.kind_of(node));
            }
        }
        let sequence = snapshot.nodes.iter().map(|node| node.kind.0);
        self.kinds = super::Numbering::new(kinds, sequence);
    }

    pub(super) fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let id = state_node::tracked_id(&node);
        let tracked = Tracked {
            object: Arc::clone(&node),
            id: id.clone(),
        };
        let before = self.nodes.insert(name, tracked);
        if let Some(before) = before.and_then(|before| before.id)
            && id.as_ref() != Some(&before)
        {
            self.without_node(&before, node_name(&node));
        }
        if let Some(id) = id {
            let entry = self.entries.entry(id.clone()).or_default();
            put(&mut entry.nodes, &node, node_name);
            self.refresh(&id);
        }
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        if let Some(id) = self.nodes.remove(name).and_then(|before| before.id) {
            self.without_node(&id, name);
        }
    }

    fn without_node(&mut self, id: &str, name: &str) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.nodes.retain(|node| node_name(node) != name);
            self.refresh(id);
        }
    }

    pub(super) fn set_claim(&mut self, claim: Arc<NodeClaim>) {
        let id = claim.provider_id().map(str::to_owned);
        let tracked = Tracked {
            object: Arc::clone(&claim),
            id: id.clone(),
        };
        self.unlaunched += usize::from(id.is_none());
        if let Some(before) = self.claims.insert(claim.name().to_owned(), tracked) {
            self.unlaunched -= usize::from(before.id.is_none());
            if let Some(before) = before.id
                && id.as_ref() != Some(&before)
            {
                self.without_claim(&before, claim.name());
            }
        }
        if let Some(id) = id {
            let entry = self.entries.entry(id.clone()).or_default();
            put(&mut entry.claims, &claim, claim_name);
            self.refresh(&id);
        }
    }

    pub(super) fn remove_claim(&mut self, name: &str) {
        let Some(before) = self.claims.remove(name) else {
            return;
        };
        self.unlaunched -= usize::from(before.id.is_none());
        if let Some(id) = before.id {
            self.without_claim(&id, name);
        }
    }

    fn without_claim(&mut self, id: &str, name: &str) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.claims.retain(|claim| claim.name() != name);
            self.refresh(id);
        }
    }

    pub(super) fn set_nominated(&mut self, id: String, until: Option<Timestamp>) {
        match until {
            Some(until) => _ = self.rest.nominations.insert(id.clone(), Nomination { until }),
            None => _ = self.rest.nominations.remove(&id),
        }
        if let Some(node) = self.shown_entry(&id) {
            Arc::make_mut(&mut self.snapshot).nodes[node.index()].nominated_until = until;
        }
    }

    pub(super) fn set_in_command(&mut self, id: String, held: bool) {
        if let Some(node) = self.shown_entry(&id) {
            Arc::make_mut(&mut self.snapshot).nodes[node.index()].in_command = held;
        }
        set(&mut self.rest.in_command, id, held);
    }

    pub(super) fn set_marked(&mut self, id: String, marked: bool) {
        set(&mut self.rest.marked_for_deletion, id.clone(), marked);
        self.refresh(&id);
    }

    /// What a CSINode says of its node has changed.
    pub(super) fn refresh_named(&mut self, name: &str) {
        if let Some(id) = self.shown_nodes.get(name).cloned() {
            self.refresh(&id);
        }
    }

    /// Where the view of an entry stands.
    pub(super) fn shown_entry(&self, id: &str) -> Option<NodeId> {
        let (initialized, name) = self.entries.get(id)?.shown.as_ref()?;
        self.find_view(*initialized, name, id).ok().map(NodeId::from)
    }

    fn find_view(&self, initialized: bool, name: &str, id: &str) -> Result<usize, usize> {
        let wanted = (std::cmp::Reverse(initialized), name, id);
        let order = |view: &NodeView| -> Ordering { state_node::order(view).cmp(&wanted) };
        self.snapshot.nodes.binary_search_by(order)
    }

    /// Makes the view of an entry again, or takes it away.
    fn refresh(&mut self, id: &str) {
        let old = self.shown_entry(id).map(NodeId::index);
        let Some(entry) = self.entries.get(id) else { return };
        let (node, claim) = (entry.nodes.last().cloned(), entry.claims.last().cloned());
        let before = old.map(|at| &self.snapshot.nodes[at]);
        if node.is_none() && claim.is_none() {
            self.around.note_node(before, None);
            if let Some(at) = old {
                self.take_view(at);
            }
            self.entries.remove(id);
            return;
        }
        let view = state_node::view(id.to_owned(), node, claim, &self.rest, &self.snapshot.pools);
        self.around.note_node(before, Some(&view));
        let shown = Some((view.initialized, view.name.clone()));
        match old {
            Some(at) if state_node::order(&self.snapshot.nodes[at]) == state_node::order(&view) => {
                self.exchange_view(at, view);
            }
            Some(at) => {
                self.take_view(at);
                self.put_view(view);
            }
            None => self.put_view(view),
        }
        if let Some(entry) = self.entries.get_mut(id) {
            entry.shown = shown;
        }
    }

    /// A view in place of the one before, which stood in the same place.
    fn exchange_view(&mut self, at: usize, mut view: NodeView) {
        let (old, pools) = (&self.snapshot.nodes[at], &self.snapshot.pools);
        let kind = old.kind;
        // Marked or not is another node to those that it is promised to.
        let same_node = old.bound_name() == view.bound_name()
            && (old.marked_for_deletion == view.marked_for_deletion || !self.is_promised(old));
        let same_amounts = old.capacity == view.capacity
            && old.allocatable_resources == view.allocatable_resources
            && old.counts_in(pools) == view.counts_in(pools)
            && old.marked_for_deletion == view.marked_for_deletion;
        if !same_amounts {
            let old = old.clone();
            self.uncount_view(&old);
            self.count_view(&view);
        }
        if !same_node {
            self.leave_node(at);
        }
        self.remove_kind(at, kind, Shift::Stays);
        view.kind = self.insert_kind(at, &view, Shift::Stays);
        view.allocatable = self.snapshot.resources.vector(&view.allocatable_resources);
        let old = &mut Arc::make_mut(&mut self.snapshot).nodes[at];
        view.pods = std::mem::take(&mut old.pods);
        view.requested = std::mem::take(&mut old.requested);
        view.daemon_requested = std::mem::take(&mut old.daemon_requested);
        view.promised = old.promised;
        *old = view;
        if !same_node {
            self.join_node(at);
        }
    }

    /// Whether pods that are not bound name the Node of a view, so that they are on it until it is on its way out.
    fn is_promised(&self, view: &NodeView) -> bool {
        let named = view.bound_name();
        view.promised || named.is_some_and(|name| self.waiting.contains_key(name))
    }

    /// A view leaves.
    fn take_view(&mut self, at: usize) {
        self.leave_node(at);
        let kind = self.snapshot.nodes[at].kind;
        self.remove_kind(at, kind, Shift::Moves);
        let snapshot = Arc::make_mut(&mut self.snapshot);
        let old = snapshot.nodes.remove(at);
        renumber(snapshot, at, |node| node.0 -= u32::from(node.index() > at));
        self.uncount_view(&old);
    }

    /// A view comes.
    fn put_view(&mut self, mut view: NodeView) {
        let found = self.find_view(view.initialized, &view.name, &view.provider_id);
        let at = found.unwrap_or_else(|at| at);
        self.count_view(&view);
        view.kind = self.insert_kind(at, &view, Shift::Moves);
        let width = self.snapshot.resources.width();
        view.allocatable = self.snapshot.resources.vector(&view.allocatable_resources);
        view.requested = ResourceVector::zero(width);
        view.daemon_requested = ResourceVector::zero(width);
        let snapshot = Arc::make_mut(&mut self.snapshot);
        snapshot.nodes.insert(at, view);
        renumber(snapshot, at, |node| node.0 += u32::from(node.index() >= at));
        self.join_node(at);
    }

    fn remove_kind(&mut self, at: usize, kind: KindId, shift: Shift) {
        let nodes = &self.snapshot.nodes;
        self.kinds.remove(at, kind.0, shift, |range| {
            let mut range = range.start..range.end.min(nodes.len());
            range.find(|index| nodes[*index].kind == kind)
        });
    }

    fn insert_kind(&mut self, at: usize, view: &NodeView, shift: Shift) -> KindId {
        let key = self.observed.kind_of(view);
        let requirements = key.0.clone();
        let (id, is_new) = self.kinds.insert(at, key, shift);
        if is_new {
            Arc::make_mut(&mut self.snapshot).kinds.push(NodeKind {
                requirements,
                taints: view.taints.clone(),
            });
        }
        KindId(id)
    }

    /// Nodes whose hosts pods name from now on, or name no more, are of other kinds.
    pub(super) fn settle_hosts(&mut self) {
        let changed = self.observed.take_hosts(&self.observed_now);
        if changed.is_empty() {
            return;
        }
        for at in 0..self.snapshot.nodes.len() {
            if !changed.contains(&self.snapshot.nodes[at].hostname) {
                continue;
            }
            let view = self.snapshot.nodes[at].clone();
            self.remove_kind(at, view.kind, Shift::Stays);
            let kind = self.insert_kind(at, &view, Shift::Stays);
            Arc::make_mut(&mut self.snapshot).nodes[at].kind = kind;
        }
    }

    fn count_view(&mut self, view: &NodeView) {
        self.name(&view.capacity);
        self.name(&view.allocatable_resources);
        if let (Some(pool), false) = (view.counts_in(&self.snapshot.pools), view.marked_for_deletion) {
            self.usage[pool.index()].add(&view.capacity);
        }
        self.usage_changed = true;
    }

    fn uncount_view(&mut self, view: &NodeView) {
        self.unname(&view.capacity);
        self.unname(&view.allocatable_resources);
        if let (Some(pool), false) = (view.counts_in(&self.snapshot.pools), view.marked_for_deletion) {
            self.usage[pool.index()].subtract(&view.capacity);
        }
        self.usage_changed = true;
    }

    /// The Node of a view is not shown any more: its pods wait for one of its name.
    fn leave_node(&mut self, at: usize) {
        let view = &mut Arc::make_mut(&mut self.snapshot).nodes[at];
        let pods = std::mem::take(&mut view.pods);
        let Some(name) = view.bound_name().map(str::to_owned) else {
            return;
        };
        self.shown_nodes.remove(&name);
        self.unbind_all(&name, &pods);
        self.sum(Some(NodeId::from(at)));
    }

    /// The Node of a view is shown now: pods that name it are on it, as far as it takes them.
    fn join_node(&mut self, at: usize) {
        let view = &self.snapshot.nodes[at];
        let Some(name) = view.bound_name().map(str::to_owned) else {
            return;
        };
        let id = view.provider_id.clone();
        self.shown_nodes.insert(name.clone(), id);
        self.bind_all(&name, at);
    }
}

/// Tells pods that nodes from a position on have other numbers. Of few nodes, such as those behind one that is not initialised, it asks which pods are
/// on them; otherwise it passes over all pods, which is faster than to look for half of them.
fn renumber(snapshot: &mut Snapshot, from: usize, change: impl Fn(&mut NodeId)) {
    let behind = &snapshot.nodes[from..];
    if behind.len() * 8 > snapshot.nodes.len() {
        let bound = snapshot.pods.iter_mut().filter_map(|pod| pod.node.as_mut());
        bound.for_each(change);
        return;
    }
    for (index, node) in (from..).zip(behind) {
        for pod in &node.pods {
            snapshot.pods[pod.index()].node = Some(NodeId::from(index));
        }
    }
}

fn node_name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or("")
}

fn claim_name(claim: &NodeClaim) -> &str {
    claim.name()
}

/// Puts an object in place of the one of its name, or where it belongs by name.
fn put<K>(all: &mut SmallVec<[Arc<K>; 1]>, object: &Arc<K>, name: fn(&K) -> &str) {
    match all.binary_search_by(|one| name(one).cmp(name(object))) {
        Ok(index) => all[index] = Arc::clone(object),
        Err(index) => all.insert(index, Arc::clone(object)),
    }
}

fn set(all: &mut std::collections::BTreeSet<String>, id: String, is_in: bool) {
    if is_in {
        all.insert(id);
    } else {
        all.remove(&id);
    }
}
