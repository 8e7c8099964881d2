//! Savings that were predicted and those that came of it, and a memory that stays bounded.

use jiff::SignedDuration;
use serde_json::{Value, json};
use spokeshave_api::disruption::{Disruption, DisruptionStatus};
use spokeshave_example::{epoch, instance_type, node, node_pool};
use spokeshave_model::{ClusterState, Price, lower};
use spokeshave_view::{Dollars, Ledger, Missing, Sums, World};
use std::sync::Arc;

pub(crate) fn command(
    number: i64,
    before: &str,
    savings: &str,
    replacement: Option<&str>,
    phase: &str,
) -> Arc<Disruption> {
    let decided = epoch() + SignedDuration::from_secs(number);
    let replacements: Vec<Value> = replacement
        .iter()
        .map(|name| {
            json!({"nodeClaim": name, "nodePool": "default", "price": "0.1", "spec": {
                "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []}})
        })
        .collect();
    let spec = json!({
        "method": "SingleNodeConsolidation", "reason": "Underutilized", "decision": "Replace",
        "decidedAt": decided.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string(), "nodes": [], "replacements": replacements,
        "priceBefore": before, "priceAfter": "0", "savings": savings, "evictions": 2, "nodeSummary": "", "replacementSummary": "",
    });
    let mut object = Disruption::new(
        &format!("d{number}"),
        serde_json::from_value(spec).expect("a spec"),
    );
    let status: DisruptionStatus = serde_json::from_value(json!({"phase": phase})).expect("a status");
    object.status = Some(status);
    Arc::new(object)
}

/// A cluster with the node that has come; its price is not the one that was predicted.
fn state() -> (ClusterState, Price, String) {
    let kind = instance_type("small", 2, 8, &["a"]);
    let built = node("default", "come", &kind, "a", "spot");
    let claim = built.1.metadata.name.clone().expect("a name");
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind])
        .with_node(built);
    let price = lower(&state).nodes[0].price;
    (state, price, claim)
}

fn take(ledger: &mut Ledger, state: &ClusterState, disruptions: Vec<Arc<Disruption>>) {
    let world = World {
        state: state.clone(),
        disruptions,
        now: epoch(),
        ..World::default()
    };
    ledger.take(&world, &lower(state));
}

#[test]
fn what_came_of_a_replacement_is_what_was_launched() {
    let (state, price, claim) = state();
    let mut ledger = Ledger::default();
    take(
        &mut ledger,
        &state,
        vec![command(1, "1.5", "1.4", Some("not-yet"), "Replacing")],
    );
    let entry = ledger.entries().next().expect("it is there").clone();
    assert_eq!(
        (entry.predicted, entry.realised),
        (Dollars(Price::from_dollars(1.4)), None)
    );
    take(
        &mut ledger,
        &state,
        vec![command(1, "1.5", "1.4", Some(&claim), "Succeeded")],
    );
    let realised = Dollars(Price::from_dollars(1.5).saturating_sub(price));
    assert!(price > Price::ZERO);
    assert_eq!(
        ledger.entries().next().and_then(|entry| entry.realised),
        Some(realised)
    );
    // The replacement is gone again; what it had cost stays true.
    take(
        &mut ledger,
        &ClusterState::default(),
        vec![command(1, "1.5", "1.4", Some(&claim), "Succeeded")],
    );
    assert_eq!(ledger.sums().realised, realised);
    // Neither did the object's going undo it.
    take(&mut ledger, &state, Vec::new());
    assert_eq!((ledger.sums().commands, ledger.sums().evictions), (1, 2));
}

#[test]
fn a_delete_has_saved_when_it_is_done_and_one_that_was_taken_back_never() {
    let (state, ..) = state();
    let mut ledger = Ledger::default();
    let commands = |phase: &str| {
        vec![
            command(1, "0.5", "0.5", None, phase),
            command(2, "0.7", "-0.1", None, "RolledBack"),
        ]
    };
    take(&mut ledger, &state, commands("Draining"));
    assert!(ledger.entries().all(|entry| entry.realised.is_none()));
    take(&mut ledger, &state, commands("Succeeded"));
    let sums = ledger.sums();
    assert_eq!(
        (sums.commands, sums.predicted, sums.realised),
        (
            1,
            Dollars(Price::from_dollars(0.5)),
            Dollars(Price::from_dollars(0.5))
        )
    );
    let back = ledger.entries().nth(1).expect("it is told");
    assert_eq!((back.predicted.0.0, back.realised), (-100_000_000, None));
}

/// To delete a Disruption that is in progress rolls it back: it is not under way for ever, and has saved nothing.
#[test]
fn a_command_whose_object_is_deleted_is_rolled_back() {
    let (state, _, claim) = state();
    let mut ledger = Ledger::default();
    take(
        &mut ledger,
        &state,
        vec![command(1, "1.5", "1.4", Some(&claim), "Replacing")],
    );
    assert_eq!(ledger.sums().realised, Dollars::default(), "not yet");
    // While Disruptions cannot be read, it may go on.
    let world = World {
        state: state.clone(),
        missing: vec![Missing {
            resource: "disruptions.spokeshave.dev".to_owned(),
            message: "forbidden".to_owned(),
        }],
        now: epoch(),
        ..World::default()
    };
    ledger.take(&world, &lower(&state));
    assert_eq!(ledger.entries().next().expect("it is told").ended, None);
    take(&mut ledger, &state, Vec::new());
    let entry = ledger.entries().next().expect("it is told");
    assert_eq!(
        (entry.phase.as_str(), entry.ended, entry.realised),
        ("RolledBack", Some(epoch()), None)
    );
    assert_eq!(ledger.sums(), Sums::default());
}

/// Disruptions are kept for a day after their end: a program that did not run for longer knows of no deletion.
#[test]
fn what_ended_while_nobody_looked_for_a_day_was_not_rolled_back() {
    let (state, _, claim) = state();
    let mut ledger = Ledger::default();
    let commands = vec![command(1, "1.5", "1.4", Some(&claim), "Replacing")];
    take(&mut ledger, &state, commands);
    let world = World {
        state: state.clone(),
        now: epoch() + SignedDuration::from_hours(25),
        ..World::default()
    };
    ledger.take(&world, &lower(&state));
    let entry = ledger.entries().next().expect("it is told");
    assert_eq!((entry.phase.as_str(), entry.ended), ("Ended", Some(world.now)));
    assert_eq!(ledger.sums().commands, 1);
}

/// Of many that have ended only the newest are kept: after a pause one may have made room for others.
#[test]
fn what_ended_while_nobody_looked_and_made_room_for_others_was_not_rolled_back() {
    let phase = |others: i64, pause: i64| {
        let (state, _, claim) = state();
        let mut ledger = Ledger::default();
        let replacing = command(1000, "1.5", "1.4", Some(&claim), "Replacing");
        take(&mut ledger, &state, vec![replacing]);
        let ended = (0..others).map(|number| command(number, "1", "1", None, "Succeeded"));
        let world = World {
            disruptions: ended.collect(),
            now: epoch() + SignedDuration::from_secs(pause),
            ..World::default()
        };
        ledger.take(&world, &lower(&state));
        let mut entries = ledger.entries();
        let entry = entries.find(|entry| entry.name == "d1000");
        entry.expect("it is told").phase.clone()
    };
    assert_eq!(phase(200, 120), "Ended");
    assert_eq!(phase(199, 120), "RolledBack", "there was room for it");
    assert_eq!(phase(200, 5), "RolledBack", "nobody looked away");
}

/// Once its NodeClaims are deleted a command has done what it should: its Disruption is no longer needed for that.
#[test]
fn a_command_whose_object_is_deleted_while_it_drains_has_succeeded() {
    let (state, price, claim) = state();
    let mut ledger = Ledger::default();
    let draining = vec![
        command(1, "1.5", "1.4", Some(&claim), "Draining"),
        command(2, "0.5", "0.5", None, "Draining"),
    ];
    take(&mut ledger, &state, draining);
    take(&mut ledger, &state, Vec::new());
    let ended = ledger.entries().map(|entry| (entry.phase.as_str(), entry.ended));
    let ended: Vec<_> = ended.collect();
    assert_eq!(ended, [("Succeeded", Some(epoch())); 2]);
    let realised = Price::from_dollars(2.0).saturating_sub(price);
    assert_eq!(
        (ledger.sums().commands, ledger.sums().realised),
        (2, Dollars(realised))
    );
}

#[test]
fn what_was_written_as_saved_counts_and_not_what_was_worked_out_before() {
    let (state, _, claim) = state();
    let mut ledger = Ledger::default();
    let at = |phase: &str| Disruption::clone(&command(1, "1.5", "1.4", Some(&claim), phase));
    take(&mut ledger, &state, vec![Arc::new(at("Replacing"))]);
    let mut ended = at("Succeeded");
    ended.status.as_mut().expect("a status").realised_savings = Some("1.23".to_owned());
    take(&mut ledger, &state, vec![Arc::new(ended)]);
    assert_eq!(ledger.sums().realised, Dollars(Price::from_dollars(1.23)));
}

#[test]
fn memory_is_bounded_and_sums_go_on() {
    let (state, ..) = state();
    let mut ledger = Ledger::default();
    for first in (0..1000).step_by(100) {
        let some = (first..first + 100).map(|number| command(number, "1", "1", None, "Succeeded"));
        take(&mut ledger, &state, some.collect());
    }
    assert_eq!(ledger.entries().count(), 200);
    assert_eq!((ledger.sums().commands, ledger.sums().evictions), (1000, 2000));
    // An object that is still there and was forgotten is not counted again.
    take(&mut ledger, &state, vec![command(5, "1", "1", None, "Succeeded")]);
    assert_eq!(ledger.sums().commands, 1000);
}
