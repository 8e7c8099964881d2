//! What DisruptionPolicies forbid (3, 4), read from their YAML alone: no command begins under a freeze, outside of windows, within a hold, beyond a limit
//! of nothing, with pods that rest, or in a second zone, NodePool or value of a label that has to wait for the first.
//!
//! Only what is beyond doubt is held against an operator: it may not have seen changes younger than [`RECENT`], and a decision is a little older than
//! its first write. What cannot be read must stop everything that it covers.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use serde_json::Value;

use super::view::{Change, Claim, RECENT, View, duration, later};
use super::{Checker, Report, RequestInfo};

/// A command that was just written down.
struct Begun<'a> {
    name: &'a str,
    reason: &'a str,
    claims: Vec<&'a Claim>,
}

#[derive(Debug, Default)]
pub(super) struct Policies;

impl Checker for Policies {
    fn changed(&mut self, view: &View, change: &Change, request: &RequestInfo, report: &mut Report) {
        let Change::Command(name) = change else { return };
        let Some(written) = view.commands.get(name).filter(|_| request.by_operator()) else {
            return;
        };
        let begun = Begun {
            name,
            reason: &written.reason,
            claims: written
                .claims
                .iter()
                .filter_map(|uid| view.claim_with_uid(uid))
                .collect(),
        };
        let is_known = |since: Timestamp| later(since, RECENT) <= view.now && view.is_known(since);
        for policy in view.policies.values().filter(|policy| is_known(policy.since)) {
            for why in forbidden(view, &policy.spec, policy.since, &begun) {
                let invariant = if why.starts_with("frozen") { 4 } else { 3 };
                let text = format!(
                    "begins ({}) although policy {} forbids it: {why}",
                    begun.reason, policy.name
                );
                report.fail(invariant, format!("disruption {}", begun.name), text);
            }
        }
    }
}

fn covers(reasons: &Value, reason: &str) -> bool {
    reasons
        .as_array()
        .is_none_or(|reasons| reasons.iter().any(|one| one == reason))
}

/// By name only; the NodePools of scenarios have no labels, so a selector by labels selects none.
fn selects(spec: &Value, pool: &str) -> bool {
    let selector = &spec["nodePools"];
    selector.is_null()
        || selector["names"]
            .as_array()
            .is_some_and(|names| names.iter().any(|name| name == pool))
}

/// Everything that the policy has against a command.
fn forbidden(view: &View, spec: &Value, since: Timestamp, begun: &Begun<'_>) -> Vec<String> {
    let mut found = Vec::new();
    if !begun.claims.iter().any(|claim| selects(spec, &claim.pool)) {
        return found;
    }
    let before = view.now.saturating_sub(RECENT).unwrap_or(view.now);
    let freeze = &spec["freeze"];
    if !freeze.is_null() {
        let until = freeze["until"]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok());
        if until.is_none_or(|until| until > view.now) {
            found.push("frozen".to_owned());
        }
    }
    let zone = match spec["timeZone"].as_str() {
        None => Some(TimeZone::UTC),
        Some(name) => TimeZone::get(name).ok(),
    };
    let Some(zone) = zone else {
        found.push("its time zone does not exist".to_owned());
        return found;
    };
    found.extend(held(view, spec, before, begun));
    found.extend(quiet(view, spec, before, begun));
    for (index, budget) in spec["budgets"].as_array().into_iter().flatten().enumerate() {
        if !covers(&budget["reasons"], begun.reason) {
            continue;
        }
        let is_open = |at: Timestamp| {
            let windows = budget["windows"].as_array().filter(|windows| !windows.is_empty());
            windows.is_none_or(|windows| {
                windows
                    .iter()
                    .any(|window| is_open(window, &budget["exceptDates"], &zone, at))
            })
        };
        // Around its ends a window is both.
        let (now, then) = (is_open(view.now), is_open(before));
        let allows = budget["outsideWindows"].as_str() != Some("Unlimited");
        if allows && !now && !then {
            found.push(format!("no window of budget {index} is open"));
        }
        if !(now && then) {
            continue;
        }
        if matches!(budget["limit"].as_str(), Some("0" | "0%")) {
            found.push(format!("budget {index} allows nothing"));
        }
        if budget["oneAtATime"] == true {
            found.extend(apart(view, spec, budget, since, begun));
        }
    }
    found
}

