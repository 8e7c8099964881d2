//! What holds a termination up, by name: pod, PodDisruptionBudget with its arithmetic, volume, finalizer or cloud (D §8.8).
//!
//! Owns the words and the condition `spokeshave.dev/TerminationBlocked` that carries them. It informs people; no decision reads it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{
    Conditioned, DRAINED, INSTANCE_TERMINATING, Status, TERMINATION_BLOCKED, VOLUMES_DETACHED,
};
use spokeshave_model::Pod;
use spokeshave_model::pod::{self, DoNotDisrupt, is_terminating, is_waited_for_in_drain};
use spokeshave_model::selector::Selector;
use spokeshave_model::{Action, Event, EventType, ObjectRef, Subresource};

use crate::durations::signed;
use crate::lifecycle::claim_ref;
use crate::report::first_few;
use crate::termination::tier;

/// Reason of the events that say the same as the condition.
const EVENT_REASON: &str = "TerminationBlocked";
/// A drain or a wait for volumes that lasts no longer than this is nothing to tell people about.
pub const BLOCKED_AFTER: Duration = Duration::from_secs(30);
/// A cloud that still has an instance so long after it was asked to end it is told about.
pub const INSTANCE_OVERDUE: Duration = Duration::from_secs(5 * 60);
/// The same blocker is told again on the objects after this long, in seconds.
const EVENT_SECONDS: u32 = 10 * 60;

/// What holds a termination up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Reason of the condition.
    pub reason: &'static str,
    /// The names.
    pub message: String,
}

impl Blocker {
    fn new(reason: &'static str, message: String) -> Self {
        Self { reason, message }
    }
}

/// How the Eviction API refused a pod last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// What the server said.
    pub message: String,
}

/// `0 of 3 may be down: minAvailable 3, 3 healthy`.
#[must_use]
pub fn budget_arithmetic(budget: &PodDisruptionBudget) -> String {
    let number = |value: Option<i32>| value.unwrap_or(0);
    let status = budget.status.as_ref();
    let allowed = number(status.and_then(|status| status.disruptions_allowed));
    let expected = number(status.and_then(|status| status.expected_pods));
    let healthy = number(status.and_then(|status| status.current_healthy));
    let text = |value: &IntOrString| match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(percent) => percent.clone(),
    };
    let spec = budget.spec.as_ref();
    let rule = if let Some(value) = spec.and_then(|spec| spec.max_unavailable.as_ref()) {
        format!("maxUnavailable {}", text(value))
    } else if let Some(value) = spec.and_then(|spec| spec.min_available.as_ref()) {
        format!("minAvailable {}", text(value))
    } else {
        "neither minAvailable nor maxUnavailable".to_owned()
    };
    // The Eviction API counts what it has just granted before the status is counted anew.
    let granted = status
        .and_then(|status| status.disrupted_pods.as_ref())
        .map_or(0, BTreeMap::len);
    let granted = if granted == 0 {
        String::new()
    } else {
        format!(", {granted} being evicted")
    };
    format!("{allowed} of {expected} may be down: {rule}, {healthy} healthy{granted}")
}

/// A PodDisruptionBudget with its selector, read once.
type Parsed = (Selector, Arc<PodDisruptionBudget>);

fn parsed(budgets: Vec<Arc<PodDisruptionBudget>>) -> Vec<Parsed> {
    let one = |budget: Arc<PodDisruptionBudget>| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        (Selector::parse(selector), budget)
    };
    budgets.into_iter().map(one).collect()
}

/// The PodDisruptionBudgets that cover a pod, of those in its namespace.
fn covering<'a>(pod: &Pod, budgets: &'a [Parsed]) -> Vec<&'a Arc<PodDisruptionBudget>> {
    let none = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    let covers = |(selector, _): &&Parsed| selector.matches(labels);
    budgets.iter().filter(covers).map(|(_, budget)| budget).collect()
}

fn budget_key(budget: &PodDisruptionBudget) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!(
        "{}/{}",
        text(&budget.metadata.namespace),
        text(&budget.metadata.name)
    )
}

