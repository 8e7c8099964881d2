//! Packing, Snapshots and what-ifs. Run with `cargo bench -p spokeshave-schedule`, or one part: `-- pack [PODS…]`, `-- huge`, `-- what-if [NODES…] [SHAPE…]`,
//! `-- snapshot`. Times are medians of several runs in one process; the mix of `pack` is that of the specification's appendix C.1.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs)]

use spokeshave_example::{Shape, benchmark_pool, cluster, diverse_pods, fake_instance_types};
use spokeshave_model::Pod;
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_model::{Applied, Change, ClusterState, LiveSnapshot, lower};
use spokeshave_schedule::{PackOptions, PackRequest, Packing, ReservedPolicy, Simulation, pack};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let part = arguments.first().map(String::as_str);
    let numbers: Vec<usize> = arguments
        .iter()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let or = |default: &[usize]| {
        if numbers.is_empty() {
            default.to_vec()
        } else {
            numbers.clone()
        }
    };
    if part.is_none_or(|part| part == "pack") {
        packing(&or(&[500, 1000, 5000, 10_000, 20_000, 40_000]));
    }
    if part.is_none_or(|part| part == "huge") {
        huge();
    }
    if part.is_none_or(|part| part == "what-if") {
        what_ifs(&or(&[1000, 5000]), &arguments);
    }
    if part.is_none_or(|part| part == "snapshot") {
        snapshots();
    }
}

fn allocations_so_far() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn peak_rss_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    number.unwrap_or(0) / 1024
}

fn run(snapshot: &Snapshot) -> (Duration, Packing) {
    let request = PackRequest {
        pods: snapshot.pod_ids().collect(),
        ..PackRequest::default()
    };
    let started = Instant::now();
    let packing = pack(snapshot, &request, &PackOptions::default());
    (started.elapsed(), packing)
}

fn packing(sizes: &[usize]) {
    println!(
        "{:>8} {:>10} {:>10} {:>12} {:>8} {:>9}",
        "pods", "lower ms", "pack ms", "pods/s", "nodes", "unplaced"
    );
    for size in sizes.iter().copied() {
        let state = ClusterState::default()
            .with_pool(benchmark_pool(), fake_instance_types(400))
            .with_pods(diverse_pods(size, 42));
        let started = Instant::now();
        let snapshot = lower(&state);
        let lowered = started.elapsed();
        let mut runs: Vec<(Duration, Packing)> = (0..5).map(|_| run(&snapshot)).collect();
        runs.sort_by_key(|(time, _)| *time);
        let (time, packing) = &runs[2];
        println!(
            "{size:>8} {:>10.1} {:>10.1} {:>12.0} {:>8} {:>9}",
            milliseconds(lowered),
            milliseconds(*time),
            size as f64 / time.as_secs_f64(),
            packing.placements.claims.len(),
            packing.unplaced.len(),
        );
    }
}

/// 50,000 pending pods, 800 types, three zones, 20 NodePools.
fn huge() {
    let types: Arc<[_]> = fake_instance_types(800).into();
    let mut state = ClusterState::default();
    for index in 0..20 {
        let mut pool = benchmark_pool();
        pool.metadata.name = Some(format!("pool-{index:02}"));
        state
            .instance_types
            .insert(format!("pool-{index:02}"), Ok(Arc::clone(&types)));
        state.node_pools.push(Arc::new(pool));
    }
    let state = state.with_pods(diverse_pods(50_000, 42));
    let snapshot = lower(&state);
    let before = peak_rss_mib();
    let (time, packing) = run(&snapshot);
    println!(
        "\n50,000 pods, 800 types, 20 NodePools: {:.0} ms, {} nodes, {} unplaced, peak RSS {} MiB ({before} before)",
        milliseconds(time),
        packing.placements.claims.len(),
        packing.unplaced.len(),
        peak_rss_mib(),
    );
}

/// Removes each node in turn and places its pods; the rounds after the first are the steady state. Only the shapes that are named, if one is.
fn what_ifs(sizes: &[usize], names: &[String]) {
    let named = |name: &str| names.iter().any(|one| one == name);
    let some = Shape::ALL.iter().any(|(name, _)| named(name));
    println!(
        "\n{:>8} {:>24} {:>8} {:>9} {:>10} {:>10} {:>10} {:>8} {:>8}",
        "nodes", "shape", "pods", "build ms", "median µs", "p99 µs", "first p99", "opened", "allocs"
    );
    for nodes in sizes.iter().copied() {
        for (name, shape) in Shape::ALL {
            if some && !named(name) {
                continue;
            }
            let snapshot = lower(&cluster(shape, nodes, 10 * nodes, 1));
            let options = PackOptions {
                reserved: ReservedPolicy::Fallback,
                ..PackOptions::default()
            };
            let started = Instant::now();
            let mut simulation = Simulation::new(&snapshot, &options);
            simulation.base(&[]);
            let built = started.elapsed();
            let first = round(&snapshot, &mut simulation);
            let steady = steady_rounds(&snapshot, &mut simulation);
            println!(
                "{nodes:>8} {name:>24} {:>8} {:>9.1} {:>10.1} {:>10.1} {:>10.1} {:>8} {:>8}",
                snapshot.pods.len(),
                milliseconds(built),
                steady.at(50),
                steady.at(99),
                first.at(99),
                steady.opened,
                steady.allocations,
            );
        }
    }
}

