//! Consolidation in rounds (W-60): moves wait for what is under way, then all start; and what is worth little waits longer (W-61).

use crate::support::{DELETE_A, World, later, on_demand_pool, pair, pinned, text};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_plan::disrupt::{Frontier, Outcome, disrupt, is_calm};

/// With rounds, `consolidateAfter` as given, and all nodes undisturbed for an hour.
fn in_rounds(mut world: World, after: &str) -> World {
    world.policy.disrupt.rounds = true;
    let names: Vec<String> = world
        .state
        .nodes
        .iter()
        .filter_map(|node| node.metadata.name.clone())
        .collect();
    let world = world.edit_pool("default", |pool| {
        pool.spec.disruption.consolidate_after = serde_json::from_value(json!(after)).expect("a time");
    });
    names
        .iter()
        .fold(world, |world, name| world.last_pod_event(name, -3600))
}

/// `a` can go, and `c`, which is full, has nothing to do with it.
fn three() -> World {
    pair()
        .node("c", "small")
        .pod_with("s", "c", "1500m", &pinned("c"))
}

fn pass(world: &World, frontier: &Frontier) -> Outcome {
    disrupt(&world.snapshot(), &world.policy, world.now, frontier)
}

fn acts(outcome: &Outcome) -> Vec<String> {
    outcome.commands.iter().map(text).collect()
}

#[test]
fn w_60_moves_wait_until_no_node_of_the_pool_is_inside_its_consolidate_after() {
    let restless = in_rounds(three(), "30s").last_pod_event("c", -10);
    let first = pass(&restless, &Frontier::default());
    assert_eq!(acts(&first), Vec::<String>::new());
    let mut at_once = restless.clone();
    at_once.policy.disrupt.rounds = false;
    assert_eq!(
        acts(&pass(&at_once, &Frontier::default())),
        [DELETE_A],
        "as upstream"
    );
    let mut quiet = restless;
    quiet.now = later(20);
    assert_eq!(acts(&pass(&quiet, &first.frontier)), [DELETE_A]);
}

#[test]
fn w_60_a_round_begins_when_all_nodes_have_their_condition() {
    // The window of `c` has closed, and the condition that says so is still to be written.
    let written_late = in_rounds(three(), "30s").not_consolidatable("c");
    let first = pass(&written_late, &Frontier::default());
    assert_eq!(acts(&first), Vec::<String>::new());
    let mut at_once = written_late;
    at_once.policy.disrupt.rounds = false;
    assert_eq!(
        acts(&pass(&at_once, &Frontier::default())),
        [DELETE_A],
        "as upstream"
    );
    assert_eq!(
        acts(&pass(&in_rounds(three(), "30s"), &first.frontier)),
        [DELETE_A]
    );
}

#[test]
fn w_60_pods_that_leave_are_waited_for() {
    let stays = three().pod_with("t", "c", "100m", &pinned("c"));
    assert_eq!(
        acts(&pass(&in_rounds(stays.clone(), "30s"), &Frontier::default())),
        [DELETE_A]
    );
    let leaving = in_rounds(stays, "30s").edit_pod("s", |pod| {
        pod.metadata.deletion_timestamp = Some(Time(later(30)));
        pod.metadata.deletion_grace_period_seconds = Some(60);
    });
    assert_eq!(acts(&pass(&leaving, &Frontier::default())), Vec::<String>::new());
}

#[test]
fn w_60_the_longest_wait_is_the_window_and_a_minute() {
    // Pods come to `c` every few seconds.
    let busy = |seconds: i64| {
        let mut world = in_rounds(three(), "30s").last_pod_event("c", seconds - 5);
        world.now = later(seconds);
        world
    };
    let first = pass(&busy(0), &Frontier::default());
    let almost = pass(&busy(89), &first.frontier);
    assert_eq!(acts(&almost), Vec::<String>::new());
    let started = pass(&busy(90), &almost.frontier);
    assert_eq!(acts(&started), [DELETE_A]);
    // Once the round has ended, the next one waits as long.
    let mut under_way = busy(91);
    under_way.state.in_command.extend(["kwok://a".to_owned()]);
    let ended = pass(&under_way, &started.frontier);
    assert_eq!(acts(&ended), Vec::<String>::new());
    assert_eq!(acts(&pass(&busy(100), &ended.frontier)), Vec::<String>::new());
    assert_eq!(acts(&pass(&busy(181), &ended.frontier)), [DELETE_A]);
}

#[test]
fn w_60_a_round_starts_everything_that_is_worth_doing() {
    // `a` and `d` can go, but not together: each has room on a neighbour of its own.
    let two = in_rounds(
        pair()
            .node("d", "medium")
            .pod_with("q", "d", "1500m", &json!({}))
            .node("e", "medium")
            .pod_with("t", "e", "2", &pinned("e"))
            .pod_with("u", "e", "100m", &pinned("e"))
            .pod_with("v", "e", "100m", &pinned("e")),
        "30s",
    );
    let first = pass(&two, &Frontier::default());
    assert_eq!(first.commands.len(), 1, "{:?}", acts(&first));
    let mut under_way = two;
    for node in &first.commands[0].nodes {
        under_way.state.in_command.extend([node.provider_id.clone()]);
    }
    let second = pass(&under_way, &first.frontier);
    let third = pass(&under_way, &second.frontier);
    // Its own commands do not end a round; a pass that finds nothing does.
    let found =
        first.commands[0].nodes.len() + second.commands.iter().map(|one| one.nodes.len()).sum::<usize>();
    assert_eq!(
        found,
        2,
        "{:?} {:?} {:?}",
        acts(&first),
        acts(&second),
        acts(&third)
    );
}

