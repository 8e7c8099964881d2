//! What the model of Karpenter takes away, and in which order: small clusters, each decided by hand.

use serde_json::json;
use spokeshave_api::labels::POD_DELETION_COST;
use spokeshave_example::instance_type;

use super::*;
use crate::engine::operator::models::worlds::{World, on_demand_pool, pinned, three_types};

/// `a` cannot go, because its pod stays where it is; the pod of `b` fits on it.
fn one_of_two() -> World {
    World::on_demand()
        .node("a", "medium")
        .pod_with("p", "a", "2", &pinned("a"))
        .node("b", "medium")
        .pod("q", "b", "1")
}

#[test]
fn d_167_a_node_that_is_tried_in_vain_takes_nothing_from_the_budget() {
    let mut world = one_of_two().budgets(&json!([{"nodes": "1"}]));
    assert_eq!(world.acts(), ["SingleNodeConsolidation delete [b]"]);
    let mut closed = one_of_two().budgets(&json!([{"nodes": "0"}]));
    let answer = closed.pass();
    assert!(answer.commands.is_empty());
    assert_eq!(answer.what_ifs, 0, "none is tried where none may go");
}

#[test]
fn d_167_d_204_each_node_pool_has_its_own_budget() {
    let mut world = World::on_demand()
        .pool(on_demand_pool("zero"))
        .node_of("zero", "a", "medium", ("a", "on-demand"))
        .pod("p", "a", "1")
        .node("b", "medium")
        .pod("q", "b", "1")
        .edit_pool(|pool| {
            if pool.name() == "zero" {
                pool.spec.disruption.budgets = serde_json::from_value(json!([{"nodes": "0"}])).unwrap();
            }
        });
    let answer = world.pass();
    assert_eq!(answer.commands[0].nodes[0].node, "b");
    assert_eq!(answer.what_ifs, 1, "the other is not tried");
}

/// More candidates than a set may have, whose pods all fit on one node that stays.
#[test]
fn d_159_a_set_has_101_nodes_at_most() {
    let mut world = World::on_demand()
        .node("host", "large")
        .firm_pod("firm", "host", "100m");
    for index in 0..103 {
        let name = format!("n{index:03}");
        world = world
            .node(&name, "small")
            .pod(&format!("p{index:03}"), &name, "10m");
    }
    let command = world.command();
    assert_eq!(command.method, Method::MultiNodeConsolidation);
    assert_eq!(command.nodes.len(), 101);
    // D-204: never more than the budget lets go.
    let mut few = world.budgets(&json!([{"nodes": "7"}]));
    assert_eq!(few.command().nodes.len(), 7);
}

#[test]
fn d_160_what_the_budget_leaves_alone_is_no_set() {
    let two = || {
        World::on_demand()
            .node("host", "large")
            .firm_pod("firm", "host", "100m")
            .node("a", "small")
            .pod("p", "a", "1")
            .node("b", "small")
            .pod("q", "b", "1")
    };
    assert_eq!(two().acts(), ["MultiNodeConsolidation delete [a, b]"]);
    let mut one = two().budgets(&json!([{"nodes": "1"}]));
    assert_eq!(one.acts(), ["SingleNodeConsolidation delete [a]"]);
}

/// The pod of `a` fits on `b` only, to which a pod has come twenty seconds ago.
#[test]
fn d_044_a_node_inside_consolidate_after_takes_no_pods() {
    let mut world = World::new(
        on_demand_pool("default"),
        vec![instance_type("medium", 4, 8, &["a"])],
    )
    .node("a", "medium")
    .pod("p", "a", "1")
    .node("b", "medium")
    .firm_pod("firm", "b", "1")
    .edit_pool(|pool| {
        pool.spec.disruption.consolidate_after = serde_json::from_value(json!("30s")).unwrap();
    })
    .edit_claim("b", |claim| {
        let status = claim.status.get_or_insert_default();
        status.last_pod_event_time = serde_json::from_value(json!("2026-01-01T00:00:20Z")).unwrap();
    });
    world.seconds = 40;
    assert!(world.acts().is_empty());
    world.seconds = 50;
    assert_eq!(world.acts(), ["SingleNodeConsolidation delete [a]"]);
}

#[test]
fn d_142_d_145_a_node_of_unknown_price_is_deleted_and_never_replaced() {
    let unknown = || {
        World::on_demand()
            .node_of("default", "a", "medium", ("nowhere", "on-demand"))
            .pod("p", "a", "1")
    };
    let mut with_room = unknown().node("b", "medium").firm_pod("firm", "b", "1");
    assert_eq!(with_room.acts(), ["SingleNodeConsolidation delete [a]"]);
    assert!(unknown().acts().is_empty());
}

#[test]
fn d_142_an_empty_node_goes_as_empty_or_not_at_all() {
    let world = || {
        World::on_demand()
            .node("a", "medium")
            .node("b", "medium")
            .firm_pod("firm", "b", "1")
    };
    assert_eq!(world().acts(), ["Emptiness delete [a]"]);
    let mut closed = world().budgets(&json!([{"nodes": "0", "reasons": ["Empty"]}]));
    assert!(closed.acts().is_empty());
}

