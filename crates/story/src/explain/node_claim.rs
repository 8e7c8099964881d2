//! The story of a NodeClaim: its life-cycle steps with times, and what it waits for (P §9).

use jiff::Timestamp;
use spokeshave_api::conditions::{
    CONSISTENT_STATE_FOUND, Conditioned as _, INITIALIZED, LAUNCHED, REGISTERED,
};
use spokeshave_api::{NodeClaim, labels};

use super::facts::dollars;
use super::node::{expiry, verdict_story};
use super::{Facts, Step, StepState, Story, Wait, age, ending, whole};
use crate::expired::{goes, is_expired};
use crate::prices::cost;
use spokeshave_plan::disrupt::Verdict;
use spokeshave_plan::lifecycle::{Liveness, liveness};

/// The explanation of a NodeClaim. `verdict` is the verdict of disruption about its node, if requested.
pub fn node_claim(facts: &Facts<'_>, claim: &NodeClaim, verdict: Option<&Verdict>) -> Story {
    let mut story = Story::new("NodeClaim", claim.name());
    let nodes = facts.nodes_of(claim);
    let node = nodes.first().map(|node| &***node);
    identity(facts, claim, &mut story);
    if let Some(name) = node.and_then(|node| node.metadata.name.as_deref()) {
        story.fact("node", name);
    }
    if claim.is_deleting() {
        match node {
            Some(node) => ending::tell(facts, node, Some(claim), &mut story),
            None => ending_without_node(claim, facts.now, &mut story),
        }
        return story.sorted();
    }
    story.steps = steps(claim);
    story.waits = waits(claim);
    if let Some(condition) = claim
        .condition(CONSISTENT_STATE_FOUND)
        .filter(|condition| condition.status == "False")
    {
        story.fact("inconsistent", condition.message.clone());
    }
    let is_too_old = is_expired(facts.state, claim, facts.now);
    match liveness(claim, facts.now) {
        Liveness::Fine => {}
        Liveness::Within(left) => {
            let due = facts.now.saturating_add(left).unwrap_or(Timestamp::MAX);
            let what = if claim.is_true(LAUNCHED) {
                "registered"
            } else {
                "launched"
            };
            story.next(
                Some(due),
                format!("is deleted if it is not {what} by then; its pods are planned for again"),
            );
        }
        // Whoever led before may have been down, or have launched it without being able to say so. What is too old is not launched any more.
        Liveness::TimedOut(reason) if !claim.is_true(LAUNCHED) && !is_too_old => story.next(
            None,
            format!("is deleted now: {reason}; an operator that has just started tries to launch it for a minute before"),
        ),
        Liveness::TimedOut(reason) => story.next(None, format!("is deleted now: {reason}")),
    }
    expiry(facts, claim, &mut story);
    if let Some((command, replaces)) = facts.command_of(&[claim.name()]) {
        let role = if replaces { "was made by" } else { "goes by" };
        story.next(
            None,
            format!("{role} Disruption {}, phase {}", command.name, command.phase),
        );
    }
    too_many(facts, claim, &mut story);
    story.verdict = verdict.map(verdict_story);
    story.summary = summary(&story, facts.now);
    if is_too_old {
        story.summary = format!("{}; it {}", story.summary, goes(claim));
    }
    story.hints = hints(claim, node.and_then(|node| node.metadata.name.as_deref()));
    story.sorted()
}

/// That its NodePool has it too many.
pub(super) fn too_many(facts: &Facts<'_>, claim: &NodeClaim, story: &mut Story) {
    if let Some(pool) = facts.replicas.too_many(claim.name()) {
        story.next(None, pool.goes());
    }
}

fn identity(facts: &Facts<'_>, claim: &NodeClaim, story: &mut Story) {
    match claim.node_pool() {
        Some(pool) if facts.snapshot.find_pool(pool).is_none() => {
            story.fact("nodepool", format!("{pool}, which does not exist"));
        }
        Some(pool) => story.fact("nodepool", pool),
        None => story.fact("nodepool", "none: it was made by hand"),
    }
    let class = &claim.spec.node_class_ref;
    story.fact("nodeclass", format!("{} {}", class.kind, class.name));
    let machine = [labels::INSTANCE_TYPE, labels::CAPACITY_TYPE, labels::ZONE];
    let machine: Vec<&str> = machine.iter().filter_map(|key| claim.label(key)).collect();
    story.fact("machine", machine.join(", "));
    let view = facts
        .snapshot
        .find_node(claim.name())
        .map(|id| facts.snapshot.node(id));
    if let Some(Ok((price, how))) = view.map(|view| cost(facts.snapshot, view)) {
        story.price_per_hour = Some(price.dollars());
        story.fact("price", format!("{}{how}", dollars(price)));
    }
    if let Some(id) = claim.provider_id() {
        story.fact("instance", id);
    }
    if let Some(created) = &claim.metadata.creation_timestamp {
        story.fact("age", age(created.0, facts.now));
    }
}

