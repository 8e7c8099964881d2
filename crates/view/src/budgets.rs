//! What disruption budgets allow, now and in the next days.

use crate::world::Judged;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use spokeshave_api::{Budget, DisruptionReason, UNLIMITED};
use spokeshave_model::snapshot::{NodeId, PoolId, PoolView, Snapshot};
use spokeshave_plan::calendar::{Interval, REASONS, Window, calendar_with};
use spokeshave_plan::disrupt::BudgetMapping;
use spokeshave_plan::disruption_policy::expiry;
use spokeshave_plan::disruption_policy::forecast::{Forecast, PoolNodes};
use spokeshave_story::explain::at_most;
use std::collections::BTreeMap;

/// Days of the calendar.
const DAYS: i64 = 7;

/// The current budget of one NodePool for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetNow {
    /// The NodePool.
    pub pool: String,
    /// `Empty`, `Drifted` or `Underutilized`; `Expired` too where a DisruptionPolicy has soft ages.
    pub reason: String,
    /// Nodes that percentages of the NodePool's own budgets are taken of.
    pub nodes: usize,
    /// Nodes that are on their way out or not Ready.
    pub disrupting: usize,
    /// Nodes at once, by the NodePool's budgets and by what DisruptionPolicies allow at this time; none where nothing limits.
    pub allowed: Option<i64>,
    /// The remaining part. Where it is known and `allowed` is none, policies go by what happens: rates, holds, single zones. What policies leave is taken in
    /// the order of nodes; in another order it may be more. Where all nodes of the NodePool are on their way in or out, policies have none to keep, and it is
    /// what `allowed` leaves.
    pub remaining: Option<i64>,
    /// What a DisruptionPolicy says of the first node that it keeps although the NodePool's budgets would let it go; where it keeps nodes only once others have
    /// gone, the rule by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// A budget that cannot be evaluated, which closes the pool.
    pub error: Option<String>,
}

impl BudgetNow {
    /// For people: how many of the nodes that are there may go at once, and how many of them still.
    pub fn of_nodes(&self) -> (Option<i64>, Option<i64>) {
        let staying = self.nodes.saturating_sub(self.disrupting);
        (
            self.allowed.map(|allowed| at_most(allowed, self.nodes)),
            self.remaining.map(|remaining| at_most(remaining, staying)),
        )
    }
}

/// One reason of a pool's calendar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetDay {
    /// The reason.
    pub reason: String,
    /// Stretches of constant allowance, as `spokeshave budgets -o json` has them.
    pub intervals: Vec<Interval>,
    /// The same with one node, where the NodePool has none: shares of nothing are nothing, and say nothing of the days to come.
    #[serde(skip)]
    pub with_a_node: Option<Vec<Interval>>,
}

impl BudgetDay {
    /// Whether nothing may go now for the one reason that the NodePool has no node: with one it might.
    pub fn lacks_nodes_only(&self) -> bool {
        let first = self.with_a_node.as_ref().and_then(|days| days.first());
        first.is_some_and(|first| first.allowed > 0)
    }
}

/// The calendar of one NodePool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolCalendar {
    /// The NodePool.
    pub pool: String,
    /// Its budgets in words, in the order in which `limitedBy` counts them.
    pub budgets: Vec<String>,
    /// One entry per reason.
    pub reasons: Vec<BudgetDay>,
}

/// Budgets of all NodePools, and what DisruptionPolicies leave of them. Where Nodes or NodeClaims could not be read it has neither `now` nor intervals:
/// percentages are of nodes that nobody has counted. So it is where DisruptionPolicies could not be read, or commands of the past that they go by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Budgets {
    /// What is allowed now, by pool and reason.
    pub now: Vec<BudgetNow>,
    /// Seven days from now on, in UTC as the schedules are.
    pub calendar: Vec<PoolCalendar>,
}

