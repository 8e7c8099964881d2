//! Pods of a Node that ends: their tiers, their deadlines, and what is told when an eviction is tried (D §8.4, §8.5).
//!
//! Owns one pod at a time. It never evicts.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, DISRUPTION_REASON};
use spokeshave_model::Pod;
use spokeshave_model::pod::{self, is_daemon, is_evictable, is_terminal, is_terminating};
use spokeshave_model::{Action, Event, EventType, ObjectKind, ObjectRef};

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

/// The pods of the first tier that is not empty, and of any tier those whose deadline has come (D-336); the largest first, so that they are
/// recreated, and have found the room that was planned for them, before smaller ones that fit anywhere take it.
pub(super) fn to_evict(waited: &[&Arc<Pod>], deadline: Option<Timestamp>, now: Timestamp) -> Vec<ObjectRef> {
    let first = waited.iter().map(|pod| tier(pod)).min().unwrap_or(1);
    let mut going: Vec<&Arc<Pod>> = waited
        .iter()
        .copied()
        .filter(|pod| tier(pod) == first || is_due_for_delete(pod, deadline, now))
        .collect();
    going.sort_by_cached_key(|pod| {
        let requests = pod::requests(pod);
        let amount = |name: &str| requests.get(name);
        Reverse((amount("cpu"), amount("memory")))
    });
    going.into_iter().map(|pod| pod_ref(pod)).collect()
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
pub(super) fn is_due_for_delete(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> bool {
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

/// Whether a pod of this NodeClaim is evicted for something that could have waited: a command of disruption.
#[must_use]
pub fn could_have_waited(claim: Option<&NodeClaim>) -> bool {
    claim.is_some_and(|claim| claim.is_true(DISRUPTION_REASON))
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
