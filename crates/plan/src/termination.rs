//! The end of Nodes and NodeClaims (D §8, P §9.6), step by step, as functions of their objects and now.
//!
//! Owns the order of the steps, the tiers of the drain and the deadline rules. It never calls a cloud and never evicts: it says what to do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{
    Conditioned, DISRUPTION_REASON, DRAINED, INSTANCE_TERMINATING, REGISTERED, Status, VOLUMES_DETACHED,
};
use spokeshave_api::constants::{INSTANCE_TERMINATION_POLL, MINIMUM_DRAIN, STUCK_TERMINATING_AFTER};
use spokeshave_api::labels::{self, TERMINATION_FINALIZER};
use spokeshave_model::pod::{
    self, is_daemon, is_evictable, is_terminal, is_terminating, is_waited_for_in_drain,
};
use spokeshave_model::taint::same_taint;
use spokeshave_model::{Action, Event, EventType, ObjectKind, ObjectRef, Subresource};

use crate::lifecycle::{claim_ref, node_ref};

/// Pause between two looks while pods are past their deadline (D-340), and after writes whose result is to be seen.
const POLL: Duration = Duration::from_secs(1);
/// Longest pause between two looks: every change of a pod, an attachment or the Node itself brings one at once.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// When termination stops waiting (D-301…D-304).
///
/// # Errors
/// The annotation is not RFC 3339; the termination stalls until somebody mends it (D-303).
pub fn deadline(claim: &NodeClaim) -> Result<Option<Timestamp>, String> {
    let Some(text) = claim.annotation(labels::TERMINATION_TIMESTAMP) else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|error| {
        format!(
            "NodeClaim {}: annotation {} is {text:?}, which is not an RFC 3339 time ({error})",
            claim.name(),
            labels::TERMINATION_TIMESTAMP
        )
    })
}

/// When to ask the cloud again for an instance that is ending (D-314, D-348): soon at first, since some end at once, and every five seconds
/// when it takes longer.
#[must_use]
pub fn instance_poll(claim: &NodeClaim, now: Timestamp) -> Duration {
    let asked = claim.condition(INSTANCE_TERMINATING);
    let since = asked.map(|asked| now.duration_since(asked.last_transition_time));
    let since = since.and_then(|since| Duration::try_from(since).ok());
    since.unwrap_or_default().clamp(POLL, INSTANCE_TERMINATION_POLL)
}

fn deadline_event(object: ObjectRef, deadline: Timestamp) -> Event {
    let name = object.name.clone();
    let text = Timestamp::from_second(deadline.as_second()).unwrap_or(deadline);
    Event::new(
        object,
        EventType::Warning,
        "TerminationGracePeriodExpiring",
        format!("All pods will be deleted by {text}"),
    )
    .deduped_by([name])
}

/// What a deleting NodeClaim needs next (D §8.7).
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimStep {
    /// These writes, then another look.
    Write(Vec<Action>, Vec<Event>),
    /// Node events will wake us.
    WaitForNodes,
    /// Ask the cloud to end the instance; with "not found" go on to `RemoveFinalizer`.
    TerminateInstance,
    /// Nothing is left.
    RemoveFinalizer,
}

/// The next step of a NodeClaim that is being deleted; `nodes` are those with its provider ID.
#[must_use]
pub fn claim_step(claim: &NodeClaim, nodes: &[Arc<Node>]) -> ClaimStep {
    if let Some(step) = write_deadline(claim) {
        return step;
    }
    if claim.is_true(REGISTERED) && !nodes.is_empty() {
        let deletes: Vec<Action> = nodes
            .iter()
            .filter(|node| node.metadata.deletion_timestamp.is_none())
            .map(|node| Action::delete(node_ref(node)))
            .collect();
        return if deletes.is_empty() {
            ClaimStep::WaitForNodes
        } else {
            ClaimStep::Write(deletes, Vec::new())
        };
    }
    if claim.provider_id().is_some() {
        ClaimStep::TerminateInstance
    } else {
        ClaimStep::RemoveFinalizer
    }
}

