//! The definition of NodeClaim (P §1.2).

use serde_json::{Value, json};

use super::shared::{self, Keys, rule};
use super::{Definition, column, wide_column};
use crate::NodeClaim;

pub(super) fn crd() -> Value {
    Definition {
        group: NodeClaim::GROUP,
        version: NodeClaim::VERSION,
        kind: NodeClaim::KIND,
        plural: NodeClaim::PLURAL,
        namespaced: false,
        categories: &["karpenter"],
        short_names: &[],
        columns: vec![
            column("Type", "string", r".metadata.labels.node\.kubernetes\.io/instance-type"),
            column("Capacity", "string", r".metadata.labels.karpenter\.sh/capacity-type"),
            column("Zone", "string", r".metadata.labels.topology\.kubernetes\.io/zone"),
            column("Node", "string", ".status.nodeName"),
            column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
            column("Age", "date", ".metadata.creationTimestamp"),
            wide_column("ImageID", "string", ".status.imageID"),
            wide_column("ID", "string", ".status.providerID"),
            wide_column("NodePool", "string", r".metadata.labels.karpenter\.sh/nodepool"),
            wide_column("NodeClass", "string", ".spec.nodeClassRef.name"),
            wide_column("Drifted", "string", ".status.conditions[?(@.type==\"Drifted\")].status"),
        ],
        scale: None,
        schema: shared::object(
            "A request for one node, from before its launch until after its termination. Deleting it drains and removes the node.",
            &spec(),
            &status(),
        ),
    }
    .build()
}

fn spec() -> Value {
    json!({
        "description": "What the node must be. It cannot be changed.",
        "type": "object",
        "required": ["nodeClassRef", "requirements"],
        "x-kubernetes-validations": [rule("self == oldSelf", "spec is immutable")],
        "properties": {
            "taints": shared::taints("Taints of the node."),
            "startupTaints": shared::taints("Taints that the node starts with and that another component removes once the node is ready for pods."),
            "requirements": shared::requirements("Requirements on the labels of the node. The cloud provider chooses within them.", Keys::Claim),
            "resources": {
                "description": "Resources that the node must provide.",
                "type": "object",
                "properties": {
                    "requests": shared::quantities("Requests of the pods that the node was launched for and of the daemons that will run on it."),
                },
            },
            "nodeClassRef": shared::node_class_ref(&[]),
            "terminationGracePeriod": shared::duration("Maximum duration of the drain. After it, pods are deleted regardless of their PodDisruptionBudgets. No limit if unset."),
            "expireAfter": shared::nillable_duration("Age at which the node is replaced, such as 720h, or Never.", Some("720h")),
        },
    })
}

fn status() -> Value {
    json!({
        "description": "The observed state.",
        "type": "object",
        "properties": {
            "nodeName": {"description": "Name of the Node, once it has joined the cluster.", "type": "string"},
            "providerID": {"description": "Provider ID of the instance, once launched.", "type": "string"},
            "imageID": {"description": "Image that the instance runs.", "type": "string"},
            "capacity": shared::quantities("Capacity that the instance type promises."),
            "allocatable": shared::quantities("Capacity that pods may use."),
            "lastPodEventTime": {"description": "When a pod was last added to the node or removed from it; consolidateAfter counts from here.", "type": "string", "format": "date-time"},
            "conditions": shared::conditions(true),
        },
    })
}
