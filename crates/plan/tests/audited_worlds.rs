//! Whatever placement decides on random worlds, the auditor, who knows the rules of Kubernetes only, finds nothing wrong.

use spokeshave_audit::check_placements;
use spokeshave_example::random_world;
use spokeshave_model::lower;
use spokeshave_model::snapshot::PodId;
use spokeshave_schedule::{PackOptions, PackRequest, pack};

#[test]
fn the_audit_finds_nothing_in_random_worlds() {
    let mut placed = 0;
    for seed in 0..1500 {
        let snapshot = lower(&random_world(seed));
        let batch: Vec<PodId> = snapshot
            .pod_ids()
            .filter(|pod| snapshot.pod(*pod).provisionable)
            .collect();
        let request = PackRequest {
            pods: batch.clone(),
            ..PackRequest::default()
        };
        let packing = pack(&snapshot, &request, &PackOptions::default());
        let violations = check_placements(&snapshot, &batch, &packing.placements);
        assert_eq!(violations, [], "seed {seed}");
        placed += batch.len() - packing.unplaced.len();
    }
    assert!(placed > 3000, "only {placed} pods were placed");
}
