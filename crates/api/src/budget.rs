//! Arithmetic of disruption budgets (D §5.2–5.3): is a budget active now, and how many nodes does a NodePool allow.

use jiff::Timestamp;

use crate::cron::{Cron, CronError};
use crate::kinds::DisruptionReason;
use crate::kinds::node_pool::{Budget, NodePool};

/// The allowance without any limit (D-195).
pub const UNLIMITED: i64 = 2_147_483_647;

/// Why a budget cannot be evaluated. Such a budget allows nothing for the reasons that it covers (D-197).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// The schedule cannot be evaluated.
    #[error(transparent)]
    Schedule(#[from] CronError),
    /// `schedule` without `duration`, or the reverse.
    #[error("'schedule' must be set with 'duration'")]
    HalfSchedule,
    /// `nodes` is neither a number nor a percentage.
    #[error("nodes {0:?} is neither a whole number nor a percentage from 0% to 100%")]
    Nodes(String),
}

impl BudgetError {
    /// The field of a budget that is at fault.
    #[must_use]
    pub fn field(&self, budget: &Budget) -> &'static str {
        match self {
            BudgetError::Schedule(_) => "schedule",
            BudgetError::HalfSchedule if budget.schedule.is_none() => "schedule",
            BudgetError::HalfSchedule => "duration",
            BudgetError::Nodes(_) => "nodes",
        }
    }
}

impl Budget {
    /// True when the budget limits disruption at `now`: in [hit, hit + duration), or always without a schedule (D-193).
    ///
    /// # Errors
    /// The schedule cannot be evaluated.
    pub fn is_active(&self, now: Timestamp) -> Result<bool, BudgetError> {
        let (schedule, duration) = match (&self.schedule, &self.duration) {
            (None, None) => return Ok(true),
            (Some(schedule), Some(duration)) => (schedule, duration),
            _ => return Err(BudgetError::HalfSchedule),
        };
        let cron: Cron = schedule.parse()?;
        let start = now.saturating_sub(duration.to_signed()).unwrap_or(Timestamp::MIN);
        Ok(cron.next_after(start)? <= now)
    }

    /// How many of `nodes` nodes the budget allows while active; percentages round up (D-196).
    ///
    /// # Errors
    /// `nodes` is malformed.
    pub fn allowed(&self, nodes: usize) -> Result<i64, BudgetError> {
        let fail = || BudgetError::Nodes(self.nodes.clone());
        let digits = self.nodes.strip_suffix('%').unwrap_or(&self.nodes);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(fail());
        }
        let number = digits.parse::<i64>().unwrap_or(UNLIMITED).min(UNLIMITED);
        if digits.len() == self.nodes.len() {
            return Ok(number);
        }
        if number > 100 {
            return Err(fail());
        }
        let nodes = i64::try_from(nodes).unwrap_or(UNLIMITED);
        Ok(nodes.saturating_mul(number).saturating_add(99) / 100)
    }

    /// True when the budget speaks of this reason (D-188), or of one that this version does not know: it might mean this one.
    #[must_use]
    pub fn covers(&self, reason: &DisruptionReason) -> bool {
        let speaks_of =
            |known: &DisruptionReason| known == reason || matches!(known, DisruptionReason::Other(_));
        self.reasons
            .as_ref()
            .is_none_or(|reasons| reasons.iter().any(speaks_of))
    }
}

impl NodePool {
    /// The budgets in force; one of 10 % when none are written (D-183).
    #[must_use]
    pub fn budgets(&self) -> Vec<Budget> {
        self.spec
            .disruption
            .budgets
            .clone()
            .unwrap_or_else(|| vec![Budget::always("10%")])
    }

