//! Why a NodePool launches nothing, as users are told.

use serde_json::{Value, json};
use spokeshave_example::{instance_type, node_pool};
use spokeshave_model::{ClusterState, InstanceType, lower};
use spokeshave_plan::MinValuesPolicy;
use spokeshave_plan::standing::{is_sold_out, no_instance_type};

const TYPE: &str = "node.kubernetes.io/instance-type";
const ZONE: &str = "topology.kubernetes.io/zone";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

/// Two types, of which none is available as one of these capacity types.
fn types(sold_out: &[&str]) -> Vec<InstanceType> {
    let mut types = vec![
        instance_type("small", 2, 4, &["a"]),
        instance_type("large", 16, 32, &["a", "b"]),
    ];
    for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
        let capacity_type = offering.capacity_type().map(|it| it.as_str());
        offering.available = capacity_type.is_some_and(|it| !sold_out.contains(&it));
    }
    types
}

/// What is said of a NodePool that asks for one of these values of each label, and whether its instance types are called sold out.
fn told(wanted: &[(&str, &str)], types: Vec<InstanceType>) -> (Option<String>, bool) {
    let requirement = |(key, value): &(&str, &str)| json!({"key": key, "operator": "In", "values": [value]});
    let requirements: Vec<Value> = wanted.iter().map(requirement).collect();
    let mut pool = node_pool("default");
    pool.spec.template.spec.requirements =
        serde_json::from_value(Value::Array(requirements)).expect("requirements");
    let snapshot = lower(&ClusterState::default().with_pool(pool, types));
    let pool = &snapshot.pools[0];
    let why = no_instance_type(&snapshot, pool, MinValuesPolicy::Strict);
    (why, is_sold_out(&snapshot, pool))
}

#[test]
fn invariant_24_where_all_is_sold_out_no_requirement_is_blamed() {
    let everything = ["on-demand", "spot"];
    let sold_out = |text: &str| (Some(text.to_owned()), true);
    assert_eq!(
        told(&[], types(&everything)),
        sold_out("the 2 instance types of 2 that meet its requirements have no available offering")
    );
    assert_eq!(
        told(&[(TYPE, "small")], types(&everything)),
        sold_out("the 1 instance type of 2 that meets its requirements has no available offering")
    );
    assert_eq!(
        told(&[(CAPACITY_TYPE, "spot")], types(&["spot"])),
        sold_out("the 2 instance types of 2 that meet its requirements have no available offering")
    );
    assert_eq!(
        told(&[(CAPACITY_TYPE, "on-demand")], types(&["spot"])),
        (None, false)
    );
}

/// What is not sold at all does not come back.
#[test]
fn invariant_24_what_no_instance_type_meets_is_named_also_where_all_is_sold_out() {
    let cases: [&[&str]; 2] = [&[], &["on-demand", "spot"]];
    for gone in cases {
        let (why, is_sold_out) = told(&[(ZONE, "a"), (TYPE, "huge")], types(gone));
        let named = "node.kubernetes.io/instance-type In [huge] leaves none of 2 instance types";
        assert_eq!((why.as_deref(), is_sold_out), (Some(named), false));
        let (why, is_sold_out) = told(&[(ZONE, "b"), (TYPE, "small")], types(gone));
        let why = why.expect("a reason");
        assert!(
            why.ends_with(" together leave none of 2 instance types")
                && why.contains("node.kubernetes.io/instance-type In [small]")
                && why.contains("topology.kubernetes.io/zone In [b]"),
            "{why}"
        );
        assert!(!is_sold_out);
    }
}