#[test]
fn w_60_emptiness_and_pools_without_a_window_never_wait() {
    let empty = in_rounds(three().node("f", "small"), "30s").last_pod_event("c", -10);
    assert_eq!(
        acts(&pass(&empty, &Frontier::default())),
        ["Emptiness delete [f]"]
    );
    let eager = in_rounds(three(), "0s").last_pod_event("c", -1);
    assert_eq!(acts(&pass(&eager, &Frontier::default())), [DELETE_A]);
}

#[test]
fn w_61_of_two_moves_the_one_with_fewer_evictions_goes_first() {
    // Both save the same; `a` has one pod and `b` four.
    let mut world = in_rounds(
        World::new(on_demand_pool("default"))
            .node("b", "small")
            .node("a", "small")
            .node("c", "large")
            .pod_with("s", "c", "14200m", &pinned("c"))
            .pod("p", "a", "1500m"),
        "30s",
    );
    for index in 0..4 {
        world = world.pod(&format!("q{index}"), "b", "400m");
    }
    assert_eq!(acts(&pass(&world, &Frontier::default())), [DELETE_A]);
}

/// `a` has one pod and is worth its move, `b` has four and is not; `c` has room for all of them, and many pods of its own that stay.
fn one_worth_it_and_one_not() -> World {
    let mut world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .node("c", "large")
        .pod("p", "a", "1500m");
    for index in 0..4 {
        world = world.pod(&format!("q{index}"), "b", "400m");
    }
    for index in 0..10 {
        world = world.pod_with(&format!("s{index}"), "c", "1", &pinned("c"));
    }
    world
}

#[test]
fn w_61_a_delete_that_saves_too_little_waits_for_a_round_of_its_own() {
    const DELETE_B: &str = "SingleNodeConsolidation delete [b]";
    let world = in_rounds(one_worth_it_and_one_not(), "30s");
    let first = pass(&world, &Frontier::default());
    assert_eq!(acts(&first), [DELETE_A]);
    let mut under_way = world;
    under_way.state.in_command.extend(["kwok://a".to_owned()]);
    let second = pass(&under_way, &first.frontier);
    assert_eq!(acts(&second), Vec::<String>::new());
    let mut gone = in_rounds(one_worth_it_and_one_not(), "30s");
    gone.state
        .nodes
        .retain(|node| node.metadata.name.as_deref() != Some("a"));
    gone.state.node_claims.retain(|claim| {
        claim
            .status
            .as_ref()
            .and_then(|status| status.provider_id.as_deref())
            != Some("kwok://a")
    });
    gone.state
        .pods
        .retain(|pod| pod.node_name.as_deref() != Some("a"));
    assert_eq!(acts(&pass(&gone, &second.frontier)), [DELETE_B]);
    // Where nothing waits for rounds, neither does this.
    let mut at_once = under_way;
    at_once.policy.disrupt.rounds = false;
    assert_eq!(acts(&pass(&at_once, &first.frontier)), [DELETE_B]);
}

#[test]
fn w_61_the_best_set_leaves_no_more_nodes_than_the_pods_need() {
    // Seven nodes are enough: five with four large pods each, two with three large ones and the small ones. By savings ratio and name those with large pods
    // come first; the longest prefix of that order that can go leaves eight.
    let mut world = World::new(on_demand_pool("default"));
    for index in 0..24 {
        let name = format!("a{index:02}");
        world = world
            .node(&name, "large")
            .pod(&format!("l{index}"), &name, "3800m");
    }
    for index in 0..7 {
        let name = format!("z{index}");
        world = world
            .node(&name, "large")
            .pod(&format!("s{index}"), &name, "900m");
    }
    let outcome = pass(&in_rounds(world, "30s"), &Frontier::default());
    let [command] = &outcome.commands[..] else {
        panic!("{:?}", acts(&outcome))
    };
    assert_eq!((command.nodes.len(), command.replacements.len()), (24, 0));
}

#[test]
fn w_60_what_was_decided_at_rest_starts_at_rest() {
    let world = in_rounds(three(), "30s");
    let outcome = pass(&world, &Frontier::default());
    let [command] = &outcome.commands[..] else {
        panic!("{:?}", acts(&outcome))
    };
    let calm = |world: &World| is_calm(&world.snapshot(), &world.policy, command, world.now);
    assert!(calm(&world));
    let mut under_way = world.clone();
    under_way.state.in_command.extend(["kwok://a".to_owned()]);
    assert!(calm(&under_way), "commands themselves do not disturb");
    let grown = world.last_pod_event("c", -1);
    assert!(!calm(&grown));
    let mut at_once = grown;
    at_once.policy.disrupt.rounds = false;
    assert!(calm(&at_once));
}
