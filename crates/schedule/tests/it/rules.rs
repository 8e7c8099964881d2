//! The rules of placement, one test per behaviour, named by its id in the specification.

use crate::support::{ZONES, run, run_with, types};
use serde_json::{Value, json};
use spokeshave_example::{fake_instance_types, instance_type, node, node_pool, pending_pod};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, InstanceType, Requirement, Resources, labels};
use spokeshave_schedule::{MinValuesPolicy, PackOptions, Packing, PreferencePolicy};

/// One line per planned claim, placement on an existing node, and unplaced pod.
fn summary((snapshot, packing): &(Snapshot, Packing)) -> Vec<String> {
    let names = |pods: &[spokeshave_model::snapshot::PodId]| {
        pods.iter()
            .map(|pod| {
                snapshot
                    .pod(*pod)
                    .object
                    .metadata
                    .name
                    .clone()
                    .unwrap_or_default()
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    let existing = packing
        .placements
        .existing
        .iter()
        .map(|(node, pods)| format!("{}: {}", snapshot.node(*node).name, names(pods)));
    let claims = packing.placements.claims.iter().map(|claim| {
        let pool = snapshot.pool(claim.pool);
        format!(
            "{}/{}: {}",
            pool.name,
            pool.instance_types[claim.launches[0].instance_type].name,
            names(&claim.pods)
        )
    });
    let unplaced = packing
        .unplaced
        .iter()
        .map(|unplaced| format!("{}: {}", names(&[unplaced.pod]), unplaced.reason));
    existing.chain(claims).chain(unplaced).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn pod(name: &str, cpu: &str, spec: Value) -> k8s_openapi::api::core::v1::Pod {
    pending_pod(name, cpu, "100Mi", &spec)
}

fn repelling(name: &str, cpu: &str) -> k8s_openapi::api::core::v1::Pod {
    let spec = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    spokeshave_example::labelled(pod(name, cpu, spec), &[("app", "web")])
}

fn limited(name: &str, limits: &[(&str, &str)]) -> spokeshave_api::NodePool {
    let mut pool = node_pool(name);
    pool.spec.limits = Resources::parse(limits.iter().copied())
        .ok()
        .map(|limits| limits.to_quantities());
    if let Some(limits) = &mut pool.spec.limits {
        limits.retain(|_, quantity| !quantity.0.is_empty());
    }
    pool
}

#[test]
fn one_pod_gets_the_cheapest_type_that_holds_it() {
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "3", json!({})));
    assert_eq!(summary(&run(&state)), ["default/medium: p"]);
}

#[test]
fn p_080_largest_first_then_oldest() {
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([
            pod("small", "1", json!({})),
            pod("big", "15", json!({})),
            pod("also-small", "500m", json!({})),
        ]);
    assert_eq!(
        summary(&run(&state)),
        ["default/large: big also-small", "default/small: small"]
    );
}

#[test]
fn p_083_existing_nodes_first_initialised_first_then_by_name() {
    let types = types();
    let (mut starting, mut starting_claim) = node("default", "a-starting", &types[1], "a", "spot");
    for labels in [&mut starting.metadata.labels, &mut starting_claim.metadata.labels]
        .into_iter()
        .flatten()
    {
        labels.remove(labels::INITIALIZED);
    }
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node((starting, starting_claim))
        .with_node(node("default", "c", &types[0], "a", "spot"))
        .with_node(node("default", "b", &types[0], "a", "spot"))
        .with_pods(["p1", "p2", "p3"].map(|name| pod(name, "1500m", json!({}))));
    assert_eq!(summary(&run(&state)), ["b: p1", "c: p2", "a-starting: p3"]);
}

#[test]
fn p_083_planned_claims_with_fewest_pods_first() {
    let small = vec![instance_type("small", 2, 4, &ZONES)];
    let state = ClusterState::default()
        .with_pool(node_pool("default"), small)
        .with_pods([
            pod("p1", "900m", json!({})),
            pod("p2", "800m", json!({})),
            pod("p3", "700m", json!({})),
            pod("p4", "150m", json!({})),
        ]);
    // p1 and p2 share a node, p3 opens another, and p4 joins the node with fewer pods.
    assert_eq!(
        summary(&run(&state)),
        ["default/small: p1 p2", "default/small: p3 p4"]
    );
}

#[test]
fn p_060_example_15_weights_order_pools_ties_by_later_name() {
    let weighted = |name: &str, weight: Option<i32>| {
        let mut pool = node_pool(name);
        pool.spec.weight = weight;
        pool
    };
    let state = ClusterState::default()
        .with_pool(weighted("bare", None), types())
        .with_pool(weighted("ten", Some(10)), types())
        .with_pool(weighted("twenty", Some(20)), types());
    assert_eq!(
        summary(&run(&state.clone().with_pod(pod("p", "1", json!({}))))),
        ["twenty/small: p"]
    );
    let selecting = pod(
        "p",
        "1",
        json!({"nodeSelector": {"karpenter.sh/nodepool": "ten"}}),
    );
    assert_eq!(summary(&run(&state.with_pod(selecting))), ["ten/small: p"]);
    let equal = ClusterState::default()
        .with_pool(weighted("alpha", Some(5)), types())
        .with_pool(weighted("beta", Some(5)), types())
        .with_pod(pod("p", "1", json!({})));
    assert_eq!(summary(&run(&equal)), ["beta/small: p"]);
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

#[test]
fn p_034_example_2_undefined_label() {
    let select = |operator: &str, values: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "team", "operator": operator, "values": values}]}]}}}})
    };
    let state = |spec| {
        ClusterState::default()
            .with_pool(node_pool("default"), types())
            .with_pod(pod("p", "1", spec))
    };
    assert_eq!(
        summary(&run(&state(select("In", json!(["a"]))))),
        [r#"p: incompatible requirements, label "team" does not have known values (NodePool=default)"#]
    );
    assert_eq!(
        summary(&run(&state(select("NotIn", json!(["a"]))))),
        ["default/small: p"]
    );
    let mut labelled = node_pool("default");
    labelled
        .spec
        .template
        .metadata
        .labels
        .insert("team".to_owned(), "a".to_owned());
    let state = |spec| {
        ClusterState::default()
            .with_pool(labelled.clone(), types())
            .with_pod(pod("p", "1", spec))
    };
    assert_eq!(
        summary(&run(&state(select("Exists", json!(null))))),
        ["default/small: p"]
    );
    assert_eq!(
        summary(&run(&state(select("DoesNotExist", json!(null))))),
        ["p: incompatible requirements, key team, team DoesNotExist not in team In [a] (NodePool=default)"]
    );
}

