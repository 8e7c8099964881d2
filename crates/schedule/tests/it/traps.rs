//! Traps of the specification's appendix B.4 that concern packing, decided one by one; docs/compat.md says how.

use crate::support::{ZONES, run, types};
use serde_json::{Value, json};
use spokeshave_api::conditions::{Conditioned as _, Status};
use spokeshave_example::{bound, daemon_set, epoch, instance_type, labelled, node, node_pool, pending_pod};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, labels};
use spokeshave_schedule::Packing;

/// The cheapest type of each planned node.
fn launched((snapshot, packing): &(Snapshot, Packing)) -> Vec<String> {
    let claims = packing.placements.claims.iter();
    let launches = claims.filter_map(|claim| Some((claim.pool, claim.launches.first()?)));
    launches
        .map(|(pool, launch)| {
            snapshot.pool(pool).instance_types[launch.instance_type]
                .name
                .clone()
        })
        .collect()
}

fn spread(more: &Value) -> Value {
    let constraint = json!({"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    let mut spec = json!({"topologySpreadConstraints": [constraint]});
    if let (Some(into), Some(from)) = (spec.as_object_mut(), more.as_object()) {
        into.extend(from.clone());
    }
    spec
}

#[test]
fn b_40_pods_that_differ_in_selector_values_share_no_group() {
    let pinned = |zone: &str| spread(&json!({"nodeSelector": {labels::ZONE: zone}}));
    let mut pods = Vec::new();
    for zone in ["a", "b"] {
        for index in 0..3 {
            pods.push(labelled(
                pending_pod(&format!("{zone}-{index}"), "1", "1Mi", &pinned(zone)),
                &[("app", "web")],
            ));
        }
    }
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods(pods);
    assert_eq!(run(&state).1.unplaced, []);
}

#[test]
fn b_40_min_domains_belong_to_the_group() {
    let with = |least: i32| {
        let mut spec = spread(&json!({}));
        spec["topologySpreadConstraints"][0]["minDomains"] = json!(least);
        spec
    };
    let web = |name: &str, spec: &Value| labelled(pending_pod(name, "1500m", "1Mi", spec), &[("app", "web")]);
    let two_zones = vec![instance_type("small", 2, 4, &ZONES[..2])];
    let state = ClusterState::default()
        .with_pool(node_pool("default"), two_zones)
        .with_pods([web("a-1", &with(1)), web("a-2", &with(1)), web("b", &with(3))]);
    let (snapshot, packing) = run(&state);
    let left: Vec<String> = packing
        .unplaced
        .iter()
        .map(|left| snapshot.pod(left.pod).key())
        .collect();
    assert_eq!(
        left,
        ["default/b"],
        "three zones are wanted, and each of the two has a pod"
    );
}

/// The first pod's node leaves its capacity type open, which the second's node selector names: it counts all the same.
#[test]
fn b_41_a_planned_node_counts_where_its_labels_are_still_open() {
    let first = pending_pod(
        "first",
        "1500m",
        "1Mi",
        &json!({"nodeSelector": {labels::ZONE: "a"}}),
    );
    let second = spread(&json!({"nodeSelector": {labels::CAPACITY_TYPE: "spot"}}));
    let second = pending_pod("second", "100m", "1Mi", &second);
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([first, second].map(|pod| labelled(pod, &[("app", "web")])));
    let (_, packing) = run(&state);
    let zones = packing.placements.claims.iter();
    let zones: Vec<String> = zones
        .map(|claim| claim.requirements.get(labels::ZONE).to_string())
        .collect();
    assert_eq!(
        zones,
        ["a", "b"].map(|zone| format!("{} In [{zone}]", labels::ZONE))
    );
}

#[test]
fn b_43_overhead_of_a_daemon_set_with_several_terms_does_not_depend_on_the_order_of_types() {
    let term = |name: &str| json!({"matchExpressions": [{"key": labels::INSTANCE_TYPE, "operator": "In", "values": [name]}]});
    for (one, other) in [("small", "large"), ("large", "small")] {
        let spec = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [term(one), term(other)]}}}});
        for reversed in [false, true] {
            let mut types = types();
            if reversed {
                types.reverse();
            }
            let state = ClusterState::default()
                .with_pool(node_pool("default"), types)
                .with_daemon_set(daemon_set("agent", "1", "100Mi", &spec));
            let alone = |cpu: &str| {
                let pod = pending_pod("p", cpu, "1Mi", &json!({}));
                launched(&run(&state.clone().with_pod(pod)))
            };
            // It runs on small and large nodes, and takes a core there.
            assert_eq!(alone("900m"), ["small"]);
            assert_eq!(alone("1000m"), ["medium"]);
            assert_eq!(alone("3900m"), ["medium"]);
            assert_eq!(alone("14900m"), ["large"]);
            assert_eq!(alone("15000m"), Vec::<String>::new());
        }
    }
}

#[test]
fn b_58_existing_nodes_take_pods_when_no_node_pool_is_ready() {
    let types = types();
    let mut pool = node_pool("default");
    pool.set("Ready", Status::False, "NodeClassNotReady", "", epoch());
    let state = ClusterState::default()
        .with_pool(pool, types.clone())
        .with_node(node("default", "n", &types[0], "a", "spot"))
        .with_pod(bound(pending_pod("old", "100m", "1Mi", &json!({})), "n"))
        .with_pods([
            pending_pod("fits", "1", "1Mi", &json!({})),
            pending_pod("large", "8", "1Mi", &json!({})),
        ]);
    let (snapshot, packing) = run(&state);
    let placed: Vec<String> = packing
        .placements
        .existing
        .values()
        .flatten()
        .map(|pod| snapshot.pod(*pod).key())
        .collect();
    assert_eq!(placed, ["default/fits"]);
    assert_eq!((packing.placements.claims.len(), packing.unplaced.len()), (0, 1));
}
