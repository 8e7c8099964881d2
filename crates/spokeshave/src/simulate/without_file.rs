//! `simulate -f dump.yaml --for 7d`: the scenario that is meant when there is no scenario file.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use spokeshave_scenario::Scenario;
use spokeshave_scenario::file::{CloudSpec, ClusterSpec, ModelName, PolicySpec, SettingsSpec};

use super::cluster::start_of;
use super::document::Document;
use super::inventory;
use super::standing::Nodes;

/// Of this many seeds a table still comes in seconds.
const SEEDS: u32 = 5;
/// How long a dump is simulated where nobody says.
const WEEK_MS: u64 = 7 * 86_400_000;

/// The workloads of dumps as they are, under the NodePools of the dumps as they are, and, where the engine has `models`, beside them without any
/// consolidation.
///
/// # Errors
/// A dump cannot be read.
pub(crate) fn document(paths: &[PathBuf], duration_ms: Option<u64>, models: bool) -> Result<Document> {
    let duration_ms = duration_ms.unwrap_or(WEEK_MS);
    if paths.iter().any(|path| path == Path::new("-")) {
        bail!("-f -: a dump is read more than once, so that it has to be a file");
    }
    let inventory = inventory::read(paths)?;
    let name = paths
        .first()
        .and_then(|path| path.file_stem())
        .map_or_else(|| "dump".to_owned(), |name| name.to_string_lossy().into_owned());
    let policy = |name: &str, model: ModelName| PolicySpec {
        name: name.to_owned(),
        path: String::new(),
        model,
        merge: Vec::new(),
        manifests: Vec::new(),
        settings: SettingsSpec::default(),
    };
    let mut policies = vec![policy("now", ModelName::Ours)];
    policies.extend(models.then(|| policy("never", ModelName::None)));
    let scenario = Scenario {
        name,
        start: start_of(inventory.newest()),
        duration_ms,
        warmup_ms: match Nodes::of_files(paths).is_any() {
            // What becomes of the cluster as it stands counts from the start.
            true => 0,
            // It begins empty: what it costs to fill it is not the cost of running it.
            false => (duration_ms / 10).min(6 * 3_600_000),
        },
        seeds: SEEDS,
        cluster: ClusterSpec::default(),
        workloads: Vec::new(),
        cloud: CloudSpec::default(),
        policies,
        baseline: "now".to_owned(),
        expect: Vec::new(),
    };
    Ok(Document::of(scenario))
}
