//! Evictions: why a pod is evicted, and whether it may be.

use spokeshave_scenario::Budget;

use super::launches::may_be_taken;
use super::replay::{Command, Node, Pod, State, whole_seconds};
use super::report::{Entry, Promise, Report};
use super::worlds::{GRACE, SECOND};

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
    let budgets = budgets_over(state, pod.workload);
    if !budgets.is_empty() {
        let may_go = is_overdue || allow(state, &budgets, pod);
        report.judge(Promise::DisruptionBudget, entry, may_go, || {
            format!("{budgets:?} do not allow it")
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

/// The budgets over the pods of a workload, each with the numbers of the workloads whose pods it counts.
fn budgets_over<'a>(state: &State<'a>, workload: usize) -> Vec<(&'a Budget, Vec<usize>)> {
    let scene = state.scene;
    let own = scene.workloads[workload].budget.iter();
    let own = own.map(|budget| (budget, vec![workload]));
    let shared = scene
        .shared
        .iter()
        .filter(|shared| shared.over.contains(&workload));
    own.chain(shared.map(|shared| (&shared.amount, shared.over.clone())))
        .collect()
}

/// What the Eviction API says: of several budgets over one pod, that it does not support them.
fn allow(state: &State<'_>, budgets: &[(&Budget, Vec<usize>)], pod: &Pod) -> bool {
    match budgets {
        [(budget, over)] => allows(state, budget, over, pod),
        _ => false,
    }
}

/// Whether a budget over these workloads lets a pod go. Pods that are not ready may go where the budget is met without them.
fn allows(state: &State<'_>, budget: &Budget, over: &[usize], pod: &Pod) -> bool {
    let pods = state.pods.values();
    let living: Vec<&Pod> = pods
        .filter(|one| over.contains(&one.workload) && !one.is_stopping)
        .collect();
    let ready = living.iter().filter(|one| one.is_ready).count();
    // Of a workload without pods nobody asks how many there are to be.
    let are_scaled = living.iter().all(|one| state.workload(one).is_scaled());
    let wanted: usize = over.iter().map(|one| state.replicas[*one] as usize).sum();
    let expected = Some(wanted).filter(|_| are_scaled);
    let percentage = |text: &str, expected: usize| {
        let percent: usize = text.strip_suffix('%')?.parse().ok()?;
        Some((expected * percent).div_ceil(100))
    };
    let least = match budget {
        Budget::MaxUnavailable(most) => expected.and_then(|expected| {
            let most = most.parse().ok().or_else(|| percentage(most, expected))?;
            Some(expected.saturating_sub(most))
        }),
        Budget::MinAvailable(least) => {
            let number = least.parse().ok();
            number.or_else(|| percentage(least, expected?))
        }
    };
    // Where nobody knows how many there are to be, none may go.
    least.is_some_and(|least: usize| ready >= least + usize::from(pod.is_ready))
}

/// Of a machine that its cloud takes back, what nothing holds goes at once.
fn drains_at_once(state: &State<'_>, entry: &Entry, pod: &Pod, node: &Node<'_>, report: &mut Report) {
    let workload = state.workload(pod);
    let has_budget = !budgets_over(state, pod.workload).is_empty();
    let is_held = has_budget || workload.is_protected || workload.is_critical;
    if let Some(told_ms) = node.interrupted_ms.filter(|_| !is_held && !pod.is_stopping) {
        let waits_ms = entry.at_ms.saturating_sub(told_ms);
        let why = || format!("it has waited for {waits_ms} ms");
        report.judge(Promise::DrainsAtOnce, entry, waits_ms <= AT_ONCE, why);
    }
}
