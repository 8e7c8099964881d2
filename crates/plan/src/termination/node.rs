//! The end of a Node, step by step: taint, drain, volumes, instance, finalizer (D §8.3).
//!
//! Owns what comes next and for how long a drain can be left alone. Which pods go is another's (`pods`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, DRAINED, Status, VOLUMES_DETACHED};
use spokeshave_api::constants::{MINIMUM_DRAIN, STUCK_TERMINATING_AFTER};
use spokeshave_api::labels;
use spokeshave_model::Pod;
use spokeshave_model::pod::{self, is_terminal, is_terminating, is_waited_for_in_drain};
use spokeshave_model::state_node::is_node_ready;
use spokeshave_model::taint::same_taint;
use spokeshave_model::{Action, Event, EventType, ObjectRef, Plan, Subresource};

use super::pods::{delete_after, is_due_for_delete, to_evict};
use super::{LONGEST_PAUSE, POLL, deadline, deadline_event};
use crate::lifecycle::{claim_ref, node_ref};

/// Everything about a Node that is being deleted.
#[derive(Clone, Debug)]
pub struct NodeEnd<'a> {
    /// The Node.
    pub node: &'a Node,
    /// Its NodeClaim by provider ID; none when there is none or more than one (D-307).
    pub claim: Option<&'a NodeClaim>,
    /// The pods on it.
    pub pods: &'a [Arc<Pod>],
    /// Attachments to it.
    pub attachments: &'a [Arc<VolumeAttachment>],
    /// Names of persistent volumes that pods use which are not drained.
    pub kept_volumes: &'a BTreeSet<String>,
}

/// What a Node needs next (D §8.3).
#[derive(Clone, Debug, PartialEq)]
pub enum NodeNext {
    /// Another look after this time, or when something changes.
    Wait(Duration),
    /// Ask the cloud to end the instance; with "not found" go on to `Release`.
    TerminateInstance,
    /// Nothing holds it any more.
    Release,
}

/// What one look at a Node that is being deleted comes to, besides events and writes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStep {
    /// Pods to hand to the eviction queue.
    pub evict: Vec<ObjectRef>,
    /// With the look that begins the termination: how many pods are to be evicted.
    pub begins: Option<usize>,
    /// Whether the drain ended with this look (D-315).
    pub drained: bool,
    /// What comes next.
    pub next: NodeNext,
}

fn wait(duration: Duration) -> Plan<NodeStep> {
    Plan::of(NodeStep {
        evict: Vec::new(),
        begins: None,
        drained: false,
        next: NodeNext::Wait(duration),
    })
}

/// The instance that the cloud is to be asked for, whether it still exists (D-309): that of a Node that is not Ready, also where its NodeClaim is gone. One whose
/// NodeClaim stays is not on its way out yet.
#[must_use]
pub fn asked_for<'a>(end: &NodeEnd<'a>) -> Option<&'a str> {
    let id = match end.claim {
        Some(claim) => claim.provider_id().filter(|_| claim.is_deleting()),
        None => end.node.spec.as_ref()?.provider_id.as_deref(),
    };
    id.filter(|id| !id.is_empty() && !is_node_ready(end.node))
}

/// The next step of a Node that is being deleted.
///
/// # Errors
/// The deadline annotation cannot be read (D-303).
pub fn node_step(end: &NodeEnd<'_>, now: Timestamp) -> Result<Plan<NodeStep>, String> {
    if let Some(claim) = end.claim
        && !claim.is_deleting()
    {
        let mut plan = wait(POLL);
        plan.actions.push(Action::delete(claim_ref(claim)));
        return Ok(plan);
    }
    if let Some(patch) = taint_patch(end.node) {
        let mut plan = wait(Duration::ZERO);
        plan.actions.push(patch);
        let waited = end.pods.iter().filter(|pod| is_waited_for_in_drain(pod, now));
        plan.report.begins = Some(waited.count());
        return Ok(plan);
    }
    let deadline = end.claim.map(deadline).transpose()?.flatten();
    let mut plan = wait(POLL);
    plan.events.extend(stuck_events(end.node, end.pods, now));
    if let Some(deadline) = deadline {
        plan.events.push(deadline_event(node_ref(end.node), deadline));
    }
    let mut claim_after = end.claim.cloned();
    drain(end, deadline, &mut claim_after, &mut plan, now);
    if let (Some(before), Some(after)) = (end.claim, &claim_after) {
        plan.actions.extend(Action::patch(
            claim_ref(before),
            Subresource::Status,
            before,
            after,
            true,
        ));
    }
    Ok(plan)
}