impl Budgets {
    /// The calendar of what is allowed now.
    pub fn day_of(&self, now: &BudgetNow) -> Option<&BudgetDay> {
        let pool = self.calendar.iter().find(|pool| pool.pool == now.pool)?;
        pool.reasons.iter().find(|day| day.reason == now.reason)
    }

    pub(crate) fn of(judged: &Judged) -> Self {
        let (snapshot, now) = (&judged.snapshot, judged.world.now);
        let expired = expiry::is_wanted(snapshot).then_some(DisruptionReason::Expired);
        let reasons: Vec<DisruptionReason> = REASONS.into_iter().chain(expired).collect();
        let mappings = BudgetMapping::build_each(snapshot, &reasons, now);
        let is_known = judged.world.knows("budgets");
        let mut budgets = Budgets::default();
        let range = Window {
            from: now,
            until: now
                .saturating_add(SignedDuration::from_hours(24 * DAYS))
                .unwrap_or(Timestamp::MAX),
        };
        let counted = Counted::of(snapshot, PoolNodes::counted(snapshot), range);
        let filled = counted.filled(snapshot, range);
        let staying = staying(snapshot);
        let mut pools: Vec<PoolId> = mappings[0].pools.keys().copied().collect();
        pools.sort_by_key(|id| &snapshot.pool(*id).name);
        for id in pools {
            let pool = Pool {
                id,
                view: snapshot.pool(id),
                staying: staying.get(&id).map(Vec::as_slice).unwrap_or_default(),
            };
            let mut reasons = Vec::new();
            for mapping in &mappings {
                let mut day = BudgetDay {
                    reason: mapping.reason.to_string(),
                    intervals: Vec::new(),
                    with_a_node: None,
                };
                if is_known {
                    let (now, intervals) = of_reason(&pool, mapping, &counted, range);
                    day.with_a_node = (now.nodes == 0).then(|| {
                        let counted = filled.as_ref().unwrap_or(&counted);
                        days_of(&pool, &mapping.reason, 1, counted, range)
                    });
                    budgets.now.push(now);
                    day.intervals = intervals;
                }
                reasons.push(day);
            }
            budgets.calendar.push(PoolCalendar {
                pool: pool.view.name.clone(),
                budgets: pool.view.object.budgets().iter().map(words).collect(),
                reasons,
            });
        }
        budgets
    }
}

/// What percentages are taken of, and what policies allow by it.
struct Counted<'a> {
    pools: Vec<PoolNodes>,
    forecast: Forecast<'a>,
}

impl<'a> Counted<'a> {
    fn of(snapshot: &'a Snapshot, pools: Vec<PoolNodes>, range: Window) -> Self {
        let policies = snapshot.disruption_policies.iter();
        let forecast = Forecast::new(policies.map(|policy| &**policy), &pools, range);
        Self { pools, forecast }
    }

    /// The same as if no NodePool were without nodes; none where none is.
    fn filled(&self, snapshot: &'a Snapshot, range: Window) -> Option<Self> {
        if self.pools.iter().all(|pool| pool.nodes > 0) {
            return None;
        }
        let pools = self.pools.iter().map(|pool| PoolNodes {
            nodes: pool.nodes.max(1),
            ..pool.clone()
        });
        Some(Self::of(snapshot, pools.collect(), range))
    }
}

/// A NodePool, as all reasons see it.
struct Pool<'a> {
    id: PoolId,
    view: &'a PoolView,
    /// Its nodes that are not on their way in or out; none where no policy selects it.
    staying: &'a [NodeId],
}

/// What a NodePool with so many nodes allows for a reason in the days to come.
fn days_of(
    pool: &Pool<'_>,
    reason: &DisruptionReason,
    nodes: usize,
    counted: &Counted<'_>,
    range: Window,
) -> Vec<Interval> {
    let further = counted.forecast.lanes(&counted.pools[pool.id.index()], reason);
    let written = pool.view.object.budgets();
    calendar_with(&written, further, reason, nodes, range).intervals
}

