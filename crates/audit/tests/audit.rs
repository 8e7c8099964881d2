//! Plans that are wrong in one way each: the audit must name it. And one that is right.

use serde_json::{Value, json};
use spokeshave_audit::{check_placements, suspects};
use spokeshave_example::{bound, instance_type, labelled, node, node_pool, offering, pending_pod};
use spokeshave_model::placement::{Launch, Placements, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::{
    ClusterState, InstanceType, Pod, Price, Requirement, Requirements, Resources, labels, lower,
};
use std::sync::Arc;

const ZONES: [&str; 2] = ["a", "b"];

fn types() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 4, &ZONES),
        instance_type("large", 16, 32, &ZONES),
    ]
}

fn snapshot(pool: spokeshave_api::NodePool, specs: &[Value]) -> Snapshot {
    let pods = specs.iter().enumerate().map(|(index, spec)| {
        labelled(
            pending_pod(&format!("p{index}"), "800m", "1Gi", spec),
            &[("app", "web")],
        )
    });
    let state = ClusterState::default()
        .with_pool(pool, types())
        .with_node(node("default", "n", &types()[0], "a", "spot"))
        .with_pods(pods.collect::<Vec<_>>());
    lower(&state)
}

fn claim(instance_types: &[usize], pods: &[u32], zone: Option<&str>) -> PlannedClaim {
    let launch = |index: &usize| Launch {
        instance_type: *index,
        zone: None,
        capacity_type: None,
        price: Price(1),
    };
    PlannedClaim {
        pool: PoolId(0),
        pods: pods.iter().map(|pod| PodId(*pod)).collect(),
        launches: instance_types.iter().map(launch).collect(),
        requirements: zone
            .map(|zone| Requirement::is(labels::ZONE, zone))
            .into_iter()
            .collect(),
        capacity_types: ["spot".to_owned()].into(),
        requests: Resources::new(),
        min_values_relaxed: false,
    }
}

fn problems(snapshot: &Snapshot, claims: Vec<PlannedClaim>, on_node: &[u32]) -> Vec<String> {
    let mut placements = Placements {
        claims,
        ..Placements::default()
    };
    if !on_node.is_empty() {
        placements
            .existing
            .insert(NodeId(0), on_node.iter().map(|pod| PodId(*pod)).collect());
    }
    let batch: Vec<PodId> = snapshot.pod_ids().collect();
    check_placements(snapshot, &batch, &placements)
        .into_iter()
        .map(|violation| violation.to_string())
        .collect()
}

fn assert_finds(found: &[String], needle: &str) {
    assert!(
        found.iter().any(|problem| problem.contains(needle)),
        "{needle:?} is not in {found:#?}"
    );
}

#[test]
fn a_right_plan_passes() {
    let snapshot = snapshot(node_pool("default"), &[json!({}), json!({}), json!({})]);
    assert!(problems(&snapshot, vec![claim(&[0, 1], &[0], None)], &[1, 2]).is_empty());
}

#[test]
fn too_much_for_a_node_or_for_one_of_the_types() {
    let snapshot = snapshot(node_pool("default"), &[json!({}), json!({}), json!({})]);
    assert_finds(
        &problems(&snapshot, vec![], &[0, 1, 2]),
        "n needs cpu 2400m but n has 1900m",
    );
    assert_finds(
        &problems(&snapshot, vec![claim(&[0, 1], &[0, 1, 2], None)], &[]),
        "needs cpu 2400m but small has 1900m",
    );
}

#[test]
fn twice_placed_or_nowhere_to_launch() {
    let snapshot = snapshot(node_pool("default"), &[json!({})]);
    assert_finds(
        &problems(&snapshot, vec![claim(&[0], &[0], None)], &[0]),
        "is placed more than once",
    );
    assert_finds(
        &problems(&snapshot, vec![claim(&[0], &[0], Some("moon"))], &[]),
        "has no available offering",
    );
    assert_finds(
        &problems(&snapshot, vec![claim(&[], &[0], None)], &[]),
        "no instance type is left",
    );
}