/// D-310: the taint and the label that keep pods and load balancers away.
fn taint_patch(node: &Node) -> Option<Action> {
    let wanted = labels::disrupted_taint();
    let mut after = node.clone();
    let taints = after.spec.get_or_insert_default().taints.get_or_insert_default();
    if !taints.iter().any(|taint| same_taint(taint, &wanted)) {
        taints.retain(|taint| taint.key != wanted.key);
        taints.push(wanted);
    }
    let map = after.metadata.labels.get_or_insert_default();
    map.insert(
        labels::EXCLUDE_FROM_EXTERNAL_LOAD_BALANCERS.to_owned(),
        "karpenter".to_owned(),
    );
    Action::patch(node_ref(node), Subresource::Main, node, &after, true)
}

fn drain(
    end: &NodeEnd<'_>,
    deadline: Option<Timestamp>,
    claim: &mut Option<NodeClaim>,
    plan: &mut Plan<NodeStep>,
    now: Timestamp,
) {
    let drained_before = claim.as_ref().is_some_and(|claim| claim.is_true(DRAINED));
    let waited: Vec<&Arc<Pod>> = end
        .pods
        .iter()
        .filter(|pod| is_waited_for_in_drain(pod, now))
        .collect();
    if !waited.is_empty() {
        if let Some(claim) = claim {
            claim.set(DRAINED, Status::Unknown, "Draining", "Draining", now);
        }
        let message = format!(
            "Failed to drain node, {} pods are waiting to be evicted",
            waited.len()
        );
        let event = Event::new(node_ref(end.node), EventType::Warning, "FailedDraining", message);
        let name = event.object.name.clone();
        plan.events.push(event.deduped_by([name]));
        plan.report.evict = to_evict(&waited, deadline, now);
        plan.report.next = NodeNext::Wait(pause(&waited, deadline, now));
        return;
    }
    // D-312: a short drain still lasts long enough to catch pods that the scheduler binds meanwhile.
    if let Some(claim) = claim
        && !drained_before
    {
        claim.set(DRAINED, Status::Unknown, "Draining", "Draining", now);
        let since = claim
            .condition(DRAINED)
            .map_or(now, |condition| condition.last_transition_time);
        let passed = Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO);
        if passed < MINIMUM_DRAIN {
            plan.report.next = NodeNext::Wait(MINIMUM_DRAIN - passed);
            return;
        }
        claim.set_true(DRAINED, now);
        plan.report.drained = true;
    }
    if volumes_hold(end, deadline, claim, plan, now) {
        return;
    }
    plan.report.next = if end.claim.is_some() {
        NodeNext::TerminateInstance
    } else {
        NodeNext::Release
    };
}

/// D-342: the attachments that are waited for.
#[must_use]
pub fn blocking_attachments<'a>(end: &NodeEnd<'a>) -> Vec<&'a VolumeAttachment> {
    let waits = |attachment: &&Arc<VolumeAttachment>| {
        let volume = attachment.spec.source.persistent_volume_name.as_ref();
        volume.is_some_and(|volume| !end.kept_volumes.contains(volume))
    };
    end.attachments
        .iter()
        .filter(waits)
        .map(|attachment| &**attachment)
        .collect()
}

