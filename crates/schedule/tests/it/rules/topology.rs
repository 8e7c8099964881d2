//! Where pods must be with regard to each other: spread, affinity, anti-affinity.

use std::sync::Arc;

use serde_json::{Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_example::{bound, instance_type, labelled, node, node_pool};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, Pod, labels};
use spokeshave_schedule::Packing;

use super::{pod, summary, zones};
use crate::support::{ZONES, run, types};

#[test]
fn p_101_example_8_zone_and_hostname_spread() {
    let spread = |key: &str, skew: i32, extra: Value| {
        let mut constraint = json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}});
        constraint
            .as_object_mut()
            .expect("a map")
            .extend(extra.as_object().cloned().unwrap_or_default());
        json!({"topologySpreadConstraints": [constraint]})
    };
    let web = |count: usize, spec: &Value| {
        (0..count)
            .map(|index| {
                spokeshave_example::labelled(
                    pod(&format!("p{index:02}"), "100m", spec.clone()),
                    &[("app", "web")],
                )
            })
            .collect::<Vec<_>>()
    };
    let pods_by_zone = |result: &(Snapshot, Packing)| {
        let mut zones: Vec<(String, usize)> = result
            .1
            .placements
            .claims
            .iter()
            .map(|claim| (claim.requirements.get(labels::ZONE).to_string(), claim.pods.len()))
            .collect();
        zones.sort();
        zones
    };
    let state = ClusterState::default().with_pool(node_pool("default"), types());
    let result = run(&state
        .clone()
        .with_pods(web(7, &spread(labels::ZONE, 1, json!({})))));
    let text = |zone: &str| format!("topology.kubernetes.io/zone In [{zone}]");
    assert_eq!(
        pods_by_zone(&result),
        [(text("a"), 3), (text("b"), 2), (text("c"), 2)]
    );
    let result = run(&state.with_pods(web(10, &spread(labels::HOSTNAME, 4, json!({})))));
    assert!(
        result.1.unplaced.is_empty()
            && result
                .1
                .placements
                .claims
                .iter()
                .all(|claim| claim.pods.len() <= 4)
    );
    // P-102, example 6: too few domains count as a minimum of zero.
    let two = vec![instance_type("small", 2, 4, &["a", "b"])];
    let state = ClusterState::default().with_pool(node_pool("default"), two);
    let result = run(&state.with_pods(web(3, &spread(labels::ZONE, 1, json!({"minDomains": 3})))));
    assert_eq!(pods_by_zone(&result), [(text("a"), 1), (text("b"), 1)]);
    assert_eq!(result.1.unplaced.len(), 1);
    assert!(result.1.unplaced[0].reason.to_string().starts_with("unsatisfiable topology constraint for topology spread, key=topology.kubernetes.io/zone (counts = a: 1, b: 1"), "{}", result.1.unplaced[0].reason);
}

#[test]
fn p_105_example_7_spread_counts_only_domains_the_pod_may_use() {
    let types = types();
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("default", "n", &types[2], "a", "spot"));
    for index in 0..3 {
        state = state.with_pod(spokeshave_example::labelled(
            spokeshave_example::bound(pod(&format!("old{index}"), "100m", json!({})), "n"),
            &[("app", "web")],
        ));
    }
    let spec = json!({"nodeSelector": {"topology.kubernetes.io/zone": "a"}, "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let state = state.with_pod(spokeshave_example::labelled(
        pod("p", "100m", spec),
        &[("app", "web")],
    ));
    assert_eq!(summary(&run(&state)), ["n: p"]);
}

/// A spread over zones of pods `app: web`, with more fields.
fn web_spread(name: &str, cpu: &str, policies: &Value, spec: &Value) -> spokeshave_model::Pod {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    let mut merged = spec.clone();
    if let (Some(into), Some(from)) = (constraint.as_object_mut(), policies.as_object()) {
        into.extend(from.clone());
    }
    merged["topologySpreadConstraints"] = json!([constraint]);
    spokeshave_example::labelled(pod(name, cpu, merged), &[("app", "web")])
}

