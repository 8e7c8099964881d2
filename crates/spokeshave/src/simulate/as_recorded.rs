//! What recordings tell of nodes: those that every policy begins with, and what really was, beside what is simulated.
//!
//! Owns which recording is taken for that, and the sentences where none is. What nodes can be begun with, and what they cost, is the business of the crate
//! `simulate`.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use spokeshave_api::NodePool;
use spokeshave_comparison::AsRecorded;
use spokeshave_scenario::Scenario;
use spokeshave_scenario::import::{Recorded, RecordedNodes};
use spokeshave_scenario::source::Source;
use spokeshave_simulate::recorded::NodeTime;
use spokeshave_simulate::{Policy, World};

use super::cluster::Setting;
use super::standing::Nodes;
use crate::plan::dump;

/// A recording has to be so many hundredths of what it is beside; for the rest, as for its workloads, everything is taken to stay.
const LEAST_COVERED: u64 = 99;

/// A recording that tells of nodes.
#[derive(Debug)]
pub(crate) struct RecordedCluster {
    /// Its file, as the scenario names it.
    file: String,
    nodes: RecordedNodes,
    /// How long it is, in milliseconds.
    recorded_ms: u64,
    /// Its workloads are simulated once, as large as they were.
    is_of_its_size: bool,
    /// They are simulated as fast as they were.
    is_as_fast: bool,
}

impl RecordedCluster {
    /// Takes what a recording tells of nodes out of it, if it does.
    pub(crate) fn taken(file: &str, recorded: &mut Recorded, source: &Source) -> Option<Self> {
        let nodes = std::mem::take(&mut recorded.nodes);
        (!nodes.is_empty()).then(|| RecordedCluster {
            file: file.to_owned(),
            nodes,
            recorded_ms: recorded.recorded_ms,
            is_of_its_size: source.is_of_its_size(),
            is_as_fast: source.speed == 1.0,
        })
    }

    /// Its nodes at the beginning, of a cluster with these NodePools.
    fn at_start(&self, node_pools: &[Arc<NodePool>]) -> Result<Nodes> {
        let items = self.nodes.at_start.join(",");
        let list = format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{items}]}}"#);
        let dump = dump::read(&self.file, list.as_bytes())
            .with_context(|| format!("the nodes of {} cannot be read", self.file))?;
        Ok(Nodes::recorded(&dump, node_pools, self.nodes.begun))
    }
}

/// What is to be known of how a simulation begins.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// Of what the nodes are that it begins with, as far as it can: a `dump` or a `recording`.
    pub(crate) whence: &'static str,
    /// Why they are not those of a recording, if they might be.
    pub(crate) why_not: Option<String>,
}

/// Lets all policies begin with the nodes of a recording, unless they begin with those of a dump or with none.
///
/// # Errors
/// The nodes of the recording cannot be read.
pub(crate) fn begin(
    setting: &mut Setting,
    scenario: &Scenario,
    clusters: &[RecordedCluster],
    policies: &[Policy],
) -> Result<Beginning> {
    let has_dumped = !setting.world.standing.is_empty() || !setting.left_out.is_empty();
    let why_not = match clusters {
        _ if has_dumped || scenario.cluster.begins_empty => None,
        [] => None,
        [cluster] if cluster.is_of_its_size => {
            let nodes = cluster.at_start(&setting.node_pools)?;
            let (standing, left_out) = nodes.stand(&setting.world, policies);
            setting.world.standing = standing;
            setting.left_out = left_out;
            return Ok(Beginning {
                whence: "recording",
                why_not: None,
            });
        }
        [cluster] => Some(format!(
            "{}: its workloads are scaled or copied, so that no policy begins with the nodes of the recording",
            cluster.file
        )),
        several => {
            let files: Vec<&str> = several.iter().map(|cluster| cluster.file.as_str()).collect();
            Some(format!(
                "{} are several recordings with nodes: no policy begins with any of these",
                files.join(", ")
            ))
        }
    };
    Ok(Beginning {
        whence: "dump",
        why_not,
    })
}

/// What really was in the time that is counted, if the workload is one recording that tells it; else why it is not shown.
pub(crate) fn beside(
    clusters: &[RecordedCluster],
    scenario: &Scenario,
    has_dumped_workloads: bool,
    world: &World,
    policies: &[Policy],
) -> (Option<AsRecorded>, Option<String>) {
    let mut clusters = clusters.iter().filter(|one| !one.nodes.instances.is_empty());
    let Some(cluster) = clusters.next() else {
        return (None, None);
    };
    let why = if scenario.workloads.len() > 1 || has_dumped_workloads || clusters.next().is_some() {
        "there are other workloads besides"
    } else if !cluster.is_of_its_size {
        "its workloads are scaled or copied"
    } else if !cluster.is_as_fast {
        "its time runs at another speed"
    } else if cluster.recorded_ms.saturating_mul(100) < world.duration_ms.saturating_mul(LEAST_COVERED) {
        "it is shorter than the scenario"
    } else {
        let nodes = NodeTime::of(&cluster.nodes.instances, world, policies);
        return (Some(AsRecorded::new(&cluster.file, &nodes)), None);
    };
    let file = &cluster.file;
    let note = format!("{file}: what its nodes really cost is not shown beside the policies, because {why}");
    (None, Some(note))
}