#[test]
fn p_085_existing_nodes_need_defined_labels_and_tolerated_taints() {
    let types = types();
    let (mut tainted, claim) = node("default", "tainted", &types[2], "a", "spot");
    let taint = serde_json::from_value(json!({"key": "team", "value": "ml", "effect": "NoSchedule"}))
        .expect("a taint");
    tainted.spec.get_or_insert_default().taints = Some(vec![taint]);
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node((tainted, claim))
        .with_node(node("default", "zone-b", &types[0], "b", "spot"));
    let tolerating = pod(
        "p",
        "1",
        json!({"tolerations": [{"key": "team", "operator": "Exists"}]}),
    );
    assert_eq!(summary(&run(&state.clone().with_pod(tolerating))), ["tainted: p"]);
    let zone_a = pod(
        "p",
        "1",
        json!({"nodeSelector": {"topology.kubernetes.io/zone": "a"}}),
    );
    assert_eq!(
        summary(&run(&state.clone().with_pod(zone_a))),
        ["default/small: p"]
    );
    assert_eq!(
        summary(&run(&state.with_pod(pod("p", "1", json!({}))))),
        ["zone-b: p"]
    );
}

#[test]
fn p_088_error_table() {
    let bare = |mut instance_type: InstanceType| {
        for offering in &mut instance_type.offerings {
            offering.available = false;
        }
        instance_type
    };
    let selecting = |arch: &str, zone: &str| json!({"nodeSelector": {"kubernetes.io/arch": arch, "topology.kubernetes.io/zone": zone}});
    let message = |types: Vec<InstanceType>, cpu: &str, spec: Value| {
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types)
            .with_pod(pod("p", cpu, spec));
        let text = summary(&run(&state)).join("|");
        text.split(", requirements=")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        message(types(), "100", json!({})),
        "p: no instance type has enough resources"
    );
    assert_eq!(
        message(types(), "1", selecting("arm64", "a")),
        "p: no instance type met all requirements"
    );
    assert_eq!(
        message(types(), "100", selecting("arm64", "a")),
        "p: no instance type met the scheduling requirements or had enough resources"
    );
    // Zone d is declared by no type, so requirements and offering both fail.
    assert_eq!(
        message(types(), "100", selecting("amd64", "d")),
        "p: no instance type met the scheduling requirements or had enough resources or had a required offering"
    );
    // The big type has no offering left in any zone but the pod needs its size; the small one has.
    let scarce = vec![types().remove(0), bare(types().remove(2))];
    assert_eq!(
        message(scarce, "8", json!({})),
        "p: no instance type has enough resources"
    );
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1000001", json!({})));
    let text = summary(&run(&state)).join("");
    assert!(
        text.contains(" (CPU request >= 1 Million, m vs M typo?)"),
        "{text}"
    );
    assert!(
        text.contains(r#"resources={"cpu":"1000001","memory":"100Mi","pods":"1"}"#),
        "{text}"
    );
}

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
fn p_090_example_13_required_terms_are_alternatives() {
    let term = |value: &str| json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [value]}]});
    let terms = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let state = |spec| {
        ClusterState::default()
            .with_pool(node_pool("default"), types())
            .with_pod(pod("p", "1", spec))
    };
    assert_eq!(
        summary(&run(&state(terms(json!([term("nowhere"), term("b")]))))),
        ["default/small: p"]
    );
    assert_eq!(summary(&run(&state(terms(json!([term("nowhere")]))))).len(), 1);
    assert!(summary(&run(&state(terms(json!([term("nowhere")])))))[0].starts_with("p: "));
}

