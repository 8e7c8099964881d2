//! What may come instead of nodes in the model of Karpenter: prices, capacity types and instance types, computed by hand.

use spokeshave_example::instance_type;
use spokeshave_model::InstanceType;
use spokeshave_plan::disrupt::Command;

use super::*;
use crate::engine::operator::models::worlds::{World, dollars, free_pool, on_demand_pool, three_types};

/// A large node whose pod needs three cores.
fn large(world: World) -> World {
    world.node("a", "large").pod("p", "a", "3")
}

/// Types of four cores and more, each dearer than the one before.
fn many(count: i64) -> Vec<InstanceType> {
    let kinds = (0..count).map(|index| instance_type(&format!("t{index:02}"), 4 + index, 8, &["a"]));
    kinds.collect()
}

/// What becomes of a spot node of the dearest of so many types, with the feature gate on.
fn spot_of(count: i64) -> Option<Command> {
    let dearest = format!("t{:02}", count - 1);
    let mut world = World::new(free_pool("default"), many(count))
        .node_of("default", "n", &dearest, ("a", "spot"))
        .pod("p", "n", "3");
    assert!(world.acts().is_empty(), "D-153: the gate is off");
    world.settings.disrupt.spot_to_spot = true;
    world.pass().commands.pop()
}

#[test]
fn d_145_d_146_the_worst_price_of_a_launch_has_to_be_cheaper() {
    let offered = |price: &str| {
        let mut types = vec![
            instance_type("mid", 4, 8, &["a", "b"]),
            instance_type("large", 16, 32, &["a"]),
        ];
        for offering in &mut types[0].offerings {
            if offering.zone() == Some("b") {
                offering.price = dollars(price);
            }
        }
        large(World::new(on_demand_pool("default"), types))
            .pass()
            .commands
    };
    assert!(offered("0.64").is_empty(), "in zone b it would cost as much");
    let commands = offered("0.63");
    // D-152: what is saved goes by the cheapest.
    assert_eq!(commands[0].savings(), dollars("0.48"));
}

#[test]
fn d_144_never_more_than_one_node_comes_instead() {
    // Two halves would be cheaper than the large one, and its pods fit on none together.
    let types = vec![
        instance_type("half", 9, 18, &["a"]),
        instance_type("large", 16, 80, &["a"]),
    ];
    let mut world = World::new(on_demand_pool("default"), types)
        .node("a", "large")
        .pod("p", "a", "8")
        .pod("q", "a", "8");
    assert!(world.acts().is_empty());
}

#[test]
fn d_147_what_may_be_spot_is_pinned_to_spot_whether_there_is_any_or_not() {
    let replaced = |types: Vec<InstanceType>| {
        let command = large(World::new(free_pool("default"), types)).command();
        let replacement = &command.replacements[0];
        let kinds = replacement
            .claim
            .requirements
            .get(labels::CAPACITY_TYPE)
            .into_owned();
        assert!(kinds.has("spot") && !kinds.has("on-demand"));
        (replacement.instance_types.clone(), command.savings())
    };
    let (types, savings) = replaced(three_types());
    assert_eq!(types, ["medium", "large"]);
    assert_eq!(savings, dollars("0.528"));
    let mut on_demand = three_types();
    for kind in &mut on_demand {
        kind.offerings
            .retain(|offering| offering.capacity_type() == Some(CapacityType::OnDemand));
    }
    // Its launch will fail. D-152: what is not offered counts as nothing.
    let (types, savings) = replaced(on_demand);
    assert_eq!(types, ["medium"]);
    assert_eq!(savings, dollars("0.64"));
}

#[test]
fn d_153_d_156_d_157_a_spot_node_needs_fifteen_cheaper_types_and_gets_one_of_them() {
    assert!(spot_of(15).is_none(), "fourteen are cheaper");
    for count in [16, 20] {
        let command = spot_of(count).unwrap();
        let types = &command.replacements[0].instance_types;
        assert_eq!(types.len(), 15, "of {count}");
        assert_eq!((types[0].as_str(), types[14].as_str()), ("t00", "t14"));
    }
}

#[test]
fn d_154_types_that_are_not_offered_as_spot_do_not_count() {
    let mut types = many(16);
    types[3]
        .offerings
        .retain(|offering| offering.capacity_type() == Some(CapacityType::OnDemand));
    let mut world = World::new(free_pool("default"), types)
        .node_of("default", "n", "t15", ("a", "spot"))
        .pod("p", "n", "3");
    world.settings.disrupt.spot_to_spot = true;
    assert!(world.acts().is_empty());
}

