//! The progress of the termination of a Node and its NodeClaim, step by step (D §8).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::{
    Conditioned as _, DISRUPTION_REASON, DRAINED, INSTANCE_TERMINATING, TERMINATION_BLOCKED, VOLUMES_DETACHED,
};
use spokeshave_api::labels::{self, TERMINATION_FINALIZER};
use spokeshave_api::{Condition, NodeClaim};
use spokeshave_model::Pod;
use spokeshave_model::pod::{
    DoNotDisrupt, is_daemon, is_evictable, is_terminating, is_waited_for_in_drain, key,
};
use spokeshave_model::taint::same_taint;
use std::sync::Arc;

use super::{Facts, Step, StepState, Story, Wait, age, count, whole};
use spokeshave_plan::termination::{deadline, delete_after};

const TIERS: [&str; 4] = [
    "ordinary pods",
    "DaemonSet pods",
    "critical pods",
    "critical DaemonSet pods",
];

/// Whether a Node, or the NodeClaim behind it, is being deleted.
pub(super) fn has_begun(node: &Node, claim: Option<&NodeClaim>) -> bool {
    node.metadata.deletion_timestamp.is_some() || claim.is_some_and(NodeClaim::is_deleting)
}

/// Fills in steps, waits, what comes next and the summary.
pub(super) fn tell(facts: &Facts<'_>, node: &Node, claim: Option<&NodeClaim>, story: &mut Story) {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let pods = facts.pods_on(name);
    let waited: Vec<&Arc<Pod>> = pods
        .into_iter()
        .filter(|pod| is_waited_for_in_drain(pod, facts.now))
        .collect();
    let deadline = claim.map(deadline);
    let limit = match &deadline {
        Some(Ok(limit)) => *limit,
        _ => None,
    };
    story.steps = vec![
        asked(node, claim),
        tainted(node),
        drain(claim, &waited),
        volumes(facts, name, claim, &waited),
        instance(node, claim),
        finalizers(node, claim),
    ];
    activate(&mut story.steps);
    if waited.is_empty() {
        story.waits = volume_waits(facts, name, claim);
    } else {
        story.waits = pod_waits(facts, &waited, limit);
    }
    if let Some(condition) = condition(claim, TERMINATION_BLOCKED) {
        told_by_controllers(condition, story);
    }
    match deadline {
        Some(Err(error)) => story.next(None, format!("nothing: {error}")),
        Some(Ok(Some(limit))) => {
            let has_grace = claim.is_some_and(|claim| claim.spec.termination_grace_period.is_some());
            let whose = match has_grace {
                true => "",
                false => " by interruption, repair or hand, as there is no terminationGracePeriod",
            };
            let what = "pods still there are deleted, whatever PodDisruptionBudgets and do-not-disrupt say";
            story.next(Some(limit), format!("deadline{whose}: {what}"));
        }
        Some(Ok(None)) => story.next(
            None,
            "no deadline: there is no terminationGracePeriod, so it waits for as long as it takes",
        ),
        None => {}
    }
    story.summary = summary(story, facts.now);
    story.hints = hints(facts, &waited, name);
}

/// The condition of the controllers: it says since when the step is held up, and errors that objects do not show (of a cloud or a webhook).
fn told_by_controllers(condition: &Condition, story: &mut Story) {
    let since = whole(condition.last_transition_time);
    let known = story.waits.iter_mut().find(|wait| {
        let (_, name) = wait.object.split_once(' ').unwrap_or(("", &wait.object));
        condition
            .message
            .split([' ', ',', ':', '('])
            .any(|word| word == name)
    });
    match known {
        Some(wait) => wait.since = Some(since),
        None => story.waits.insert(
            0,
            Wait {
                object: condition.reason.clone(),
                message: condition.message.clone(),
                since: Some(since),
            },
        ),
    }
}

/// Commands for the longest-lasting blocker.
fn hints(facts: &Facts<'_>, waited: &[&Arc<Pod>], node: &str) -> Vec<String> {
    let mut hints = Vec::new();
    let first = waited.iter().map(|pod| tier(pod)).min().unwrap_or(0);
    for pod in waited
        .iter()
        .filter(|pod| tier(pod) == first && !is_terminating(pod))
    {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if DoNotDisrupt::of(pod).is_active(facts.now) {
            hints.push(format!(
                "kubectl annotate pod -n {namespace} {name} karpenter.sh/do-not-disrupt-"
            ));
            continue;
        }
        let id = facts
            .snapshot
            .pod_ids()
            .find(|id| facts.snapshot.pod(*id).key() == key(pod));
        for budget in id
            .map(|id| facts.snapshot.blocking_budgets(id, facts.now))
            .unwrap_or_default()
        {
            let budget = &facts.snapshot.budgets[budget.index()];
            hints.push(format!(
                "kubectl describe pdb -n {} {}",
                budget.namespace, budget.name
            ));
        }
    }
    if waited.is_empty() {
        let names = attachments(facts, node).filter_map(|attachment| attachment.metadata.name.as_deref());
        hints.extend(names.map(|name| format!("kubectl describe volumeattachment {name}")));
    }
    hints.dedup();
    hints.truncate(5);
    hints
}

