//! The story of a Node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use spokeshave_api::conditions::{Conditioned as _, DRIFTED};
use spokeshave_api::{DisruptionReason, NodeClaim, labels};
use spokeshave_model::snapshot::{NodeId, NodeView};
use spokeshave_model::state_node::{is_cordoned, is_node_ready, is_protected};
use spokeshave_model::taint;

use super::facts::{dollars, pod_summary, requested, usage_text};
use super::node_claim::{too_many, waits};
use super::{BlockerLine, CommandFact, Facts, PodLine, Story, VerdictStory, age, ending, whole};
use crate::durations::short;
use crate::expired::{self, drain, is_expired};
use crate::prices::cost;
use spokeshave_plan::calendar::REASONS;
use spokeshave_plan::consolidatable::consolidatable;
use spokeshave_plan::disrupt::{Blocker, BlockerKind, Decision, Verdict};
use spokeshave_plan::disruption_policy::expiry::soft_of;
use spokeshave_plan::lifecycle::until_expiry;

/// The explanation of a node that decisions track. `verdict` is the verdict of disruption, if requested.
pub fn node(facts: &Facts<'_>, id: NodeId, verdict: Option<&Verdict>) -> Story {
    let view = facts.snapshot.node(id);
    let mut story = Story::new("Node", view.node_name().unwrap_or(&view.name));
    identity(facts, view, &mut story);
    let pods = view.present_pods().iter();
    let pods = pods.filter(|pod| !facts.snapshot.pod(**pod).promised);
    story.pods = pods.map(|pod| facts.meaning(*pod)).collect();
    story.fact("pods", pod_summary(&story.pods));
    let claim = view.claim.as_deref();
    if let Some(node) = view.node.as_deref()
        && ending::has_begun(node, claim)
    {
        ending::tell(facts, node, claim, &mut story);
        return story.sorted();
    }
    let command = facts.command_of(&[view.node_name().unwrap_or(""), view.claim_name().unwrap_or("")]);
    if let Some((command, replaces)) = command {
        under_way(command, replaces, &mut story);
    }
    let is_taken = command.is_some_and(|(_, replaces)| !replaces);
    if let Some(claim) = claim.filter(|_| !view.initialized && !is_taken) {
        starting(view, claim, &mut story);
        too_many(facts, claim, &mut story);
        if is_expired(facts.state, claim, facts.now) {
            let goes = expired::goes(claim);
            story.summary = format!("{}; it {goes}", story.summary);
            story.next(None, goes);
        }
        return story.sorted();
    }
    // What is under way needs no further permission, and no verdict says more than the command itself. Once a replacement has come, it is a node like others.
    let is_free = command.is_none_or(|(command, replaces)| replaces && has_come(command));
    let verdict = verdict.filter(|_| is_free);
    if let Some(verdict) = verdict {
        story.verdict = Some(verdict_story(verdict));
    }
    timers(facts, view, &mut story);
    if is_free {
        budgets(facts, view, verdict, &mut story);
    }
    story.summary = match command {
        None => summary(view, &story.pods, verdict),
        Some((_, false)) => "belongs to a disruption command that is being carried out".to_owned(),
        Some((command, true)) => {
            let own = is_free.then(|| summary(view, &story.pods, verdict) + "; ");
            format!(
                "{}{} (Disruption {}, phase {})",
                own.unwrap_or_default(),
                role(command, true),
                command.name,
                command.phase
            )
        }
    };
    story.hints = hints(view, verdict);
    story.sorted()
}

/// What a command does with a node, and how far it is.
fn under_way(command: &CommandFact, replaces: bool, story: &mut Story) {
    let decided = command
        .decided_at
        .map(|at| format!(" since {}", whole(at)))
        .unwrap_or_default();
    let message = match command.message.as_str() {
        "" => String::new(),
        message => format!(": {message}"),
    };
    story.next(
        None,
        format!(
            "it {} by Disruption {} ({}, {}), phase {}{decided}{message}",
            role(command, replaces),
            command.name,
            command.decision,
            command.reason,
            command.phase
        ),
    );
}

fn role(command: &CommandFact, replaces: bool) -> &'static str {
    match replaces {
        true if has_come(command) => "came instead of others",
        true => "comes instead of others",
        false => "goes",
    }
}

/// Whether all replacements of a command have come: it goes on for as long as the nodes drain that it is about.
fn has_come(command: &CommandFact) -> bool {
    !matches!(command.phase.as_str(), "Starting" | "Replacing")
}

