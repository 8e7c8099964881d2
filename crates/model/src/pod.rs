//! What a pod is: the predicates that every decision shares (P §4, D-001…D-008) and its resource arithmetic (P §3).
//!
//! Functions of one Pod object (and `now` where time matters). They never look at other objects.

use crate::Pod;
use crate::resources::{ResourceName, Resources};
use crate::taint;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::GoDuration;
pub use spokeshave_api::labels::{DISRUPTED_TAINT_KEY, DO_NOT_DISRUPT, POD_DELETION_COST, disrupted_taint};

fn has_owner(meta: &ObjectMeta, api_version: &str, kind: &str) -> bool {
    meta.owner_references
        .iter()
        .flatten()
        .any(|owner| owner.api_version == api_version && owner.kind == kind)
}

/// `namespace/name`, as messages show a pod.
pub fn key(pod: &Pod) -> String {
    let part = |value: &Option<String>| value.clone().unwrap_or_default();
    format!("{}/{}", part(&pod.metadata.namespace), part(&pod.metadata.name))
}

/// P-185: a virtual pod of a CapacityBuffer. It exists in memory only: what an API server holds has a resource version, whatever is annotated.
pub fn is_virtual(pod: &Pod) -> bool {
    let meta = &pod.metadata;
    meta.resource_version.is_none()
        && meta
            .annotations
            .as_ref()
            .and_then(|own| own.get(spokeshave_api::labels::CAPACITY_BUFFER_FAKE_POD))
            .is_some_and(|value| value == "true")
}

/// D-001: phase Failed or Succeeded.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Failed" | "Succeeded")
}

/// D-001: has a deletion timestamp.
pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Terminating, and given more time for it than a node takes to come.
pub fn lingers(pod: &Pod) -> bool {
    let grace = pod.metadata.deletion_grace_period_seconds;
    is_terminating(pod) && grace.is_some_and(|seconds| seconds > 60)
}

/// D-001: neither terminal nor terminating.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_terminating(pod)
}

/// The phase, empty when unset.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("")
}

/// D-002: has an owner `apps/v1 DaemonSet`.
pub fn is_daemon(pod: &Pod) -> bool {
    has_owner(&pod.metadata, "apps/v1", "DaemonSet")
}

/// D-002: has an owner `apps/v1 StatefulSet`.
pub fn is_stateful_set(pod: &Pod) -> bool {
    has_owner(&pod.metadata, "apps/v1", "StatefulSet")
}

/// D-002: has an owner `v1 Node`.
pub fn is_mirror(pod: &Pod) -> bool {
    has_owner(&pod.metadata, "v1", "Node")
}

/// The node the pod is bound to.
pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.node_name.as_deref().filter(|name| !name.is_empty())
}

/// D-003: active or a terminating StatefulSet pod, and neither daemon nor mirror.
pub fn is_reschedulable(pod: &Pod) -> bool {
    // A pod of a StatefulSet counts whatever its phase: its successor comes only once it is gone.
    let leaves = is_active(pod) || (is_terminating(pod) && is_stateful_set(pod));
    leaves && !is_daemon(pod) && !is_mirror(pod)
}

/// Whether the pod tolerates `karpenter.sh/disrupted:NoSchedule`.
pub fn tolerates_disrupted_taint(pod: &Pod) -> bool {
    let tolerations = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default();
    let disrupted = disrupted_taint();
    tolerations
        .iter()
        .any(|toleration| taint::tolerates(toleration, &disrupted))
}

/// D-004: active, does not tolerate the disrupted taint, not a mirror pod, and not protected by do-not-disrupt.
pub fn is_evictable(pod: &Pod, now: Timestamp) -> bool {
    is_active(pod)
        && !tolerates_disrupted_taint(pod)
        && !is_mirror(pod)
        && !DoNotDisrupt::of(pod).is_active(now)
}

/// D-005: does not tolerate the disrupted taint, not a mirror pod, and not terminating for more than a minute past its deadline.
pub fn is_drainable(pod: &Pod, now: Timestamp) -> bool {
    let stuck = pod
        .metadata
        .deletion_timestamp
        .as_ref()
        .is_some_and(|deadline| now.duration_since(deadline.0).as_secs() > 60);
    !tolerates_disrupted_taint(pod) && !is_mirror(pod) && !stuck
}