fn done(name: &'static str, since: Option<Timestamp>, detail: impl Into<String>) -> Step {
    Step {
        name,
        state: StepState::Done,
        since: since.map(whole),
        detail: detail.into(),
    }
}

fn waiting(name: &'static str, since: Option<Timestamp>, detail: impl Into<String>) -> Step {
    Step {
        state: StepState::Waiting,
        ..done(name, since, detail)
    }
}

/// The first step that is not over is the one that is going on.
fn activate(steps: &mut [Step]) {
    if let Some(step) = steps.iter_mut().find(|step| step.state == StepState::Waiting) {
        step.state = StepState::Active;
    }
}

fn asked(node: &Node, claim: Option<&NodeClaim>) -> Step {
    let of_node = node.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let of_claim = claim.and_then(|claim| claim.metadata.deletion_timestamp.as_ref().map(|time| time.0));
    let since = [of_node, of_claim].into_iter().flatten().min();
    let reason = claim
        .and_then(|claim| claim.condition(DISRUPTION_REASON))
        .filter(|condition| condition.status == "True")
        .map(|condition| condition.reason.clone());
    // Who else asks leaves no word on the NodeClaim.
    let others = "by hand, expiry, interruption, repair or another controller";
    let detail = reason.unwrap_or_else(|| others.to_owned());
    done("deletion asked for", since, detail)
}

fn tainted(node: &Node) -> Step {
    let wanted = labels::disrupted_taint();
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    match taints.iter().find(|taint| same_taint(taint, &wanted)) {
        Some(taint) => done(
            "tainted",
            taint.time_added.as_ref().map(|time| time.0),
            "karpenter.sh/disrupted:NoSchedule",
        ),
        None => waiting(
            "tainted",
            None,
            "karpenter.sh/disrupted:NoSchedule is not there yet",
        ),
    }
}

fn condition<'a>(claim: Option<&'a NodeClaim>, type_: &str) -> Option<&'a Condition> {
    claim.and_then(|claim| claim.condition(type_))
}

/// D-320: the tiers go one after the other.
fn drain(claim: Option<&NodeClaim>, waited: &[&Arc<Pod>]) -> Step {
    let drained = condition(claim, DRAINED);
    let since = drained.map(|condition| condition.last_transition_time);
    if drained.is_some_and(|condition| condition.status == "True") {
        return done("drained", since, "");
    }
    let Some(first) = waited.iter().map(|pod| tier(pod)).min() else {
        return waiting("drained", since, "no pod is waited for");
    };
    let now = waited.iter().filter(|pod| tier(pod) == first).count();
    let later = match waited.len() - now {
        0 => String::new(),
        later => format!("; {} of later tiers after that", count(later, "pod")),
    };
    let detail = format!(
        "tier {} of 4, {}: {} to go{later}",
        first + 1,
        TIERS[first],
        count(now, "pod")
    );
    waiting("drained", since, detail)
}

fn tier(pod: &Pod) -> usize {
    let class = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.priority_class_name.as_deref());
    let critical = matches!(class, Some("system-cluster-critical" | "system-node-critical"));
    usize::from(is_daemon(pod)) + if critical { 2 } else { 0 }
}

fn volumes(facts: &Facts<'_>, node: &str, claim: Option<&NodeClaim>, waited: &[&Arc<Pod>]) -> Step {
    let known = condition(claim, VOLUMES_DETACHED);
    let since = known.map(|condition| condition.last_transition_time);
    match known.map(|condition| condition.status.as_str()) {
        Some("True") => done("volumes detached", since, ""),
        Some("False") => Step {
            state: StepState::Failed,
            ..done("volumes detached", since, "given up: the deadline has passed")
        },
        _ if !waited.is_empty() => waiting("volumes detached", None, "after the drain"),
        _ => {
            let attached = attachments(facts, node).count();
            let detail = match attached {
                0 => String::new(),
                attached => format!("{} still attached", count(attached, "volume")),
            };
            waiting("volumes detached", since, detail)
        }
    }
}

fn attachments<'a>(
    facts: &Facts<'a>,
    node: &'a str,
) -> impl Iterator<Item = &'a k8s_openapi::api::storage::v1::VolumeAttachment> {
    let here = move |attachment: &&Arc<k8s_openapi::api::storage::v1::VolumeAttachment>| {
        attachment.spec.node_name == node
    };
    facts
        .attachments
        .iter()
        .filter(here)
        .map(|attachment| &**attachment)
}

fn instance(node: &Node, claim: Option<&NodeClaim>) -> Step {
    let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
    let held = finalizers.iter().any(|one| one == TERMINATION_FINALIZER);
    if node.metadata.deletion_timestamp.is_some() && !held && !finalizers.is_empty() {
        // Our finalizer is removed last (D-316).
        return done("instance gone", None, "");
    }
    match condition(claim, INSTANCE_TERMINATING).filter(|condition| condition.status == "True") {
        Some(condition) => waiting(
            "instance gone",
            Some(condition.last_transition_time),
            "the cloud was asked to end it and still reports it",
        ),
        None => waiting("instance gone", None, ""),
    }
}

