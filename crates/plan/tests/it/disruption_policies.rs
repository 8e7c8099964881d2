//! DisruptionPolicies through a pass, a second look, and the steps of a command.

use crate::support::{DELETE_A, World, acts, later, nodes_of, on_demand_pool, pair, pinned};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption::{DisruptedNode, Disruption};
use spokeshave_plan::disrupt::advance::{Milestone, Present, PresentNode, advance};
use spokeshave_plan::disrupt::{BlockerKind, validate};
use spokeshave_plan::disruption_policy::status;
use std::sync::Arc;

fn policy(spec: &Value) -> Arc<DisruptionPolicy> {
    let spec = serde_json::from_value(spec.clone()).expect("a spec");
    Arc::new(DisruptionPolicy::new("calm", spec))
}

fn under(mut world: World, spec: &Value) -> World {
    world.state.disruption_policies.push(policy(spec));
    world
}

/// The status that the policy of a world should have.
fn said(world: &World) -> Value {
    let snapshot = world.snapshot();
    let after = status(&world.state.disruption_policies[0], &snapshot, &[], world.now);
    serde_json::to_value(after.status).expect("JSON")
}

fn frozen() -> Value {
    json!({"freeze": {"reason": "incident 42", "until": later(7200)}})
}

#[test]
fn invariant_4_a_freeze_stops_every_method_and_the_verdict_names_it() {
    assert_eq!(acts(&pair()), [DELETE_A]);
    let world = under(pair(), &frozen());
    assert_eq!(acts(&world), [""; 0]);
    let verdict = world.verdict("a");
    assert_eq!(verdict.blockers[0].kind, BlockerKind::DisruptionPolicy);
    let text = &verdict.blockers[0].message;
    assert!(
        text.contains("DisruptionPolicy calm (spec.freeze): frozen: incident 42, until"),
        "{text}"
    );
    assert!(
        verdict.if_removed.is_some(),
        "it says what would happen otherwise"
    );
    let mut thawed = world.clone();
    thawed.now = later(7200);
    assert_eq!(acts(&thawed), [DELETE_A], "it ends by itself");
    let elsewhere = json!({"freeze": {"reason": "x"}, "nodePools": {"names": ["other"]}});
    assert_eq!(acts(&under(pair(), &elsewhere)), [DELETE_A]);
}

#[test]
fn a_freeze_between_decision_and_second_look_refuses_the_command() {
    let world = pair();
    let command = world.command();
    assert!(
        validate(&command, &world.snapshot(), &world.policy, world.now)
            .command
            .is_some()
    );
    let world = under(world, &frozen());
    assert!(
        validate(&command, &world.snapshot(), &world.policy, world.now)
            .command
            .is_none()
    );
}

fn born(world: World, node: &str, at: Timestamp) -> World {
    world.edit_node(node, |node| node.metadata.creation_timestamp = Some(Time(at)))
}

#[test]
fn a_new_node_holds_all_for_a_while_as_node_holder_does() {
    let hold = json!({"hold": {"duration": "20m", "initialDelay": "60s"}});
    let old = later(-86_400);
    let world = |b: Timestamp| under(born(born(pair(), "a", old), "b", b), &hold);
    assert_eq!(acts(&world(old)), [DELETE_A]);
    assert_eq!(acts(&world(later(-300))), [""; 0]);
    let status = said(&world(later(-300)));
    assert_eq!(status["active"][0]["field"], "spec.hold");
    assert_eq!(status["nextChange"], json!(Time(later(-300 + 60 + 1200))));
    assert_eq!(
        acts(&world(later(-300 - 960))),
        [DELETE_A],
        "after a minute and twenty"
    );
    let drift_only = json!({"hold": {"duration": "20m", "reasons": ["Drifted"]}});
    let world = under(born(born(pair(), "a", old), "b", later(-300)), &drift_only);
    assert_eq!(acts(&world), [DELETE_A], "other reasons are not held");
}

