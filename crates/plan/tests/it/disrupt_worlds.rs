//! Generated clusters: every command passes the independent audit, sets are never worse than prefixes, named blockers are what keeps a node,
//! threads change nothing, and moves end.

use crate::support;
use crate::support::executor::Executor;
use crate::support::{World, free_pool, on_demand_pool};
use serde_json::{Value, json};
use spokeshave_api::{Budget, ConsolidationPolicy};
use spokeshave_audit::{CommandCheck, check_command};
use spokeshave_example::{Dice, bound, instance_type, labelled, node, pending_pod};
use spokeshave_model::snapshot::{NodeId, Snapshot};
use spokeshave_model::{ClusterState, Price, labels, lower};
use spokeshave_plan::disrupt::{
    Blocker, BlockerKind, Command, Destination, Frontier, Method, Verdict, disrupt, judge, validate,
};
use spokeshave_plan::{Policy, provision};
use std::collections::BTreeMap;
use std::sync::Arc;

const SIZES: [(&str, i64, i64); 4] = [
    ("small", 2, 4),
    ("medium", 4, 8),
    ("large", 16, 32),
    ("huge", 32, 64),
];

fn catalog() -> Vec<spokeshave_model::InstanceType> {
    let mut types: Vec<_> = SIZES
        .iter()
        .map(|(name, cores, memory)| instance_type(name, *cores, *memory, &["a", "b"]))
        .collect();
    // Known and dear, but not to be had: what a node is turned into when its price shall not matter.
    let mut gold = instance_type("gold", 1, 1, &["a", "b"]);
    for offering in &mut gold.offerings {
        offering.price = Price(1_000_000_000_000);
        offering.available = false;
    }
    types.push(gold);
    types
}

/// A cluster of two pools with everything that can be in the way.
fn world(seed: u64) -> World {
    let mut dice = Dice(seed.wrapping_mul(7919) + 1);
    // A separate stream, so that the rest of a world does not depend on it.
    let mut deadlines = Dice(seed.wrapping_mul(15_485_863) + 7);
    let mut state = ClusterState::default();
    let types = catalog();
    for name in ["alpha", "beta"] {
        let mut pool = if dice.below(2) == 0 {
            free_pool(name)
        } else {
            on_demand_pool(name)
        };
        let disruption = &mut pool.spec.disruption;
        disruption.consolidation_policy = match dice.below(6) {
            0 => ConsolidationPolicy::WhenEmpty,
            1 => ConsolidationPolicy::Balanced,
            _ => ConsolidationPolicy::WhenEmptyOrUnderutilized,
        };
        if dice.below(3) == 0 {
            disruption.budgets = Some(vec![Budget::always(dice.pick::<&str>(&["0", "1", "2", "50%"]))]);
        }
        if dice.below(6) == 0 {
            disruption.consolidate_after = serde_json::from_value(json!("Never")).expect("Never");
        } else if dice.below(4) == 0 {
            disruption.consolidate_after = serde_json::from_value(json!("10m")).expect("10m");
        }
        if dice.below(5) == 0 {
            pool.spec.limits =
                Some(spokeshave_model::Resources::from_amounts([("cpu", 20_000)]).to_quantities());
        }
        state = state.with_pool(pool, types.clone());
    }
    let mut world = World {
        state,
        types,
        policy: Policy::default(),
        now: support::later(0),
    };
    for index in 0..2 + dice.below(6) {
        let name = format!("n{index}");
        let pool = *dice.pick(&["alpha", "beta"]);
        let kind = *dice.pick(&["on-demand", "on-demand", "spot"]);
        world = world.node_in(pool, &name, dice.pick(&SIZES).0, kind);
        if dice.below(8) == 0 {
            world = world.annotate_node(&name, "karpenter.sh/do-not-disrupt", "true");
        }
        if dice.below(6) == 0 {
            world = world.not_consolidatable(&name);
        }
        if dice.below(6) == 0 {
            world = world.drifted(&name, 0);
        }
        if deadlines.below(4) == 0 {
            world = world.grace(&name);
        }
        if dice.below(5) == 0 {
            world = world.last_pod_event(&name, -60);
        } else {
            world = world.last_pod_event(&name, -7200);
        }
        for number in 0..dice.below(4) {
            let pod = format!("{name}-{number}");
            let cpu = *dice.pick(&["100m", "500m", "1", "1500m"]);
            world = world.pod_with(&pod, &name, cpu, &constraints(&mut dice, &name));
            match dice.below(14) {
                0 => world = world.annotate_pod(&pod, "karpenter.sh/do-not-disrupt", "true"),
                1 => world = world.budget(&pod, &json!({"matchLabels": {"app": pod}}), 0),
                2 => {
                    world = world
                        .budget(&format!("{pod}-x"), &json!({"matchLabels": {"app": pod}}), 1)
                        .budget(&format!("{pod}-y"), &json!({"matchLabels": {"app": pod}}), 1);
                }
                _ => {}
            }
        }
    }
    for index in 0..dice.below(3) {
        world = world.pending(
            &format!("pending-{index}"),
            ["500m", "1500m", "40"][dice.below(3)],
        );
    }
    world
}

