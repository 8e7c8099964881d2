//! Nodes as a pass has read them, small enough to be remembered, and what has become of them on another Snapshot.
//!
//! Nodes come and go with every command, which gives those behind them other numbers. Objects are compared by identity first: while they are held here no other
//! object has their address. It decides nothing.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_model::Price;
use spokeshave_model::snapshot::{KindId, NodeId, NodeKind, NodeView, PoolId, Snapshot};
use spokeshave_model::state_node::order;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All nodes, in order.
#[derive(Clone)]
pub(super) struct Nodes {
    marks: Vec<NodeMark>,
    kinds: Vec<NodeKind>,
}

/// Which numbers nodes of before have now.
#[derive(Clone, Default)]
pub(in crate::disrupt) struct NodeNumbers {
    /// By the number of before, none for a node that is gone; no list where each has the number that it had and none has come.
    new: Option<Vec<Option<NodeId>>>,
}

impl NodeNumbers {
    /// Every node has the number that it had, and none has come.
    pub(in crate::disrupt) fn are_same(&self) -> bool {
        self.new.is_none()
    }

    /// The number of a node now; none when it is gone.
    pub(in crate::disrupt) fn of(&self, node: NodeId) -> Option<NodeId> {
        match &self.new {
            None => Some(node),
            Some(new) => new.get(node.index()).copied().flatten(),
        }
    }
}

/// How nodes differ from what they were, by the numbers that they have now.
#[derive(Default)]
pub(super) struct NodesDelta {
    pub(super) numbers: NodeNumbers,
    /// Those that have come or changed, in order.
    pub(super) touched: Vec<NodeId>,
    /// Those of them of which what-ifs read something else, in order.
    pub(super) others: Vec<NodeId>,
}

impl NodesDelta {
    fn add(&mut self, node: NodeId, follows: Follows) {
        if follows != Follows::Same {
            self.touched.push(node);
        }
        if follows == Follows::Other {
            self.others.push(node);
        }
    }
}

impl Nodes {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Nodes {
            marks: snapshot.nodes.iter().map(NodeMark::of).collect(),
            kinds: snapshot.kinds.clone(),
        }
    }

    /// Becomes the nodes of another Snapshot, and says how they differ. O(nodes), to compare each by identity.
    pub(super) fn follow(&mut self, snapshot: &Snapshot) -> NodesDelta {
        let kinds = (self.kinds != snapshot.kinds)
            .then(|| std::mem::replace(&mut self.kinds, snapshot.kinds.clone()));
        let is_same_kind = |was: KindId, is: KindId| match &kinds {
            None => was == is,
            Some(kinds) => kinds[was.index()] == snapshot.kinds[is.index()],
        };
        let mut delta = NodesDelta::default();
        let mut both = self.marks.iter().zip(&snapshot.nodes);
        let are_same = self.marks.len() == snapshot.nodes.len() && both.all(|(mark, view)| mark.is_of(view));
        if are_same {
            for ((mark, view), node) in self.marks.iter_mut().zip(&snapshot.nodes).zip((0..).map(NodeId)) {
                delta.add(node, mark.follow(view, is_same_kind));
            }
            return delta;
        }
        let mut numbers = Vec::with_capacity(self.marks.len());
        let mut views = (0..).map(NodeId).zip(&snapshot.nodes).peekable();
        for mut mark in std::mem::replace(&mut self.marks, Vec::with_capacity(snapshot.nodes.len())) {
            while let Some((node, view)) = views.next_if(|(_, view)| mark.is_behind(view)) {
                delta.add(node, Follows::Other);
                self.marks.push(NodeMark::of(view));
            }
            let found = views.next_if(|(_, view)| mark.is_of(view));
            numbers.push(found.map(|(node, _)| node));
            if let Some((node, view)) = found {
                delta.add(node, mark.follow(view, is_same_kind));
                self.marks.push(mark);
            }
        }
        for (node, view) in views {
            delta.add(node, Follows::Other);
            self.marks.push(NodeMark::of(view));
        }
        delta.numbers.new = Some(numbers);
        delta
    }
}

/// A node, as far as what-ifs read it beside the pods that are on it.
#[derive(Clone)]
struct NodeMark {
    node: Option<Arc<Node>>,
    claim: Option<Arc<NodeClaim>>,
    name: String,
    provider_id: String,
    facts: NodeFacts,
    attach_limits: BTreeMap<String, i64>,
    /// What-ifs do not read it.
    nominated_until: Option<Timestamp>,
}

