//! The definition of CapacityBuffer (P §1.4).

use serde_json::{Value, json};

use super::shared::{self, rule};
use super::{Definition, column};
use crate::CapacityBuffer;

pub(super) fn crd() -> Value {
    let name = json!({"description": "Name of the object, in the same namespace.", "type": "string", "minLength": 1});
    let spec = json!({
        "description": "How much capacity to reserve, in pods of which shape.",
        "type": "object",
        "x-kubernetes-validations": [
            rule("!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)", "If podTemplateRef is set, replicas or limits must also be set"),
            rule("!(has(self.podTemplateRef) && has(self.scalableRef))", "You must define either PodTemplateRef or ScalableRef, but not both"),
        ],
        "properties": {
            "provisioningStrategy": {"description": "How the capacity is reserved.", "type": "string", "default": "buffer.x-k8s.io/active-capacity"},
            "podTemplateRef": {
                "description": "PodTemplate that defines the shape of the pods.",
                "type": "object",
                "required": ["name"],
                "properties": {"name": name},
            },
            "scalableRef": {
                "description": "Deployment, StatefulSet or ReplicaSet that defines the shape of the pods.",
                "type": "object",
                "required": ["kind", "name"],
                "properties": {
                    "apiGroup": {"description": "API group of the workload; apps if unset.", "type": "string"},
                    "kind": {"description": "Kind of the workload.", "type": "string", "minLength": 1},
                    "name": name,
                },
            },
            "replicas": {"description": "Number of pods.", "type": "integer", "format": "int32", "minimum": 0},
            "percentage": {"description": "Number of pods, in percent of the workload's replicas. If replicas is set too, the larger one applies.", "type": "integer", "format": "int32", "minimum": 0},
            "limits": shared::quantities("Maximum resources of the reserved capacity."),
        },
    });
    let status = json!({
        "description": "What the buffer resolved to.",
        "type": "object",
        "properties": {
            "podTemplateRef": {
                "description": "PodTemplate in use.",
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"description": "Name.", "type": "string", "minLength": 1}},
            },
            "podTemplateGeneration": {"description": "Its generation.", "type": "integer", "format": "int64"},
            "replicas": {"description": "Number of pods in effect.", "type": "integer", "format": "int32"},
            "provisioningStrategy": {"description": "Strategy in effect.", "type": "string"},
            "conditions": shared::conditions(false),
        },
    });
    Definition {
        group: CapacityBuffer::GROUP,
        version: CapacityBuffer::VERSION,
        kind: CapacityBuffer::KIND,
        plural: CapacityBuffer::PLURAL,
        namespaced: true,
        categories: &["autoscaling"],
        short_names: &["cb"],
        columns: vec![
            column("Strategy", "string", ".spec.provisioningStrategy"),
            column("PodTemplate", "string", ".status.podTemplateRef.name"),
            column("Replicas", "integer", ".status.replicas"),
            column("ConditionsType", "string", ".status.conditions[*].type"),
            column("ConditionsStatus", "string", ".status.conditions[*].status"),
            column("ConditionsReason", "string", ".status.conditions[*].reason"),
            column("Age", "date", ".metadata.creationTimestamp"),
        ],
        scale: None,
        schema: shared::object(
            "Spare capacity that is kept for future pods. Alpha.",
            &spec,
            &status,
        ),
    }
    .build()
}