/// D-301: deletion time + terminationGracePeriod, once.
fn write_deadline(claim: &NodeClaim) -> Option<ClaimStep> {
    let grace = claim.spec.termination_grace_period.as_ref()?;
    if claim.annotation(labels::TERMINATION_TIMESTAMP).is_some() {
        return None;
    }
    let deleted = claim.metadata.deletion_timestamp.as_ref()?.0;
    let deadline = deleted.saturating_add(grace.to_signed()).unwrap_or(deleted);
    let deadline = Timestamp::from_second(deadline.as_second()).unwrap_or(deadline);
    let mut after = claim.clone();
    after
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_string());
    let action = Action::patch(claim_ref(claim), Subresource::Main, claim, &after, true)?;
    Some(ClaimStep::Write(
        vec![action],
        vec![deadline_event(claim_ref(claim), deadline)],
    ))
}

/// The patch that records that the cloud was asked to end the instance (D-314, D-348).
#[must_use]
pub fn instance_terminating(claim: &NodeClaim, now: Timestamp) -> Option<Action> {
    let mut after = claim.clone();
    after.set_true(INSTANCE_TERMINATING, now);
    Action::patch(claim_ref(claim), Subresource::Status, claim, &after, true)
}

/// The patch that lets a NodeClaim go.
#[must_use]
pub fn release_claim(claim: &NodeClaim) -> Option<Action> {
    let mut after = claim.clone();
    after
        .metadata
        .finalizers
        .as_mut()?
        .retain(|one| one != TERMINATION_FINALIZER);
    Action::patch(claim_ref(claim), Subresource::Main, claim, &after, true)
}

/// The patch that lets a Node go.
#[must_use]
pub fn release_node(node: &Node) -> Option<Action> {
    let mut after = node.clone();
    after
        .metadata
        .finalizers
        .as_mut()?
        .retain(|one| one != TERMINATION_FINALIZER);
    Action::patch(node_ref(node), Subresource::Main, node, &after, true)
}

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

/// One look at a Node that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStep {
    /// Writes, in order.
    pub actions: Vec<Action>,
    /// Events to tell.
    pub events: Vec<Event>,
    /// Pods to hand to the eviction queue.
    pub evict: Vec<ObjectRef>,
    /// With the look that begins the termination: how many pods are to be evicted.
    pub begins: Option<usize>,
    /// Whether the drain ended with this look (D-315).
    pub drained: bool,
    /// What comes next.
    pub next: NodeNext,
}

impl NodeStep {
    fn wait(duration: Duration) -> Self {
        Self {
            actions: Vec::new(),
            events: Vec::new(),
            evict: Vec::new(),
            begins: None,
            drained: false,
            next: NodeNext::Wait(duration),
        }
    }
}

/// True when the cloud is to be asked whether the instance still exists (D-309).
#[must_use]
pub fn asks_for_instance(end: &NodeEnd<'_>) -> bool {
    end.claim.is_some() && !spokeshave_model::state_node::is_node_ready(end.node)
}

