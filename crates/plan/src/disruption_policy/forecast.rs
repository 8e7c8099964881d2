//! What policies will allow, as far as it follows from them alone: freezes, windows and limits by number of nodes.
//!
//! Holds, rates and circuit breakers follow from what happens, so that no calendar knows them; and a limit by zone or label says nothing of a
//! NodePool unless it is nothing. Such rules are left out here and stand when it comes to it.

use super::budget::amount;
use super::rules::covers;
use super::status::{self, Fault};
use super::windows::{Windows, time_zone};
use crate::calendar::{Lane, PolicyRule, REASONS, Window, calendar_with};
use jiff::SignedDuration;
use spokeshave_api::disruption_policy::{BudgetUnit, OutsideWindows, PolicyBudget, PolicyScope};
use spokeshave_api::{Budget, DisruptionPolicy, DisruptionReason, NillableDuration, UNLIMITED};
use spokeshave_model::snapshot::{PoolView, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How far ahead it is looked whether rules ever let anything go together: all that they do in a week or a month, and most of what dates do.
const HORIZON: SignedDuration = SignedDuration::from_hours(62 * 24);

/// The field of a freeze, which is meant to end.
const FREEZE: &str = "freeze";

/// A NodePool as a forecast sees it.
#[derive(Clone, Debug)]
pub struct PoolNodes {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// How many nodes percentages are taken of.
    pub nodes: usize,
    /// Its own budgets.
    pub budgets: Vec<Budget>,
    /// The age at which its nodes expire.
    pub expire_after: NillableDuration,
}

impl PoolNodes {
    /// Of a NodePool in a Snapshot; percentages are taken of a hundred nodes, because only whether anything is allowed is asked.
    pub fn of(pool: &PoolView) -> Self {
        PoolNodes {
            name: pool.name.clone(),
            labels: pool.object.metadata.labels.clone().unwrap_or_default(),
            nodes: 100,
            budgets: pool.object.spec.disruption.budgets.clone().unwrap_or_default(),
            expire_after: pool.object.spec.template.spec.expire_after.clone(),
        }
    }

    /// All NodePools of a Snapshot, in its order. Policies take percentages of all managed nodes of what they select: of those that join, too, and of
    /// NodePools that are not supported.
    pub fn counted(snapshot: &Snapshot) -> Vec<Self> {
        let unfilled = snapshot.pools.iter().map(|pool| PoolNodes {
            nodes: 0,
            ..PoolNodes::of(pool)
        });
        let mut counted: Vec<PoolNodes> = unfilled.collect();
        for node in snapshot.nodes.iter().filter(|node| node.is_managed()) {
            if let Some(pool) = node.pool {
                counted[pool.index()].nodes += 1;
            }
        }
        counted
    }
}

/// What policies will allow in a stretch of time, for whichever NodePools and reasons are asked for: their faults and windows are found once for all of them.
#[derive(Debug)]
pub struct Forecast<'a> {
    policies: Vec<Prepared<'a>>,
    range: Window,
}

impl<'a> Forecast<'a> {
    /// Percentages are taken of the nodes of `pools`.
    pub fn new(
        policies: impl IntoIterator<Item = &'a DisruptionPolicy>,
        pools: &[PoolNodes],
        range: Window,
    ) -> Self {
        let policies = policies.into_iter();
        Forecast {
            policies: policies
                .map(|policy| Prepared::new(policy, pools, range))
                .collect(),
            range,
        }
    }

    /// What the policies that select a NodePool will allow for one reason: one lane for each rule.
    pub fn lanes(&self, pool: &PoolNodes, reason: &DisruptionReason) -> Vec<Lane> {
        let mut lanes = Vec::new();
        for prepared in &self.policies {
            if prepared.policy.selects(&pool.name, &pool.labels) {
                prepared.add(pool, reason, self.range, &mut lanes);
            }
        }
        lanes
    }
}

/// A policy with what is the same of it for all NodePools and reasons.
#[derive(Debug)]
struct Prepared<'a> {
    policy: &'a DisruptionPolicy,
    faults: Vec<Fault>,
    /// How many nodes the NodePools have that it selects.
    nodes: usize,
    /// When the windows of each budget are open, and when they are not.
    open: Vec<Vec<(Window, bool)>>,
}