/// Why one pod is still there; the number orders reasons, the most stubborn first.
fn why(pod: &Pod, budgets: &[Parsed], refusal: Option<&Refusal>, now: Timestamp) -> Option<(u8, Blocker)> {
    let key = pod::key(pod);
    if is_terminating(pod) {
        let due = pod
            .metadata
            .deletion_timestamp
            .as_ref()
            .map_or(now, |time| time.0);
        let finalizers = pod.metadata.finalizers.as_deref().unwrap_or_default();
        let held = match finalizers {
            [] => String::new(),
            names => format!(", held by finalizer {}", first_few(names, 3)),
        };
        let message = format!("pod {key} is stopping and has time until {}{held}", whole(due));
        return Some((5, Blocker::new("PodTerminating", message)));
    }
    let covering = covering(pod, budgets);
    if covering.len() > 1 {
        let names: Vec<String> = covering.iter().map(|budget| budget_key(budget)).collect();
        let message = format!(
            "pod {key} is covered by {} PodDisruptionBudgets ({}), and the Eviction API serves only pods under one",
            names.len(),
            first_few(&names, 3)
        );
        return Some((0, Blocker::new("MultiplePodDisruptionBudgets", message)));
    }
    match DoNotDisrupt::of(pod) {
        DoNotDisrupt::Always => {
            let message = format!("pod {key} carries karpenter.sh/do-not-disrupt");
            return Some((2, Blocker::new("DoNotDisrupt", message)));
        }
        DoNotDisrupt::Until(end) if now < end => {
            let message = format!(
                "pod {key} carries karpenter.sh/do-not-disrupt until {}",
                whole(end)
            );
            return Some((2, Blocker::new("DoNotDisrupt", message)));
        }
        _ => {}
    }
    if let [budget] = covering[..] {
        let status = budget.status.as_ref();
        let unhealthy_goes = pod::is_ready_false(pod)
            && budget
                .spec
                .as_ref()
                .and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref())
                == Some("AlwaysAllow");
        if status.is_none_or(|status| status.disruptions_allowed.unwrap_or(0) <= 0) && !unhealthy_goes {
            let message = format!(
                "pod {key} is kept by PodDisruptionBudget {}: {}",
                budget_key(budget),
                budget_arithmetic(budget)
            );
            return Some((1, Blocker::new("PodDisruptionBudget", message)));
        }
    }
    let refusal = refusal?;
    let message = format!(
        "pod {key}: the Eviction API answered {}: {}",
        refusal.code, refusal.message
    );
    Some((3, Blocker::new("EvictionRefused", message)))
}

/// Whole seconds, as Kubernetes writes times.
fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// What holds a drain up: the most stubborn pod of the tier that is being evicted. `budgets` gives the PodDisruptionBudgets of a namespace.
#[must_use]
pub fn drain_blocker(
    pods: &[Arc<Pod>],
    budgets: impl Fn(&str) -> Vec<Arc<PodDisruptionBudget>>,
    refusal: impl Fn(&Pod) -> Option<Refusal>,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Option<Blocker> {
    let waited: Vec<&Arc<Pod>> = pods
        .iter()
        .filter(|pod| is_waited_for_in_drain(pod, now))
        .collect();
    let first = waited.iter().map(|pod| tier(pod)).min()?;
    let mut known: BTreeMap<&str, Vec<Parsed>> = BTreeMap::new();
    let found = waited.iter().filter(|pod| tier(pod) == first).filter_map(|pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let budgets = known
            .entry(namespace)
            .or_insert_with(|| parsed(budgets(namespace)));
        why(pod, budgets, refusal(pod).as_ref(), now)
    });
    let (_, mut blocker) =
        found.min_by(|left, right| (left.0, &left.1.message).cmp(&(right.0, &right.1.message)))?;
    if let Some(deadline) = deadline.filter(|deadline| *deadline > now) {
        blocker.message += &format!("; pods are deleted by {}", whole(deadline));
    }
    Some(blocker)
}

/// What holds up the wait for volumes.
#[must_use]
pub fn volume_blocker(attachments: &[&VolumeAttachment], deadline: Option<Timestamp>) -> Option<Blocker> {
    let names: Vec<String> = attachments
        .iter()
        .map(|attachment| {
            let volume = attachment.spec.source.persistent_volume_name.as_deref();
            let name = attachment.metadata.name.as_deref();
            format!(
                "{} (attachment {}, driver {})",
                volume.unwrap_or_default(),
                name.unwrap_or_default(),
                attachment.spec.attacher
            )
        })
        .collect();
    if names.is_empty() {
        return None;
    }
    let limit = deadline.map_or(String::new(), |deadline| {
        format!("; the instance ends by {} all the same", whole(deadline))
    });
    let message = format!("volume {} is still attached{limit}", first_few(&names, 3));
    Some(Blocker::new("VolumeAttachment", message))
}

