//! P-187 and App. E 23: order, conflicts, prices, capacities, validation and statuses of NodeOverlays.

use super::effect::PriceChange;
use super::*;
use serde_json::{Value, json};
use spokeshave_example::{instance_type, node_pool, offering};
use spokeshave_model::{Overlaid, Overrides, Price, Resources};

fn overlay(name: &str, spec: Value) -> Arc<NodeOverlay> {
    let spec = serde_json::from_value(spec).expect("a NodeOverlay");
    Arc::new(NodeOverlay::new(name, spec))
}

fn of_type(name: &str) -> Value {
    json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [name]}])
}

fn catalog() -> Arc<[InstanceType]> {
    let zones = ["a", "b"];
    vec![
        instance_type("m5.large", 2, 8, &zones),
        instance_type("m5.xlarge", 4, 16, &zones),
    ]
    .into()
}

fn pools(names: &[&str]) -> Vec<PoolTypes> {
    let offered = |name: &&str| PoolTypes {
        pool: Arc::new(node_pool(name)),
        types: catalog(),
    };
    names.iter().map(offered).collect()
}

fn judge(overlays: &[Arc<NodeOverlay>], pools: &[PoolTypes]) -> Evaluation {
    evaluate(overlays, pools, &LabelRules::default())
}

fn verdict(evaluation: &Evaluation, name: &str) -> Verdict {
    let mut verdicts = evaluation.verdicts.iter();
    let found = verdicts.find(|(overlay, _)| overlay.name() == name);
    found.map(|(_, verdict)| verdict.clone()).expect("the overlay")
}

/// The dollars of the on-demand offering in zone a, and the whole type.
fn seen(evaluation: &Evaluation, pool: &PoolTypes, name: &str) -> (String, InstanceType) {
    let types = evaluation.in_force.decorate(&pool.pool, &pool.types);
    let found = types
        .iter()
        .find(|one| one.name == name)
        .expect("the type")
        .clone();
    let price = found.price_of("a", "on-demand").expect("an offering");
    (price.to_string(), found)
}

#[test]
fn p_187_example_23_equal_weights_conflict_and_the_second_is_wholly_unapplied() {
    let pools = pools(&["p"]);
    let first = json!({"requirements": of_type("m5.large"), "price": "1"});
    // It comes second, because names are taken descending; of what else it says nothing applies either.
    let second = json!({
        "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "Exists"}],
        "price": "2", "capacity": {"example.com/gpu": "1"},
    });
    let evaluation = judge(&[overlay("a", second), overlay("b", first)], &pools);
    assert_eq!(verdict(&evaluation, "b"), Verdict::InForce);
    let Verdict::Conflict(conflict) = verdict(&evaluation, "a") else {
        panic!("a conflict")
    };
    assert_eq!(
        (conflict.with.as_str(), conflict.resource.as_deref()),
        ("b", None)
    );
    assert!(
        conflict.to_string().contains("give one of them another weight"),
        "{conflict}"
    );
    assert_eq!(seen(&evaluation, &pools[0], "m5.large").0, "1");
    let (price, untouched) = seen(&evaluation, &pools[0], "m5.xlarge");
    assert_eq!(
        (price.as_str(), untouched.overlaid),
        ("0.22", Overlaid::default())
    );
}

#[test]
fn p_187_example_23_the_heavier_price_wins_and_capacities_are_merged() {
    let pools = pools(&["p"]);
    let heavy = json!({"requirements": of_type("m5.large"), "weight": 10, "price": "0.5",
        "capacity": {"example.com/gpu": "4"}});
    let light = json!({"requirements": of_type("m5.large"), "weight": 5, "priceAdjustment": "+100%",
        "capacity": {"example.com/gpu": "9", "example.com/fpga": "2"}});
    let evaluation = judge(&[overlay("light", light), overlay("heavy", heavy)], &pools);
    assert_eq!(verdict(&evaluation, "heavy"), Verdict::InForce);
    assert_eq!(verdict(&evaluation, "light"), Verdict::InForce);
    let (price, corrected) = seen(&evaluation, &pools[0], "m5.large");
    assert_eq!(price, "0.5");
    let amounts = ["example.com/gpu", "example.com/fpga", "cpu"].map(|name| corrected.capacity.get(name));
    assert_eq!(amounts, [4, 2, 2000]);
    assert_eq!(corrected.allocatable().get("example.com/fpga"), 2);
    assert_eq!(
        corrected.overlaid,
        Overlaid {
            price: true,
            capacity: true
        }
    );
}

