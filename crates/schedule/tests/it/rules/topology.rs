//! Where pods must be with regard to each other: spread, affinity, anti-affinity.

use serde_json::{Value, json};
use spokeshave_example::{instance_type, node, node_pool};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, labels};
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