fn constraints(dice: &mut Dice, node: &str) -> Value {
    match dice.below(9) {
        0 => json!({"nodeSelector": {"kubernetes.io/hostname": node}}),
        1 => json!({"nodeSelector": {"topology.kubernetes.io/zone": "a"}}),
        2 => {
            let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}});
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
        }
        _ => json!({}),
    }
}

fn audited(snapshot: &Snapshot, command: &Command, now: jiff::Timestamp, seed: u64) {
    let (nodes, placements) = command.resolve(snapshot).expect("names of this Snapshot");
    let check = CommandCheck {
        nodes: &nodes,
        placements: &placements,
        reason: command.method.reason(),
        is_consolidation: !command.method.is_maintenance(),
        places_pods: !command.method.is_static(),
    };
    let violations = check_command(snapshot, &check, now);
    assert!(
        violations.is_empty(),
        "seed {seed}: {}: {}",
        support::text(command),
        violations
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    );
}

/// A second look at once finds the same.
fn assert_stands(command: &Command, snapshot: &Snapshot, policy: &Policy, now: jiff::Timestamp, seed: u64) {
    let again = validate(command, snapshot, policy, now);
    assert_eq!(
        again.command.as_ref(),
        Some(command),
        "seed {seed}: {}",
        again.message
    );
}

#[test]
fn every_command_passes_the_audit_and_its_own_second_look() {
    let mut counts: BTreeMap<Method, usize> = BTreeMap::new();
    for seed in 0..250 {
        let world = world(seed);
        let snapshot = world.snapshot();
        for method in Method::ALL {
            let policy = support::only(method);
            let outcome = disrupt(&snapshot, &policy, world.now, &Frontier::default());
            for command in &outcome.commands {
                *counts.entry(method).or_default() += 1;
                audited(&snapshot, command, world.now, seed);
                assert_stands(command, &snapshot, &policy, world.now, seed);
            }
        }
    }
    // The generator must exercise the methods, or the property says nothing.
    for method in [
        Method::Emptiness,
        Method::Drift,
        Method::MultiNodeConsolidation,
        Method::SingleNodeConsolidation,
    ] {
        assert!(counts.get(&method).is_some_and(|count| *count > 10), "{counts:?}");
    }
}

/// The cluster once a command without replacements is carried out. Whoever has to leave must have a place: forgotten pods would look like room.
fn carried_out(world: &World, snapshot: &Snapshot, command: &Command) -> ClusterState {
    let mut state = world.state.clone();
    let gone = |name: Option<&String>| command.nodes.iter().any(|node| Some(&node.node) == name);
    let claims: Vec<&str> = command
        .nodes
        .iter()
        .map(|node| node.node_claim.as_str())
        .collect();
    state.nodes.retain(|node| !gone(node.metadata.name.as_ref()));
    state.node_claims.retain(|claim| !claims.contains(&claim.name()));
    let mut pods = Vec::new();
    for pod in &state.pods {
        let mut pod = spokeshave_model::Pod::clone(pod);
        let key = spokeshave_model::pod::key(&pod);
        if gone(pod.node_name.as_ref()) {
            let Some(step) = command.moves.iter().find(|step| step.pod == key) else {
                let known = snapshot.pod_ids().find(|id| snapshot.pod(*id).key() == key);
                let leaves = known.is_none_or(|id| snapshot.is_currently_reschedulable(id, world.now));
                assert!(!leaves, "{key} has no place: {}", support::text(command));
                continue;
            };
            let Destination::Node { name, .. } = &step.to else {
                panic!("there are no replacements")
            };
            pod.node_name = Some(name.clone());
        }
        pods.push(Arc::new(pod));
    }
    state.pods = pods;
    state
}