impl<'a> Prepared<'a> {
    fn new(policy: &'a DisruptionPolicy, pools: &[PoolNodes], range: Window) -> Self {
        let selected = pools
            .iter()
            .filter(|pool| policy.selects(&pool.name, &pool.labels));
        let budgets = policy.spec.budgets.iter();
        Prepared {
            policy,
            faults: status::faults(policy),
            nodes: selected.map(|pool| pool.nodes).sum(),
            open: budgets.map(|budget| open(policy, budget, range)).collect(),
        }
    }

    /// Adds a lane for each rule that covers a reason.
    fn add(&self, pool: &PoolNodes, reason: &DisruptionReason, range: Window, lanes: &mut Vec<Lane>) {
        let policy = self.policy;
        let mut add = |field: &str, segments: Vec<(Window, i64)>| {
            lanes.push(Lane {
                rule: PolicyRule {
                    policy: policy.name().to_owned(),
                    field: field.to_owned(),
                },
                segments,
            });
        };
        for fault in &self.faults {
            if covers(fault.reasons.as_ref(), reason) {
                add(&fault.field, vec![(range, 0)]);
            }
        }
        if let Some(freeze) = &policy.spec.freeze {
            let until = freeze.until.as_ref().map_or(range.until, |until| until.0);
            let frozen = Window {
                from: range.from,
                until: until.min(range.until),
            };
            if frozen.from < frozen.until {
                add(FREEZE, vec![(frozen, 0)]);
            }
        }
        for (index, (budget, open)) in policy.spec.budgets.iter().zip(&self.open).enumerate() {
            if covers(budget.reasons.as_ref(), reason) {
                add(&format!("budgets[{index}]"), self.segments(budget, open, pool));
            }
        }
    }

    /// What a budget lets go of a NodePool, inside and outside its windows.
    fn segments(
        &self,
        budget: &PolicyBudget,
        open: &[(Window, bool)],
        pool: &PoolNodes,
    ) -> Vec<(Window, i64)> {
        let inside = allowed(budget, self.nodes, pool);
        let outside = match budget.outside_windows {
            Some(OutsideWindows::Unlimited) => UNLIMITED,
            _ => 0,
        };
        let limits = open
            .iter()
            .map(|(window, is_open)| (*window, if *is_open { inside } else { outside }));
        limits.collect()
    }
}

/// What the policies that select a NodePool will allow for one reason: one lane for each rule. For several NodePools or reasons a [`Forecast`] does less.
pub fn lanes<'a>(
    policies: impl IntoIterator<Item = &'a DisruptionPolicy>,
    pools: &[PoolNodes],
    pool: &PoolNodes,
    reason: &DisruptionReason,
    range: Window,
) -> Vec<Lane> {
    let selecting = policies
        .into_iter()
        .filter(|policy| policy.selects(&pool.name, &pool.labels));
    Forecast::new(selecting, pools, range).lanes(pool, reason)
}

/// When the windows of a budget are open, without gap. What cannot be read is a fault, which has a lane of its own.
fn open(policy: &DisruptionPolicy, budget: &PolicyBudget, range: Window) -> Vec<(Window, bool)> {
    let zone = time_zone(policy.spec.time_zone.as_deref()).ok();
    let windows = zone.and_then(|zone| Windows::read(zone, &budget.windows, &budget.except_dates).ok());
    let Some(windows) = windows else {
        return Vec::new();
    };
    let mut stretches = Vec::new();
    let mut from = range.from;
    while from < range.until {
        let (is_open, next) = if budget.windows.is_empty() {
            (true, None)
        } else {
            (
                windows.is_open(from),
                windows.next_change_before(from, range.until),
            )
        };
        let until = next.unwrap_or(range.until);
        stretches.push((Window { from, until }, is_open));
        from = until;
    }
    stretches
}