#[test]
fn p_187_prices_are_replaced_added_to_and_multiplied_and_never_negative() {
    let pools = pools(&["p"]);
    for (field, change, expected) in [
        ("price", "0.3", "0.3"),
        ("price", "0", "0"),
        ("priceAdjustment", "+0.05", "0.16"),
        ("priceAdjustment", "-0.05", "0.06"),
        ("priceAdjustment", "-5", "0"),
        ("priceAdjustment", "+50%", "0.165"),
        ("priceAdjustment", "-12.5%", "0.09625"),
        ("priceAdjustment", "-100%", "0"),
        ("priceAdjustment", "+.5%", "0.11055"),
    ] {
        let spec = json!({"requirements": of_type("m5.large"), field: change});
        let evaluation = judge(&[overlay("o", spec)], &pools);
        assert_eq!(verdict(&evaluation, "o"), Verdict::InForce, "{change}");
        assert_eq!(seen(&evaluation, &pools[0], "m5.large").0, expected, "{change}");
    }
    let absurd = PriceChange::Percent(i64::MAX).apply(Price(i64::MAX / 2));
    assert_eq!(absurd, Price(i64::MAX), "saturates");
}

/// More or less than a price that nobody knows is not known either; only a price of the overlay's own takes its place.
#[test]
fn p_187_an_adjustment_makes_no_price_of_one_that_nobody_knows() {
    for (price, available) in [(Price::UNKNOWN, true), (Price::ZERO, false)] {
        let mut plain = instance_type("m5.large", 2, 8, &["a"]);
        (plain.offerings[0].price, plain.offerings[0].available) = (price, available);
        let of = |types: InstanceType, field: &str, change: &str| {
            let offered = PoolTypes {
                pool: Arc::new(node_pool("p")),
                types: vec![types].into(),
            };
            let spec = json!({"requirements": of_type("m5.large"), field: change});
            let evaluation = judge(&[overlay("o", spec)], std::slice::from_ref(&offered));
            let types = evaluation.in_force.decorate(&offered.pool, &offered.types);
            (Arc::ptr_eq(&types, &offered.types), types[0].clone())
        };
        for change in ["-30%", "+0.05", "-5", "-100%"] {
            let (_, corrected) = of(plain.clone(), "priceAdjustment", change);
            assert_eq!(corrected.offerings[0], plain.offerings[0], "{change}");
            assert_eq!(corrected.known_price_of("a", "on-demand"), None, "{change}");
            // What spot costs is known.
            assert!(
                corrected.offerings[1].overlaid && corrected.overlaid.price,
                "{change}"
            );
            let mut alone = plain.clone();
            alone.offerings.truncate(1);
            let (is_same, _) = of(alone, "priceAdjustment", change);
            assert!(is_same, "{change} changes nothing of it");
        }
        for own in ["0.3", "0"] {
            let (_, corrected) = of(plain.clone(), "price", own);
            let known = corrected.known_price_of("a", "on-demand");
            assert_eq!(known, own.parse::<Price>().ok(), "{own}");
        }
    }
    // A price that is known can be adjusted down to nothing, also while nothing is left to be had at it.
    let mut sold_out = instance_type("m5.large", 2, 8, &["a"]);
    sold_out.offerings[0].available = false;
    let offered = PoolTypes {
        pool: Arc::new(node_pool("p")),
        types: vec![sold_out].into(),
    };
    let spec = json!({"requirements": of_type("m5.large"), "priceAdjustment": "-100%"});
    let evaluation = judge(&[overlay("o", spec)], std::slice::from_ref(&offered));
    let (_, corrected) = seen(&evaluation, &offered, "m5.large");
    assert_eq!(corrected.known_price_of("a", "on-demand"), Some(Price::ZERO));
}