/// D-006: drainable and not terminal.
pub fn is_waited_for_in_drain(pod: &Pod, now: Timestamp) -> bool {
    is_drainable(pod, now) && !is_terminal(pod)
}

/// When a condition of a pod became true.
pub fn true_since(pod: &Pod, type_: &str) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let found = conditions
        .iter()
        .find(|condition| condition.type_ == type_ && condition.status == "True")?;
    Some(found.last_transition_time.as_ref()?.0)
}

/// Whether the pod's `Ready` condition has the status `True`.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let mut ready = conditions
        .unwrap_or_default()
        .iter()
        .filter(|one| one.type_ == "Ready");
    ready.any(|one| one.status == "True")
}

/// Whether the pod's `Ready` condition has the status `False` (D-021).
pub fn is_ready_false(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "False")
}

/// Whether the pod uses Dynamic Resource Allocation (P §4).
pub fn uses_resource_claims(spec: &PodSpec) -> bool {
    let claims = |container: &Container| {
        container
            .resources
            .as_ref()
            .and_then(|resources| resources.claims.as_ref())
            .is_some_and(|claims| !claims.is_empty())
    };
    spec.resource_claims
        .as_ref()
        .is_some_and(|claims| !claims.is_empty())
        || spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .any(claims)
}

/// The protection that annotation `karpenter.sh/do-not-disrupt` gives a pod (D-011, D-012).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoNotDisrupt {
    /// Not annotated.
    #[default]
    Absent,
    /// `"true"`, or a duration on a pod that has not started.
    Always,
    /// A duration counted from `status.startTime`.
    Until(Timestamp),
    /// A value that is neither; it protects nothing. Carries the text of event `InvalidDoNotDisruptAnnotation`.
    Invalid(String),
}

impl DoNotDisrupt {
    /// Reads the annotation of a pod.
    pub fn of(pod: &Pod) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let Some(value) = annotations.and_then(|annotations| annotations.get(DO_NOT_DISRUPT)) else {
            return DoNotDisrupt::Absent;
        };
        if value == "true" {
            return DoNotDisrupt::Always;
        }
        let nanoseconds = match value.parse::<GoDuration>() {
            Ok(duration) if duration.nanoseconds() > 0 => duration.nanoseconds(),
            Ok(_) => return DoNotDisrupt::Invalid(format!("duration {value:?} must be positive")),
            Err(error) => {
                return DoNotDisrupt::Invalid(format!("failed to parse {value:?} as a duration: {error}"));
            }
        };
        let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let Some(start) = start else {
            return DoNotDisrupt::Always;
        };
        let end = start.0.checked_add(jiff::SignedDuration::from_nanos(nanoseconds));
        DoNotDisrupt::Until(end.unwrap_or(Timestamp::MAX))
    }

    /// Whether the pod is protected at `now`.
    pub fn is_active(&self, now: Timestamp) -> bool {
        match self {
            DoNotDisrupt::Always => true,
            DoNotDisrupt::Until(end) => now < *end,
            DoNotDisrupt::Absent | DoNotDisrupt::Invalid(_) => false,
        }
    }
}

/// D-050: eviction cost in units of 1/2^27, clamped to ±10: `1 + deletionCost / 2^27 + priority / 2^25`. An unparsable deletion
/// cost counts as unset.
pub fn eviction_cost(pod: &Pod) -> i64 {
    let annotation = pod
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(POD_DELETION_COST));
    let deletion_cost = annotation
        .and_then(|text| text.trim().parse::<f64>().ok())
        .filter(|cost| cost.is_finite());
    let priority = i64::from(pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0));
    let cost = EVICTION_COST_UNIT
        .saturating_add(deletion_cost.map_or(0, |cost| cost as i64))
        .saturating_add(priority.saturating_mul(4));
    cost.clamp(-10 * EVICTION_COST_UNIT, 10 * EVICTION_COST_UNIT)
}

/// One unit of eviction cost as used by `eviction_cost`.
pub const EVICTION_COST_UNIT: i64 = 1 << 27;

