//! What the instances of a recording were, worked out by hand.

use spokeshave_scenario::import::Instance;
use spokeshave_simulate::recorded::NodeTime;

use crate::small::{HOUR, policy, world};

/// A `c4` at $0.22 an hour, from and until so many hours after the beginning.
fn instance(from: u64, until: Option<u64>) -> Instance {
    Instance {
        node_pool: "default".to_owned(),
        instance_type: "c4".to_owned(),
        zone: "zone-a".to_owned(),
        capacity_type: "on-demand".to_owned(),
        from_ms: from * HOUR,
        until_ms: until.map(|until| until * HOUR),
    }
}

#[test]
fn only_what_was_in_the_counted_time_is_counted() {
    let mut world = world(10);
    world.warmup_ms = 2 * HOUR;
    // 0, 3, 8, 4 and 0 of the hours from the second to the tenth.
    let instances = [
        instance(0, Some(2)),
        instance(0, Some(5)),
        instance(1, None),
        instance(5, Some(9)),
        instance(10, None),
    ];
    let found = NodeTime::of(&instances, &world, &[policy()]);
    assert_eq!(
        found,
        NodeTime {
            span_ms: 8 * HOUR,
            node_ms: 15 * HOUR,
            // One goes when another comes.
            peak_nodes: 2,
            cost_micros: Some(15 * 220_000),
            without_price: Vec::new(),
        }
    );
}

#[test]
fn what_has_no_price_is_named_once_and_leaves_no_cost() {
    let unknown = |instance_type: &str, capacity_type: &str| Instance {
        instance_type: instance_type.to_owned(),
        capacity_type: capacity_type.to_owned(),
        ..instance(0, Some(1))
    };
    let instances = [
        instance(0, Some(1)),
        unknown("c4", "dedicated"),
        unknown("c4", "reserved"),
        unknown("x9", "on-demand"),
        unknown("x9", "on-demand"),
    ];
    let found = NodeTime::of(&instances, &world(1), &[policy()]);
    assert_eq!((found.node_ms, found.cost_micros), (5 * HOUR, None));
    assert_eq!(
        found.without_price,
        ["c4 dedicated zone-a", "c4 reserved zone-a", "x9 on-demand zone-a"]
    );
}

#[test]
fn an_instance_of_a_node_pool_that_no_policy_has_costs_what_others_pay_for_its_like() {
    let renamed = Instance {
        node_pool: "once".to_owned(),
        ..instance(0, Some(2))
    };
    // Each NodePool has instance types of its own, as on EC2.
    let (mut world, mut policy) = (world(3), policy());
    let types = std::mem::replace(&mut world.instance_types, Vec::new().into());
    policy.instance_types_of_pools.insert("default".to_owned(), types);
    let found = NodeTime::of(&[renamed], &world, &[policy]);
    assert_eq!(found.cost_micros, Some(440_000));
}
