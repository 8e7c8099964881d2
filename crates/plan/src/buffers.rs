//! CapacityBuffers (P §12): what pods they stand for and how many, and what they say of themselves.
//!
//! Owns the arithmetic of replicas, the virtual pods and the two conditions. Where virtual pods go is decided where all pods are placed
//! (`provision`, `disrupt`); nothing here looks at nodes.

mod virtual_pods;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodTemplate, PodTemplateSpec};
use spokeshave_api::conditions::{PROVISIONING, READY_FOR_PROVISIONING, Status};
use spokeshave_api::{CapacityBuffer, CapacityBufferStatus, Condition, LocalReference, labels};
use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_model::{
    Action, Event, EventType, ObjectKind, ObjectRef, ResourceName, Resources, Subresource, pod,
};

use crate::Provisioned;
pub use virtual_pods::{buffer_behind, virtual_pods};

/// The strategy of a buffer that names none; the API server writes it down, too.
const DEFAULT_STRATEGY: &str = "buffer.x-k8s.io/active-capacity";

/// Virtual pods that one buffer may have. Each is placed in every pass, so a slip of the finger must not become a million.
pub const MOST_VIRTUAL_PODS: i32 = 10_000;

/// A kind of workload that a buffer may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// `apps/v1 Deployment`.
    Deployment,
    /// `apps/v1 StatefulSet`.
    StatefulSet,
    /// `apps/v1 ReplicaSet`.
    ReplicaSet,
}

impl WorkloadKind {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            WorkloadKind::Deployment => "Deployment",
            WorkloadKind::StatefulSet => "StatefulSet",
            WorkloadKind::ReplicaSet => "ReplicaSet",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let all = [
            WorkloadKind::Deployment,
            WorkloadKind::StatefulSet,
            WorkloadKind::ReplicaSet,
        ];
        all.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A workload, as far as buffers read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// What its pods look like.
    pub template: PodTemplateSpec,
    /// `spec.replicas`; absent means 1.
    pub replicas: Option<i32>,
}

/// Where the objects are that buffers name.
pub trait Shapes {
    /// A PodTemplate.
    fn pod_template(&self, namespace: &str, name: &str) -> Option<Arc<PodTemplate>>;
    /// A workload.
    fn workload(&self, kind: WorkloadKind, namespace: &str, name: &str) -> Option<Workload>;
}

/// What a buffer stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The shape of its pods.
    pub template: PodTemplateSpec,
    /// Name and generation of the PodTemplate, if the shape comes from one.
    pub pod_template: Option<(String, i64)>,
    /// How many.
    pub replicas: i32,
}

/// Why a buffer stands for nothing: the reason and the message of its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// `PodTemplateNotFound`, `ScalableRefNotFound` or `ResolutionFailed`.
    pub reason: &'static str,
    /// In words.
    pub message: String,
}

fn failed<T>(message: impl Into<String>) -> Result<T, Unresolved> {
    Err(Unresolved {
        reason: "ResolutionFailed",
        message: message.into(),
    })
}

/// P-185: the pods that a buffer stands for.
///
/// # Errors
/// It names nothing, something that is not there, or something that buffers do not know.
pub fn resolve(buffer: &CapacityBuffer, shapes: &impl Shapes) -> Result<Resolved, Unresolved> {
    let namespace = buffer.metadata.namespace.as_deref().unwrap_or_default();
    let (template, pod_template, workload_replicas) =
        match (&buffer.spec.pod_template_ref, &buffer.spec.scalable_ref) {
            (Some(reference), _) => {
                let name = &reference.name;
                let Some(found) = shapes.pod_template(namespace, name) else {
                    return Err(Unresolved {
                        reason: "PodTemplateNotFound",
                        message: format!("PodTemplate {name:?} not found"),
                    });
                };
                let generation = found.metadata.generation.unwrap_or_default();
                (
                    found.template.clone().unwrap_or_default(),
                    Some((name.clone(), generation)),
                    0,
                )
            }
            (None, Some(reference)) => {
                let group = reference.api_group.as_deref().filter(|group| !group.is_empty());
                if let Some(group) = group.filter(|group| *group != "apps") {
                    return failed(format!(
                        "unsupported scalableRef API group {group:?}, expected apps"
                    ));
                }
                let Some(kind) = WorkloadKind::parse(&reference.kind) else {
                    let kind = &reference.kind;
                    return failed(format!(
                        "unsupported kind {kind:?}, expected Deployment, StatefulSet or ReplicaSet"
                    ));
                };
                let Some(found) = shapes.workload(kind, namespace, &reference.name) else {
                    return Err(Unresolved {
                        reason: "ScalableRefNotFound",
                        message: format!("{}.apps {:?} not found", reference.kind, reference.name),
                    });
                };
                (found.template, None, found.replicas.unwrap_or(1))
            }
            (None, None) => return failed("Neither podTemplateRef nor scalableRef is set"),
        };
    let replicas = replicas(buffer, &template, workload_replicas)?;
    Ok(Resolved {
        template,
        pod_template,
        replicas,
    })
}

