//! What a NodePool may still launch: readiness, limits, minValues, reserved capacity.

use serde_json::json;
use spokeshave_example::{instance_type, node, node_pool, pending_pod};
use spokeshave_model::{CapacityType, ClusterState, InstanceType, Requirement, labels};
use spokeshave_schedule::{MinValuesPolicy, PackOptions, SkippedPool};

use super::{limited, pod, repelling, summary};
use crate::support::{ZONES, left_by_cheapest, room, run, run_with, types};

#[test]
fn p_059_no_ready_pool() {
    let mut pool = node_pool("default");
    pool.status = None;
    let state = ClusterState::default()
        .with_pool(pool, types())
        .with_pod(pod("p", "1", json!({})));
    assert_eq!(summary(&run(&state)), ["p: no dynamic nodepools found"]);
}

#[test]
fn p_093_example_4_limits_partial_scheduling() {
    let state = ClusterState::default()
        .with_pool(
            limited("default", &[("cpu", "3")]),
            vec![
                instance_type("two", 2, 4, &ZONES),
                instance_type("three", 3, 6, &ZONES),
            ],
        )
        .with_pods([repelling("p1", "1500m"), repelling("p2", "1500m")]);
    assert_eq!(
        summary(&run(&state)),
        [
            "default/two: p1",
            "p2: all available instance types exceed limits for nodepool (NodePool=default)"
        ]
    );
}

#[test]
fn p_094_b_44_example_5_node_limit_holds_within_a_pass_too() {
    let state = ClusterState::default()
        .with_pool(limited("default", &[("nodes", "2")]), types())
        .with_pods(["p1", "p2", "p3"].map(|name| repelling(name, "1")));
    assert_eq!(
        summary(&run(&state)),
        [
            "default/small: p1",
            "default/small: p2",
            "p3: node limits have been exhausted for nodepool (NodePool=default)"
        ]
    );
    let types = types();
    let state = ClusterState::default()
        .with_pool(limited("default", &[("nodes", "1")]), types.clone())
        .with_node(node("default", "n", &types[0], "a", "spot"))
        .with_pod(pod("p", "3", json!({})));
    assert_eq!(
        summary(&run(&state)),
        ["p: node limits have been exhausted for nodepool (NodePool=default)"]
    );
}

/// Two nodes hold the four pods in one order of claims, which leaves no room; another one leaves one of them over, and has a place for two virtual ones.
#[test]
fn p_186_no_number_of_virtual_pods_makes_up_for_one_that_exists() {
    let real = [
        ("a", "3", "2Gi"),
        ("b", "2", "4Gi"),
        ("c", "3", "4Gi"),
        ("d", "3", "5Gi"),
    ];
    let without = ClusterState::default()
        .with_pool(
            limited("default", &[("nodes", "2")]),
            vec![instance_type("nine", 9, 9, &ZONES)],
        )
        .with_pods(real.map(|(name, cpu, memory)| pending_pod(name, cpu, memory, &json!({}))));
    assert_eq!(left_by_cheapest(&without), (Vec::new(), 0));
    let with = without.with_pods(room(10, "1", "2Gi"));
    assert_eq!(left_by_cheapest(&with), (Vec::new(), 10));
}

/// Among orders that place the pods that exist, the one counts that has a place for more virtual ones.
#[test]
fn p_186_of_orders_that_place_as_many_pods_that_exist_the_one_with_more_room_counts() {
    let state = ClusterState::default()
        .with_pool(
            limited("default", &[("nodes", "2")]),
            vec![instance_type("ten", 10, 10, &ZONES)],
        )
        .with_pods(["a", "b"].map(|name| pending_pod(name, "6", "1Gi", &json!({}))))
        .with_pods(["c", "d"].map(|name| pending_pod(name, "1500m", "1Gi", &json!({}))))
        .with_pods(room(1, "3500m", "1Gi"));
    // Fewest pods first puts `c` and `d` apart, and leaves 2.4 cores on either node.
    assert_eq!(left_by_cheapest(&state), (Vec::new(), 0));
}

/// NodePool `default`, whose NodeClaims must leave the choice between three instance types.
fn with_three_types_at_least() -> spokeshave_api::NodePool {
    let mut pool = node_pool("default");
    let mut wanted =
        spokeshave_api::Requirement::new(labels::INSTANCE_TYPE, spokeshave_api::Operator::Exists, &[]);
    wanted.min_values = Some(3);
    pool.spec.template.spec.requirements = vec![wanted];
    pool
}

