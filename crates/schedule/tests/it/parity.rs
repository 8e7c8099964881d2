//! Rules of placement beside those of `rules`, explanations, and input that makes no sense.

use serde_json::{Value, json};
use spokeshave_example::{Dice, bound, instance_type, labelled, node, node_pool, pending_pod, random_world};
use spokeshave_model::derivation::{Blocker, NodeObstacle};
use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_model::{ClusterState, InstanceType, Resources, labels, lower};
use spokeshave_schedule::{
    ClaimOrder, PackOptions, PackRequest, Packing, explain_unplaced, pack, pack_cheapest,
};

const ZONES: [&str; 3] = ["a", "b", "c"];

fn types(zones: &[&str]) -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 4, zones),
        instance_type("large", 16, 32, zones),
    ]
}

fn request(snapshot: &Snapshot) -> PackRequest {
    PackRequest {
        pods: snapshot
            .pod_ids()
            .filter(|pod| snapshot.pod(*pod).provisionable)
            .collect(),
        ..PackRequest::default()
    }
}

fn run(state: &ClusterState) -> (Snapshot, Packing) {
    let snapshot = lower(state);
    let packing = pack(&snapshot, &request(&snapshot), &PackOptions::default());
    (snapshot, packing)
}

fn spread(key: &str, more: &Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    if let (Some(into), Some(from)) = (constraint.as_object_mut(), more.as_object()) {
        into.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    json!({"topologySpreadConstraints": [constraint]})
}

fn web(count: usize, cpu: &str, spec: &Value) -> Vec<spokeshave_model::Pod> {
    (0..count)
        .map(|index| {
            labelled(
                pending_pod(&format!("web-{index:02}"), cpu, "100Mi", spec),
                &[("app", "web")],
            )
        })
        .collect()
}

fn counts(packing: &Packing) -> (Vec<usize>, usize) {
    let claims = packing.placements.claims.iter();
    (
        claims.map(|claim| claim.pods.len()).collect(),
        packing.unplaced.len(),
    )
}

#[test]
fn p_086_topology_comes_last_and_fixes_one_domain() {
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types(&ZONES))
        .with_pods(web(3, "1", &spread(labels::ZONE, &json!({}))));
    let (_, packing) = run(&state);
    assert_eq!(counts(&packing), (vec![1, 1, 1], 0));
    let mut zones: Vec<String> = packing
        .placements
        .claims
        .iter()
        .map(|claim| claim.requirements.get(labels::ZONE).to_string())
        .collect();
    zones.sort();
    assert_eq!(
        zones,
        ["a", "b", "c"].map(|zone| format!("topology.kubernetes.io/zone In [{zone}]"))
    );
}

/// Of NodeClaims with equally many pods upstream's insertion sort leaves the one in front that got its last pod last.
#[test]
fn p_083_ties_between_node_claims_in_two_orders() {
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    let plain = |name: &str, cpu: &str| pending_pod(name, cpu, "1Mi", &json!({}));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types(&ZONES))
        .with_pods(web(2, "3", &apart))
        .with_pods([plain("m1", "1"), plain("m2", "1"), plain("s", "500m")]);
    let snapshot = lower(&state);
    let pods_of = |order: ClaimOrder| {
        let packing = pack_cheapest(&snapshot, &request(&snapshot), &PackOptions::default(), &[order]);
        counts(&packing)
    };
    assert_eq!(pods_of(ClaimOrder::FewestPods), (vec![3, 2], 0));
    assert_eq!(pods_of(ClaimOrder::FewestPodsGrownLast), (vec![2, 3], 0));
}

