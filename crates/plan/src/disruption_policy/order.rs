//! In which order drifted nodes are offered, where roll-outs say so. Whether they may go is not asked here.

use super::hold::born;
use super::rules::selects;
use jiff::Timestamp;
use spokeshave_api::disruption_policy::RolloutOrder;
use spokeshave_model::labels;
use spokeshave_model::snapshot::{NodeId, PoolView, Snapshot};

/// The orders that roll-outs ask for. A node is in that of the first policy with one that selects its NodePool, and in no other: two orders that apply to
/// some of the same nodes have no order together.
#[derive(Debug)]
pub(crate) struct Orders<'a> {
    snapshot: &'a Snapshot,
    /// By NodePool: the position of the policy.
    policies: Vec<Option<usize>>,
}

/// Where a node stands by one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place<'a> {
    Zone(Option<&'a str>),
    Age(Option<Timestamp>),
    Importance(i64),
}

impl<'a> Orders<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let first = |pool: &PoolView| {
            snapshot.disruption_policies.iter().position(|policy| {
                let rollout = policy.spec.rollout.as_ref();
                rollout.is_some_and(|one| !one.order.is_empty()) && selects(policy, pool)
            })
        };
        Orders {
            snapshot,
            policies: snapshot.pools.iter().map(first).collect(),
        }
    }

    /// Which of the orders a node is in, if any.
    pub(crate) fn group(&self, node: NodeId) -> Option<usize> {
        let pool = self.snapshot.node(node).pool?;
        self.policies.get(pool.index()).copied().flatten()
    }

    /// Where a node stands among those of its group, by one key after the other.
    pub(crate) fn places(&self, node: NodeId) -> Vec<Place<'a>> {
        let policies = &self.snapshot.disruption_policies;
        let policy = self.group(node).map(|group| &policies[group]);
        let rollout = policy.and_then(|policy| policy.spec.rollout.as_ref());
        let keys = rollout.into_iter().flat_map(|rollout| &rollout.order);
        keys.filter_map(|key| self.place(node, key)).collect()
    }

    fn place(&self, node: NodeId, key: &RolloutOrder) -> Option<Place<'a>> {
        let view = self.snapshot.node(node);
        match key {
            RolloutOrder::Zone => {
                let zone = view.labels.get(labels::ZONE);
                Some(Place::Zone(zone.map(String::as_str)))
            }
            RolloutOrder::Age => Some(Place::Age(born(view))),
            RolloutOrder::Importance => Some(Place::Importance(self.snapshot.disruption_cost(node))),
            // A fault, which stops all of it.
            RolloutOrder::Other(_) => None,
        }
    }
}