/// Nodes that are being deleted and that somebody else's finalizer keeps.
#[must_use]
pub fn node_blocker(nodes: &[Arc<Node>]) -> Option<Blocker> {
    let held: Vec<String> = nodes
        .iter()
        .filter_map(|node| {
            let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
            let ours = finalizers
                .iter()
                .any(|one| one == spokeshave_api::labels::TERMINATION_FINALIZER);
            let name = node.metadata.name.as_deref().unwrap_or_default();
            (node.metadata.deletion_timestamp.is_some() && !ours && !finalizers.is_empty())
                .then(|| format!("{name} ({})", first_few(finalizers, 3)))
        })
        .collect();
    (!held.is_empty()).then(|| {
        let message = format!("node {} is held by finalizers of others", first_few(&held, 3));
        Blocker::new("NodeFinalizers", message)
    })
}

/// The cloud refuses, or does not answer.
#[must_use]
pub fn provider_blocker(claim: &NodeClaim, error: &str) -> Blocker {
    let instance = claim.provider_id().unwrap_or("without provider ID");
    Blocker::new("ProviderError", format!("instance {instance}: {error}"))
}

/// The cloud wants to be asked later.
#[must_use]
pub fn postponed_blocker(claim: &NodeClaim, why: &str) -> Blocker {
    let instance = claim.provider_id().unwrap_or("without provider ID");
    Blocker::new("TerminationPostponed", format!("instance {instance}: {why}"))
}

/// The cloud was asked long ago, and still has the instance.
#[must_use]
pub fn overdue_blocker(claim: &NodeClaim, asked: Timestamp, now: Timestamp) -> Option<Blocker> {
    let limit = signed(INSTANCE_OVERDUE);
    let overdue = now.duration_since(asked) >= limit;
    overdue.then(|| {
        let message = format!(
            "instance {} was asked to end at {}, and the cloud still reports it",
            claim.provider_id().unwrap_or_default(),
            whole(asked)
        );
        Blocker::new("InstanceTerminating", message)
    })
}

/// The deadline cannot be read (D-303).
#[must_use]
pub fn deadline_blocker(error: &str) -> Blocker {
    Blocker::new("InvalidTerminationTimestamp", error.to_owned())
}

/// Since when the step is under way in which the end of a NodeClaim is held up: the first begins with the deletion, each other one with what is written of the
/// one before. What is in the way changes meanwhile, as one pod goes after the other; how long the step has lasted does not.
#[must_use]
pub fn held_up_since(claim: &NodeClaim, now: Timestamp) -> Timestamp {
    let steps = [DRAINED, VOLUMES_DETACHED, INSTANCE_TERMINATING];
    let written = steps.iter().filter_map(|step| claim.condition(step));
    let deleted = claim.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let begun = written
        .map(|condition| condition.last_transition_time)
        .chain(deleted)
        .max();
    whole(begun.unwrap_or(now))
}

/// The write that makes a NodeClaim say what holds it up; nothing when it says so already. Another step begins a new condition, so that the
/// transition time tells since when.
#[must_use]
pub fn blocked_action(claim: &NodeClaim, blocker: Option<&Blocker>, now: Timestamp) -> Option<Action> {
    let mut after = claim.clone();
    match (after.condition(TERMINATION_BLOCKED).cloned(), blocker) {
        (None, None) => return None,
        (Some(_), None) => {
            after.clear(TERMINATION_BLOCKED);
        }
        (known, Some(blocker)) => {
            let since = held_up_since(claim, now);
            if known.is_some_and(|known| known.last_transition_time != since) {
                after.clear(TERMINATION_BLOCKED);
            }
            after.set(
                TERMINATION_BLOCKED,
                Status::True,
                blocker.reason,
                &blocker.message,
                since,
            );
        }
    }
    Action::patch(claim_ref(claim), Subresource::Status, claim, &after, true)
}