/// Which capacity type a planned node gets is decided when it is launched. Until then its pods count for none, as in Karpenter.
#[test]
fn p_101_p_108_pods_of_a_planned_node_count_once_its_domain_is_certain() {
    let capacity_type_of_db = |web_spec: &Value, rule: &Value| {
        let db = labelled(pending_pod("db", "100m", "1Mi", rule), &[("app", "db")]);
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types(&ZONES))
            .with_pods(web(5, "1800m", web_spec))
            .with_pod(db);
        let (snapshot, packing) = run(&state);
        let is_db = |pod: &PodId| snapshot.pod(*pod).key() == "default/db";
        let mut claims = packing.placements.claims.iter();
        let claim = claims.find(|claim| claim.pods.iter().any(is_db))?;
        let requirement = claim.requirements.get(labels::CAPACITY_TYPE);
        Some(requirement.single_value().unwrap_or("open").to_owned())
    };
    let anywhere = json!({});
    let on_demand = json!({"nodeSelector": {labels::CAPACITY_TYPE: "on-demand"}});
    let apart = spread(labels::CAPACITY_TYPE, &json!({}));
    let term =
        json!({"topologyKey": labels::CAPACITY_TYPE, "labelSelector": {"matchLabels": {"app": "web"}}});
    let together =
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    assert_eq!(capacity_type_of_db(&on_demand, &apart).as_deref(), Some("spot"));
    assert_eq!(
        capacity_type_of_db(&on_demand, &together).as_deref(),
        Some("on-demand")
    );
    // Both capacity types look empty: the first will do, and there is nobody to be with.
    assert_eq!(
        capacity_type_of_db(&anywhere, &apart).as_deref(),
        Some("on-demand")
    );
    assert_eq!(capacity_type_of_db(&anywhere, &together), None);
}

#[test]
fn p_102_example_6_min_domains_counts_missing_domains_as_empty() {
    let spec = spread(labels::ZONE, &json!({"minDomains": 3}));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types(&ZONES[..2]))
        .with_pods(web(3, "1", &spec));
    let (_, packing) = run(&state);
    assert_eq!(
        counts(&packing),
        (vec![1, 1], 1),
        "one per zone, the third has nowhere to go"
    );
}

#[test]
fn p_103_a_new_host_is_always_possible() {
    let spec = spread(labels::HOSTNAME, &json!({"maxSkew": 4}));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types(&ZONES))
        .with_pods(web(10, "100m", &spec));
    let (_, packing) = run(&state);
    let (claims, unplaced) = counts(&packing);
    assert_eq!(unplaced, 0);
    assert!(claims.iter().all(|pods| *pods <= 4), "{claims:?}");
    assert_eq!(claims.iter().sum::<usize>(), 10);
}

#[test]
fn p_107_only_bound_running_pods_outside_the_batch_count() {
    let types = types(&ZONES);
    let spec = spread(labels::ZONE, &json!({}));
    let resident = |name: &str| {
        bound(
            labelled(pending_pod(name, "100m", "1Mi", &json!({})), &[("app", "web")]),
            "n",
        )
    };
    let mut ended = resident("ended");
    ended.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    let mut leaving = resident("leaving");
    leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
    let gone = bound(resident("gone"), "vanished");
    let zone_of = |extra: Vec<spokeshave_model::Pod>| {
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types.clone())
            .with_node(node("default", "n", &types[0], "a", "spot"))
            .with_pods(extra)
            .with_pods(web(1, "1800m", &spec));
        let (_, packing) = run(&state);
        packing.placements.existing.len()
    };
    assert_eq!(
        zone_of(vec![ended, leaving, gone]),
        1,
        "none of these counts: zone a is as empty as the others"
    );
    assert_eq!(
        zone_of(vec![resident("runs")]),
        0,
        "this one counts, so zone a is one ahead"
    );
}

#[test]
fn p_113_any_label_can_name_domains() {
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types(&ZONES))
        .with_pods(web(4, "1", &spread(labels::CAPACITY_TYPE, &json!({}))));
    let (_, packing) = run(&state);
    let of = |wanted: &str| {
        let claims = packing.placements.claims.iter();
        let kinds = claims.filter(|claim| {
            claim
                .requirements
                .get(labels::CAPACITY_TYPE)
                .to_string()
                .contains(wanted)
        });
        kinds.map(|claim| claim.pods.len()).sum::<usize>()
    };
    assert_eq!((of("[spot]"), of("[on-demand]")), (2, 2));
    let unknown = ClusterState::default()
        .with_pool(node_pool("default"), types(&ZONES))
        .with_pods(web(1, "1", &spread("example.com/unknown", &json!({}))));
    assert_eq!(
        run(&unknown).1.unplaced.len(),
        1,
        "a key without domains takes no pod"
    );
}