/// The next step of a Node that is being deleted.
///
/// # Errors
/// The deadline annotation cannot be read (D-303).
pub fn node_step(end: &NodeEnd<'_>, now: Timestamp) -> Result<NodeStep, String> {
    if let Some(claim) = end.claim
        && !claim.is_deleting()
    {
        let mut step = NodeStep::wait(POLL);
        step.actions.push(Action::delete(claim_ref(claim)));
        return Ok(step);
    }
    if let Some(patch) = taint_patch(end.node) {
        let mut step = NodeStep::wait(Duration::ZERO);
        step.actions.push(patch);
        let waited = end.pods.iter().filter(|pod| is_waited_for_in_drain(pod, now));
        step.begins = Some(waited.count());
        return Ok(step);
    }
    let deadline = end.claim.map(deadline).transpose()?.flatten();
    let mut step = NodeStep::wait(POLL);
    step.events.extend(stuck_events(end.node, end.pods, now));
    if let Some(deadline) = deadline {
        step.events.push(deadline_event(node_ref(end.node), deadline));
    }
    let mut claim_after = end.claim.cloned();
    drain(end, deadline, &mut claim_after, &mut step, now);
    if let (Some(before), Some(after)) = (end.claim, &claim_after) {
        step.actions.extend(Action::patch(
            claim_ref(before),
            Subresource::Status,
            before,
            after,
            true,
        ));
    }
    Ok(step)
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
    step: &mut NodeStep,
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
        step.events.push(event.deduped_by([name]));
        step.evict = to_evict(&waited, deadline, now);
        step.next = NodeNext::Wait(pause(&waited, deadline, now));
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
            step.next = NodeNext::Wait(MINIMUM_DRAIN - passed);
            return;
        }
        claim.set_true(DRAINED, now);
        step.drained = true;
    }
    if volumes_hold(end, deadline, claim, step, now) {
        return;
    }
    step.next = if end.claim.is_some() {
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
    step: &mut NodeStep,
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
    step.events.push(event.deduped_by([name]));
    let until = deadline.map_or(LONGEST_PAUSE, |deadline| until(deadline, now));
    step.next = NodeNext::Wait(until.min(LONGEST_PAUSE));
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

/// D-320: (1) non-critical, (2) non-critical daemons, (3) critical, (4) critical daemons.
pub(crate) fn tier(pod: &Pod) -> u8 {
    let class = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.priority_class_name.as_deref())
        .unwrap_or_default();
    let critical = matches!(class, "system-cluster-critical" | "system-node-critical");
    match (critical, is_daemon(pod)) {
        (false, false) => 1,
        (false, true) => 2,
        (true, false) => 3,
        (true, true) => 4,
    }
}

/// The pods of the first tier that is not empty, and of any tier those whose deadline has come (D-336).
fn to_evict(waited: &[&Arc<Pod>], deadline: Option<Timestamp>, now: Timestamp) -> Vec<ObjectRef> {
    let first = waited.iter().map(|pod| tier(pod)).min().unwrap_or(1);
    waited
        .iter()
        .filter(|pod| tier(pod) == first || is_due_for_delete(pod, deadline, now))
        .map(|pod| pod_ref(pod))
        .collect()
}

fn pod_ref(pod: &Pod) -> ObjectRef {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    ObjectRef::namespaced(
        ObjectKind::Pod,
        &text(&pod.metadata.namespace),
        &text(&pod.metadata.name),
        &text(&pod.metadata.uid),
    )
}

/// D-334: deleted instead of evicted when its own grace would reach beyond the deadline.
fn is_due_for_delete(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    delete_after(pod, deadline).is_some_and(|start| now > start)
}

/// D-334: the time after which a pod is deleted instead of evicted; none without a deadline, or when it will be gone by then.
#[must_use]
pub fn delete_after(pod: &Pod, deadline: Option<Timestamp>) -> Option<Timestamp> {
    let deadline = deadline?;
    if let Some(going) = &pod.metadata.deletion_timestamp {
        return (going.0 > deadline).then_some(Timestamp::MIN);
    }
    let grace = pod.spec.as_ref()?.termination_grace_period_seconds?;
    let start = deadline.saturating_sub(SignedDuration::from_secs(grace));
    Some(start.unwrap_or(Timestamp::MIN))
}

/// What the eviction queue does with a pod (D-328).
#[derive(Clone, Debug, PartialEq)]
pub enum EvictionStep {
    /// It is no longer to be evicted.
    Drop,
    /// It cannot be evicted now; look again later.
    Keep,
    /// Ask the Eviction API.
    Evict(Action),
    /// Delete it for the deadline's sake, and tell.
    Delete(Action, Event),
}

