//! What a launch is asked for, and what it tells beside its instance (G-006, G-009, G-023).

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use prost::Message as _;
use spokeshave_model::{InstanceType, Overrides, Price, Resources};
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_grpc::LONGEST_MESSAGE_BYTES;

use crate::failures::operator_of;
use crate::flawed::Flaw;
use crate::large::large;
use crate::shed::{claim, pool};

fn without_spot(types: &[InstanceType], name: &str) -> Vec<InstanceType> {
    let mut types = types.to_vec();
    let of_it = types.iter_mut().filter(|one| one.name == name);
    for offering in of_it.flat_map(|one| &mut one.offerings) {
        let is_spot = offering.capacity_type().is_some_and(|it| it.as_str() == "spot");
        offering.available &= !is_spot;
    }
    types
}

/// A launch that succeeds on its second choice says that the first was empty: before any time passes, so that the next plan leaves it out.
#[tokio::test(start_paused = true)]
async fn g_009_an_offering_found_empty_is_left_out_at_once_also_when_another_was_launched() {
    let (operator, shed, provider) = operator_of(Flaw::None).await;
    let before = operator.instance_types(&pool()).await.expect("types");
    let found_out = without_spot(&before, "small");
    assert_ne!(*before, *found_out);
    *shed.found_out.lock().expect("no panic") = Some(found_out.clone().into());
    let begun = provider.clock.now();
    operator.create(&claim("one")).await.expect("launched");
    let after = operator.instance_types(&pool()).await.expect("types");
    assert_eq!(provider.clock.now(), begun, "no delta has come meanwhile");
    assert_eq!(*after, *found_out);
    operator.create(&claim("two")).await.expect("launched");
    let asked = provider.asked.lock().expect("no panic").clone();
    let is_spot_of_small = |candidate: &spokeshave_provider_grpc::wire::Candidate| {
        candidate.r#type == "small" && candidate.offering_id.contains("spot")
    };
    assert!(
        is_spot_of_small(&asked[0].candidates[0]),
        "{:?}",
        asked[0].candidates
    );
    assert!(
        !asked[1].candidates.iter().any(is_spot_of_small),
        "{:?}",
        asked[1].candidates
    );
}