/// A node comes every ten minutes and is gone when the next one comes, so that no object knows any more when the hold began.
#[test]
fn a_hold_that_its_maximum_has_ended_begins_again_only_after_a_whole_duration_without_a_trigger() {
    for scope in ["Cluster", "NodePool"] {
        let hold = json!({"hold": {"duration": "20m", "maximum": "30m", "scope": scope}});
        let mut world = under(born(pair(), "a", later(-86_400)), &hold);
        let mut held_at = |minute: i64, comes: bool| {
            world.now = later(minute * 60);
            if comes {
                world = born(world.clone(), "b", world.now);
            }
            let snapshot = world.snapshot();
            let after = status(&world.state.disruption_policies[0], &snapshot, &[], world.now);
            world.state.disruption_policies[0] = Arc::new(after);
            acts(&world).is_empty()
        };
        for minute in 0..120 {
            let is_held = held_at(minute, minute % 10 == 0);
            assert_eq!(is_held, minute < 30, "{scope}: minute {minute}");
        }
        assert!(!held_at(130, false), "{scope}: the last came at 110");
        assert!(held_at(131, true), "{scope}: the next hold");
        assert!(!held_at(151, false), "{scope}: and its end");
    }
}

/// One for a job of two minutes, for example: nothing but the status knows of it any more.
#[test]
fn a_hold_outlives_the_node_that_began_it() {
    for scope in ["Cluster", "NodePool"] {
        let hold = json!({"hold": {"duration": "20m", "scope": scope}});
        let old = later(-86_400);
        let mut world = under(born(born(pair(), "a", old), "b", old), &hold);
        assert_eq!(acts(&world), [DELETE_A], "{scope}");
        let with_job = born(world.clone().node("job", "small"), "job", world.now);
        let snapshot = with_job.snapshot();
        let after = status(&world.state.disruption_policies[0], &snapshot, &[], world.now);
        world.state.disruption_policies[0] = Arc::new(after);
        world.now = later(1199);
        assert_eq!(acts(&world), [""; 0], "{scope}");
        let active = said(&world)["active"][0].clone();
        assert_eq!(active["field"], "spec.hold", "{scope}: and it says so");
        assert_eq!(active["until"], json!(Time(later(1200))), "{scope}");
        world.now = later(1200);
        assert_eq!(acts(&world), [DELETE_A], "{scope}");
    }
}

/// A machine that was launched and has not joined has added no Node, and one that cannot join never will.
#[test]
fn a_nodeclaim_without_a_node_begins_no_hold() {
    let old = later(-86_400);
    let world = born(born(pair().node("c", "small"), "a", old), "b", old);
    let mut world = under(world, &json!({"hold": {"duration": "20m"}}));
    assert_eq!(said(&world)["active"][0]["field"], "spec.hold");
    world
        .state
        .nodes
        .retain(|node| node.metadata.name.as_deref() != Some("c"));
    let status = said(&world);
    assert_eq!(status["summary"], "stops nothing now");
    assert_eq!(status["holds"][0], Value::Null, "nor does it use up a maximum");
}

/// A node comes every ten minutes and is gone when the next one comes, and for twenty minutes the NodePool cannot be read.
#[test]
fn what_is_remembered_of_a_hold_outlives_a_time_in_which_its_nodepool_cannot_be_read() {
    let hold = json!({"hold": {"duration": "20m", "maximum": "30m", "scope": "NodePool"}});
    let mut world = under(born(pair(), "a", later(-86_400)), &hold);
    let pools = world.state.node_pools.clone();
    for minute in 0..60 {
        let now = later(minute * 60);
        world.now = now;
        let is_readable = !(20..40).contains(&minute);
        world.state.node_pools = if is_readable { pools.clone() } else { Vec::new() };
        if minute % 10 == 0 {
            world = born(world, "b", now);
        }
        let snapshot = world.snapshot();
        let after = status(&world.state.disruption_policies[0], &snapshot, &[], now);
        world.state.disruption_policies[0] = Arc::new(after);
    }
    assert_eq!(acts(&world), [DELETE_A], "its maximum has ended it long ago");
}

/// Three empty nodes, one in zone `x` and two in zone `y`.
fn empty_in_two_zones() -> World {
    let zone = "topology.kubernetes.io/zone";
    World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .node("c", "small")
        .label_node("a", zone, "x")
        .label_node("b", zone, "y")
        .label_node("c", zone, "y")
}

/// The nodes that the commands of the next pass take, by name.
fn nodes(world: &World) -> Vec<String> {
    let mut names = nodes_of(&world.pass().commands);
    names.sort_unstable();
    names
}