/// D §8.6. Returns whether the wait goes on.
fn volumes_hold(
    end: &NodeEnd<'_>,
    deadline: Option<Timestamp>,
    claim: &mut Option<NodeClaim>,
    plan: &mut Plan<NodeStep>,
    now: Timestamp,
) -> bool {
    let blocking: Vec<String> = blocking_attachments(end)
        .iter()
        .filter_map(|attachment| attachment.metadata.name.clone())
        .collect();
    if blocking.is_empty() {
        if let Some(claim) = claim {
            claim.set_true(VOLUMES_DETACHED, now);
        }
        return false;
    }
    if deadline.is_some_and(|deadline| now > deadline) {
        if let Some(claim) = claim {
            let reason = "TerminationGracePeriodElapsed";
            claim.set(VOLUMES_DETACHED, Status::False, reason, reason, now);
        }
        return false;
    }
    if let Some(claim) = claim {
        claim.set(
            VOLUMES_DETACHED,
            Status::Unknown,
            "AwaitingVolumeDetachment",
            "AwaitingVolumeDetachment",
            now,
        );
    }
    let names = crate::report::first_few(&blocking, 5);
    let message = format!("Awaiting deletion of bound volumeattachments ({names})");
    let event = Event::new(
        node_ref(end.node),
        EventType::Normal,
        "AwaitingVolumeDetachment",
        message,
    );
    let name = event.object.name.clone();
    plan.events.push(event.deduped_by([name]));
    let until = deadline.map_or(LONGEST_PAUSE, |deadline| until(deadline, now));
    plan.report.next = NodeNext::Wait(until.min(LONGEST_PAUSE));
    true
}

/// Time until just after an instant; the comparisons with deadlines are strict.
fn until(instant: Timestamp, now: Timestamp) -> Duration {
    let left = Duration::try_from(instant.duration_since(now)).unwrap_or(Duration::ZERO);
    left.saturating_add(Duration::from_millis(1))
}

/// How long a drain can be left alone: until the clock alone makes a difference to one of its pods.
fn pause(waited: &[&Arc<Pod>], deadline: Option<Timestamp>, now: Timestamp) -> Duration {
    let mut pause = LONGEST_PAUSE;
    for pod in waited {
        if is_due_for_delete(pod, deadline, now) {
            return POLL;
        }
        let protected_until = match pod::DoNotDisrupt::of(pod) {
            pod::DoNotDisrupt::Until(end) => Some(end),
            _ => None,
        };
        let stuck = pod.metadata.deletion_timestamp.as_ref().and_then(|time| {
            let limit = SignedDuration::try_from(STUCK_TERMINATING_AFTER).ok()?;
            // Stuck is whoever is a whole second over.
            time.0
                .saturating_add(limit)
                .and_then(|time| time.saturating_add(SignedDuration::from_secs(1)))
                .ok()
        });
        let instants = [delete_after(pod, deadline), protected_until, stuck];
        for instant in instants.into_iter().flatten().filter(|instant| *instant >= now) {
            pause = pause.min(until(instant, now));
        }
    }
    pause
}

/// D-319: pods that are past their end and no longer waited for; somebody should know.
#[must_use]
pub fn stuck_events(node: &Node, pods: &[Arc<Pod>], now: Timestamp) -> Vec<Event> {
    let stuck = pods.iter().filter(|pod| {
        is_terminating(pod)
            && !is_terminal(pod)
            && !pod::is_drainable(pod, now)
            && !pod::tolerates_disrupted_taint(pod)
            && !pod::is_mirror(pod)
    });
    let event = |pod: &Arc<Pod>| {
        let key = pod::key(pod);
        let message = format!(
            "Pod {key} is over a minute past its end and still there; the drain no longer waits for it"
        );
        let node = node_ref(node);
        let values = [node.uid.clone(), key];
        Event::new(node, EventType::Warning, "PodStuckTerminating", message).deduped_by(values)
    };
    stuck.map(event).collect()
}