/// For how many virtual pods there is room on nodes that are there.
fn room(snapshot: &Snapshot, world: &World) -> usize {
    let outcome = provision(snapshot, &world.policy, world.now);
    let placed = outcome.placements.existing.values().flatten();
    placed.filter(|pod| snapshot.pod(**pod).is_virtual).count()
}

/// Commands pass the audit and their second look also where room is kept, nobody moves virtual pods, and no room is lost.
#[test]
fn d_373_no_command_takes_room_away() {
    let (mut commands, mut held) = (0, 0);
    for seed in 0..250 {
        let mut world = world(seed);
        let mut dice = Dice(seed.wrapping_mul(104_729) + 5);
        for number in 0..1 + dice.below(4) {
            let name = format!("capacity-buffer-b-{number}");
            let mut pod = pending_pod(&name, dice.pick::<&str>(&["500m", "1", "3"]), "1Gi", &json!({}));
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(
                "karpenter.sh/capacity-buffer-fake-pod".to_owned(),
                "true".to_owned(),
            );
            world.state = world.state.with_pod(pod);
        }
        let snapshot = world.snapshot();
        let before = room(&snapshot, &world);
        for method in Method::ALL {
            let policy = support::only(method);
            let outcome = disrupt(&snapshot, &policy, world.now, &Frontier::default());
            for command in &outcome.commands {
                commands += 1;
                audited(&snapshot, command, world.now, seed);
                assert!(
                    command
                        .moves
                        .iter()
                        .all(|step| !step.pod.contains("capacity-buffer")),
                    "seed {seed}"
                );
                assert_stands(command, &snapshot, &policy, world.now, seed);
                if command.replacements.is_empty() {
                    let after = room(&lower(&carried_out(&world, &snapshot, command)), &world);
                    assert!(
                        after >= before,
                        "seed {seed}: {}: {before} -> {after}",
                        support::text(command)
                    );
                    held += usize::from(before > 0);
                }
            }
        }
    }
    assert!(
        commands > 100 && held > 50,
        "only {commands} commands, {held} of them beside room"
    );
}

#[test]
fn sets_are_never_worse_than_the_prefix_search() {
    let (mut better, mut found) = (0, 0);
    for seed in 0..250 {
        let world = world(seed);
        let snapshot = world.snapshot();
        let savings = |steps: usize| {
            let mut policy = support::only(Method::MultiNodeConsolidation);
            policy.disrupt.search_steps = steps;
            let outcome = disrupt(&snapshot, &policy, world.now, &Frontier::default());
            outcome.commands.first().map(Command::savings)
        };
        // Without steps for sweeps, only prefixes are left.
        let (prefix, sets) = (savings(0), savings(20_000));
        assert!(sets >= prefix, "seed {seed}: {sets:?} < {prefix:?}");
        found += usize::from(sets.is_some());
        better += usize::from(sets > prefix);
    }
    assert!(found > 30 && better > 3, "found {found}, better {better}");
}

#[test]
fn threads_and_order_change_nothing() {
    for seed in 0..60 {
        let mut world = world(seed);
        world.policy.disrupt.verdicts = true;
        let one = disrupt(&world.snapshot(), &world.policy, world.now, &Frontier::default());
        let mut reversed = world.clone();
        reversed.state.nodes.reverse();
        reversed.state.pods.reverse();
        reversed.state.node_claims.reverse();
        reversed.state.node_pools.reverse();
        reversed.policy.disrupt.threads = 4;
        let four = disrupt(
            &reversed.snapshot(),
            &reversed.policy,
            world.now,
            &Frontier::default(),
        );
        assert_eq!(format!("{one:?}"), format!("{four:?}"), "seed {seed}");
    }
}

