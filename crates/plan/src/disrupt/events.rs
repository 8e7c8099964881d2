//! The events of voluntary disruption, in upstream's words (D App. C), and when the clock alone can change an answer.

use super::candidates::{capitalised, objects};
use super::command::{Command, Decision, Method};
use super::ground::Ground;
use super::outcome::{BackOff, PoolScore};
use super::register::Register;
use super::validate::Rejection;
use jiff::{SignedDuration, Timestamp};
use spokeshave_model::pod::DoNotDisrupt;
use spokeshave_model::snapshot::{NodeId, Snapshot};
use spokeshave_model::{Event, EventType, ObjectKind, ObjectRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// D-035: one message per object and 15 minutes.
pub(super) fn unconsolidatable(snapshot: &Snapshot, node: NodeId, message: &str) -> Vec<Arc<Event>> {
    let event =
        |object| Event::new(object, EventType::Normal, "Unconsolidatable", message).within_seconds(900);
    objects(snapshot, node)
        .into_iter()
        .map(event)
        .map(Arc::new)
        .collect()
}

/// D-134.
pub(super) fn blocked(snapshot: &Snapshot, node: NodeId, message: &str) -> Vec<Event> {
    let message = capitalised(message);
    let event = |object| Event::new(object, EventType::Normal, "DisruptionBlocked", message.clone());
    objects(snapshot, node).into_iter().map(event).collect()
}

/// D-012, D-013: what annotations of pods on managed nodes mean.
pub(super) fn protections(snapshot: &Snapshot, register: &Register, now: Timestamp) -> Vec<Event> {
    let mut events = Vec::new();
    for (_, pod) in register.restless(snapshot) {
        if !pod.active || matches!(pod.do_not_disrupt(), DoNotDisrupt::Absent | DoNotDisrupt::Always) {
            continue;
        }
        let view = pod.node.map(|node| snapshot.node(node));
        // One that waits for a NodeClaim is on no node yet.
        if view.is_none_or(|view| !view.is_managed() || view.is_stand_in()) {
            continue;
        }
        let (kind, reason, message, value) = match pod.do_not_disrupt() {
            DoNotDisrupt::Absent | DoNotDisrupt::Always => continue,
            DoNotDisrupt::Invalid(error) => (
                EventType::Warning,
                "InvalidDoNotDisruptAnnotation",
                format!("Invalid karpenter.sh/do-not-disrupt annotation: {error}, ignoring annotation"),
                error.clone(),
            ),
            DoNotDisrupt::Until(end) if now < *end => (
                EventType::Normal,
                "DoNotDisruptUntil",
                format!("The karpenter.sh/do-not-disrupt grace period will elapse at {end}"),
                end.to_string(),
            ),
            DoNotDisrupt::Until(_) => (
                EventType::Normal,
                "DoNotDisruptGracePeriodElapsed",
                "The karpenter.sh/do-not-disrupt grace period has elapsed, pod is now disruptable".to_owned(),
                String::new(),
            ),
        };
        let meta = &pod.object.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let object = ObjectRef::namespaced(
            ObjectKind::Pod,
            &text(&meta.namespace),
            &text(&meta.name),
            pod.uid(),
        );
        let values = [pod.uid().to_owned(), value];
        events.push(Event::new(object, kind, reason, message).deduped_by(values));
    }
    events
}

fn find(snapshot: &Snapshot, command: &Command) -> Vec<NodeId> {
    let ids = command.nodes.iter().filter_map(|node| {
        snapshot
            .nodes
            .iter()
            .position(|view| view.provider_id == node.provider_id)
            .map(NodeId::from)
    });
    ids.collect()
}

/// `replace: [n] -> [1 replacement]`, or `replace: [n] (part of 3-node consolidation)`.
fn option_text(command: &Command, node: &str) -> String {
    let decision = command.decision().as_str();
    match (command.nodes.len(), command.replacements.len()) {
        (1, 0) => format!("{decision}: [{node}]"),
        (1, 1) => format!("{decision}: [{node}] -> [1 replacement]"),
        (1, count) => format!("{decision}: [{node}] -> [{count} replacements]"),
        (count, _) => format!("{decision}: [{node}] (part of {count}-node consolidation)"),
    }
}

/// D-151: for replace options only.
pub(super) fn candidates(snapshot: &Snapshot, command: &Command) -> Vec<Event> {
    if command.decision() != Decision::Replace {
        return Vec::new();
    }
    let savings = command.savings().to_cents_text();
    let events = find(snapshot, command).into_iter().flat_map(|node| {
        let text = option_text(command, &snapshot.node(node).name);
        let message = format!("Consolidation candidate: {text} (savings: ${savings})");
        objects(snapshot, node).into_iter().map(move |object| {
            let values = [object.uid.clone(), text.clone()];
            Event::new(
                object,
                EventType::Normal,
                "ConsolidationCandidate",
                message.clone(),
            )
            .deduped_by(values)
        })
    });
    events.collect()
}

/// D-093, W-41: on every node of the command, also of several.
pub(super) fn rejected(snapshot: &Snapshot, command: &Command, why: Rejection) -> Vec<Event> {
    let savings = command.savings().to_cents_text();
    let events = find(snapshot, command).into_iter().flat_map(|node| {
        let text = option_text(command, &snapshot.node(node).name);
        let message = format!(
            "Consolidation rejected: {text}, reason: {} (savings: ${savings})",
            why.as_str()
        );
        objects(snapshot, node).into_iter().map(move |object| {
            let values = [object.uid.clone(), text.clone(), why.as_str().to_owned()];
            Event::new(
                object,
                EventType::Normal,
                "ConsolidationRejected",
                message.clone(),
            )
            .deduped_by(values)
        })
    });
    events.collect()
}

/// D-178, W-40: told after validation, when it is certain. Single nodes: on Node and NodeClaim; sets: on each NodePool with policy `Balanced`.
pub(super) fn approved(snapshot: &Snapshot, command: &Command, scores: &[PoolScore]) -> Vec<Event> {
    let balanced = scores.iter().filter(|score| score.policy == "Balanced");
    let event = |object, score: &PoolScore| {
        Event::new(object, EventType::Normal, "ConsolidationApproved", score.text())
    };
    if command.method == Method::SingleNodeConsolidation {
        let nodes = find(snapshot, command);
        let events = balanced.flat_map(|score| {
            let objects = nodes.iter().flat_map(|node| objects(snapshot, *node));
            objects.map(|object| event(object, score)).collect::<Vec<_>>()
        });
        return events.collect();
    }
    let events = balanced.filter_map(|score| {
        let pool = snapshot.pool(snapshot.find_pool(&score.pool)?);
        let object = ObjectRef::cluster(ObjectKind::NodePool, &pool.name, &pool.uid);
        Some(event(object, score))
    });
    events.collect()
}

/// A fruitless pass is repeated after this time at the latest, whatever has or has not changed (D-123).
const REFRESH_SECONDS: i64 = 300;

/// Until when a fruitless pass stays fruitless if no object changes: the end of the first nomination, protection, back-off, wait for a round or window, and the
/// next minute where budgets have schedules. Five minutes at most, and then it is only a refresh. With it when the clock changes something, if it ever does.
pub(super) fn next_change(
    ground: &Ground<'_>,
    back_offs: &BTreeMap<String, BackOff>,
    rounds: impl Iterator<Item = Timestamp>,
) -> (Timestamp, Option<Timestamp>) {
    let (snapshot, now) = (ground.snapshot, ground.now);
    let register = &ground.register;
    let nominations = register.entries().filter_map(|(_, entry)| entry.nominated_until);
    let protections = register
        .restless(snapshot)
        .filter_map(|(_, pod)| match pod.do_not_disrupt() {
            DoNotDisrupt::Until(end) => Some(*end),
            _ => None,
        });
    let rests = back_offs.values().map(|back_off| back_off.until);
    let has_policies = !snapshot.disruption_policies.is_empty();
    let scheduled = has_policies
        || snapshot.pools.iter().any(|pool| {
            let budgets = pool.object.spec.disruption.budgets.iter().flatten();
            budgets.into_iter().any(|budget| budget.schedule.is_some())
        });
    let after = |seconds: i64| {
        now.checked_add(SignedDuration::from_secs(seconds))
            .unwrap_or(Timestamp::MAX)
    };
    let next_minute = after(60 - now.as_second().rem_euclid(60));
    // Windows of consolidateAfter end with a condition that changes an object, so a few seconds late is enough for them.
    let soon = (!ground.withheld.is_empty()).then(|| after(1));
    let times = nominations
        .chain(protections)
        .chain(rests)
        .chain(rounds)
        .filter(|time| *time > now);
    let change = times.chain(scheduled.then_some(next_minute)).chain(soon).min();
    let refresh = after(REFRESH_SECONDS);
    (change.map_or(refresh, |change| change.min(refresh)), change)
}
