//! The facts of one pass that all methods share: candidates, budgets, pool totals, who may not take pods.

use super::balanced::{self, Totals};
use super::budgets::BudgetMapping;
use super::candidates::{Candidate, DisruptionClass, PodFacts, checked_with};
use super::cheaper_pools::CheaperPools;
use super::command::Method;
use super::hurdle::{Hurdle, Lifted};
use crate::disruption_policy::{self, Memo, Payback, expiry};
use crate::policy::Policy;
use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned, DRIFTED, INITIALIZED};
use spokeshave_api::{ConsolidationPolicy, DisruptionReason};
use spokeshave_model::CapacityType;
use spokeshave_model::labels;
use spokeshave_model::snapshot::{NodeId, NodeView, PoolId, Snapshot};
use spokeshave_schedule::{PackOptions, ReservedPolicy};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What every method of a pass may look at. Shared by all threads.
pub(super) struct Ground<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a Policy,
    pub(super) now: Timestamp,
    /// For each node, whether it is a candidate of the graceful class.
    pub(super) graceful: Vec<Result<Candidate, Hurdle>>,
    /// The budgets by reason, before anything is taken.
    pub(super) budgets: BTreeMap<DisruptionReason, BudgetMapping>,
    /// D-172.
    pub(super) totals: BTreeMap<PoolId, Totals>,
    /// Nodes that changed too recently to take pods of consolidated nodes (D-044).
    pub(super) withheld: BTreeSet<NodeId>,
    /// What moves have to earn, by NodePool; empty where no DisruptionPolicy judges over time.
    pub(super) paybacks: BTreeMap<PoolId, Payback>,
    /// W-04.
    pub(super) cheaper_pools: CheaperPools,
}

impl<'a> Ground<'a> {
    /// `own` names nodes by provider ID that count as candidates although they are in a command.
    pub(super) fn new(
        snapshot: &'a Snapshot,
        policy: &'a Policy,
        now: Timestamp,
        own: &BTreeSet<&str>,
    ) -> Self {
        let in_own = Lifted::from([Hurdle::InCommand]);
        let nothing = Lifted::new();
        let facts = PodFacts::of(snapshot);
        let graceful: Vec<Result<Candidate, Hurdle>> = snapshot
            .node_ids()
            .map(|node| {
                let is_own = own.contains(snapshot.node(node).provider_id.as_str());
                let lifted = if is_own { &in_own } else { &nothing };
                let graceful = DisruptionClass::Graceful;
                checked_with(snapshot, node, graceful, now, lifted, Some(&facts))
            })
            .collect();
        let reasons = [
            DisruptionReason::Empty,
            DisruptionReason::Drifted,
            DisruptionReason::Underutilized,
        ];
        let expired = expiry::is_wanted(snapshot).then_some(DisruptionReason::Expired);
        let memo = Memo::new(snapshot, now, own).knowing_pods(|node| {
            let candidate = graceful[node.index()].as_ref();
            candidate.ok().map(|candidate| candidate.pods.len())
        });
        let budgets = reasons.into_iter().chain(expired).map(|reason| {
            let mapping = BudgetMapping::build_with(snapshot, &reason, now, own, &memo);
            (reason, mapping)
        });
        let withheld = snapshot
            .node_ids()
            .filter(|node| is_under_consolidate_after(snapshot, snapshot.node(*node), now));
        Ground {
            snapshot,
            policy,
            now,
            totals: balanced::totals(snapshot, &graceful),
            graceful,
            budgets: budgets.collect(),
            withheld: withheld.collect(),
            paybacks: disruption_policy::paybacks(snapshot, &memo),
            cheaper_pools: CheaperPools::new(snapshot),
        }
    }

    /// The mapping of a reason.
    pub(super) fn budget(&self, reason: &DisruptionReason) -> &BudgetMapping {
        // All reasons that have methods are built; a later reason has none.
        self.budgets
            .get(reason)
            .unwrap_or_else(|| &self.budgets[&DisruptionReason::Empty])
    }

    /// Whether a method has anything to look at: that of expiry only where a policy has one.
    pub(super) fn has(&self, method: Method) -> bool {
        self.budgets.contains_key(&method.reason())
    }

    /// Nodes inside their consolidateAfter, and those for which it has passed while the condition that says so is still to be written: nodes whose windows
    /// close together get it one after the other, and a round that began with the first of them would not know the others as candidates.
    pub(super) fn unsettled(&self) -> BTreeSet<NodeId> {
        let is_unsettled = |node: &NodeId| {
            let view = self.snapshot.node(*node);
            let is_late = || window_of(self.snapshot, view).is_some() && changed_at(view).is_some();
            self.withheld.contains(node) || (!view.consolidatable && is_late())
        };
        self.snapshot.node_ids().filter(is_unsettled).collect()
    }

    /// The capacity type label of a node.
    pub(super) fn capacity_type(&self, node: NodeId) -> Option<CapacityType> {
        let text = self.snapshot.node(node).labels.get(labels::CAPACITY_TYPE)?;
        text.parse().ok()
    }
}

/// Options of what-ifs: reserved capacity may be lost (D-077).
pub(super) fn what_if_options(policy: &Policy) -> PackOptions {
    PackOptions {
        reserved: ReservedPolicy::Fallback,
        ..policy.pack_options()
    }
}

/// D-040, D-044: whether the window of consolidateAfter is open. Nodes of static, deleting or unready NodePools never are.
pub(super) fn is_under_consolidate_after(snapshot: &Snapshot, view: &NodeView, now: Timestamp) -> bool {
    let (Some(window), Some(reference)) = (window_of(snapshot, view), changed_at(view)) else {
        return false;
    };
    // A clock that jumped back leaves the window open.
    Duration::try_from(now.duration_since(reference)).is_ok_and(|passed| passed < window) || now < reference
}

/// The window of consolidateAfter, where there is one.
pub(super) fn window_of(snapshot: &Snapshot, view: &NodeView) -> Option<Duration> {
    view.pool
        .map(|pool| snapshot.pool(pool))
        .filter(|pool| pool.is_provisionable())
        .and_then(|pool| pool.object.spec.disruption.consolidate_after.duration())
        .filter(|window| *window > Duration::ZERO)
}

/// When a pod came to an initialised node or left it for the last time, as consolidateAfter counts.
pub(super) fn changed_at(view: &NodeView) -> Option<Timestamp> {
    let claim = view.claim.as_ref()?;
    let initialized = claim
        .condition(INITIALIZED)
        .filter(|_| claim.is_true(INITIALIZED))?;
    let last = claim
        .status
        .as_ref()
        .and_then(|status| status.last_pod_event_time.as_ref());
    Some(last.map_or(initialized.last_transition_time, |time| time.0))
}

/// Whether the NodeClaim has condition Drifted, and since when.
pub(super) fn drifted_since(view: &NodeView) -> Option<Timestamp> {
    let claim = view.claim.as_ref()?;
    let condition = claim.condition(DRIFTED)?;
    claim.is_true(DRIFTED).then_some(condition.last_transition_time)
}

/// D-182: whether a policy lets nodes go that are not empty. A policy of a later version permits nothing.
pub(super) fn consolidates(policy: &ConsolidationPolicy) -> bool {
    matches!(
        policy,
        ConsolidationPolicy::WhenEmptyOrUnderutilized | ConsolidationPolicy::Balanced
    )
}