#[test]
fn invariant_3_never_two_zones_at_once() {
    assert_eq!(nodes(&empty_in_two_zones()), ["a", "b", "c"], "without a policy");
    let one = json!({"budgets": [{"scope": "Zone", "oneAtATime": true}]});
    let world = under(empty_in_two_zones(), &one);
    let first = nodes(&world);
    assert!(first == ["a"] || first == ["b", "c"], "{first:?}");
    let mut going = world.clone();
    going.state.in_command.insert("kwok://a".to_owned());
    assert_eq!(nodes(&going), [""; 0], "zone x is open");
    let mut going = world;
    going.state.in_command.insert("kwok://b".to_owned());
    assert_eq!(nodes(&going), ["c"], "zone y is open");
    let each = json!({"budgets": [{"scope": "Zone", "limit": "1"}]});
    assert_eq!(
        nodes(&under(empty_in_two_zones(), &each)).len(),
        2,
        "one in each zone"
    );
    let share = json!({"budgets": [{"limit": "34%"}]});
    assert_eq!(nodes(&under(empty_in_two_zones(), &share)).len(), 2, "rounded up");
    let both = json!({"budgets": [{"limit": "2"}, {"limit": "2", "unit": "CPU"}]});
    assert_eq!(
        nodes(&under(empty_in_two_zones(), &both)).len(),
        1,
        "the stricter wins"
    );
}

fn disruption(status: &Value, replacements: &Value) -> Disruption {
    let spec = json!({
        "method": "Emptiness", "reason": "Empty", "decision": "Delete", "decidedAt": "2026-01-01T00:00:00.000000Z",
        "nodes": [{"name": "gone", "nodeClaim": "gone", "nodeClaimUID": "u", "providerID": "kwok://gone", "nodePool": "default", "price": "1", "pods": 4}],
        "priceBefore": "1", "priceAfter": "0", "savings": "1", "evictions": 4, "nodeSummary": "", "replacementSummary": "", "replacements": replacements,
    });
    let mut one = Disruption::new("d", serde_json::from_value(spec).expect("a spec"));
    one.status = serde_json::from_value(status.clone()).expect("a status");
    one
}

#[test]
fn invariant_3_a_rate_is_counted_from_the_ledger_and_so_survives_a_restart() {
    let rate = json!({"budgets": [{"perHour": 2}]});
    let decided: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let world = |minutes: i64, phase: &str| {
        let mut world = under(empty_in_two_zones(), &rate);
        world.now = decided + jiff::SignedDuration::from_mins(minutes);
        let one = disruption(&json!({"phase": phase}), &json!([]));
        world.state.disruptions.push(Arc::new(one));
        world
    };
    let count = |world: &World| {
        world
            .pass()
            .commands
            .iter()
            .map(|command| command.nodes.len())
            .sum::<usize>()
    };
    assert_eq!(count(&world(10, "Succeeded")), 1, "one of two is used up");
    assert_eq!(count(&world(10, "RolledBack")), 2, "what was taken back is free");
    assert_eq!(count(&world(60, "Succeeded")), 2, "an hour has passed");
}

/// Besides the three, `d` and `e` of NodePool `other` in zone `y`. Two are in rack `r1`, one is in `r2`, and `c` and `e` are in none.
fn empty_in_two_pools() -> World {
    let mut world = empty_in_two_zones();
    world.state = world
        .state
        .with_pool(on_demand_pool("other"), world.types.clone());
    for name in ["d", "e"] {
        world = world.node_in("other", name, "small", "on-demand");
        world = world.label_node(name, "topology.kubernetes.io/zone", "y");
    }
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("d", "r2")] {
        world = world.label_node(name, "rack", rack);
    }
    world
}

/// Those of [`empty_in_two_pools`] that go under one budget.
fn under_budget(budget: &Value) -> Vec<String> {
    nodes(&under(empty_in_two_pools(), &json!({ "budgets": [budget] })))
}

/// One node of each group, and no other.
fn is_one_of_each(nodes: &[String], groups: &[&[&str]]) -> bool {
    let has = |group: &&[&str]| nodes.iter().any(|node| group.contains(&node.as_str()));
    nodes.len() == groups.len() && groups.iter().all(has)
}

