//! A model of cluster-autoscaler's scale-down, after its FAQ and the defaults of its flags.
//!
//! Owns which nodes are unneeded, since when, and how many go at once. Scale-up is that of every run: there are no node groups, and so no expander.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use spokeshave_model::snapshot::{NodeId, PodView, Snapshot};
use spokeshave_model::vector::{CPU, MEMORY};
use spokeshave_plan::disrupt::{Candidate, DisruptionClass, Method, candidates};
use spokeshave_schedule::PackOptions;

use super::Answer;
use super::search::{Moved, Search, command};

/// Milliseconds for which a node has to be unneeded, and which have to pass after a scale-up: `--scale-down-unneeded-time`, `--scale-down-delay-after-add`.
const UNNEEDED_MS: u64 = 600_000;
/// Nodes that are on their way out at once: `--max-scale-down-parallelism`.
const MOST_AT_ONCE: usize = 10;
/// Of these, how many have pods to be moved: `--max-drain-parallelism`.
const MOST_DRAINS: usize = 1;
/// The annotation by which a pod says whether it keeps its node.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Nodes that are on their way out already.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine::operator) struct UnderWay {
    /// Those without pods.
    pub(in crate::engine::operator) empty: usize,
    /// Those whose pods are moved.
    pub(in crate::engine::operator) drained: usize,
}

/// What cluster-autoscaler would do now, and since when nodes have been unneeded, by provider ID.
pub(in crate::engine::operator) fn cluster_autoscaler(
    snapshot: &Snapshot,
    unneeded: &mut BTreeMap<String, u64>,
    last_launch_ms: Option<u64>,
    under_way: UnderWay,
    now_ms: u64,
    now: Timestamp,
) -> Answer {
    let options = PackOptions::default();
    let mut search = Search::new(snapshot, &options, now);
    let found = in_order(snapshot, unneeded, now_ms, now);
    let going = search.one_after_another(&found);
    let ids: BTreeSet<&str> = going
        .iter()
        .map(|(candidate, _)| snapshot.node(candidate.node).provider_id.as_str())
        .collect();
    unneeded.retain(|id, _| ids.contains(id.as_str()));
    for id in ids {
        unneeded.entry(id.to_owned()).or_insert(now_ms);
    }
    let mut answer = Answer {
        commands: Vec::new(),
        what_ifs: search.what_ifs,
    };
    if last_launch_ms.is_some_and(|last| now_ms - last < UNNEEDED_MS) {
        return answer;
    }
    let due = going.into_iter().filter(|(candidate, _)| {
        let since = unneeded.get(&snapshot.node(candidate.node).provider_id);
        since.is_some_and(|since| now_ms - since >= UNNEEDED_MS)
    });
    let chosen = at_once(due.collect(), under_way);
    let commands = chosen.iter().map(|(candidate, moved)| {
        let one = std::slice::from_ref(*candidate);
        let method = if is_empty(candidate) {
            Method::Emptiness
        } else {
            Method::SingleNodeConsolidation
        };
        command(snapshot, method, one, Vec::new(), moved.moves(snapshot))
    });
    answer.commands = commands.collect();
    answer
}

/// When the next node has been unneeded for long enough, after now.
pub(in crate::engine::operator) fn next_unneeded_ms(
    unneeded: &BTreeMap<String, u64>,
    last_launch_ms: Option<u64>,
    now_ms: u64,
) -> Option<u64> {
    let rested = last_launch_ms.map_or(0, |last| last + UNNEEDED_MS);
    let due = unneeded.values().map(|since| rested.max(since + UNNEEDED_MS));
    due.filter(|due| *due > now_ms).min()
}

/// Nodes that may be unneeded: empty ones first, then those that have been unneeded for longest, and of these the first by name.
fn in_order(
    snapshot: &Snapshot,
    unneeded: &BTreeMap<String, u64>,
    now_ms: u64,
    now: Timestamp,
) -> Vec<Candidate> {
    let (mut found, _) = candidates(snapshot, DisruptionClass::Graceful, now);
    found.retain(|candidate| {
        // A node group of a fixed size is not scaled down.
        let is_fixed = snapshot.pool(candidate.pool).is_static;
        !is_fixed && is_underused(snapshot, candidate.node) && !is_kept(snapshot, candidate.node)
    });
    found.sort_by_cached_key(|candidate| {
        let view = snapshot.node(candidate.node);
        let since = unneeded.get(&view.provider_id).copied().unwrap_or(now_ms);
        (!is_empty(candidate), since, view.name.as_str())
    });
    found
}

/// The first of these, as many as may go besides those that are on their way: empty ones, and one with pods.
fn at_once(due: Vec<(&Candidate, Moved)>, under_way: UnderWay) -> Vec<(&Candidate, Moved)> {
    let room = MOST_AT_ONCE.saturating_sub(under_way.empty + under_way.drained);
    let (empty, with_pods): (Vec<_>, Vec<_>) =
        due.into_iter().partition(|(candidate, _)| is_empty(candidate));
    let mut chosen: Vec<_> = empty.into_iter().take(room).collect();
    let drains = MOST_DRAINS.saturating_sub(under_way.drained);
    let drains = drains.min(room - chosen.len());
    chosen.extend(with_pods.into_iter().take(drains));
    chosen
}

/// It has no pods but those of DaemonSets.
fn is_empty(candidate: &Candidate) -> bool {
    candidate.pod_count() == 0
}

/// Pods, those of DaemonSets among them, ask for less than half of its CPU and of its memory: `--scale-down-utilization-threshold`.
fn is_underused(snapshot: &Snapshot, node: NodeId) -> bool {
    let view = snapshot.node(node);
    [CPU, MEMORY].into_iter().all(|index| {
        let (used, total) = (
            i128::from(view.requested[index]),
            i128::from(view.allocatable[index]),
        );
        total > 0 && used * 2 < total
    })
}

/// Whether a pod keeps the node.
fn is_kept(snapshot: &Snapshot, node: NodeId) -> bool {
    let mut pods = snapshot.node(node).pods.iter();
    pods.any(|pod| keeps_node(snapshot.pod(*pod)))
}

/// A pod without a controller, one of kube-system that no PodDisruptionBudget is about, or one with local storage keeps its node, unless it says that it does not.
fn keeps_node(pod: &PodView) -> bool {
    if !pod.active || pod.daemon || pod.mirror || pod.is_virtual {
        return false;
    }
    let metadata = &pod.object.metadata;
    let annotations = metadata.annotations.as_ref();
    match annotations
        .and_then(|all| all.get(SAFE_TO_EVICT))
        .map(String::as_str)
    {
        Some("true") => return false,
        Some("false") => return true,
        _ => {}
    }
    let mut owners = metadata.owner_references.iter().flatten();
    let has_controller = owners.any(|owner| owner.controller == Some(true));
    let is_of_system = metadata.namespace.as_deref() == Some("kube-system");
    !has_controller || (is_of_system && pod.budgets().is_empty()) || has_local_storage(pod)
}

/// A directory of the node, or one that ends with the pod, unless that is in memory.
fn has_local_storage(pod: &PodView) -> bool {
    let spec = pod.object.spec.as_deref();
    let volumes = spec.and_then(|spec| spec.volumes.as_ref());
    volumes.into_iter().flatten().any(|volume| {
        let directory = volume.empty_dir.as_ref();
        let is_on_disk = directory.is_some_and(|directory| directory.medium.as_deref() != Some("Memory"));
        volume.host_path.is_some() || is_on_disk
    })
}

#[cfg(test)]
mod tests;