/// There is no place for the pod, and nobody minds.
#[test]
fn d_053_d_129_a_node_whose_pods_nobody_minds_goes_without_a_place_for_them() {
    let mut world = World::on_demand()
        .node("a", "medium")
        .pod("p", "a", "3")
        .annotate_pod("p", POD_DELETION_COST, "-134217728");
    let command = world.command();
    assert_eq!(command.method, Method::Emptiness);
    assert!(command.moves.is_empty());
}

#[test]
fn d_129_as_many_empty_nodes_go_as_the_budget_lets_the_dearest_first() {
    let mut world = World::on_demand()
        .node("a", "small")
        .node("b", "large")
        .node("c", "medium")
        .budgets(&json!([{"nodes": "2"}]));
    assert_eq!(world.acts(), ["Emptiness delete [b, c]"]);
}

#[test]
fn d_059_node_pools_take_turns() {
    let world = World::on_demand()
        .pool(on_demand_pool("other"))
        .node("a", "large")
        .pod("p", "a", "1")
        .node("b", "large")
        .pod("q", "b", "1")
        .node_of("other", "c", "small", ("a", "on-demand"))
        .pod("r", "c", "1");
    let snapshot = world.snapshot();
    let mut found = candidates_of(&snapshot, world.now(), |_| true);
    cost::sort_by_savings_ratio(&snapshot, &mut found);
    let names = |first: &[&str]| {
        let first = first.iter().map(|name| (*name).to_owned()).collect();
        let turns = in_turn(&snapshot, &found, &first).into_iter();
        let names = turns.map(|candidate| snapshot.node(candidate.node).name.clone());
        names.collect::<Vec<String>>()
    };
    assert_eq!(names(&[]), ["c", "a", "b"]);
    assert_eq!(names(&["default"]), ["a", "c", "b"]);
}

/// More NodePools than are reached in the time: only the node of the last can go. The pods of the others stay where they are.
#[test]
fn d_168_node_pools_that_were_not_reached_come_first_the_next_time() {
    let mut world = World::on_demand();
    for index in 0..200 {
        let (name, pod) = (format!("n{index:03}"), format!("p{index:03}"));
        let spec = if index == 0 { json!({}) } else { pinned(&name) };
        world = world
            .pool(on_demand_pool(&name))
            .node_of(&name, &name, "small", ("a", "on-demand"))
            .pod_with(&pod, &name, "500m", &spec);
    }
    assert!(world.acts().is_empty());
    let unreached = world.memory.unreached.iter().map(String::as_str);
    let unreached: Vec<&str> = unreached.collect();
    assert_eq!(
        unreached,
        ["n000", "n001", "n002", "n003", "n004", "n005", "n006"]
    );
    assert_eq!(world.acts(), ["SingleNodeConsolidation delete [n000]"]);
}

/// Two large nodes with pods that fit on a small one.
fn three() -> World {
    World::on_demand()
        .node("a", "large")
        .pod("p", "a", "500m")
        .node("b", "large")
        .pod("q", "b", "500m")
        .node("s", "small")
        .pod("r", "s", "500m")
}

#[test]
fn d_062_d_095_a_command_that_does_not_stand_ends_its_method_for_the_pass() {
    let mut world = three();
    assert_eq!(world.acts(), ["MultiNodeConsolidation delete [a, b]"]);
    world.memory.reject(Method::Emptiness);
    assert_eq!(world.acts(), ["MultiNodeConsolidation delete [a, b]"]);
    world.memory.reject(Method::MultiNodeConsolidation);
    assert!(world.memory.is_in_a_pass());
    assert_eq!(world.acts(), ["SingleNodeConsolidation delete [a]"]);
    world.memory.reject(Method::SingleNodeConsolidation);
    assert!(world.acts().is_empty());
    assert!(!world.memory.is_in_a_pass());
    assert_eq!(world.acts(), ["MultiNodeConsolidation delete [a, b]"]);
}

#[test]
fn d_062_drift_goes_before_consolidation_one_node_at_a_time() {
    let drifted = |claim: &mut spokeshave_api::NodeClaim| {
        claim.set_true(DRIFTED, spokeshave_example::epoch());
    };
    let mut world = three().edit_claim("s", drifted).edit_claim("b", drifted);
    assert_eq!(world.acts(), ["Drift delete [b]"]);
    // Also where no budget lets nodes go that are underused.
    let budgets = json!([{"nodes": "0", "reasons": ["Underutilized"]}]);
    let mut closed = three().edit_claim("b", drifted).budgets(&budgets);
    assert_eq!(closed.acts(), ["Drift delete [b]"]);
}

#[test]
fn d_142_node_pools_of_a_fixed_size_and_those_that_never_consolidate_are_left_alone() {
    let world = || World::new(on_demand_pool("default"), three_types()).node("a", "large");
    for spec in [
        json!({"replicas": 1}),
        json!({"disruption": {"consolidateAfter": "Never"}}),
    ] {
        let edited = |world: World| {
            world.edit_pool(|pool| {
                if let Some(replicas) = spec["replicas"].as_i64() {
                    pool.spec.replicas = Some(replicas);
                } else {
                    let never = spec["disruption"]["consolidateAfter"].clone();
                    pool.spec.disruption.consolidate_after = serde_json::from_value(never).unwrap();
                }
            })
        };
        assert!(edited(world()).acts().is_empty(), "empty, {spec}");
        assert!(edited(world().pod("p", "a", "1")).acts().is_empty(), "{spec}");
    }
    assert_eq!(world().acts(), ["Emptiness delete [a]"]);
}