/// Later rounds: of each node the fastest of several times, because the processor is shared; allocations of all of them.
fn steady_rounds(snapshot: &Snapshot, simulation: &mut Simulation<'_>) -> Round {
    let mut steady = round(snapshot, simulation);
    for _ in 1..STEADY_ROUNDS {
        let next = round(snapshot, simulation);
        for (fastest, time) in steady.times.iter_mut().zip(&next.times) {
            *fastest = (*fastest).min(*time);
        }
        steady.allocations += next.allocations;
    }
    steady
}

/// How often each node is removed in the steady state.
const STEADY_ROUNDS: usize = 7;

struct Round {
    /// By node.
    times: Vec<Duration>,
    opened: usize,
    allocations: usize,
}

impl Round {
    /// A percentile in microseconds.
    fn at(&self, percent: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        let index = (times.len() * percent / 100).min(times.len() - 1);
        times[index].as_secs_f64() * 1e6
    }
}

fn round(snapshot: &Snapshot, simulation: &mut Simulation<'_>) -> Round {
    let mut times = Vec::with_capacity(snapshot.nodes.len());
    let (mut opened, mut allocations) = (0, 0);
    let mut pods: Vec<PodId> = Vec::with_capacity(1000);
    for node in (0..snapshot.nodes.len()).map(NodeId::from) {
        pods.clear();
        pods.extend_from_slice(&snapshot.node(node).pods);
        let before = allocations_so_far();
        let started = Instant::now();
        let fork = simulation.fork();
        simulation.remove_node(node);
        let summary = simulation.place(&pods);
        simulation.revert(fork);
        times.push(started.elapsed());
        allocations += allocations_so_far() - before;
        opened += summary.claims_opened;
        assert!(summary.is_complete());
    }
    Round {
        times,
        opened,
        allocations,
    }
}

/// What it costs to lower everything, and to take single changes in; medians in microseconds.
fn snapshots() {
    let changes: [&str; 8] = [
        "pod changes",
        "pod comes",
        "pod binds",
        "pod goes",
        "taint",
        "node goes",
        "node comes",
        "claim",
    ];
    print!(
        "\n{:>8} {:>8} {:>10} {:>10}",
        "nodes", "pods", "lower ms", "index ms"
    );
    for name in changes {
        print!(" {name:>11}");
    }
    println!();
    for (nodes, pods) in [(1000, 10_000), (5000, 75_000)] {
        let state = cluster(Shape::Plain, nodes, pods, 1);
        let started = Instant::now();
        let snapshot = lower(&state);
        let lowered = milliseconds(started.elapsed());
        let started = Instant::now();
        let mut live = LiveSnapshot::new(state.clone());
        let indexed = milliseconds(started.elapsed());
        print!(
            "{nodes:>8} {:>8} {lowered:>10.1} {indexed:>10.1}",
            snapshot.pods.len()
        );
        let mut times: [Vec<Duration>; 8] = Default::default();
        for index in (0..nodes).step_by(nodes / 50) {
            for (times, change) in times.iter_mut().zip(single_changes(&state, index)) {
                let started = Instant::now();
                assert_eq!(live.apply(change), Applied::InPlace);
                times.push(started.elapsed());
            }
        }
        for times in &mut times {
            times.sort_unstable();
            print!(" {:>11.1}", times[times.len() / 2].as_secs_f64() * 1e6);
        }
        println!();
    }
}

/// One change of each kind around one node, so that in the end everything is as it was but for a few pods.
fn single_changes(state: &ClusterState, index: usize) -> [Vec<Change>; 8] {
    let (node, claim) = (&state.nodes[index], &state.node_claims[index]);
    let name = node.metadata.name.clone().unwrap_or_default();
    let on_it = state
        .pods
        .iter()
        .find(|pod| pod.node_name.as_ref() == Some(&name));
    let pod = on_it.unwrap_or(&state.pods[index]);
    let mut leaving = Pod::clone(pod);
    leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
    let mut another = Pod::clone(pod);
    another.metadata.name = pod.metadata.name.as_ref().map(|name| format!("{name}-again"));
    another.node_name = None;
    let mut bound = another.clone();
    bound.node_name = Some(name.clone());
    let gone = Change::PodGone {
        namespace: another.metadata.namespace.clone().unwrap_or_default(),
        name: another.metadata.name.clone().unwrap_or_default(),
        is_virtual: false,
    };
    let mut tainted = (**node).clone();
    tainted.spec.get_or_insert_default().unschedulable = Some(true);
    let mut written = (**claim).clone();
    written.metadata.resource_version = Some("2".to_owned());
    [
        vec![Change::Pod(Arc::new(leaving))],
        vec![Change::Pod(Arc::new(another))],
        vec![Change::Pod(Arc::new(bound))],
        vec![gone],
        vec![Change::Node(Arc::new(tainted))],
        vec![
            Change::NodeGone(name),
            Change::NodeClaimGone(claim.name().to_owned()),
        ],
        vec![
            Change::NodeClaim(Arc::clone(claim)),
            Change::Node(Arc::clone(node)),
        ],
        vec![Change::NodeClaim(Arc::new(written))],
    ]
}
