//! Generated worlds: every plan passes the independent audit, nothing depends on the order of the objects, and no pod is lost.

use serde_json::{Value, json};
use spokeshave_audit::check_placements;
use spokeshave_example::{
    Dice, bound, daemon_set, epoch, instance_type, labelled, node, node_pool, pending_pod,
};
use spokeshave_model::Pod;
use spokeshave_model::{ClusterState, InstanceType, Resources, lower};
use spokeshave_plan::{Policy, provision};
use std::collections::BTreeSet;

const ZONES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 4] = ["web", "db", "cache", "batch"];

fn catalog(dice: &mut Dice) -> Vec<InstanceType> {
    let sizes = [
        ("xs", 1, 2),
        ("s", 2, 4),
        ("m", 4, 8),
        ("m-mem", 4, 32),
        ("l", 8, 16),
        ("xl", 32, 64),
    ];
    let mut types: Vec<InstanceType> = Vec::new();
    for (name, cores, memory) in sizes {
        if dice.below(5) == 0 {
            continue;
        }
        let zones: Vec<&str> = ZONES.iter().copied().filter(|_| dice.below(4) > 0).collect();
        let mut instance_type = instance_type(
            name,
            cores,
            memory,
            if zones.is_empty() { &ZONES[..1] } else { &zones },
        );
        for offering in &mut instance_type.offerings {
            offering.available = dice.below(6) > 0;
        }
        types.push(instance_type);
    }
    if types.is_empty() {
        types.push(instance_type("only", 4, 8, &ZONES));
    }
    types
}

fn pool(dice: &mut Dice, name: &str) -> spokeshave_api::NodePool {
    let mut pool = node_pool(name);
    pool.spec.weight = (dice.below(3) == 0).then(|| 1 + dice.below(3) as i32);
    let template = &mut pool.spec.template;
    if dice.below(3) == 0 {
        template
            .metadata
            .labels
            .insert("team".to_owned(), (*dice.pick(&["red", "blue"])).to_owned());
    }
    if dice.below(4) == 0 {
        let effect = *dice.pick(&["NoSchedule", "PreferNoSchedule"]);
        template.spec.taints = vec![
            serde_json::from_value(json!({"key": "dedicated", "value": "x", "effect": effect}))
                .expect("a taint"),
        ];
    }
    if dice.below(3) == 0 {
        let zones: Vec<&str> = ZONES.iter().copied().take(1 + dice.below(3)).collect();
        template.spec.requirements = vec![spokeshave_api::Requirement::new(
            "topology.kubernetes.io/zone",
            spokeshave_api::Operator::In,
            &zones,
        )];
    }
    if dice.below(4) == 0 {
        let limits = [
            ("cpu", *dice.pick(&["4", "20", "100"])),
            ("nodes", *dice.pick(&["1", "3", "50"])),
        ];
        pool.spec.limits = Resources::parse(limits).ok().map(|limits| limits.to_quantities());
    }
    pool
}

fn constraints(dice: &mut Dice) -> Value {
    let mut spec = json!({});
    let map = spec.as_object_mut().expect("a map");
    let key = *dice.pick(&["topology.kubernetes.io/zone", "kubernetes.io/hostname"]);
    let target = *dice.pick(&APPS);
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": target}}});
    let weighted = json!([{"weight": 1 + dice.below(100), "podAffinityTerm": term}]);
    let selector = json!({"matchLabels": {"app": target}});
    match dice.below(16) {
        0 => drop(map.insert(
            "nodeSelector".to_owned(),
            json!({"topology.kubernetes.io/zone": dice.pick(&ZONES)}),
        )),
        1 => drop(map.insert(
            "nodeSelector".to_owned(),
            json!({"team": dice.pick(&["red", "green"])}),
        )),
        2 => drop(map.insert(
            "tolerations".to_owned(),
            json!([{"key": "dedicated", "operator": "Exists"}]),
        )),
        3 => {
            let when = *dice.pick(&["DoNotSchedule", "ScheduleAnyway"]);
            let spread = json!([{"maxSkew": 1 + dice.below(2), "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}]);
            map.insert("topologySpreadConstraints".to_owned(), spread);
        }
        4 => drop(map.insert(
            "affinity".to_owned(),
            json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
        )),
        5 | 6 => drop(map.insert(
            "affinity".to_owned(),
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
        )),
        7 => drop(map.insert(
            "affinity".to_owned(),
            json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}),
        )),
        8 => {
            let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": operator, "values": values}]});
            let terms = json!([expression("In", &["nothing"]), expression("NotIn", &["xs", "s"])]);
            map.insert("affinity".to_owned(), json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}));
        }
        9 => {
            let preference = json!({"weight": 5, "preference": {"matchExpressions": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]}});
            map.insert(
                "affinity".to_owned(),
                json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}),
            );
        }
        _ => {}
    }
    spec
}

