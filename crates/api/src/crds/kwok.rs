//! The definitions of KWOKNodeClass (P §1.5) and KWOKInstance.

use serde_json::{Value, json};

use super::shared;
use super::{Definition, column, wide_column};
use crate::{KWOKInstance, KWOKNodeClass};

pub(super) fn node_class() -> Value {
    let spec = json!({
        "description": "Configuration of the machines.",
        "type": "object",
        "properties": {
            "nodeRegistrationDelay": shared::duration("Time between the launch of an instance and the appearance of its Node, such as 30s."),
        },
    });
    let status = json!({
        "description": "Whether the class is ready. A new object is.",
        "type": "object",
        "default": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2024-01-01T01:01:01Z",
        }]},
        "properties": {"conditions": shared::conditions(false)},
    });
    Definition {
        group: KWOKNodeClass::GROUP,
        version: KWOKNodeClass::VERSION,
        kind: KWOKNodeClass::KIND,
        plural: KWOKNodeClass::PLURAL,
        namespaced: false,
        categories: &["karpenter"],
        short_names: &["kwoknc", "kwokncs"],
        columns: vec![
            column(
                "Ready",
                "string",
                ".status.conditions[?(@.type==\"Ready\")].status",
            ),
            column("Age", "date", ".metadata.creationTimestamp"),
        ],
        scale: None,
        schema: shared::object_without_required_spec(
            "A class of simulated machines: their nodes exist only as objects.",
            &spec,
            &status,
        ),
    }
    .build()
}

pub(super) fn instance() -> Value {
    let text = |description: &str| json!({"description": description, "type": "string"});
    let texts = |description: &str| json!({"description": description, "type": "object", "additionalProperties": {"type": "string"}});
    let spec = json!({
        "description": "What was launched.",
        "type": "object",
        "required": ["nodeClaimName", "nodeClaimUID", "instanceType", "zone", "capacityType", "price", "nodeName"],
        "properties": {
            "nodeClaimName": text("Name of the NodeClaim that asked for the instance."),
            "nodeClaimUID": text("UID of the NodeClaim that asked for the instance."),
            "nodePool": text("NodePool of that NodeClaim."),
            "instanceType": text("Instance type."),
            "zone": text("Zone."),
            "capacityType": text("spot, on-demand or reserved."),
            "price": text("Price per hour."),
            "nodeName": text("Name of the instance's Node."),
            "imageID": text("Image that the instance runs."),
            "labels": texts("Labels of the instance's Node."),
            "taints": shared::taints("Taints of the instance's Node."),
            "capacity": shared::quantities("Capacity."),
            "allocatable": shared::quantities("Capacity that pods may use."),
            "tags": texts("Owner of the instance."),
            "registrationDelay": shared::duration("Time until the instance's Node appears; unset if it never will."),
        },
    });
    let status = json!({
        "description": "The observed state.",
        "type": "object",
        "properties": {
            "phase": text("Pending, Running, or Terminating once termination was requested."),
            "terminationStarted": {"description": "When its termination was requested.", "type": "string", "format": "date-time"},
            "conditions": shared::conditions(true),
        },
    });
    Definition {
        group: KWOKInstance::GROUP,
        version: KWOKInstance::VERSION,
        kind: KWOKInstance::KIND,
        plural: KWOKInstance::PLURAL,
        namespaced: false,
        categories: &[],
        short_names: &["kwoki"],
        columns: vec![
            column("Type", "string", ".spec.instanceType"),
            column("Capacity", "string", ".spec.capacityType"),
            column("Zone", "string", ".spec.zone"),
            column("Price", "string", ".spec.price"),
            column("Phase", "string", ".status.phase"),
            column("NodeClaim", "string", ".spec.nodeClaimName"),
            column("Age", "date", ".metadata.creationTimestamp"),
            wide_column("Node", "string", ".spec.nodeName"),
        ],
        scale: None,
        schema: shared::object(
            "One instance of the kwok cloud: the record that a real cloud would keep in its own database.",
            &spec,
            &status,
        ),
    }
    .build()
}