#[test]
fn p_120_example_20_min_values() {
    let state = ClusterState::default()
        .with_pool(with_three_types_at_least(), types())
        .with_pod(pod("p", "3", json!({})));
    let text = summary(&run(&state)).join("");
    assert!(
        text.starts_with(
            "p: minValues requirement is not met for label(s) (label(s)=[node.kubernetes.io/instance-type]"
        ),
        "{text}"
    );
    let best_effort = PackOptions {
        min_values: MinValuesPolicy::BestEffort,
        ..PackOptions::default()
    };
    let result = run_with(&state, &best_effort);
    assert_eq!(summary(&result), ["default/medium: p"]);
    let claim = &result.1.placements.claims[0];
    assert!(claim.min_values_relaxed);
    assert_eq!(
        claim
            .requirements
            .find(labels::INSTANCE_TYPE)
            .and_then(Requirement::min_values),
        Some(2)
    );
}

// The NodePool alone has two of the three types that it wants: Strict skips it, BestEffort launches with what there is.
#[test]
fn p_120_a_node_pool_without_enough_types_of_its_own() {
    let mut pool = with_three_types_at_least();
    let small = spokeshave_api::Requirement::new(
        labels::INSTANCE_TYPE,
        spokeshave_api::Operator::NotIn,
        &[types()[0].name.as_ref()],
    );
    pool.spec.template.spec.requirements.push(small);
    let state = ClusterState::default()
        .with_pool(pool, types())
        .with_pod(pod("p", "1", json!({})));
    let strict = run(&state);
    assert_eq!(strict.1.placements.claims.len(), 0);
    assert!(
        matches!(
            strict.1.skipped_pools.as_slice(),
            [(_, SkippedPool::NoCompatibleInstanceTypes { min_values: true })]
        ),
        "{:?}",
        strict.1.skipped_pools
    );
    let best_effort = PackOptions {
        min_values: MinValuesPolicy::BestEffort,
        ..PackOptions::default()
    };
    let relaxed = run_with(&state, &best_effort);
    assert_eq!(relaxed.1.skipped_pools.len(), 0);
    let claim = &relaxed.1.placements.claims[0];
    assert!(claim.min_values_relaxed);
    let wanted = claim
        .requirements
        .find(labels::INSTANCE_TYPE)
        .and_then(Requirement::min_values);
    assert_eq!(wanted, Some(2));
}

// A NodeClaim with fewer values than minValues would be refused by the API server, in every pass again.
#[test]
fn p_005_p_120_a_pod_that_leaves_fewer_values_than_min_values_is_refused_or_lowers_it() {
    let best_effort = PackOptions {
        min_values: MinValuesPolicy::BestEffort,
        ..PackOptions::default()
    };
    let mut on_demand = types();
    for offering in on_demand.iter_mut().flat_map(|one| &mut one.offerings) {
        offering.available = offering.capacity_type() == Some(CapacityType::OnDemand);
    }
    let select = |key: &str, value: &str| json!({"nodeSelector": {key: value}});
    for (key, types, spec) in [
        (labels::ZONE, types(), select(labels::ZONE, "b")),
        (
            labels::CAPACITY_TYPE,
            types(),
            select(labels::CAPACITY_TYPE, "on-demand"),
        ),
        // The pod does not mind, and there is no spot to be had.
        (labels::CAPACITY_TYPE, on_demand, json!({})),
    ] {
        let mut wanted = spokeshave_api::Requirement::new(key, spokeshave_api::Operator::Exists, &[]);
        wanted.min_values = Some(2);
        let mut pool = node_pool("default");
        pool.spec.template.spec.requirements = vec![wanted];
        let state = ClusterState::default()
            .with_pool(pool, types)
            .with_pod(pod("p", "1", spec));
        let text = summary(&run(&state)).join("");
        let expected = format!("p: minValues requirement is not met for label(s) (label(s)=[{key}]");
        assert!(text.starts_with(&expected), "{text}");
        let result = run_with(&state, &best_effort);
        let claim = &result.1.placements.claims[0];
        assert!(claim.min_values_relaxed);
        let asked = claim.requirements.find(key);
        assert_eq!(asked.and_then(Requirement::min_values), Some(1), "{key}");
    }
}