/// P-088, and the example of counts instead of walls.
#[test]
fn p_088_invariant_39_derivations_count_and_find_the_smallest_set() {
    let types = types(&ZONES);
    let mut state = ClusterState::default().with_pool(node_pool("default"), vec![types[0].clone()]);
    for index in 0..5 {
        let mut built = node("default", &format!("n{index}"), &types[0], "a", "spot");
        if index == 0 {
            built.0.spec.get_or_insert_default().taints =
                serde_json::from_value(json!([{"key": "team", "value": "ml", "effect": "NoSchedule"}])).ok();
        }
        state = state.with_node(built).with_pod(bound(
            pending_pod(&format!("r{index}"), "500m", "1Mi", &json!({})),
            &format!("n{index}"),
        ));
    }
    let state = state.with_pod(pending_pod(
        "big",
        "1700m",
        "1Mi",
        &json!({"nodeSelector": {labels::ZONE: "moon"}}),
    ));
    let snapshot = lower(&state);
    let pod = request(&snapshot).pods[0];
    let derivation =
        explain_unplaced(&snapshot, &request(&snapshot), &PackOptions::default(), pod).expect("unplaced");
    assert_eq!(
        derivation.nodes,
        [
            (NodeObstacle::Labels, 4),
            (NodeObstacle::Taint("team=ml:NoSchedule".to_owned()), 1)
        ],
        "more room would not let it run there"
    );
    assert_eq!(derivation.minimal, [Blocker::NodeSelector]);
    let text = derivation.to_string();
    assert!(
        text.contains("4 nodes: node selector or affinity · 1: taint team=ml:NoSchedule"),
        "{text}"
    );
    assert!(
        text.ends_with(
            "in the way: node selector → change spec.nodeSelector, or add a NodePool with these labels"
        ),
        "{text}"
    );
}

/// Lifting the minimal set gives a place, and it never names what the pod does not have.
#[test]
fn derivations_of_random_worlds_are_complete() {
    let mut explained = 0;
    for seed in 0..60 {
        let (snapshot, packing) = run(&random_world(seed));
        let request = request(&snapshot);
        for left in packing.unplaced.iter().take(2) {
            let derivation =
                explain_unplaced(&snapshot, &request, &PackOptions::default(), left.pod).expect("unplaced");
            let nodes: usize = derivation.nodes.iter().map(|(_, count)| count).sum();
            assert!(nodes <= snapshot.nodes.len());
            assert_eq!(
                derivation.minimal.is_empty(),
                derivation.to_string().ends_with("would help")
            );
            explained += 1;
        }
        let placed = packing
            .unplaced
            .iter()
            .map(|left| left.pod)
            .collect::<Vec<PodId>>();
        for pod in request.pods.iter().filter(|pod| !placed.contains(pod)).take(1) {
            assert_eq!(
                explain_unplaced(&snapshot, &request, &PackOptions::default(), *pod),
                None
            );
        }
    }
    assert!(explained > 5, "only {explained} pods to explain");
}

/// Any pod may be nonsense: it gets its own reason, and the others are planned as if it were absent.
#[test]
fn nonsense_hurts_nobody_else() {
    let nonsense = [
        json!({"nodeSelector": {"": ""}, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "Like", "values": ["x"]}]}]}}}}),
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": labels::ZONE, "operator": "In", "values": ["a"]}, {"key": labels::ZONE, "operator": "NotIn", "values": ["a"]}]}]}}}}),
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "", "labelSelector": {"matchLabels": {"nobody": "here"}}}]}}}),
        json!({"topologySpreadConstraints": [{"maxSkew": -3, "topologyKey": labels::ZONE, "whenUnsatisfiable": "Perhaps", "minDomains": -1}]}),
        json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": labels::HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}]}),
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]}),
        json!({"containers": [{"name": "m", "resources": {"requests": {"cpu": "-4", "memory": "lots", "": "1"}}, "ports": [{"containerPort": 0, "hostPort": -1}]}]}),
        json!({"containers": [{"name": "m", "resources": {"requests": {"cpu": "99999999999999999999", "memory": "9E"}}}]}),
        json!({"containers": []}),
    ];
    let sane = web(6, "1", &spread(labels::ZONE, &json!({})));
    let alone = {
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types(&ZONES))
            .with_pods(sane.clone());
        counts(&run(&state).1)
    };
    assert_eq!(alone.1, 0);
    for (index, spec) in nonsense.iter().enumerate() {
        let mut odd = pending_pod("odd", "100m", "1Mi", spec);
        odd.metadata.labels = Some(
            (0..10_000)
                .map(|label| (format!("l{label}"), String::new()))
                .collect(),
        );
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types(&ZONES))
            .with_pods(sane.clone())
            .with_pod(odd);
        let (snapshot, packing) = run(&state);
        let lost: Vec<String> = packing
            .unplaced
            .iter()
            .map(|left| snapshot.pod(left.pod).key())
            .collect();
        assert!(
            lost.iter().all(|pod| pod == "default/odd"),
            "spec {index}: {lost:?}"
        );
    }
}

