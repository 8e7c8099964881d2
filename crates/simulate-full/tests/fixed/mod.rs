//! Dumps that both engines go on with: nodes that no NodePool owns, and Jobs that have been at work for some time.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use spokeshave_model::labels;
use spokeshave_scenario::{Change, Event, OwnerKind};
use spokeshave_simulate_full::Life;
use spokeshave_simulate_full::agreement::Told;

use crate::{HOUR_MS, fast, full, gone_on_with};

fn count(told: &Told, what: &str) -> usize {
    told.lines.iter().filter(|line| line.what == what).count()
}

/// How many pods have got this node.
fn bound_to(told: &Told, node: &str) -> usize {
    let bound = told.lines.iter().filter(|line| line.what == "bound");
    bound.filter(|line| line.more == node).count()
}

/// A Node of a managed node group with eight cores for pods, in the zone of the first node of the dump. The first pod of the dump is on it.
fn with_managed(life: &mut Life, name: &str) {
    let zone = life.world.standing.nodes[0]
        .claim
        .label(labels::ZONE)
        .unwrap()
        .to_owned();
    let amounts = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    let node = json!({
        "metadata": {"name": name, "creationTimestamp": "2026-03-01T00:00:00Z", "labels": {
            "topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        }},
        "spec": {"providerID": format!("cloud://{name}"), "taints": []},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let node: Node = serde_json::from_value(node).unwrap();
    let world = Arc::make_mut(&mut life.world);
    world.standing.fixed.push(Arc::new(node));
    let timeline = Arc::make_mut(&mut life.timeline);
    name.clone_into(&mut timeline.placements[0].node);
}

/// Pods go there when nodes of the NodePool are emptied, and it is never emptied itself.
#[test]
fn nodes_of_no_node_pool_are_lived_with_alike() {
    for (name, seed) in [("4-budgets", 3), ("2-rising", 1)] {
        let mut life = gone_on_with(name, seed, 4 * HOUR_MS, 6, &[0]);
        with_managed(&mut life, "system-1");
        let (fast, full) = (fast(&life), full(&life));
        for what in ["standing", "fixed", "placed", "ended", "killed"] {
            assert_eq!(count(&fast, what), count(&full, what), "{name}: {what}");
        }
        assert_eq!((count(&fast, "fixed"), count(&fast, "killed")), (1, 0), "{name}");
        assert_eq!(fast.commands(), full.commands(), "{name}");
        let moved = bound_to(&fast, "system-1");
        assert!(moved > 0, "{name}: it takes no pods");
        assert_eq!(moved, bound_to(&full, "system-1"), "{name}");
        assert_eq!(fast.evictions(), full.evictions(), "{name}");
        assert_eq!(fast.run.measured.launches, full.run.measured.launches, "{name}");
        assert_eq!(
            fast.run.measured.peak_nodes, full.run.measured.peak_nodes,
            "{name}: it is none of the nodes that are counted"
        );
        let apart = fast.cost().abs_diff(full.cost());
        assert!(
            apart * 1_000 <= fast.cost(),
            "{name}: {} and {}",
            fast.cost(),
            full.cost()
        );
    }
}

/// Of thirty pods that take twenty minutes every second has worked for fifteen: these end after five.
#[test]
fn jobs_of_a_dump_end_when_the_rest_of_their_time_is_over_in_both() {
    const MINUTE_MS: u64 = 60_000;
    let mut life = gone_on_with("1-constant", 1, HOUR_MS, 1, &[]);
    let taken_at = life.world.standing.taken_at;
    let timeline = Arc::make_mut(&mut life.timeline);
    let owner = timeline.placements[0].owner;
    timeline.owners[owner.0 as usize].kind = OwnerKind::Job;
    let mut events = Vec::new();
    for placement in &mut timeline.placements {
        let fifteen = jiff::SignedDuration::from_mins(15);
        let is_early = placement.pod.is_multiple_of(2);
        placement.works_since = is_early.then(|| taken_at.saturating_sub(fifteen).unwrap());
        events.push(Event {
            at_ms: 0,
            owner,
            change: Change::Begin {
                pod: placement.pod,
                runs_ms: Some(20 * MINUTE_MS),
            },
        });
    }
    timeline.events = events;
    let placed = timeline.placements.len();
    assert!(placed > 10, "{placed}");
    for told in [fast(&life), full(&life)] {
        let left = told.lines.iter().filter(|line| line.what == "left");
        let left = left.filter(|line| line.at_ms <= 6 * MINUTE_MS);
        let left: Vec<u64> = left.map(|line| line.at_ms).collect();
        let at = 5 * MINUTE_MS..=5 * MINUTE_MS + 1_000;
        assert!(left.iter().all(|at_ms| at.contains(at_ms)), "{left:?}");
        assert_eq!(left.len(), placed.div_ceil(2));
        assert_eq!(told.run.measured.peak_pods, placed as u64);
    }
}
