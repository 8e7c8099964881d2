//! Whatever placement decides on random worlds, the auditor, who knows the rules of Kubernetes only, finds nothing wrong.

use spokeshave_audit::check_placements;
use spokeshave_example::random_world;
use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_model::{lower, planned_node};
use spokeshave_schedule::{PackOptions, PackRequest, Packing, pack};
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// The pods that wait, placed.
fn packed(snapshot: &Snapshot) -> (Vec<PodId>, Packing) {
    let pods = snapshot.pod_ids().filter(|pod| snapshot.pod(*pod).provisionable);
    let batch: Vec<PodId> = pods.collect();
    let request = PackRequest {
        pods: batch.clone(),
        ..PackRequest::default()
    };
    let packing = pack(snapshot, &request, &PackOptions::default());
    (batch, packing)
}

/// Where each pod that exists went: a node, or the number of a NodeClaim.
fn places(snapshot: &Snapshot, packing: &Packing) -> BTreeMap<String, String> {
    let existing = packing.placements.existing.iter();
    let on_nodes =
        existing.flat_map(|(node, pods)| pods.iter().map(|pod| (*pod, snapshot.node(*node).name.clone())));
    let claims = packing.placements.claims.iter().enumerate();
    let on_claims =
        claims.flat_map(|(number, claim)| claim.pods.iter().map(move |pod| (*pod, number.to_string())));
    on_nodes
        .chain(on_claims)
        .filter(|(pod, _)| !snapshot.pod(*pod).is_virtual)
        .map(|(pod, place)| (snapshot.pod(pod).key(), place))
        .collect()
}

/// Every second pod that waits is a virtual one: the audit finds nothing, and the others are placed exactly as if it were not there.
#[test]
fn p_186_pods_are_placed_as_if_there_were_no_virtual_ones() {
    let (mut room, mut real) = (0, 0);
    for seed in 0..500 {
        let mut without = random_world(seed);
        let mut number = 0;
        let mut waits_second = |pod: &spokeshave_model::Pod| {
            let waits = planned_node::is_provisionable(pod);
            number += usize::from(waits);
            waits && number % 2 == 0
        };
        let mut with = without.clone();
        with.pods = Vec::new();
        let mut kept = Vec::new();
        for pod in &without.pods {
            if waits_second(pod) {
                let mut other = spokeshave_model::Pod::clone(pod);
                let annotations = other.metadata.annotations.get_or_insert_default();
                annotations.insert(
                    "karpenter.sh/capacity-buffer-fake-pod".to_owned(),
                    "true".to_owned(),
                );
                with.pods.push(Arc::new(other));
            } else {
                with.pods.push(pod.clone());
                kept.push(pod.clone());
            }
        }
        without.pods = kept;
        let (plain, mixed) = (lower(&without), lower(&with));
        let (batch, packing) = packed(&mixed);
        assert_eq!(
            check_placements(&mixed, &batch, &packing.placements),
            [],
            "seed {seed}"
        );
        let placed = places(&mixed, &packing);
        assert_eq!(placed, places(&plain, &packed(&plain).1), "seed {seed}");
        real += placed.len();
        room += batch.len() - packing.unplaced.len() - placed.len();
    }
    assert!(
        real > 500 && room > 500,
        "only {real} pods and {room} virtual ones were placed"
    );
}
