//! The facts of one pass that all methods share: candidates, budgets, pool totals, who may not take pods.

use super::balanced::{self, Totals};
use super::budgets::{self, BudgetMapping, Uses};
use super::candidates::Candidate;
use super::cheaper_pools::CheaperPools;
use super::command::Method;
use super::drift::{Members, count_members};
use super::register::Register;
use crate::disruption_policy::{self, Memo, Payback, expiry};
use crate::policy::Policy;
use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned, DRIFTED, INITIALIZED};
use spokeshave_api::{ConsolidationPolicy, DisruptionReason};
use spokeshave_model::CapacityType;
use spokeshave_model::labels;
use spokeshave_model::snapshot::{NodeId, NodeView, PoolId, PoolView, Snapshot};
use spokeshave_schedule::{PackOptions, ReservedPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What every method of a pass may look at. Shared by all threads.
pub(super) struct Ground<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a Policy,
    pub(super) now: Timestamp,
    /// All nodes, and which of them are candidates.
    pub(super) register: Arc<Register>,
    /// The budgets by reason, before anything is taken.
    pub(super) budgets: BTreeMap<DisruptionReason, BudgetMapping>,
    /// D-172.
    pub(super) totals: BTreeMap<PoolId, Totals>,
    /// Nodes that changed too recently to take pods of consolidated nodes (D-044).
    pub(super) withheld: BTreeSet<NodeId>,
    /// By NodePool, the window of consolidateAfter.
    windows: Vec<Option<Duration>>,
    /// What moves have to earn, by NodePool; empty where no DisruptionPolicy judges over time.
    pub(super) paybacks: BTreeMap<PoolId, Payback>,
    /// W-04.
    pub(super) cheaper_pools: CheaperPools,
    /// What NodePools count; made when first needed.
    members: OnceLock<BTreeMap<PoolId, Members>>,
}

impl<'a> Ground<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, policy: &'a Policy, now: Timestamp) -> Self {
        let register = Register::of(snapshot, now);
        Ground::upon(snapshot, policy, now, &BTreeSet::new(), Arc::new(register))
    }

    /// The same for a second look at a command, on a Snapshot in which its nodes, `own` by provider ID, are in none.
    pub(super) fn of_second_look(
        snapshot: &'a Snapshot,
        policy: &'a Policy,
        now: Timestamp,
        own: &BTreeSet<&str>,
    ) -> Self {
        let register = Register::of_second_look(snapshot, now);
        Ground::upon(snapshot, policy, now, own, Arc::new(register))
    }

    /// The same with the register of this Snapshot at this time. Nodes of `own`, by provider ID, are those that are asked about: they use up no budget.
    pub(super) fn upon(
        snapshot: &'a Snapshot,
        policy: &'a Policy,
        now: Timestamp,
        own: &BTreeSet<&str>,
        register: Arc<Register>,
    ) -> Self {
        let reasons = [
            DisruptionReason::Empty,
            DisruptionReason::Drifted,
            DisruptionReason::Underutilized,
        ];
        let expired = expiry::is_wanted(snapshot).then_some(DisruptionReason::Expired);
        // Of the pods of a candidate some may be virtual, which budgets in pods do not count.
        let has_virtual = snapshot.classes.has_virtual();
        let memo = Memo::new(snapshot, now, own).knowing_pods(|node| {
            let candidate = register.graceful()[node.index()].as_ref();
            candidate.ok().filter(|_| !has_virtual).map(Candidate::pod_count)
        });
        let uses = uses(snapshot, &register, own);
        let budgets = reasons.into_iter().chain(expired).map(|reason| {
            let mapping = BudgetMapping::build_with(snapshot, &reason, now, &uses, &memo);
            (reason, mapping)
        });
        let windows: Vec<Option<Duration>> = snapshot.pools.iter().map(window_of_pool).collect();
        let withheld = register.entries().filter(|(_, entry)| {
            let window = entry.pool.and_then(|pool| windows[pool.index()]);
            let both = window.zip(entry.changed_at);
            both.is_some_and(|(window, changed)| is_open(window, changed, now))
        });
        let withheld = withheld.map(|(node, _)| node).collect();
        Ground {
            snapshot,
            policy,
            now,
            totals: balanced::totals(&register),
            budgets: budgets.collect(),
            withheld,
            windows,
            paybacks: disruption_policy::paybacks(snapshot, &memo),
            cheaper_pools: CheaperPools::new(snapshot),
            members: OnceLock::new(),
            register,
        }
    }

    /// The mapping of a reason.
    pub(super) fn budget(&self, reason: &DisruptionReason) -> &BudgetMapping {
        // All reasons that have methods are built; a later reason has none.
        self.budgets
            .get(reason)
            .unwrap_or_else(|| &self.budgets[&DisruptionReason::Empty])
    }

    /// What a NodePool counts.
    pub(super) fn members(&self, pool: PoolId) -> Members {
        let counted = self.members.get_or_init(|| count_members(self.snapshot));
        counted.get(&pool).copied().unwrap_or_default()
    }

    /// Whether a method has anything to look at: that of expiry only where a policy has one.
    pub(super) fn has(&self, method: Method) -> bool {
        self.budgets.contains_key(&method.reason())
    }

    /// NodePools with nodes inside their consolidateAfter, or for which it has passed while the condition that says so is still to be written: nodes whose windows
    /// close together get it one after the other, and a round that began with the first of them would not know the others as candidates. And those with
    /// nodes that come or go, or that pods are leaving.
    pub(super) fn busy_pools(&self) -> BTreeSet<PoolId> {
        let mut busy = vec![false; self.snapshot.pools.len()];
        for (node, entry) in self.register.entries() {
            let Some(pool) = entry.pool.filter(|pool| !busy[pool.index()]) else {
                continue;
            };
            let is_late = || {
                !entry.is_consolidatable && self.windows[pool.index()].is_some() && entry.changed_at.is_some()
            };
            busy[pool.index()] = entry.is_under_way() || is_late() || self.withheld.contains(&node);
        }
        let pools = (0..).map(PoolId).zip(busy);
        pools.filter(|(_, busy)| *busy).map(|(pool, _)| pool).collect()
    }

    /// The capacity type label of a node.
    pub(super) fn capacity_type(&self, node: NodeId) -> Option<CapacityType> {
        let text = self.snapshot.node(node).labels.get(labels::CAPACITY_TYPE)?;
        text.parse().ok()
    }
}