#[test]
fn invariant_3_a_limit_is_counted_in_each_nodepool_and_for_each_value_of_a_label() {
    assert_eq!(nodes(&empty_in_two_pools()), ["a", "b", "c", "d", "e"]);
    let pools = under_budget(&json!({"scope": "NodePool", "limit": "1"}));
    assert!(
        is_one_of_each(&pools, &[&["a", "b", "c"], &["d", "e"]]),
        "{pools:?}"
    );
    let racks = under_budget(&json!({"scope": "Label", "label": "rack", "limit": "1"}));
    assert!(
        is_one_of_each(&racks, &[&["a", "b"], &["d"], &["c", "e"]]),
        "{racks:?}"
    );
    let pool = json!({"scope": "NodePool", "oneAtATime": true});
    let rack = json!({"scope": "Label", "label": "rack", "oneAtATime": true});
    for (budget, on_its_way, others) in [
        (&pool, "a", &["b", "c"][..]),
        (&pool, "d", &["e"]),
        (&rack, "a", &["b"]),
        (&rack, "c", &["e"]),
        (&rack, "d", &[]),
    ] {
        let mut world = under(empty_in_two_pools(), &json!({ "budgets": [budget] }));
        world.state.in_command.insert(format!("kwok://{on_its_way}"));
        assert_eq!(nodes(&world), others, "{budget} beside {on_its_way}");
    }
}

/// With a command of ten minutes ago in the ledger, of one node.
fn after_one(mut world: World, change: impl FnOnce(&mut DisruptedNode)) -> World {
    let mut one = disruption(&json!({"phase": "Succeeded"}), &json!([]));
    change(&mut one.spec.nodes[0]);
    world.state.disruptions.push(Arc::new(one));
    world.now = later(600);
    world
}

/// Where it was is in the ledger: the node itself is gone.
#[test]
fn invariant_3_a_rate_is_counted_in_the_zone_and_the_nodepool_of_what_went() {
    let left = |scope: &str, zone: &str, pool: &str| {
        let world = after_one(empty_in_two_pools(), |node| {
            node.zone = Some(zone.to_owned());
            node.node_pool = pool.to_owned();
        });
        nodes(&under(
            world,
            &json!({"budgets": [{"scope": scope, "perHour": 1}]}),
        ))
    };
    let in_y = left("Zone", "x", "default");
    assert!(is_one_of_each(&in_y, &[&["b", "c", "d", "e"]]), "{in_y:?}");
    assert_eq!(left("Zone", "y", "default"), ["a"]);
    let of_other = left("NodePool", "x", "default");
    assert!(is_one_of_each(&of_other, &[&["d", "e"]]), "{of_other:?}");
    let of_default = left("NodePool", "x", "other");
    assert!(is_one_of_each(&of_default, &[&["a", "b", "c"]]), "{of_default:?}");
}

/// Nodes `a`, `b` and `c` with three pods each, which nobody minds to lose, and one that has room for all of them, with a pod that stays.
fn three_pods_each() -> World {
    let mut world = World::new(on_demand_pool("default"))
        .node("stay", "large")
        .pod_with("r", "stay", "1", &pinned("stay"));
    for node in ["a", "b", "c"] {
        world = world.node(node, "small");
        for number in 0..3 {
            let pod = format!("{node}-{number}");
            world = world.pod(&pod, node, "100m");
            world = world.annotate_pod(&pod, "controller.kubernetes.io/pod-deletion-cost", "-2147483647");
        }
    }
    world
}

