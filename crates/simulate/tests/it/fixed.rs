//! Nodes that no NodePool owns: there from the start to the end with their pods, room for others, and in no bill.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_scenario::{Change, Event, OwnerId, OwnerKind, Placement, Timeline};
use spokeshave_simulate::left_out::Why;
use spokeshave_simulate::{Model, ObjectsAt, Standing, Watch, World, live, live_watched};

use crate::small::{HOUR, owner, policy, world};
use crate::standing::{MINUTE, begun, count, dumped, full, objects_at, pairs, told};

/// A Node of a managed node group, with four cores for pods.
fn managed(name: &str) -> Node {
    let amounts = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    let node = json!({
        "metadata": {"name": name, "creationTimestamp": "1969-12-01T00:00:00Z", "labels": {"kubernetes.io/hostname": name}},
        "spec": {"providerID": format!("cloud://{name}")},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    serde_json::from_value(node).unwrap()
}

/// Adds a pod that comes at some time, without a node or on this one.
fn add(timeline: &mut Timeline, name: &str, cpu: &str, at_ms: u64, node: Option<&str>) {
    let id = OwnerId(u32::try_from(timeline.owners.len()).unwrap());
    timeline.owners.push(owner(OwnerKind::Bare, name, cpu));
    let event = Event {
        at_ms,
        owner: id,
        change: Change::Begin {
            pod: 0,
            runs_ms: None,
        },
    };
    timeline.events.push(event);
    timeline.events.sort_by_key(|event| event.at_ms);
    timeline.placements.extend(node.map(|node| Placement {
        owner: id,
        pod: 0,
        node: node.to_owned(),
        since: None,
        works_since: None,
    }));
}

/// Two half empty nodes of a NodePool, whose two small pods could be on one, or on this node of none.
fn shrunk(node: Node) -> (World, Timeline) {
    let policy = policy();
    let mut objects = objects_at(2 * HOUR, &pairs(), &policy);
    objects.nodes.push(Arc::new(node));
    begun(&objects, 2, &policy, "small")
}

#[test]
fn they_stay_with_their_pods_and_are_in_no_figure_of_nodes_and_money() {
    let policy = policy();
    let mut objects = objects_at(HOUR, &full(), &policy);
    objects.nodes.push(Arc::new(managed("system-1")));
    let (world, mut timeline) = begun(&objects, 1, &policy, "web");
    add(&mut timeline, "operator", "2", 0, Some("system-1"));
    let (run, log) = told(&world, &timeline, &policy);
    let measured = &run.measured;
    assert_eq!((count(&log, "standing"), count(&log, "fixed")), (3, 1));
    assert_eq!((count(&log, "placed"), count(&log, "left")), (4, 0));
    assert_eq!((measured.launches, measured.evictions_voluntary), (0, 0));
    assert_eq!(
        measured.cost_on_demand_micros,
        3 * 220_000,
        "three nodes for an hour"
    );
    assert_eq!((measured.peak_nodes, measured.node_ms), (3, u128::from(3 * HOUR)));
    assert_eq!(measured.idle_node_ms, 0);
    assert_eq!(
        measured.pod_ms,
        u128::from(4 * HOUR),
        "its pod is one of the workloads'"
    );
    // Of eleven cores that are requested it has four: seven are to be bought, at $0.22 for 3.9.
    assert!(
        (390_000..396_000).contains(&measured.bound_micros),
        "{}",
        measured.bound_micros
    );
}

/// Consolidation empties both nodes of the NodePool onto it, whoever decides, and never looks at it as something to remove.
#[test]
fn they_take_pods_of_nodes_that_are_not_needed_any_more() {
    let (world, timeline) = shrunk(managed("system-1"));
    for model in [Model::Ours, Model::Karpenter, Model::ClusterAutoscaler] {
        let mut policy = policy();
        policy.model = model;
        let (run, log) = told(&world, &timeline, &policy);
        assert_eq!(count(&log, "ended"), 2, "{model:?}");
        assert_eq!(run.measured.launches, 0, "{model:?}");
        let last = log.iter().rev().find(|entry| entry.what == "bound").unwrap();
        assert_eq!(last.more, "system-1", "{model:?}");
        assert_eq!(
            run.measured.bound_micros, 0,
            "{model:?}: nothing has to be bought"
        );
    }
}

#[test]
fn those_that_are_cordoned_or_tainted_take_none() {
    let mut cordoned = managed("system-1");
    cordoned.spec.as_mut().unwrap().unschedulable = Some(true);
    let mut tainted = managed("system-1");
    let taints = json!([{"key": "CriticalAddonsOnly", "effect": "NoSchedule"}]);
    tainted.spec.as_mut().unwrap().taints = serde_json::from_value(taints).unwrap();
    for node in [cordoned, tainted] {
        let (world, timeline) = shrunk(node);
        let (run, log) = told(&world, &timeline, &policy());
        assert_eq!(count(&log, "ended"), 1, "one node of the NodePool is needed");
        assert_eq!(run.measured.evictions_voluntary, 1);
        let mut bound = log.iter().filter(|entry| entry.what == "bound");
        assert!(bound.all(|entry| entry.more != "system-1"));
    }
}

/// Three cores fit on it beside nothing else, and not beside two others.
#[test]
fn a_node_is_launched_for_what_they_have_no_room_for() {
    for (others, launches) in [("1", 0), ("2", 1)] {
        let mut policy = policy();
        policy.model = Model::None;
        let (world, mut timeline) = shrunk(managed("system-1"));
        add(&mut timeline, "operator", others, 0, Some("system-1"));
        // The nodes of the NodePool are emptier, with 3.5 cores left each: they are full before the last one comes.
        add(&mut timeline, "filler-1", "3", MINUTE, None);
        add(&mut timeline, "filler-2", "3", MINUTE, None);
        add(&mut timeline, "late", "3", 10 * MINUTE, None);
        let measured = live(&world, &timeline, &policy, 1).measured;
        assert_eq!(measured.launches, launches, "beside {others}");
    }
}

#[test]
fn daemons_run_on_them_and_the_cluster_shows_them_to_the_end() {
    let (mut world, timeline) = shrunk(managed("system-1"));
    let daemon_set = spokeshave_example::daemon_set("agent", "100m", "64Mi", &json!({}));
    world.daemon_sets = vec![Arc::new(daemon_set)];
    let mut on_it: Vec<String> = Vec::new();
    let mut is_there = false;
    let mut take = |objects: &spokeshave_simulate::Objects| {
        let mut nodes = objects.nodes.iter();
        is_there = nodes.any(|node| node.metadata.name.as_deref() == Some("system-1"));
        let pods = objects.pods.iter();
        let own = pods.filter(|pod| pod.node_name.as_deref() == Some("system-1"));
        on_it = own.filter_map(|pod| pod.metadata.name.clone()).collect();
    };
    let watch = Watch {
        lines: None,
        objects: Some(ObjectsAt {
            at_ms: 2 * HOUR,
            take: &mut take,
        }),
    };
    live_watched(&world, &timeline, &policy(), 1, &|| false, watch);
    assert!(is_there);
    assert!(on_it.iter().any(|name| name.starts_with("agent-")), "{on_it:?}");
    let small = on_it.iter().filter(|name| name.starts_with("small-"));
    assert_eq!(small.count(), 2, "{on_it:?}");
}

#[test]
fn what_no_life_can_begin_with_is_left_out_with_its_reason() {
    type Doctor = fn(&mut Node);
    let cases: [(Doctor, Option<Why>); 5] = [
        (
            |node| node.metadata.deletion_timestamp = node.metadata.creation_timestamp.clone(),
            Some(Why::Deleting),
        ),
        (
            |node| node.status.as_mut().unwrap().conditions = None,
            Some(Why::NotReady),
        ),
        (
            |node| {
                let status = node.status.as_mut().unwrap();
                status.allocatable = Some(BTreeMap::new());
                status.capacity = None;
            },
            Some(Why::NoAllocatable),
        ),
        (|node| node.status.as_mut().unwrap().allocatable = None, None),
        (|node| node.spec = None, None),
    ];
    let policies = [policy()];
    let objects = objects_at(HOUR, &full(), &policies[0]);
    for (number, (doctor, why)) in cases.into_iter().enumerate() {
        let mut node = managed("system-1");
        doctor(&mut node);
        let nodes: Vec<Arc<Node>> = objects.nodes.iter().cloned().chain([Arc::new(node)]).collect();
        let dumped = dumped(&objects, &nodes, &objects.node_claims);
        let (standing, left_out) = Standing::of(&dumped, &world(1), &policies);
        let left_out: Vec<Why> = left_out.iter().map(|one| one.why).collect();
        assert_eq!(left_out, Vec::from_iter(why), "case {number}");
        let names: Vec<&str> = standing.fixed_names().collect();
        assert_eq!(names.is_empty(), why.is_some(), "case {number}");
        assert_eq!(standing.nodes.len(), 3, "case {number}: the others stand");
    }
}

/// Two Nodes of one instance are none that a plan could tell apart, and a cluster without NodeClaims is another autoscaler's.
#[test]
fn nodes_of_one_instance_and_of_a_cluster_without_node_claims_are_left_out() {
    let policies = [policy()];
    let objects = objects_at(HOUR, &full(), &policies[0]);
    let nodes = ["one", "two", "three"].map(|name| {
        let mut node = managed(name);
        if name != "three" {
            node.spec.as_mut().unwrap().provider_id = Some("cloud://same".to_owned());
        }
        Arc::new(node)
    });
    let judged = |claims: &[Arc<spokeshave_api::NodeClaim>]| {
        let dumped = dumped(&objects, &nodes, claims);
        let (standing, left_out) = Standing::of(&dumped, &world(1), &policies);
        let fixed: Vec<String> = standing.fixed_names().map(str::to_owned).collect();
        let of_nodes = left_out.into_iter().filter(|one| one.kind == "Node");
        (fixed, of_nodes.map(|one| (one.name, one.why)).collect::<Vec<_>>())
    };
    let (fixed, left_out) = judged(&objects.node_claims);
    assert_eq!(fixed, ["three"]);
    let twins = ["one", "two"].map(|name| (name.to_owned(), Why::Twin));
    assert_eq!(left_out, twins);
    let (fixed, left_out) = judged(&[]);
    assert_eq!(fixed, [""; 0]);
    assert!(left_out.iter().all(|(_, why)| *why == Why::NoNodeClaims));
    assert_eq!(left_out.len(), 3);
}
