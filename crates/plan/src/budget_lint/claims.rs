//! What the linter says, held against the function that the controllers ask (`Budget::is_active`), over generated budgets.

use super::*;
use serde_json::json;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn pool(budgets: Value) -> Value {
    json!({"metadata": {"name": "default"}, "spec": {"disruption": {"budgets": budgets}}})
}

/// Which budgets are in force at an instant by the function that the controllers ask, and not by the calendar that the linter uses.
struct Oracle {
    budgets: Vec<Budget>,
    instants: Vec<Timestamp>,
    /// For each instant, which budgets are in force.
    active: Vec<Vec<bool>>,
}

impl Oracle {
    /// Looks at a week, a minute after each quarter of an hour: schedules in these tests repeat weekly, on full quarters of an hour.
    fn new(budgets: Vec<Budget>) -> Self {
        let instants: Vec<Timestamp> = (0..7 * 96)
            .map(|quarter| now() + SignedDuration::from_mins(quarter * 15 + 1))
            .collect();
        let at = |instant: &Timestamp| {
            let active = budgets.iter().map(|budget| budget.is_active(*instant).unwrap());
            active.collect()
        };
        let active = instants.iter().map(at).collect();
        Oracle {
            budgets,
            instants,
            active,
        }
    }

    fn allowed(&self, at: usize, reason: &DisruptionReason, nodes: usize, without: Option<usize>) -> i64 {
        let counts = |index: &usize| {
            self.active[at][*index] && self.budgets[*index].covers(reason) && Some(*index) != without
        };
        let limits = (0..self.budgets.len()).filter(counts);
        let limits = limits.map(|index| self.budgets[index].allowed(nodes).unwrap());
        limits.min().unwrap_or(spokeshave_api::UNLIMITED)
    }

    fn is_never_allowed(&self, reason: &DisruptionReason) -> bool {
        (0..self.instants.len()).all(|at| self.allowed(at, reason, 100, None) == 0)
    }

    fn is_ever_unlimited(&self, reason: &DisruptionReason) -> bool {
        (0..self.instants.len()).any(|at| self.allowed(at, reason, 100, None) == spokeshave_api::UNLIMITED)
    }

    /// The budget allows nothing, whenever it is in force, for each reason that it covers.
    fn is_dead(&self, index: usize) -> bool {
        let covered = REASONS.iter().filter(|reason| self.budgets[index].covers(reason));
        covered.clone().count() > 0
            && covered.clone().all(|reason| {
                (0..self.instants.len())
                    .all(|at| !self.active[at][index] || self.allowed(at, reason, 100, None) == 0)
            })
    }

    fn is_always_active(&self, index: usize) -> bool {
        self.active.iter().all(|active| active[index])
    }

    /// Leaving the budget out changes no allowance.
    fn is_without_effect(&self, index: usize) -> bool {
        (0..self.instants.len()).all(|at| {
            [1, 7, 100].iter().all(|nodes| {
                REASONS.iter().all(|reason| {
                    self.allowed(at, reason, *nodes, None) == self.allowed(at, reason, *nodes, Some(index))
                })
            })
        })
    }
}

/// The first `budgets[N]` of a text.
fn index_in(text: &str) -> usize {
    let (_, rest) = text.split_once("budgets[").unwrap();
    rest.split_once(']').unwrap().0.parse().unwrap()
}

fn reasons_in(message: &str) -> Vec<&'static DisruptionReason> {
    REASONS
        .iter()
        .filter(|reason| message.contains(reason.as_str()))
        .collect()
}

/// Holds each statement of the linter against the oracle.
fn check_claims(budgets: &[Budget], findings: &[Finding]) {
    let oracle = Oracle::new(budgets.to_vec());
    for finding in findings {
        let said = &finding.message;
        let holds = match finding.code {
            // The budget that is named allows nothing at any time for any reason that it covers.
            "blocks-all-reasons" => oracle.is_dead(index_in(said)),
            "never-open" if said.contains("leave no moment open") => reasons_in(said)
                .into_iter()
                .all(|reason| oracle.is_never_allowed(reason)),
            "never-open" => oracle.is_dead(index_in(said)),
            "window-never-opens" => oracle.is_dead(index_in(&finding.field)),
            "always-closed" => reasons_in(said)
                .into_iter()
                .all(|reason| oracle.is_never_allowed(reason)),
            "unlimited-between-windows" => reasons_in(said)
                .into_iter()
                .all(|reason| oracle.is_ever_unlimited(reason)),
            "without-effect" => oracle.is_without_effect(index_in(&finding.field)),
            "duration-covers-period" if said.contains("always in force") => {
                oracle.is_always_active(index_in(&finding.field))
            }
            _ => true,
        };
        assert!(holds, "{finding:?} is wrong about {budgets:?}");
    }
    for reason in REASONS.iter().filter(|reason| oracle.is_never_allowed(reason)) {
        let codes = ["blocks-all-reasons", "never-open", "always-closed"];
        let mut findings = findings.iter().filter(|finding| codes.contains(&finding.code));
        assert!(
            findings.any(|finding| reasons_in(&finding.message).contains(&reason)),
            "nothing is said of {reason}, which is never allowed by {budgets:?}"
        );
    }
    for index in (0..budgets.len()).filter(|index| oracle.is_dead(*index)) {
        let is_zero = budgets[index].allowed(100) == Ok(0);
        let is_ever_active = oracle.active.iter().any(|active| active[index]);
        assert!(
            is_zero || !is_ever_active || findings.iter().any(|finding| finding.level == Level::Error),
            "budgets[{index}] allows nothing, and no error says so: {budgets:?}: {findings:?}"
        );
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 96, failure_persistence: None, ..Default::default() })]

    /// D-180 to D-199: what the linter says is what the controllers would do.
    #[test]
    fn d_193_d_196_what_the_linter_says_is_what_the_controllers_do(
        budgets in proptest::collection::vec(any_budget(), 1..=4)
    ) {
        let written = serde_json::to_value(&budgets).unwrap();
        check_claims(&budgets, &lint(&pool(written), None, now()));
    }
}

fn any_budget() -> impl proptest::strategy::Strategy<Value = Budget> {
    use proptest::prelude::*;
    let nodes = prop_oneof![3 => Just("0"), 1 => Just("0%"), 3 => Just("10%"), 1 => Just("100%"), 1 => Just("5"), 1 => Just("1")];
    let reasons = proptest::option::weighted(0.6, proptest::sample::subsequence(REASONS.to_vec(), 1..=3));
    let window = prop_oneof![
        Just(("0 0 * * 6", "48h")),
        Just(("0 0 * * 1", "120h")),
        Just(("0 9 * * 1-5", "8h")),
        Just(("0 17 * * *", "16h")),
        Just(("0 6 * * *", "12h")),
        Just(("0 18 * * *", "12h")),
        Just(("15 12 * * *", "1h")),
        Just(("@hourly", "90m")),
    ];
    let window = proptest::option::weighted(0.5, window);
    (nodes, reasons, window).prop_map(|(nodes, reasons, window)| Budget {
        reasons,
        schedule: window.map(|(schedule, _)| schedule.to_owned()),
        duration: window.map(|(_, duration)| duration.parse().unwrap()),
        ..Budget::always(nodes)
    })
}