#[test]
fn p_091_example_14_prefer_no_schedule() {
    let mut tainted = node_pool("tainted");
    tainted.spec.weight = Some(50);
    tainted.spec.template.spec.taints =
        vec![serde_json::from_value(json!({"key": "k", "effect": "PreferNoSchedule"})).expect("a taint")];
    let state = ClusterState::default()
        .with_pool(tainted, types())
        .with_pod(pod("p", "1", json!({})));
    assert_eq!(summary(&run(&state)), ["tainted/small: p"]);
    assert_eq!(
        summary(&run(&state.with_pool(node_pool("bare"), types()))),
        ["bare/small: p"]
    );
}

#[test]
fn p_092_preferences_respected_or_ignored() {
    let spec = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}]}}]}}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1", spec));
    assert_eq!(summary(&run(&state)), ["default/large: p"]);
    let ignore = PackOptions {
        preferences: PreferencePolicy::Ignore,
        ..PackOptions::default()
    };
    assert_eq!(summary(&run_with(&state, &ignore)), ["default/small: p"]);
}

#[test]
fn p_095_example_18_daemon_overhead_once_per_node() {
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_daemon_set(spokeshave_example::daemon_set("agent", "2", "100Mi", &json!({})))
        .with_pods([pod("p1", "1", json!({})), pod("p2", "900m", json!({}))]);
    let result = run(&state);
    assert_eq!(summary(&result), ["default/medium: p1 p2"]);
    assert_eq!(result.1.placements.claims[0].requests.get("cpu"), 3900);
    assert_eq!(result.1.placements.claims[0].requests.get("pods"), 3);
}

