//! The definition of Disruption: the ledger of commands.

use serde_json::{Value, json};

use super::shared::{self, rule};
use super::{Definition, column, wide_column};
use crate::disruption::Disruption;

pub(super) fn crd() -> Value {
    Definition {
        group: Disruption::GROUP,
        version: Disruption::VERSION,
        kind: Disruption::KIND,
        plural: Disruption::PLURAL,
        namespaced: false,
        categories: &["karpenter"],
        short_names: &["disr"],
        columns: vec![
            column("Reason", "string", ".spec.reason"),
            column("Decision", "string", ".spec.decision"),
            column("Nodes", "string", ".spec.nodeSummary"),
            column("Replacements", "string", ".spec.replacementSummary"),
            column("Savings/h", "string", ".spec.savings"),
            column("Phase", "string", ".status.phase"),
            column("Age", "date", ".metadata.creationTimestamp"),
            wide_column("Method", "string", ".spec.method"),
            wide_column("Realised/h", "string", ".status.realisedSavings"),
            wide_column("Evictions", "integer", ".spec.evictions"),
            wide_column("Message", "string", ".status.message"),
        ],
        scale: None,
        schema: shared::object(
            "One disruption command: what was decided, and its progress. Written by the operator only; deleting one that is in progress makes the operator roll it back.",
            &spec(),
            &status(),
        ),
    }
    .build()
}

fn text(description: &str) -> Value {
    json!({"description": description, "type": "string"})
}

fn number(description: &str) -> Value {
    json!({"description": description, "type": "integer", "format": "int64"})
}

fn time(description: &str) -> Value {
    json!({"description": description, "type": "string", "format": "date-time"})
}

fn spec() -> Value {
    json!({
        "description": "What was decided. It cannot be changed.",
        "type": "object",
        "required": ["method", "reason", "decision", "decidedAt", "nodes", "priceBefore", "priceAfter", "savings", "evictions", "nodeSummary", "replacementSummary"],
        "x-kubernetes-validations": [rule("self == oldSelf", "spec is immutable")],
        "properties": {
            "method": text("Who decided: Emptiness, StaticDrift, Drift, StaticExpiry, Expiry, MultiNodeConsolidation or SingleNodeConsolidation."),
            "reason": text("Why: Empty, Drifted, Expired or Underutilized. Budgets are charged by reason."),
            "decision": text("Delete: nodes are removed without replacement. Replace: nodes are removed once their replacements are initialized."),
            "decidedAt": time("When it was decided, by the operator's clock."),
            "nodes": {
                "description": "The nodes to be removed.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "minItems": 1,
                "items": node(),
            },
            "replacements": {
                "description": "The replacements, launched before the nodes are removed.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": replacement(),
            },
            "destinations": {
                "description": "Names of the nodes that will take the pods. If one is lost before the others are removed, the command is rolled back.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {"type": "string"},
            },
            "priceBefore": text("Dollars per hour of the nodes to be removed."),
            "priceAfter": text("Dollars per hour of the replacements."),
            "savings": text("Dollars per hour saved; negative if the replacements cost more."),
            "evictions": number("Pods that have to be rescheduled."),
            "budgets": {
                "description": "The budgets when the command was decided, and what it used of them.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "The budget of one NodePool.",
                    "type": "object",
                    "required": ["nodePool", "allowed", "disrupting", "charged"],
                    "properties": {
                        "nodePool": text("The NodePool."),
                        "allowed": number("Nodes that may be disrupting at once for this reason."),
                        "disrupting": number("Nodes that were disrupting before."),
                        "charged": number("Nodes that this command added."),
                    },
                },
            },
            "nodeSummary": text("Summary of the nodes."),
            "replacementSummary": text("Summary of the replacements."),
        },
    })
}

fn node() -> Value {
    json!({
        "description": "A node to be removed.",
        "type": "object",
        "required": ["name", "nodeClaim", "nodeClaimUID", "providerID", "nodePool", "price", "pods"],
        "properties": {
            "name": text("Name of the Node."),
            "nodeClaim": text("Name of its NodeClaim."),
            "nodeClaimUID": text("UID of its NodeClaim; a later NodeClaim with the same name is never touched."),
            "providerID": text("Provider ID of its instance."),
            "nodePool": text("Its NodePool."),
            "instanceType": text("Its instance type."),
            "zone": text("Its zone."),
            "capacityType": text("Its capacity type."),
            "price": text("Dollars per hour."),
            "pods": number("Pods on it that have to be rescheduled."),
            "createdAt": time("When its NodeClaim was created; set if a DisruptionPolicy with convergence applies."),
            "workloads": {
                "description": "Of these, pods of workloads that limit their moves per day.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "Pods of one workload.",
                    "type": "object",
                    "required": ["name", "pods"],
                    "properties": {"name": text("Such as Deployment/shop/web."), "pods": number("How many.")},
                },
            },
        },
    })
}

fn replacement() -> Value {
    json!({
        "description": "A replacement node.",
        "type": "object",
        "required": ["nodeClaim", "nodePool", "price", "spec"],
        "properties": {
            "nodeClaim": text("Name of its NodeClaim, chosen before it is created."),
            "nodePool": text("Its NodePool."),
            "nodePoolUID": text("UID of its NodePool, which owns the NodeClaim."),
            "price": text("Dollars per hour of the cheapest way to launch it."),
            "metadata": {
                "description": "Labels and annotations of the NodeClaim.",
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
            },
            "spec": {
                "description": "Spec of the NodeClaim.",
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
            },
        },
    })
}

fn status() -> Value {
    json!({
        "description": "Progress of the command.",
        "type": "object",
        "properties": {
            "phase": text("Starting, Replacing, Deleting, Draining, Succeeded or RolledBack."),
            "message": text("What it is waiting for, or why it ended."),
            "rollBackCause": text("Why it was rolled back: Interrupted, NodesGone, Protected, NotDrifted, LimitExceeded, ReplacementRefused, ReplacementLost, ReplacementLate, PodBound, PlaceLost or TimedOut."),
            "startedAt": time("When all nodes were tainted and all replacements created."),
            "deletedAt": time("When deletion of the nodes started."),
            "finishedAt": time("When it ended."),
            "realisedSavings": text("Dollars per hour actually saved, with the replacements as launched; spec.savings is the prediction."),
        },
    })
}
