//! Rows of catalogs that cannot be read, and names that cannot be labels (D-230, G-005, G-006, G-012).

use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::labels;
use spokeshave_model::{InstanceType, Price, Requirement};
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_grpc::GrpcProvider;

use crate::failures::operator_of;
use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, claim, pool};

async fn types_of(operator: &GrpcProvider) -> Arc<[InstanceType]> {
    operator.instance_types(&pool()).await.expect("types")
}

/// The cloud sells this from now on, and the operator has heard of it.
async fn sell(shed: &Shed, provider: &Flawed, types: Vec<InstanceType>) {
    *shed.types.lock().expect("no panic") = types.into();
    provider.clock.sleep(Duration::from_secs(5)).await;
}

/// The same with every offering sold out.
fn sold_out(mut one: InstanceType) -> InstanceType {
    for offering in &mut one.offerings {
        offering.available = false;
    }
    one
}

/// Left out, it would count as withdrawn, and its nodes would be replaced.
#[tokio::test(start_paused = true)]
async fn d_230_an_offering_that_cannot_be_read_stays_and_takes_no_other_along() {
    for is_known in [false, true] {
        let (operator, shed, provider) = operator_of(Flaw::None).await;
        let good = shed.types.lock().expect("no panic").to_vec();
        if is_known {
            assert_eq!(types_of(&operator).await.to_vec(), good);
        }
        let mut bad = good.clone();
        bad[1].offerings[0].price = Price(-1);
        let mut expected = good.clone();
        expected[1].offerings[0].available = false;
        if !is_known {
            expected[1].offerings[0].price = Price(0);
        }
        sell(&shed, &provider, bad.clone()).await;
        assert_eq!(types_of(&operator).await.to_vec(), expected, "known: {is_known}");
        // With another snapshot.
        bad.remove(0);
        expected.remove(0);
        sell(&shed, &provider, bad).await;
        assert_eq!(types_of(&operator).await.to_vec(), expected, "known: {is_known}");
        sell(&shed, &provider, good.clone()).await;
        assert_eq!(types_of(&operator).await.to_vec(), good);
    }
}

/// A type with a requirement that cannot be a label.
fn with_blank(mut one: InstanceType) -> InstanceType {
    let size = Requirement::is("shed.example/size", "8 cores/32GB");
    one.requirements.add(size);
    one
}

/// An operator that has just started has no copy from before.
#[tokio::test(start_paused = true)]
async fn d_230_g_006_a_type_that_cannot_be_read_stays_as_far_as_it_can_and_is_not_launched() {
    let (operator, shed, provider) = operator_of(Flaw::None).await;
    let good = shed.types.lock().expect("no panic").to_vec();
    let bad = vec![with_blank(good[0].clone()), good[1].clone()];
    sell(&shed, &provider, bad).await;
    let expected = [sold_out(good[0].clone()), good[1].clone()];
    assert_eq!(types_of(&operator).await.to_vec(), expected);
}

/// What only narrows what may be chosen becomes no label.
#[tokio::test(start_paused = true)]
async fn g_006_a_type_that_allows_several_values_may_name_one_that_cannot_be_a_label() {
    let (operator, shed, provider) = operator_of(Flaw::None).await;
    let mut types = shed.types.lock().expect("no panic").to_vec();
    let sizes = Requirement::one_of("shed.example/size", ["8 cores/32GB", "8-cores"]);
    types[0].requirements.add(sizes);
    sell(&shed, &provider, types.clone()).await;
    assert_eq!(types_of(&operator).await.to_vec(), types);
}

#[tokio::test(start_paused = true)]
async fn d_230_g_006_a_type_that_cannot_be_read_any_more_stays_as_it_was_and_is_not_launched() {
    let (operator, shed, provider) = operator_of(Flaw::None).await;
    let good = types_of(&operator).await.to_vec();
    let mut bad = vec![with_blank(good[0].clone()), good[1].clone()];
    sell(&shed, &provider, bad.clone()).await;
    let mut expected = [sold_out(good[0].clone()), good[1].clone()];
    assert_eq!(types_of(&operator).await.to_vec(), expected);
    // A change of its offerings makes it no better.
    bad[0].offerings[0].price = Price(5);
    sell(&shed, &provider, bad.clone()).await;
    expected[0].offerings[0].price = Price(5);
    assert_eq!(types_of(&operator).await.to_vec(), expected, "a change");
    let color = Requirement::is("shed.example/color", "red");
    bad[1].requirements.add(color);
    expected[1] = bad[1].clone();
    sell(&shed, &provider, bad).await;
    assert_eq!(
        types_of(&operator).await.to_vec(),
        expected,
        "in the next snapshot"
    );
    sell(&shed, &provider, good.clone()).await;
    assert_eq!(types_of(&operator).await.to_vec(), good);
    // One that is withdrawn is gone.
    sell(&shed, &provider, good[1..].to_vec()).await;
    assert_eq!(types_of(&operator).await.to_vec(), good[1..]);
}

/// The API server would refuse them with the NodeClaim, after the machine was bought.
#[tokio::test(start_paused = true)]
async fn g_006_types_and_zones_whose_names_cannot_be_labels_are_not_launched() {
    let (operator, shed, provider) = operator_of(Flaw::None).await;
    let good = shed.types.lock().expect("no panic").to_vec();
    let mut named = good.clone();
    named[0].name = "8 cores/32GB".to_owned();
    let zone = Requirement::is(labels::ZONE, "Frankfurt (FRA1)");
    named[1].offerings[0].requirements.replace(zone);
    sell(&shed, &provider, named).await;
    let types = types_of(&operator).await;
    assert_eq!(types.len(), 1);
    assert_eq!(types[0].offerings, good[1].offerings[1..]);
    operator.create(&claim("one")).await.expect("launched");
    let asked = provider.asked.lock().expect("no panic").clone();
    let candidates = asked[0].candidates.iter();
    let ids: Vec<_> = candidates
        .map(|one| (one.r#type.as_str(), one.offering_id.as_str()))
        .collect();
    assert_eq!(
        ids,
        [("small", "spot/a"), ("small", "spot/b"), ("small", "on-demand/b")]
    );
}

#[tokio::test(start_paused = true)]
async fn g_012_a_label_of_an_instance_that_cannot_be_one_keeps_no_launch_from_being_recorded() {
    let (operator, ..) = operator_of(Flaw::LabelWithBlank).await;
    let launched = operator.create(&claim("one")).await.expect("launched");
    assert_eq!(launched.label("shed.example/size"), None);
    assert_eq!(launched.label(labels::INSTANCE_TYPE), Some("large"));
}
