//! A what-if by fork and revert is the same as packing anew, whatever was asked before, on any number of threads.

use serde_json::json;
use spokeshave_example::{Dice, Shape, cluster, instance_type, node_pool, pending_pod, random_world};
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_model::{ClusterState, lower};
use spokeshave_schedule::{
    MinValuesPolicy, PackOptions, PackRequest, Packing, PreferencePolicy, ReservedPolicy, Simulation, pack,
    sort_by_turn,
};

fn options(seed: u64) -> PackOptions {
    PackOptions {
        preferences: [PreferencePolicy::Respect, PreferencePolicy::Ignore][(seed.is_multiple_of(5)) as usize],
        min_values: [MinValuesPolicy::Strict, MinValuesPolicy::BestEffort][(seed.is_multiple_of(3)) as usize],
        reserved: ReservedPolicy::Fallback,
        ..PackOptions::default()
    }
}

/// Counts of work depend on what is known already; nothing else may.
fn comparable(mut packing: Packing) -> Packing {
    packing.statistics = Default::default();
    packing
}

fn movable(snapshot: &Snapshot, node: NodeId) -> Vec<PodId> {
    let pods = snapshot.node(node).pods.iter().copied();
    pods.filter(|pod| snapshot.pod(*pod).active && !snapshot.pod(*pod).daemon)
        .collect()
}

/// The same world with every node initialised, where a what-if offers exactly the nodes that `pack` offers.
fn initialized(mut state: ClusterState) -> ClusterState {
    state.nodes.retain(|node| {
        node.metadata
            .labels
            .iter()
            .flatten()
            .any(|(key, _)| key == spokeshave_model::labels::INITIALIZED)
    });
    state.node_claims.retain(|claim| {
        claim
            .metadata
            .labels
            .iter()
            .flatten()
            .any(|(key, _)| key == spokeshave_model::labels::INITIALIZED)
    });
    state
}

fn anew(snapshot: &Snapshot, nodes: &[NodeId], options: &PackOptions) -> Packing {
    let request = PackRequest {
        pods: nodes.iter().flat_map(|node| movable(snapshot, *node)).collect(),
        without_nodes: nodes.iter().copied().collect(),
    };
    comparable(pack(snapshot, &request, options))
}

fn by_fork(snapshot: &Snapshot, simulation: &mut Simulation<'_>, nodes: &[NodeId]) -> Packing {
    let pods: Vec<PodId> = nodes.iter().flat_map(|node| movable(snapshot, *node)).collect();
    let fork = simulation.fork();
    nodes.iter().for_each(|node| simulation.remove_node(*node));
    let summary = simulation.place(&pods);
    let packing = simulation.packing_since(&fork);
    let unplaced: Vec<PodId> = packing.unplaced.iter().map(|left| left.pod).collect();
    assert_eq!(summary.unplaced, unplaced, "the summary and the packing agree");
    assert_eq!(simulation.claims_since(&fork), packing.placements.claims);
    for left in &packing.unplaced {
        assert_eq!(simulation.reason(left.pod).as_ref(), Some(&*left.reason));
    }
    simulation.revert(fork);
    comparable(packing)
}

#[test]
fn a_what_if_by_fork_equals_packing_anew() {
    for seed in 0..250 {
        let state = initialized(random_world(seed));
        let (snapshot, options) = (lower(&state), options(seed));
        let mut simulation = Simulation::new(&snapshot, &options);
        simulation.base(&[]);
        let mut dice = Dice(seed);
        let count = snapshot.nodes.len();
        for _ in 0..2 * count {
            let mut nodes: Vec<NodeId> = (0..1 + dice.below(3))
                .map(|_| NodeId::from(dice.below(count)))
                .collect();
            nodes.sort_unstable();
            nodes.dedup();
            let expected = anew(&snapshot, &nodes, &options);
            assert_eq!(
                by_fork(&snapshot, &mut simulation, &nodes),
                expected,
                "seed {seed}, nodes {nodes:?}"
            );
        }
    }
}

