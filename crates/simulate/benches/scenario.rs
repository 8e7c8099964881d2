//! What a scenario file costs: every policy under every seed, one after the other, each with its processor time and digest.
//! Run with `cargo bench -p spokeshave-simulate --bench scenario -- FILE [POLICY]`; without arguments, `examples/simulate/quick.yaml`.
//!
//! It reads what the examples and `e2e/simulations` need: NodePools and DaemonSets, patches of NodePools, weather, the built-in catalog. `spokeshave simulate` reads
//! everything.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock, files and its arguments"
)]
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::Value;
use spokeshave_api::NodePool;
use spokeshave_provider_kwok::Catalog;
use spokeshave_scenario::file::{ModelName, PolicySpec};
use spokeshave_scenario::{Scenario, generate};
use spokeshave_simulate::{Model, Policy, World, live};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The documents of a YAML file.
fn documents(path: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let documents = text.split("\n---\n").map(serde_saphyr::from_str);
    Ok(documents.collect::<Result<Vec<Value>, _>>()?)
}

fn policy(spec: &PolicySpec, pools: &[Value]) -> Result<Policy, Box<dyn Error>> {
    let mut patched = Vec::new();
    for pool in pools {
        let mut pool = pool.clone();
        for merge in spec.merge.iter().filter(|merge| merge.kind == "NodePool") {
            json_patch::merge(&mut pool, &merge.patch);
        }
        patched.push(Arc::new(serde_json::from_value::<NodePool>(pool)?));
    }
    let mut policy = Policy::new(&spec.name, patched);
    policy.model = match spec.model {
        ModelName::Ours => Model::Ours,
        ModelName::None => Model::None,
        ModelName::Karpenter => Model::Karpenter,
        ModelName::KarpenterBalanced => Model::KarpenterBalanced,
        ModelName::ClusterAutoscaler => Model::ClusterAutoscaler,
    };
    let disrupt = &mut policy.settings.disrupt;
    disrupt.spot_to_spot = spec.settings.spot_to_spot.unwrap_or(disrupt.spot_to_spot);
    Ok(policy)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/simulate");
    let file = arguments
        .next()
        .map_or_else(|| examples.join("quick.yaml"), PathBuf::from);
    let only = arguments.next();
    let document = documents(&file)?.into_iter().next().unwrap_or_default();
    let scenario =
        Scenario::read(&document).map_err(|problems| format!("{}: {problems:?}", file.display()))?;
    let mut world = World::of_scenario(&scenario, Arc::clone(Catalog::default().instance_types()));
    let mut pools = Vec::new();
    for manifest in &scenario.cluster.manifests {
        for object in documents(&file.with_file_name(manifest))? {
            match object["kind"].as_str() {
                Some("NodePool") => pools.push(object),
                Some("DaemonSet") => {
                    let daemon_set: DaemonSet = serde_json::from_value(object)?;
                    world.daemon_sets.push(Arc::new(daemon_set));
                }
                _ => {}
            }
        }
    }
    let began = Instant::now();
    for seed in 1..=u64::from(scenario.seeds) {
        let timeline = generate(&scenario, seed, &BTreeMap::new())?;
        let wanted = |spec: &&PolicySpec| only.as_ref().is_none_or(|only| *only == spec.name);
        for spec in scenario.policies.iter().filter(wanted) {
            let started = Instant::now();
            let run = live(&world, &timeline, &policy(spec, &pools)?, seed);
            let measured = &run.measured;
            println!(
                "{seed} {}: {:.1} s; ${:.2}, peak {} nodes, {} launches, {} commands, {} evictions; {}",
                spec.name,
                started.elapsed().as_secs_f64(),
                (measured.cost_on_demand_micros + measured.cost_spot_micros) as f64 / 1e6,
                measured.peak_nodes,
                measured.launches,
                measured.commands,
                measured.evictions_voluntary,
                run.digest,
            );
        }
    }
    println!("{:.1} s in all", began.elapsed().as_secs_f64());
    Ok(())
}
