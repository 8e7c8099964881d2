//! Who looks further than to the domain that comes first, when, and how far; and which domains there are to look at.

use serde_json::{Value, json};
use spokeshave_example::{instance_type, node_pool};
use spokeshave_model::{CapacityType, ClusterState, InstanceType, Offering, labels};

use super::super::summary;
use super::{asking, near, of_app, planned, pods_by_zone, spread, text, types_by_zone};
use crate::support::{ZONES, run, types};

fn even(more: &Value) -> Value {
    json!({"topologySpreadConstraints": [spread("web", more)]})
}

#[test]
fn p_080_p_108_the_first_of_its_kind_begins_where_it_has_a_place_before_others_settle_elsewhere() {
    let state = ClusterState::default().with_pool(node_pool("default"), types_by_zone());
    let together = json!({"affinity": near("podAffinity", "db")});
    // The small one alone would go to zone a, where no large one is sold; they do not fit on one node.
    let pods = [("large", "15500m"), ("small", "1")];
    let pods = pods.map(|(name, cpu)| of_app("db", name, cpu, together.clone()));
    assert_eq!(planned(&state.with_pods(pods)), [text("b"), text("b")]);
}

#[test]
fn p_083_p_108_the_heaviest_node_pool_that_can_begins() {
    let mut heavy = node_pool("heavy");
    heavy.spec.weight = Some(50);
    let state = ClusterState::default()
        .with_pool(heavy, types_by_zone())
        .with_pool(node_pool("light"), types());
    let first = |spec: &Value| {
        let pod = of_app("web", "p", "8", spec.clone());
        summary(&run(&state.clone().with_pod(pod)))
    };
    let together = json!({"affinity": near("podAffinity", "web")});
    assert_eq!(first(&together), ["heavy/large: p"]);
    // Others do not follow where a spread goes first: the next one goes elsewhere anyway.
    assert_eq!(first(&even(&json!({}))), ["light/large: p"]);
}

#[test]
fn p_087_p_101_the_last_of_very_many_domains_is_found_if_it_is_the_only_one() {
    let mut types: Vec<InstanceType> = (0..300)
        .map(|number| instance_type(&format!("t{number:03}"), 2, 4, &["a"]))
        .collect();
    types.push(instance_type("zz", 16, 32, &["a"]));
    let over_types = even(&json!({"topologyKey": labels::INSTANCE_TYPE}));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types)
        .with_pod(of_app("web", "p", "8", over_types));
    assert_eq!(summary(&run(&state)), ["default/zz: p"]);
}

#[test]
fn p_080_p_090_pods_that_have_no_place_anywhere_are_looked_at_no_more_than_needed() {
    let state = ClusterState::default().with_pool(node_pool("default"), types_by_zone());
    let attempts = |more: &Value| {
        let pods = ["p1", "p2"].map(|name| of_app("web", name, "100", even(more)));
        let (_, packing) = run(&state.clone().with_pods(pods));
        assert_eq!(packing.unplaced.len(), 2);
        packing.statistics.attempts
    };
    // Once with the rule and once without it, which leaves no domain out.
    assert_eq!(attempts(&json!({"whenUnsatisfiable": "ScheduleAnyway"})), 2);
    // Once with the first domain and once with all of them.
    assert_eq!(attempts(&json!({})), 2);
}

#[test]
fn p_105_p_106_domains_are_those_where_the_offerings_are_that_are_asked_for() {
    let mut spec = even(&json!({}));
    spec["nodeSelector"] = json!({labels::CAPACITY_TYPE: "spot"});
    let pods = ["p1", "p2"].map(|name| of_app("web", name, "1500m", spec.clone()));
    let sold = |is_known_in_b: bool| {
        let mut small = instance_type("small", 2, 4, &ZONES);
        let is_spot = |offering: &Offering| offering.capacity_type() == Some(CapacityType::Spot);
        small.offerings.retain(|offering| {
            let is_known = offering.zone() == Some("a") || (is_known_in_b && offering.zone() == Some("b"));
            is_known || !is_spot(offering)
        });
        for offering in &mut small.offerings {
            offering.available = offering.zone() != Some("b") || !is_spot(offering);
        }
        let state = ClusterState::default().with_pool(node_pool("default"), vec![small]);
        state.with_pods(pods.clone())
    };
    // The type says of itself that it is in zones b and c as well, but not as spot.
    assert_eq!(planned(&sold(false)), [text("a"), text("a")]);
    // Where it is sold out for the moment, there will be one again.
    let result = run(&sold(true));
    assert_eq!(result.1.unplaced.len(), 1, "{:?}", summary(&result));
}

#[test]
fn p_105_p_106_domains_of_node_pools_that_the_pods_do_not_tolerate_are_no_minimum() {
    let mut tainted = node_pool("gpu");
    let taint = json!([{"key": "gpu", "effect": "NoSchedule"}]);
    tainted.spec.template.spec.taints = serde_json::from_value(taint).expect("taints");
    let state = ClusterState::default()
        .with_pool(tainted, types())
        .with_pool(asking(node_pool("general"), labels::ZONE, &["a", "b"]), types());
    for policy in ["Ignore", "Honor"] {
        let spec = even(&json!({"nodeTaintsPolicy": policy}));
        let pods = ["p1", "p2", "p3", "p4"].map(|name| of_app("web", name, "1500m", spec.clone()));
        let result = run(&state.clone().with_pods(pods));
        let evenly = [(text("a"), 2), (text("b"), 2)];
        assert_eq!(pods_by_zone(&result), evenly, "{policy}: {:?}", summary(&result));
    }
}