/// A catalog without offerings, NodePools without types, and limits that are no numbers leave the other NodePool at work.
#[test]
fn broken_pools_are_passed_over() {
    let mut bare = types(&ZONES);
    bare.iter_mut()
        .for_each(|instance_type| instance_type.offerings.clear());
    let mut broken = node_pool("broken-limits");
    broken.spec.limits = Resources::parse([("cpu", "1")])
        .ok()
        .map(|limits| limits.to_quantities());
    for quantity in broken
        .spec
        .limits
        .iter_mut()
        .flat_map(|limits| limits.values_mut())
    {
        quantity.0 = "many".to_owned();
    }
    let mut heavy = node_pool("no-offerings");
    heavy.spec.weight = Some(100);
    let state = ClusterState::default()
        .with_pool(heavy, bare)
        .with_pool(node_pool("no-types"), Vec::new())
        .with_pool(broken, types(&ZONES))
        .with_pool(node_pool("a-good-one"), types(&ZONES))
        .with_pods(web(3, "1", &json!({})));
    let (snapshot, packing) = run(&state);
    assert_eq!(packing.unplaced, []);
    let pools = packing
        .placements
        .claims
        .iter()
        .map(|claim| snapshot.pool(claim.pool).name.as_str());
    assert!(
        pools
            .clone()
            .all(|pool| pool == "a-good-one" || pool == "broken-limits")
    );
}

/// Random damage to pods of random worlds: nothing panics, and everything that is placed is placed well.
#[test]
fn damaged_worlds_are_planned_all_the_same() {
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let mut state = random_world(seed);
        for pod in &mut state.pods {
            let mut value = serde_json::to_value(&**pod).expect("a pod is JSON");
            damage(&mut value, &mut dice);
            if let Ok(damaged) = serde_json::from_value(value) {
                *pod = std::sync::Arc::new(damaged);
            }
        }
        let (snapshot, packing) = run(&state);
        let batch = request(&snapshot).pods;
        let on_claims: usize = packing
            .placements
            .claims
            .iter()
            .map(|claim| claim.pods.len())
            .sum();
        let on_nodes: usize = packing.placements.existing.values().map(Vec::len).sum();
        assert_eq!(
            on_claims + on_nodes + packing.unplaced.len(),
            batch.len(),
            "seed {seed}: each pod once"
        );
    }
}

/// Changes some strings and numbers, and drops some entries.
fn damage(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::String(text) if dice.below(25) == 0 => {
            *text = (*dice.pick(&[
                "",
                "-1",
                "∞",
                "1e400",
                "kubernetes.io/hostname",
                "In",
                "10000000000000000000000",
            ]))
            .to_owned();
        }
        Value::Number(number) if dice.below(10) == 0 => *number = (*dice.pick(&[-1, 0, 1, i32::MAX])).into(),
        Value::Array(items) => {
            if dice.below(15) == 0 {
                items.clear();
            }
            items.iter_mut().for_each(|item| damage(item, dice));
        }
        Value::Object(fields) => {
            if dice.below(20) == 0 {
                fields.remove("labelSelector");
            }
            fields
                .iter_mut()
                .filter(|(key, _)| *key != "metadata" && *key != "conditions")
                .for_each(|(_, item)| damage(item, dice));
        }
        _ => {}
    }
}
