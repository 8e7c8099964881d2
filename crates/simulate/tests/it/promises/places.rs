//! Bindings: whether a pod may be where it is bound, and whether it has come there in time.
//!
//! The rules are those of the Kubernetes documentation, each the slow and obvious way.

use std::collections::BTreeMap;

use super::replay::{Node, Pod, State, may_be, selects};
use super::report::{Entry, Promise, Report};
use super::worlds::{Key, MINUTE, Rule, Workload};

/// A batch, a launch, a boot and a kubelet, each as slow as the cloud may be.
const PLACED_WITHIN: u64 = 10 * MINUTE;

pub fn judge(state: &State<'_>, entry: &Entry, report: &mut Report) {
    let Some(pod) = state.pods.get(&entry.of) else {
        return;
    };
    match entry.what.as_str() {
        "bound" => {
            if let Some(node) = state.nodes.get(&entry.more) {
                bound(state, entry, pod, node, report);
            }
            waited(state, entry, pod, report);
        }
        "left" if pod.node.is_none() => waited(state, entry, pod, report),
        _ => {}
    }
}

fn bound(state: &State<'_>, entry: &Entry, pod: &Pod, node: &Node<'_>, report: &mut Report) {
    let workload = state.workload(pod);
    let stays = !state.is_leaving(&entry.more, node);
    let may_come = pod.node.is_none() && node.is_ready() && stays;
    report.judge(Promise::BoundToStay, entry, may_come, || {
        format!(
            "it is on {:?}; the node is ready since {:?}, stays: {stays}",
            pod.node, node.ready_ms
        )
    });
    let has_room = state.has_room(workload, node);
    report.judge(Promise::Room, entry, has_room, || {
        format!("of {:?} {:?} are taken", node.room, state.used(node))
    });
    let is_selected = may_be(workload, node.pool, &node.zone);
    report.judge(Promise::Selectors, entry, is_selected, || {
        "it may not be there".to_owned()
    });
    let volumes = state.volumes.get(&entry.of);
    if workload.has_volumes {
        let is_here = volumes.is_none_or(|zone| *zone == node.zone);
        report.judge(Promise::Volumes, entry, is_here, || {
            format!("they are in {volumes:?}")
        });
    }
    match workload.rule {
        Rule::None | Rule::Zone(_) => {}
        Rule::Spread { over, most } => {
            let counts = counts(state, pod.workload, volumes, over);
            let here = counts.get(domain(over, &entry.more, node)).copied().unwrap_or(0);
            let fewest = counts.values().min().copied().unwrap_or(0);
            let why = || format!("{counts:?}, and one more");
            report.judge(Promise::Spread, entry, here + 1 - fewest <= most, why);
        }
        Rule::Apart => {
            let is_alone = !has_any(state, node, pod.workload);
            report.judge(Promise::Apart, entry, is_alone, || "another is there".to_owned());
        }
        Rule::Near(other) => {
            let mut there = state.nodes.values().filter(|one| one.zone == node.zone);
            let is_near = there.any(|one| has_any(state, one, other));
            // The first of a group that looks for itself may go anywhere.
            let is_first =
                other == pod.workload && !state.nodes.values().any(|one| has_any(state, one, other));
            report.judge(Promise::Near, entry, is_near || is_first, || {
                "none is near".to_owned()
            });
        }
    }
    super::launches::idle(state, entry, node, report);
}

fn domain<'n>(over: Key, name: &'n str, node: &'n Node<'_>) -> &'n str {
    match over {
        Key::Zone => &node.zone,
        Key::Host => name,
    }
}

/// Pods of a workload that do not stop, by domain: of nodes that the pod may select, ready or not.
fn counts<'s>(
    state: &'s State<'_>,
    index: usize,
    volumes: Option<&String>,
    over: Key,
) -> BTreeMap<&'s str, i64> {
    let workload = &state.scene.workloads[index];
    let mut counts = BTreeMap::new();
    for (name, node) in state.nodes.iter().filter(|(_, node)| node.is_there()) {
        let is_here = volumes.is_none_or(|zone| *zone == node.zone);
        if is_here && selects(workload, node.pool, &node.zone) {
            let own = state.staying(node).filter(|(_, pod)| pod.workload == index);
            *counts.entry(domain(over, name, node)).or_insert(0) += own.count() as i64;
        }
    }
    counts
}

/// Whether a pod of a workload is on a node, be it that it stops.
fn has_any(state: &State<'_>, node: &Node<'_>, workload: usize) -> bool {
    state.pods_on(node).any(|(_, pod)| pod.workload == workload)
}

/// Whether nothing but time stands between a pod and a node: no neighbours, no limit, no shortage.
fn is_free(state: &State<'_>, workload: &Workload) -> bool {
    let is_alone = matches!(workload.rule, Rule::None | Rule::Zone(_));
    let has_limits = state
        .scene
        .pools
        .iter()
        .any(|pool| pool.limit_millicores.is_some());
    is_alone && !has_limits && state.scene.shortage.is_none()
}

fn waited(state: &State<'_>, entry: &Entry, pod: &Pod, report: &mut Report) {
    if is_free(state, state.workload(pod)) {
        let waited_ms = state.now_ms.saturating_sub(pod.born_ms);
        let why = || format!("it has waited for {waited_ms} ms");
        report.judge(Promise::Placed, entry, waited_ms <= PLACED_WITHIN, why);
    }
}

/// Nobody is left to wait.
pub fn at_the_end(state: &State<'_>, report: &mut Report) {
    for (name, pod) in state.pods.iter().filter(|(_, pod)| pod.node.is_none()) {
        waited(state, &Entry::end(state.now_ms, name), pod, report);
    }
}