#[test]
fn p_095_daemon_groups_differ_by_instance_type() {
    let only_large = json!({"nodeSelector": {"node.kubernetes.io/instance-type": "large"}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_daemon_set(spokeshave_example::daemon_set("agent", "2", "100Mi", &only_large))
        .with_pod(pod("p", "3800m", json!({})));
    let result = run(&state);
    assert_eq!(summary(&result), ["default/medium: p"]);
    assert_eq!(
        result.1.placements.claims[0].requests.get("cpu"),
        3800,
        "the least overhead of the groups"
    );
    assert_eq!(result.1.placements.claims[0].launches.len(), 2);
}

#[test]
fn p_096_remaining_daemon_overhead_on_existing_nodes() {
    let types = types();
    let daemon = spokeshave_example::daemon_set("agent", "1", "100Mi", &json!({}));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_daemon_set(daemon)
        .with_node(node("default", "n", &types[0], "a", "spot"))
        .with_pod(pod("p", "1", json!({})));
    // 1900m allocatable, of which the daemon will take 1000m.
    assert_eq!(summary(&run(&state)), ["default/medium: p"]);
    let mut running = spokeshave_example::bound(pod("agent-x", "1", json!({})), "n");
    running.metadata.owner_references = serde_json::from_value(
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent"}]),
    )
    .ok();
    let small = pod("q", "900m", json!({}));
    let mut state = state.with_pod(running).with_pod(small);
    state.pods.retain(|pod| pod.metadata.name.as_deref() != Some("p"));
    assert_eq!(
        summary(&run(&state)),
        ["n: q"],
        "the daemon that runs is not counted twice"
    );
}

#[test]
fn p_100_example_16_in_flight_capacity_counts() {
    let types = types();
    let (_, mut claim) = node("default", "n", &types[1], "a", "spot");
    if let Some(labels) = &mut claim.metadata.labels {
        labels.remove(labels::REGISTERED);
        labels.remove(labels::INITIALIZED);
    }
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types)
        .with_pod(pod("p", "1", json!({})));
    state.node_claims.push(std::sync::Arc::new(claim));
    assert_eq!(summary(&run(&state)), ["claim-n: p"]);
}

#[test]
fn p_120_example_20_min_values() {
    let mut pool = node_pool("default");
    let mut wanted = spokeshave_api::Requirement::new(
        "node.kubernetes.io/instance-type",
        spokeshave_api::Operator::Exists,
        &[],
    );
    wanted.min_values = Some(3);
    pool.spec.template.spec.requirements = vec![wanted];
    let state = ClusterState::default()
        .with_pool(pool, types())
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

#[test]
fn p_064_truncation_keeps_the_cheapest_and_rechecks_min_values() {
    let mut pool = node_pool("default");
    let options = PackOptions {
        instance_types_per_claim: 2,
        ..PackOptions::default()
    };
    let state = ClusterState::default()
        .with_pool(pool.clone(), types())
        .with_pod(pod("p", "1", json!({})));
    assert_eq!(
        run_with(&state, &options).1.placements.claims[0].launches.len(),
        2
    );
    let mut wanted = spokeshave_api::Requirement::new(
        "node.kubernetes.io/instance-type",
        spokeshave_api::Operator::Exists,
        &[],
    );
    wanted.min_values = Some(3);
    pool.spec.template.spec.requirements = vec![wanted];
    let state = ClusterState::default()
        .with_pool(pool, types())
        .with_pod(pod("p", "1", json!({})));
    let text = summary(&run_with(&state, &options)).join("");
    assert!(text.starts_with("p: pod didn’t schedule because NodePool couldn’t meet minValues requirements, validating minValues, "), "{text}");
}

#[test]
fn p_087_requirements_resources_and_offering_must_hold_for_one_type() {
    let mut large = instance_type("large", 16, 32, &["a"]);
    large.offerings.retain(|offering| offering.zone() != Some("b"));
    let state = ClusterState::default()
        .with_pool(
            node_pool("default"),
            vec![instance_type("small", 2, 4, &["b"]), large],
        )
        .with_pod(pod(
            "p",
            "8",
            json!({"nodeSelector": {"topology.kubernetes.io/zone": "b"}}),
        ));
    assert!(
        summary(&run(&state))[0].starts_with("p: no instance type"),
        "{:?}",
        summary(&run(&state))
    );
}

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
    let zones = |result: &(Snapshot, Packing)| {
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
    assert_eq!(zones(&result), [(text("a"), 3), (text("b"), 2), (text("c"), 2)]);
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
    assert_eq!(zones(&result), [(text("a"), 1), (text("b"), 1)]);
    assert_eq!(result.1.unplaced.len(), 1);
    assert!(result.1.unplaced[0].reason.to_string().starts_with("unsatisfiable topology constraint for topology spread, key=topology.kubernetes.io/zone (counts = a: 1, b: 1"), "{}", result.1.unplaced[0].reason);
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
fn p_097_example_17_startup_and_ephemeral_taints_count_once_initialised() {
    let types = types();
    let taints = json!([{"key": "boot", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "readiness.k8s.io/cni", "effect": "NoSchedule"}]);
    let (mut object, mut claim) = node("default", "n", &types[1], "a", "spot");
    object.spec.get_or_insert_default().taints = serde_json::from_value(taints).ok();
    claim.spec.startup_taints =
        serde_json::from_value(json!([{"key": "boot", "effect": "NoSchedule"}])).expect("taints");
    let state = |initialized: bool| {
        let mut object = object.clone();
        if !initialized {
            object
                .metadata
                .labels
                .get_or_insert_default()
                .remove(labels::INITIALIZED);
        }
        ClusterState::default()
            .with_pool(node_pool("default"), types.clone())
            .with_node((object, claim.clone()))
            .with_pod(pod("p", "1", json!({})))
    };
    assert_eq!(summary(&run(&state(false))), ["n: p"]);
    assert_eq!(summary(&run(&state(true))), ["default/small: p"]);
}

#[test]
fn p_099_unmanaged_nodes_are_capacity_too() {
    let types = types();
    let (mut object, _) = node("default", "static", &types[2], "a", "on-demand");
    object
        .metadata
        .labels
        .get_or_insert_default()
        .retain(|key, _| !key.starts_with("karpenter"));
    object.spec.get_or_insert_default().provider_id = None;
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types)
        .with_pod(pod("p", "1", json!({})));
    state.nodes.push(std::sync::Arc::new(object));
    assert_eq!(summary(&run(&state)), ["static: p"]);
}

#[test]
fn p_081_p_082_failed_pods_try_again_with_all_their_preferences() {
    // The follower is bigger, so it comes first and fails; once the leader has a place it gets one beside it.
    let follow = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "leader"}}}]},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}]}}]}}});
    let leader = json!({"nodeSelector": {"topology.kubernetes.io/zone": "b", "node.kubernetes.io/instance-type": "small"}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([
            pod("follower", "3", follow),
            spokeshave_example::labelled(pod("leader", "1", leader), &[("app", "leader")]),
        ]);
    let result = run(&state);
    assert_eq!(
        summary(&result),
        ["default/small: leader", "default/large: follower"]
    );
    assert_eq!(
        result.1.placements.claims[1]
            .requirements
            .get(labels::ZONE)
            .to_string(),
        "topology.kubernetes.io/zone In [b]"
    );
}

#[test]
fn p_033_older_label_keys_mean_the_canonical_ones() {
    let spec = json!({"nodeSelector": {"failure-domain.beta.kubernetes.io/zone": "b", "beta.kubernetes.io/os": "linux"}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1", spec));
    let result = run(&state);
    assert_eq!(
        result.1.placements.claims[0]
            .requirements
            .get(labels::ZONE)
            .to_string(),
        "topology.kubernetes.io/zone In [b]"
    );
}

#[test]
fn p_062_daemon_overhead_from_the_newest_pod_with_the_templates_affinity() {
    let types = types();
    let pinned = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}});
    let mut running = spokeshave_example::bound(pod("agent-n", "1", pinned), "n");
    running.metadata.owner_references = serde_json::from_value(
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent"}]),
    )
    .ok();
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("default", "n", &types[0], "a", "spot"))
        .with_daemon_set(spokeshave_example::daemon_set(
            "agent",
            "100m",
            "10Mi",
            &json!({}),
        ))
        .with_pod(running)
        .with_pod(pod("p", "2", json!({})));
    let result = run(&state);
    assert_eq!(
        result.1.placements.claims[0].requests.get("cpu"),
        3000,
        "the live pod asks for more than the template"
    );
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
    let zones: Vec<String> = result
        .1
        .placements
        .claims
        .iter()
        .map(|claim| claim.requirements.get(labels::ZONE).to_string())
        .collect();
    assert_eq!(
        zones,
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
    assert_eq!(
        result.1.placements.claims[0]
            .requirements
            .get(labels::ZONE)
            .to_string(),
        "topology.kubernetes.io/zone In [b c]"
    );
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

#[test]
fn p_114_host_ports() {
    let port = |name: &str| {
        pod(
            name,
            "100m",
            json!({"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}),
        )
    };
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pods([port("p1"), port("p2")]);
    assert_eq!(summary(&run(&state)), ["default/small: p1", "default/small: p2"]);
}

#[test]
fn p_117_attach_limits_of_existing_nodes() {
    let types = types();
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("default", "n", &types[2], "a", "spot"));
    let csi_node = json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "n", "allocatable": {"count": 2}}]}});
    state.volumes.csi_nodes.insert(
        "n".to_owned(),
        std::sync::Arc::new(serde_json::from_value(csi_node).expect("a CSINode")),
    );
    let class = json!({"metadata": {"name": "disk"}, "provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer"});
    state.volumes.storage_classes.insert(
        "disk".to_owned(),
        std::sync::Arc::new(serde_json::from_value(class).expect("a class")),
    );
    for claim in ["one", "two", "three"] {
        let object = json!({"metadata": {"namespace": "default", "name": claim}, "spec": {"storageClassName": "disk"}});
        state.volumes.claims.insert(
            format!("default/{claim}"),
            std::sync::Arc::new(serde_json::from_value(object).expect("a claim")),
        );
    }
    let using = |name: &str, claim: &str| {
        pod(
            name,
            "100m",
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}),
        )
    };
    let state = state.with_pod(spokeshave_example::bound(using("old", "one"), "n"));
    // The claim in use counts once; two fit, the third needs a new node.
    let result = run(&state.with_pods([using("p1", "one"), using("p2", "two"), using("p3", "three")]));
    assert_eq!(summary(&result), ["n: p1 p2", "default/small: p3"]);
}