fn pod(dice: &mut Dice, name: &str) -> Pod {
    let cpu = *dice.pick(&["50m", "250m", "500m", "1", "3", "7"]);
    let memory = *dice.pick(&["64Mi", "256Mi", "1Gi", "6Gi"]);
    let spec = constraints(dice);
    let mut pod = labelled(
        pending_pod(name, cpu, memory, &spec),
        &[("app", *dice.pick(&APPS))],
    );
    if dice.below(12) == 0
        && let Some(container) = pod.spec_mut().containers.first_mut()
    {
        container.ports = serde_json::from_value(json!([{"containerPort": 80, "hostPort": 8080}])).ok();
    }
    pod
}

fn world(seed: u64) -> ClusterState {
    let mut dice = Dice(seed);
    let mut state = ClusterState::default();
    let pools = 1 + dice.below(3);
    for index in 0..pools {
        let types = catalog(&mut dice);
        let pool = pool(&mut dice, &format!("pool-{index}"));
        for number in 0..dice.below(4) {
            let instance_type = dice.pick(&types).clone();
            let name = format!("node-{index}-{number}");
            let zone = *dice.pick(&ZONES);
            let (mut object, claim) = node(pool.name(), &name, &instance_type, zone, "on-demand");
            object.spec.get_or_insert_default().taints = Some(pool.spec.template.spec.taints.clone());
            state = state.with_node((object, claim));
            for running in 0..dice.below(3) {
                let small = pending_pod(
                    &format!("{name}-{running}"),
                    "100m",
                    "64Mi",
                    &constraints(&mut dice),
                );
                state = state.with_pod(bound(labelled(small, &[("app", *dice.pick(&APPS))]), &name));
            }
        }
        state = state.with_pool(pool, types);
    }
    if dice.below(2) == 0 {
        let tolerations = json!({"tolerations": [{"operator": "Exists"}]});
        state = state.with_daemon_set(daemon_set("agent", "50m", "32Mi", &tolerations));
    }
    if dice.below(3) == 0 {
        state = state.with_daemon_set(daemon_set(
            "gpu-agent",
            "200m",
            "32Mi",
            &json!({"nodeSelector": {"node.kubernetes.io/instance-type": "m"}}),
        ));
    }
    let count = 1 + dice.below(40);
    let pods: Vec<Pod> = (0..count)
        .map(|index| pod(&mut dice, &format!("pending-{index:03}")))
        .collect();
    state.with_pods(pods)
}

#[test]
fn every_generated_plan_passes_the_audit() {
    let (mut placed, mut left) = (0, 0);
    for seed in 0..600 {
        let snapshot = lower(&world(seed));
        let outcome = provision(&snapshot, &Policy::default(), epoch());
        let violations = check_placements(&snapshot, &outcome.pods, &outcome.placements);
        assert!(
            violations.is_empty(),
            "seed {seed}: {}",
            violations
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        );
        let mut accounted: BTreeSet<_> = outcome.placements.existing.values().flatten().copied().collect();
        accounted.extend(
            outcome
                .placements
                .claims
                .iter()
                .flat_map(|claim| claim.pods.iter().copied()),
        );
        placed += accounted.len();
        left += outcome.unschedulable.len();
        accounted.extend(outcome.unschedulable.iter().map(|unplaced| unplaced.pod));
        assert_eq!(
            accounted.into_iter().collect::<Vec<_>>(),
            outcome.pods,
            "seed {seed}: every pod is placed or has a reason"
        );
        assert!(
            outcome
                .unschedulable
                .iter()
                .all(|unplaced| !unplaced.reason.to_string().is_empty()),
            "seed {seed}"
        );
    }
    // The generator must exercise both answers, or the property says nothing.
    assert!(placed > 2 * left && left > 100, "placed {placed}, left {left}");
}

#[test]
fn plans_do_not_depend_on_the_order_of_the_objects() {
    for seed in 0..100 {
        let state = world(seed);
        let mut reversed = state.clone();
        reversed.pods.reverse();
        reversed.nodes.reverse();
        reversed.node_claims.reverse();
        reversed.node_pools.reverse();
        reversed.daemon_sets.reverse();
        let (left, right) = (lower(&state), lower(&reversed));
        assert_eq!(left, right, "seed {seed}");
        let plan = |snapshot| format!("{:?}", provision(snapshot, &Policy::default(), epoch()));
        assert_eq!(plan(&left), plan(&right), "seed {seed}");
    }
}

