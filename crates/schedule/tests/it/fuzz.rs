//! Nonsense of every kind: whatever the objects say, lowering and placing end, nobody else is hurt, and each pod has a place or a reason.
//!
//! Worlds are generated, their objects written as JSON and changed at random, and those that still are objects take part.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use spokeshave_example::{Dice, instance_type, node_pool, pending_pod, random_world};
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_model::{ClusterState, Resources, lower};
use spokeshave_schedule::{
    MinValuesPolicy, PackOptions, PackRequest, PreferencePolicy, ReservedPolicy, Simulation,
    explain_left_over, pack,
};
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::{ZONES, left_by_cheapest, room};

/// Values that no field is made for.
fn nonsense(dice: &mut Dice) -> Value {
    let long = "x".repeat(300);
    let deep = (0..20).fold(json!(1), |inner, _| json!([inner]));
    let choices = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(i64::MAX),
        json!(i32::MIN),
        json!(1.5e300),
        json!(""),
        json!("-4"),
        json!("99999999999999999999E"),
        json!("9223372036854775807"),
        json!("1e-30"),
        json!("In"),
        json!("Near"),
        json!("DoesNotExist"),
        json!("a b/c d/e"),
        json!("\u{0}\u{202e}é"),
        json!(long),
        json!([]),
        json!({}),
        json!([null]),
        json!({"": ""}),
        deep,
    ];
    dice.pick(&choices).clone()
}

/// Changes one place somewhere in a tree.
fn change(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Object(fields) if !fields.is_empty() && dice.below(8) != 0 => {
            let key = fields
                .keys()
                .nth(dice.below(fields.len()))
                .cloned()
                .unwrap_or_default();
            match dice.below(10) {
                0 => {
                    fields.remove(&key);
                }
                1 => {
                    let wrong = nonsense(dice);
                    fields.insert("".to_owned(), wrong);
                }
                _ => change(&mut fields[&key], dice),
            }
        }
        Value::Array(items) if !items.is_empty() && dice.below(8) != 0 => {
            let index = dice.below(items.len());
            match dice.below(10) {
                0 => {
                    items.remove(index);
                }
                1 => {
                    let twin = items[index].clone();
                    items.extend(std::iter::repeat_n(twin, 20));
                }
                _ => change(&mut items[index], dice),
            }
        }
        other => *other = nonsense(dice),
    }
}

/// The objects, some of them changed; those that are none any more are left out.
fn changed<T: Serialize + DeserializeOwned>(
    objects: &[Arc<T>],
    dice: &mut Dice,
    count: &mut usize,
) -> Vec<Arc<T>> {
    let keep = |object: &Arc<T>| {
        let mut tree = serde_json::to_value(&**object).unwrap_or(Value::Object(Map::new()));
        if dice.below(3) == 0 {
            return Some(Arc::clone(object));
        }
        for _ in 0..1 + dice.below(3) {
            change(&mut tree, dice);
        }
        let read = serde_json::from_value::<T>(tree).ok()?;
        *count += 1;
        Some(Arc::new(read))
    };
    objects.iter().filter_map(keep).collect()
}

fn all_pods(snapshot: &Snapshot) -> Vec<PodId> {
    snapshot
        .pod_ids()
        .filter(|pod| snapshot.pod(*pod).provisionable)
        .collect()
}

/// Every pod is placed once or left over once.
fn check(snapshot: &Snapshot, options: &PackOptions, seed: u64) {
    let request = PackRequest {
        pods: all_pods(snapshot),
        ..PackRequest::default()
    };
    let packing = pack(snapshot, &request, options);
    let placed = packing.placements.claims.iter().flat_map(|claim| &claim.pods);
    let placed = placed
        .chain(packing.placements.existing.values().flatten())
        .copied();
    let left = packing.unplaced.iter().map(|left| left.pod);
    let mut seen: Vec<PodId> = placed.chain(left).collect();
    seen.sort_unstable();
    assert_eq!(seen, request.pods, "seed {seed}");
    let explained = explain_left_over(snapshot, &request, options, &packing.unplaced);
    assert_eq!(explained.len(), packing.unplaced.len(), "seed {seed}");
    for derivation in explained.values() {
        assert!(!derivation.to_string().is_empty());
    }
    let mut simulation = Simulation::new(snapshot, options);
    simulation.base(&request.pods);
    for node in (0..snapshot.nodes.len()).map(NodeId::from) {
        let fork = simulation.fork();
        simulation.remove_node(node);
        simulation.place(&snapshot.node(node).pods);
        simulation.revert(fork);
    }
}