fn finalizers(node: &Node, claim: Option<&NodeClaim>) -> Step {
    let of = |finalizers: Option<&Vec<String>>| -> Vec<String> {
        let finalizers = finalizers.into_iter().flatten();
        finalizers
            .filter(|one| *one != TERMINATION_FINALIZER)
            .cloned()
            .collect()
    };
    let mut foreign = of(node.metadata.finalizers.as_ref());
    foreign.extend(of(claim.and_then(|claim| claim.metadata.finalizers.as_ref())));
    foreign.sort();
    foreign.dedup();
    let detail = match foreign.is_empty() {
        true => String::new(),
        false => format!("others hold it too: {}", foreign.join(", ")),
    };
    waiting("finalizers removed", None, detail)
}

fn pod_waits(facts: &Facts<'_>, waited: &[&Arc<Pod>], limit: Option<Timestamp>) -> Vec<Wait> {
    let first = waited.iter().map(|pod| tier(pod)).min().unwrap_or(0);
    let mut waits: Vec<(usize, bool, Wait)> = waited
        .iter()
        .map(|pod| {
            let turn = tier(pod) == first;
            let (stubborn, message) = pod_wait(facts, pod, turn, limit);
            let wait = Wait {
                object: format!("Pod {}", key(pod)),
                message,
                since: None,
            };
            (tier(pod), !stubborn, wait)
        })
        .collect();
    waits.sort_by(|left, right| (left.0, left.1, &left.2.object).cmp(&(right.0, right.1, &right.2.object)));
    waits.into_iter().map(|(_, _, wait)| wait).collect()
}

/// Why a pod still exists, and whether action is needed.
fn pod_wait(facts: &Facts<'_>, pod: &Pod, turn: bool, limit: Option<Timestamp>) -> (bool, String) {
    if is_terminating(pod) {
        return (false, facts.stopping(pod));
    }
    if !turn {
        return (false, "its tier has not come".to_owned());
    }
    let by = delete_after(pod, limit).filter(|at| *at > facts.now);
    let by = by
        .map(|at| format!("; is deleted after {}", whole(at)))
        .unwrap_or_default();
    let protection = DoNotDisrupt::of(pod);
    if protection.is_active(facts.now) {
        let until = match protection {
            DoNotDisrupt::Until(end) => format!(" until {}", whole(end)),
            _ => String::new(),
        };
        return (true, format!("karpenter.sh/do-not-disrupt{until}{by}"));
    }
    let id = facts.snapshot.pod_ids().find(|id| {
        let meta = &facts.snapshot.pod(*id).object.metadata;
        meta.name == pod.metadata.name && meta.namespace == pod.metadata.namespace
    });
    if let Some(line) = id.map(|id| facts.meaning(id)).filter(|line| line.blocks) {
        return (true, format!("{}{by}", line.message));
    }
    if is_evictable(pod, facts.now) {
        (false, format!("is to be evicted{by}"))
    } else {
        (false, format!("is not evicted{by}"))
    }
}

fn volume_waits(facts: &Facts<'_>, node: &str, claim: Option<&NodeClaim>) -> Vec<Wait> {
    if condition(claim, VOLUMES_DETACHED).is_some_and(|condition| condition.status != "Unknown") {
        return Vec::new();
    }
    let since = condition(claim, VOLUMES_DETACHED).map(|condition| whole(condition.last_transition_time));
    let wait = |attachment: &k8s_openapi::api::storage::v1::VolumeAttachment| Wait {
        object: format!(
            "VolumeAttachment {}",
            attachment.metadata.name.as_deref().unwrap_or_default()
        ),
        message: format!(
            "volume {} is still attached by {}",
            attachment
                .spec
                .source
                .persistent_volume_name
                .as_deref()
                .unwrap_or("(inline)"),
            attachment.spec.attacher
        ),
        since,
    };
    attachments(facts, node).map(wait).collect()
}

fn summary(story: &Story, now: Timestamp) -> String {
    let Some(active) = story.steps.iter().find(|step| step.state == StepState::Active) else {
        return "is on its way out".to_owned();
    };
    let begun = story.steps.first().and_then(|step| step.since);
    let begun = begun
        .map(|since| format!(" for {}", age(since, now)))
        .unwrap_or_default();
    let what = match active.name {
        "tainted" => "it is not tainted yet".to_owned(),
        "drained" => match story.waits.first() {
            Some(wait) => format!("the drain waits for {}", wait.object),
            None => "the drain is about to end".to_owned(),
        },
        "volumes detached" => match story.waits.first() {
            Some(wait) => format!("it waits for {}", wait.object),
            None => "it waits for its volumes".to_owned(),
        },
        "instance gone" => "it waits for the cloud to end its instance".to_owned(),
        _ if active.detail.is_empty() => "its finalizers are about to go".to_owned(),
        _ => format!("its finalizers: {}", active.detail),
    };
    format!("terminating{begun}: {what}")
}