#[test]
fn taints_labels_and_ports() {
    let mut tainted = node_pool("default");
    tainted.spec.template.spec.taints =
        vec![serde_json::from_value(json!({"key": "t", "effect": "NoSchedule"})).expect("a taint")];
    assert_finds(
        &problems(
            &snapshot(tainted, &[json!({})]),
            vec![claim(&[0], &[0], None)],
            &[],
        ),
        "does not tolerate t:NoSchedule",
    );
    let zonal = snapshot(
        node_pool("default"),
        &[json!({"nodeSelector": {"topology.kubernetes.io/zone": "b"}})],
    );
    assert_finds(
        &problems(&zonal, vec![], &[0]),
        "its node selector or affinity does not match n",
    );
    assert_finds(
        &problems(&zonal, vec![claim(&[0], &[0], None)], &[]),
        "does not match small",
    );
    assert!(problems(&zonal, vec![claim(&[0], &[0], Some("b"))], &[]).is_empty());
    let port = json!({"containers": [{"name": "m", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    let ports = snapshot(node_pool("default"), &[port.clone(), port]);
    assert_finds(
        &problems(&ports, vec![claim(&[1], &[0, 1], None)], &[]),
        "host port IP=0.0.0.0 Port=80 Proto=TCP is taken",
    );
}

#[test]
fn limits_hold_for_the_largest_type_that_may_be_launched() {
    let mut pool = node_pool("default");
    pool.spec.limits = Resources::parse([("cpu", "10"), ("memory", "1Ti")])
        .ok()
        .map(|limits| limits.to_quantities());
    let snapshot = snapshot(pool, &[json!({})]);
    assert!(problems(&snapshot, vec![claim(&[0], &[0], None)], &[]).is_empty());
    assert_finds(
        &problems(&snapshot, vec![claim(&[0, 1], &[0], None)], &[]),
        "limit cpu 10 could be exceeded: 18",
    );
}

#[test]
fn pods_that_repel_or_need_each_other() {
    let terms = |kind: &str, key: &str, app: &str| json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}});
    let hosts = snapshot(
        node_pool("default"),
        &[terms("podAntiAffinity", labels::HOSTNAME, "web"), json!({})],
    );
    assert_finds(
        &problems(&hosts, vec![claim(&[1], &[0, 1], None)], &[]),
        "anti-affinity over kubernetes.io/hostname with default/p1",
    );
    assert!(
        problems(
            &hosts,
            vec![claim(&[1], &[0], None), claim(&[1], &[1], None)],
            &[]
        )
        .is_empty()
    );
    let zones = snapshot(
        node_pool("default"),
        &[terms("podAntiAffinity", labels::ZONE, "web"), json!({})],
    );
    assert_finds(
        &problems(
            &zones,
            vec![claim(&[1], &[0], Some("a")), claim(&[1], &[1], None)],
            &[],
        ),
        "anti-affinity over topology.kubernetes.io/zone",
    );
    assert!(
        problems(
            &zones,
            vec![claim(&[1], &[0], Some("a")), claim(&[1], &[1], Some("b"))],
            &[]
        )
        .is_empty()
    );
    let lonely = snapshot(node_pool("default"), &[terms("podAffinity", labels::ZONE, "db")]);
    assert_finds(
        &problems(&lonely, vec![claim(&[1], &[0], Some("a"))], &[]),
        "affinity over topology.kubernetes.io/zone finds no matching pod",
    );
    // A pod that selects itself may be alone, and two may not be so in different zones.
    let near = terms("podAffinity", labels::ZONE, "web");
    let alone = snapshot(node_pool("default"), std::slice::from_ref(&near));
    assert!(problems(&alone, vec![claim(&[1], &[0], Some("a"))], &[]).is_empty());
    let kin = snapshot(node_pool("default"), &[near.clone(), near]);
    let placed = |zone: &str| {
        problems(
            &kin,
            vec![claim(&[1], &[0], Some("a")), claim(&[1], &[1], Some(zone))],
            &[],
        )
    };
    assert!(placed("a").is_empty());
    assert_finds(
        &placed("b"),
        "affinity over topology.kubernetes.io/zone finds no matching pod",
    );
}

/// What is said of a pod of app `web` on node `n`, beside others that are there.
fn beside(others: Vec<Pod>, spec: &Value) -> Vec<String> {
    let new = labelled(pending_pod("a-new", "100m", "1Mi", spec), &[("app", "web")]);
    let others = others.into_iter().map(|pod| bound(pod, "n"));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_node(node("default", "n", &types()[1], "a", "spot"))
        .with_pods(others.chain([new]));
    let found = check_placements(&lower(&state), &[PodId(0)], &on_node(&[0]));
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn p_107_pods_that_take_long_to_leave_repel_and_attract_until_they_are_gone() {
    let leaving_within = |seconds: i64, app: &str, spec: &Value| {
        let mut pod = labelled(pending_pod("old", "100m", "1Mi", spec), &[("app", app)]);
        pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone();
        pod.metadata.deletion_grace_period_seconds = Some(seconds);
        vec![pod]
    };
    let leaving = |app: &str, spec: &Value| leaving_within(7200, app, spec);
    let term = |kind: &str, app: &str| {
        let term = json!({"topologyKey": labels::HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}});
        json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    let apart = term("podAntiAffinity", "web");
    let refusal = "anti-affinity over kubernetes.io/hostname with default/old";
    assert_finds(&beside(leaving("db", &apart), &json!({})), refusal);
    assert_finds(&beside(leaving("web", &json!({})), &apart), refusal);
    let together = term("podAffinity", "db");
    assert!(beside(leaving("db", &json!({})), &together).is_empty());
    // No node comes sooner than this one has gone.
    assert!(beside(leaving_within(30, "web", &json!({})), &apart).is_empty());
    let lonely = "affinity over kubernetes.io/hostname finds no matching pod";
    assert_finds(&beside(leaving_within(30, "db", &json!({})), &together), lonely);
    // A spread does not count it.
    let even = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": labels::HOSTNAME, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]});
    assert!(beside(leaving("web", &even), &even).is_empty());
}

#[test]
fn p_108_a_pod_counts_for_affinity_of_several_terms_if_all_of_them_select_it() {
    let term = |label: &str, value: &str| json!({"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {label: value}}});
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        term("app", "db"), term("tier", "hot")]}}});
    let other = |name: &str, own: &[(&str, &str)]| {
        let pod = pending_pod(name, "100m", "1Mi", &json!({}));
        labelled(pod, own)
    };
    let apart = vec![other("db", &[("app", "db")]), other("hot", &[("tier", "hot")])];
    assert_finds(
        &beside(apart, &near),
        "affinity over topology.kubernetes.io/zone finds no matching pod",
    );
    let both = vec![other("db", &[("app", "db"), ("tier", "hot")])];
    assert!(beside(both, &near).is_empty());
}