/// P-124: the pod's requests as kube-scheduler counts them, plus `pods: 1`: containers and side-cars summed, the peak of init
/// containers in their order, pod-level resources, overhead, and on live pods the larger of requested and allocated; of a resize that the node can never
/// give, what is allocated.
pub fn requests(pod: &Pod) -> Resources {
    let Some(spec) = pod.spec.as_ref() else {
        return Resources::from_amounts([(ResourceName::PODS, 1)]);
    };
    requests_of(spec, Granted::of(pod))
}

/// What a pod's status has to say about its requests (in-place resize).
#[derive(Clone, Copy, Default)]
struct Granted<'a> {
    containers: &'a [ContainerStatus],
    init_containers: &'a [ContainerStatus],
    /// The node can never give what the spec asks for now.
    is_infeasible: bool,
}

impl<'a> Granted<'a> {
    fn of(pod: &'a Pod) -> Self {
        let Some(status) = &pod.status else {
            return Self::default();
        };
        let mut conditions = status.conditions.iter().flatten();
        let pending = conditions.find(|condition| condition.type_ == "PodResizePending");
        Self {
            containers: status.container_statuses.as_deref().unwrap_or_default(),
            init_containers: status.init_container_statuses.as_deref().unwrap_or_default(),
            is_infeasible: pending.is_some_and(|pending| pending.reason.as_deref() == Some("Infeasible")),
        }
    }

    /// What a container counts with.
    fn requests(&self, container: &Container, is_init: bool) -> Resources {
        let statuses = if is_init {
            self.init_containers
        } else {
            self.containers
        };
        let status = statuses.iter().find(|status| status.name == container.name);
        // What was refused for good is not coming: the pod keeps what it has, here and wherever its successor goes.
        let refused = self.is_infeasible && status.is_some_and(|status| status.resources.is_some());
        let asked = container.resources.as_ref().filter(|_| !refused);
        requests_with_status(asked, status)
    }
}

/// The limits of a pod as the scheduler adds them up: sidecars count beside the containers, other init containers one after the other, and overhead
/// only where there is a limit.
pub fn limits(pod: &Pod) -> Resources {
    let one = Resources::from_amounts([(ResourceName::PODS, 1)]);
    let Some(spec) = pod.spec.as_ref() else { return one };
    let of = |resources: Option<&ResourceRequirements>| {
        Resources::from_quantities_lossy(resources.and_then(|resources| resources.limits.as_ref()))
    };
    let mut total = sum_of_containers(spec, |container, _| of(container.resources.as_ref()));
    for (name, amount) in of(spec.resources.as_ref()).iter() {
        total.set(name, amount);
    }
    let overhead = Resources::from_quantities_lossy(spec.overhead.as_ref());
    for (name, amount) in overhead.iter() {
        if total.get(name) > 0 {
            total.set(name, total.get(name).saturating_add(amount));
        }
    }
    total.add(&one);
    total
}

/// The requests of a pod synthesised from a template, where limits stand in for missing requests (P §3).
pub fn requests_of_template(spec: &PodSpec) -> Resources {
    let mut spec = spec.clone();
    default_requests(&mut spec);
    requests_of(&spec, Granted::default())
}

/// The containers of a pod, and then those that begin before them.
pub(crate) fn containers_mut(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    let init = spec.init_containers.iter_mut().flatten();
    spec.containers.iter_mut().chain(init)
}

/// Limits stand in for missing requests, as the API server has it for pods; templates are left as they were written.
pub fn default_requests(spec: &mut PodSpec) {
    for container in containers_mut(spec) {
        if let Some(resources) = &mut container.resources {
            let mut requests = resources.limits.clone().unwrap_or_default();
            requests.extend(resources.requests.take().unwrap_or_default());
            resources.requests = Some(requests);
        }
    }
}

fn requests_of(spec: &PodSpec, granted: Granted<'_>) -> Resources {
    let mut total = sum_of_containers(spec, |container, is_init| granted.requests(container, is_init));
    if let Some(pod_level) = &spec.resources {
        for (name, amount) in requests_with_status(Some(pod_level), None).iter() {
            total.set(name, amount);
        }
    }
    total.add(&Resources::from_quantities_lossy(spec.overhead.as_ref()));
    total.add(&Resources::from_amounts([(ResourceName::PODS, 1)]));
    total
}