/// P-185: the larger of `replicas` and `percentage` of the workload, as far as `limits` allow; with neither, what the limits allow.
fn replicas(buffer: &CapacityBuffer, template: &PodTemplateSpec, workload: i32) -> Result<i32, Unresolved> {
    let spec = &buffer.spec;
    // A PodTemplate has no replicas to take a share of. A workload that is scaled to zero has a share, which is none: without one, all that the limits allow
    // would be bought.
    let percentage = spec.percentage.filter(|_| spec.pod_template_ref.is_none());
    let share = percentage.map(|percentage| {
        let product = i64::from(workload.max(0)) * i64::from(percentage.max(0));
        // Rounded up, so that any percentage of anything is at least one.
        (product + 99) / 100
    });
    let wanted = spec.replicas.map(i64::from).into_iter().chain(share).max();
    let fit = limit(buffer, template)?;
    let count = match (wanted, fit) {
        (Some(wanted), Some(fit)) => wanted.min(fit),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => 0,
    };
    if count > i64::from(MOST_VIRTUAL_PODS) {
        return failed(format!(
            "the buffer asks for {count} virtual pods, expected at most {MOST_VIRTUAL_PODS}; lower replicas, percentage or limits"
        ));
    }
    Ok(i32::try_from(count.max(0)).unwrap_or(MOST_VIRTUAL_PODS))
}

/// How many pods fit into the limits: the fewest over the resources that both name. Without any in common there is no limit.
fn limit(buffer: &CapacityBuffer, template: &PodTemplateSpec) -> Result<Option<i64>, Unresolved> {
    let mut requests = template
        .spec
        .as_ref()
        .map(pod::requests_of_template)
        .unwrap_or_default();
    requests.remove(ResourceName::PODS);
    let mut fewest: Option<i64> = None;
    for (name, quantity) in &buffer.spec.limits {
        let Ok(limit) = Resources::parse([(name.as_str(), quantity.0.as_str())]) else {
            let text = &quantity.0;
            return failed(format!(
                "spec.limits[{name}]: {text:?} is no quantity, expected one such as 4 or 8Gi"
            ));
        };
        let request = requests.get(name);
        if request > 0 {
            let fit = limit.get(name).div_euclid(request);
            fewest = Some(fewest.map_or(fit, |fewest| fewest.min(fit)));
        }
    }
    Ok(fewest)
}

/// A buffer by name and UID.
#[must_use]
pub fn buffer_ref(buffer: &CapacityBuffer) -> ObjectRef {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let meta = &buffer.metadata;
    ObjectRef::namespaced(
        ObjectKind::CapacityBuffer,
        &text(&meta.namespace),
        &text(&meta.name),
        &text(&meta.uid),
    )
}

/// P-185: the write that says what a buffer was resolved to; none when it says so already.
#[must_use]
pub fn status_action(
    buffer: &CapacityBuffer,
    resolution: &Result<Resolved, Unresolved>,
    now: Timestamp,
) -> Option<Action> {
    let mut after = buffer.clone();
    let generation = buffer.metadata.generation;
    let status = after.status.get_or_insert_default();
    let strategy = buffer
        .spec
        .provisioning_strategy
        .as_deref()
        .unwrap_or(DEFAULT_STRATEGY);
    status.provisioning_strategy = Some(strategy.to_owned());
    let condition = match resolution {
        Ok(resolved) => {
            let template = resolved.pod_template.as_ref();
            status.pod_template_ref = template.map(|(name, _)| LocalReference { name: name.clone() });
            status.pod_template_generation = template.map(|(_, generation)| *generation);
            status.replicas = Some(resolved.replicas);
            (Status::True, "Resolved", "Pod template resolved successfully")
        }
        Err(unresolved) => (Status::False, unresolved.reason, unresolved.message.as_str()),
    };
    set_condition(status, READY_FOR_PROVISIONING, condition, generation, now);
    Action::patch(buffer_ref(buffer), Subresource::Status, buffer, &after, true)
}