/// How a node differs from what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// In nothing.
    Same,
    /// In something that what-ifs do not read.
    Touched,
    /// In something that they do, or it has come.
    Other,
}

/// What is not in the objects of a node alone.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NodeFacts {
    kind: KindId,
    pool: Option<PoolId>,
    instance_type: Option<usize>,
    price: Price,
    registered: bool,
    initialized: bool,
    marked_for_deletion: bool,
    in_command: bool,
}

impl NodeFacts {
    fn of(view: &NodeView) -> Self {
        NodeFacts {
            kind: view.kind,
            pool: view.pool,
            instance_type: view.instance_type,
            price: view.price,
            registered: view.registered,
            initialized: view.initialized,
            marked_for_deletion: view.marked_for_deletion,
            in_command: view.in_command,
        }
    }
}

/// Whether there is neither of two objects, or both are and are the same.
fn agree<T>(
    one: Option<&Arc<T>>,
    other: Option<&Arc<T>>,
    is_same: impl Fn(&Arc<T>, &Arc<T>) -> bool,
) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => is_same(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl NodeMark {
    fn of(view: &NodeView) -> Self {
        NodeMark {
            node: view.node.clone(),
            claim: view.claim.clone(),
            name: view.name.clone(),
            provider_id: view.provider_id.clone(),
            facts: NodeFacts::of(view),
            attach_limits: view.attach_limits.clone(),
            nominated_until: view.nominated_until,
        }
    }

    /// Where it stood among all, as [`order`] has it.
    fn order(&self) -> (Reverse<bool>, &str, &str) {
        (Reverse(self.facts.initialized), &self.name, &self.provider_id)
    }

    fn has_objects_of(&self, view: &NodeView) -> bool {
        self.facts.initialized == view.initialized
            && agree(self.node.as_ref(), view.node.as_ref(), Arc::ptr_eq)
            && agree(self.claim.as_ref(), view.claim.as_ref(), Arc::ptr_eq)
    }

    /// Whether it is this node, in the same place.
    fn is_of(&self, view: &NodeView) -> bool {
        self.has_objects_of(view) || self.order() == order(view)
    }

    /// Whether another node stands before it.
    fn is_behind(&self, view: &NodeView) -> bool {
        !self.has_objects_of(view) && order(view) < self.order()
    }

    /// Becomes the mark of the node as it is now, and says how it differs.
    fn follow(&mut self, view: &NodeView, is_same_kind: impl Fn(KindId, KindId) -> bool) -> Follows {
        if is_same_kind(self.facts.kind, view.kind) {
            self.facts.kind = view.kind;
        }
        let has_same_objects = self.has_objects_of(view);
        let has_same_facts = self.facts == NodeFacts::of(view) && self.attach_limits == view.attach_limits;
        if has_same_objects && has_same_facts && self.nominated_until == view.nominated_until {
            return Follows::Same;
        }
        let is_same = has_same_facts && (has_same_objects || self.is_alike(view));
        *self = NodeMark::of(view);
        if is_same { Follows::Touched } else { Follows::Other }
    }

    /// Whether what-ifs read the same of the objects of a node.
    fn is_alike(&self, view: &NodeView) -> bool {
        let (node, claim) = (self.node.as_ref(), self.claim.as_ref());
        agree(node, view.node.as_ref(), |one, other| is_same_node(one, other))
            && agree(claim, view.claim.as_ref(), |one, other| is_same_claim(one, other))
    }
}

/// All but conditions and what else a kubelet says again and again.
fn is_same_node(one: &Node, other: &Node) -> bool {
    let (meta, known) = (&one.metadata, &other.metadata);
    let capacity = |node: &Node| {
        let status = node.status.as_ref();
        status.map(|status| (status.capacity.clone(), status.allocatable.clone()))
    };
    meta.name == known.name
        && meta.labels == known.labels
        && one.spec == other.spec
        && capacity(one) == capacity(other)
}

/// All but conditions and when pods came or went.
fn is_same_claim(one: &NodeClaim, other: &NodeClaim) -> bool {
    let (meta, known) = (&one.metadata, &other.metadata);
    let status = |claim: &NodeClaim| {
        let status = claim.status.as_ref();
        status.map(|status| {
            let names = (status.node_name.clone(), status.provider_id.clone());
            (names, status.capacity.clone(), status.allocatable.clone())
        })
    };
    meta.name == known.name
        && meta.labels == known.labels
        && one.spec == other.spec
        && status(one) == status(other)
}
