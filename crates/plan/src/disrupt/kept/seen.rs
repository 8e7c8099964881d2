//! The Snapshot of the pass before, as far as it is compared with the next, and how that one differs.
//!
//! It says what has changed. What follows from that for an answer, it does not know.

use super::marks::{Pods, Renumbered, renumbered_classes};
use super::nodes::{NodeNumbers, Nodes};
use spokeshave_model::Classes;
use spokeshave_model::snapshot::{BudgetView, ClassId, DaemonView, NodeId, PoolView, Snapshot};
use spokeshave_model::vector::ResourceTable;
use spokeshave_schedule::LentLimits;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A Snapshot as a pass has read it.
#[derive(Clone)]
pub(super) struct Seen {
    resources: ResourceTable,
    well_known: BTreeSet<String>,
    pools: Vec<PoolView>,
    daemons: Vec<DaemonView>,
    budgets: Vec<BudgetView>,
    classes: Classes,
    nodes: Nodes,
    lent_limits: LentLimits,
    pods: Pods,
}

/// How a Snapshot differs from the one that was seen before.
#[derive(Clone)]
pub(in crate::disrupt) struct Delta {
    pub(in crate::disrupt) pods: Renumbered,
    /// Classes as they were.
    pub(super) classes: Classes,
    /// Which class each of them is now; none when all are what they were.
    numbers: Option<Vec<Option<ClassId>>>,
    /// PodDisruptionBudgets have changed.
    pub(in crate::disrupt) budgets: bool,
    pub(in crate::disrupt) nodes: NodeNumbers,
    /// Nodes that have come or changed, or whose pods have, in order.
    pub(in crate::disrupt) touched: Vec<NodeId>,
    /// Nodes that have come, or of which what-ifs read something else besides their pods, in order.
    pub(super) others: Vec<NodeId>,
    /// Nodes say something else of the attach limits of others.
    pub(super) has_other_lent_limits: bool,
}

/// More changed pods than this are not looked at one by one: everything is new.
const MOST_PODS: usize = 1_024;

impl Delta {
    /// Which class a class of before is now; none when it is not there any more.
    pub(super) fn class(&self, class: ClassId) -> Option<ClassId> {
        match &self.numbers {
            None => Some(class),
            Some(new) => new.get(class.index()).copied().flatten(),
        }
    }

    /// Every class has the number that it had.
    pub(super) fn has_same_classes(&self) -> bool {
        self.numbers.is_none()
    }

    /// Nodes have come, gone or become others.
    pub(super) fn has_other_nodes(&self) -> bool {
        !self.others.is_empty() || !self.nodes.are_same()
    }

    /// Classes or requests have other numbers than before.
    pub(in crate::disrupt) fn are_shapes_renumbered(&self) -> bool {
        self.numbers.is_some() || self.pods.has_other_requests
    }
}

impl Seen {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Seen {
            resources: snapshot.resources.clone(),
            well_known: snapshot.well_known.clone(),
            pools: snapshot.pools.clone(),
            daemons: snapshot.daemons.clone(),
            budgets: snapshot.budgets.clone(),
            classes: snapshot.classes.clone(),
            nodes: Nodes::of(snapshot),
            lent_limits: LentLimits::of(snapshot),
            pods: Pods::of(snapshot),
        }
    }

    /// Becomes what is seen of another Snapshot, and says how it differs; none when it differs in what everything depends on, and then this is of no use any
    /// more. O(pods + nodes), to compare each by identity.
    pub(super) fn follow(&mut self, snapshot: &Snapshot) -> Option<Delta> {
        let mut pools = self.pools.iter().zip(&snapshot.pools);
        let is_same = self.pools.len() == snapshot.pools.len()
            && pools.all(|(one, other)| is_same_pool(one, other))
            && self.daemons == snapshot.daemons
            && self.resources == snapshot.resources
            && self.well_known == snapshot.well_known;
        if !is_same {
            return None;
        }
        let nodes = self.nodes.follow(snapshot);
        let mut touched = nodes.touched;
        let numbers = renumbered_classes(&self.classes, &snapshot.classes);
        let pods = self
            .pods
            .follow(snapshot, numbers.as_deref(), &nodes.numbers, MOST_PODS)?;
        touched.extend(pods.nodes(snapshot));
        touched.sort_unstable();
        touched.dedup();
        let budgets = self.budgets != snapshot.budgets;
        if budgets {
            self.budgets.clone_from(&snapshot.budgets);
        }
        let mut delta = Delta {
            pods,
            classes: std::mem::replace(&mut self.classes, snapshot.classes.clone()),
            numbers,
            budgets,
            nodes: nodes.numbers,
            touched,
            others: nodes.others,
            has_other_lent_limits: false,
        };
        // Whose limits and labels are what they were says what it did.
        if delta.has_other_nodes() {
            let lent_limits = LentLimits::of(snapshot);
            delta.has_other_lent_limits = lent_limits != self.lent_limits;
            self.lent_limits = lent_limits;
        }
        Some(delta)
    }
}

/// Whether two NodePools are the same but for what nobody plans with: their status and the versions of the objects. What they use is compared as what is left
/// of their limits.
fn is_same_pool(one: &PoolView, other: &PoolView) -> bool {
    let is_same_object = Arc::ptr_eq(&one.object, &other.object)
        || (one.object.spec == other.object.spec
            && one.object.metadata.labels == other.object.metadata.labels
            && one.object.metadata.annotations == other.object.metadata.annotations);
    is_same_object
        && one.name == other.name
        && one.uid == other.uid
        && one.weight == other.weight
        && one.is_static == other.is_static
        && one.ready == other.ready
        && one.deleting == other.deleting
        && one.supported == other.supported
        && one.requirements == other.requirements
        && one.taints == other.taints
        && one.limits == other.limits
        && (Arc::ptr_eq(&one.instance_types, &other.instance_types)
            || (one.instance_types.is_empty() && other.instance_types.is_empty()))
        && one.instance_types_problem == other.instance_types_problem
}
