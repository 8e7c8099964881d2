//! Soft ages of DisruptionPolicies: who is due when, what budgets and windows leave of it, and what is forecast.

use crate::support::{World, acts, later, on_demand_pool};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::conditions::{Conditioned as _, EXPIRY_IN_TIME};
use spokeshave_api::{DisruptionPolicy, DisruptionReason};
use spokeshave_plan::budget_lint::Level;
use spokeshave_plan::disrupt::{BlockerKind, Method};
use spokeshave_plan::disruption_policy::expiry::{forecast, soft};
use spokeshave_plan::disruption_policy::forecast::PoolNodes;
use spokeshave_plan::disruption_policy::{faults, limits, lint, status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const HOUR: i64 = 3600;

fn policy(spec: &Value) -> Arc<DisruptionPolicy> {
    let spec = serde_json::from_value(spec.clone()).expect("a spec");
    Arc::new(DisruptionPolicy::new("age", spec))
}

/// So many nodes of one age, in hours, each with a pod that needs it, with `expireAfter` of ten hours.
fn aged(number: usize, hours: i64, spec: &Value) -> World {
    let mut world = World::new(on_demand_pool("default"));
    for index in 0..number {
        let name = format!("n{index:03}");
        world = world
            .node(&name, "small")
            .pod(&format!("p{index}"), &name, "1500m");
        world = world.edit_claim(&name, |claim| {
            claim.metadata.creation_timestamp = Some(Time(later(-hours * HOUR)));
            claim.metadata.uid = Some(format!("uid-{name}"));
            claim.spec.expire_after = "10h".parse().expect("a duration");
        });
    }
    world.state.disruption_policies.push(policy(spec));
    world
}

fn half() -> Value {
    json!({"expiry": {"softPercent": 50}})
}

#[test]
fn invariant_27_nodes_born_together_are_due_apart_and_before_the_deadline() {
    let world = aged(300, 0, &half());
    let snapshot = world.snapshot();
    let due: BTreeSet<_> = snapshot
        .node_ids()
        .map(|node| soft(&snapshot, node).expect("it is old one day").due)
        .collect();
    assert_eq!(due.len(), 300, "each at a time of its own");
    let (first, last) = (due.first().unwrap(), due.last().unwrap());
    assert!(
        *first >= later(5 * HOUR) && *last < later(7 * HOUR + HOUR / 2),
        "{first} {last}"
    );
    // Spread over two hours and a half: no quarter of an hour has more than twice its share.
    for quarter in 0..10 {
        let from = later(5 * HOUR + quarter * 900);
        let until = later(5 * HOUR + (quarter + 1) * 900);
        let here = due.range(from..until).count();
        assert!((15..=60).contains(&here), "{here} of 300 in quarter {quarter}");
    }
    let again = world.snapshot();
    assert!(
        snapshot
            .node_ids()
            .all(|node| soft(&snapshot, node) == soft(&again, node))
    );
}

#[test]
fn a_node_goes_when_it_is_due_and_not_before() {
    let young = aged(1, 4, &half());
    assert_eq!(acts(&young), [""; 0]);
    let old = aged(1, 9, &half());
    assert_eq!(acts(&old), ["Expiry replace [n000] by small|medium|large"]);
    let verdict = old.verdict("n000");
    assert_eq!(verdict.method, Some(Method::Expiry));
    let mut without = old.clone();
    without.state.disruption_policies.clear();
    assert_eq!(acts(&without), [""; 0], "without a policy nothing is soft");
    let never = aged(1, 9, &half()).edit_claim("n000", |claim| {
        claim.spec.expire_after = "Never".parse().expect("a duration");
    });
    assert_eq!(acts(&never), [""; 0], "a share of nothing");
    let by_age =
        aged(1, 9, &json!({"expiry": {"softAfter": "8h", "jitter": "0s"}})).edit_claim("n000", |claim| {
            claim.spec.expire_after = "Never".parse().expect("a duration");
        });
    assert_eq!(acts(&by_age).len(), 1);
    let after = aged(1, 9, &json!({"expiry": {"softAfter": "10h"}}));
    assert_eq!(acts(&after), [""; 0], "expireAfter comes first anyway");
}

#[test]
fn a_soft_age_is_inside_budgets_windows_and_freezes_and_the_verdict_says_which() {
    for rule in [
        json!({"freeze": {"reason": "incident"}}),
        json!({"budgets": [{"limit": "0", "reasons": ["Expired"]}]}),
        json!({"budgets": [{"windows": [{"from": "12:00", "to": "12:01"}]}]}),
    ] {
        let mut spec = rule.clone();
        spec["expiry"] = json!({"softPercent": 50});
        let world = aged(1, 9, &spec);
        assert_eq!(acts(&world), [""; 0], "{rule}");
        let verdict = world.verdict("n000");
        assert_eq!(verdict.blockers[0].kind, BlockerKind::DisruptionPolicy, "{rule}");
        assert_eq!(verdict.if_removed.expect("it would go").method, Method::Expiry);
    }
    let other = json!({"expiry": {"softPercent": 50}, "budgets": [{"limit": "0", "reasons": ["Drifted"]}]});
    assert_eq!(
        acts(&aged(1, 9, &other)).len(),
        1,
        "a budget of drift is none of age"
    );
    let own = aged(1, 9, &half()).edit_pool("default", |pool| {
        pool.spec.disruption.budgets = serde_json::from_value(json!([{"nodes": "0"}])).unwrap();
    });
    assert_eq!(acts(&own), [""; 0], "budgets of NodePools hold too");
}

#[test]
fn what_must_not_be_disturbed_and_what_has_drifted_is_left_to_others() {
    let protected =
        aged(1, 9, &half())
            .grace("n000")
            .annotate_pod("p0", "karpenter.sh/do-not-disrupt", "true");
    assert_eq!(
        acts(&protected),
        [""; 0],
        "not even with a terminationGracePeriod"
    );
    let spec = json!({"expiry": {"softPercent": 50}, "rollout": {"paused": true}});
    let drifted = aged(1, 9, &spec).drifted("n000", -60);
    assert_eq!(acts(&drifted), [""; 0], "age is no way around a roll-out");
}

#[test]
fn a_forecast_counts_who_is_due_and_who_will_not_go_in_time() {
    let spec = json!({"expiry": {"softPercent": 50}, "budgets": [{"limit": "1"}]});
    let world = aged(60, 3, &spec);
    let snapshot = world.snapshot();
    let waves = forecast(&world.state.disruption_policies[0], &snapshot, world.now);
    let [wave] = waves.as_slice() else {
        panic!("{waves:?}")
    };
    assert_eq!((wave.due, wave.within_day), (0, 60));
    // From five hours of age on, one in ten minutes: about thirty of sixty before ten hours.
    assert!((25..=35).contains(&wave.late), "{wave:?}");
    assert_eq!(wave.first_late, Some(Time(later(7 * HOUR))));
    let after = status(&world.state.disruption_policies[0], &snapshot, &[], world.now);
    let condition = after.condition(EXPIRY_IN_TIME).expect("a condition");
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        ("False", "TooSlow")
    );
    let summary = after.status.clone().unwrap().summary.unwrap();
    assert!(
        summary.contains("will not have gone when expireAfter comes"),
        "{summary}"
    );
    for enough in [json!([{"limit": "4"}]), json!([])] {
        let mut world = aged(60, 3, &json!({"expiry": {"softPercent": 50}, "budgets": enough}));
        world = world.edit_pool("default", |pool| pool.spec.disruption.budgets = None);
        let waves = forecast(&world.state.disruption_policies[0], &world.snapshot(), world.now);
        assert_eq!(waves[0].late, 0, "{enough}: {waves:?}");
    }
    // A rate of six an hour is as slow as one at once for ten minutes each.
    let rate = aged(
        60,
        3,
        &json!({"expiry": {"softPercent": 50}, "budgets": [{"perHour": 6}]}),
    );
    let waves = forecast(&rate.state.disruption_policies[0], &rate.snapshot(), rate.now);
    assert!((25..=35).contains(&waves[0].late), "{waves:?}");
}

