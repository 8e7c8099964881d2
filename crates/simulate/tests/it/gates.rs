//! Pods with scheduling gates, which nobody takes off in a simulation.

use std::sync::Arc;

use serde_json::json;
use spokeshave_scenario::{Change, Owner, OwnerKind};
use spokeshave_simulate::{Objects, ObjectsAt, Watch, live_watched};

use crate::small::{HOUR, owner, policy, timeline, world};

/// A Deployment whose pods have a gate.
fn gated(name: &str, cpu: &str) -> Owner {
    let mut owner = owner(OwnerKind::Deployment, name, cpu);
    let spec = Arc::make_mut(&mut owner.template).spec.as_mut().unwrap();
    spec.scheduling_gates = serde_json::from_value(json!([{"name": "example.com/queue"}])).unwrap();
    owner
}

/// Three pods with a gate beside two without, of which one node has room for all.
#[test]
fn a_pod_with_a_gate_gets_neither_a_place_nor_a_node() {
    let events = vec![
        (0, 0, Change::Replicas(3)),
        (0, 1, Change::Replicas(2)),
        (HOUR, 0, Change::Replicas(1)),
    ];
    let timeline = timeline(
        vec![gated("held", "500m"), owner(OwnerKind::Deployment, "web", "1")],
        events,
    );
    let (mut objects, world) = (None, world(2));
    let mut show = |all: &Objects| objects = Some(all.clone());
    let watch = Watch {
        lines: None,
        objects: Some(ObjectsAt {
            at_ms: HOUR / 2,
            take: &mut show,
        }),
    };
    let measured = live_watched(&world, &timeline, &policy(), 1, &|| false, watch).measured;
    let objects = objects.unwrap();
    let has_node = |prefix: &str| -> Vec<bool> {
        let named = |name: &Option<String>| name.as_deref().is_some_and(|name| name.starts_with(prefix));
        let pods = objects.pods.iter().filter(|pod| named(&pod.metadata.name));
        pods.map(|pod| pod.node_name.is_some()).collect()
    };
    assert_eq!(has_node("held"), [false; 3]);
    assert_eq!(has_node("web"), [true; 2]);
    assert_eq!((measured.launches, measured.pending_born_ms.len()), (1, 2));
    assert_eq!(
        measured.pending_left_ms,
        [3_600_000, 3_600_000],
        "scaled down while they wait"
    );
    assert_eq!(measured.pending_at_end_ms, [7_200_000], "the one that is left");
}

/// Fifty pods that would need a node each: no plan is made for them.
#[test]
fn a_cluster_of_gated_pods_alone_costs_nothing() {
    let events = vec![(0, 0, Change::Replicas(50))];
    let timeline = timeline(vec![gated("held", "3")], events);
    let measured = live_watched(&world(2), &timeline, &policy(), 1, &|| false, Watch::default()).measured;
    assert_eq!((measured.launches, measured.cost_on_demand_micros), (0, 0));
    assert_eq!(measured.pending_at_end_ms.len(), 50);
}