/// Created, launched, registered, initialised.
fn steps(claim: &NodeClaim) -> Vec<Step> {
    let created = claim
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| whole(time.0));
    let mut steps = vec![Step {
        name: "created",
        state: StepState::Done,
        since: created,
        detail: String::new(),
    }];
    for (name, type_) in [
        ("launched", LAUNCHED),
        ("registered", REGISTERED),
        ("initialised", INITIALIZED),
    ] {
        let condition = claim.condition(type_);
        let state = match condition.map(|condition| condition.status.as_str()) {
            Some("True") => StepState::Done,
            Some("False") => StepState::Failed,
            _ => StepState::Waiting,
        };
        let detail = condition
            .filter(|condition| condition.status != "True" && condition.reason != "AwaitingReconciliation")
            .map(|condition| match condition.message.as_str() {
                "" => condition.reason.clone(),
                message if message == condition.reason => message.to_owned(),
                message => format!("{}: {message}", condition.reason),
            });
        steps.push(Step {
            name,
            state,
            since: condition.map(|condition| whole(condition.last_transition_time)),
            detail: detail.unwrap_or_default(),
        });
    }
    let open = steps
        .iter_mut()
        .find(|step| matches!(step.state, StepState::Waiting | StepState::Failed));
    if let Some(step) = open.filter(|step| step.state == StepState::Waiting) {
        step.state = StepState::Active;
    }
    steps
}

/// What the first open step waits for, from the conditions.
pub(super) fn waits(claim: &NodeClaim) -> Vec<Wait> {
    let open = [LAUNCHED, REGISTERED, INITIALIZED]
        .into_iter()
        .find(|type_| !claim.is_true(type_));
    let Some((type_, condition)) = open.and_then(|type_| Some((type_, claim.condition(type_)?))) else {
        return Vec::new();
    };
    let plain = match type_ {
        LAUNCHED => "the cloud to launch an instance",
        REGISTERED => "the instance to join as a Node",
        _ => "the Node to be Ready, without start-up taints, with everything that was asked for",
    };
    let message = match condition.message.as_str() {
        "" | "object is awaiting reconciliation" => plain.to_owned(),
        message => format!("{plain}: {message}"),
    };
    vec![Wait {
        object: format!("condition {type_}"),
        message,
        since: Some(whole(condition.last_transition_time)),
    }]
}

fn summary(story: &Story, now: Timestamp) -> String {
    let open = story
        .steps
        .iter()
        .find(|step| step.state == StepState::Active || step.state == StepState::Failed);
    match open {
        None => "is launched, registered and initialised".to_owned(),
        Some(step) => {
            let since = step
                .since
                .map(|since| format!(" for {}", age(since, now)))
                .unwrap_or_default();
            format!("is not {}{since}", step.name)
        }
    }
}

fn ending_without_node(claim: &NodeClaim, now: Timestamp, story: &mut Story) {
    let asked = claim
        .metadata
        .deletion_timestamp
        .as_ref()
        .map(|time| whole(time.0));
    let asked_cloud = claim.condition(spokeshave_api::conditions::INSTANCE_TERMINATING);
    let step = |name, state, since, detail: &str| Step {
        name,
        state,
        since,
        detail: detail.to_owned(),
    };
    let has_instance = claim.provider_id().is_some();
    let detail = if has_instance {
        "the cloud is asked until it no longer reports it"
    } else {
        "it never had one that is known; the cloud is asked by the claim's identity"
    };
    story.steps = vec![
        step("deletion asked for", StepState::Done, asked, ""),
        step("Node gone", StepState::Done, None, "there is none"),
        step(
            "instance gone",
            StepState::Active,
            asked_cloud.map(|condition| whole(condition.last_transition_time)),
            detail,
        ),
        step("finalizers removed", StepState::Waiting, None, ""),
    ];
    let since = asked
        .map(|since| format!(" for {}", age(since, now)))
        .unwrap_or_default();
    story.summary = format!("terminating{since}: it waits for the cloud to end its instance");
}

fn hints(claim: &NodeClaim, node: Option<&str>) -> Vec<String> {
    let mut hints = Vec::new();
    if let Some(node) = node {
        hints.push(format!("spokeshave explain node {node}"));
    }
    if claim
        .condition(LAUNCHED)
        .is_some_and(|condition| condition.status == "False" || condition.reason == "LaunchFailed")
    {
        hints.push(format!("kubectl describe nodeclaim {}", claim.name()));
        if let Some(pool) = claim.node_pool() {
            hints.push(format!("spokeshave explain nodepool {pool}"));
        }
    }
    hints
}
