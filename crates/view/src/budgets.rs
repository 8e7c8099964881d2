//! What disruption budgets allow, now and in the next days.

use crate::world::Judged;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use spokeshave_api::{Budget, UNLIMITED};
use spokeshave_plan::calendar::{Interval, REASONS, Window, calendar};
use spokeshave_plan::disrupt::BudgetMapping;

/// Days of the calendar.
const DAYS: i64 = 7;

/// The current budget of one NodePool for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetNow {
    /// The NodePool.
    pub pool: String,
    /// `Empty`, `Drifted` or `Underutilized`.
    pub reason: String,
    /// Nodes that percentages are taken of.
    pub nodes: usize,
    /// Nodes that are on their way out or not Ready.
    pub disrupting: usize,
    /// Nodes at once; none where nothing limits.
    pub allowed: Option<i64>,
    /// The remaining part.
    pub remaining: Option<i64>,
    /// A budget that cannot be evaluated, which closes the pool.
    pub error: Option<String>,
}

/// One reason of a pool's calendar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetDay {
    /// The reason.
    pub reason: String,
    /// Stretches of constant allowance, as `spokeshave budgets -o json` has them.
    pub intervals: Vec<Interval>,
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

/// Budgets of all NodePools. Where Nodes or NodeClaims could not be read it has neither `now` nor intervals: percentages are of nodes that nobody has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Budgets {
    /// What is allowed now, by pool and reason.
    pub now: Vec<BudgetNow>,
    /// Seven days from now on, in UTC as the schedules are.
    pub calendar: Vec<PoolCalendar>,
}

impl Budgets {
    pub(crate) fn of(judged: &Judged) -> Self {
        let (snapshot, now) = (&judged.snapshot, judged.world.now);
        let mappings = REASONS.map(|reason| BudgetMapping::build(snapshot, &reason, now));
        let is_known = judged.world.knows("budgets");
        let limited = |allowed: i64, value: i64| (allowed < UNLIMITED).then_some(value);
        let mut budgets = Budgets::default();
        let range = Window {
            from: now,
            until: now
                .saturating_add(SignedDuration::from_hours(24 * DAYS))
                .unwrap_or(Timestamp::MAX),
        };
        let mut pools: Vec<_> = mappings[0].pools.keys().copied().collect();
        pools.sort_by(|left, right| snapshot.pool(*left).name.cmp(&snapshot.pool(*right).name));
        for pool in pools {
            let view = snapshot.pool(pool);
            let written = view.object.budgets();
            let mut reasons = Vec::new();
            for mapping in &mappings {
                let Some(budget) = mapping.pools.get(&pool) else {
                    continue;
                };
                if !is_known {
                    reasons.push(BudgetDay {
                        reason: mapping.reason.to_string(),
                        intervals: Vec::new(),
                    });
                    continue;
                }
                budgets.now.push(BudgetNow {
                    pool: view.name.clone(),
                    reason: mapping.reason.to_string(),
                    nodes: budget.nodes,
                    disrupting: budget.disrupting,
                    allowed: limited(budget.allowed, budget.allowed),
                    remaining: limited(budget.allowed, budget.remaining),
                    error: budget.error.as_ref().map(ToString::to_string),
                });
                reasons.push(BudgetDay {
                    reason: mapping.reason.to_string(),
                    intervals: calendar(&written, &mapping.reason, budget.nodes, range).intervals,
                });
            }
            budgets.calendar.push(PoolCalendar {
                pool: view.name.clone(),
                budgets: written.iter().map(words).collect(),
                reasons,
            });
        }
        budgets
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