#[test]
fn p_105_soft_taints_hide_no_node_from_a_spread_that_honours_taints() {
    let types = vec![instance_type("small", 2, 4, &["a", "b"])];
    let (full, claim) = node("default", "full", &types[0], "a", "spot");
    let state = |effect: &str| {
        let mut full = full.clone();
        full.spec.get_or_insert_default().taints =
            serde_json::from_value(json!([{"key": "t", "effect": effect}])).ok();
        let web = |name: &str| web_spread(name, "900m", &json!({"nodeTaintsPolicy": "Honor"}), &json!({}));
        ClusterState::default()
            .with_pool(node_pool("default"), types.clone())
            .with_node((full, claim.clone()))
            .with_pods(["old-1", "old-2"].map(|name| spokeshave_example::bound(web(name), "full")))
            .with_pod(web("new"))
    };
    // Zone a has two of the pods; behind a taint that keeps pods away they do not count.
    let text = |zone: &str| format!("topology.kubernetes.io/zone In [{zone}]");
    assert_eq!(zones(&run(&state("PreferNoSchedule"))), [text("b")]);
    assert_eq!(zones(&run(&state("NoSchedule"))), [text("a")]);
}

#[test]
fn p_105_a_spread_that_ignores_affinity_is_compared_with_nodes_that_its_pods_may_not_use() {
    let types = types();
    let pods = |policy: &str| {
        let pinned = json!({"nodeSelector": {labels::ZONE: "a"}});
        let policy = json!({"nodeAffinityPolicy": policy});
        ["w1", "w2", "w3"].map(|name| web_spread(name, "1500m", &policy, &pinned))
    };
    let pool = ClusterState::default().with_pool(node_pool("default"), types.clone());
    let with_other = pool
        .clone()
        .with_node(node("default", "other", &types[0], "b", "spot"));
    let unplaced = |state: &ClusterState, policy: &str| {
        let (_, packing) = run(&state.clone().with_pods(pods(policy)));
        packing.unplaced.len()
    };
    // Zone b stays empty, so that zone a may hold one pod: nodes for more would be bought in vain.
    assert_eq!(unplaced(&with_other, "Ignore"), 2);
    assert_eq!(unplaced(&with_other, "Honor"), 0);
    // A zone without nodes is none for kube-scheduler.
    assert_eq!(unplaced(&pool, "Ignore"), 0);
}

