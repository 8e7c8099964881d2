//! The search over sets of nodes: prefixes, sets that are no prefix, and several nodes for several others.

use crate::support::{World, acts, dollars, free_pool, on_demand_pool, only, pinned, text, three_types};
use serde_json::json;
use spokeshave_example::instance_type;
use spokeshave_model::Price;
use spokeshave_plan::disrupt::{Decision, Method, validate};

/// So many nodes, each of which fits nowhere alone but on a new, cheaper node together with others.
pub(crate) fn many(count: usize) -> World {
    let mut types = three_types();
    types.push(instance_type("huge", 128, 256, &["a"]));
    let mut world = World::with_types(on_demand_pool("default"), types);
    for index in 0..count {
        let name = format!("n{index:03}");
        world = world
            .node(&name, "medium")
            .pod(&format!("p{index:03}"), &name, "10m");
    }
    world
}

#[test]
fn d_159_the_prefix_search_takes_at_most_a_hundred_and_one_nodes() {
    let mut world = many(130);
    world.policy = only(Method::MultiNodeConsolidation);
    world.policy.disrupt.search_steps = 0;
    let command = world.command();
    assert!(command.nodes.len() <= 101, "{}", command.nodes.len());
    assert!(command.nodes.len() > 90, "{}", command.nodes.len());
}

#[test]
fn w_02_the_best_set_is_no_prefix() {
    // With one node of the middle the set does not fit; without it, it does.
    let mut world = World::new(on_demand_pool("default"))
        .node("a", "medium")
        .pod("p", "a", "500m")
        .node("b", "medium")
        .pod("q", "b", "3500m")
        .node("c", "medium")
        .pod("s", "c", "600m")
        .node("rest", "medium")
        .pod_with("r", "rest", "2", &pinned("rest"));
    world.policy = only(Method::MultiNodeConsolidation);
    assert_eq!(acts(&world), ["MultiNodeConsolidation delete [a, c]"]);
}

/// Three nodes whose pods need two smaller ones.
fn three_for_two() -> World {
    let types = vec![
        instance_type("mid", 4, 8, &["a"]),
        instance_type("big", 8, 16, &["a"]),
    ];
    let mut world = World::with_types(on_demand_pool("default"), types);
    for (name, pod) in [("x", "p"), ("y", "q"), ("z", "s")] {
        world = world.node(name, "big").pod(pod, name, "2500m");
        world = world.pod(&format!("{pod}-2"), name, "100m");
    }
    world.policy = only(Method::MultiNodeConsolidation);
    world
}

#[test]
fn w_03_several_nodes_may_come_for_more_that_go() {
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"set": "db"}}, "topologyKey": "kubernetes.io/hostname"}]}}});
    let world = |replacements: usize| {
        let types = vec![
            instance_type("small", 2, 4, &["a"]),
            instance_type("big", 8, 16, &["a"]),
        ];
        let mut world = World::with_types(on_demand_pool("default"), types);
        for (node, pod) in [("x", "p"), ("y", "q")] {
            world = world.node(node, "big").pod_with(pod, node, "1", &apart);
            world = world.edit_pod(pod, |pod| {
                pod.metadata.labels = Some([("set".to_owned(), "db".to_owned())].into());
            });
        }
        // The third is not apart from the others, and fits on either of what comes.
        world = world.node("z", "big").pod("s", "z", "500m");
        world.policy = only(Method::MultiNodeConsolidation);
        world.policy.disrupt.replacements = replacements;
        world
    };
    let saved = |world: &World| {
        world
            .pass()
            .commands
            .first()
            .map_or(Price::ZERO, |one| one.savings())
    };
    let (one, several) = (world(1), world(2));
    assert!(
        one.pass()
            .commands
            .iter()
            .all(|command| command.replacements.len() <= 1),
        "D-144"
    );
    let command = several.command();
    assert_eq!(
        text(&command),
        "MultiNodeConsolidation replace [x, y, z] by small + small"
    );
    assert!(
        saved(&several) > saved(&one),
        "{} {}",
        saved(&several),
        saved(&one)
    );
    // Whatever each is launched as, together they cost less than what goes.
    assert!(command.price_after < command.price_before);
    // The second look finds the same.
    let again = validate(&command, &several.snapshot(), &several.policy, several.now);
    assert_eq!(again.command.map(|command| text(&command)), Some(text(&command)));
    // Never as many as go.
    let mut two = three_for_two();
    two.policy.disrupt.replacements = 5;
    assert!(
        two.pass()
            .commands
            .iter()
            .all(|command| command.replacements.len() < command.nodes.len())
    );
}

