//! which types a launch names, how it buys them, and in which subnets.

use std::collections::BTreeSet;

use spokeshave_api::ec2_node_class::Subnet;
use spokeshave_model::{
    CapacityType, InstanceType, Offering, Price, Requirement, ResourceName, Resources, labels as core,
};
use spokeshave_provider_aws::addresses::Addresses;
use spokeshave_provider_aws::choice::{Choice, ChoiceError, MOST_TYPES, Wanted, choose};
use spokeshave_provider_aws::labels;

fn offering(capacity_type: CapacityType, zone: &str, price: f64) -> Offering {
    Offering {
        requirements: [
            Requirement::is(core::CAPACITY_TYPE, capacity_type.as_str()),
            Requirement::is(core::ZONE, zone),
        ]
        .into_iter()
        .collect(),
        price: Price::from_dollars(price),
        available: true,
        ..Offering::default()
    }
}

fn reserved(id: &str, kind: &str, interruptible: bool, price: f64, left: i64) -> Offering {
    let mut offering = offering(CapacityType::Reserved, "a", price);
    for (key, value) in [
        (labels::CAPACITY_RESERVATION_ID, id),
        (labels::CAPACITY_RESERVATION_TYPE, kind),
        (
            labels::CAPACITY_RESERVATION_INTERRUPTIBLE,
            if interruptible { "true" } else { "false" },
        ),
    ] {
        offering.requirements.add(Requirement::is(key, value));
    }
    offering.reservation_capacity = left;
    offering.reservation_id_label = Some(labels::CAPACITY_RESERVATION_ID.to_owned());
    offering
}

fn instance_type(name: &str, offerings: Vec<Offering>) -> InstanceType {
    let (family, size) = name.split_once('.').unwrap();
    InstanceType {
        name: name.to_owned(),
        requirements: [
            Requirement::is(core::INSTANCE_TYPE, name),
            Requirement::is(labels::INSTANCE_FAMILY, family),
            Requirement::is(labels::INSTANCE_SIZE, size),
        ]
        .into_iter()
        .collect(),
        offerings,
        capacity: Resources::from_amounts([(ResourceName::CPU, 4000), (ResourceName::PODS, 30)]),
        ..InstanceType::default()
    }
}

fn on_demand(name: &str, price: f64) -> InstanceType {
    instance_type(name, vec![offering(CapacityType::OnDemand, "a", price)])
}

fn wanted(requirements: &[Requirement]) -> Wanted {
    Wanted {
        requirements: requirements.iter().cloned().collect(),
        requests: Resources::from_amounts([(ResourceName::CPU, 1000)]),
    }
}

fn capacity_types(names: &[&str]) -> Requirement {
    Requirement::one_of(core::CAPACITY_TYPE, names.iter().copied())
}

fn names<'a>(choice: &Choice<'a>) -> Vec<&'a str> {
    let candidates = choice.candidates.iter();
    candidates
        .map(|candidate| candidate.instance_type.name.as_str())
        .collect()
}

#[test]
fn a_061_what_is_not_for_sale_or_too_small_is_not_named() {
    let mut sold_out = on_demand("m5.large", 0.1);
    sold_out.offerings[0].available = false;
    let mut small = on_demand("m5.small", 0.1);
    small.capacity = Resources::from_amounts([(ResourceName::CPU, 500)]);
    let other_zone = instance_type("m5.xlarge", vec![offering(CapacityType::OnDemand, "b", 0.1)]);
    let types = [sold_out, small, other_zone, on_demand("m6.large", 0.2)];
    let wanted = wanted(&[Requirement::is(core::ZONE, "a")]);
    assert_eq!(names(&choose(&types, &wanted, false).unwrap()), ["m6.large"]);
    let error = choose(&types[..3], &wanted, false).unwrap_err();
    assert_eq!(error, ChoiceError::NothingAvailable);
    assert_eq!(
        error.to_string(),
        "all requested instance types were unavailable during launch"
    );
}

