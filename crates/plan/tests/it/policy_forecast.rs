//! The calendar of policies against what the controllers would let go at each instant, and rules that never let anything go together.

use crate::support::{World, on_demand_pool};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use spokeshave_api::{DisruptionPolicy, NillableDuration};
use spokeshave_plan::calendar::{REASONS, Window, calendar_with};
use spokeshave_plan::disruption_policy::forecast::{PoolNodes, lanes, never_open};
use spokeshave_plan::disruption_policy::{limits, lint};
use std::collections::BTreeSet;
use std::sync::Arc;

const NODES: usize = 7;

fn policy(name: &str, spec: &Value) -> Arc<DisruptionPolicy> {
    Arc::new(DisruptionPolicy::new(
        name,
        serde_json::from_value(spec.clone()).expect("a spec"),
    ))
}

fn pool() -> PoolNodes {
    PoolNodes {
        name: "default".to_owned(),
        labels: std::collections::BTreeMap::new(),
        nodes: NODES,
        budgets: Vec::new(),
        expire_after: NillableDuration::default_expire_after(),
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn window() -> impl Strategy<Value = Value> {
    let names = vec!["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let days = proptest::sample::subsequence(names, 0..=7);
    let time = || (0_u32..48).prop_map(|half| format!("{:02}:{:02}", half / 2, half % 2 * 30));
    (days, time(), time())
        .prop_filter("opens", |(_, from, to)| from != to)
        .prop_map(|(days, from, to)| json!({"days": days, "from": from, "to": to}))
}

fn budget() -> impl Strategy<Value = Value> {
    let limit = prop_oneof!["[0-9]", "(0|10|33|50|100)%"];
    let scope = proptest::sample::select(vec!["Cluster", "NodePool"]);
    let outside = proptest::sample::select(vec!["Nothing", "Unlimited"]);
    let reasons = proptest::sample::subsequence(vec!["Empty", "Drifted", "Underutilized"], 1..=3);
    let windows = proptest::collection::vec(window(), 0..3);
    (
        limit,
        scope,
        outside,
        reasons,
        windows,
        proptest::bool::weighted(0.1),
    )
        .prop_map(|(limit, scope, outside, reasons, windows, never)| {
            let mut one = json!({"scope": scope, "reasons": reasons, "windows": windows});
            if !windows.is_empty() {
                one["outsideWindows"] = json!(outside);
                one["exceptDates"] = json!(["2026-03-28"]);
            }
            if never {
                one["perHour"] = json!(0);
            } else {
                one["limit"] = json!(limit);
            }
            one
        })
}

fn spec() -> impl Strategy<Value = Value> {
    let zone = proptest::sample::select(vec![
        "Europe/Kyiv",
        "America/New_York",
        "Asia/Kolkata",
        "UTC",
        "Europe/Atlantis",
    ]);
    let freeze = proptest::option::weighted(0.3, 0_i64..200);
    (zone, freeze, proptest::collection::vec(budget(), 0..3)).prop_map(|(zone, freeze, budgets)| {
        let mut spec = json!({"timeZone": zone, "budgets": budgets});
        if let Some(hours) = freeze {
            let until = at("2026-03-27T00:00:00Z") + SignedDuration::from_hours(hours);
            spec["freeze"] = json!({"reason": "x", "until": until.to_string()});
        }
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Around a change of clocks, every half hour of five days: as many nodes may go as the calendar says.
    #[test]
    fn the_calendar_says_what_the_controllers_do(specs in proptest::collection::vec(spec(), 1..3)) {
        let policies: Vec<Arc<DisruptionPolicy>> =
            specs.iter().enumerate().map(|(index, spec)| policy(&format!("p{index}"), spec)).collect();
        let mut world = World::new(on_demand_pool("default"));
        for index in 0..NODES {
            world = world.node(&format!("n{index}"), "small");
        }
        world.state.disruption_policies.clone_from(&policies);
        let snapshot = world.snapshot();
        let range = Window { from: at("2026-03-27T00:00:00Z"), until: at("2026-04-01T00:00:00Z") };
        for reason in &REASONS {
            let further = lanes(policies.iter().map(|policy| &**policy), &[pool()], &pool(), reason, range);
            let intervals = calendar_with(&[], further, reason, NODES, range).intervals;
            for half_hour in 0..240 {
                let now = range.from + SignedDuration::from_mins(half_hour * 30);
                let said = intervals.iter().find(|one| one.from <= now && now < one.until).expect("no gap");
                let mut left = limits(&snapshot, reason, now, &BTreeSet::new());
                let goes = snapshot.node_ids().filter(|node| left.take(*node)).count();
                let allowed = usize::try_from(said.allowed).unwrap_or(usize::MAX).min(NODES);
                prop_assert_eq!(goes, allowed, "{} at {}: {:?}", reason, now, &specs);
            }
        }
    }
}

fn nights_and_days() -> Vec<Arc<DisruptionPolicy>> {
    vec![
        policy(
            "nights",
            &json!({"budgets": [{"windows": [{"from": "22:00", "to": "06:00"}]}]}),
        ),
        policy(
            "days",
            &json!({"budgets": [{"reasons": ["Drifted"], "windows": [{"from": "09:00", "to": "17:00"}]}]}),
        ),
    ]
}

#[test]
fn windows_that_never_meet_are_a_contradiction() {
    let now = at("2026-03-27T00:00:00Z");
    let found = never_open(&nights_and_days(), &[pool()], now);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].reasons, REASONS[1..2], "others are open at night");
    let rules: Vec<String> = found[0].rules.iter().map(ToString::to_string).collect();
    assert_eq!(
        rules,
        [
            "DisruptionPolicy days budgets[0]",
            "DisruptionPolicy nights budgets[0]"
        ]
    );
    assert_eq!(never_open(&nights_and_days()[..1], &[pool()], now), []);
    let text = &lint(&nights_and_days(), &[pool()], now)[0];
    assert_eq!((text.policy.as_str(), text.finding.code), ("days", "never-open"));
}

/// The NodePool's own budgets count: its office hours and the policy's nights leave nothing.
#[test]
fn a_nodepool_and_a_policy_can_contradict_each_other() {
    let now = at("2026-03-27T00:00:00Z");
    let closed_at_night = json!({"nodes": "0", "schedule": "0 20 * * *", "duration": "11h"});
    let mut pool = pool();
    pool.budgets = vec![serde_json::from_value(closed_at_night).expect("a budget")];
    let found = never_open(&nights_and_days()[..1], &[pool.clone()], now);
    assert_eq!(
        (found.len(), found[0].budgets.as_slice()),
        (1, [0].as_slice()),
        "{found:?}"
    );
    let after_seven = policy(
        "mornings",
        &json!({"budgets": [{"windows": [{"from": "05:00", "to": "08:00"}]}]}),
    );
    assert_eq!(never_open(&[after_seven], &[pool], now), []);
}
