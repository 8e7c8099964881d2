//! Instances: why they are launched, what they cost, when they come, and why and when they end.

use super::replay::{Node, State, fits, may_be, requests, room, whole_seconds};
use super::report::{Entry, Promise, Report};
use super::worlds::{MINUTE, SECOND, SHORTAGE};

/// The time for registration.
const JOINS_WITHIN: u64 = 15 * MINUTE;
/// Longest time from when a node goes and is empty until its instance has ended: a look, and what the cloud takes.
const ENDS_WITHIN: u64 = 5 * MINUTE;
/// What has not come up when its command is taken back goes within this time.
const ORPHAN_GOES_WITHIN: u64 = 10 * MINUTE;
/// A node without pods goes so long after it may be consolidated: the poll, the second look, the turns of others, and the longest time in which a budget of a
/// NodePool is shut.
const EMPTY_GOES_WITHIN: u64 = 30 * MINUTE + 45 * MINUTE;

pub fn judge(state: &State<'_>, entry: &Entry, report: &mut Report) {
    match entry.what.as_str() {
        "nodeclaim" => asked(state, entry, report),
        "launched" => launched(state, entry, report),
        "expired" => expired(state, entry, report),
        "joined" | "ended" | "gone" => {
            if let Some(node) = state.nodes.get(&entry.of) {
                of_node(state, entry, node, report);
            }
        }
        _ => {}
    }
}

fn asked(state: &State<'_>, entry: &Entry, report: &mut Report) {
    let is_new = !state.claims.contains_key(&entry.of);
    report.judge(Promise::OneInstance, entry, is_new, || {
        "it is asked for again".to_owned()
    });
    // What is for pods is judged when it is known what they get.
    if !entry.more.is_empty() {
        let command = state.commands.get(&entry.more);
        let names_it = command
            .is_some_and(|command| command.over_ms.is_none() && command.replacements.contains(&entry.of));
        let why = || format!("no command {} under way names it", entry.more);
        report.judge(Promise::LaunchReason, entry, names_it, why);
    }
}

fn launched(state: &State<'_>, entry: &Entry, report: &mut Report) {
    let scene = state.scene;
    let words: Vec<&str> = entry.more.split(' ').collect();
    let (Some(claim), &[name, capacity_type, said, zone]) = (state.claims.get(&entry.of), words.as_slice())
    else {
        return;
    };
    let is_first = !state.nodes.contains_key(&entry.of);
    report.judge(Promise::OneInstance, entry, is_first, || {
        "a second instance".to_owned()
    });
    let Some(instance_type) = scene.types.iter().find(|one| one.name == name) else {
        return;
    };
    let price = instance_type.price_of(zone, capacity_type);
    let is_price = price.is_some_and(|price| price.to_string() == said);
    let is_allowed = claim.pool.capacity_types.contains(&capacity_type);
    report.judge(Promise::Price, entry, is_price && is_allowed, || {
        format!(
            "its offering costs {price:?}, and the NodePool may buy {:?}",
            claim.pool.capacity_types
        )
    });
    if let Some(count) = scene.shortage
        && (SHORTAGE.0..SHORTAGE.1).contains(&entry.at_ms)
    {
        let types = scene.types.iter().map(|one| {
            let prices = one.offerings.iter().map(|offering| offering.price);
            (prices.min(), &one.name)
        });
        let mut types: Vec<_> = types.collect();
        types.sort();
        let is_there = types.iter().skip(count).any(|(_, other)| *other == name);
        let why = || format!("{name} cannot be had");
        report.judge(Promise::Shortage, entry, is_there, why);
    }
    if claim.command.is_empty() {
        let room = room(scene, instance_type);
        let holds_one = claim.wanted.iter().any(|(index, volumes)| {
            let workload = &scene.workloads[*index];
            let is_here = volumes.as_ref().is_none_or(|there| there == zone);
            is_here && may_be(workload, claim.pool, zone) && fits(&requests(workload), &room)
        });
        let why = || format!("of {:?} it can hold none", claim.wanted);
        report.judge(Promise::LaunchReason, entry, holds_one, why);
    }
    if let Some(limit) = claim.pool.limit_millicores {
        // What goes does not count, and neither does what went when this was decided, and stays because its command was taken back.
        let counts = |name: &String, node: &Node<'_>| {
            let is_part = node.pool.name == claim.pool.name;
            is_part && !state.is_leaving(name, node) && !claim.leaving.contains(name)
        };
        let others = state.alive().filter(|(name, node)| counts(name, node));
        let others: i64 = others
            .map(|(_, node)| node.instance_type.capacity.get("cpu"))
            .sum();
        let all = others + instance_type.capacity.get("cpu");
        let why = || format!("its NodePool has {all} of {limit} millicores");
        report.judge(Promise::Limits, entry, all <= limit, why);
    }
}