/// As apimachinery does: in place, and with a new time only for a new status.
fn set_condition(
    status: &mut CapacityBufferStatus,
    type_: &str,
    (value, reason, message): (Status, &str, &str),
    generation: Option<i64>,
    now: Timestamp,
) {
    let known = status
        .conditions
        .iter_mut()
        .find(|condition| condition.type_ == type_);
    let same = known
        .as_ref()
        .filter(|condition| condition.status == value.as_str());
    let since = same.map_or_else(
        || spokeshave_api::whole_seconds(now),
        |condition| condition.last_transition_time,
    );
    let condition = Condition {
        type_: type_.to_owned(),
        status: value.as_str().to_owned(),
        observed_generation: generation,
        last_transition_time: since,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    match known {
        Some(known) => *known = condition,
        None => status.conditions.push(condition),
    }
}

/// What a pass found for the virtual pods of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Pods that have room on nodes that are there.
    pub existing: i32,
    /// Pods for which a node is to come.
    pub launched: i32,
    /// Pods without a place.
    pub failed: i32,
}

/// Counts what a pass found, by `namespace/name` of the buffer.
#[must_use]
pub fn tally(snapshot: &Snapshot, outcome: &Provisioned) -> BTreeMap<String, Tally> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut count = |pods: &mut dyn Iterator<Item = PodId>, add: fn(&mut Tally)| {
        for pod in pods {
            if let Some(buffer) = buffer_of(snapshot, pod) {
                add(tallies.entry(buffer).or_default());
            }
        }
    };
    let placements = &outcome.placements;
    count(&mut placements.existing.values().flatten().copied(), |tally| {
        tally.existing += 1
    });
    let claims = placements.claims.iter().flat_map(|claim| &claim.pods);
    count(&mut claims.copied(), |tally| tally.launched += 1);
    let unplaced = outcome.unschedulable.iter().map(|unplaced| unplaced.pod);
    let ignored = outcome.ignored.iter().map(|(pod, _)| *pod);
    count(&mut unplaced.chain(ignored), |tally| tally.failed += 1);
    tallies
}

/// `namespace/name` of the buffer that a virtual pod belongs to.
#[must_use]
pub fn buffer_of(snapshot: &Snapshot, pod: PodId) -> Option<String> {
    let view = snapshot.pod(pod);
    let annotations = view
        .object
        .metadata
        .annotations
        .as_ref()
        .filter(|_| view.is_virtual)?;
    let namespace = annotations.get(labels::CAPACITY_BUFFER_NAMESPACE)?;
    let name = annotations.get(labels::CAPACITY_BUFFER_NAME)?;
    Some(format!("{namespace}/{name}"))
}

/// P-185: the write that says whether a buffer's room is there; none when it says so already, or when nothing was found out.
#[must_use]
pub fn provisioning_action(buffer: &CapacityBuffer, tally: Option<Tally>, now: Timestamp) -> Option<Action> {
    let status = buffer.status.as_ref();
    let conditions = status
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|condition| condition.type_ == READY_FOR_PROVISIONING && condition.status == "True");
    let desired = status.and_then(|status| status.replicas).unwrap_or(0);
    let (value, reason, message) = if !ready {
        let message = "Buffer is not ReadyForProvisioning".to_owned();
        (Status::False, "NotReadyForProvisioning", message)
    } else if desired <= 0 {
        (
            Status::False,
            "BufferEmpty",
            "Buffer has zero desired replicas".to_owned(),
        )
    } else {
        let tally = tally?;
        if tally.existing >= desired {
            let message = format!("All {desired} virtual pods fit on existing capacity");
            (Status::True, "FitsExistingCapacity", message)
        } else {
            // Pods that are set aside until their node has an instance wait for new capacity, too.
            let launched = (desired - tally.existing - tally.failed).max(0);
            let failed = tally.failed;
            let message = format!("{launched}/{desired} virtual pods required new capacity, {failed} failed");
            (Status::False, "RequiresNewCapacity", message)
        }
    };
    let mut after = buffer.clone();
    let generation = buffer.metadata.generation;
    let status = after.status.get_or_insert_default();
    set_condition(status, PROVISIONING, (value, reason, &message), generation, now);
    Action::patch(buffer_ref(buffer), Subresource::Status, buffer, &after, true)
}

/// B-52: the event for virtual pods without a place is about the buffer, which exists.
#[must_use]
pub fn failed_event(buffer: &CapacityBuffer, count: usize, reason: &str) -> Event {
    let message = format!("Failed to schedule {count} virtual pod(s), {reason}");
    Event::new(
        buffer_ref(buffer),
        EventType::Warning,
        "FailedScheduling",
        message,
    )
    .within_seconds(300)
}

#[cfg(test)]
mod tests;