/// Takes one blocker out of the world, as its object says.
fn remove(world: World, node: &str, blocker: &Blocker) -> World {
    let pool = world
        .state
        .node_claims
        .iter()
        .find(|claim| claim.name() == format!("claim-{node}"))
        .and_then(|claim| claim.node_pool().map(ToOwned::to_owned))
        .unwrap_or_default();
    let object = blocker.object.name.clone();
    let golden = |world: World| {
        let world = world.label_node(node, labels::INSTANCE_TYPE, "gold");
        world.label_node(node, labels::CAPACITY_TYPE, "on-demand")
    };
    let open = |world: World| {
        world.edit_pool(&pool, |pool| {
            pool.spec.disruption.consolidation_policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
        })
    };
    match blocker.kind {
        BlockerKind::NodeDoNotDisrupt => world.edit_node(&object, |node| node.metadata.annotations = None),
        BlockerKind::PodDoNotDisrupt => world.edit_pod(&object, |pod| pod.metadata.annotations = None),
        BlockerKind::PodDisruptionBudget => {
            let mut world = world;
            for budget in &mut world.state.pod_disruption_budgets {
                if budget.metadata.name.as_deref() == Some(&object) {
                    let status = Arc::make_mut(budget).status.get_or_insert_default();
                    status.disruptions_allowed = Some(1);
                }
            }
            world
        }
        BlockerKind::MultiplePodDisruptionBudgets => {
            let mut world = world;
            world
                .state
                .pod_disruption_budgets
                .retain(|budget| budget.metadata.name.as_deref() != Some(&format!("{object}-x")));
            world
        }
        BlockerKind::ConsolidationDisabled => world.edit_pool(&object, |pool| {
            pool.spec.disruption.consolidate_after = serde_json::from_value(json!("0s")).expect("0s");
        }),
        BlockerKind::ConsolidateAfter => world.edit_claim(&object, |claim| {
            let conditions = &mut claim.status.get_or_insert_default().conditions;
            let mut condition = conditions[0].clone();
            condition.type_ = "Consolidatable".to_owned();
            conditions.push(condition);
        }),
        BlockerKind::ConsolidationPolicy | BlockerKind::Score => open(world),
        BlockerKind::Budget => {
            world.edit_pool(&object, |pool| pool.spec.disruption.budgets = Some(Vec::new()))
        }
        BlockerKind::DisruptionPolicy => {
            let mut world = world;
            world.state.disruption_policies.clear();
            world
        }
        BlockerKind::Pod => {
            let mut world = world;
            world
                .state
                .pods
                .retain(|pod| pod.metadata.name.as_deref() != Some(&object));
            world
        }
        BlockerKind::Limits => {
            let world = world.edit_pool("alpha", |pool| pool.spec.limits = None);
            world.edit_pool("beta", |pool| pool.spec.limits = None)
        }
        BlockerKind::Neighbours => {
            let names: Vec<String> = world
                .state
                .nodes
                .iter()
                .filter_map(|node| node.metadata.name.clone())
                .collect();
            names
                .iter()
                .fold(world, |world, name| world.last_pod_event(name, -7200))
        }
        BlockerKind::NotCheaper | BlockerKind::UnknownPrice | BlockerKind::SpotToSpotFlexibility => {
            golden(world)
        }
        BlockerKind::SpotToSpotDisabled => {
            let mut world = world;
            world.policy.disrupt.spot_to_spot = true;
            world
        }
        BlockerKind::TooManyReplacements => {
            let mut world = world;
            world
                .state
                .pods
                .retain(|pod| pod.node_name.as_deref() != Some(node));
            world
        }
        other => panic!("{other} is not generated"),
    }
}

fn verdict(world: &World, node: &str) -> Verdict {
    let snapshot = lower(&world.state);
    let id = snapshot.find_node(node).expect("the node");
    judge(&snapshot, &world.policy, world.now, id)
}