#[test]
fn p_119_example_19_reserved_capacity() {
    const LABEL: &str = "example.com/reservation-id";
    let with_reservation = |name: &str, id: &str, capacity: i64| {
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
    };
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

#[test]
fn p_122_dynamic_resource_allocation_is_refused_in_the_open() {
    let spec = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_pod(pod("p", "1", spec));
    assert_eq!(
        summary(&run(&state)),
        ["p: pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"]
    );
}

#[test]
fn p_089_offering_overrides_are_groups_of_their_own() {
    let mut overridden = instance_type("small", 2, 4, &["a"]);
    let mut big = spokeshave_example::offering("a", "on-demand", spokeshave_model::Price(1));
    big.overrides = Some(spokeshave_model::Overrides {
        capacity: Resources::from_amounts([("example.com/gpu", 4)]),
        ..Default::default()
    });
    overridden.offerings.push(big);
    let spec = json!({"containers": [{"name": "main", "resources": {"requests": {"example.com/gpu": "2"}}}]});
    let state = ClusterState::default().with_pool(node_pool("default"), vec![overridden]);
    let result = run(&state.clone().with_pod(pod("p", "1", spec.clone())));
    assert_eq!(summary(&result), ["default/small: p"]);
    let spot =
        json!({"containers": spec["containers"], "nodeSelector": {"karpenter.sh/capacity-type": "spot"}});
    assert!(summary(&run(&state.with_pod(pod("p", "1", spot))))[0].starts_with("p: no instance type"));
}

#[test]
fn the_benchmark_mix_is_placed_whole_and_repeatably() {
    let state = ClusterState::default()
        .with_pool(spokeshave_example::benchmark_pool(), fake_instance_types(400))
        .with_pods(spokeshave_example::diverse_pods(500, 42));
    let (_, first) = run(&state);
    let mut shuffled = state;
    shuffled.pods.reverse();
    let (_, second) = run(&shuffled);
    assert!(
        first.unplaced.is_empty(),
        "{:?}",
        first.unplaced.first().map(|unplaced| unplaced.reason.to_string())
    );
    assert_eq!(first, second);
}
