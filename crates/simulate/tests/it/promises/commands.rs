//! Commands: which nodes they take, within which budgets of NodePools, and what has to be so before nodes are deleted.

use std::collections::BTreeMap;

use spokeshave_model::Price;

use super::replay::{Command, Node, State, may_be, whole_seconds};
use super::report::{Entry, Promise, Report};
use super::worlds::{Force, Pool, SECOND};

/// Between the two looks at a command that consolidates.
const SECOND_LOOK: u64 = 15 * SECOND;
/// How long taints stand before pods are looked at for the last time.
const SETTLES: u64 = SECOND;

/// The nodes of a command that are known, by name.
pub fn nodes_of<'s, 'a>(
    state: &'s State<'a>,
    command: &'s Command,
) -> impl Iterator<Item = (&'s String, &'s Node<'a>)> {
    let names = command.nodes.iter();
    names.filter_map(move |name| Some((name, state.nodes.get(name)?)))
}

pub fn judge(state: &State<'_>, entry: &Entry, report: &mut Report) {
    match entry.what.as_str() {
        "command" => begun(state, entry, &Command::read(entry), report),
        "phase" => {
            if let Some(command) = state.commands.get(&entry.of) {
                carried_on(state, entry, command, report);
            }
        }
        _ => {}
    }
}

fn begun(state: &State<'_>, entry: &Entry, command: &Command, report: &mut Report) {
    let is_free = |name: &String| {
        let node = state.nodes.get(name);
        node.is_some_and(|node| node.is_ready() && !state.is_leaving(name, node))
    };
    let are_free = !command.nodes.is_empty() && command.nodes.iter().all(is_free);
    report.judge(Promise::Chosen, entry, are_free, || {
        format!("not all of {:?} are up and free", command.nodes)
    });
    let mut promised = state.under_way().flat_map(|other| &other.replacements);
    let taken = promised.find(|name| command.nodes.contains(name));
    report.judge(Promise::ReplacementsKept, entry, taken.is_none(), || {
        format!("{taken:?} replaces others")
    });
    for (name, node) in nodes_of(state, command) {
        if !command.is_maintenance() {
            consolidated(state, entry, name, node, report);
        }
        if command.reason() == "Empty" || node.pool.when_empty && !command.is_maintenance() {
            let pod = state.staying(node).next().map(|(pod, _)| pod);
            report.judge(Promise::Empty, entry, pod.is_none(), || {
                format!("{pod:?} is on {name}")
            });
        }
        unprotected(state, entry, node, report);
    }
    budgets(state, entry, command, report);
    if command.replacements.is_empty() && !command.is_maintenance() {
        let price: i64 = nodes_of(state, command).map(|(_, node)| node.price_nanos).sum();
        let is_right = Price(price).to_string() == command.savings;
        report.judge(Promise::Savings, entry, is_right, || {
            format!("its nodes cost {}", Price(price))
        });
    }
    if !command.is_maintenance() {
        let commands = state.commands_since + 1;
        let nodes = state.most_nodes.max(state.alive().count());
        let returned = state.returned_since.len();
        let may_be = commands <= 2 * nodes + 2 + returned;
        let why = || {
            format!(
                "the {commands}th command for {nodes} nodes, while {returned} pods of Jobs come again and nothing else changes"
            )
        };
        report.judge(Promise::Quiescence, entry, may_be, why);
    }
}

/// A node that is consolidated has been at rest for long enough, both now and at the first look.
fn consolidated(state: &State<'_>, entry: &Entry, name: &str, node: &Node<'_>, report: &mut Report) {
    let rests_at = |at_ms: u64| {
        let last_ms = node.disturbed_ms.iter().rev().find(|then_ms| **then_ms <= at_ms);
        last_ms.is_some_and(|last_ms| whole_seconds(*last_ms) + node.pool.consolidate_after_ms <= at_ms)
    };
    let why = || format!("{name} has not rested since {:?} ms", node.disturbed_ms.last());
    report.judge(Promise::ConsolidateAfter, entry, rests_at(entry.at_ms), why);
    let first_ms = entry.at_ms.saturating_sub(SECOND_LOOK);
    report.judge(Promise::SecondLook, entry, rests_at(first_ms), why);
    super::launches::idle(state, entry, node, report);
}

fn unprotected(state: &State<'_>, entry: &Entry, node: &Node<'_>, report: &mut Report) {
    if state.scene.workloads.iter().any(|one| one.is_protected) {
        let mut staying = state.staying(node);
        let kept = staying.find(|(_, pod)| state.workload(pod).is_protected);
        let why = || format!("{:?} must not be disrupted", kept.map(|(pod, _)| pod));
        report.judge(Promise::Protected, entry, kept.is_none(), why);
    }
}

