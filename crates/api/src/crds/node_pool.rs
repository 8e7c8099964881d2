//! The definition of NodePool (P §1.1).

use serde_json::{Value, json};

use super::shared::{self, Keys, rule};
use super::{Definition, column, wide_column};
use crate::NodePool;

pub(super) fn crd() -> Value {
    Definition {
        group: NodePool::GROUP,
        version: NodePool::VERSION,
        kind: NodePool::KIND,
        plural: NodePool::PLURAL,
        namespaced: false,
        categories: &["karpenter"],
        short_names: &[],
        columns: vec![
            column("NodeClass", "string", ".spec.template.spec.nodeClassRef.name"),
            column("Nodes", "string", ".status.nodes"),
            column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
            column("Age", "date", ".metadata.creationTimestamp"),
            wide_column("Weight", "integer", ".spec.weight"),
            wide_column("CPU", "string", ".status.resources.cpu"),
            wide_column("Memory", "string", ".status.resources.memory"),
        ],
        scale: Some(json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"})),
        schema: shared::object(
            "The nodes that may be launched for pods that do not fit elsewhere, and the rules for removing them.",
            &spec(),
            &status(),
        ),
    }
    .build()
}

fn spec() -> Value {
    json!({
        "description": "Which nodes may be launched, how many, and how they may be removed.",
        "type": "object",
        "required": ["template"],
        "properties": {
            "template": template(),
            "disruption": disruption(),
            "limits": shared::quantities("Limits over all nodes of this pool, such as cpu: 1000; nodes limits the number of nodes. Nothing is launched beyond them; existing nodes are kept."),
            "weight": {
                "description": "Pools with a higher weight are tried first for new nodes. Absent counts as 0.",
                "type": "integer", "format": "int32", "minimum": 1, "maximum": 100,
            },
            "replicas": {
                "description": "Keeps this number of nodes, whether or not pods need them (a static pool). If unset, nodes follow the pods. Alpha.",
                "type": "integer", "format": "int64", "minimum": 0,
            },
        },
        "x-kubernetes-validations": [
            rule("has(self.replicas) == has(oldSelf.replicas)", "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes"),
            rule("!has(self.replicas) || (!has(self.limits) || size(self.limits) == 0 || (size(self.limits) == 1 && 'nodes' in self.limits))", "only 'limits.nodes' is supported on static NodePools"),
            rule("!has(self.replicas) || !has(self.weight)", "'weight' is not supported on static NodePools"),
        ],
    })
}

fn template() -> Value {
    json!({
        "description": "Template of the nodes of this pool. A change here replaces the nodes launched before it (drift).",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "metadata": {
                "description": "Labels and annotations of the nodes.",
                "type": "object",
                "properties": {
                    "labels": shared::template_labels(),
                    "annotations": {
                        "description": "Annotations that every node of this pool gets.",
                        "type": "object",
                        "additionalProperties": {"type": "string"},
                    },
                },
            },
            "spec": {
                "description": "Properties of the nodes.",
                "type": "object",
                "required": ["nodeClassRef", "requirements"],
                "properties": {
                    "taints": shared::taints("Taints of the nodes. Only pods that tolerate them are placed there."),
                    "startupTaints": shared::taints("Taints that nodes start with and that another component, such as a network agent, removes once the node is ready for pods. Pods need not tolerate them; a node is not initialized until they are removed."),
                    "requirements": shared::requirements("Requirements on the labels of the nodes, such as instance types, zones, architectures. Pods may narrow them further.", Keys::Pool),
                    "nodeClassRef": shared::node_class_ref(&[
                        rule("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
                        rule("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
                    ]),
                    "terminationGracePeriod": shared::duration("Maximum duration of the drain of a node, such as 1h. After it, pods are deleted regardless of their PodDisruptionBudgets. No limit if unset."),
                    "expireAfter": shared::nillable_duration("Age at which a node is replaced, such as 720h, or Never.", Some("720h")),
                },
            },
        },
    })
}

fn disruption() -> Value {
    json!({
        "description": "How nodes of this pool may be disrupted voluntarily.",
        "type": "object",
        "default": {"consolidateAfter": "0s"},
        "properties": {
            "consolidateAfter": shared::nillable_duration("How long to wait after a pod was last added or removed before a node may be consolidated, such as 5m, or Never to keep nodes that are empty or underutilized.", Some("0s")),
            "consolidationPolicy": {
                "description": "WhenEmpty removes only nodes without pods that would have to be rescheduled. WhenEmptyOrUnderutilized also removes or replaces nodes whose pods fit elsewhere or on a cheaper node. Balanced does so when the saving is worth the disruption.",
                "type": "string",
                "enum": ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"],
                "default": "WhenEmptyOrUnderutilized",
            },
            "budgets": {
                "description": "How many nodes may be disrupted voluntarily at once, and when. All budgets that are active and name the reason apply; the smallest wins. Expiry, interruption and deletion by hand are not limited.",
                "type": "array",
                "maxItems": 50,
                "x-kubernetes-list-type": "atomic",
                "default": [{"nodes": "10%"}],
                "x-kubernetes-validations": [rule("self.all(x, has(x.schedule) == has(x.duration))", "'schedule' must be set with 'duration'")],
                "items": budget(),
            },
        },
    })
}

fn budget() -> Value {
    json!({
        "description": "One limit on voluntary disruption.",
        "type": "object",
        "required": ["nodes"],
        "properties": {
            "nodes": {
                "description": "Maximum number of nodes that may be disrupted at once: a number, or a percentage of the pool's nodes, rounded up. 0 means none.",
                "type": "string",
                "default": "10%",
                "pattern": "^((100|[0-9]{1,2})%|[0-9]+)$",
            },
            "reasons": {
                "description": "Reasons that this budget limits. All if unset.",
                "type": "array",
                "maxItems": 50,
                "x-kubernetes-list-type": "set",
                "items": {"type": "string", "enum": ["Underutilized", "Empty", "Drifted"]},
            },
            "schedule": {
                "description": "When the budget starts to apply: five cron fields in UTC, such as 0 9 * * mon-fri, or @daily and the like. Needs duration.",
                "type": "string",
                "pattern": r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$",
            },
            "duration": {
                "description": "How long the budget applies from each time of the schedule, in hours and minutes, such as 8h or 1h30m. Needs schedule.",
                "type": "string",
                "pattern": "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$",
            },
        },
    })
}

fn status() -> Value {
    json!({
        "description": "What the pool consists of and whether it can launch nodes.",
        "type": "object",
        "properties": {
            "nodes": {"description": "Number of nodes.", "type": "integer", "format": "int64", "default": 0},
            "resources": shared::quantities("Capacity of all nodes together."),
            "nodeClassObservedGeneration": {"description": "Generation of the NodeClass that was last observed.", "type": "integer", "format": "int64"},
            "conditions": shared::conditions(false),
        },
    })
}