/// Stopping at the first pod that says no says no where placing all would, and yes where all are placed, in sweeps of several nodes.
#[test]
fn whether_all_fit_is_told_early_and_right() {
    let mut told = [0, 0];
    for seed in 0..250 {
        let (snapshot, options) = (lower(&random_world(seed)), options(seed));
        let mut simulation = Simulation::new(&snapshot, &options);
        simulation.base(&[]);
        let (mut dice, count) = (Dice(seed), snapshot.nodes.len());
        if count == 0 {
            continue;
        }
        for claims in 0..3 {
            let outer = simulation.fork();
            let mut gone = Vec::new();
            for _ in 0..count {
                let node = NodeId::from(dice.below(count));
                if gone.contains(&node) {
                    continue;
                }
                let pods = movable(&snapshot, node);
                let step = simulation.fork();
                simulation.remove_node(node);
                let early = simulation.fits_within(&pods, &outer, claims);
                simulation.revert(step);
                let step = simulation.fork();
                simulation.remove_node(node);
                let summary = simulation.place(&pods);
                let fits = summary.is_complete() && simulation.claim_count_since(&outer) <= claims;
                assert_eq!(
                    early, fits,
                    "seed {seed}, {claims} claims, without {gone:?} and {node:?}"
                );
                told[usize::from(fits)] += 1;
                if fits {
                    gone.push(node);
                    simulation.commit(step);
                } else {
                    simulation.revert(step);
                }
            }
            simulation.revert(outer);
        }
    }
    assert!(told.iter().all(|count| *count > 500), "{told:?}");
}

/// What has no room before its node is gone has no place after it, on nodes and on the NodeClaims that may be planned, in sweeps of several nodes.
#[test]
fn what_may_not_have_room_does_not_fit() {
    let mut told = [0, 0];
    for seed in 0..250 {
        let (snapshot, options) = (lower(&random_world(seed)), options(seed));
        let mut simulation = Simulation::new(&snapshot, &options);
        simulation.base(&[]);
        for claims in 0..3 {
            let outer = simulation.fork();
            for node in snapshot.node_ids() {
                let mut pods = movable(&snapshot, node);
                sort_by_turn(&snapshot, &mut pods);
                let may_open = simulation.claim_count_since(&outer) < claims;
                let may_fit = may_open || simulation.may_have_room(&pods, &outer);
                let step = simulation.fork();
                simulation.remove_node(node);
                let fits = simulation.fits_within(&pods, &outer, claims);
                assert!(may_fit || !fits, "seed {seed}, {claims} claims, without {node:?}");
                if !may_open {
                    told[usize::from(may_fit)] += 1;
                }
                if fits {
                    simulation.commit(step);
                } else {
                    simulation.revert(step);
                }
            }
            simulation.revert(outer);
        }
    }
    assert!(told.iter().all(|count| *count > 0), "{told:?}");
}

/// Two NodeClaims of which each can hold more than half of the greatest number: together they hold no less than each.
#[test]
fn a_sum_of_rooms_that_is_too_large_for_a_number_is_no_bound() {
    let six_exbibytes = 6 << 30;
    let types = vec![instance_type("vast", 2, six_exbibytes, &["a"])];
    let mut state = ClusterState::default().with_pool(node_pool("default"), types);
    for (name, cpu, memory) in [
        ("a", "1500m", "1Gi"),
        ("b", "1500m", "1Gi"),
        ("c", "100m", "5Ei"),
        ("d", "100m", "5Ei"),
    ] {
        state = state.with_pod(pending_pod(name, cpu, memory, &json!({})));
    }
    let (snapshot, options) = (lower(&state), PackOptions::default());
    let mut simulation = Simulation::new(&snapshot, &options);
    simulation.base(&[]);
    let pods: Vec<PodId> = snapshot.pod_ids().collect();
    let outer = simulation.fork();
    assert!(simulation.fits_within(&pods[..2], &outer, 2));
    assert_eq!(simulation.claim_count_since(&outer), 2, "they cannot share one");
    assert!(simulation.may_have_room(&pods[2..], &outer));
    assert!(simulation.fits_within(&pods[2..], &outer, 2));
    simulation.revert(outer);
}