#[test]
fn neither_age_nor_both_is_a_fault_that_stops_only_expiry() {
    for expiry in [json!({}), json!({"softAfter": "1h", "softPercent": 10})] {
        let world = aged(2, 9, &json!({"expiry": expiry}));
        let faults = faults(&world.state.disruption_policies[0]);
        assert_eq!(faults[0].field, "spec.expiry");
        let room = |reason| {
            let snapshot = world.snapshot();
            let mut left = limits(&snapshot, &reason, world.now, &BTreeSet::new());
            snapshot.node_ids().filter(|node| left.take(*node)).count()
        };
        assert_eq!(room(DisruptionReason::Expired), 0);
        assert_eq!(room(DisruptionReason::Empty), 2);
    }
}

/// NodePools with these values of `expireAfter`, and no budgets.
fn pools(expire_after: &[&str]) -> Vec<PoolNodes> {
    let pool = |(index, age): (usize, &&str)| PoolNodes {
        name: format!("pool-{index}"),
        labels: BTreeMap::new(),
        nodes: 100,
        budgets: Vec::new(),
        expire_after: age.parse().expect("a duration"),
    };
    expire_after.iter().enumerate().map(pool).collect()
}

#[test]
fn a_soft_age_that_replaces_nodes_without_end_is_named() {
    let found = |expiry: Value, expire_after: &[&str]| -> Vec<(Level, String, String)> {
        let policies = [policy(&json!({ "expiry": expiry }))];
        let found = lint(&policies, &pools(expire_after), later(0)).into_iter();
        let short = found.filter(|found| found.finding.code == "soft-age-too-short");
        short
            .map(|found| (found.finding.level, found.finding.field, found.finding.message))
            .collect()
    };
    let said = found(
        json!({"softAfter": "30s", "jitter": "0s"}),
        &["720h", "Never", "48h", "720h", "30m"],
    );
    let text = "makes every node of NodePools pool-0, pool-1, pool-2 and 1 other due for replacement within 30s of its launch, again and again, as fast as budgets allow; write a longer age";
    let short = |field: &str, text: &str| (Level::Warning, format!("spec.expiry.{field}"), text.to_owned());
    assert_eq!(
        said,
        [short("softAfter", text)],
        "a NodePool's own half hour is meant"
    );
    let text = "makes every node of NodePool pool-0 due for replacement within 28m48s of its launch, again and again, as fast as budgets allow; write a longer age";
    let share = json!({"softPercent": 1, "jitter": "14m24s"});
    assert_eq!(found(share, &["24h"]), [short("softPercent", text)]);
    for (expiry, expire_after) in [
        (json!({"softAfter": "1h", "jitter": "0s"}), "Never"),
        // Half of what is left until `expireAfter` comes is the jitter.
        (json!({"softAfter": "30s"}), "720h"),
        (json!({"softPercent": 50}), "80m"),
        (json!({"softPercent": 1}), "Never"),
        (json!({"softAfter": "30s", "softPercent": 1}), "720h"),
    ] {
        let said = found(expiry.clone(), &[expire_after]);
        assert!(said.is_empty(), "{expiry} of {expire_after}: {said:?}");
    }
}