#[test]
fn uneven_spread() {
    let spread = |key: &str| json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let hosts = snapshot(
        node_pool("default"),
        &[spread(labels::HOSTNAME), spread(labels::HOSTNAME)],
    );
    assert_finds(
        &problems(&hosts, vec![claim(&[1], &[0, 1], None)], &[]),
        "2 pods in host 1, maxSkew 1",
    );
    let zones = snapshot(
        node_pool("default"),
        &[
            spread(labels::ZONE),
            spread(labels::ZONE),
            spread(labels::ZONE),
            spread(labels::ZONE),
        ],
    );
    let uneven = vec![claim(&[1], &[0, 1, 2], Some("a")), claim(&[1], &[3], Some("b"))];
    assert_finds(
        &problems(&zones, uneven, &[]),
        "between 1 and 3 pods per domain, maxSkew 1",
    );
    assert_finds(
        &problems(&zones, vec![claim(&[1], &[0], None)], &[]),
        "spread over topology.kubernetes.io/zone leaves the domain open",
    );
}

/// What is said of a pod that comes to a new node of zone `a`, where some pods of its kind are, and where zone `b` has none. Of `waiting` more pods nothing is planned.
fn uneven(there: usize, waiting: usize, zones: &[&str], change: &Value) -> Vec<String> {
    let mut spread = json!({"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    if let (Some(spread), Some(change)) = (spread.as_object_mut(), change.as_object()) {
        spread.extend(change.clone());
    }
    let spec = json!({"topologySpreadConstraints": [spread]});
    let web = |name: String| labelled(pending_pod(&name, "100m", "1Mi", &spec), &[("app", "web")]);
    let coming = (0..=waiting).map(|index| web(format!("a-{index}")));
    let there = (0..there).map(|index| bound(web(format!("b-{index}")), "n"));
    let large = instance_type("large", 16, 32, zones);
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![large.clone()])
        .with_node(node("default", "n", &large, "a", "spot"))
        .with_pods(coming.chain(there));
    let placements = Placements {
        claims: vec![claim(&[0], &[0], Some("a"))],
        ..Placements::default()
    };
    let found = check_placements(&lower(&state), &[PodId(0)], &placements);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn p_101_p_102_pods_that_are_there_count_and_so_do_zones_that_are_for_sale() {
    let nothing = json!({});
    let words = "spread over topology.kubernetes.io/zone: between 0 and 2 pods per domain, maxSkew 1";
    assert!(uneven(0, 0, &ZONES, &nothing).is_empty(), "the first of all");
    assert_finds(&uneven(1, 0, &ZONES, &nothing), words);
    assert_finds(&uneven(1, 0, &ZONES, &json!({"minDomains": 2})), words);
    assert!(uneven(1, 0, &ZONES, &json!({"maxSkew": 2})).is_empty());
    assert!(
        uneven(1, 0, &["a"], &nothing).is_empty(),
        "there is no other zone"
    );
    assert!(
        uneven(1, 1, &ZONES, &nothing).is_empty(),
        "somebody may be in the other zone by then"
    );
    let pods = vec![
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": labels::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]});
        4
    ];
    let snapshot = snapshot(node_pool("default"), &pods);
    let two_and = |zone: &str| vec![claim(&[1], &[0, 1], Some("a")), claim(&[1], &[2, 3], Some(zone))];
    assert_finds(
        &problems(&snapshot, two_and("a"), &[]),
        "between 0 and 4 pods per domain, maxSkew 1",
    );
    assert!(problems(&snapshot, two_and("b"), &[]).is_empty());
}

#[test]
fn reservations_are_not_promised_twice() {
    const LABEL: &str = "example.com/reservation-id";
    let mut reserved = offering("a", "reserved", Price(1));
    reserved.requirements.add(Requirement::is(LABEL, "r-1"));
    reserved.reservation_id_label = Some(LABEL.to_owned());
    reserved.reservation_capacity = 1;
    let mut only = instance_type("only", 2, 4, &["a"]);
    only.offerings = vec![reserved];
    only.requirements
        .replace(Requirement::one_of(labels::CAPACITY_TYPE, ["reserved"]));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![only])
        .with_pods(["p0", "p1"].map(|name| pending_pod(name, "1", "1Gi", &json!({}))));
    let snapshot = lower(&state);
    let pinned = |pod: u32| {
        let requirements: Requirements = [
            Requirement::is(LABEL, "r-1"),
            Requirement::is(labels::CAPACITY_TYPE, "reserved"),
        ]
        .into_iter()
        .collect();
        PlannedClaim {
            requirements,
            capacity_types: ["reserved".to_owned()].into(),
            ..claim(&[0], &[pod], None)
        }
    };
    assert!(problems(&snapshot, vec![pinned(0)], &[]).is_empty());
    assert_finds(
        &problems(&snapshot, vec![pinned(0), pinned(1)], &[]),
        "is promised to 1 NodeClaims more than it has instances",
    );
}