/// Of each NodePool that loses nodes, no more than its budgets allow are on their way out with these. Those that are being ended do not count (D-201), and
/// of a node that is empty and goes nobody can tell from outside.
fn budgets(state: &State<'_>, entry: &Entry, command: &Command, report: &mut Report) {
    let mut pools: BTreeMap<&str, &Pool> = BTreeMap::new();
    pools.extend(nodes_of(state, command).map(|(_, node)| (node.pool.name, node.pool)));
    for pool in pools.into_values() {
        let is_own = |node: &Node<'_>| node.pool.name == pool.name && node.is_ready();
        let nodes: Vec<_> = state.alive().filter(|(_, node)| is_own(node)).collect();
        let counts = |name: &String, node: &Node<'_>| {
            let may_be_ending = node.going_ms.is_some() && node.pods.is_empty();
            let goes = state.is_leaving(name, node) && !may_be_ending;
            goes || command.nodes.contains(name)
        };
        let going = nodes.iter().filter(|(name, node)| counts(name, node)).count();
        let reason = command.reason();
        let most = allowed(pool, reason, nodes.len(), entry.at_ms);
        let why = || {
            format!(
                "{going} of {} nodes of {} go, and {most} may ({reason})",
                nodes.len(),
                pool.name
            )
        };
        report.judge(Promise::Budgets, entry, going <= most, why);
        let unreadable = pool
            .budgets
            .unwrap_or_default()
            .iter()
            .filter(|one| one.force == Force::Unreadable);
        for budget in unreadable {
            let is_other = !budget.reasons.is_empty() && !budget.reasons.contains(&reason);
            let why = || format!("nobody can read the budget of {} for {reason}", pool.name);
            report.judge(Promise::UnreadableBudget, entry, is_other, why);
        }
    }
}

/// How many of so many nodes of a NodePool may be on their way out at a time.
fn allowed(pool: &Pool, reason: &str, nodes: usize, now_ms: u64) -> usize {
    let share = |text: &str| match text.strip_suffix('%') {
        Some(percent) => (nodes * percent.parse::<usize>().unwrap()).div_ceil(100),
        None => text.parse().unwrap(),
    };
    let Some(budgets) = pool.budgets else {
        return share("10%");
    };
    let in_force = budgets.iter().filter(|budget| {
        let is_now = match budget.force {
            Force::Always => true,
            Force::Between(from_ms, to_ms) => (from_ms..to_ms).contains(&now_ms),
            Force::Unreadable => false,
        };
        is_now && (budget.reasons.is_empty() || budget.reasons.contains(&reason))
    });
    in_force
        .map(|budget| share(budget.nodes))
        .min()
        .unwrap_or(usize::MAX)
}

fn are_all(state: &State<'_>, names: &[String], is_so: impl Fn(&Node<'_>) -> bool) -> bool {
    let mut nodes = names.iter().map(|name| state.nodes.get(name));
    nodes.all(|node| node.is_some_and(&is_so))
}

fn carried_on(state: &State<'_>, entry: &Entry, command: &Command, report: &mut Report) {
    match entry.more.as_str() {
        "Deleting" if !command.replacements.is_empty() => {
            // Where all nodes have been taken already, nothing is waited for.
            let are_ready = are_all(state, &command.replacements, |node| node.ready_ms.is_some());
            let is_pointless = are_all(state, &command.nodes, |node| node.forced_ms.is_some());
            let why = || format!("not all of {:?} are", command.replacements);
            report.judge(Promise::ReplacementsReady, entry, are_ready || is_pointless, why);
        }
        "Draining" => deleted(state, entry, command, report),
        "Succeeded" => {
            let are_gone = are_all(state, &command.nodes, |node| node.gone_ms.is_some());
            let why = || format!("not all of {:?} are gone", command.nodes);
            report.judge(Promise::GoneLast, entry, are_gone, why);
        }
        _ => {}
    }
}

/// The nodes of a command are deleted. What has been taken already goes in any case.
fn deleted(state: &State<'_>, entry: &Entry, command: &Command, report: &mut Report) {
    let tainted_ms = command.tainted_ms.unwrap_or(entry.at_ms);
    let has_settled = tainted_ms + SETTLES <= entry.at_ms;
    report.judge(Promise::Settled, entry, has_settled, || {
        format!("its taints stand since {tainted_ms} ms")
    });
    let nodes = nodes_of(state, command).filter(|(_, node)| node.forced_ms.is_none());
    for (name, node) in nodes {
        let begun = whole_seconds(command.begun_ms);
        let late = state
            .staying(node)
            .find(|(_, pod)| whole_seconds(pod.bound_ms) > begun);
        let why = || format!("{:?} has come to {name} since", late.map(|(pod, _)| pod));
        report.judge(Promise::Settled, entry, late.is_none(), why);
        unprotected(state, entry, node, report);
        for (pod, found) in state.staying(node) {
            let workload = state.workload(found);
            let volumes = state.volumes.get(pod);
            let has_place = state.alive().any(|(other, place)| {
                let stays = place.is_ready() && !state.is_leaving(other, place);
                let is_here = volumes.is_none_or(|zone| *zone == place.zone);
                let may_be = is_here && may_be(workload, place.pool, &place.zone);
                stays && may_be && state.has_room(workload, place)
            });
            report.judge(Promise::Places, entry, has_place, || {
                format!("{pod} has no place but {name}")
            });
        }
    }
    if !command.replacements.is_empty() && !command.is_maintenance() {
        cheaper(state, entry, command, report);
    }
}

fn cheaper(state: &State<'_>, entry: &Entry, command: &Command, report: &mut Report) {
    let before: i64 = nodes_of(state, command).map(|(_, node)| node.price_nanos).sum();
    let new = command.replacements.iter();
    let new: Vec<&Node<'_>> = new.filter_map(|name| state.nodes.get(name)).collect();
    let after: i64 = new.iter().map(|node| node.price_nanos).sum();
    let why = || format!("{} for {}", Price(after), Price(before));
    report.judge(Promise::Cheaper, entry, after < before, why);
    let is_spot = |node: &Node<'_>| node.capacity_type == "spot";
    if !state.scene.spot_to_spot && nodes_of(state, command).all(|(_, node)| is_spot(node)) {
        let is_other = !new.iter().any(|node| is_spot(node));
        report.judge(Promise::Cheaper, entry, is_other, || "spot for spot".to_owned());
    }
}
