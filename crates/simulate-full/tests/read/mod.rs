//! Scenario files with their pools, for the test and the example that compare engines.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::Value;
use spokeshave_api::{NodeOverlay, NodePool};
use spokeshave_provider_kwok::Catalog;
use spokeshave_scenario::Scenario;
use spokeshave_simulate::{Policy, World};

/// A scenario with its cluster.
pub struct Scene {
    pub scenario: Scenario,
    pub world: Arc<World>,
    pub policies: Vec<Policy>,
    pub overlays: Vec<Arc<NodeOverlay>>,
}

/// The documents of a YAML file.
fn documents(path: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let documents = text.split("\n---\n").map(serde_saphyr::from_str);
    Ok(documents.collect::<Result<Vec<Value>, _>>()?)
}

/// Reads a scenario.
pub fn scene(file: &Path) -> Result<Scene, Box<dyn Error>> {
    let document = documents(file)?.into_iter().next().unwrap_or_default();
    let scenario =
        Scenario::read(&document).map_err(|problems| format!("{}: {problems:?}", file.display()))?;
    let mut world = World::of_scenario(&scenario, Arc::clone(Catalog::default().instance_types()));
    let (mut pools, mut overlays) = (Vec::new(), Vec::new());
    for manifest in &scenario.cluster.manifests {
        for object in documents(&file.with_file_name(manifest))? {
            match object["kind"].as_str() {
                Some("NodePool") => pools.push(object),
                Some("DaemonSet") => {
                    let daemon_set: DaemonSet = serde_json::from_value(object)?;
                    world.daemon_sets.push(Arc::new(daemon_set));
                }
                Some("NodeOverlay") => overlays.push(Arc::new(serde_json::from_value(object)?)),
                _ => {}
            }
        }
    }
    let mut policies = Vec::new();
    for spec in &scenario.policies {
        let mut patched = Vec::new();
        for pool in &pools {
            let mut pool = pool.clone();
            for merge in spec.merge.iter().filter(|merge| merge.kind == "NodePool") {
                json_patch::merge(&mut pool, &merge.patch);
            }
            patched.push(Arc::new(serde_json::from_value::<NodePool>(pool)?));
        }
        let mut policy = Policy::new(&spec.name, patched);
        let disrupt = &mut policy.settings.disrupt;
        disrupt.spot_to_spot = spec.settings.spot_to_spot.unwrap_or(disrupt.spot_to_spot);
        policy.batch_idle_ms = spec.settings.batch_idle_ms.unwrap_or(policy.batch_idle_ms);
        policies.push(policy);
    }
    Ok(Scene {
        scenario,
        world: Arc::new(world),
        policies,
        overlays,
    })
}
