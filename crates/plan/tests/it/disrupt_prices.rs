//! What a node costs whose type has a price of 0: nothing, where it is sold for that, and otherwise what it did at its launch. And that NodeOverlays make no
//! price of one that nobody knows.

use crate::support::{World, acts, on_demand_pool, three_types};
use serde_json::json;
use spokeshave_api::NodeOverlay;
use spokeshave_api::labels::PRICE_AT_LAUNCH;
use spokeshave_api::validation::LabelRules;
use spokeshave_model::{InstanceType, Price};
use spokeshave_plan::overlays::{PoolTypes, evaluate};
use std::sync::Arc;

/// A large node that was launched at $0.64 and would do as a small one, and what an edit makes of its type now, which has a price of 0.
fn large_for_nothing(edit: impl Fn(&mut InstanceType)) -> World {
    let mut types = three_types();
    for large in types.iter_mut().filter(|one| one.name == "large") {
        for offering in &mut large.offerings {
            offering.price = Price::ZERO;
        }
        edit(large);
    }
    World::with_types(on_demand_pool("default"), types)
        .node("a", "large")
        .pod("p", "a", "1")
        .edit_claim("a", |claim| {
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(PRICE_AT_LAUNCH.to_owned(), "0.64".to_owned());
        })
}

fn not_sold(large: &mut InstanceType) {
    for offering in &mut large.offerings {
        offering.available = false;
    }
}

#[test]
fn d_364_w_07_what_is_sold_for_nothing_costs_nothing_whatever_it_did_at_its_launch() {
    let sold = large_for_nothing(|_| ());
    let overlaid = large_for_nothing(|large| {
        for offering in &mut large.offerings {
            offering.overlaid = true;
        }
        not_sold(large);
    });
    for world in [sold, overlaid] {
        assert_eq!(acts(&world), Vec::<String>::new());
        assert_eq!(world.verdict_text("a"), "keep: NotCheaper Node a");
        assert_eq!(world.snapshot().nodes[0].price, Price::ZERO);
    }
}

/// Of what has no price, catalogues say 0, and it is not for sale.
#[test]
fn w_07_what_is_not_sold_and_has_no_price_keeps_its_price_at_launch() {
    let world = large_for_nothing(not_sold);
    assert_eq!(
        acts(&world),
        ["SingleNodeConsolidation replace [a] by small|medium"]
    );
}

/// The same under a NodeOverlay that changes every price by so much.
fn adjusted(mut world: World, change: &str) -> World {
    let spec = json!({"requirements": [], "priceAdjustment": change});
    let spec = serde_json::from_value(spec).expect("a NodeOverlay");
    let overlays = [Arc::new(NodeOverlay::new("all", spec))];
    let (pool, types) = (world.state.node_pools[0].clone(), Arc::from(world.types.clone()));
    let offered = PoolTypes { pool, types };
    let evaluation = evaluate(&overlays, std::slice::from_ref(&offered), &LabelRules::default());
    let corrected = evaluation.in_force.decorate(&offered.pool, &offered.types);
    assert!(
        corrected.iter().any(|one| one.overlaid.price),
        "the others have a price"
    );
    let types = &mut world.state.instance_types;
    types.insert("default".to_owned(), Ok(corrected));
    world
}

#[test]
fn w_07_p_187_a_node_keeps_its_price_at_launch_where_an_overlay_adjusts_one_that_nobody_knows() {
    for change in ["-30%", "+0.05"] {
        let world = adjusted(large_for_nothing(not_sold), change);
        assert_eq!(world.snapshot().nodes[0].price, Price(640_000_000), "{change}");
        assert_eq!(
            acts(&world),
            ["SingleNodeConsolidation replace [a] by small|medium"],
            "{change}"
        );
    }
}

#[test]
fn p_187_nothing_is_saved_by_a_share_of_a_price_that_nobody_knows() {
    let unknown = large_for_nothing(|large| {
        for offering in &mut large.offerings {
            offering.price = Price::UNKNOWN;
        }
    })
    .edit_claim("a", |claim| {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.remove(PRICE_AT_LAUNCH);
    });
    assert_eq!(acts(&unknown), Vec::<String>::new());
    for change in ["-30%", "+0.05"] {
        let world = adjusted(unknown.clone(), change);
        assert_eq!(world.snapshot().nodes[0].price, Price::ZERO, "{change}");
        assert_eq!(acts(&world), Vec::<String>::new(), "{change}");
    }
}