#[test]
fn p_120_two_values_are_enough_for_min_values_of_two() {
    let mut wanted = spokeshave_api::Requirement::new(labels::ZONE, spokeshave_api::Operator::Exists, &[]);
    wanted.min_values = Some(2);
    let mut pool = node_pool("default");
    pool.spec.template.spec.requirements = vec![wanted];
    let zones =
        json!([{"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": ["a", "c"]}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}});
    let state = ClusterState::default().with_pool(pool, types()).with_pod(pod(
        "p",
        "1",
        json!({"affinity": {"nodeAffinity": required}}),
    ));
    assert_eq!(summary(&run(&state)), ["default/small: p"]);
}

#[test]
fn p_064_truncation_keeps_the_cheapest_and_rechecks_min_values() {
    let options = PackOptions {
        instance_types_per_claim: 2,
        ..PackOptions::default()
    };
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1", json!({})));
    assert_eq!(
        run_with(&state, &options).1.placements.claims[0].launches.len(),
        2
    );
    let state = ClusterState::default()
        .with_pool(with_three_types_at_least(), types())
        .with_pod(pod("p", "1", json!({})));
    let text = summary(&run_with(&state, &options)).join("");
    assert!(text.starts_with("p: pod didn’t schedule because NodePool couldn’t meet minValues requirements, validating minValues, "), "{text}");
}

/// Names the reservation of an offering.
const LABEL: &str = "example.com/reservation-id";

/// A type with a reservation beside what anybody can buy.
fn with_reservation(name: &str, id: &str, capacity: i64) -> InstanceType {
    let mut instance_type = instance_type(name, 2, 4, &["a"]);
    for offering in &mut instance_type.offerings {
        offering.requirements.add(Requirement::does_not_exist(LABEL));
    }
    let mut reserved = spokeshave_example::offering("a", "reserved", spokeshave_model::Price(1));
    reserved.requirements.add(Requirement::is(LABEL, id));
    reserved.reservation_id_label = Some(LABEL.to_owned());
    reserved.reservation_capacity = capacity;
    instance_type.offerings.push(reserved);
    instance_type.requirements.replace(Requirement::one_of(
        labels::CAPACITY_TYPE,
        ["on-demand", "spot", "reserved"],
    ));
    instance_type.requirements.add(Requirement::one_of(LABEL, [id]));
    instance_type
}

#[test]
fn p_119_example_19_reserved_capacity() {
    let mut light = node_pool("light");
    light.spec.weight = Some(1);
    let mut heavy = node_pool("heavy");
    heavy.spec.weight = Some(9);
    let state = ClusterState::default()
        .with_pool(heavy, vec![with_reservation("small", "r-1", 1)])
        .with_pool(light, types())
        .with_pods([repelling("p1", "1"), repelling("p2", "1")]);
    let result = run(&state);
    assert_eq!(
        summary(&result),
        [
            "heavy/small: p1",
            "p2: one or more instance types with compatible reserved offerings are available, but could not be reserved"
        ]
    );
    assert!(!result.1.unplaced[0].reason.is_reported());
    let claim = &result.1.placements.claims[0];
    assert_eq!(
        claim.requirements.get(LABEL).to_string(),
        "example.com/reservation-id In [r-1]"
    );
    assert_eq!(
        claim
            .capacity_types
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        ["reserved"]
    );
    assert_eq!(claim.launches[0].price, spokeshave_model::Price(1));
    let fallback = PackOptions {
        reserved: spokeshave_schedule::ReservedPolicy::Fallback,
        ..PackOptions::default()
    };
    let result = run_with(&state, &fallback);
    assert_eq!(summary(&result), ["heavy/small: p1", "heavy/small: p2"]);
    // A pod that rules reserved capacity out does not join the node that holds it; the deferred one may then join its node.
    let spot = pod(
        "p3",
        "200m",
        json!({"nodeSelector": {"karpenter.sh/capacity-type": "spot"}}),
    );
    let result = run(&state.with_pod(spot));
    assert_eq!(summary(&result), ["heavy/small: p1", "heavy/small: p3 p2"]);
}