#[test]
fn named_blockers_are_what_keeps_a_node() {
    let mut kinds: BTreeMap<BlockerKind, usize> = BTreeMap::new();
    let mut several = 0;
    for seed in 0..150 {
        let world = world(seed);
        let names: Vec<String> = world
            .state
            .nodes
            .iter()
            .filter_map(|node| node.metadata.name.clone())
            .collect();
        for name in names {
            let before = verdict(&world, &name);
            if !before.is_keep() {
                assert!(before.blockers.is_empty() && before.if_removed.is_none());
                continue;
            }
            assert!(
                !before.blockers.is_empty(),
                "seed {seed}: {name} is kept without a reason"
            );
            let Some(then) = &before.if_removed else { continue };
            several += usize::from(before.blockers.len() > 1);
            let shown = format!("seed {seed}, {name}: {}", before.if_removed_text());
            for blocker in &before.blockers {
                *kinds.entry(blocker.kind).or_default() += 1;
                let after = verdict(&remove(world.clone(), &name, blocker), &name);
                assert_ne!(
                    (before.decision, &before.blockers),
                    (after.decision, &after.blockers),
                    "{shown}: without {} nothing changes",
                    blocker.kind
                );
                // Minimal: the others are still needed.
                if before.blockers.len() > 1 && !is_blunt(blocker.kind) {
                    assert!(after.is_keep(), "{shown}: {} alone would do", blocker.kind);
                }
            }
            let without = before
                .blockers
                .iter()
                .fold(world.clone(), |world, blocker| remove(world, &name, blocker));
            let after = verdict(&without, &name);
            assert!(
                !after.is_keep(),
                "{shown}: without all of them: {:?}",
                after.blockers
            );
            if before.blockers.iter().all(|blocker| !is_blunt(blocker.kind)) {
                assert_eq!(after.decision, then.decision, "{shown}");
            }
        }
    }
    assert!(kinds.len() >= 10 && several > 20, "{kinds:?}, several {several}");
}

/// Blockers that the test can only remove with a larger change than the blocker names.
fn is_blunt(kind: BlockerKind) -> bool {
    matches!(
        kind,
        BlockerKind::TooManyReplacements
            | BlockerKind::NotCheaper
            | BlockerKind::SpotToSpotFlexibility
            | BlockerKind::Pod
            | BlockerKind::ConsolidationPolicy
            | BlockerKind::Score
    )
}

fn plain(seed: u64, scatter: bool) -> Executor {
    let mut dice = Dice(seed.wrapping_mul(104_729) + 3);
    let types: Vec<_> = SIZES
        .iter()
        .map(|(name, cores, memory)| instance_type(name, *cores, *memory, &["a", "b"]))
        .collect();
    let pool = if dice.below(2) == 0 {
        free_pool("default")
    } else {
        on_demand_pool("default")
    };
    let mut state = ClusterState::default().with_pool(pool, types.clone());
    for index in 0..3 + dice.below(6) {
        let name = format!("n{index}");
        let instance_type = &types[dice.below(3)];
        state = state.with_node(node("default", &name, instance_type, "a", "on-demand"));
        let mut left = instance_type.allocatable().get("cpu");
        for number in 0..dice.below(5) {
            let cpu = *dice.pick(&[100, 300, 700, 1100, 1500]);
            if cpu <= left {
                left -= cpu;
                let pod = pending_pod(
                    &format!("{name}-{number}"),
                    &format!("{cpu}m"),
                    "10Mi",
                    &json!({}),
                );
                state = state.with_pod(bound(labelled(pod, &[("app", "x")]), &name));
            }
        }
    }
    Executor {
        state,
        types,
        scatter,
        born: 0,
    }
}

#[test]
fn invariant_17_invariant_20_moves_end() {
    for scatter in [false, true] {
        let mut total = 0;
        for seed in 0..60 {
            let mut executor = plain(seed, scatter);
            let price = |executor: &Executor| -> Price {
                let snapshot = lower(&executor.state);
                snapshot.nodes.iter().map(|view| view.price).sum()
            };
            let before = price(&executor);
            total += executor.settle(seed);
            assert!(executor.types.len() == SIZES.len());
            if !scatter {
                assert!(price(&executor) <= before, "seed {seed}: invariant 20");
            }
            let snapshot = lower(&executor.state);
            assert!(
                snapshot.pods.iter().all(|pod| pod.node.is_some()),
                "seed {seed}: a pod is homeless"
            );
        }
        assert!(total > 60, "{total} commands");
    }
}

#[test]
fn every_node_has_a_verdict_in_node_order() {
    for seed in 0..40 {
        let mut world = world(seed);
        world.policy.disrupt.verdicts = true;
        let snapshot = world.snapshot();
        let outcome = disrupt(&snapshot, &world.policy, world.now, &Frontier::default());
        let nodes: Vec<NodeId> = outcome.verdicts.iter().map(|verdict| verdict.node).collect();
        assert_eq!(nodes, snapshot.node_ids().collect::<Vec<_>>());
        for verdict in &outcome.verdicts {
            let alone = judge(&snapshot, &world.policy, world.now, verdict.node);
            assert_eq!(
                *verdict, alone,
                "seed {seed}: the pass and the single question agree"
            );
        }
    }
}