/// What a used simulation says after pending pods were placed is what a fresh one says; forks nest.
#[test]
fn w_05_after_a_base_history_does_not_matter() {
    for seed in 0..120 {
        let state = random_world(seed);
        let (snapshot, options) = (lower(&state), options(seed));
        let pending: Vec<PodId> = snapshot
            .pod_ids()
            .filter(|pod| snapshot.pod(*pod).provisionable)
            .collect();
        let mut used = Simulation::new(&snapshot, &options);
        let base = used.base(&pending);
        let mut dice = Dice(seed);
        let count = snapshot.nodes.len();
        for _ in 0..count {
            let mut sequence: Vec<NodeId> = (0..1 + dice.below(4))
                .map(|_| NodeId::from(dice.below(count)))
                .collect();
            sequence.sort_unstable_by_key(|node| (node.0 % 3, *node));
            sequence.dedup();
            let mut fresh = Simulation::new(&snapshot, &options);
            assert_eq!(fresh.base(&pending), base);
            let mut answers = [Vec::new(), Vec::new()];
            for (simulation, answers) in [&mut used, &mut fresh].into_iter().zip(&mut answers) {
                let mut dice = Dice(seed + 1);
                let outer = simulation.fork();
                for node in &sequence {
                    let inner = simulation.fork();
                    simulation.remove_node(*node);
                    let summary = simulation.place(&movable(&snapshot, *node));
                    answers.push((summary, comparable(simulation.packing_since(&inner))));
                    if dice.below(2) == 0 {
                        simulation.revert(inner);
                    } else {
                        simulation.commit(inner);
                    }
                }
                simulation.revert(outer);
            }
            let [left, right] = answers;
            assert_eq!(left, right, "seed {seed}, {sequence:?}");
        }
    }
}

#[test]
fn w_05_claims_of_the_base_and_starting_nodes_are_not_offered() {
    for seed in 0..200 {
        let state = random_world(seed);
        let (snapshot, options) = (lower(&state), options(seed));
        let pending: Vec<PodId> = snapshot
            .pod_ids()
            .filter(|pod| snapshot.pod(*pod).provisionable)
            .collect();
        let mut simulation = Simulation::new(&snapshot, &options);
        simulation.base(&pending);
        for node in snapshot.node_ids() {
            let fork = simulation.fork();
            simulation.remove_node(node);
            let pods = movable(&snapshot, node);
            let summary = simulation.place(&pods);
            let packing = simulation.packing_since(&fork);
            let on_claims: usize = packing
                .placements
                .claims
                .iter()
                .map(|claim| claim.pods.len())
                .sum();
            assert_eq!(
                summary.on_nodes + on_claims + summary.unplaced.len(),
                pods.len(),
                "each pod once, none on a claim of the base"
            );
            assert!(
                packing
                    .placements
                    .existing
                    .keys()
                    .all(|node| snapshot.node(*node).initialized)
            );
            simulation.revert(fork);
        }
    }
}

#[test]
fn p_084_the_same_bytes_on_one_and_on_eight_threads() {
    for (_, shape) in Shape::ALL {
        let snapshot = lower(&cluster(shape, 60, 600, 7));
        let options = options(1);
        let mut simulation = Simulation::new(&snapshot, &options);
        simulation.base(&[]);
        let nodes: Vec<NodeId> = snapshot.node_ids().collect();
        let answer = |simulation: &mut Simulation<'_>, nodes: &[NodeId]| -> Vec<String> {
            let packing = |node: &NodeId| format!("{:?}", by_fork(&snapshot, simulation, &[*node]));
            nodes.iter().map(packing).collect()
        };
        let alone = answer(&mut simulation.clone(), &nodes);
        let parts: Vec<Vec<String>> = std::thread::scope(|scope| {
            let workers: Vec<_> = nodes
                .chunks(nodes.len().div_ceil(8))
                .map(|chunk| {
                    let mut own = simulation.clone();
                    let answer = &answer;
                    scope.spawn(move || answer(&mut own, chunk))
                })
                .collect();
            let joined = workers.into_iter().map(|worker| worker.join().expect("no panic"));
            joined.collect()
        });
        assert_eq!(alone, parts.concat(), "{shape:?}");
    }
}
