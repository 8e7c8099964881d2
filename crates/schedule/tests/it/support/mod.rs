//! What tests of packing have in common: three machine types in three zones, and one run over every pod that waits.
use serde_json::json;
use spokeshave_api::labels::CAPACITY_BUFFER_FAKE_POD;
use spokeshave_example::{instance_type, pending_pod};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, InstanceType, Pod, lower};
use spokeshave_schedule::{ClaimOrder, PackOptions, PackRequest, Packing, pack, pack_cheapest};

/// Where the types are sold.
pub(crate) const ZONES: [&str; 3] = ["a", "b", "c"];

/// 2, 4 and 16 cores with twice as many gibibytes.
pub(crate) fn types() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 4, &ZONES),
        instance_type("medium", 4, 8, &ZONES),
        instance_type("large", 16, 32, &ZONES),
    ]
}

/// Room that a CapacityBuffer keeps: so many virtual pods.
pub(crate) fn room(count: usize, cpu: &str, memory: &str) -> Vec<Pod> {
    let virtual_pod = |number: usize| {
        let mut pod = pending_pod(&format!("room-{number}"), cpu, memory, &json!({}));
        let annotations = pod.metadata.annotations.get_or_insert_default();
        annotations.insert(CAPACITY_BUFFER_FAKE_POD.to_owned(), "true".to_owned());
        pod
    };
    (1..=count).map(virtual_pod).collect()
}

/// The pods that exist and have no place in the cheapest of all orders of claims, by name, and how many virtual ones have none.
pub(crate) fn left_by_cheapest(state: &ClusterState) -> (Vec<String>, usize) {
    let snapshot = lower(state);
    let waiting = snapshot.pod_ids().filter(|pod| snapshot.pod(*pod).provisionable);
    let request = PackRequest {
        pods: waiting.collect(),
        ..PackRequest::default()
    };
    let packing = pack_cheapest(&snapshot, &request, &PackOptions::default(), &ClaimOrder::ALL);
    let left = packing.unplaced.iter().map(|left| snapshot.pod(left.pod));
    let (room, real): (Vec<_>, Vec<_>) = left.partition(|view| view.is_virtual);
    (real.iter().map(|view| view.key()).collect(), room.len())
}

/// Packs every pod that waits.
pub(crate) fn run(state: &ClusterState) -> (Snapshot, Packing) {
    run_with(state, &PackOptions::default())
}

/// The same, with options.
pub(crate) fn run_with(state: &ClusterState, options: &PackOptions) -> (Snapshot, Packing) {
    let snapshot = lower(state);
    let pods = snapshot
        .pod_ids()
        .filter(|pod| snapshot.pod(*pod).provisionable)
        .collect();
    let packing = pack(
        &snapshot,
        &PackRequest {
            pods,
            ..PackRequest::default()
        },
        options,
    );
    (snapshot, packing)
}