/// Whether an init container keeps running beside the containers.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What containers need at most at one time (P-124): `of` tells what one needs, and hears whether it is an init container.
fn sum_of_containers(spec: &PodSpec, of: impl Fn(&Container, bool) -> Resources) -> Resources {
    let mut total = Resources::new();
    for container in &spec.containers {
        total.add(&of(container, false));
    }
    let mut sidecars = Resources::new();
    let mut peak = Resources::new();
    for container in spec.init_containers.iter().flatten() {
        let mut needed = of(container, true);
        if is_sidecar(container) {
            total.add(&needed);
            sidecars.add(&needed);
            needed.clone_from(&sidecars);
        } else {
            needed.add(&sidecars);
        }
        peak.raise_to(&needed);
    }
    total.raise_to(&peak);
    total
}

/// The first request that is no amount: an API server refuses it, a file may hold it. Nothing can be planned for such a pod.
pub(crate) fn malformed_request(spec: &PodSpec) -> Option<String> {
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let of_containers = containers.map(|container| {
        let place = format!("container {:?}", container.name);
        (place, container.resources.as_ref())
    });
    let of_pod = std::iter::once(("the pod".to_owned(), spec.resources.as_ref()));
    let requests = of_containers
        .chain(of_pod)
        .filter_map(|(place, resources)| Some((place, resources?.requests.as_ref()?)));
    let overhead = spec
        .overhead
        .as_ref()
        .map(|overhead| ("overhead".to_owned(), overhead));
    let mut lists = requests.chain(overhead);
    lists.find_map(|(place, amounts)| {
        let wrong = amounts.iter().find(|(name, quantity)| {
            let amount = ResourceName::parse(name, &quantity.0);
            !amount.is_ok_and(|amount| amount >= 0)
        });
        wrong.map(|(name, quantity)| {
            format!(
                "{place} requests {name} {:?}; expected a quantity of zero or more, such as 500m or 2Gi",
                quantity.0
            )
        })
    })
}

