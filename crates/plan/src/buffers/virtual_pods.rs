//! The virtual pods of a CapacityBuffer (P §12): pods that exist in memory only, so that room is planned for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::{CapacityBuffer, labels};
use spokeshave_model::pod::{default_requests, is_virtual};
use spokeshave_model::trim;
use spokeshave_model::{ObjectKind, ObjectRef, Pod};

use super::Resolved;

/// The lowest priority there is; nothing is ordered by it.
const PRIORITY: i32 = i32::MIN;

/// P-185: the virtual pods of a buffer: `capacity-buffer-<name>-<i>` from 1 on, with the labels of the template. The same buffer gives the same pods.
#[must_use]
pub fn virtual_pods(buffer: &CapacityBuffer, resolved: &Resolved) -> Vec<Pod> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let meta = &buffer.metadata;
    let (name, namespace, uid) = (text(&meta.name), text(&meta.namespace), text(&meta.uid));
    let annotations = BTreeMap::from([
        (labels::CAPACITY_BUFFER_FAKE_POD.to_owned(), "true".to_owned()),
        (labels::CAPACITY_BUFFER_NAME.to_owned(), name.clone()),
        (labels::CAPACITY_BUFFER_NAMESPACE.to_owned(), namespace.clone()),
    ]);
    let template = resolved.template.metadata.as_ref();
    let mut first = Pod {
        metadata: ObjectMeta {
            namespace: Some(namespace),
            labels: template.and_then(|template| template.labels.clone()),
            creation_timestamp: meta.creation_timestamp.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(Arc::new(without_place(
            resolved.template.spec.clone().unwrap_or_default(),
        ))),
        node_name: None,
        status: Some(unschedulable()),
    };
    trim::pod(&mut first);
    first.metadata.annotations = Some(annotations);
    let numbered = |number: i32| {
        let mut pod = first.clone();
        pod.metadata.name = Some(format!("capacity-buffer-{name}-{number}"));
        pod.metadata.uid = Some(format!("{uid}-{number}"));
        pod
    };
    (1..=resolved.replicas).map(numbered).collect()
}

/// The buffer that a virtual pod stands for, by name and UID; `None` for a pod that exists.
#[must_use]
pub fn buffer_behind(pod: &Pod) -> Option<ObjectRef> {
    let annotations = pod.metadata.annotations.as_ref().filter(|_| is_virtual(pod))?;
    let (uid, _) = pod.metadata.uid.as_deref()?.rsplit_once('-')?;
    Some(ObjectRef::namespaced(
        ObjectKind::CapacityBuffer,
        annotations.get(labels::CAPACITY_BUFFER_NAMESPACE)?,
        annotations.get(labels::CAPACITY_BUFFER_NAME)?,
        uid,
    ))
}

/// What ties a pod to something that only a pod that exists can have: a node, and claims for volumes. Other volumes bind to no place.
fn without_place(mut spec: PodSpec) -> PodSpec {
    spec.node_name = None;
    spec.priority = Some(PRIORITY);
    spec.volumes = None;
    // Nobody else will: it never passes an API server.
    default_requests(&mut spec);
    spec
}

/// What kube-scheduler says of a pod without a place.
fn unschedulable() -> PodStatus {
    PodStatus {
        conditions: Some(vec![PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("Unschedulable".to_owned()),
            ..PodCondition::default()
        }]),
        ..PodStatus::default()
    }
}