/// A node that is not initialised is no candidate for anything: what it waits for is its story.
fn starting(view: &NodeView, claim: &NodeClaim, story: &mut Story) {
    let still = |taint: &&Taint| {
        let mut left = view.node.iter().flat_map(|node| node.spec.iter());
        left.any(|spec| {
            let mut taints = spec.taints.iter().flatten();
            taints.any(|known| known.key == taint.key && known.effect == taint.effect)
        })
    };
    let taints: Vec<String> = claim
        .spec
        .startup_taints
        .iter()
        .filter(still)
        .map(taint::format_taint)
        .collect();
    story.waits = waits(claim);
    story.summary = match taints.as_slice() {
        [] => "is starting: it is not initialised yet".to_owned(),
        taints => format!(
            "is starting: it waits until {} is taken off, which its owner has to do",
            taints.join(", ")
        ),
    };
    if let Some(name) = view.claim_name() {
        story.hints.push(format!("spokeshave explain nodeclaim {name}"));
    }
}

/// The story of a Node that decisions do not see: a managed one without provider ID, or without instance type before it is initialised (P-141).
pub fn untracked_node(facts: &Facts<'_>, name: &str) -> Story {
    let mut story = Story::new("Node", name);
    let Some(node) = facts.find_node(name) else {
        story.summary = "is not there".to_owned();
        return story;
    };
    if let Some(created) = &node.metadata.creation_timestamp {
        story.fact("age", age(created.0, facts.now));
    }
    let pool = node
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(labels::NODE_POOL));
    story.fact("nodepool", pool.cloned().unwrap_or_default());
    let claim = facts.claim_of(node).map(|claim| &**claim);
    if ending::has_begun(node, claim) {
        ending::tell(facts, node, claim, &mut story);
        return story.sorted();
    }
    story.summary = "is not taken into account: it has no provider ID or no instance type yet".to_owned();
    story
}

fn identity(facts: &Facts<'_>, view: &NodeView, story: &mut Story) {
    let label = |key: &str| view.labels.get(key).cloned().unwrap_or_default();
    if let Some(claim) = view.claim_name() {
        story.fact("nodeclaim", claim);
    }
    match (&view.pool_name, view.pool) {
        (Some(name), None) => story.fact("nodepool", format!("{name}, which does not exist")),
        (Some(name), Some(_)) => story.fact("nodepool", name.as_str()),
        (None, _) => {}
    }
    let machine = [
        label(labels::INSTANCE_TYPE),
        label(labels::CAPACITY_TYPE),
        label(labels::ZONE),
        label(labels::ARCH),
    ];
    let machine: Vec<String> = machine.into_iter().filter(|part| !part.is_empty()).collect();
    story.fact("machine", machine.join(", "));
    match cost(facts.snapshot, view) {
        Ok((price, how)) => {
            story.price_per_hour = Some(price.dollars());
            story.fact("price", format!("{}{how}", dollars(price)));
        }
        Err(why) if view.is_managed() => story.fact("price", why),
        Err(_) => {}
    }
    if let Some(created) = created(view) {
        story.fact("age", age(created, facts.now));
    }
    story.fact("state", state(view));
    story.fact(
        "requested",
        usage_text(&requested(facts.snapshot, view), &view.allocatable_resources),
    );
    let taints: Vec<String> = view.taints.iter().map(taint::format_taint).collect();
    story.fact("taints", taints.join(", "));
    if is_protected(view) {
        story.fact("annotation", "karpenter.sh/do-not-disrupt: \"true\" on the Node");
    }
    let claim = view.claim.as_ref();
    if let Some(condition) = claim.and_then(|claim| claim.true_condition(DRIFTED)) {
        story.fact(
            "drifted",
            format!(
                "{}, since {}",
                condition.reason,
                whole(condition.last_transition_time)
            ),
        );
    }
}

fn created(view: &NodeView) -> Option<Timestamp> {
    let of_node = view
        .node
        .as_ref()
        .and_then(|node| node.metadata.creation_timestamp.as_ref());
    let of_claim = view
        .claim
        .as_ref()
        .and_then(|claim| claim.metadata.creation_timestamp.as_ref());
    of_node.or(of_claim).map(|time| time.0)
}

fn state(view: &NodeView) -> String {
    let ready = match view.node.as_deref() {
        None => "no Node yet",
        Some(node) if is_node_ready(node) => "Ready",
        Some(_) => "not Ready",
    };
    let cordoned = view.node.as_deref().is_some_and(is_cordoned);
    let mut parts = vec![ready];
    if !view.is_managed() {
        parts.push("not managed: it has no NodeClaim");
    } else if !view.registered {
        parts.push("not registered");
    } else if !view.initialized {
        parts.push("not initialised");
    } else {
        parts.push("initialised");
    }
    if cordoned {
        parts.push("cordoned");
    }
    parts.join(", ")
}

