//! Consolidation judged over time: what rests, what has to pay, and that nothing is judged without a policy.

use crate::disruption_policies::with_room;
use crate::support::{DELETE_A, World, acts, dollars, later, on_demand_pool, pair};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption::Disruption;
use spokeshave_plan::disrupt::BlockerKind;
use spokeshave_plan::disrupt::record::record;
use spokeshave_plan::disruption_policy::status;
use std::sync::Arc;

const MINUTE: i64 = 60;

fn under(mut world: World, convergence: &Value) -> World {
    let spec = serde_json::from_value(json!({"convergence": convergence})).expect("a spec");
    world
        .state
        .disruption_policies
        .push(Arc::new(DisruptionPolicy::new("settle", spec)));
    world
}

/// A command that deleted its nodes so many seconds after the epoch, with `more` in its spec.
fn ledger(mut world: World, name: &str, at: i64, more: &Value) -> World {
    let time = later(at).strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    let mut spec = json!({
        "method": "SingleNodeConsolidation", "reason": "Underutilized", "decision": "Delete", "decidedAt": time,
        "nodes": [{"name": name, "nodeClaim": format!("claim-{name}"), "nodeClaimUID": name, "providerID": format!("kwok://{name}"), "nodePool": "default",
                   "instanceType": "small", "capacityType": "on-demand", "price": "0.08", "pods": 1}],
        "priceBefore": "0.08", "priceAfter": "0", "savings": "0.08", "evictions": 1, "nodeSummary": "", "replacementSummary": "",
    });
    for (key, value) in more.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    let mut one = Disruption::new(name, serde_json::from_value(spec).expect("a spec"));
    one.status = serde_json::from_value(json!({"phase": "Succeeded", "deletedAt": time, "finishedAt": time}))
        .expect("a status");
    world.state.disruptions.push(Arc::new(one));
    world
}

