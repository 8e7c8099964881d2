//! The rules of placement, one test per behaviour, named by its id in the specification.

mod choices;
mod limits;
mod nodes;
mod order;
mod requirements;
mod topology;
mod volumes;

use serde_json::{Value, json};
use spokeshave_example::{node_pool, pending_pod};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Resources, labels};
use spokeshave_schedule::Packing;

/// What each planned claim asks of its zone.
fn zones((_, packing): &(Snapshot, Packing)) -> Vec<String> {
    let claims = packing.placements.claims.iter();
    claims
        .map(|claim| claim.requirements.get(labels::ZONE).to_string())
        .collect()
}

/// One line per planned claim, placement on an existing node, and unplaced pod.
fn summary((snapshot, packing): &(Snapshot, Packing)) -> Vec<String> {
    let names = |pods: &[spokeshave_model::snapshot::PodId]| {
        pods.iter()
            .map(|pod| {
                snapshot
                    .pod(*pod)
                    .object
                    .metadata
                    .name
                    .clone()
                    .unwrap_or_default()
            })
            .collect::<Vec<_>>()
            .join(" ")
    };
    let existing = packing
        .placements
        .existing
        .iter()
        .map(|(node, pods)| format!("{}: {}", snapshot.node(*node).name, names(pods)));
    let claims = packing.placements.claims.iter().map(|claim| {
        let pool = snapshot.pool(claim.pool);
        format!(
            "{}/{}: {}",
            pool.name,
            pool.instance_types[claim.launches[0].instance_type].name,
            names(&claim.pods)
        )
    });
    let unplaced = packing
        .unplaced
        .iter()
        .map(|unplaced| format!("{}: {}", names(&[unplaced.pod]), unplaced.reason));
    existing.chain(claims).chain(unplaced).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn pod(name: &str, cpu: &str, spec: Value) -> spokeshave_model::Pod {
    pending_pod(name, cpu, "100Mi", &spec)
}

fn repelling(name: &str, cpu: &str) -> spokeshave_model::Pod {
    let spec = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    spokeshave_example::labelled(pod(name, cpu, spec), &[("app", "web")])
}

fn limited(name: &str, limits: &[(&str, &str)]) -> spokeshave_api::NodePool {
    let mut pool = node_pool(name);
    pool.spec.limits = Resources::parse(limits.iter().copied())
        .ok()
        .map(|limits| limits.to_quantities());
    if let Some(limits) = &mut pool.spec.limits {
        limits.retain(|_, quantity| !quantity.0.is_empty());
    }
    pool
}
