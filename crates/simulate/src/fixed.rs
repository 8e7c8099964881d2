//! Nodes that no NodePool owns, such as those of managed node groups: capacity that is there from the start to the end.
//!
//! Owns which of a dump's a run can begin with, and how they are written for it. The operator neither buys nor removes them, so that they have no price here.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use spokeshave_api::labels::{disrupted_taint, unregistered_taint};
use spokeshave_model::taint::same_taint;
use spokeshave_model::{labels as well_known, state_node};

use crate::left_out::Why;
use crate::standing::{label, name_of};

/// What one is: instance type and zone, as the event log has them, as far as its labels tell.
#[must_use]
pub fn said(node: &Node) -> String {
    let told = |key: &str| label(node, key).filter(|told| !told.is_empty()).unwrap_or("-");
    format!("{} {}", told(well_known::INSTANCE_TYPE), told(well_known::ZONE))
}

/// Why no run can begin with one.
pub(crate) fn judge(node: &Node) -> Result<(), Why> {
    if node.metadata.deletion_timestamp.is_some() {
        return Err(Why::Deleting);
    }
    if !state_node::is_node_ready(node) {
        return Err(Why::NotReady);
    }
    match allocatable(node) {
        Some(_) => Ok(()),
        None => Err(Why::NoAllocatable),
    }
}

/// What pods can have of one: all of it where nothing is said to be set aside, as kubelets have it.
fn allocatable(node: &Node) -> Option<&BTreeMap<String, Quantity>> {
    let status = node.status.as_ref()?;
    let mut told = [&status.allocatable, &status.capacity].into_iter().flatten();
    told.find(|amounts| !amounts.is_empty())
}

/// The Node as it would be if nothing were under way; one that is cordoned stays so.
pub(crate) fn written(node: &Node, number: usize, moved: &impl Fn(Timestamp) -> Timestamp) -> Node {
    let allocatable = allocatable(node).cloned().unwrap_or_default();
    let capacity = node.status.as_ref().and_then(|status| status.capacity.clone());
    let capacity = capacity.filter(|amounts| !amounts.is_empty());
    Node {
        metadata: ObjectMeta {
            name: Some(name_of(node).to_owned()),
            uid: Some(format!("fixed-{number}")),
            labels: node.metadata.labels.clone(),
            annotations: node.metadata.annotations.clone(),
            creation_timestamp: moved_creation(&node.metadata, moved),
            ..ObjectMeta::default()
        },
        spec: Some(lasting_spec(node)),
        status: Some(ready_status(
            capacity.unwrap_or_else(|| allocatable.clone()),
            allocatable,
        )),
    }
}

/// When an object was made, by the clock of the simulation.
pub(crate) fn moved_creation(metadata: &ObjectMeta, moved: &impl Fn(Timestamp) -> Timestamp) -> Option<Time> {
    let created = metadata.creation_timestamp.as_ref();
    created.map(|created| Time(moved(created.0)))
}

/// The spec of a Node without the taints of what is under way: no command is.
pub(crate) fn lasting_spec(node: &Node) -> NodeSpec {
    let spec = node.spec.clone().unwrap_or_default();
    let passing = [disrupted_taint(), unregistered_taint()];
    let mut taints = spec.taints.unwrap_or_default();
    taints.retain(|taint| !passing.iter().any(|one| same_taint(taint, one)));
    NodeSpec {
        provider_id: spec.provider_id.filter(|id| !id.is_empty()),
        taints: Some(taints),
        unschedulable: spec.unschedulable,
        ..NodeSpec::default()
    }
}

/// The status of a Node that is ready.
pub(crate) fn ready_status(
    capacity: BTreeMap<String, Quantity>,
    allocatable: BTreeMap<String, Quantity>,
) -> NodeStatus {
    NodeStatus {
        capacity: Some(capacity),
        allocatable: Some(allocatable),
        conditions: Some(vec![NodeCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            ..NodeCondition::default()
        }]),
        ..NodeStatus::default()
    }
}