fn replacement(claim: &str) -> Value {
    json!({"nodeClaim": claim, "nodePool": "default", "price": "0.08", "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}})
}

fn at(mut world: World, seconds: i64) -> World {
    world.now = later(seconds);
    world
}

fn aged(world: World, node: &str, seconds: i64) -> World {
    let time = Some(Time(later(seconds)));
    let world = world.edit_node(node, |node| node.metadata.creation_timestamp.clone_from(&time));
    world.edit_claim(node, |claim| claim.metadata.creation_timestamp.clone_from(&time))
}

/// Two nodes a day old, of which one can go.
fn old_pair() -> World {
    aged(aged(pair(), "a", -86_400), "b", -86_400)
}

fn why(world: &World, node: &str) -> String {
    let verdict = world.verdict(node);
    assert_eq!(
        verdict.blockers[0].kind,
        BlockerKind::DisruptionPolicy,
        "{:?}",
        verdict.blockers
    );
    verdict.blockers[0].message.clone()
}

fn said(world: &World) -> Value {
    let snapshot = world.snapshot();
    let after = status(&world.state.disruption_policies[0], &snapshot, &[], world.now);
    serde_json::to_value(after.status).expect("JSON")
}

#[test]
fn a_node_that_was_just_launched_rests_and_then_goes() {
    let world = |now: i64| at(under(aged(old_pair(), "a", 0), &json!({})), now);
    assert_eq!(acts(&world(9 * MINUTE)), [""; 0]);
    let text = why(&world(9 * MINUTE), "a");
    assert!(text.contains("DisruptionPolicy settle (spec.convergence.rest): it was launched recently, until 2026-01-01 00:10:00Z"), "{text}");
    let status = said(&world(9 * MINUTE));
    assert_eq!(status["active"][0]["field"], "spec.convergence.rest");
    assert_eq!(status["nextChange"], json!(Time(later(10 * MINUTE))));
    assert_eq!(acts(&world(10 * MINUTE)), [DELETE_A]);
    assert_eq!(
        acts(&at(aged(old_pair(), "a", 0), MINUTE)),
        [DELETE_A],
        "without a policy nothing rests"
    );
    let long = under(aged(old_pair(), "a", 0), &json!({"rest": "1h"}));
    assert_eq!(acts(&at(long, 59 * MINUTE)), [""; 0]);
}

/// A chain of moves: `x` to `y`, `y` to `z`, and so on, the last to node `a`, one a minute from the epoch on.
fn chain(world: World, moves: i64) -> World {
    (1..=moves).fold(world, |world, step| {
        let to = if step == moves {
            "a".to_owned()
        } else {
            format!("n{}", step + 1)
        };
        let name = format!("n{step}");
        ledger(world, &name, step * MINUTE, &json!({"destinations": [to]}))
    })
}

#[test]
fn pods_that_are_moved_again_and_again_rest_twice_as_long_each_time() {
    for (moves, minutes) in [(1, 10), (2, 20), (3, 40), (4, 80)] {
        let world = |now: i64| at(under(chain(old_pair(), moves), &json!({"restartCost": "0"})), now);
        let end = (moves + minutes) * MINUTE;
        assert_eq!(acts(&world(end - 1)), [""; 0], "{moves} moves");
        assert_eq!(acts(&world(end)), [DELETE_A], "{moves} moves");
        let text = why(&world(end - 1), "a");
        let wanted = if moves == 1 {
            "pods were moved to it lately".to_owned()
        } else {
            format!("its pods were moved {moves} times within a day")
        };
        assert!(text.contains(&wanted), "{text}");
        let is_told = said(&world(end - 1))["active"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["field"] == "spec.convergence"));
        assert_eq!(is_told, moves > 1, "an oscillation is told as such");
    }
    let most = json!({"restartCost": "0", "maximumRest": "30m"});
    assert_eq!(
        acts(&at(under(chain(old_pair(), 4), &most), 34 * MINUTE)),
        [DELETE_A],
        "there is a maximum"
    );
    let taken_back = {
        let mut world = under(chain(old_pair(), 1), &json!({"restartCost": "0"}));
        let one = Arc::make_mut(&mut world.state.disruptions[0]);
        one.status = serde_json::from_value(json!({"phase": "RolledBack"})).expect("a status");
        world
    };
    assert_eq!(
        acts(&at(taken_back, 2 * MINUTE)),
        [DELETE_A],
        "what was taken back has moved nothing"
    );
}

#[test]
fn pods_that_come_while_others_are_moved_rest_where_they_come() {
    let born = |seconds: i64| {
        let world = ledger(old_pair(), "x", 0, &json!({}));
        let world = world.edit_pod("p", |pod| {
            pod.metadata.creation_timestamp = Some(Time(later(seconds)))
        });
        under(world, &json!({"restartCost": "0"}))
    };
    assert_eq!(acts(&at(born(20), 5 * MINUTE)), [""; 0]);
    assert_eq!(acts(&at(born(20), 11 * MINUTE)), [DELETE_A]);
    assert_eq!(acts(&at(born(120), 5 * MINUTE)), [DELETE_A], "it came by itself");
}

#[test]
fn a_swap_for_the_same_type_is_one_move_more() {
    let swapped = |instance_type: &str| {
        let node = json!([{"name": "x", "nodeClaim": "claim-x", "nodeClaimUID": "x", "providerID": "kwok://x", "nodePool": "default",
                           "instanceType": instance_type, "capacityType": "on-demand", "price": "0.08", "pods": 1}]);
        let more = json!({"decision": "Replace", "replacements": [replacement("claim-a")], "nodes": node});
        under(ledger(old_pair(), "x", 0, &more), &json!({"restartCost": "0"}))
    };
    assert!(
        why(&at(swapped("small"), 19 * MINUTE), "a").contains("from its instance type to the same again")
    );
    assert_eq!(acts(&at(swapped("small"), 20 * MINUTE)), [DELETE_A]);
    assert_eq!(
        acts(&at(swapped("medium"), 19 * MINUTE)),
        [DELETE_A],
        "a cheaper one is what it was for"
    );
}

/// From small to medium and back: prices that take turns, and pods that go to and fro after them.
#[test]
fn a_move_back_to_the_type_that_pods_were_on_is_a_swap_as_well() {
    let from = |name: &str, instance_type: &str| {
        json!([{"name": name, "nodeClaim": format!("claim-{name}"), "nodeClaimUID": name, "providerID": format!("kwok://{name}"), "nodePool": "default",
                "instanceType": instance_type, "capacityType": "on-demand", "price": "0.08", "pods": 1}])
    };
    let chain = |first: &str| {
        let one = json!({"decision": "Replace", "replacements": [replacement("claim-y")], "nodes": from("x", first)});
        let two = json!({"decision": "Replace", "replacements": [replacement("claim-a")], "nodes": from("y", "medium")});
        let world = ledger(ledger(old_pair(), "x", 0, &one), "y", MINUTE, &two);
        under(world, &json!({"restartCost": "0"}))
    };
    // Two moves rest for 20 minutes, and the swap for 40.
    assert_eq!(acts(&at(chain("small"), 40 * MINUTE)), [""; 0]);
    assert!(why(&at(chain("small"), 40 * MINUTE), "a").contains("from its instance type to the same again"));
    assert_eq!(acts(&at(chain("small"), 41 * MINUTE)), [DELETE_A]);
    assert_eq!(
        acts(&at(chain("large"), 21 * MINUTE)),
        [DELETE_A],
        "a third type is no way back"
    );
}

/// A NodePool that shrank and grew again so many times, half an hour apart, the last time 30 minutes before `now`.
fn regretted(times: i64, minutes_between: i64) -> World {
    let world = World::new(on_demand_pool("default")).node("a", "small");
    let world = (0..times).fold(world, |world, round| {
        let shrunk = round * 30 * MINUTE;
        let gone = json!([{"name": "x", "nodeClaim": format!("c{round}"), "nodeClaimUID": "x", "providerID": format!("kwok://x{round}"), "nodePool": "default", "price": "0.08", "pods": 0,
                           "createdAt": later(shrunk - 25 * MINUTE + (minutes_between - 5) * MINUTE).to_string()}]);
        ledger(world, &format!("d{round}"), shrunk, &json!({"reason": "Empty", "method": "Emptiness", "evictions": 0, "nodes": gone}))
    });
    let grown = (times - 1) * 30 * MINUTE + minutes_between * MINUTE;
    under(aged(world, "a", grown), &json!({}))
}

#[test]
fn a_nodepool_that_grows_right_after_it_has_shrunk_rests_as_a_whole() {
    // The node came five minutes after the last deletion and is empty since.
    let empty = |times: i64, between: i64, minutes: i64| {
        let grown = (times - 1) * 30 * MINUTE + between * MINUTE;
        acts(&at(regretted(times, between), grown + minutes * MINUTE)).len()
    };
    assert_eq!(empty(1, 5, 11), 1, "once is chance");
    assert_eq!(empty(2, 5, 11), 0);
    assert_eq!(empty(2, 5, 20), 1, "twenty minutes");
    assert_eq!(empty(3, 5, 39), 0);
    assert_eq!(empty(3, 5, 40), 1, "forty");
    assert_eq!(empty(6, 5, 39), 0);
    assert_eq!(empty(6, 5, 40), 1, "empty nodes never rest longer than that");
    assert_eq!(empty(3, 12, 11), 1, "not within ten minutes");
    let world = at(regretted(3, 5), 65 * MINUTE + 20 * MINUTE);
    let text = why(&world, "a");
    assert!(
        text.contains("within 10 minutes after nodes had been taken away, 3 times within a day"),
        "{text}"
    );
    assert_eq!(said(&world)["active"][0]["domain"], "default");
}

/// What a round takes away goes in several commands within seconds, and one node that comes afterwards is one launch.
#[test]
fn one_launch_after_several_deletions_of_a_round_is_chance() {
    // As many nodes went as were launched two hours before, and one came five minutes later.
    let world = |deletions: i64, minutes: i64| {
        let world = World::new(on_demand_pool("default")).node("a", "small");
        let world = (0..deletions).fold(world, |world, second| {
            let gone = json!([{"name": "x", "nodeClaim": format!("c{second}"), "nodeClaimUID": "x", "providerID": format!("kwok://x{second}"), "nodePool": "default", "price": "0.08", "pods": 0,
                               "createdAt": later(-120 * MINUTE).to_string()}]);
            ledger(world, &format!("d{second}"), second, &json!({"reason": "Empty", "method": "Emptiness", "evictions": 0, "nodes": gone}))
        });
        at(
            under(aged(world, "a", 5 * MINUTE), &json!({})),
            (5 + minutes) * MINUTE,
        )
    };
    for deletions in [1, 2, 5] {
        assert_eq!(acts(&world(deletions, 11)).len(), 1, "{deletions} deletions");
        assert_eq!(acts(&world(deletions, 9)).len(), 0, "launched recently");
    }
}

#[test]
fn a_move_has_to_earn_its_restarts_while_its_saving_lasts() {
    // One pod moves, $0.08 an hour is saved, four hours long: $0.32.
    let costs = |cost: &str| under(old_pair(), &json!({"restartCost": cost}));
    assert_eq!(acts(&costs("0.32")), [DELETE_A]);
    assert_eq!(acts(&costs("0.33")), [""; 0]);
    let text = why(&costs("0.33"), "a");
    assert!(
        text.contains("moving 1 pod costs $0.33, and the saving earns $0.32 in the 240 minutes"),
        "{text}"
    );
    assert_eq!(
        acts(&under(
            old_pair(),
            &json!({"restartCost": "0.33", "horizon": "5h"})
        )),
        [DELETE_A]
    );
    // Savings of this NodePool have lasted 30 minutes: $0.04.
    let short = |cost: &str| {
        let world = World::new(on_demand_pool("default"))
            .node("a", "small")
            .node("b", "small")
            .node("c", "small");
        let world = world
            .pod("p", "a", "1")
            .pod_with("r", "b", "100m", &crate::support::pinned("b"))
            .pod_with("s", "c", "1900m", &crate::support::pinned("c"));
        let world = aged(aged(aged(world, "a", -86_400), "b", -86_400), "c", 30 * MINUTE);
        at(
            under(ledger(world, "x", 0, &json!({})), &json!({"restartCost": cost})),
            3600,
        )
    };
    assert_eq!(acts(&short("0.04")), [DELETE_A]);
    assert_eq!(acts(&short("0.041")), [""; 0]);
    // And replacements have stood for 15 minutes until they were replaced themselves: $0.02.
    let swaps = |cost: &str| {
        let world = (0..3).fold(old_pair(), |world, step: i64| {
            let node = json!([{"name": "x", "nodeClaim": format!("swap-{step}"), "nodeClaimUID": "x", "providerID": format!("kwok://s{step}"), "nodePool": "default", "price": "0.08", "pods": 1}]);
            let more = json!({"decision": "Replace", "replacements": [replacement(&format!("swap-{}", step + 1))], "nodes": node});
            ledger(world, &format!("s{step}"), step * 15 * MINUTE, &more)
        });
        at(under(world, &json!({"restartCost": cost})), 3600)
    };
    assert_eq!(acts(&swaps("0.02")), [DELETE_A]);
    assert_eq!(acts(&swaps("0.021")), [""; 0]);
    let broken = under(old_pair(), &json!({"restartCost": "cheap"}));
    assert_eq!(
        acts(&broken),
        [""; 0],
        "what cannot be read stops, and the status says so"
    );
    assert!(
        said(&broken)["summary"]
            .as_str()
            .is_some_and(|text| text.contains("no amount of dollars"))
    );
    assert_eq!(dollars("0.005").to_string(), "0.005");
}

/// Three virtual pods are on `a`, which comes first, and have room beside its pod on `b`.
#[test]
fn d_374_room_of_a_buffer_costs_no_restarts_and_has_not_been_moved() {
    let costs = |cost: &str| with_room(under(old_pair(), &json!({"restartCost": cost})), 3);
    assert_eq!(acts(&costs("0.32")), [DELETE_A], "one pod moves");
    assert_eq!(acts(&costs("0.33")), [""; 0]);
    // The buffer was created while pods were moved, and the pod came later.
    let world = ledger(old_pair(), "x", 0, &json!({})).edit_pod("p", |pod| {
        pod.metadata.creation_timestamp = Some(Time(later(120)));
    });
    let world = at(under(world, &json!({"restartCost": "0"})), 5 * MINUTE);
    assert_eq!(acts(&with_room(world, 3)), [DELETE_A]);
}

#[test]
fn the_ledger_keeps_births_only_where_somebody_judges_by_them() {
    let birth = |world: &World| {
        let one = record(&world.snapshot(), &world.command(), &[], world.now);
        one.spec.nodes[0].created_at.clone()
    };
    assert_eq!(birth(&old_pair()), None);
    assert_eq!(birth(&under(old_pair(), &json!({}))), Some(Time(later(-86_400))));
    let mut other = under(old_pair(), &json!({}));
    Arc::make_mut(&mut other.state.disruption_policies[0])
        .spec
        .node_pools = serde_json::from_value(json!({"names": ["other"]})).expect("a selector");
    assert_eq!(birth(&other), None);
}

#[test]
fn a_clock_that_jumps_back_holds_and_one_that_jumps_ahead_forgets() {
    let chained = |now: i64| {
        acts(&at(
            under(chain(old_pair(), 2), &json!({"restartCost": "0"})),
            now,
        ))
    };
    assert_eq!(chained(-3600), [""; 0], "an hour before it happened");
    assert_eq!(chained(30 * 86_400), [DELETE_A]);
    let earliest = at(under(chain(old_pair(), 2), &json!({})), 0);
    let earliest = World {
        now: Timestamp::MIN,
        ..earliest
    };
    drop(acts(&earliest));
    drop(acts(&World {
        now: Timestamp::MAX,
        ..earliest
    }));
}
