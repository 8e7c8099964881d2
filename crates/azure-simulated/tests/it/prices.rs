//! Prices that are not there yet: before the list has been read, while a page of it fails, and of sizes that nobody knows (Z-024).

use spokeshave_api::labels;
use spokeshave_azure_simulated::Options;
use spokeshave_model::{InstanceType, Price};
use spokeshave_ports::CloudProvider as _;

use crate::world::{World, claim, pool, provider_options};

const PRICES: &str = "GET /api/retail/prices";
/// What stands in the address of the second page.
const SECOND: &str = "skiptoken=100";

/// An Azure whose list of prices fails from the start.
async fn failing(part: &str, requests: u32, status: u16, retry_after_seconds: u32) -> World {
    let options = Options::instant();
    let mut world = World::without_leader(options.clone());
    world
        .azure
        .fail_prices(part, requests, status, retry_after_seconds);
    world.give_provider(provider_options(&options)).await;
    world
}

/// How many types have the price of the list, five cents for a vCPU, and how many there are.
async fn listed(world: &World) -> (usize, usize) {
    let types = world.provider.instance_types(&pool()).await.unwrap();
    let is_listed = |it: &&InstanceType| {
        let cents = it.capacity.get("cpu") / 1000 * 5;
        it.price_of("0", "on-demand") == Some(Price(cents * 10_000_000))
    };
    (types.iter().filter(is_listed).count(), types.len())
}

#[tokio::test(start_paused = true)]
async fn z_024_pages_before_one_that_fails_count_and_it_is_read_on_from_there_when_azure_wants() {
    let world = failing(SECOND, 3, 503, 40).await;
    let (first, all) = listed(&world).await;
    assert!(
        0 < first && first < all,
        "{first} of {all}: those of the first page"
    );
    assert_eq!(world.asked(PRICES), 2);
    world.pass(20).await;
    assert_eq!(world.asked(PRICES), 2, "Azure wants 40 s");
    world.pass(10).await;
    assert_eq!(world.asked(PRICES), 3);
    world.pass(120).await;
    assert_eq!(listed(&world).await, (all, all));
    assert_eq!(
        world.asked(PRICES),
        6,
        "the first page once, the second in four tries, the third"
    );
    world.pass(12 * 3600).await;
    assert_eq!(world.asked(PRICES), 9, "the next time from the beginning");
}

#[tokio::test(start_paused = true)]
async fn z_024_a_page_whose_address_does_not_hold_any_more_begins_the_list_again() {
    let world = failing(SECOND, 1, 400, 0).await;
    world.pass(10).await;
    assert_eq!(world.asked(PRICES), 5, "two pages, and then all three");
    let (priced, all) = listed(&world).await;
    assert_eq!(priced, all);
    let world = failing(SECOND, 5, 503, 0).await;
    world.pass(60).await;
    assert_eq!(
        world.asked(PRICES),
        1 + 5 + 3,
        "one that never comes does as well"
    );
}

#[tokio::test(start_paused = true)]
async fn z_024_z_030_spot_is_bought_before_its_price_is_known_and_never_costs_more_than_on_demand() {
    let world = failing("", u32::MAX, 503, 0).await;
    let types = world.provider.instance_types(&pool()).await.unwrap();
    for it in types.iter() {
        let [spot, on_demand] = ["spot", "on-demand"].map(|capacity_type| it.price_of("0", capacity_type));
        assert_eq!(spot, on_demand, "{}", it.name);
    }
    let either = claim("a", &[(labels::INSTANCE_TYPE, &["Standard_D4s_v5"])]);
    let created = world.provider.create(&either).await.unwrap();
    assert_eq!(created.label(labels::CAPACITY_TYPE), Some("spot"));
    world.azure.heal();
    world.pass(30).await;
    let types = world.provider.instance_types(&pool()).await.unwrap();
    let d4 = types.iter().find(|it| it.name == "Standard_D4s_v5").unwrap();
    assert_eq!(d4.price_of("0", "spot").unwrap().to_string(), "0.04");
}
