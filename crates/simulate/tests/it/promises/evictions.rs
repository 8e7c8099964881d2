//! Evictions: why a pod is evicted, and whether it may be.

use spokeshave_scenario::Budget;

use super::launches::may_be_taken;
use super::replay::{Command, Node, Pod, State, whole_seconds};
use super::report::{Entry, Promise, Report};
use super::worlds::{GRACE, SECOND, Workload};

/// A drain that must not wait begins within this time.
const AT_ONCE: u64 = 2 * SECOND;

pub fn judge(state: &State<'_>, entry: &Entry, report: &mut Report) {
    if !matches!(entry.what.as_str(), "evicted" | "killed") {
        return;
    }
    let pod = state.pods.get(&entry.of);
    let place = pod.and_then(|pod| pod.node.as_ref());
    let (Some(pod), Some(name)) = (pod, place) else {
        return;
    };
    let Some(node) = state.nodes.get(name) else { return };
    if entry.what == "killed" {
        let is_cloud = may_be_taken(state, node);
        report.judge(Promise::CutShort, entry, is_cloud, || {
            "its node was not taken back".to_owned()
        });
    } else {
        evicted(state, entry, pod, (name, node), report);
    }
    drains_at_once(state, entry, pod, node, report);
}

fn evicted(
    state: &State<'_>,
    entry: &Entry,
    pod: &Pod,
    (name, node): (&String, &Node<'_>),
    report: &mut Report,
) {
    let workload = state.workload(pod);
    let has_reason = has_reason(state, entry, name, node);
    report.judge(Promise::EvictionReason, entry, has_reason, || {
        format!("{:?} is not why {name} goes", entry.more)
    });
    let is_overdue = is_overdue(node, entry.at_ms);
    if state.scene.workloads.iter().any(|one| one.is_protected) {
        let may_go = !workload.is_protected || is_overdue;
        report.judge(Promise::Protected, entry, may_go, || {
            "it must not be disrupted".to_owned()
        });
    }
    if let Some(budget) = &workload.budget {
        let may_go = is_overdue || allows(state, budget, pod, workload);
        report.judge(Promise::DisruptionBudget, entry, may_go, || {
            format!("{budget:?} does not allow it")
        });
    }
    if workload.is_critical {
        let is_last = state
            .pods_on(node)
            .all(|(_, pod)| state.workload(pod).is_critical);
        report.judge(Promise::Tiers, entry, is_last || is_overdue, || {
            "others are still there".to_owned()
        });
    }
}

/// Whether what is said is why the node goes. Nothing is no reason.
fn has_reason(state: &State<'_>, entry: &Entry, name: &str, node: &Node<'_>) -> bool {
    let is_forced = node.forced_ms.is_some();
    match entry.more.as_str() {
        "" => false,
        "Forceful Termination" => is_forced,
        reason => {
            let takes = |command: &&Command| {
                command.reason() == reason && command.nodes.iter().any(|one| one == name)
            };
            let mut commands = state.commands.values().filter(takes);
            // What a command was about to take may have been taken before it.
            commands.any(|one| !one.is_rolled_back && (one.has_deleted || is_forced))
        }
    }
}

/// Whether the deadline of the node leaves a pod less than its grace.
fn is_overdue(node: &Node<'_>, now_ms: u64) -> bool {
    let deadline = node.going_ms.zip(node.pool.termination_grace_ms);
    deadline.is_some_and(|(going_ms, grace_ms)| now_ms > whole_seconds(going_ms) + grace_ms - GRACE)
}

/// What the Eviction API says. Pods that are not ready may go where the budget is met without them.
fn allows(state: &State<'_>, budget: &Budget, pod: &Pod, workload: &Workload) -> bool {
    let pods = state.pods.values();
    let living: Vec<&Pod> = pods
        .filter(|one| one.workload == pod.workload && !one.is_stopping)
        .collect();
    let ready = living.iter().filter(|one| one.is_ready).count();
    let is_scaled = workload.is_scaled();
    let expected = if is_scaled {
        state.replicas[pod.workload] as usize
    } else {
        living.len()
    };
    let share = |text: &str| match text.strip_suffix('%') {
        Some(percent) => {
            Some((expected * percent.parse::<usize>().ok()?).div_ceil(100)).filter(|_| is_scaled)
        }
        None => text.parse().ok(),
    };
    let least = match budget {
        Budget::MaxUnavailable(most) => share(most)
            .filter(|_| is_scaled)
            .map(|most| expected.saturating_sub(most)),
        Budget::MinAvailable(least) => share(least),
    };
    // Where nobody knows how many there are to be, none may go.
    least.is_some_and(|least| ready >= least + usize::from(pod.is_ready))
}

/// Of a machine that its cloud takes back, what nothing holds goes at once.
fn drains_at_once(state: &State<'_>, entry: &Entry, pod: &Pod, node: &Node<'_>, report: &mut Report) {
    let workload = state.workload(pod);
    let is_held = workload.budget.is_some() || workload.is_protected || workload.is_critical;
    if let Some(told_ms) = node.interrupted_ms.filter(|_| !is_held && !pod.is_stopping) {
        let waits_ms = entry.at_ms.saturating_sub(told_ms);
        let why = || format!("it has waited for {waits_ms} ms");
        report.judge(Promise::DrainsAtOnce, entry, waits_ms <= AT_ONCE, why);
    }
}