/// How many nodes of a NodePool a budget lets go at once inside its windows, as far as it tells by itself; its policy selects so many.
fn allowed(budget: &PolicyBudget, selected: usize, pool: &PoolNodes) -> i64 {
    if budget.per_hour == Some(0) {
        return 0;
    }
    let whole = match &budget.scope {
        Some(PolicyScope::NodePool) => pool.nodes,
        Some(PolicyScope::Zone | PolicyScope::Label) => 0,
        _ => selected,
    };
    let counts_nodes = matches!(budget.unit, None | Some(BudgetUnit::Nodes))
        && !matches!(budget.scope, Some(PolicyScope::Zone | PolicyScope::Label));
    match &budget.limit {
        None => UNLIMITED,
        Some(limit) if counts_nodes => {
            amount(limit, i64::try_from(whole).unwrap_or(i64::MAX), 1).unwrap_or(UNLIMITED)
        }
        Some(limit) if matches!(limit.trim_end_matches('%').parse(), Ok(0)) => 0,
        Some(_) => UNLIMITED,
    }
}

/// Rules of several places that leave a NodePool no time at all, though none of them means to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeverOpen {
    /// The NodePool.
    pub node_pool: String,
    /// Reasons for which nothing is ever allowed.
    pub reasons: Vec<DisruptionReason>,
    /// The policies' part of the rules.
    pub rules: Vec<PolicyRule>,
    /// Indexes of the NodePool's own budgets that belong to it.
    pub budgets: Vec<usize>,
}

/// NodePools that policies and their own budgets together never let be disrupted within the next two months, though each rule by itself does at
/// some time. Freezes are left out: they are meant to end.
pub fn never_open(
    policies: &[Arc<DisruptionPolicy>],
    pools: &[PoolNodes],
    now: jiff::Timestamp,
) -> Vec<NeverOpen> {
    let range = Window {
        from: now,
        until: now.saturating_add(HORIZON).unwrap_or(jiff::Timestamp::MAX),
    };
    let has_windows = |policy: &&Arc<DisruptionPolicy>| {
        let mut budgets = policy.spec.budgets.iter();
        budgets.any(|budget| !budget.windows.is_empty())
    };
    if !policies.iter().any(|policy| has_windows(&policy)) {
        return Vec::new();
    }
    // Percentages of a NodePool without nodes are nothing, which is no contradiction.
    let some = |pool: &PoolNodes| PoolNodes {
        nodes: pool.nodes.max(100),
        ..pool.clone()
    };
    let pools: Vec<PoolNodes> = pools.iter().map(some).collect();
    let forecast = Forecast::new(policies.iter().map(|policy| &**policy), &pools, range);
    let mut found: Vec<NeverOpen> = Vec::new();
    for pool in &pools {
        for reason in &REASONS {
            let Some((rules, budgets)) = conflict(&forecast, pool, reason) else {
                continue;
            };
            let known = found
                .iter_mut()
                .find(|one| one.node_pool == pool.name && one.rules == rules && one.budgets == budgets);
            match known {
                Some(known) => known.reasons.push(reason.clone()),
                None => found.push(NeverOpen {
                    node_pool: pool.name.clone(),
                    reasons: vec![reason.clone()],
                    rules,
                    budgets,
                }),
            }
        }
    }
    found
}

/// The rules that close a NodePool for good together.
fn conflict(
    forecast: &Forecast<'_>,
    pool: &PoolNodes,
    reason: &DisruptionReason,
) -> Option<(Vec<PolicyRule>, Vec<usize>)> {
    let all = forecast.lanes(pool, reason);
    let is_shut = |lane: &Lane| lane.segments.iter().all(|(_, limit)| *limit == 0);
    let own = |budgets: &[Budget], lanes: Vec<Lane>| {
        let intervals = calendar_with(budgets, lanes, reason, pool.nodes, forecast.range).intervals;
        intervals
            .iter()
            .all(|interval| interval.allowed == 0)
            .then_some(intervals)
    };
    let open: Vec<Lane> = all
        .into_iter()
        .filter(|lane| !is_shut(lane) && lane.rule.field != FREEZE)
        .collect();
    if open.is_empty() || own(&pool.budgets, Vec::new()).is_some() {
        return None;
    }
    let intervals = own(&pool.budgets, open)?;
    let rules: BTreeSet<PolicyRule> = intervals.iter().flat_map(|one| one.policies.clone()).collect();
    let budgets: BTreeSet<usize> = intervals.iter().flat_map(|one| one.limited_by.clone()).collect();
    Some((rules.into_iter().collect(), budgets.into_iter().collect()))
}