/// What a NodePool allows for a reason now, and in the days to come.
fn of_reason(
    pool: &Pool<'_>,
    mapping: &BudgetMapping,
    counted: &Counted<'_>,
    range: Window,
) -> (BudgetNow, Vec<Interval>) {
    let budget = &mapping.pools[&pool.id];
    let reason = &mapping.reason;
    let intervals = days_of(pool, reason, budget.nodes, counted, range);
    let scheduled = intervals.first().map_or(UNLIMITED, |first| first.allowed);
    let allowed = budget.allowed.min(scheduled);
    let (left, policy) = left_by_policies(mapping, pool.staying);
    let disrupting = i64::try_from(budget.disrupting).unwrap_or(i64::MAX);
    let open = budget.remaining.min((allowed - disrupting).max(0));
    let limited = |allowed: i64, value: i64| (allowed < UNLIMITED).then_some(value);
    let now = BudgetNow {
        pool: pool.view.name.clone(),
        reason: reason.to_string(),
        nodes: budget.nodes,
        disrupting: budget.disrupting,
        allowed: limited(allowed, allowed),
        remaining: limited(allowed.min(left), open.min(left)),
        policy: policy.filter(|_| budget.remaining > 0),
        error: budget.error.as_ref().map(ToString::to_string),
    };
    (now, intervals)
}

/// By NodePool that a policy selects, its nodes that are not on their way in or out.
fn staying(snapshot: &Snapshot) -> BTreeMap<PoolId, Vec<NodeId>> {
    let is_selected = |pool: &PoolView| {
        let mut policies = snapshot.disruption_policies.iter();
        policies.any(|policy| policy.selects_pool(&pool.object))
    };
    let selected: Vec<bool> = snapshot.pools.iter().map(is_selected).collect();
    let mut staying: BTreeMap<PoolId, Vec<NodeId>> = BTreeMap::new();
    for id in snapshot.node_ids() {
        let node = snapshot.node(id);
        let is_going = node.marked_for_deletion || node.in_command || node.instance_terminating;
        let stays = node.is_managed() && node.initialized && !is_going;
        if let Some(pool) = node.pool.filter(|pool| stays && selected[pool.index()]) {
            staying.entry(pool).or_default().push(id);
        }
    }
    staying
}

/// How many of the nodes policies let go one after another now, and what they say of the first that they keep: only which rule it is where that one is kept
/// because of those that went before. No limit where they keep none. Which nodes come first may matter: after a large one less is left than after small ones.
fn left_by_policies(mapping: &BudgetMapping, nodes: &[NodeId]) -> (i64, Option<String>) {
    if nodes.is_empty() {
        return (UNLIMITED, None);
    }
    let kept = nodes.iter().find_map(|id| {
        let rule = mapping.policies.blocker(*id)?;
        Some(rule.text(*id))
    });
    let (mut policies, mut taken, mut full) = (mapping.policies.clone(), 0, None);
    for id in nodes {
        if policies.take(*id) {
            taken += 1;
        } else if full.is_none() {
            let rule = policies.blocker(*id);
            full = rule.map(|rule| format!("DisruptionPolicy {} ({})", rule.policy, rule.field));
        }
    }
    match full {
        Some(name) => (taken, Some(kept.unwrap_or(name))),
        None => (UNLIMITED, None),
    }
}

/// `10%`, `0 for Drifted from 0 9 * * mon-fri for 8h`.
fn words(budget: &Budget) -> String {
    let mut text = format!("nodes: {}", budget.nodes);
    if let Some(reasons) = &budget.reasons {
        let reasons: Vec<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
        text += &format!(", reasons: {}", reasons.join(", "));
    }
    if let Some(schedule) = &budget.schedule {
        text += &format!(", schedule: {schedule}");
    }
    if let Some(duration) = &budget.duration {
        text += &format!(", duration: {duration}");
    }
    text
}