/// The event on an object that is held up, with since when.
#[must_use]
pub fn blocked_event(object: ObjectRef, blocker: &Blocker, since: Timestamp) -> Event {
    let message = format!("{}, since {}", blocker.message, whole(since));
    let values = [object.uid.clone(), blocker.reason.to_owned()];
    Event::new(object, EventType::Warning, EVENT_REASON, message)
        .deduped_by(values)
        .within_seconds(EVENT_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};
    use spokeshave_api::NodeClaimSpec;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    fn pod(value: Value) -> Arc<Pod> {
        let mut whole = json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "labels": {"app": "web"}}, "spec": {"nodeName": "n", "containers": []}});
        merge(&mut whole, value);
        Arc::new(serde_json::from_value(whole).unwrap())
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    fn budget(name: &str, spec: Value, allowed: i32) -> Arc<PodDisruptionBudget> {
        let mut whole = json!({
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": allowed, "expectedPods": 3, "currentHealthy": 3, "desiredHealthy": 3},
        });
        merge(&mut whole["spec"], spec);
        Arc::new(serde_json::from_value(whole).unwrap())
    }

    fn blocker(pods: &[Arc<Pod>], budgets: &[Arc<PodDisruptionBudget>]) -> Option<Blocker> {
        drain_blocker(pods, |_| budgets.to_vec(), |_| None, None, at("12:00:00"))
    }

    #[test]
    fn a_budget_is_named_with_its_arithmetic() {
        let strict = budget("web", json!({"minAvailable": 3}), 0);
        let found = blocker(&[pod(json!({}))], std::slice::from_ref(&strict)).unwrap();
        assert_eq!(
            (found.reason, found.message.as_str()),
            (
                "PodDisruptionBudget",
                "pod shop/web-1 is kept by PodDisruptionBudget shop/web: 0 of 3 may be down: minAvailable 3, 3 healthy"
            )
        );
        let share = budget("web", json!({"maxUnavailable": "0%"}), 0);
        assert_eq!(
            budget_arithmetic(&share),
            "0 of 3 may be down: maxUnavailable 0%, 3 healthy"
        );
        let open = budget("web", json!({"minAvailable": 2}), 1);
        assert_eq!(blocker(&[pod(json!({}))], &[open]), None, "it is merely its turn");
        let other = pod(json!({"metadata": {"labels": {"app": "db"}}}));
        assert_eq!(blocker(&[other], &[strict]), None);
    }

    #[test]
    fn d_331_two_budgets_are_named_both() {
        let both = [
            budget("a", json!({"minAvailable": 1}), 2),
            budget("b", json!({"minAvailable": 1}), 2),
        ];
        let found = blocker(&[pod(json!({}))], &both).unwrap();
        assert_eq!(found.reason, "MultiplePodDisruptionBudgets");
        assert!(found.message.contains("(shop/a, shop/b)"), "{}", found.message);
    }

    #[test]
    fn unhealthy_pods_that_may_always_go_are_not_blamed() {
        let lenient = budget(
            "web",
            json!({"minAvailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
            0,
        );
        let sick = pod(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}));
        assert_eq!(blocker(&[sick], std::slice::from_ref(&lenient)), None);
        assert!(blocker(&[pod(json!({}))], &[lenient]).is_some());
    }

    #[test]
    fn d_322_do_not_disrupt_is_named_with_its_end() {
        let annotated = |value: &str| {
            pod(
                json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}, "status": {"startTime": "2026-01-01T11:30:00Z"}}),
            )
        };
        let message = |value| blocker(&[annotated(value)], &[]).map(|found| found.message);
        assert_eq!(
            message("true").as_deref(),
            Some("pod shop/web-1 carries karpenter.sh/do-not-disrupt")
        );
        assert_eq!(
            message("1h").as_deref(),
            Some("pod shop/web-1 carries karpenter.sh/do-not-disrupt until 2026-01-01T12:30:00Z")
        );
        assert_eq!(message("10m"), None);
    }

    #[test]
    fn pods_that_stop_are_named_with_their_finalizers() {
        let going = pod(
            json!({"metadata": {"deletionTimestamp": "2026-01-01T12:10:00Z", "finalizers": ["example.com/x"]}}),
        );
        let found = blocker(&[going], &[]).unwrap();
        assert_eq!(
            found.message,
            "pod shop/web-1 is stopping and has time until 2026-01-01T12:10:00Z, held by finalizer example.com/x"
        );
    }

    #[test]
    fn d_330_a_refusal_by_a_webhook_is_quoted() {
        let refused = Refusal {
            code: 403,
            message: "admission webhook says no".to_owned(),
        };
        let found = drain_blocker(
            &[pod(json!({}))],
            |_| Vec::new(),
            |_| Some(refused.clone()),
            Some(at("13:00:00")),
            at("12:00:00"),
        )
        .unwrap();
        assert_eq!(
            found.message,
            "pod shop/web-1: the Eviction API answered 403: admission webhook says no; pods are deleted by 2026-01-01T13:00:00Z"
        );
    }

    #[test]
    fn the_tier_at_work_and_its_most_stubborn_pod_are_blamed() {
        let critical =
            pod(json!({"metadata": {"name": "dns"}, "spec": {"priorityClassName": "system-node-critical"}}));
        let stopping = pod(
            json!({"metadata": {"name": "a", "labels": null, "deletionTimestamp": "2026-01-01T12:10:00Z"}}),
        );
        let strict = [budget("web", json!({"minAvailable": 3}), 0)];
        let found = blocker(&[critical.clone(), stopping, pod(json!({}))], &strict).unwrap();
        assert_eq!(found.reason, "PodDisruptionBudget");
        assert!(found.message.starts_with("pod shop/web-1 "), "{}", found.message);
        let alone = blocker(&[critical], &strict).unwrap();
        assert!(alone.message.starts_with("pod shop/dns "), "{}", alone.message);
        let tolerant = pod(json!({"spec": {"tolerations": [{"operator": "Exists"}]}}));
        assert_eq!(blocker(&[tolerant], &strict), None, "D-319: nobody waits for it");
    }

    #[test]
    fn the_condition_is_written_when_it_changes_and_dates_its_step() {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.metadata.deletion_timestamp = Some(Time(at("11:59:59")));
        claim.set(DRAINED, Status::Unknown, "Draining", "Draining", at("12:00:00"));
        let first = provider_blocker(&claim, "timed out");
        let mut written = claim.clone();
        written.set(
            TERMINATION_BLOCKED,
            Status::True,
            first.reason,
            &first.message,
            at("12:00:00"),
        );
        assert_eq!(blocked_action(&written, Some(&first), at("12:09:00")), None);
        assert_eq!(blocked_action(&claim, None, at("12:00:30")), None);
        assert!(blocked_action(&written, None, at("12:09:00")).is_some());
        let since = |action: Option<Action>| {
            let Some(Action::Patch { patch, .. }) = action else {
                panic!("a patch")
            };
            let conditions = patch["status"]["conditions"].as_array().unwrap().clone();
            let found = conditions
                .into_iter()
                .find(|condition| condition["type"] == TERMINATION_BLOCKED);
            found.unwrap()["lastTransitionTime"].as_str().unwrap().to_owned()
        };
        let begun = "2026-01-01T12:00:00Z";
        assert_eq!(since(blocked_action(&claim, Some(&first), at("12:00:30"))), begun);
        for other in [provider_blocker(&claim, "throttled"), deadline_blocker("bad")] {
            let action = blocked_action(&written, Some(&other), at("12:09:00"));
            assert_eq!(since(action), begun, "{}", other.reason);
        }
        written.set_true(DRAINED, at("12:08:00"));
        let next_step = blocked_action(&written, Some(&first), at("12:09:00"));
        assert_eq!(since(next_step), "2026-01-01T12:08:00Z");
    }

    #[test]
    fn volumes_finalizers_and_overdue_instances_are_named() {
        let attachment: VolumeAttachment = serde_json::from_value(json!({
            "metadata": {"name": "csi-1"},
            "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "n", "source": {"persistentVolumeName": "pv-1"}},
        }))
        .unwrap();
        assert_eq!(
            volume_blocker(&[&attachment], Some(at("13:00:00")))
                .unwrap()
                .message,
            "volume pv-1 (attachment csi-1, driver ebs.csi.aws.com) is still attached; the instance ends by 2026-01-01T13:00:00Z all the same"
        );
        assert_eq!(volume_blocker(&[], None), None);
        let node = |finalizers: Value| {
            Arc::new(serde_json::from_value::<Node>(json!({"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": finalizers}})).unwrap())
        };
        assert_eq!(
            node_blocker(&[node(json!(["example.com/x"]))]).unwrap().message,
            "node n (example.com/x) is held by finalizers of others"
        );
        assert_eq!(
            node_blocker(&[node(json!(["karpenter.sh/termination", "example.com/x"]))]),
            None
        );
        let claim = NodeClaim::new("c", NodeClaimSpec::default());
        assert_eq!(overdue_blocker(&claim, at("12:00:00"), at("12:04:59")), None);
        assert!(overdue_blocker(&claim, at("12:00:00"), at("12:05:00")).is_some());
    }
}