/// The next step of a pod in the eviction queue.
#[must_use]
pub fn eviction_step(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> EvictionStep {
    if is_due_for_delete(pod, deadline, now)
        && let Some(deadline) = deadline
    {
        let left = deadline.duration_since(now).as_secs().max(1);
        let grace = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds)
            .unwrap_or(0);
        let message = format!(
            "Deleting the pod to accommodate the terminationTime {} of the node. The pod was granted {left} seconds of grace-period of its {grace} terminationGracePeriodSeconds. This bypasses the PDB of the pod and the do-not-disrupt annotation.",
            go_time(deadline)
        );
        let action = Action::Delete {
            target: pod_ref(pod),
            grace_period_seconds: Some(left),
        };
        return EvictionStep::Delete(
            action,
            Event::new(pod_ref(pod), EventType::Normal, "Disrupted", message),
        );
    }
    if is_terminal(pod) || is_terminating(pod) {
        return EvictionStep::Drop;
    }
    if !is_evictable(pod, now) {
        return EvictionStep::Keep;
    }
    EvictionStep::Evict(Action::EvictPod {
        target: pod_ref(pod),
        grace_period_seconds: None,
    })
}

/// Go's default form of a time in UTC.
fn go_time(time: Timestamp) -> String {
    let zoned = time.to_zoned(jiff::tz::TimeZone::UTC);
    format!("{} +0000 UTC", zoned.strftime("%Y-%m-%d %H:%M:%S"))
}

/// D-332: why a pod is evicted, for its event and metric.
#[must_use]
pub fn eviction_reason(claim: Option<&NodeClaim>) -> String {
    match claim {
        None => String::new(),
        Some(claim) => match claim.condition(DISRUPTION_REASON) {
            Some(condition) if condition.status == "True" => condition.reason.clone(),
            _ => "Forceful Termination".to_owned(),
        },
    }
}

/// D-332: the event of an evicted pod.
#[must_use]
pub fn evicted_event(target: &ObjectRef, reason: &str) -> Event {
    let name = target.name.clone();
    Event::new(
        target.clone(),
        EventType::Normal,
        "Evicted",
        format!("Evicted pod: {reason}"),
    )
    .deduped_by([name])
}

/// D-331: the event of a refused eviction, on the Node.
#[must_use]
pub fn refused_event(node: ObjectRef, pod: &ObjectRef, several_budgets: bool) -> Event {
    let key = format!("{}/{}", pod.namespace, pod.name);
    let message = if several_budgets {
        format!("Failed to drain node, eviction does not support multiple PDBs (Pod={key})")
    } else {
        format!("Failed to drain node, evicting pod violates a PDB (Pod={key})")
    };
    let name = node.name.clone();
    Event::new(node, EventType::Warning, "FailedDraining", message).deduped_by([name])
}

/// D-330: the event of an eviction that failed for another reason than a budget, on the Node.
#[must_use]
pub fn rejected_event(node: ObjectRef, pod: &ObjectRef, code: u16, message: &str) -> Event {
    let key = format!("{}/{}", pod.namespace, pod.name);
    let message = format!("Failed to drain node, evicting pod {key} was answered {code}: {message}");
    let values = [node.name.clone(), key, code.to_string()];
    Event::new(node, EventType::Warning, "EvictionRejected", message).deduped_by(values)
}