#[test]
fn d_155_d_158_several_nodes_need_no_such_choice() {
    let types = || {
        vec![
            instance_type("big", 8, 16, &["a"]),
            instance_type("huge", 11, 12, &["a"]),
        ]
    };
    let two = |kinds: [&str; 2]| {
        World::new(free_pool("default"), types())
            .node_of("default", "x", "big", ("a", kinds[0]))
            .pod("p", "x", "5")
            .node_of("default", "y", "big", ("a", kinds[1]))
            .pod("q", "y", "5")
    };
    let both = "MultiNodeConsolidation replace [x, y] by huge";
    let mut spot = two(["spot", "spot"]);
    assert!(spot.acts().is_empty(), "D-153");
    spot.settings.disrupt.spot_to_spot = true;
    assert_eq!(spot.acts(), [both]);
    // With a node on demand among them the gate is not asked for.
    assert_eq!(two(["on-demand", "spot"]).acts(), [both]);
}

/// Three nodes could be replaced by a small one, but there is a small one among them: two go.
#[test]
fn d_162_a_replacement_of_the_same_type_as_a_removed_node_is_none() {
    let three = |world: World| {
        world
            .node("a", "large")
            .pod("p", "a", "500m")
            .node("b", "large")
            .pod("q", "b", "500m")
            .node("s", "small")
            .pod("r", "s", "500m")
    };
    let mut world = three(World::on_demand());
    assert_eq!(world.acts(), ["MultiNodeConsolidation delete [a, b]"]);
    // What is cheaper than the shared type is one.
    let mut types = three_types();
    types.push(instance_type("tiny", 2, 3, &["a"]));
    let mut cheaper = three(World::new(on_demand_pool("default"), types));
    assert_eq!(
        cheaper.acts(),
        ["MultiNodeConsolidation replace [a, b, s] by tiny"]
    );
}

/// The zone of `t` is sold no more. Another small node that has an offering says what its type costs; where there is none, it counts as free, and nothing is cheaper.
#[test]
fn d_162_a_shared_type_costs_what_the_cheapest_of_its_nodes_could_have() {
    let with = |other: Option<&str>| {
        let mut types = three_types();
        types.push(instance_type("tiny", 2, 3, &["a"]));
        let world = World::new(on_demand_pool("default"), types)
            .node("a", "large")
            .pod("p", "a", "500m")
            .node_of("default", "t", "small", ("nowhere", "on-demand"))
            .pod("r", "t", "500m");
        let mut world = match other {
            Some(name) => world.node(name, "small").pod("q", name, "500m"),
            None => world,
        };
        world.acts()
    };
    assert_eq!(
        with(Some("s")),
        ["MultiNodeConsolidation replace [a, s, t] by tiny"]
    );
    assert_eq!(with(None), ["SingleNodeConsolidation delete [a]"]);
}

/// Two prices that add up to that of one larger node, but for a nano-dollar that may be made up by rounding.
#[test]
fn d_145_what_is_cheaper_by_rounding_alone_is_not_cheaper() {
    let priced = |whole: i64| {
        let mut types = vec![
            instance_type("half", 4, 8, &["a"]),
            instance_type("whole", 8, 16, &["a"]),
        ];
        for (kind, price) in types.iter_mut().zip([100_000_000, whole]) {
            for offering in &mut kind.offerings {
                offering.price = Price(price);
            }
        }
        let mut world = World::new(on_demand_pool("default"), types);
        for name in ["a", "b"] {
            world = world.node(name, "half").pod(&format!("p-{name}"), name, "3500m");
        }
        world.acts()
    };
    assert!(priced(199_999_999).is_empty());
    let whole = ["MultiNodeConsolidation replace [a, b] by whole"];
    assert_eq!(priced(199_999_998), whole);
}

#[test]
fn d_150_min_values_have_to_hold_for_what_is_cheaper() {
    let asked = |least: u32| {
        let mut pool = on_demand_pool("default");
        let requirement = serde_json::json!({
            "key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": least,
        });
        let requirement = serde_json::from_value(requirement).unwrap();
        pool.spec.template.spec.requirements.push(requirement);
        large(World::new(pool, many_and_large())).acts()
    };
    assert_eq!(asked(3), ["SingleNodeConsolidation replace [a] by t00|t01|t02"]);
    assert!(asked(4).is_empty());
}

/// Three cheaper types and the large one.
fn many_and_large() -> Vec<InstanceType> {
    let mut types = many(3);
    types.push(instance_type("large", 16, 32, &["a"]));
    types
}