/// Prices of NodeOverlays are the operator's: the provider gets candidates in their order, and the types as they correct them.
#[tokio::test(start_paused = true)]
async fn g_023_what_is_cheapest_goes_by_corrected_prices() {
    let (operator, _, provider) = operator_of(Flaw::None).await;
    let types = operator.instance_types(&pool()).await.expect("types");
    operator.create(&claim("as-it-is")).await.expect("launched");
    let mut corrected = types.to_vec();
    let large = corrected
        .iter_mut()
        .find(|one| one.name == "large")
        .expect("large");
    for offering in &mut large.offerings {
        offering.price = Price(1);
    }
    operator
        .create_from(&claim("corrected"), &corrected)
        .await
        .expect("launched");
    let asked = provider.asked.lock().expect("no panic").clone();
    let [plain, overlaid] = &asked[..] else {
        panic!("two launches: {asked:?}");
    };
    assert_eq!(plain.candidates[0].r#type, "small");
    assert!(plain.corrected_types.is_empty());
    let first = &overlaid.candidates[0];
    assert_eq!((first.r#type.as_str(), first.price_nano_per_hour), ("large", 1));
    let price_of = |name: &str| {
        let one = overlaid.corrected_types.iter().find(|one| one.name == name);
        one.and_then(|one| one.offerings[0].price_nano_per_hour)
    };
    assert_eq!(price_of("large"), Some(1));
    assert_ne!(price_of("small"), Some(1));
    let mut ids: Vec<_> = plain
        .candidates
        .iter()
        .map(|one| (&one.r#type, &one.offering_id))
        .collect();
    let mut corrected_ids: Vec<_> = overlaid
        .candidates
        .iter()
        .map(|one| (&one.r#type, &one.offering_id))
        .collect();
    ids.sort();
    corrected_ids.sort();
    assert_eq!(ids, corrected_ids, "the provider's own IDs");
}

/// Where an offering has less capacity than its type, what does not fit there is not launched there, however cheap it is.
#[tokio::test(start_paused = true)]
async fn p_089_an_offering_under_which_the_requests_do_not_fit_is_no_candidate() {
    let (operator, shed, provider) = operator_of(Flaw::None).await;
    let mut types = shed.types.lock().expect("no panic").to_vec();
    let small = types.iter_mut().find(|one| one.name == "small").expect("small");
    for offering in &mut small.offerings {
        let is_spot = offering.capacity_type().is_some_and(|it| it.as_str() == "spot");
        offering.overrides = is_spot.then(|| Overrides {
            capacity: Resources::from_amounts([("memory", 1 << 30)]),
            ..Overrides::default()
        });
    }
    *shed.types.lock().expect("no panic") = types.clone().into();
    let mut wanting = claim("one");
    wanting.spec.resources.requests = [("memory".to_owned(), Quantity("4Gi".to_owned()))].into();
    operator.create(&wanting).await.expect("launched");
    operator.create_from(&wanting, &types).await.expect("launched");
    for asked in &*provider.asked.lock().expect("no panic") {
        let of_small = asked.candidates.iter().filter(|one| one.r#type == "small");
        let of_small: Vec<&str> = of_small.map(|one| one.offering_id.as_str()).collect();
        assert_eq!(of_small, ["on-demand/a", "on-demand/b"]);
        assert_eq!(asked.candidates.len(), 6, "and all of the large type");
    }
}

/// Of more types than a message holds, those of the cheapest candidates come along, and no candidate without its type.
#[tokio::test(start_paused = true)]
async fn g_006_a_launch_among_many_corrected_types_is_no_longer_than_a_message_may_be() {
    let (operator, shed, provider) = operator_of(Flaw::None).await;
    let mut corrected = large();
    *shed.types.lock().expect("no panic") = corrected.clone().into();
    for offering in corrected.iter_mut().flat_map(|one| &mut one.offerings) {
        offering.price = Price(offering.price.0 + 1);
    }
    operator
        .create_from(&claim("one"), &corrected)
        .await
        .expect("launched");
    let asked = provider.asked.lock().expect("no panic").clone();
    let [request] = &asked[..] else {
        panic!("one launch: {}", asked.len());
    };
    let bytes = request.encoded_len();
    assert!(bytes <= LONGEST_MESSAGE_BYTES, "{bytes}");
    let offerings = corrected.iter().flat_map(|one| &one.offerings);
    let cheapest = offerings.map(|one| one.price.0).min();
    let first = request.candidates.first().map(|one| one.price_nano_per_hour);
    assert_eq!(first, cheapest);
    let of_candidates = request.candidates.iter().map(|one| &one.r#type);
    let types = request.corrected_types.iter().map(|one| &one.name);
    assert_eq!(
        of_candidates.collect::<BTreeSet<_>>(),
        types.collect::<BTreeSet<_>>()
    );
}

/// A request without corrected types is about the provider's own, which nobody wants.
#[tokio::test(start_paused = true)]
async fn g_023_where_no_corrected_type_can_be_had_the_launch_is_not_about_the_providers_own() {
    let (operator, _, provider) = operator_of(Flaw::None).await;
    let types = operator.instance_types(&pool()).await.expect("types");
    let mut corrected = types.to_vec();
    for offering in corrected.iter_mut().flat_map(|one| &mut one.offerings) {
        offering.available = false;
    }
    drop(operator.create_from(&claim("one"), &corrected).await);
    let asked = provider.asked.lock().expect("no panic").clone();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].candidates.len(), asked[0].corrected_types.len()),
        (0, 1)
    );
}