#[test]
fn invariant_3_a_budget_in_pods_counts_those_that_have_to_move() {
    let count = |world: World, budget: Value| nodes(&under(world, &json!({ "budgets": [budget] }))).len();
    let beside_a = |mut world: World| {
        world.state.in_command.insert("kwok://a".to_owned());
        world
    };
    assert_eq!(nodes(&three_pods_each()), ["a", "b", "c"]);
    let limit = |limit: &str| json!({"unit": "Pods", "limit": limit});
    // While nothing is on its way, one node may have more pods than that; and 40 % of ten are four.
    for (pods, expected) in [
        ("0", 0),
        ("2", 1),
        ("4", 1),
        ("40%", 1),
        ("6", 2),
        ("8", 2),
        ("9", 3),
    ] {
        assert_eq!(count(three_pods_each(), limit(pods)), expected, "{pods}");
    }
    assert_eq!(count(beside_a(three_pods_each()), limit("4")), 0);
    assert_eq!(count(beside_a(three_pods_each()), limit("6")), 1);

    let rate = |pods: i64| json!({"unit": "Pods", "perHour": pods});
    let after = |pods: i64| after_one(three_pods_each(), |node| node.pods = pods);
    assert_eq!(count(after(4), rate(5)), 0, "four and three are more than five");
    assert_eq!(count(after(1), rate(5)), 1);
    assert_eq!(count(after(1), rate(7)), 2);
    // What is decided counts before it is written down, and once.
    assert_eq!(count(beside_a(three_pods_each()), rate(5)), 0);
    assert_eq!(count(beside_a(three_pods_each()), rate(6)), 1);
    let written = after_one(beside_a(three_pods_each()), |node| {
        node.provider_id = "kwok://a".to_owned();
        node.pods = 3;
    });
    assert_eq!(count(written, rate(6)), 1);
}

/// With so many virtual pods of a CapacityBuffer, of 100m each.
pub(crate) fn with_room(world: World, count: usize) -> World {
    (0..count).fold(world, |world, number| {
        let name = format!("capacity-buffer-b-{number}");
        let world = world.pending(&name, "100m");
        world.annotate_pod(&name, "karpenter.sh/capacity-buffer-fake-pod", "true")
    })
}

#[test]
fn d_374_a_budget_in_pods_does_not_count_virtual_ones() {
    let beside_room = |limit: &str| {
        let budget = json!({"budgets": [{"unit": "Pods", "limit": limit}]});
        nodes(&under(with_room(three_pods_each(), 20), &budget)).len()
    };
    assert_eq!(nodes(&with_room(three_pods_each(), 20)), ["a", "b", "c"]);
    // As without room: three on each node, and 40 % of ten are four.
    for (limit, expected) in [("4", 1), ("40%", 1), ("6", 2), ("9", 3)] {
        assert_eq!(beside_room(limit), expected, "{limit}");
    }
}

/// Nobody knows the labels of one that cannot be read: what has gone of it may be what the policy counts.
#[test]
fn invariant_3_what_went_of_a_nodepool_that_is_not_there_counts_for_a_rate_by_labels() {
    let left = |gone_of: &str| {
        let rate = json!({"nodePools": {"matchLabels": {"team": "a"}}, "budgets": [{"perHour": 2}]});
        let world = under(empty_in_two_zones(), &rate);
        let mut world = world.edit_pool("default", |pool| {
            let labels = pool.metadata.labels.get_or_insert_default();
            labels.insert("team".to_owned(), "a".to_owned());
        });
        world.state = world
            .state
            .with_pool(on_demand_pool("other"), world.types.clone());
        world.now = "2026-01-01T00:10:00Z".parse().expect("a time");
        let mut one = disruption(&json!({"phase": "Succeeded"}), &json!([]));
        one.spec.nodes[0].node_pool = gone_of.to_owned();
        world.state.disruptions.push(Arc::new(one));
        let commands = world.pass().commands;
        commands.iter().map(|command| command.nodes.len()).sum::<usize>()
    };
    assert_eq!(left("default"), 1);
    assert_eq!(left("other"), 2, "it has no such label");
    assert_eq!(left("out-of-sight"), 1);
}

#[test]
fn too_many_nodes_that_are_not_ready_stop_all() {
    let breaker = json!({"circuitBreakers": {"notReady": {"percent": 30, "scope": "Zone"}}});
    let unready = |world: World| {
        world.edit_node("c", |node| {
            let conditions = node
                .status
                .get_or_insert_default()
                .conditions
                .get_or_insert_default();
            for condition in conditions
                .iter_mut()
                .filter(|condition| condition.type_ == "Ready")
            {
                condition.status = "False".to_owned();
            }
        })
    };
    let world = under(empty_in_two_zones(), &breaker);
    assert!(!world.pass().commands.is_empty());
    let world = unready(world);
    assert!(world.pass().commands.is_empty());
    assert_eq!(said(&world)["active"][0]["domain"], "y");
}

