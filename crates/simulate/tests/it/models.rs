//! When models of other autoscalers act, and what of the product they do without. What they decide is proved beside them.

use std::sync::Arc;

use serde_json::json;
use spokeshave_scenario::{Change, OwnerKind, Timeline};
use spokeshave_simulate::{Line, Model, Policy, Run, Watch, World, live_watched};

use crate::balanced::sold;
use crate::small::{HOUR, SECOND, owner, policy, pool, timeline, world};

/// A policy of a model under which all nodes may go at once.
fn modelled(model: Model) -> Policy {
    let mut pool = pool();
    pool.spec.disruption.budgets = serde_json::from_value(json!([{"nodes": "100%"}])).unwrap();
    let mut policy = Policy::new("model", vec![Arc::new(pool)]);
    policy.model = model;
    policy
}

/// What happened to commands: when, what, and the words of the log.
fn lived(world: &World, policy: &Policy, timeline: &Timeline) -> (Vec<(u64, String, String)>, Run) {
    let mut told = Vec::new();
    let mut sink = |line: Line<'_>| {
        if ["command", "rejected", "rolled back"].contains(&line.what) {
            told.push((line.at_ms, line.what.to_owned(), line.more.to_owned()));
        }
    };
    let watch = Watch {
        lines: Some(&mut sink),
        ..Watch::default()
    };
    let run = live_watched(world, timeline, policy, 1, &|| false, watch);
    (told, run)
}

/// Deployments of one pod each, and when each of them wants one or none.
fn deployments<const N: usize>(cpus: [&str; N], wanted: &[(u64, u32, u32)]) -> Timeline {
    let owners = cpus.iter().enumerate();
    let owners = owners.map(|(index, cpu)| owner(OwnerKind::Deployment, &format!("o{index}"), cpu));
    let events = wanted.iter();
    let events = events.map(|(at_ms, owner, replicas)| (*at_ms, *owner, Change::Replicas(*replicas)));
    timeline(owners.collect(), events.collect())
}

/// After an hour one node is empty, and a smaller one would do for the other. The first command waits for its second look for a quarter of a minute, in which nothing
/// else is decided; then the next pass begins at once.
#[test]
fn d_063_d_086_while_a_command_waits_nothing_else_is_decided() {
    let wanted = [(0, 0, 1), (0, 1, 1), (HOUR / 6, 2, 1), (HOUR, 1, 0), (HOUR, 2, 0)];
    let timeline = deployments(["500m", "3300m", "3800m"], &wanted);
    let (told, _) = lived(&sold([1, 3, 4]), &modelled(Model::Karpenter), &timeline);
    let [(empty_at, _, empty), (single_at, _, single)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(empty.starts_with("Emptiness "), "{told:?}");
    assert!(single.starts_with("SingleNodeConsolidation "), "{told:?}");
    assert_eq!(single_at - empty_at, 15 * SECOND);
}

/// A smaller node comes for a pod; while it boots, another pod begins to wait, which is on it first.
#[test]
fn d_111_d_108_a_model_deletes_nodes_without_a_last_look() {
    let wanted = [(0, 0, 1), (0, 1, 1), (HOUR, 1, 0), (HOUR + 80 * SECOND, 2, 1)];
    let timeline = deployments(["500m", "3300m", "800m"], &wanted);
    let (told, run) = lived(&sold([1, 4]), &modelled(Model::Karpenter), &timeline);
    assert!(told.iter().all(|(_, what, _)| what == "command"), "{told:?}");
    assert!(told[0].2.starts_with("SingleNodeConsolidation "), "{told:?}");
    assert_eq!(run.measured.evictions_voluntary, 1);
}

/// The only node is empty after an hour, and a DisruptionPolicy lets none go.
#[test]
fn models_know_of_no_disruption_policies() {
    let timeline = deployments(["1"], &[(0, 0, 1), (HOUR, 0, 0)]);
    let held = json!({
        "apiVersion": "spokeshave.dev/v1alpha1", "kind": "DisruptionPolicy", "metadata": {"name": "held"},
        "spec": {"budgets": [{"limit": "0"}]},
    });
    for (model, commands) in [
        (Model::Ours, 0),
        (Model::Karpenter, 1),
        (Model::KarpenterBalanced, 1),
        (Model::ClusterAutoscaler, 1),
    ] {
        let mut policy = modelled(model);
        policy.disruption_policies = vec![Arc::new(serde_json::from_value(held.clone()).unwrap())];
        let (_, run) = lived(&world(3), &policy, &timeline);
        assert_eq!(run.measured.commands, commands, "{model:?}");
    }
}

/// Three nodes of which one is enough after an hour; pods take half a minute to stop.
#[test]
fn cluster_autoscaler_drains_one_node_after_the_other() {
    let owners = [("filler", "3"), ("small", "500m")];
    let owners = owners.map(|(name, cpu)| owner(OwnerKind::Deployment, name, cpu));
    let events = vec![
        (0, 0, Change::Replicas(3)),
        (0, 1, Change::Replicas(3)),
        (HOUR, 0, Change::Replicas(0)),
    ];
    let mut world = world(3);
    world.delays.pod_stop_ms = 30 * SECOND;
    let mut policy = policy();
    policy.model = Model::ClusterAutoscaler;
    let (told, run) = lived(&world, &policy, &timeline(owners.into(), events));
    let [(first_at, ..), (second_at, ..)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(second_at - first_at >= 30 * SECOND, "{told:?}");
    assert!(first_at - HOUR >= 600 * SECOND, "{told:?}");
    assert_eq!(run.curve.nodes_thousandths.last(), Some(&1_000));
}