    /// How many of the pool's `nodes` nodes may be disrupting at once for `reason` (D-195), before those that already are.
    ///
    /// # Errors
    /// The first budget for this reason that cannot be evaluated; the caller allows nothing then. Karpenter closes the pool for every reason
    /// (D-197); here a mistake permits nothing that its budget would have governed, and no more than that.
    pub fn allowed_disruptions(
        &self,
        reason: &DisruptionReason,
        nodes: usize,
        now: Timestamp,
    ) -> Result<i64, BudgetError> {
        let mut allowed = UNLIMITED;
        for budget in self.budgets().iter().filter(|budget| budget.covers(reason)) {
            // A malformed number is an error also while its budget is not in force: it must not open the pool between its windows.
            let limit = budget.allowed(nodes)?;
            if budget.is_active(now)? {
                allowed = allowed.min(limit);
            }
        }
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodePoolSpec;
    use serde_json::json;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn pool(budgets: serde_json::Value) -> NodePool {
        let spec = json!({"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}, "disruption": {"budgets": budgets}});
        NodePool::new("pool", serde_json::from_value::<NodePoolSpec>(spec).unwrap())
    }

    #[test]
    fn g_1_13_d_193_windows() {
        for (schedule, duration, active, inactive) in [
            (
                "@daily",
                "10m",
                vec!["2026-01-01T00:00:00Z", "2026-01-01T00:09:59Z"],
                vec!["2026-01-01T00:10:00Z"],
            ),
            (
                "0 9 * * mon-fri",
                "8h",
                vec!["2026-01-05T09:00:00Z", "2026-01-09T16:59:00Z"],
                vec!["2026-01-05T17:00:00Z", "2026-01-10T12:00:00Z"],
            ),
            (
                "0 0 * * 6",
                "48h",
                vec!["2026-01-03T00:00:00Z", "2026-01-04T23:59:00Z"],
                vec!["2026-01-05T00:00:00Z"],
            ),
            (
                "0 22 * * 5",
                "60h",
                vec!["2026-01-02T22:00:00Z", "2026-01-05T09:59:00Z"],
                vec!["2026-01-05T10:00:00Z"],
            ),
            (
                "@hourly",
                "90m",
                vec!["2026-01-01T00:00:00Z", "2026-01-01T13:37:00Z"],
                vec![],
            ),
        ] {
            let budget = Budget {
                schedule: Some(schedule.to_owned()),
                duration: Some(duration.parse().unwrap()),
                ..Budget::always("0")
            };
            for time in active {
                assert_eq!(
                    budget.is_active(at(time)),
                    Ok(true),
                    "{schedule} {duration} at {time}"
                );
            }
            for time in inactive {
                assert_eq!(
                    budget.is_active(at(time)),
                    Ok(false),
                    "{schedule} {duration} at {time}"
                );
            }
        }
    }

    #[test]
    fn d_196_percentages_round_up() {
        for (nodes, of, allowed) in [
            ("10%", 1, 1),
            ("20%", 19, 4),
            ("5%", 10, 1),
            ("10%", 0, 0),
            ("0%", 50, 0),
            ("100%", 7, 7),
            ("5", 1, 5),
        ] {
            assert_eq!(Budget::always(nodes).allowed(of), Ok(allowed), "{nodes} of {of}");
        }
        for bad in ["-1", "101%", "1000%", "-10%", "10.5%", "", "%", "ten"] {
            assert!(
                Budget::always(bad).allowed(10).is_err(),
                "{bad:?} must be refused"
            );
        }
    }

    #[test]
    fn p_022_d_195_worked_examples() {
        let now = at("2026-01-01T12:00:00Z");
        let in_window = at("2026-01-01T00:05:00Z");
        let b = pool(json!([
            {"nodes": "20%", "reasons": ["Empty", "Drifted"]},
            {"nodes": "5"},
            {"nodes": "0", "schedule": "@daily", "duration": "10m", "reasons": ["Underutilized"]},
        ]));
        assert_eq!(b.allowed_disruptions(&DisruptionReason::Empty, 19, now), Ok(4));
        assert_eq!(
            b.allowed_disruptions(&DisruptionReason::Underutilized, 19, now),
            Ok(5)
        );
        assert_eq!(
            b.allowed_disruptions(&DisruptionReason::Underutilized, 19, in_window),
            Ok(0)
        );
        assert_eq!(b.allowed_disruptions(&DisruptionReason::Empty, 30, now), Ok(5));
        assert_eq!(
            pool(json!([])).allowed_disruptions(&DisruptionReason::Empty, 10, now),
            Ok(UNLIMITED)
        );
        let default = NodePool::new("pool", NodePoolSpec::default());
        assert_eq!(
            default.allowed_disruptions(&DisruptionReason::Empty, 19, now),
            Ok(2),
            "D-183"
        );
        let none = pool(json!([{"nodes": "0", "reasons": []}]));
        assert_eq!(
            none.allowed_disruptions(&DisruptionReason::Empty, 10, now),
            Ok(UNLIMITED),
            "D-188"
        );
    }

    #[test]
    fn d_197_a_faulty_budget_closes_what_it_would_have_governed_and_no_more() {
        let pool = pool(json!([
            {"nodes": "10%"},
            {"nodes": "5", "schedule": "* * * * 7", "duration": "1h", "reasons": ["Drifted"]},
        ]));
        let error = pool
            .allowed_disruptions(&DisruptionReason::Drifted, 10, at("2026-01-01T00:00:00Z"))
            .expect_err("faulty");
        let empty = pool.allowed_disruptions(&DisruptionReason::Empty, 10, at("2026-01-01T00:00:00Z"));
        assert_eq!(empty, Ok(1));
        assert!(
            error.to_string().contains("day of week \"7\" is outside 0 to 6"),
            "{error}"
        );
    }
}