/// What budgets count. Nodes of `own`, by provider ID, use nothing up by being in a command.
fn uses(snapshot: &Snapshot, register: &Register, own: &BTreeSet<&str>) -> Uses {
    let mut by_pool = vec![(0, 0); snapshot.pools.len()];
    for (node, entry) in register.entries().filter(|(_, entry)| entry.is_counted) {
        let is_own = || own.contains(snapshot.node(node).provider_id.as_str());
        if let Some(pool) = entry.pool {
            budgets::count(
                &mut by_pool[pool.index()],
                entry.is_out || (entry.in_command && !is_own()),
            );
        }
    }
    let pools = (0..).map(PoolId).zip(by_pool);
    pools.filter(|(_, (nodes, _))| *nodes > 0).collect()
}

/// Options of what-ifs: reserved capacity may be lost (D-077).
pub(super) fn what_if_options(policy: &Policy) -> PackOptions {
    PackOptions {
        reserved: ReservedPolicy::Fallback,
        ..policy.pack_options()
    }
}

/// D-040, D-044: whether the window of consolidateAfter is open.
fn is_open(window: Duration, changed: Timestamp, now: Timestamp) -> bool {
    // A clock that jumped back leaves the window open.
    Duration::try_from(now.duration_since(changed)).is_ok_and(|passed| passed < window) || now < changed
}

/// The same of a node.
pub(super) fn is_under_consolidate_after(snapshot: &Snapshot, view: &NodeView, now: Timestamp) -> bool {
    let both = window_of(snapshot, view).zip(changed_at(view));
    both.is_some_and(|(window, changed)| is_open(window, changed, now))
}

/// The window of consolidateAfter, where there is one. Nodes of static, deleting or unready NodePools have none.
pub(super) fn window_of(snapshot: &Snapshot, view: &NodeView) -> Option<Duration> {
    view.pool.and_then(|pool| window_of_pool(snapshot.pool(pool)))
}

fn window_of_pool(pool: &PoolView) -> Option<Duration> {
    Some(pool)
        .filter(|pool| pool.is_provisionable())
        .and_then(|pool| pool.object.spec.disruption.consolidate_after.duration())
        .filter(|window| *window > Duration::ZERO)
}

/// When a pod came to an initialised node or left it for the last time, as consolidateAfter counts.
pub(super) fn changed_at(view: &NodeView) -> Option<Timestamp> {
    let claim = view.claim.as_ref()?;
    let initialized = claim.true_condition(INITIALIZED)?;
    let last = claim
        .status
        .as_ref()
        .and_then(|status| status.last_pod_event_time.as_ref());
    Some(last.map_or(initialized.last_transition_time, |time| time.0))
}

/// Whether the NodeClaim has condition Drifted, and since when.
pub(super) fn drifted_since(view: &NodeView) -> Option<Timestamp> {
    let claim = view.claim.as_ref()?;
    let drifted = claim.true_condition(DRIFTED)?;
    Some(drifted.last_transition_time)
}

/// D-182: whether a policy lets nodes go that are not empty. A policy of a later version permits nothing.
pub fn consolidates(policy: &ConsolidationPolicy) -> bool {
    matches!(
        policy,
        ConsolidationPolicy::WhenEmptyOrUnderutilized | ConsolidationPolicy::Balanced
    )
}