#[test]
fn nothing_is_disrupted_on_doubt_and_the_status_says_so() {
    let lost = json!({"timeZone": "Europe/Atlantis", "budgets": [{"limit": "1"}]});
    let world = under(pair(), &lost);
    assert_eq!(acts(&world), [""; 0]);
    let status = said(&world);
    let ready = status["conditions"]
        .as_array()
        .expect("conditions")
        .iter()
        .find(|one| one["type"] == "ValidationSucceeded");
    let message = ready.expect("the condition")["message"]
        .as_str()
        .expect("a text")
        .to_owned();
    assert!(
        message.contains("spec.timeZone") && message.contains("no IANA time zone"),
        "{message}"
    );
    let never =
        json!({"budgets": [{"windows": [{"dates": ["2020-01-01"], "from": "00:00", "to": "24:00"}]}]});
    let status = said(&under(pair(), &never));
    let summary = status["summary"].as_str().expect("a text");
    assert!(
        summary.contains("none of its windows opens within 400 days"),
        "{summary}"
    );
}

#[test]
fn a_soft_age_that_expiry_always_comes_before_is_named() {
    let of = |expiry: Value, expire_after: &str| {
        let mut world = under(pair(), &json!({"expiry": expiry}));
        for pool in &mut world.state.node_pools {
            let spec = &mut Arc::make_mut(pool).spec.template.spec;
            spec.expire_after = serde_json::from_value(json!(expire_after)).expect("a duration");
        }
        let summary = said(&world)["summary"].as_str().expect("a text").to_owned();
        summary.contains("does nothing for NodePool")
    };
    assert!(of(json!({"softAfter": "720h"}), "720h"));
    assert!(!of(json!({"softAfter": "719h"}), "720h"));
    assert!(!of(json!({"softAfter": "720h"}), "Never"));
    assert!(of(json!({"softPercent": 80}), "Never"));
    assert!(!of(json!({"softPercent": 80}), "720h"));
}

#[test]
fn a_window_that_allows_is_shut_outside_and_one_that_denies_is_open() {
    let shut = json!({"budgets": [{"windows": [{"dates": ["2020-01-01"], "from": "00:00", "to": "24:00"}]}]});
    assert_eq!(acts(&under(pair(), &shut)), [""; 0]);
    let open = json!({"budgets": [{"limit": "0", "outsideWindows": "Unlimited", "windows": [{"dates": ["2020-01-01"], "from": "00:00", "to": "24:00"}]}]});
    assert_eq!(acts(&under(pair(), &open)), [DELETE_A]);
}

/// A node of a command, with its NodeClaim or without.
fn present(world: &World, is_there: bool) -> PresentNode {
    PresentNode {
        node: world.state.nodes.first().cloned(),
        claim: world.state.node_claims.first().cloned().filter(|_| is_there),
        pods: Vec::new(),
    }
}

#[test]
fn a_freeze_takes_back_what_has_deleted_nothing_and_leaves_nothing_half_done() {
    let started = "2026-01-01T00:00:00.000000Z";
    let now: Timestamp = "2026-01-01T00:00:30Z".parse().expect("a time");
    let world = pair();
    let look = |phase: &str, nodes: Vec<PresentNode>, frozen: bool| {
        let mut one = disruption(&json!({"phase": phase, "startedAt": started}), &json!([]));
        let node = one.spec.nodes[0].clone();
        one.spec.nodes = vec![node; nodes.len()];
        let present = Present {
            nodes,
            frozen: frozen.then(|| "DisruptionPolicy calm: frozen: incident 42".to_owned()),
            ..Present::default()
        };
        let looked = advance(&one, &present, now).report;
        looked
            .milestones
            .into_iter()
            .flatten()
            .collect::<Vec<Milestone>>()
    };
    let there = || present(&world, true);
    let is_back = |milestones: &[Milestone]| matches!(milestones, [Milestone::RolledBack { why, .. }] if why.contains("incident 42"));
    for phase in ["Starting", "Deleting"] {
        assert!(is_back(&look(phase, vec![there()], true)), "{phase}");
        assert!(!is_back(&look(phase, vec![there()], false)), "{phase}");
    }
    let half = look("Deleting", vec![present(&world, false), there()], true);
    assert_eq!(
        half,
        [Milestone::Deleted(1)],
        "one is deleted already: the other follows"
    );
}