#[test]
fn w_04_a_lighter_pool_is_asked_when_the_heavier_has_nothing_cheaper() {
    let mut heavy = on_demand_pool("heavy");
    heavy.spec.weight = Some(50);
    let dear = vec![instance_type("large", 16, 32, &["a"])];
    let mut world = World::with_types(heavy, dear);
    world.types = three_types();
    world.state = world.state.with_pool(on_demand_pool("light"), three_types());
    let world = world
        .node_in("light", "a", "large", "on-demand")
        .pod("p", "a", "3");
    // Upstream would buy from `heavy`, which is no cheaper, and leave the node.
    let command = world.command();
    assert_eq!(
        (text(&command).as_str(), command.replacements[0].pool.as_str()),
        ("SingleNodeConsolidation replace [a] by medium", "light")
    );
    let again = validate(&command, &world.snapshot(), &world.policy, world.now);
    assert_eq!(again.command.map(|command| text(&command)), Some(text(&command)));
    assert_eq!(world.verdict_text("a"), "replace by SingleNodeConsolidation");
    // Where it would do, the heavier one is taken, whatever the lighter one asks.
    let world = World::new({
        let mut heavy = on_demand_pool("heavy");
        heavy.spec.weight = Some(50);
        heavy
    });
    let mut cheap = three_types();
    for offering in &mut cheap[1].offerings {
        offering.price = dollars("0.01");
    }
    let mut world = world;
    world.state = world.state.with_pool(on_demand_pool("light"), cheap);
    let world = world
        .node_in("heavy", "a", "large", "on-demand")
        .pod("p", "a", "3");
    assert_eq!(world.command().replacements[0].pool, "heavy");
}

#[test]
fn d_155_several_spot_nodes_need_no_flexibility() {
    let mut world = World::new(free_pool("default"))
        .node_in("default", "a", "medium", "spot")
        .node_in("default", "b", "medium", "spot")
        .pod("p", "a", "1500m")
        .pod("q", "b", "300m");
    world.policy.disrupt.spot_to_spot = true;
    assert_eq!(
        acts(&world),
        ["MultiNodeConsolidation replace [a, b] by small"],
        "and D-162 leaves out their own type"
    );
}

#[test]
fn d_158_a_mixed_set_follows_the_general_rule() {
    let world = World::new(free_pool("default"))
        .node_in("default", "a", "medium", "spot")
        .node("b", "medium")
        .pod("p", "a", "1500m")
        .pod("q", "b", "300m");
    assert_eq!(world.command().decision(), Decision::Replace);
    assert_eq!(world.command().nodes.len(), 2);
}

#[test]
fn d_160_d_161_sets_span_pools_and_have_at_least_two_nodes() {
    let mut world = World::new(on_demand_pool("default"));
    world.state = world.state.with_pool(on_demand_pool("other"), three_types());
    world.policy = only(Method::MultiNodeConsolidation);
    let one = world.clone().node("a", "large").pod("p", "a", "1");
    assert_eq!(acts(&one), Vec::<String>::new());
    let two = one
        .node_in("other", "b", "large", "on-demand")
        .pod("q", "b", "500m");
    let command = two.command();
    assert_eq!(command.nodes.len(), 2);
    assert_eq!(command.budget_use(), [("default", 1), ("other", 1)].into());
}
