//! PodDisruptionBudgets over the pods of several workloads, and over those of controllers of others.

use std::sync::Arc;

use serde_json::json;
use spokeshave_scenario::{Budget, Change, DisruptionBudget, Owner, OwnerKind, Timeline};
use spokeshave_simulate::{ObjectsAt, Watch, live, live_watched};

use crate::promises::report::Entry;
use crate::small::{HOUR, expiring, owner, policy, timeline, world};

/// A workload whose pods have another label of their app than its name.
fn of_app(app: &str, kind: OwnerKind, name: &str, cpu: &str) -> Owner {
    let mut owner = owner(kind, name, cpu);
    let template = Arc::make_mut(&mut owner.template);
    let labels = json!({"app": app, "of": name});
    template.metadata.get_or_insert_default().labels = serde_json::from_value(labels).unwrap();
    owner
}

/// Puts the pods of an app under one more budget.
fn protect(timeline: &mut Timeline, app: &str, amount: Budget) {
    let budget = DisruptionBudget {
        selector: serde_json::from_value(json!({"matchLabels": {"app": app}})).unwrap(),
        amount: Some(amount),
    };
    let name = format!("{app}-{}", timeline.budgets.len());
    timeline.budgets.insert(("shop".to_owned(), name), budget);
}

fn most(text: &str) -> Budget {
    Budget::MaxUnavailable(text.to_owned())
}

fn least(text: &str) -> Budget {
    Budget::MinAvailable(text.to_owned())
}

/// Three StatefulSets of one broker each, whose nodes expire at the same time.
#[test]
fn d_017_brokers_under_one_budget_go_one_after_the_other() {
    let brokers = ["kafka-0", "kafka-1", "kafka-2"];
    let owners = brokers.map(|name| of_app("kafka", OwnerKind::StatefulSet, name, "3"));
    let events = (0..3).map(|owner| (0, owner, Change::Replicas(1)));
    let mut timeline = timeline(owners.into(), events.collect());
    protect(&mut timeline, "kafka", most("1"));
    let mut world = world(2);
    world.duration_ms = HOUR + HOUR / 2;
    let mut log: Vec<Entry> = Vec::new();
    let mut take = |line: spokeshave_simulate::Line<'_>| log.push(line.into());
    let watch = Watch {
        lines: Some(&mut take),
        objects: None,
    };
    live_watched(&world, &timeline, &expiring("1h"), 1, &|| false, watch);
    let mut away = Vec::new();
    let mut told = Vec::new();
    for entry in log.iter().filter(|entry| entry.at_ms >= HOUR) {
        match entry.what.as_str() {
            "evicted" => away.push(entry.of.clone()),
            "started" => away.retain(|pod| *pod != entry.of),
            _ => continue,
        }
        told.push(away.len());
    }
    assert_eq!(told, [1, 0, 1, 0, 1, 0], "each is back before the next one goes");
}

/// Two large pods hold two nodes; a pod of the app sits beside each, of a workload of its own. When the large ones go, one node is enough, and one of the two has
/// to move, if it may.
fn canary() -> Timeline {
    let owners = vec![
        owner(OwnerKind::Deployment, "large", "3"),
        of_app("web", OwnerKind::Deployment, "stable", "500m"),
        of_app("web", OwnerKind::Deployment, "canary", "500m"),
    ];
    let events = vec![
        (0, 0, Change::Replicas(2)),
        (0, 1, Change::Replicas(1)),
        (0, 2, Change::Replicas(1)),
        (HOUR, 0, Change::Replicas(0)),
    ];
    timeline(owners, events)
}

#[test]
fn d_017_d_018_a_budget_counts_a_canary_with_the_rest_and_two_of_them_let_none_go() {
    let cases: [(&[Budget], u64); 6] = [
        (&[], 1),
        (&[least("1")], 1),
        (&[most("1")], 1),
        (&[most("50%")], 1),
        (&[least("2")], 0),
        (&[least("1"), most("100%")], 0),
    ];
    for (budgets, evictions) in cases {
        let mut timeline = canary();
        for budget in budgets {
            protect(&mut timeline, "web", budget.clone());
        }
        let measured = live(&world(3), &timeline, &policy(), 1).measured;
        assert_eq!(measured.evictions_voluntary, evictions, "{budgets:?}");
    }
}

/// What the disruption controller writes, so that whoever reads the snapshot can say why.
#[test]
fn a_snapshot_has_the_whole_status_of_a_budget() {
    let mut timeline = canary();
    protect(&mut timeline, "web", least("1"));
    timeline.owners[0].budget = Some(most("50%"));
    let (world, policy, mut told) = (world(1), policy(), Vec::new());
    let mut show = |objects: &spokeshave_simulate::Objects| {
        for budget in &objects.pod_disruption_budgets {
            told.push(serde_json::to_value(&**budget).unwrap());
        }
    };
    let watch = Watch {
        lines: None,
        objects: Some(ObjectsAt {
            at_ms: HOUR / 2,
            take: &mut show,
        }),
    };
    live_watched(&world, &timeline, &policy, 1, &|| false, watch);
    let status =
        json!({"expectedPods": 2, "desiredHealthy": 1, "currentHealthy": 2, "disruptionsAllowed": 1});
    let found: Vec<_> = told
        .iter()
        .map(|one| (&one["metadata"]["name"], &one["status"]))
        .collect();
    assert_eq!(found, [(&json!("large"), &status), (&json!("web-0"), &status)]);
    assert_eq!(
        told[1]["spec"]["selector"],
        json!({"matchLabels": {"app": "web"}})
    );
}

/// Pods of a Rollout or a CloneSet that were recorded one by one have a controller with a scale, and those of a Job have none.
#[test]
fn pods_of_other_controllers_may_move_under_a_share_of_them() {
    for (kind, evictions) in [(OwnerKind::Other, 1), (OwnerKind::Job, 0)] {
        let owners = vec![owner(kind, "large", "3"), owner(kind, "small", "500m")];
        let begin = |pod: u64| Change::Begin { pod, runs_ms: None };
        let end = |pod: u64| Change::End { pod };
        let mut events = Vec::new();
        for owner in 0..2 {
            events.extend([(0, owner, begin(0)), (0, owner, begin(1))]);
        }
        events.extend([(HOUR, 0, end(0)), (HOUR, 0, end(1))]);
        let mut timeline = timeline(owners, events);
        protect(&mut timeline, "small", most("50%"));
        let measured = live(&world(3), &timeline, &policy(), 1).measured;
        assert_eq!(measured.evictions_voluntary, evictions, "{kind:?}");
        assert!(
            measured.pending_at_end_ms.is_empty(),
            "{kind:?}: whoever was evicted is back"
        );
    }
}