#[test]
fn p_117_a_node_with_too_many_volumes_takes_pods_that_bring_none() {
    let using = |name: &str, claim: &str| {
        let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
        pending_pod(name, "100m", "1Mi", &spec)
    };
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_node(node("default", "n", &types()[1], "a", "spot"))
        .with_pods([
            pending_pod("a-bare", "100m", "1Mi", &json!({})),
            using("b-same", "one"),
            using("c-new", "three"),
            bound(using("d-there", "one"), "n"),
            bound(using("e-there", "two"), "n"),
        ]);
    let csi_node = json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "n", "allocatable": {"count": 1}}]}});
    let csi_node = Arc::new(serde_json::from_value(csi_node).expect("a CSINode"));
    state.volumes.csi_nodes.insert("n".to_owned(), csi_node);
    let class = json!({"metadata": {"name": "disk"}, "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"});
    let class = Arc::new(serde_json::from_value(class).expect("a class"));
    state.volumes.storage_classes.insert("disk".to_owned(), class);
    for claim in ["one", "two", "three"] {
        let object = json!({"metadata": {"namespace": "default", "name": claim}, "spec": {"storageClassName": "disk"}});
        let object = Arc::new(serde_json::from_value(object).expect("a claim"));
        state.volumes.claims.insert(format!("default/{claim}"), object);
    }
    let snapshot = lower(&state);
    let on_node = |pod: u32| {
        let placements = on_node(&[pod]);
        let found = check_placements(&snapshot, &[PodId(pod)], &placements);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(on_node(0).is_empty(), "{:?}", on_node(0));
    assert!(on_node(1).is_empty(), "its volume is there: {:?}", on_node(1));
    assert_finds(&on_node(2), "3 volumes of ebs.csi.aws.com, limit 1");
}