pub(super) fn verdict_story(verdict: &Verdict) -> VerdictStory {
    let line = |blocker: &Blocker| BlockerLine {
        kind: blocker.kind.to_string(),
        object: blocker.object.to_string(),
        message: blocker.message.clone(),
    };
    VerdictStory {
        decision: verdict.decision_text(),
        method: verdict.method.map(|method| format!("{method:?}")),
        replacement: verdict.replacement.clone(),
        price_before: verdict.price_before.dollars(),
        price_after: verdict.price_after.dollars(),
        by_on_demand: (verdict.by_on_demand && verdict.decision == Decision::Replace)
            .then(|| verdict.saving_text()),
        blockers: verdict.blockers.iter().map(line).collect(),
        waits: verdict.waits.clone(),
        if_removed: verdict.if_removed_text(),
    }
}

fn summary(view: &NodeView, pods: &[PodLine], verdict: Option<&Verdict>) -> String {
    let Some(verdict) = verdict else {
        return match &view.pool_name {
            _ if view.is_managed() => "runs".to_owned(),
            // A dump without NodeClaims looks the same.
            Some(pool) => format!("has the label of NodePool {pool} and no NodeClaim: taken as not managed"),
            None => "is not managed: nothing is ever done to it".to_owned(),
        };
    };
    let money = verdict.saving_text();
    let waits = verdict.waits.as_ref().map(|waits| format!("; {waits}"));
    let waits = waits.unwrap_or_default();
    match (verdict.decision_text(), &verdict.waits) {
        ("delete", _) => format!("would be deleted: {money}{waits}"),
        ("replace", _) => {
            let by = verdict.replacement.as_deref().unwrap_or("another node");
            format!("would be replaced by {by}: {money}{waits}")
        }
        // What keeps it from a command keeps it from nothing: its age and a fixed number of nodes ask nobody.
        (_, Some(goes)) => goes.clone(),
        (_, None) => match verdict.blockers.as_slice() {
            [] => match pods.iter().find(|pod| pod.blocks) {
                Some(pod) => format!("stays because of Pod {}", pod.pod),
                None => "stays".to_owned(),
            },
            [only] => because(only),
            [first, rest @ ..] => format!("{} and {} more", because(first), rest.len()),
        },
    }
}

/// A blocker is an object that a user can change, or a state that is described in text.
fn because(blocker: &Blocker) -> String {
    match blocker.kind {
        BlockerKind::Neighbours => format!("stays because {}", blocker.message),
        BlockerKind::NotCheaper => "stays because nothing cheaper could take its pods".to_owned(),
        BlockerKind::ConsolidateAfter => "stays until consolidateAfter has passed".to_owned(),
        // Its object is the NodePool that the policy selects.
        BlockerKind::DisruptionPolicy => match rule(blocker) {
            Some(rule) => format!("stays because of {rule}"),
            None => format!("stays: {}", blocker.message),
        },
        BlockerKind::UnknownInstanceType if blocker.object.kind == "NodePool" => format!(
            "stays as far as can be told: {} {}",
            blocker.object, blocker.message
        ),
        _ if blocker.object.kind == "Node" || blocker.object.kind == "NodeClaim" => {
            format!("stays: {}", blocker.message)
        }
        _ => format!("stays because of {}", blocker.object),
    }
}

/// `DisruptionPolicy calm (spec.rollout)`, of what such a rule says.
fn rule(blocker: &Blocker) -> Option<&str> {
    let rule = blocker.message.split_once(": ");
    rule.map(|(rule, _)| rule)
}

/// What `spokeshave freeze` writes, and `spokeshave thaw` removes.
const FREEZE: &str = "DisruptionPolicy freeze (spec.freeze)";

/// Scheduled events: consolidateAfter, expiry, the ends of protections.
fn timers(facts: &Facts<'_>, view: &NodeView, story: &mut Story) {
    let Some(claim) = view.claim.as_deref() else {
        return;
    };
    let pool = view.pool.map(|pool| &*facts.snapshot.pool(pool).object);
    if let Some(pool) = pool
        && let (_, Some(left)) = consolidatable(claim, Some(pool), facts.now)
    {
        let due = facts.now.saturating_add(left).unwrap_or(Timestamp::MAX);
        let what = format!(
            "consolidateAfter {} has passed since the last pod came or went: it may be consolidated",
            short(&pool.spec.disruption.consolidate_after)
        );
        story.next(Some(due), what);
    }
    expiry(facts, claim, story);
    for pod in view.present_pods() {
        let pod = facts.snapshot.pod(*pod);
        if pod.promised {
            let what = format!(
                "Pod {} is bound, for which kube-scheduler has nominated it",
                pod.key()
            );
            story.next(None, what);
            continue;
        }
        if let spokeshave_model::pod::DoNotDisrupt::Until(end) = pod.do_not_disrupt()
            && pod.active
            && *end > facts.now
        {
            story.next(Some(*end), format!("do-not-disrupt of Pod {} ends", pod.key()));
        }
    }
    if let Some(until) = view.nominated_until.filter(|until| *until > facts.now) {
        story.next(Some(until), "is no longer kept for a pending pod");
    }
}

