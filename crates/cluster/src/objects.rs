//! Small questions about objects that several parts ask.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};

/// The name, or nothing.
pub fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// The namespace, or nothing.
pub fn namespace(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or_default()
}

/// The UID, or nothing.
pub fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

/// Whether its deletion was requested.
pub fn is_deleting(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

/// `namespace/name`.
pub fn key(metadata: &ObjectMeta) -> String {
    format!("{}/{}", namespace(metadata), name(metadata))
}

/// The node that a pod is bound to, or nothing.
pub fn node_of(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// The phase of a pod, or nothing.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Whether a pod has succeeded or failed for good.
pub fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// The condition of this type.
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == kind)
}

/// Whether a pod is Ready.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// The status of a node's condition of this type, if it has one.
pub fn node_condition<'a>(node: &'a Node, kind: &str) -> Option<&'a str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some(found.status.as_str())
}

/// The status of a node's condition Ready, if it has one.
pub fn node_readiness(node: &Node) -> Option<&str> {
    node_condition(node, "Ready")
}

/// Whether a node is Ready.
pub fn is_node_ready(node: &Node) -> bool {
    node_readiness(node) == Some("True")
}

/// Whether a node's kubelet has fallen silent, as that of a lost machine: nobody knows whether the node is Ready.
pub fn is_node_silent(node: &Node) -> bool {
    node_readiness(node) == Some("Unknown")
}

/// Whether somebody has said that nothing runs on a node any more, and that what it had may be used elsewhere.
pub fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let mut taints = taints.into_iter().flatten();
    taints.any(|taint| taint.key == "node.kubernetes.io/out-of-service")
}

/// The owner that controls an object.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata
        .owner_references
        .as_ref()?
        .iter()
        .find(|owner| owner.controller == Some(true))
}

/// A reference to the object as the controller of another.
pub fn owner(api_version: &str, kind: &str, metadata: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name(metadata).to_owned(),
        uid: uid(metadata).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Whole seconds, as the API keeps them.
pub fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// Whether a selector matches labels. A missing selector matches nothing, an empty one everything.
pub fn selects(selector: Option<&LabelSelector>, labels: Option<&BTreeMap<String, String>>) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    selector.is_some_and(|selector| spokeshave_api::selects(selector, labels.unwrap_or(&NONE)))
}