/// Pods on node `n`.
fn on_node(pods: &[u32]) -> Placements {
    let pods = pods.iter().map(|pod| PodId(*pod)).collect();
    Placements {
        existing: [(NodeId(0), pods)].into(),
        ..Placements::default()
    }
}

/// The numbers of the pods that have to go, and that each is told why.
fn suspected(snapshot: &Snapshot, batch: &[u32], placements: &Placements) -> Vec<u32> {
    let batch: Vec<PodId> = batch.iter().map(|pod| PodId(*pod)).collect();
    let violations = check_placements(snapshot, &batch, placements);
    let found = suspects(snapshot, &batch, placements, &violations);
    assert!(found.values().all(|text| !text.is_empty()));
    found.into_keys().map(|pod| pod.0).collect()
}

#[test]
fn a_violation_is_of_the_pods_that_ask_for_the_same_or_of_all_that_are_put_there() {
    let zonal = json!({"nodeSelector": {"topology.kubernetes.io/zone": "b"}});
    let pods = [zonal.clone(), zonal, json!({}), json!({})];
    let snapshot = snapshot(node_pool("default"), &pods);
    let batch = [0, 1, 2, 3];
    assert!(suspected(&snapshot, &batch, &on_node(&[2])).is_empty());
    // The second asks for the same as the first, although it has no place: without the first it would be where that was.
    assert_eq!(suspected(&snapshot, &batch, &on_node(&[0, 2])), [0, 1]);
    // Nobody in particular is one too many.
    let full = Placements {
        claims: vec![claim(&[0], &[1, 2, 3], Some("b")), claim(&[1], &[0], Some("b"))],
        ..Placements::default()
    };
    assert_eq!(suspected(&snapshot, &batch, &full), [1, 2, 3]);
    let twice = Placements {
        claims: vec![claim(&[1], &[2], None)],
        ..on_node(&[2])
    };
    assert_eq!(
        suspected(&snapshot, &batch, &twice),
        [2, 3],
        "also what cannot be"
    );
}

#[test]
fn a_pod_that_is_there_and_wants_no_company_accuses_the_one_that_comes() {
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": labels::ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    let web = |name: &str, spec: &Value| labelled(pending_pod(name, "100m", "1Mi", spec), &[("app", "web")]);
    let state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_node(node("default", "n", &types()[0], "a", "spot"))
        .with_pods([web("a", &json!({})), bound(web("b", &apart), "n")]);
    let snapshot = lower(&state);
    let placements = Placements {
        claims: vec![claim(&[0], &[0], Some("a"))],
        ..Placements::default()
    };
    assert_eq!(suspected(&snapshot, &[0], &placements), [0]);
}