#[test]
fn the_audit_notices_what_a_wrong_plan_would_do() {
    let types = vec![instance_type("s", 2, 4, &ZONES)];
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(node("default", "n", &types[0], "a", "spot"))
        .with_pods(["p1", "p2", "p3"].map(|name| pending_pod(name, "900m", "64Mi", &json!({}))));
    let snapshot = lower(&state);
    let mut outcome = provision(&snapshot, &Policy::default(), epoch());
    assert!(check_placements(&snapshot, &outcome.pods, &outcome.placements).is_empty());
    let moved = outcome.placements.claims.remove(0).pods;
    outcome
        .placements
        .existing
        .values_mut()
        .for_each(|pods| pods.extend(moved.iter().copied()));
    let violations = check_placements(&snapshot, &outcome.pods, &outcome.placements);
    assert!(
        violations
            .iter()
            .any(|violation| violation.problem.contains("needs cpu 2700m but n has 1900m")),
        "{violations:?}"
    );
}

/// Fields as no API server would let them through, or as a future version might write them.
fn hostile(dice: &mut Dice, name: &str) -> Pod {
    let amount = *dice.pick(&["-1", "0", "1e30", "9223372036854775807", "5Xi", "", "1n", "-9E"]);
    let key = *dice.pick(&[
        "",
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
        "unknown/key",
        "/",
        "karpenter.sh/x",
    ]);
    let operator = *dice.pick(&[
        "In",
        "NotIn",
        "Exists",
        "DoesNotExist",
        "Gt",
        "Lt",
        "Gte",
        "Lte",
        "Near",
        "",
    ]);
    let values = *dice.pick(&[
        &[][..],
        &["a"][..],
        &["9223372036854775807"][..],
        &["-9223372036854775808"][..],
        &["a", "b", "1"][..],
    ]);
    let skew = *dice.pick(&[i32::MIN, -1, 0, 1, i32::MAX]);
    let expression = json!({"key": key, "operator": operator, "values": values});
    let selector = json!({"matchExpressions": [expression], "matchLabels": {"app": "web"}});
    let term = json!({"topologyKey": key, "labelSelector": selector, "matchLabelKeys": ["app", ""], "namespaceSelector": {}});
    let node_terms = json!([{"matchExpressions": [expression, expression]}, {}]);
    let spec = json!({
        "priority": i32::MIN,
        "nodeSelector": (dice.below(3) == 0).then(|| json!({key: "a"})),
        "tolerations": [{"key": key, "operator": operator, "value": "1"}],
        "topologySpreadConstraints": (dice.below(2) == 0).then(|| json!([{"maxSkew": skew, "minDomains": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}])),
        "affinity": (dice.below(2) == 0).then(|| json!({
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": node_terms}},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": i32::MIN, "podAffinityTerm": term}]},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})),
        "volumes": (dice.below(4) == 0).then(|| json!([{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}])),
    });
    let mut pod = labelled(pending_pod(name, amount, amount, &spec), &[("app", "web")]);
    if dice.below(8) == 0 {
        pod.spec = None;
    }
    if dice.below(8) == 0 {
        pod.metadata.name = None;
    }
    pod
}

#[test]
fn bad_input_never_panics_and_never_stops_the_others() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut state = world(seed);
        let before = lower(&state);
        let healthy = provision(&before, &Policy::default(), epoch()).pods;
        let healthy: BTreeSet<String> = healthy.iter().map(|pod| before.pod(*pod).key()).collect();
        for index in 0..dice.below(12) {
            let mut pod = hostile(&mut dice, &format!("hostile-{index}"));
            if dice.below(3) == 0 {
                let name: &str = ["node-0-0", "nowhere", ""][dice.below(3)];
                pod = bound(pod, name);
            }
            state = state.with_pod(pod);
        }
        let mut broken = node_pool("broken");
        broken.spec.template.spec.requirements = vec![spokeshave_api::Requirement::new(
            "",
            spokeshave_api::Operator::from("Near"),
            &["x"],
        )];
        broken.spec.weight = Some(i32::MAX);
        let mut empty = instance_type("empty", 0, 0, &[]);
        empty.capacity = Resources::from_amounts([("cpu", i64::MIN), ("memory", i64::MAX), ("pods", -1)]);
        empty.requirements = Default::default();
        state = state
            .with_pool(broken, vec![empty.clone()])
            .with_pool(node_pool("hollow"), vec![empty])
            .with_pool(node_pool("bare"), vec![]);
        let snapshot = lower(&state);
        let outcome = provision(&snapshot, &Policy::default(), epoch());
        let seen: BTreeSet<String> = outcome.pods.iter().map(|pod| snapshot.pod(*pod).key()).collect();
        assert!(healthy.is_subset(&seen), "seed {seed}: a pod is missing");
        let _rendered: Vec<String> = outcome
            .unschedulable
            .iter()
            .map(|unplaced| unplaced.reason.to_string())
            .collect();
        drop(outcome.events(&snapshot, &Policy::default()));
        let mut policy = Policy::default();
        policy.disrupt.verdicts = true;
        drop(spokeshave_plan::disrupt::disrupt(
            &snapshot,
            &policy,
            epoch(),
            &Default::default(),
        ));
        for claim in &outcome.placements.claims {
            drop(spokeshave_plan::to_node_claim(&snapshot, claim));
        }
    }
}
