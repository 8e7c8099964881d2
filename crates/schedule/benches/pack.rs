//! Pods per second on the mix of the specification's appendix C.1: 400 fake types, five equal shares; and the cost of a Snapshot and of one
//! what-if on a running cluster. Run with `cargo bench -p spokeshave-schedule`; numbers of pods can be given as arguments.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs)]

use serde_json::json;
use spokeshave_model::example::{
    benchmark_pool, bound, diverse_pods, fake_instance_types, node, pending_pod,
};
use spokeshave_model::snapshot::NodeId;
use spokeshave_model::{ClusterState, lower};
use spokeshave_schedule::{PackOptions, PackRequest, pack};
use std::time::Instant;

fn main() {
    let given: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let sizes = if given.is_empty() {
        vec![500, 1000, 5000, 10_000, 20_000]
    } else {
        given
    };
    println!(
        "{:>8} {:>10} {:>10} {:>12} {:>8} {:>9} {:>12}",
        "pods", "lower ms", "pack ms", "pods/s", "nodes", "unplaced", "claims tried"
    );
    for size in sizes {
        let state = ClusterState::default()
            .with_pool(benchmark_pool(), fake_instance_types(400))
            .with_pods(diverse_pods(size, 42));
        let started = Instant::now();
        let snapshot = lower(&state);
        let lowered = started.elapsed();
        let request = PackRequest {
            pods: snapshot.pod_ids().collect(),
            ..PackRequest::default()
        };
        let started = Instant::now();
        let packing = pack(&snapshot, &request, &PackOptions::default());
        let packed = started.elapsed();
        println!(
            "{size:>8} {:>10.1} {:>10.1} {:>12.0} {:>8} {:>9} {:>12}",
            lowered.as_secs_f64() * 1e3,
            packed.as_secs_f64() * 1e3,
            size as f64 / packed.as_secs_f64(),
            packing.placements.claims.len(),
            packing.unplaced.len(),
            packing.statistics.claims_tried,
        );
    }
    running_cluster();
}

/// Ten pods per node; the what-if takes one node away and places its pods.
fn running_cluster() {
    println!(
        "\n{:>8} {:>8} {:>10} {:>12}",
        "nodes", "pods", "lower ms", "what-if ms"
    );
    let types = fake_instance_types(400);
    for nodes in [100, 1000, 5000] {
        let mut state = ClusterState::default().with_pool(benchmark_pool(), types.clone());
        for index in 0..nodes {
            let name = format!("node-{index:05}");
            state = state.with_node(node("benchmark", &name, &types[7], "test-zone-1", "on-demand"));
            let pods = (0..10).map(|pod| {
                bound(
                    pending_pod(&format!("{name}-{pod}"), "500m", "256Mi", &json!({})),
                    &name,
                )
            });
            state = state.with_pods(pods);
        }
        let started = Instant::now();
        let snapshot = lower(&state);
        let lowered = started.elapsed();
        let victim = NodeId::from(nodes / 2);
        let request = PackRequest {
            pods: snapshot.node(victim).pods.clone(),
            without_nodes: [victim].into(),
        };
        let started = Instant::now();
        let packing = pack(&snapshot, &request, &PackOptions::default());
        let packed = started.elapsed();
        assert!(packing.unplaced.is_empty() && packing.placements.claims.is_empty());
        println!(
            "{nodes:>8} {:>8} {:>10.1} {:>12.3}",
            nodes * 10,
            lowered.as_secs_f64() * 1e3,
            packed.as_secs_f64() * 1e3
        );
    }
}
