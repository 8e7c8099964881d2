//! What a node costs whose type has a price of 0: nothing, where it is sold for that, and otherwise what it did at its launch.

use crate::support::{World, acts, on_demand_pool, three_types};
use spokeshave_api::labels::PRICE_AT_LAUNCH;
use spokeshave_model::{InstanceType, Price};

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
        large.overlaid.price = true;
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
