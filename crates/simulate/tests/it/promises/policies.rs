//! What a DisruptionPolicy forbids: no command begins under a freeze, outside of a window, within a hold, beyond a rate or a limit, or with pods that rest.

use std::collections::BTreeMap;

use spokeshave_scenario::OwnerKind;

use super::commands::nodes_of;
use super::replay::{Command, Node, Pod, State, whole_seconds};
use super::report::{Entry, Promise, Report};
use super::worlds::{HOUR, Restriction};

pub fn judge(state: &State<'_>, entry: &Entry, report: &mut Report) {
    if let Some(restriction) = state.scene.restriction.filter(|_| entry.what == "command") {
        restricted(state, entry, &Command::read(entry), restriction, report);
    }
}

/// Nodes that are on their way out, or will be with this command, until their NodeClaims are gone.
fn leaving<'s, 'a>(state: &'s State<'a>, command: &'s Command) -> impl Iterator<Item = &'s Node<'a>> {
    let there = state.nodes.iter().filter(|(_, node)| node.gone_ms.is_none());
    let leaving =
        there.filter(move |(name, node)| state.is_leaving(name, node) || command.nodes.contains(name));
    leaving.map(|(_, node)| node)
}

fn restricted(
    state: &State<'_>,
    entry: &Entry,
    command: &Command,
    restriction: Restriction,
    report: &mut Report,
) {
    let now_ms = entry.at_ms;
    match restriction {
        Restriction::Freeze { until_ms } => {
            let why = || format!("all is frozen until {until_ms} ms");
            report.judge(Promise::Freeze, entry, until_ms <= now_ms, why);
        }
        Restriction::Window { from_ms, to_ms } => {
            let why = || format!("only from {from_ms} ms to {to_ms} ms");
            report.judge(Promise::Window, entry, (from_ms..to_ms).contains(&now_ms), why);
        }
        Restriction::Hold { duration_ms } => {
            let mut joined = state
                .nodes
                .values()
                .filter(|node| node.is_there())
                .filter_map(|node| node.joined_ms);
            let holds = joined.find(|joined_ms| whole_seconds(*joined_ms) + duration_ms > now_ms);
            report.judge(Promise::Hold, entry, holds.is_none(), || {
                format!("a node came at {holds:?} ms")
            });
        }
        Restriction::PerHour { nodes } => {
            let counts = |one: &&Command| !one.is_rolled_back && now_ms.saturating_sub(one.begun_ms) < HOUR;
            let others = state.commands.values().filter(counts).map(|one| one.nodes.len());
            let all = others.sum::<usize>() + command.nodes.len();
            report.judge(Promise::PerHour, entry, all <= nodes, || {
                format!("{all} within an hour, and {nodes} may")
            });
        }
        Restriction::PerZone { nodes } => {
            let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
            for node in leaving(state, command) {
                *zones.entry(&node.zone).or_default() += 1;
            }
            let mut own = nodes_of(state, command);
            let is_kept =
                own.all(|(_, node)| zones.get(node.zone.as_str()).is_none_or(|count| *count <= nodes));
            report.judge(Promise::PerZone, entry, is_kept, || {
                format!("{zones:?}, and {nodes} of each may")
            });
        }
        Restriction::OneZone => {
            let mut zones: Vec<&str> = leaving(state, command).map(|node| node.zone.as_str()).collect();
            zones.sort_unstable();
            zones.dedup();
            report.judge(Promise::OneZone, entry, zones.len() <= 1, || {
                format!("of {zones:?}")
            });
        }
        Restriction::SoftExpiry { percent, nodes } => {
            let is_old = |node: &Node<'_>| {
                let after_ms = node.pool.expire_after_ms.map(|after_ms| after_ms * percent / 100);
                after_ms.is_some_and(|after_ms| whole_seconds(node.asked_ms) + after_ms <= now_ms)
            };
            let all = leaving(state, command).count();
            let is_kept = all <= nodes && nodes_of(state, command).all(|(_, node)| is_old(node));
            let why = || format!("{all} of {nodes} nodes at once, and not all are old enough or few enough");
            report.judge(
                Promise::SoftExpiry,
                entry,
                is_kept || command.reason() != "Expired",
                why,
            );
        }
        Restriction::Workloads => {
            quiet(state, entry, command, report);
            one_member(state, entry, command, report);
        }
    }
}

fn quiet(state: &State<'_>, entry: &Entry, command: &Command, report: &mut Report) {
    let rests = |pod: &Pod| {
        let quiet_ms = state.workload(pod).quiet_ms;
        quiet_ms.is_some_and(|quiet_ms| whole_seconds(pod.born_ms) + quiet_ms > entry.at_ms)
    };
    let mut pods = nodes_of(state, command).flat_map(|(_, node)| state.staying(node));
    let found = pods.find(|(_, pod)| rests(pod)).map(|(name, _)| name);
    report.judge(Promise::QuietTime, entry, found.is_none(), || {
        format!("{found:?} rests")
    });
}

/// Of each StatefulSet members are on one node at most, and then no other is away or on its way.
fn one_member(state: &State<'_>, entry: &Entry, command: &Command, report: &mut Report) {
    let workloads = state.scene.workloads.iter().enumerate();
    for (index, set) in workloads.filter(|(_, one)| one.kind == OwnerKind::StatefulSet) {
        let members: Vec<&Pod> = state.pods.values().filter(|pod| pod.workload == index).collect();
        let is_on = |pod: &Pod, name: &String| pod.node.as_ref() == Some(name);
        let holds = |name: &&String| members.iter().any(|pod| is_on(pod, name));
        let own: Vec<&String> = command.nodes.iter().filter(holds).collect();
        let is_busy = |pod: &&&Pod| !pod.is_ready || !state.has_place(pod);
        let busy = members.iter().filter(is_busy).count();
        let is_kept = own.is_empty() || own.len() == 1 && busy == 0;
        let why = || format!("{} is on {own:?}, and {busy} of its pods are not up", set.name);
        report.judge(Promise::OneMember, entry, is_kept, why);
    }
}