pub(super) fn expiry(facts: &Facts<'_>, claim: &NodeClaim, story: &mut Story) {
    soft_age(facts, claim, story);
    let Some(left) = until_expiry(claim, facts.now) else {
        return;
    };
    let due = facts.now.saturating_add(left).unwrap_or(Timestamp::MAX);
    let passed = if left.is_zero() { " has passed" } else { "" };
    let view = facts.snapshot.find_node(claim.name());
    let drain = view.and_then(|id| drain(facts.snapshot, facts.snapshot.node(id), facts.now, due));
    let drain = drain.map(|drain| format!("; {drain}")).unwrap_or_default();
    let what = format!(
        "expireAfter {}{passed}: it is deleted whatever the budgets say{drain}",
        short(&claim.spec.expire_after)
    );
    story.next(Some(due), what);
}

/// When a DisruptionPolicy lets it go for its age.
fn soft_age(facts: &Facts<'_>, claim: &NodeClaim, story: &mut Story) {
    let pool = claim.node_pool().and_then(|pool| facts.snapshot.find_pool(pool));
    let Some(pool) = pool.map(|pool| facts.snapshot.pool(pool)) else {
        return;
    };
    let labels = pool.object.metadata.labels.clone().unwrap_or_default();
    let policies = facts.snapshot.disruption_policies.iter().map(|policy| &**policy);
    let Some(soft) = soft_of(policies, &pool.name, &labels, claim) else {
        return;
    };
    let what = if soft.due > facts.now {
        "is old enough to be replaced inside budgets and windows"
    } else {
        "is old enough to be replaced, and waits for budgets and windows"
    };
    story.next(
        Some(soft.due),
        format!("{what} (DisruptionPolicy {}, expiry)", soft.policy),
    );
}

/// The budgets that matter for this node: those of the reason it would go for, else of all.
fn budgets(facts: &Facts<'_>, view: &NodeView, verdict: Option<&Verdict>, story: &mut Story) {
    let Some(pool) = view.pool.filter(|_| view.is_managed()) else {
        return;
    };
    let method = verdict.and_then(|verdict| {
        verdict
            .method
            .or(verdict.if_removed.as_ref().map(|then| then.method))
    });
    let reasons: Vec<DisruptionReason> = match method {
        Some(method) => vec![method.reason()],
        None => REASONS.to_vec(),
    };
    story.fact("budgets", facts.budget_summary(pool, &reasons, "nodes at once"));
    facts.openings(pool, &reasons, story);
}

fn hints(view: &NodeView, verdict: Option<&Verdict>) -> Vec<String> {
    let mut hints = Vec::new();
    for blocker in verdict.iter().flat_map(|verdict| &verdict.blockers) {
        let name = &blocker.object.name;
        let namespace = &blocker.object.namespace;
        let hint = match blocker.kind {
            BlockerKind::PodDoNotDisrupt => {
                format!("kubectl annotate pod -n {namespace} {name} karpenter.sh/do-not-disrupt-")
            }
            BlockerKind::NodeDoNotDisrupt => {
                format!("kubectl annotate node {name} karpenter.sh/do-not-disrupt-")
            }
            BlockerKind::PodDisruptionBudget => format!("kubectl describe pdb -n {namespace} {name}"),
            BlockerKind::Budget => format!("spokeshave budgets {name}"),
            BlockerKind::DisruptionPolicy if rule(blocker) == Some(FREEZE) => "spokeshave thaw".to_owned(),
            BlockerKind::DisruptionPolicy => "kubectl get disruptionpolicies".to_owned(),
            BlockerKind::Limits => format!("spokeshave explain nodepool {name}"),
            BlockerKind::UnknownInstanceType if blocker.object.kind == "NodePool" => {
                format!("spokeshave explain nodepool {name}")
            }
            BlockerKind::Pod => format!("spokeshave explain pod -n {namespace} {name}"),
            _ => continue,
        };
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    if let Some(pool) = &view.pool_name
        && view.pool.is_none()
    {
        hints.push(format!(
            "NodePool {pool} is gone; kubectl delete node {} drains it",
            view.name
        ));
    }
    hints
}