/// A hold after launches: some node is younger than it lasts. A maximum, a delay or other triggers are left to those who know what was before.
fn held(view: &View, spec: &Value, before: Timestamp, begun: &Begun<'_>) -> Option<String> {
    let hold = &spec["hold"];
    let is_plain =
        hold["maximum"].is_null() && hold["initialDelay"].is_null() && covers(&hold["reasons"], begun.reason);
    let by_launch = hold["triggers"]
        .as_array()
        .is_none_or(|all| all.iter().any(|one| one == "Launch"));
    let length = duration(hold["duration"].as_str()?)?;
    if !is_plain || !by_launch {
        return None;
    }
    let own = hold["scope"].as_str() == Some("NodePool");
    let is_here = |pool: &str| {
        !own || begun
            .claims
            .iter()
            .any(|claim| claim.pool == pool && selects(spec, pool))
    };
    let mut nodes = view.nodes.values();
    let young = nodes.find(|node| {
        let known =
            node.created <= before && view.is_known(node.created) && view.claim_of_node(node).is_some();
        known && is_here(node.pool()) && later(node.created, length) > later(view.now, Duration::from_secs(1))
    })?;
    Some(format!(
        "it holds for {length:?}, and node {} came at {}",
        young.name, young.created
    ))
}

/// A pod that asks by its own annotation to be left alone, and has come too lately. Annotations of owners and namespaces are left to those who follow them.
fn quiet(view: &View, spec: &Value, before: Timestamp, begun: &Begun<'_>) -> Option<String> {
    let rules = &spec["workloads"];
    if rules.is_null() {
        return None;
    }
    let ceiling = rules["maximumQuietTime"].as_str().and_then(duration);
    let ceiling = ceiling.unwrap_or(Duration::from_secs(24 * 3600));
    let selected = begun.claims.iter().filter(|claim| selects(spec, &claim.pool));
    let nodes = selected.filter_map(|claim| view.node_of_claim(claim));
    let mut pods = nodes.flat_map(|node| view.pods_on(&node.name));
    let (pod, length) = pods.find_map(|pod| {
        let length = pod.quiet_time?.min(ceiling);
        let bound = pod
            .bound
            .filter(|bound| *bound <= before && view.is_known(*bound))?;
        let rests = pod.moves() && pod.created <= bound && later(pod.created, length) > view.now;
        rests.then_some((pod, length))
    })?;
    Some(format!(
        "pod {} rests for {length:?} from {}",
        pod.key.1, pod.created
    ))
}

/// Whether a window that clocks on the wall show is open.
fn is_open(window: &Value, except: &Value, zone: &TimeZone, at: Timestamp) -> bool {
    let local = at.to_zoned(zone.clone());
    let minutes = |key: &str| -> Option<i64> {
        let (hour, minute) = window[key].as_str()?.split_once(':')?;
        Some(hour.parse::<i64>().ok()? * 60 + minute.parse::<i64>().ok()?)
    };
    let (Some(from), Some(to)) = (minutes("from"), minutes("to")) else {
        return false;
    };
    let minute = i64::from(local.hour()) * 60 + i64::from(local.minute());
    let has = |list: &Value, text: &str| {
        list.as_array()
            .is_some_and(|all| all.iter().any(|one| one == text))
    };
    let begins = |days_ago: i64| {
        let Ok(date) = local.date().checked_sub(days_ago.days()) else {
            return false;
        };
        let (written, day) = (date.to_string(), date.strftime("%a").to_string());
        let is_any = window["days"].is_null() && window["dates"].is_null();
        (is_any || has(&window["days"], &day) || has(&window["dates"], &written)) && !has(except, &written)
    };
    if from < to {
        (from..to).contains(&minute) && begins(0)
    } else {
        (minute >= from && begins(0)) || (minute < to && begins(1))
    }
}

/// With this command, nodes of several zones, NodePools or values are under way at once.
fn apart(view: &View, spec: &Value, budget: &Value, since: Timestamp, begun: &Begun<'_>) -> Option<String> {
    let domain = |claim: &Claim| -> Option<String> {
        let node = view.node_of_claim(claim)?;
        let label = |key: &str| node.labels.get(key).cloned().unwrap_or_default();
        match budget["scope"].as_str() {
            Some("Zone") => Some(label("topology.kubernetes.io/zone")),
            Some("NodePool") => Some(claim.pool.clone()),
            Some("Label") => Some(label(budget["label"].as_str()?)),
            _ => None,
        }
    };
    let own: BTreeSet<String> = begun
        .claims
        .iter()
        .filter(|claim| selects(spec, &claim.pool))
        .filter_map(|claim| domain(claim))
        .collect();
    let mut others = view
        .commands
        .iter()
        .filter(|(name, chosen)| name.as_str() != begun.name && chosen.since >= since);
    let elsewhere = others.find_map(|(name, chosen)| {
        let claims = chosen.claims.iter().filter_map(|uid| view.claim_with_uid(uid));
        let mut there = claims
            .filter(|claim| selects(spec, &claim.pool))
            .filter_map(domain);
        there
            .find(|domain| !own.contains(domain))
            .map(|domain| (name, domain))
    });
    match elsewhere {
        _ if own.len() > 1 => Some(format!("one at a time, and it takes nodes of {own:?}")),
        Some((name, domain)) if !own.is_empty() => Some(format!(
            "one at a time, and it takes nodes of {own:?} while {name} takes some of {domain:?}"
        )),
        _ => None,
    }
}