// Launched from its reservation, a NodeClaim has one capacity type to choose from: Strict would refuse it in every pass.
#[test]
fn p_119_p_120_reserved_capacity_has_one_capacity_type_whatever_min_values_asks() {
    let mut wanted = spokeshave_api::Requirement::new(
        labels::CAPACITY_TYPE,
        spokeshave_api::Operator::In,
        &["on-demand", "spot", "reserved"],
    );
    wanted.min_values = Some(2);
    let mut pool = node_pool("default");
    pool.spec.template.spec.requirements = vec![wanted];
    let state = ClusterState::default()
        .with_pool(pool, vec![with_reservation("small", "r-1", 1)])
        .with_pod(pod("p", "1", json!({})));
    let result = run(&state);
    assert_eq!(summary(&result), ["default/small: p"]);
    let claim = &result.1.placements.claims[0];
    let asked = claim.requirements.get(labels::CAPACITY_TYPE);
    assert!(asked.has("reserved") && !asked.has("spot"));
    assert_eq!(asked.min_values(), Some(1));
    assert!(claim.min_values_relaxed);
}

/// The usual types, of which the first can also be reserved.
fn types_with_a_reservation(capacity: i64) -> Vec<InstanceType> {
    let mut all = types();
    all[0] = with_reservation("small", "r-1", capacity);
    all
}

// Launched from its reservation, a NodeClaim has one instance type to choose from, and Strict would refuse it in every pass, although there are three to buy.
#[test]
fn p_119_p_120_strict_gives_up_a_reservation_that_leaves_too_few_types() {
    // Nobody waits for an instance that would be given up.
    for capacity in [1, 0] {
        let state = ClusterState::default()
            .with_pool(with_three_types_at_least(), types_with_a_reservation(capacity))
            .with_pods([repelling("p1", "1"), repelling("p2", "1")]);
        let result = run(&state);
        assert_eq!(
            summary(&result),
            ["default/small: p1", "default/small: p2"],
            "{capacity} free"
        );
        for claim in &result.1.placements.claims {
            let asked = claim.requirements.get(labels::CAPACITY_TYPE);
            assert!(asked.has("spot") && asked.has("on-demand") && !asked.has("reserved"));
            assert!(!claim.capacity_types.contains("reserved"));
            assert_eq!(claim.launches.len(), 3);
            assert!(!claim.min_values_relaxed);
        }
    }
}

#[test]
fn p_119_p_120_where_a_reservation_is_kept_less_is_asked_for() {
    let best_effort = PackOptions {
        min_values: MinValuesPolicy::BestEffort,
        ..PackOptions::default()
    };
    // Of the three types one comes as reserved capacity only: without the reservation there would be too few as well.
    let mut only_together = types_with_a_reservation(1);
    only_together[0]
        .offerings
        .retain(|offering| offering.capacity_type() == Some(CapacityType::Reserved));
    for (types, options) in [
        (types_with_a_reservation(1), best_effort),
        (only_together, PackOptions::default()),
    ] {
        let state = ClusterState::default()
            .with_pool(with_three_types_at_least(), types)
            .with_pod(pod("p", "1", json!({})));
        let result = run_with(&state, &options);
        assert_eq!(summary(&result), ["default/small: p"]);
        let claim = &result.1.placements.claims[0];
        assert!(claim.capacity_types.iter().eq(["reserved"]));
        let asked = claim.requirements.get(labels::INSTANCE_TYPE);
        assert_eq!(asked.min_values(), Some(1));
        assert!(claim.min_values_relaxed);
    }
}

// The smaller of two reserved types does not hold both pods, so that the second pod would leave one.
#[test]
fn p_119_p_120_a_pod_joins_no_claim_whose_reservations_would_be_too_few_then() {
    let mut pool = with_three_types_at_least();
    pool.spec.template.spec.requirements[0].min_values = Some(2);
    let medium = InstanceType {
        capacity: instance_type("medium", 4, 8, &["a"]).capacity,
        ..with_reservation("medium", "r-2", 2)
    };
    let types = vec![
        with_reservation("small", "r-1", 2),
        medium,
        instance_type("large", 16, 32, &ZONES),
    ];
    let state = ClusterState::default()
        .with_pool(pool, types)
        .with_pods([pod("p1", "1500m", json!({})), pod("p2", "1", json!({}))]);
    let result = run(&state);
    assert_eq!(summary(&result), ["default/small: p1", "default/small: p2"]);
    for claim in &result.1.placements.claims {
        assert!(claim.capacity_types.iter().eq(["reserved"]));
        assert_eq!(claim.launches.len(), 2);
    }
}