#[test]
fn p_106_a_planned_node_is_spread_over_domains_its_pool_can_reach() {
    let types = types();
    let spec = json!({"topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]});
    // A full node in a zone that the pool does not offer has the fewest pods, and cannot be where the new node goes.
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("elsewhere", "far", &types[0], "far-away", "spot"))
        .with_pod(spokeshave_example::bound(
            pod("filler", "1900m", json!({})),
            "far",
        ))
        .with_pod(spokeshave_example::labelled(
            pod("p", "1", spec),
            &[("app", "web")],
        ));
    assert_eq!(summary(&run(&state)), ["default/small: p"]);
}

#[test]
fn p_108_examples_11_12_pod_affinity() {
    let together = |name: &str, label: &str, target: &str, extra: Value| {
        let mut spec = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": target}}}]}}});
        spec.as_object_mut()
            .expect("a map")
            .extend(extra.as_object().cloned().unwrap_or_default());
        spokeshave_example::labelled(pod(name, "1500m", spec), &[("app", label)])
    };
    let state =
        ClusterState::default().with_pool(node_pool("default"), vec![instance_type("small", 2, 4, &ZONES)]);
    let result = run(&state.clone().with_pods([
        together("p1", "web", "web", json!({})),
        together("p2", "web", "web", json!({})),
    ]));
    assert_eq!(
        zones(&result),
        [
            "topology.kubernetes.io/zone In [a]",
            "topology.kubernetes.io/zone In [a]"
        ]
    );
    let result = run(&state.clone().with_pod(together("p1", "other", "web", json!({}))));
    assert!(
        summary(&result)[0].contains("unsatisfiable topology constraint for pod affinity"),
        "{:?}",
        summary(&result)
    );
    // The populated zone is excluded by the selector of the second pod: a second bootstrap is allowed.
    let pinned = |zone: &str| json!({"nodeSelector": {"topology.kubernetes.io/zone": zone}});
    let result = run(&state.with_pods([
        together("p1", "web", "web", pinned("b")),
        together("p2", "web", "web", pinned("c")),
    ]));
    assert_eq!(result.1.placements.claims.len(), 2);
}

#[test]
fn p_109_p_110_examples_9_10_anti_affinity_and_its_inverse() {
    let zonal = |name: &str| {
        let spec = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
        pod(name, "1", spec)
    };
    let web = |name: &str| spokeshave_example::labelled(pod(name, "500m", json!({})), &[("app", "web")]);
    let types = types();
    let state = ClusterState::default().with_pool(node_pool("default"), types.clone());
    let result = run(&state.clone().with_pods([zonal("shy"), web("web")]));
    assert_eq!(result.1.unplaced.len(), 1, "{:?}", summary(&result));
    assert!(
        result.1.unplaced[0]
            .reason
            .to_string()
            .contains("pod anti-affinity")
    );
    // A running pod in zone a keeps the others out of zone a only.
    let state = state
        .with_node(node("default", "n", &types[2], "a", "spot"))
        .with_pod(spokeshave_example::bound(zonal("shy"), "n"))
        .with_pod(web("web"));
    let result = run(&state);
    assert_eq!(zones(&result)[0], "topology.kubernetes.io/zone In [b c]");
}

#[test]
fn p_112_preferred_anti_affinity_is_given_up_when_it_cannot_be() {
    let spec = json!({"nodeSelector": {"topology.kubernetes.io/zone": "a"}, "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "web"}}}}]}}});
    let state = ClusterState::default().with_pool(node_pool("default"), types());
    let pods = ["p1", "p2"]
        .map(|name| spokeshave_example::labelled(pod(name, "100m", spec.clone()), &[("app", "web")]));
    assert!(run(&state.with_pods(pods)).1.unplaced.is_empty());
}

/// A NodeClaim that has no instance yet and may be launched in some zones, as planning sees it.
fn standing_in(name: &str, zones: &[&str]) -> NodeClaim {
    let (_, mut claim) = node("default", name, &types()[0], "a", "spot");
    let zone = json!([{"key": labels::ZONE, "operator": "In", "values": zones}]);
    claim.spec.requirements = serde_json::from_value(zone).expect("requirements");
    let own = claim.metadata.labels.get_or_insert_default();
    own.remove(labels::INSTANCE_TYPE);
    own.remove(labels::ZONE);
    if let [only] = zones {
        own.insert(labels::ZONE.to_owned(), (*only).to_owned());
    }
    let status = claim.status.get_or_insert_default();
    status.provider_id = Some(format!("in-flight://{name}"));
    status.allocatable.clear();
    claim
}

#[test]
fn p_107_p_109_pods_count_where_the_nodeclaim_that_they_wait_for_will_be() {
    let term = json!([{"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let required =
        |kind: &str| json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": term}}});
    let web = |name: &str, spec: Value| labelled(pod(name, "100m", spec), &[("app", "web")]);
    let apart = |name: &str| web(name, required("podAntiAffinity"));
    let spread = |name: &str| web_spread(name, "100m", &json!({}), &json!({}));
    let plain = |name: &str| web(name, json!({}));
    let zones_of = |launching: &[&str], awaits: Option<Pod>, waits: Pod| {
        let mut state = ClusterState::default()
            .with_pool(node_pool("default"), types())
            .with_pods(awaits.map(|pod| bound(pod, "in-flight://n")))
            .with_pod(waits);
        state.node_claims.push(Arc::new(standing_in("n", launching)));
        let result = run(&state);
        assert!(
            result.1.placements.existing.is_empty(),
            "it has room for nobody else"
        );
        zones(&result)
    };
    let text = |zones: &str| vec![format!("topology.kubernetes.io/zone In [{zones}]")];
    assert_eq!(zones_of(&["a"], Some(spread("old")), spread("new")), text("b"));
    assert_eq!(zones_of(&["a"], None, spread("new")), text("a"));
    let together = labelled(pod("new", "100m", required("podAffinity")), &[("app", "other")]);
    assert_eq!(zones_of(&["c"], Some(plain("old")), together), text("c"));
    // Which zone it will be is open: none of them may be the same, whichever of the two does not want the other.
    assert_eq!(zones_of(&["a", "b"], Some(apart("old")), plain("new")), text("c"));
    assert_eq!(zones_of(&["a", "b"], Some(plain("old")), apart("new")), text("c"));
    // A spread cannot count what is open.
    assert_eq!(
        zones_of(&["a", "b"], Some(spread("old")), spread("new")),
        text("a")
    );
}

#[test]
fn p_107_p_109_a_nodeclaim_with_room_takes_a_pod_that_may_be_in_each_of_its_zones() {
    let term = json!([{"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let apart =
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}});
    let web = |name: &str, spec: &Value| labelled(pod(name, "100m", spec.clone()), &[("app", "web")]);
    let mut launching = standing_in("n", &["a", "b"]);
    let (_, whole) = node("default", "n", &types()[0], "a", "spot");
    launching.status.get_or_insert_default().allocatable = whole.status.unwrap_or_default().allocatable;
    let mut state = ClusterState::default().with_pool(node_pool("default"), types());
    state.node_claims.push(Arc::new(launching));
    let text = |zones: &str| [format!("topology.kubernetes.io/zone In [{zones}]")];
    // One goes onto it, and is in both zones until it is known in which.
    let result = run(&state.clone().with_pods([web("one", &apart), web("two", &apart)]));
    assert_eq!(result.1.placements.existing.len(), 1, "{:?}", summary(&result));
    assert_eq!(zones(&result), text("c"));
    // It may come up beside the pod that nobody wants.
    let state = state
        .with_node(node("default", "old", &types()[0], "a", "spot"))
        .with_pod(bound(web("old", &json!({})), "old"))
        .with_pod(web("new", &apart));
    let result = run(&state);
    assert!(result.1.placements.existing.is_empty(), "{:?}", summary(&result));
    assert_eq!(zones(&result), text("b c"));
}

#[test]
fn p_109_p_113_a_label_that_nobody_has_keeps_nobody_from_new_nodes() {
    let term = json!([{"topologyKey": "example.com/rack", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let apart =
        json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}});
    let web = |name: &str, spec: &Value| labelled(pod(name, "100m", spec.clone()), &[("app", "web")]);
    let pods = [web("p1", &apart), web("p2", &apart), web("p3", &json!({}))];
    let bare = ClusterState::default().with_pool(node_pool("default"), types());
    let result = run(&bare.clone().with_pods(pods.clone()));
    assert!(result.1.unplaced.is_empty(), "{:?}", summary(&result));
    assert_eq!(result.1.placements.claims.len(), 1);
    // Where a NodePool has racks, the others are no way round them.
    let mut racked = node_pool("racked");
    let racks = json!([{"key": "example.com/rack", "operator": "In", "values": ["r1"]}]);
    racked.spec.template.spec.requirements = serde_json::from_value(racks).expect("requirements");
    let result = run(&bare.with_pool(racked, types()).with_pods(pods));
    assert_eq!(result.1.unplaced.len(), 2, "{:?}", summary(&result));
}
