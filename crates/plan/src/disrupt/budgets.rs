//! How many nodes of each NodePool may be disrupted now (D §5.3, §5.4).

use crate::disruption_policy::{self, Limits, Memo};
use jiff::Timestamp;
use spokeshave_api::{BudgetError, DisruptionReason};
use spokeshave_model::snapshot::{NodeId, PoolId, Snapshot};
use spokeshave_model::{Event, EventType, ObjectKind, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};

/// What one NodePool allows for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolBudget {
    /// Nodes that count (D-199).
    pub nodes: usize,
    /// Nodes that use up allowance: not Ready, on their way out (D-200), or in a command that is about to be.
    pub disrupting: usize,
    /// The minimum over the budgets that apply, before what is used up (D-195).
    pub allowed: i64,
    /// What is left, never below zero.
    pub remaining: i64,
    /// A budget that cannot be evaluated, which closes the pool for this reason (D-197).
    pub error: Option<BudgetError>,
}

/// By NodePool, how many nodes count, and how many of them use up allowance.
pub(super) type Uses = BTreeMap<PoolId, (usize, usize)>;

/// Counts a node of a NodePool.
pub(super) fn count((nodes, disrupting): &mut (usize, usize), is_disrupting: bool) {
    *nodes += 1;
    *disrupting += usize::from(is_disrupting);
}

/// The nodes of a snapshot, counted; those of `own`, by provider ID, use nothing up by being in a command.
fn uses(snapshot: &Snapshot, own: &BTreeSet<&str>) -> Uses {
    let mut uses = Uses::new();
    for node in &snapshot.nodes {
        let is_counted = node.is_managed() && node.initialized && !node.instance_terminating;
        if let Some(pool) = node.pool.filter(|_| is_counted) {
            let waiting = node.in_command && !own.contains(node.provider_id.as_str());
            count(
                uses.entry(pool).or_default(),
                !node.ready || node.marked_for_deletion || waiting,
            );
        }
    }
    uses
}

/// The allowance of every NodePool for one reason. Pools that are not in it allow nothing (D-203).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetMapping {
    /// The reason it was built for.
    pub reason: DisruptionReason,
    /// By pool.
    pub pools: BTreeMap<PoolId, PoolBudget>,
    /// What DisruptionPolicies leave besides; nothing is limited where there are none.
    pub policies: Limits,
}

impl BudgetMapping {
    /// Builds the mapping at `now` (D-198).
    pub fn build(snapshot: &Snapshot, reason: &DisruptionReason, now: Timestamp) -> Self {
        Self::build_for(snapshot, reason, now, &BTreeSet::new())
    }

    /// The same for a command that is already counted: its `own` nodes, by provider ID, use nothing up by being in it. Nodes of other
    /// commands do, from the moment they are chosen, so that commands waiting for their second look never overdraw a budget together.
    pub(super) fn build_for(
        snapshot: &Snapshot,
        reason: &DisruptionReason,
        now: Timestamp,
        own: &BTreeSet<&str>,
    ) -> Self {
        let (uses, memo) = (uses(snapshot, own), Memo::new(snapshot, now, own));
        Self::build_with(snapshot, reason, now, &uses, &memo)
    }

    /// One for each reason; what they share is found once.
    pub fn build_each(snapshot: &Snapshot, reasons: &[DisruptionReason], now: Timestamp) -> Vec<Self> {
        let own = BTreeSet::new();
        let (uses, memo) = (uses(snapshot, &own), Memo::new(snapshot, now, &own));
        reasons
            .iter()
            .map(|reason| Self::build_with(snapshot, reason, now, &uses, &memo))
            .collect()
    }

    /// One reason, with what was found for another already.
    pub(super) fn build_with(
        snapshot: &Snapshot,
        reason: &DisruptionReason,
        now: Timestamp,
        uses: &Uses,
        memo: &Memo<'_>,
    ) -> Self {
        let supported = (0..snapshot.pools.len())
            .map(PoolId::from)
            .filter(|pool| snapshot.pool(*pool).supported);
        let pools = supported.map(|pool| {
            let (nodes, disrupting) = uses.get(&pool).copied().unwrap_or_default();
            let allowed = snapshot.pool(pool).object.allowed_disruptions(reason, nodes, now);
            let (allowed, error) = allowed.map_or_else(|error| (0, Some(error)), |allowed| (allowed, None));
            let remaining = (allowed - i64::try_from(disrupting).unwrap_or(i64::MAX)).max(0);
            (
                pool,
                PoolBudget {
                    nodes,
                    disrupting,
                    allowed,
                    remaining,
                    error,
                },
            )
        });
        BudgetMapping {
            reason: reason.clone(),
            pools: pools.collect(),
            policies: disruption_policy::limits_with(snapshot, reason, memo),
        }
    }

    /// What is left for a pool.
    pub fn remaining(&self, pool: PoolId) -> i64 {
        self.pools.get(&pool).map_or(0, |budget| budget.remaining)
    }

    /// Takes one node from a pool's allowance; false when none is left.
    pub fn take(&mut self, pool: PoolId) -> bool {
        match self.pools.get_mut(&pool) {
            Some(budget) if budget.remaining > 0 => {
                budget.remaining -= 1;
                true
            }
            _ => false,
        }
    }

    /// Whether a node of a pool may go besides what was taken.
    pub(super) fn allows(&self, (pool, node): (PoolId, NodeId)) -> bool {
        self.remaining(pool) > 0 && self.policies.permits(node)
    }

    /// Takes a node from the allowance of its pool and of all policies; false when one has none left.
    pub(super) fn take_node(&mut self, (pool, node): (PoolId, NodeId)) -> bool {
        self.allows((pool, node)) && self.policies.take(node) && self.take(pool)
    }

    /// D-207: one event per pool that has nodes and allows nothing.
    pub fn events(&self, snapshot: &Snapshot) -> Vec<Event> {
        let closed = self
            .pools
            .iter()
            .filter(|(_, budget)| budget.nodes > 0 && budget.allowed == 0);
        let event = |(pool, _): (&PoolId, &PoolBudget)| {
            let view = snapshot.pool(*pool);
            let reason = self.reason.to_string();
            let message =
                format!("No allowed disruptions for disruption reason {reason} due to blocking budget");
            let object = ObjectRef::cluster(ObjectKind::NodePool, &view.name, &view.uid);
            Event::new(object, EventType::Normal, "DisruptionBlocked", message)
                .deduped_by([view.uid.clone(), reason])
                .within_seconds(60)
        };
        closed.map(event).collect()
    }
}