fn requests_with_status(spec: Option<&ResourceRequirements>, status: Option<&ContainerStatus>) -> Resources {
    let mut requests = Resources::from_quantities_lossy(spec.and_then(|spec| spec.requests.as_ref()));
    if let Some(status) = status {
        requests.raise_to(&Resources::from_quantities_lossy(
            status.allocated_resources.as_ref(),
        ));
        let actual = status
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref());
        requests.raise_to(&Resources::from_quantities_lossy(actual));
    }
    // Less than nothing would make room on a node that has none.
    let amounts: Vec<(&str, i64)> = requests.iter().collect();
    if amounts.iter().any(|(_, amount)| *amount < 0) {
        return Resources::from_amounts(amounts.into_iter().map(|(name, amount)| (name, amount.max(0))));
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planned_node::is_provisionable;
    use serde_json::json;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).expect("a pod written by hand")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time written by hand")
    }

    #[test]
    fn p_124_init_containers_sidecars_overhead_and_pod_level_resources() {
        let amounts = |value| {
            let requests = requests(&pod(json!({ "spec": value })));
            (requests.get("cpu"), requests.get("memory"), requests.get("pods"))
        };
        let container =
            |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let sidecar = |name: &str, cpu: &str| json!({"name": name, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        assert_eq!(
            amounts(json!({"containers": [container("a", "1"), container("b", "500m")]})),
            (1500, 0, 1)
        );
        // An init container above the sum decides.
        assert_eq!(
            amounts(json!({"containers": [container("a", "1")], "initContainers": [container("i", "3")]})).0,
            3000
        );
        // A side-car counts with the containers and with the init containers after it.
        let spec = json!({"containers": [container("a", "1")], "initContainers": [container("i", "2"), sidecar("s", "1"), container("j", "2")]});
        assert_eq!(amounts(spec).0, 3000);
        assert_eq!(
            amounts(json!({"containers": [container("a", "1")], "overhead": {"cpu": "250m"}})).0,
            1250
        );
        let spec = json!({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}});
        assert_eq!(amounts(spec), (4000, 1 << 30, 1));
    }

    #[test]
    fn p_124_in_place_resize_takes_the_larger_of_spec_and_allocated() {
        let value = json!({
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0, "allocatedResources": {"cpu": "3"}}]}
        });
        assert_eq!(requests(&pod(value)).get("cpu"), 3000);
    }

    #[test]
    fn p_124_an_infeasible_resize_asks_for_what_the_pod_has() {
        let cpu = |reason: &str, container: serde_json::Value| {
            let pending = json!({"type": "PodResizePending", "status": "True", "reason": reason});
            let status = json!({"conditions": [pending], "containerStatuses": [container]});
            let spec = json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "100"}}}]});
            requests(&pod(json!({"spec": spec, "status": status}))).get("cpu")
        };
        let status = |allocated: &str, actual: &str| {
            json!({"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}})
        };
        assert_eq!(cpu("Infeasible", status("1", "2")), 2000);
        assert_eq!(cpu("Infeasible", status("2", "1")), 2000);
        assert_eq!(cpu("Deferred", status("1", "2")), 100_000, "it may still come");
    }

    #[test]
    fn d_011_d_012_do_not_disrupt_values() {
        let annotated = |value: &str, start: Option<&str>| {
            DoNotDisrupt::of(&pod(json!({
                "metadata": {"annotations": {DO_NOT_DISRUPT: value}},
                "status": {"startTime": start}
            })))
        };
        let start = Some("2026-01-01T00:00:00Z");
        assert_eq!(annotated("true", None), DoNotDisrupt::Always);
        assert_eq!(annotated("1h30m", None), DoNotDisrupt::Always);
        assert_eq!(
            annotated("1.5h", start),
            DoNotDisrupt::Until(at("2026-01-01T01:30:00Z"))
        );
        assert!(annotated("1h", start).is_active(at("2026-01-01T00:59:59Z")));
        assert!(!annotated("1h", start).is_active(at("2026-01-01T01:00:00Z")));
        assert_eq!(
            annotated("0s", start),
            DoNotDisrupt::Invalid("duration \"0s\" must be positive".to_owned())
        );
        assert_eq!(
            annotated("-5m", start),
            DoNotDisrupt::Invalid("duration \"-5m\" must be positive".to_owned())
        );
        let text = "failed to parse \"yes\" as a duration: time: invalid duration \"yes\"";
        assert_eq!(annotated("yes", start), DoNotDisrupt::Invalid(text.to_owned()));
    }

    #[test]
    fn d_051_eviction_cost_reference_values() {
        let cost = |deletion: Option<&str>, priority: Option<i32>| {
            let annotations = deletion.map(|deletion| json!({POD_DELETION_COST: deletion}));
            eviction_cost(&pod(
                json!({"metadata": {"annotations": annotations}, "spec": {"containers": [], "priority": priority}}),
            ))
        };
        let unit = EVICTION_COST_UNIT;
        for (deletion, priority, expected) in [
            (None, None, unit),
            (Some("2147483647"), None, 10 * unit),
            (Some("-2147483647"), None, -10 * unit),
            (Some("-134217728"), None, 0),
            (None, Some(1_000_000_000), 10 * unit),
            (None, Some(-10), unit - 40),
            (None, Some(-33_554_432), 0),
            (None, Some(-1_000_000_000), -10 * unit),
            (Some("many"), None, unit),
        ] {
            assert_eq!(cost(deletion, priority), expected, "{deletion:?} {priority:?}");
        }
    }

    #[test]
    fn d_003_d_007_classes() {
        let owned = |kind: &str, extra: serde_json::Value| {
            let mut value = json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u"}]}});
            if let (Some(target), Some(source)) = (value.as_object_mut(), extra.as_object()) {
                for (key, part) in source {
                    if key == "metadata" {
                        let meta = target
                            .get_mut("metadata")
                            .and_then(|meta| meta.as_object_mut())
                            .expect("metadata");
                        meta.extend(part.as_object().cloned().unwrap_or_default());
                    } else {
                        target.insert(key.clone(), part.clone());
                    }
                }
            }
            pod(value)
        };
        let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(is_reschedulable(&owned("StatefulSet", terminating.clone())));
        let ended = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Succeeded"}});
        assert!(is_reschedulable(&owned("StatefulSet", ended.clone())));
        assert!(!is_reschedulable(&owned("ReplicaSet", ended)));
        assert!(!is_reschedulable(&owned("ReplicaSet", terminating)));
        assert!(!is_reschedulable(&owned("DaemonSet", json!({}))));
        let pending = json!({"spec": {"containers": []}, "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        assert!(is_provisionable(&owned("ReplicaSet", pending.clone())));
        assert!(!is_provisionable(&owned("DaemonSet", pending)));
    }
}