/// Volumes of pods that the drain leaves alone (D-342), by the claims they use.
#[must_use]
pub fn claims_of_kept_pods(pods: &[Arc<Pod>], now: Timestamp) -> Vec<String> {
    pods.iter()
        .filter(|pod| !pod::is_drainable(pod, now))
        .flat_map(|pod| spokeshave_model::volumes::claim_keys(pod))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{PodSpec, Toleration};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
    use spokeshave_api::NodeClaimSpec;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    fn pod(name: &str, grace: i64) -> Pod {
        Pod {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("shop".to_owned()),
                uid: Some(format!("uid-{name}")),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                termination_grace_period_seconds: Some(grace),
                node_name: Some("n".to_owned()),
                ..PodSpec::default()
            }),
            status: None,
        }
    }

    fn critical(mut pod: Pod) -> Pod {
        pod.spec.as_mut().unwrap().priority_class_name = Some("system-node-critical".to_owned());
        pod
    }

    fn daemon(mut pod: Pod) -> Pod {
        pod.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "DaemonSet".to_owned(),
            ..OwnerReference::default()
        }]);
        pod
    }

    fn claim() -> NodeClaim {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.metadata.uid = Some("uid-c".to_owned());
        claim.metadata.deletion_timestamp = Some(Time(at("12:00:00")));
        claim.metadata.finalizers = Some(vec![TERMINATION_FINALIZER.to_owned()]);
        claim.status.get_or_insert_default().provider_id = Some("kwok://n".to_owned());
        claim
    }

    fn tainted_node() -> Node {
        let mut node = Node {
            metadata: ObjectMeta {
                name: Some("n".to_owned()),
                uid: Some("uid-n".to_owned()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        };
        node.spec.get_or_insert_default().taints = Some(vec![labels::disrupted_taint()]);
        node.metadata.labels = Some(
            [(
                labels::EXCLUDE_FROM_EXTERNAL_LOAD_BALANCERS.to_owned(),
                "karpenter".to_owned(),
            )]
            .into(),
        );
        node
    }

    fn step(node: &Node, claim: Option<&NodeClaim>, pods: &[Arc<Pod>], now: Timestamp) -> NodeStep {
        let end = NodeEnd {
            node,
            claim,
            pods,
            attachments: &[],
            kept_volumes: &BTreeSet::new(),
        };
        node_step(&end, now).unwrap()
    }

    #[test]
    fn d_301_p_170_the_deadline_is_written_once() {
        let mut claim = claim();
        claim.spec.termination_grace_period = Some("1h".parse().unwrap());
        let ClaimStep::Write(actions, events) = claim_step(&claim, &[]) else {
            panic!("a write")
        };
        let Action::Patch { patch, .. } = &actions[0] else {
            panic!("a patch")
        };
        assert_eq!(
            patch["metadata"]["annotations"][labels::TERMINATION_TIMESTAMP],
            "2026-01-01T13:00:00Z"
        );
        assert_eq!(
            events[0].message,
            "All pods will be deleted by 2026-01-01T13:00:00Z"
        );
        claim.metadata.annotations = Some(
            [(
                labels::TERMINATION_TIMESTAMP.to_owned(),
                "2026-01-01T12:30:00Z".to_owned(),
            )]
            .into(),
        );
        assert_eq!(
            claim_step(&claim, &[]),
            ClaimStep::TerminateInstance,
            "an existing value is never changed"
        );
    }

    #[test]
    fn d_303_an_unreadable_deadline_stalls_with_a_clear_error() {
        let mut claim = claim();
        claim.metadata.annotations =
            Some([(labels::TERMINATION_TIMESTAMP.to_owned(), "soon".to_owned())].into());
        let error = deadline(&claim).unwrap_err();
        assert!(
            error.contains("NodeClaim c") && error.contains("\"soon\""),
            "{error}"
        );
    }

    #[test]
    fn d_347_example_25_nodes_of_a_registered_claim_go_first_and_others_stay() {
        let mut claim = claim();
        let node = Arc::new(tainted_node());
        assert_eq!(
            claim_step(&claim, std::slice::from_ref(&node)),
            ClaimStep::TerminateInstance,
            "an unregistered claim leaves Nodes alone"
        );
        claim.set_true(REGISTERED, at("11:00:00"));
        assert_eq!(
            claim_step(&claim, std::slice::from_ref(&node)),
            ClaimStep::Write(vec![Action::delete(node_ref(&node))], Vec::new())
        );
        let mut going = tainted_node();
        going.metadata.deletion_timestamp = Some(Time(at("12:00:00")));
        assert_eq!(claim_step(&claim, &[Arc::new(going)]), ClaimStep::WaitForNodes);
        assert_eq!(claim_step(&claim, &[]), ClaimStep::TerminateInstance);
    }

    #[test]
    fn d_349_a_claim_without_provider_id_terminates_no_instance() {
        let mut claim = claim();
        claim.status = None;
        assert_eq!(claim_step(&claim, &[]), ClaimStep::RemoveFinalizer);
    }

    #[test]
    fn d_308_the_claim_is_deleted_at_the_beginning() {
        let mut claim = claim();
        claim.metadata.deletion_timestamp = None;
        let step = step(&tainted_node(), Some(&claim), &[], at("12:00:00"));
        assert_eq!(step.actions, [Action::delete(claim_ref(&claim))]);
    }

    #[test]
    fn d_310_taint_and_label_replace_another_effect() {
        let mut node = tainted_node();
        node.spec.as_mut().unwrap().taints.as_mut().unwrap()[0].effect = "NoExecute".to_owned();
        let step = step(&node, Some(&claim()), &[], at("12:00:00"));
        let Action::Patch { patch, .. } = &step.actions[0] else {
            panic!("a patch")
        };
        assert_eq!(
            patch["spec"]["taints"],
            serde_json::json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])
        );
    }

    #[test]
    fn d_320_tiers_one_after_the_other() {
        let pods: Vec<Arc<Pod>> = [
            critical(daemon(pod("d", 30))),
            critical(pod("c", 30)),
            daemon(pod("b", 30)),
            pod("a", 30),
        ]
        .into_iter()
        .map(Arc::new)
        .collect();
        let names = |pods: &[Arc<Pod>]| -> Vec<String> {
            step(&tainted_node(), Some(&claim()), pods, at("12:00:00"))
                .evict
                .into_iter()
                .map(|target| target.name)
                .collect()
        };
        assert_eq!(names(&pods), ["a"]);
        assert_eq!(names(&pods[..3]), ["b"]);
        assert_eq!(names(&pods[..2]), ["c"]);
        assert_eq!(names(&pods[..1]), ["d"]);
        let message = &step(&tainted_node(), Some(&claim()), &pods, at("12:00:00")).events[0].message;
        assert_eq!(
            message, "Failed to drain node, 4 pods are waiting to be evicted",
            "D-311"
        );
    }

    #[test]
    fn d_312_a_drain_lasts_at_least_five_seconds() {
        let mut claim = claim();
        let first = step(&tainted_node(), Some(&claim), &[], at("12:00:00"));
        assert_eq!(first.next, NodeNext::Wait(MINIMUM_DRAIN));
        claim.set(DRAINED, Status::Unknown, "Draining", "Draining", at("12:00:00"));
        let later = step(&tainted_node(), Some(&claim), &[], at("12:00:05"));
        assert_eq!((later.next, later.drained), (NodeNext::TerminateInstance, true));
        assert_eq!(
            step(&tainted_node(), None, &[], at("12:00:00")).next,
            NodeNext::Release,
            "D-317: without a NodeClaim there is no instance to end"
        );
    }

    #[test]
    fn d_334_the_worked_example() {
        let deadline = Some(at("13:00:00"));
        let decide = |pod: &Pod, now: &str| eviction_step(pod, deadline, at(now));
        let a = pod("a", 30);
        assert!(matches!(decide(&a, "12:59:30"), EvictionStep::Evict(_)));
        let EvictionStep::Delete(
            Action::Delete {
                grace_period_seconds, ..
            },
            event,
        ) = decide(&a, "12:59:31")
        else {
            panic!("a delete")
        };
        assert_eq!(grace_period_seconds, Some(29));
        assert!(
            event
                .message
                .contains("terminationTime 2026-01-01 13:00:00 +0000 UTC"),
            "{}",
            event.message
        );
        let mut b = pod("b", 600);
        b.metadata.annotations = Some([(labels::DO_NOT_DISRUPT.to_owned(), "true".to_owned())].into());
        assert_eq!(decide(&b, "12:50:00"), EvictionStep::Keep, "D-322");
        assert!(matches!(
            decide(&b, "12:50:01"),
            EvictionStep::Delete(
                Action::Delete {
                    grace_period_seconds: Some(599),
                    ..
                },
                _
            )
        ));
        let c = pod("c", 7200);
        assert!(matches!(
            decide(&c, "12:00:00"),
            EvictionStep::Delete(
                Action::Delete {
                    grace_period_seconds: Some(3600),
                    ..
                },
                _
            )
        ));
        let d = pod("d", 0);
        assert!(matches!(decide(&d, "13:00:00"), EvictionStep::Evict(_)));
        assert!(
            matches!(
                decide(&d, "13:00:01"),
                EvictionStep::Delete(
                    Action::Delete {
                        grace_period_seconds: Some(1),
                        ..
                    },
                    _
                )
            ),
            "D-335: never 0"
        );
    }

    #[test]
    fn d_334_a_refused_pod_is_looked_at_again_when_its_time_has_come() {
        let deadline = Some(at("13:00:00"));
        assert_eq!(
            delete_after(&pod("a", 30), deadline),
            deadline.map(|_| at("12:59:30"))
        );
        assert_eq!(delete_after(&pod("a", 30), None), None);
        let mut going = pod("a", 30);
        going.metadata.deletion_timestamp = Some(Time(at("12:30:00")));
        assert_eq!(delete_after(&going, deadline), None);
    }

    #[test]
    fn d_310_the_look_that_taints_says_how_many_pods_are_to_go() {
        let mut node = tainted_node();
        node.spec = None;
        let pods = [Arc::new(pod("a", 30)), Arc::new(pod("b", 30))];
        assert_eq!(step(&node, Some(&claim()), &pods, at("12:00:00")).begins, Some(2));
        assert_eq!(
            step(&tainted_node(), Some(&claim()), &pods, at("12:00:00")).begins,
            None
        );
    }

    #[test]
    fn d_319_pods_that_tolerate_the_taint_are_left_alone() {
        let mut tolerant = pod("t", 30);
        tolerant.spec.as_mut().unwrap().tolerations = Some(vec![Toleration {
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        }]);
        let step = step(
            &tainted_node(),
            Some(&claim()),
            &[Arc::new(tolerant)],
            at("12:00:00"),
        );
        assert!(step.evict.is_empty());
    }

    #[test]
    fn d_342_d_343_d_344_d_345_volumes_are_waited_for_until_the_deadline() {
        let mut attachment = VolumeAttachment::default();
        attachment.metadata.name = Some("va".to_owned());
        attachment.spec.source.persistent_volume_name = Some("pv".to_owned());
        let mut claim = claim();
        claim.set(DRAINED, Status::True, "Drained", "", at("12:00:00"));
        claim.metadata.annotations = Some(
            [(
                labels::TERMINATION_TIMESTAMP.to_owned(),
                "2026-01-01T13:00:00Z".to_owned(),
            )]
            .into(),
        );
        let attachments = [Arc::new(attachment)];
        let kept = BTreeSet::new();
        let node = tainted_node();
        let end = NodeEnd {
            node: &node,
            claim: Some(&claim),
            pods: &[],
            attachments: &attachments,
            kept_volumes: &kept,
        };
        let waiting = node_step(&end, at("12:30:00")).unwrap();
        assert_eq!(waiting.next, NodeNext::Wait(LONGEST_PAUSE));
        assert!(
            waiting
                .events
                .iter()
                .any(|event| event.message == "Awaiting deletion of bound volumeattachments (va)")
        );
        assert_eq!(
            node_step(&end, at("13:00:01")).unwrap().next,
            NodeNext::TerminateInstance
        );
        let kept = BTreeSet::from(["pv".to_owned()]);
        let end = NodeEnd {
            kept_volumes: &kept,
            ..end
        };
        assert_eq!(
            node_step(&end, at("12:30:00")).unwrap().next,
            NodeNext::TerminateInstance
        );
    }
}