#[test]
fn a_061_exotic_types_are_named_when_nothing_else_would_do_or_min_values_need_them() {
    let mut gpu = on_demand("g5.large", 0.1);
    gpu.capacity.set(labels::NVIDIA_GPU, 1);
    let types = [
        gpu,
        on_demand("m5.metal", 0.1),
        on_demand("m5.metal-24xl", 0.1),
        on_demand("m5.large", 0.2),
    ];
    let plain = choose(&types, &wanted(&[]), false).unwrap();
    assert_eq!(names(&plain), ["m5.large"]);
    assert_eq!(
        plain.left_out["exotic-instance-filter"],
        ["g5.large", "m5.metal", "m5.metal-24xl"]
    );
    assert_eq!(
        choose(&types[..3], &wanted(&[]), false).unwrap().candidates.len(),
        3
    );
    let families = Requirement::exists(labels::INSTANCE_FAMILY).with_min_values(Some(2));
    assert_eq!(
        choose(&types, &wanted(&[families]), false)
            .unwrap()
            .candidates
            .len(),
        4
    );
}

#[test]
fn a_061_spot_dearer_than_on_demand_is_left_out_and_spot_comes_before_on_demand() {
    let both = |name: &str, spot: f64, dear: f64| {
        instance_type(
            name,
            vec![
                offering(CapacityType::Spot, "a", spot),
                offering(CapacityType::OnDemand, "a", dear),
            ],
        )
    };
    let types = [both("m5.large", 0.05, 0.1), both("m5.xlarge", 0.15, 0.2)];
    let choice = choose(&types, &wanted(&[capacity_types(&["spot", "on-demand"])]), false).unwrap();
    assert_eq!(
        (choice.capacity_type, names(&choice)),
        (CapacityType::Spot, vec!["m5.large"])
    );
    let spot_only = choose(&types, &wanted(&[capacity_types(&["spot"])]), false).unwrap();
    assert_eq!(names(&spot_only), ["m5.large", "m5.xlarge"]);
    let dear = [both("m5.large", 0.3, 0.1)];
    let fallback = choose(&dear, &wanted(&[capacity_types(&["spot", "on-demand"])]), false).unwrap();
    assert_eq!(fallback.capacity_type, CapacityType::OnDemand);
    assert!(fallback.is_inflexible_fallback, "one type is few");
}

#[test]
fn a_061_the_sixty_cheapest_are_named_and_min_values_count_among_them() {
    let types: Vec<InstanceType> = (0..100)
        .map(|index| on_demand(&format!("f{index}.large"), 1.0 - f64::from(index) / 1000.0))
        .collect();
    let choice = choose(&types, &wanted(&[]), false).unwrap();
    assert_eq!(choice.candidates.len(), MOST_TYPES);
    assert_eq!(names(&choice)[0], "f99.large");
    let families = Requirement::exists(labels::INSTANCE_FAMILY).with_min_values(Some(61));
    let many = wanted(&[families]);
    let error = choose(&types, &many, false).unwrap_err().to_string();
    assert!(
        error.ends_with("for label(s) karpenter.k8s.aws/instance-family"),
        "{error}"
    );
    assert_eq!(choose(&types, &many, true).unwrap().candidates.len(), MOST_TYPES);
}

#[test]
fn a_061_reserved_capacity_comes_first_of_one_kind_and_one_for_each_zone() {
    let all = wanted(&[capacity_types(&["reserved", "spot", "on-demand"])]);
    let types = [
        instance_type(
            "m5.large",
            vec![
                reserved("cr-small", "default", false, 0.000_1, 1),
                reserved("cr-large", "default", false, 0.000_1, 9),
                reserved("cr-back", "default", true, 0.000_1, 20),
                offering(CapacityType::OnDemand, "a", 0.1),
            ],
        ),
        instance_type(
            "p5.large",
            vec![reserved("cr-block", "capacity-block", false, 0.000_2, 3)],
        ),
        on_demand("m6.large", 0.01),
    ];
    let choice = choose(&types, &all, false).unwrap();
    assert_eq!(choice.capacity_type, CapacityType::Reserved);
    let ids: Vec<_> = choice.candidates[0]
        .offerings
        .iter()
        .map(|offering| offering.reservation_id())
        .collect();
    assert_eq!((names(&choice), ids), (vec!["m5.large"], vec![Some("cr-large")]));

    let blocks = [
        instance_type(
            "p5.large",
            vec![reserved("cr-dear", "capacity-block", false, 0.3, 3)],
        ),
        instance_type(
            "p4.large",
            vec![reserved("cr-cheap", "capacity-block", false, 0.2, 1)],
        ),
    ];
    assert_eq!(names(&choose(&blocks, &all, false).unwrap()), ["p4.large"]);
    let none = choose(&types[2..], &all, false).unwrap();
    assert_eq!(none.capacity_type, CapacityType::OnDemand);
}