/// A heavier adjustment that comes to nothing leaves the place to a lighter price; where the price is known it counts from that, as ever.
#[test]
fn p_187_an_adjustment_of_a_price_that_nobody_knows_hides_no_lighter_price() {
    let mut plain = instance_type("m5.large", 2, 8, &["a"]);
    plain.offerings[0].price = Price::UNKNOWN;
    let adjusted = plain.offerings[1].price;
    let offered = PoolTypes {
        pool: Arc::new(node_pool("p")),
        types: vec![plain].into(),
    };
    let of = |field: &str, change: &str, weight: i32| {
        let spec = json!({"requirements": of_type("m5.large"), field: change, "weight": weight});
        overlay(&field.to_lowercase(), spec)
    };
    let overlays = [of("priceAdjustment", "-100%", 10), of("price", "1.2", 5)];
    let evaluation = judge(&overlays, std::slice::from_ref(&offered));
    let (_, corrected) = seen(&evaluation, &offered, "m5.large");
    assert!(adjusted > Price::ZERO);
    let known = ["on-demand", "spot"].map(|capacity_type| corrected.known_price_of("a", capacity_type));
    assert_eq!(known, ["1.2".parse::<Price>().ok(), Some(Price::ZERO)]);
}

/// An overlay about some offerings says nothing of what the others of the type cost.
#[test]
fn w_07_a_price_of_0_is_an_overlays_only_where_it_is_about_the_offering() {
    let mut plain = instance_type("m5.large", 2, 8, &["a"]);
    for offering in &mut plain.offerings {
        (offering.price, offering.available) = (Price::ZERO, false);
    }
    let offered = PoolTypes {
        pool: Arc::new(node_pool("p")),
        types: vec![plain].into(),
    };
    let spec = json!({"requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}], "price": "0"});
    let evaluation = judge(&[overlay("o", spec)], std::slice::from_ref(&offered));
    let (_, corrected) = seen(&evaluation, &offered, "m5.large");
    assert!(corrected.overlaid.price);
    let known = ["spot", "on-demand"].map(|capacity_type| corrected.known_price_of("a", capacity_type));
    assert_eq!(known, [Some(Price::ZERO), None]);
}

#[test]
fn p_187_runtime_validation_names_what_is_wrong() {
    let any = || json!([{"key": "node.kubernetes.io/instance-type", "operator": "Exists"}]);
    for (spec, expected) in [
        (
            json!({"requirements": any(), "price": "cheap"}),
            r#"invalid value: "cheap" in price"#,
        ),
        (json!({"requirements": any(), "price": "-1"}), r#""-1" in price"#),
        (
            json!({"requirements": any(), "price": "99999999999999"}),
            "in price",
        ),
        (
            json!({"requirements": any(), "priceAdjustment": "10%"}),
            r#""10%" in priceAdjustment"#,
        ),
        (
            json!({"requirements": any(), "priceAdjustment": "-100.5%"}),
            "at most -100%",
        ),
        (
            json!({"requirements": any(), "priceAdjustment": "-9999%"}),
            "at most -100%",
        ),
        (
            json!({"requirements": any(), "priceAdjustment": "+1e9%"}),
            "in priceAdjustment",
        ),
        (
            json!({"requirements": any(), "price": "1", "priceAdjustment": "+1"}),
            "cannot set both",
        ),
        (
            json!({"requirements": any(), "capacity": {"memory": "1Gi"}}),
            "invalid capacity: memory",
        ),
        (
            json!({"requirements": any(), "capacity": {"example.com/x": "-1"}}),
            "capacity[example.com/x]",
        ),
        (
            json!({"requirements": any(), "capacity": {"example.com/x": "many"}}),
            "not negative",
        ),
        (
            json!({"requirements": [{"key": "a", "operator": "NotIn"}]}),
            "key a with operator NotIn must have a value defined",
        ),
        (
            json!({"requirements": [{"key": "a", "operator": "Near", "values": ["x"]}]}),
            "unsupported operator Near",
        ),
    ] {
        let pools = pools(&["p"]);
        let evaluation = judge(&[overlay("o", spec.clone())], &pools);
        let Verdict::Invalid(failures) = verdict(&evaluation, "o") else {
            panic!("{spec} must be invalid")
        };
        assert!(failures.contains(expected), "{spec}: {failures}");
        let types = evaluation.in_force.decorate(&pools[0].pool, &pools[0].types);
        assert!(Arc::ptr_eq(&types, &pools[0].types), "nothing of it applies");
    }
}

#[test]
fn p_187_an_overlay_is_about_what_is_known_of_the_node() {
    let mut labelled = node_pool("labelled");
    labelled
        .spec
        .template
        .metadata
        .labels
        .insert("team".to_owned(), "red".to_owned());
    let pools = [
        pools(&["plain"]).remove(0),
        PoolTypes {
            pool: Arc::new(labelled),
            types: catalog(),
        },
    ];
    let applies = |requirements: Value| {
        let evaluation = judge(
            &[overlay("o", json!({"requirements": requirements, "price": "1"}))],
            &pools,
        );
        assert_eq!(verdict(&evaluation, "o"), Verdict::InForce);
        [0, 1].map(|pool: usize| seen(&evaluation, &pools[pool], "m5.large").0 == "1")
    };
    let one = |key: &str, value: &str| json!([{"key": key, "operator": "In", "values": [value]}]);
    assert_eq!(
        applies(one("team", "red")),
        [false, true],
        "labels of the template"
    );
    assert_eq!(
        applies(json!([{"key": "team", "operator": "DoesNotExist"}])),
        [true, false]
    );
    assert_eq!(applies(one("karpenter.sh/nodepool", "plain")), [true, false]);
    assert_eq!(
        applies(one("karpenter.sh/nodepool", "missing")),
        [false, false],
        "valid, and about nothing"
    );
    assert_eq!(
        applies(one("kubernetes.io/arch", "amd64")),
        [true, true],
        "requirements of the type"
    );
    assert_eq!(
        applies(one("unheard.of", "x")),
        [false, false],
        "no label may be undefined"
    );
    assert_eq!(applies(json!([])), [true, true], "about everything");
}

#[test]
fn p_187_only_the_offerings_that_match_get_the_price_but_the_whole_type_the_capacity() {
    let pools = pools(&["p"]);
    let spec = json!({"requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]},
    ], "price": "0.001", "capacity": {"example.com/x": "1"}});
    let evaluation = judge(&[overlay("o", spec)], &pools);
    let (_, corrected) = seen(&evaluation, &pools[0], "m5.large");
    let prices = [
        ("a", "on-demand"),
        ("a", "spot"),
        ("b", "on-demand"),
        ("b", "spot"),
    ]
    .map(|(zone, capacity_type)| {
        corrected
            .price_of(zone, capacity_type)
            .expect("an offering")
            .to_string()
    });
    assert_eq!(prices, ["0.11", "0.077", "0.11", "0.001"]);
    assert_eq!(corrected.capacity.get("example.com/x"), 1);
    // What no offering matches is not touched, although the type has the key.
    let nowhere = json!({"requirements": [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}], "capacity": {"example.com/x": "1"}});
    let evaluation = judge(&[overlay("o", nowhere)], &pools);
    assert_eq!(
        seen(&evaluation, &pools[0], "m5.large")
            .1
            .capacity
            .get("example.com/x"),
        0
    );
}

#[test]
fn p_187_equal_weights_may_correct_different_things() {
    let pools = pools(&["p"]);
    let capacity = |resource: &str| json!({"requirements": of_type("m5.large"), "weight": 7, "capacity": {resource: "1"}});
    let evaluation = judge(
        &[
            overlay(
                "d",
                json!({"requirements": of_type("m5.large"), "weight": 7, "price": "1"}),
            ),
            overlay("c", capacity("example.com/x")),
            overlay("b", capacity("example.com/y")),
            overlay("a", capacity("example.com/x")),
        ],
        &pools,
    );
    for name in ["b", "c", "d"] {
        assert_eq!(verdict(&evaluation, name), Verdict::InForce, "{name}");
    }
    let Verdict::Conflict(conflict) = verdict(&evaluation, "a") else {
        panic!("the resource of c is taken, although b came between")
    };
    assert_eq!(
        (conflict.with.as_str(), conflict.resource.as_deref()),
        ("c", Some("example.com/x"))
    );
}

#[test]
fn p_187_a_conflict_in_one_pool_rejects_the_overlay_in_all() {
    let pools = pools(&["one", "two"]);
    let of_pool = |pool: &str| json!([{"key": "karpenter.sh/nodepool", "operator": "In", "values": [pool]}]);
    let evaluation = judge(
        &[
            overlay("b", json!({"requirements": of_pool("one"), "price": "1"})),
            overlay("a", json!({"requirements": [], "price": "2"})),
        ],
        &pools,
    );
    assert!(matches!(verdict(&evaluation, "a"), Verdict::Conflict(_)));
    assert_eq!(seen(&evaluation, &pools[0], "m5.large").0, "1");
    assert_eq!(seen(&evaluation, &pools[1], "m5.large").0, "0.11");
}

/// B-49, W-54.
#[test]
fn w_54_a_corrected_type_keeps_the_overrides_of_its_offerings() {
    let mut plain = instance_type("m5.large", 2, 8, &["a"]);
    let mut special = offering("b", "on-demand", Price(1));
    special.reservation_capacity = 3;
    special.overrides = Some(Overrides {
        capacity: Resources::from_amounts([("memory", 6 << 30), ("example.com/x", 5)]),
        overhead: spokeshave_model::Overhead {
            kube_reserved: Resources::from_amounts([("cpu", 500)]),
            ..Default::default()
        },
    });
    plain.offerings.push(special);
    let pools = [PoolTypes {
        pool: Arc::new(node_pool("p")),
        types: vec![plain].into(),
    }];
    let spec = json!({"requirements": of_type("m5.large"), "price": "1", "capacity": {"example.com/x": "2"}});
    let evaluation = judge(&[overlay("o", spec)], &pools);
    let (_, corrected) = seen(&evaluation, &pools[0], "m5.large");
    let kept = corrected.offerings.last().expect("the offering");
    assert_eq!(kept.reservation_capacity, 3);
    let groups = corrected.allocatable_groups();
    let amounts: Vec<[i64; 3]> = groups
        .iter()
        .map(|group| ["cpu", "memory", "example.com/x"].map(|name| group.allocatable.get(name)))
        .collect();
    let system = 10 << 20;
    assert_eq!(
        amounts,
        [[1900, (8 << 30) - system, 2], [1500, (6 << 30) - system, 2]]
    );
}

#[test]
fn p_187_statuses_have_upstreams_reasons_and_are_written_only_when_they_change() {
    let now = Timestamp::from_second(1_700_000_000).expect("a time");
    let plain = overlay("o", json!({"requirements": []}));
    let conflict = Verdict::Conflict(Conflict {
        with: "x".to_owned(),
        node_pool: "p".to_owned(),
        instance_type: "t".to_owned(),
        resource: None,
    });
    for (verdict, expected) in [
        (Verdict::InForce, ("True", "ValidationSucceeded", "")),
        (
            Verdict::Invalid("a; b".to_owned()),
            ("False", "RuntimeValidation", "a; b"),
        ),
        (conflict, ("False", "Conflict", "conflict with another overlay")),
    ] {
        let Some(Action::Patch { patch, target, .. }) = status_action(&plain, &verdict, now) else {
            panic!("a patch")
        };
        assert_eq!(target.kind, ObjectKind::NodeOverlay);
        let mut written = NodeOverlay::clone(&plain);
        written.status = Some(serde_json::from_value(patch["status"].clone()).expect("a status"));
        let condition = written.condition(VALIDATION_SUCCEEDED).expect("a condition");
        let found = (
            condition.status.as_str(),
            condition.reason.as_str(),
            condition.message.as_str(),
        );
        assert_eq!(found, expected);
        assert_eq!(written.is_true("Ready"), verdict == Verdict::InForce);
        assert_eq!(status_action(&written, &verdict, now), None, "it says so already");
    }
}