fn expired(state: &State<'_>, entry: &Entry, report: &mut Report) {
    let claim = state.claims.get(&entry.of);
    let due = claim.and_then(|claim| Some(whole_seconds(claim.asked_ms) + claim.pool.expire_after_ms?));
    let is_due = due.is_some_and(|due| (due..=due + SECOND).contains(&entry.at_ms));
    report.judge(Promise::Expiry, entry, is_due, || {
        format!("its time is {due:?} ms")
    });
}

fn of_node(state: &State<'_>, entry: &Entry, node: &Node<'_>, report: &mut Report) {
    match entry.what.as_str() {
        "joined" => {
            let is_in_time = entry.at_ms.saturating_sub(node.launched_ms) <= JOINS_WITHIN;
            report.judge(Promise::Joins, entry, is_in_time, || "it joins late".to_owned());
        }
        "ended" => {
            // A node that has not come up goes with its command, of which there is no line of its own.
            let has_reason = node.going_ms.is_some() || node.ready_ms.is_none() || may_be_taken(state, node);
            let why = || "nothing has asked for it".to_owned();
            report.judge(Promise::EndReason, entry, has_reason, why);
            let is_drained = node.pods.is_empty() || may_be_taken(state, node);
            let why = || format!("{:?} are on it", node.pods);
            report.judge(Promise::CutShort, entry, is_drained, why);
            going(entry, entry.at_ms, node, report);
        }
        _ => {
            let has_ended = node.ended_ms.is_some();
            let why = || "its instance is still there".to_owned();
            report.judge(Promise::GoneLast, entry, has_ended, why);
        }
    }
}

/// Whether the cloud may take an instance back at any time.
pub fn may_be_taken(state: &State<'_>, node: &Node<'_>) -> bool {
    state.scene.has_interruptions && node.capacity_type == "spot"
}

/// What holds until a node that goes has ended.
fn going(entry: &Entry, now_ms: u64, node: &Node<'_>, report: &mut Report) {
    let Some(going_ms) = node.going_ms else { return };
    if node.pods.is_empty() {
        let lasts_ms = now_ms.saturating_sub(going_ms.max(node.empty_ms));
        let why = || format!("it has gone and been empty for {lasts_ms} ms");
        report.judge(Promise::EndsSoon, entry, lasts_ms <= ENDS_WITHIN, why);
    }
    if let Some(grace_ms) = node.pool.termination_grace_ms {
        let latest_ms = going_ms + grace_ms + ENDS_WITHIN;
        let why = || format!("its drain began at {going_ms} ms and had {grace_ms} ms");
        report.judge(Promise::Deadline, entry, now_ms <= latest_ms, why);
    }
}

/// For how long a node that could be consolidated has had no pods, where no DisruptionPolicy keeps it.
pub fn idle(state: &State<'_>, entry: &Entry, node: &Node<'_>, report: &mut Report) {
    if state.scene.restriction.is_some() || !node.pods.is_empty() {
        return;
    }
    let idle_ms = state.now_ms.saturating_sub(node.empty_ms);
    let most_ms = node.pool.consolidate_after_ms + EMPTY_GOES_WITHIN;
    let why = || format!("it has been empty for {idle_ms} ms");
    report.judge(Promise::EmptyGoes, entry, idle_ms <= most_ms, why);
}

/// What is still there in the end is not there for too long.
pub fn at_the_end(state: &State<'_>, report: &mut Report) {
    let now_ms = state.now_ms;
    for (name, node) in state.alive() {
        let end = Entry::end(now_ms, name);
        if node.joined_ms.is_none() {
            let is_in_time = now_ms.saturating_sub(node.launched_ms) <= JOINS_WITHIN;
            report.judge(Promise::Joins, &end, is_in_time, || {
                "it has not joined".to_owned()
            });
        }
        if node.is_ready() && !state.is_leaving(name, node) {
            idle(state, &end, node, report);
        }
        if let Some(expire_after_ms) = node.pool.expire_after_ms {
            let due_ms = whole_seconds(node.asked_ms) + expire_after_ms;
            let is_young = now_ms <= due_ms + SECOND || node.going_ms.is_some();
            report.judge(Promise::Expiry, &end, is_young, || {
                format!("its time was {due_ms} ms")
            });
        }
        going(&end, now_ms, node, report);
    }
    for command in state.commands.values() {
        let Some(over_ms) = command.over_ms else { continue };
        for name in &command.replacements {
            let Some(claim) = state.claims.get(name) else {
                continue;
            };
            let node = state.nodes.get(name);
            let was_up = node
                .and_then(|node| node.ready_ms)
                .is_some_and(|ready_ms| ready_ms <= over_ms);
            let latest_ms = over_ms + ORPHAN_GOES_WITHIN;
            let is_gone = claim.gone_ms.is_some_and(|gone_ms| gone_ms <= latest_ms);
            // A command whose nodes others have taken has succeeded, and what it has launched stays.
            let is_kept = !command.is_rolled_back || was_up || is_gone || now_ms <= latest_ms;
            let why = || format!("{name} had not come up when its command was taken back, and stays");
            report.judge_end(Promise::NoOrphan, is_kept, why);
        }
    }
}
