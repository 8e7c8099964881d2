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
            "One command to take nodes away: what was decided, and how far it has come. Written by the operator only; deleting one that is under way makes the operator take it back.",
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
            "decision": text("Delete: nodes go and nothing comes. Replace: nodes go once their replacements are initialised."),
            "decidedAt": time("When it was decided, by the clock of the operator."),
            "nodes": {
                "description": "The nodes that go.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "minItems": 1,
                "items": node(),
            },
            "replacements": {
                "description": "What comes instead, before the nodes go.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": replacement(),
            },
            "destinations": {
                "description": "Names of the nodes that are to take the pods. If one is lost before the others go, the command is rolled back.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {"type": "string"},
            },
            "priceBefore": text("Dollars per hour of the nodes that go."),
            "priceAfter": text("Dollars per hour of the replacements."),
            "savings": text("Dollars per hour that are saved; negative when the replacements are dearer."),
            "evictions": number("Pods that have to move."),
            "budgets": {
                "description": "The budgets as they were when the command was decided, with what it took.",
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
            "nodeSummary": text("The nodes in a few words."),
            "replacementSummary": text("The replacements in a few words."),
        },
    })
}

fn node() -> Value {
    json!({
        "description": "One node that goes.",
        "type": "object",
        "required": ["name", "nodeClaim", "nodeClaimUID", "providerID", "nodePool", "price", "pods"],
        "properties": {
            "name": text("Name of the Node."),
            "nodeClaim": text("Name of its NodeClaim."),
            "nodeClaimUID": text("UID of its NodeClaim; a later NodeClaim of that name is never touched."),
            "providerID": text("The cloud's name of its instance."),
            "nodePool": text("Its NodePool."),
            "instanceType": text("Its instance type."),
            "zone": text("Its zone."),
            "capacityType": text("Its capacity type."),
            "price": text("Dollars per hour."),
            "pods": number("Pods on it that have to move."),
            "createdAt": time("When its NodeClaim was created; written where a DisruptionPolicy judges over time."),
            "workloads": {
                "description": "Of these, pods of workloads that ask for a quota of moves.",
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
        "description": "One node that comes.",
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
        "description": "How far it has come.",
        "type": "object",
        "properties": {
            "phase": text("Starting, Replacing, Deleting, Draining, Succeeded or RolledBack."),
            "message": text("What it waits for, or why it ended."),
            "rollBackCause": text("Why it was rolled back: Interrupted, NodesGone, Protected, LimitExceeded, ReplacementLost, ReplacementLate, PodBound, PlaceLost or TimedOut."),
            "startedAt": time("When all nodes were tainted and all replacements created."),
            "deletedAt": time("When the deletion of the nodes began."),
            "finishedAt": time("When it ended."),
            "realisedSavings": text("Dollars per hour that were saved in fact, with the replacements as they were launched; spec.savings is what was predicted."),
        },
    })
}