fn options(seed: u64) -> PackOptions {
    PackOptions {
        preferences: if seed.is_multiple_of(2) {
            PreferencePolicy::Respect
        } else {
            PreferencePolicy::Ignore
        },
        min_values: if seed.is_multiple_of(3) {
            MinValuesPolicy::Strict
        } else {
            MinValuesPolicy::BestEffort
        },
        reserved: if seed.is_multiple_of(5) {
            ReservedPolicy::Strict
        } else {
            ReservedPolicy::Fallback
        },
        instance_types_per_claim: [600, 1, 0][seed as usize % 3],
        ..PackOptions::default()
    }
}

#[test]
fn p_063_no_pass_is_cut_off_and_no_object_can_stop_one() {
    let mut count = 0;
    for seed in 0..250 {
        let mut dice = Dice(seed);
        let world = random_world(seed);
        let state = ClusterState {
            nodes: changed(&world.nodes, &mut dice, &mut count),
            pods: changed(&world.pods, &mut dice, &mut count),
            daemon_sets: changed(&world.daemon_sets, &mut dice, &mut count),
            pod_disruption_budgets: changed(&world.pod_disruption_budgets, &mut dice, &mut count),
            namespaces: changed(&world.namespaces, &mut dice, &mut count),
            node_pools: changed(&world.node_pools, &mut dice, &mut count),
            node_claims: changed(&world.node_claims, &mut dice, &mut count),
            ..world
        };
        check(&lower(&state), &options(seed), seed);
    }
    assert!(count > 1_000, "only {count} changed objects were objects still");
}

#[test]
fn nonsense_instance_types_are_passed_over() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut state = random_world(seed);
        for types in state.instance_types.values_mut().flatten() {
            let mut list = types.to_vec();
            for instance_type in &mut list {
                match dice.below(5) {
                    0 => instance_type.offerings.clear(),
                    1 => instance_type.capacity = spokeshave_model::Resources::new(),
                    2 => {
                        let amounts = [("cpu", i64::MIN), ("memory", i64::MAX), ("pods", -1)];
                        instance_type.capacity = spokeshave_model::Resources::from_amounts(amounts);
                    }
                    3 => instance_type.name = String::new(),
                    _ => {}
                }
            }
            *types = list.into();
        }
        check(&lower(&state), &options(seed), seed);
    }
}

#[test]
fn ten_thousand_labels_and_a_thousand_terms_are_only_long() {
    let mut state = random_world(3);
    let mut pod = state.pods.first().map(|pod| (**pod).clone()).unwrap_or_default();
    pod.metadata.name = Some("loud".to_owned());
    pod.metadata.labels = Some(
        (0..10_000)
            .map(|index| (format!("k{index}"), format!("v{index}")))
            .collect(),
    );
    let terms: Vec<Value> = (0..1_000)
        .map(|index| json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": [format!("z{index}")]}]}))
        .collect();
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    pod.node_name = None;
    pod.spec_mut().affinity = serde_json::from_value(affinity).ok();
    pod.status = serde_json::from_value(
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}),
    )
    .ok();
    state.pods.push(Arc::new(pod));
    let snapshot = lower(&state);
    let loud: BTreeSet<String> = all_pods(&snapshot)
        .iter()
        .map(|pod| snapshot.pod(*pod).key())
        .collect();
    assert!(loud.iter().any(|key| key.ends_with("/loud")));
    check(&snapshot, &PackOptions::default(), 0);
}

/// Under a limit of nodes, orders of claims differ in whom they leave over, and room that is kept must not tip the scales.
#[test]
fn p_186_room_leaves_no_pod_over_that_would_have_a_place_without_it() {
    let mut left_over = 0;
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let mut pool = node_pool("default");
        pool.spec.limits = Resources::parse([("nodes", "3")])
            .ok()
            .map(|limits| limits.to_quantities());
        let mut without = ClusterState::default().with_pool(pool, vec![instance_type("nine", 9, 9, &ZONES)]);
        for number in 0..5 + dice.below(5) {
            let (cpu, memory) = (1 + dice.below(5), 1 + dice.below(6));
            let name = format!("real-{number}");
            let pod = pending_pod(&name, &cpu.to_string(), &format!("{memory}Gi"), &json!({}));
            without = without.with_pod(pod);
        }
        let with = without.clone().with_pods(room(20, "1", "512Mi"));
        let (alone, beside_room) = (left_by_cheapest(&without).0, left_by_cheapest(&with).0);
        assert_eq!(
            alone.len(),
            beside_room.len(),
            "seed {seed}: {alone:?}, {beside_room:?}"
        );
        left_over += alone.len();
    }
    assert!(left_over > 50, "only {left_over} pods had no place");
}