#[test]
fn a_061_hardware_of_ones_own_only_where_nothing_else_is_allowed() {
    let types = [on_demand("m5.large", 0.1)];
    let tenancy = |values: &[&str]| {
        let requirement = Requirement::one_of(labels::INSTANCE_TENANCY, values.iter().copied());
        choose(&types, &wanted(&[requirement]), false).unwrap().tenancy
    };
    assert_eq!(tenancy(&["default", "dedicated"]), "default");
    assert_eq!(tenancy(&["dedicated"]), "dedicated");
    assert_eq!(choose(&types, &wanted(&[]), false).unwrap().tenancy, "default");
}

fn subnet(id: &str, zone: &str) -> Subnet {
    Subnet {
        id: id.to_owned(),
        zone: zone.to_owned(),
        zone_id: String::new(),
    }
}

#[test]
fn a_064_launches_under_way_count_until_ec2_is_asked_again() {
    let types = [on_demand("m5.large", 0.1)];
    let choice = choose(&types, &wanted(&[]), false).unwrap();
    let subnets = [subnet("s1", "a"), subnet("s2", "a"), subnet("s3", "b")];
    let mut addresses = Addresses::default();
    addresses.found("s1", 100);
    addresses.found("s2", 90);
    let first = addresses.choose(&subnets, &choice.candidates);
    assert_eq!(first.subnet("a").unwrap().id, "s1");
    assert_eq!(
        first.subnet("b").unwrap().id,
        "s3",
        "the only one, though nothing is known of it"
    );
    assert_eq!(addresses.left("s1"), 70, "30 pods are expected");
    assert_eq!(addresses.left("s3"), 0, "nothing is for sale in zone b");
    let second = addresses.choose(&subnets, &choice.candidates);
    assert_eq!(second.subnet("a").unwrap().id, "s2");
    addresses.settle(&first, &BTreeSet::from(["s1"]));
    addresses.settle(&second, &BTreeSet::new());
    assert_eq!((addresses.left("s1"), addresses.left("s2")), (70, 90));
    let third = addresses.choose(&subnets, &choice.candidates);
    addresses.found("s2", 200);
    addresses.settle(&third, &BTreeSet::new());
    assert_eq!(
        addresses.left("s2"),
        200,
        "EC2 has been asked since: nothing is given back"
    );
    addresses.exhausted("s2");
    assert_eq!(
        addresses
            .choose(&subnets, &choice.candidates)
            .subnet("a")
            .unwrap()
            .id,
        "s1"
    );
}

#[test]
fn a_061_a_claim_that_cannot_be_read_says_which_field() {
    let claim = |spec: serde_json::Value| {
        let claim = serde_json::json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "one"}, "spec": spec,
        });
        Wanted::of(&serde_json::from_value(claim).unwrap())
            .unwrap_err()
            .to_string()
    };
    let class = serde_json::json!({"group": "g", "kind": "k", "name": "n"});
    let odd = claim(serde_json::json!({
        "nodeClassRef": class, "requirements": [{"key": "a", "operator": "Like", "values": ["x"]}],
    }));
    assert!(odd.starts_with("NodeClaim one, spec.requirements: "), "{odd}");
    let odd = claim(serde_json::json!({
        "nodeClassRef": class, "requirements": [], "resources": {"requests": {"cpu": "many"}},
    }));
    assert!(
        odd.starts_with("NodeClaim one, spec.resources.requests: "),
        "{odd}"
    );
}
