//! Plans that are wrong in one way each: the audit must name it. And one that is right.

use serde_json::{Value, json};
use spokeshave_audit::check_placements;
use spokeshave_example::{instance_type, labelled, node, node_pool, offering, pending_pod};
use spokeshave_model::placement::{Launch, Placements, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::{
    ClusterState, InstanceType, Price, Requirement, Requirements, Resources, labels, lower,
};

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
