//! What tests of packing have in common: three machine types in three zones, and one run over every pod that waits.
use spokeshave_example::instance_type;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, InstanceType, lower};
use spokeshave_schedule::{PackOptions, PackRequest, Packing, pack};

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
