//! Pieces of schema that several kinds share (P §1.0).

use serde_json::{Value, json};

pub(super) const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
pub(super) const NILLABLE_DURATION_PATTERN: &str = r"^(([0-9]+(s|m|h))+|Never)$";
pub(super) const DURATION_PATTERN: &str = r"^([0-9]+(s|m|h))+$";
const QUALIFIED_NAME_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
pub(super) const LABEL_VALUE_PATTERN: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

const DOMAIN_MESSAGE: &str = "label domain \"karpenter.sh\" is restricted";
const NODE_POOL_MESSAGE: &str = "label \"karpenter.sh/nodepool\" is restricted";
const HOSTNAME_MESSAGE: &str = "label \"kubernetes.io/hostname\" is restricted";

pub(super) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// Map of resource name to quantity.
pub(super) fn quantities(description: &str) -> Value {
    json!({
        "description": description,
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": true,
        },
    })
}

pub(super) fn nillable_duration(description: &str, default: Option<&str>) -> Value {
    let mut schema =
        json!({"description": description, "type": "string", "pattern": NILLABLE_DURATION_PATTERN});
    if let Some(default) = default {
        schema["default"] = json!(default);
    }
    schema
}

pub(super) fn duration(description: &str) -> Value {
    json!({"description": description, "type": "string", "pattern": DURATION_PATTERN})
}

pub(super) fn taints(description: &str) -> Value {
    json!({
        "description": description,
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "A taint repels pods that do not tolerate it.",
            "type": "object",
            "required": ["effect", "key"],
            "properties": {
                "key": {"description": "Key of the taint.", "type": "string", "minLength": 1, "pattern": QUALIFIED_NAME_PATTERN},
                "value": {"description": "Value of the taint.", "type": "string", "pattern": QUALIFIED_NAME_PATTERN},
                "effect": {
                    "description": "What happens to pods that do not tolerate the taint.",
                    "type": "string",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
                "timeAdded": {"description": "When the taint was added.", "type": "string", "format": "date-time"},
            },
        },
    })
}

/// Which of the key rules a kind has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    Pool,
    Claim,
    Overlay,
}

/// The CEL rules over a key, where `self` is the key.
fn key_rules(keys: Keys, key: &str) -> Vec<Value> {
    let mut rules = vec![rule(
        &format!(
            "{key} in [\"karpenter.sh/capacity-type\", \"karpenter.sh/nodepool\"] || !{key}.find(\"^([^/]+)\").endsWith(\"karpenter.sh\")"
        ),
        DOMAIN_MESSAGE,
    )];
    if keys == Keys::Pool {
        rules.push(rule(
            &format!("{key} != \"karpenter.sh/nodepool\""),
            NODE_POOL_MESSAGE,
        ));
    }
    rules.push(rule(
        &format!("{key} != \"kubernetes.io/hostname\""),
        HOSTNAME_MESSAGE,
    ));
    rules
}

/// The same over all keys of a map, where `self` is the map.
fn map_rules() -> Vec<Value> {
    vec![
        rule(
            "self.all(x, x in [\"karpenter.sh/capacity-type\", \"karpenter.sh/nodepool\"] || !x.find(\"^([^/]+)\").endsWith(\"karpenter.sh\"))",
            DOMAIN_MESSAGE,
        ),
        rule("self.all(x, x != \"karpenter.sh/nodepool\")", NODE_POOL_MESSAGE),
        rule("self.all(x, x != \"kubernetes.io/hostname\")", HOSTNAME_MESSAGE),
    ]
}

pub(super) fn template_labels() -> Value {
    json!({
        "description": "Labels that every node of this pool gets, and that pods may select.",
        "type": "object",
        "maxProperties": 100,
        "x-kubernetes-map-type": "atomic",
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE_PATTERN},
        "x-kubernetes-validations": map_rules(),
    })
}

pub(super) fn requirements(description: &str, keys: Keys) -> Value {
    let numeric = if keys == Keys::Overlay {
        "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value"
    } else {
        "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value"
    };
    let mut rules = vec![rule(
        "self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)",
        "requirements with operator 'In' must have a value defined",
    )];
    if keys == Keys::Overlay {
        rules.push(rule(
            "self.all(x, x.operator == 'NotIn' ? x.values.size() != 0 : true)",
            "requirements with operator 'NotIn' must have a value defined",
        ));
    }
    rules.push(rule(
        "self.all(x, (x.operator == 'Gt' || x.operator == 'Lt' || x.operator == 'Gte' || x.operator == 'Lte') ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)",
        numeric,
    ));
    let mut properties = json!({
        "key": {
            "description": "The label key.",
            "type": "string",
            "maxLength": 316,
            "pattern": QUALIFIED_NAME_PATTERN,
            "x-kubernetes-validations": key_rules(keys, "self"),
        },
        "operator": {
            "description": "How the label is compared: In and NotIn with a list, Exists and DoesNotExist with nothing, Gt, Lt, Gte and Lte with one whole number.",
            "type": "string",
            "enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"],
        },
        "values": {
            "description": "The values to compare with.",
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "maxLength": 63,
            "pattern": LABEL_VALUE_PATTERN,
            "items": {"type": "string"},
        },
    });
    if keys != Keys::Overlay {
        properties["minValues"] = json!({
            "description": "Minimum number of distinct values of this key among the instance types offered for a launch. More choice means fewer failed launches. Alpha.",
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
        });
        rules.push(rule(
            "self.all(x, (x.operator == 'In' && has(x.minValues)) ? x.values.size() >= x.minValues : true)",
            "requirements with 'minValues' must have at least that many values specified in the 'values' field",
        ));
    }
    json!({
        "description": description,
        "type": "array",
        "maxItems": 100,
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": rules,
        "items": {
            "description": "One requirement on the labels of a node.",
            "type": "object",
            "required": ["key", "operator"],
            "properties": properties,
        },
    })
}

pub(super) fn node_class_ref(rules: &[Value]) -> Value {
    let mut schema = json!({
        "description": "The NodeClass, which holds the cloud-specific configuration.",
        "type": "object",
        "required": ["group", "kind", "name"],
        "properties": {
            "group": {
                "description": "API group of the NodeClass.",
                "type": "string",
                "pattern": "^[^/]*$",
                "x-kubernetes-validations": [rule("self != ''", "group may not be empty")],
            },
            "kind": {
                "description": "Kind of the NodeClass.",
                "type": "string",
                "x-kubernetes-validations": [rule("self != ''", "kind may not be empty")],
            },
            "name": {
                "description": "Name of the NodeClass.",
                "type": "string",
                "x-kubernetes-validations": [rule("self != ''", "name may not be empty")],
            },
        },
    });
    if !rules.is_empty() {
        schema["x-kubernetes-validations"] = json!(rules);
    }
    schema
}

/// Conditions; `lax` is the NodeClaim's form, where reason and message may be missing (P §1.2).
pub(super) fn conditions(lax: bool) -> Value {
    let (required, reason) = if lax {
        (
            json!(["lastTransitionTime", "status", "type"]),
            json!({"description": "A reason in CamelCase, for programs.", "type": "string", "maxLength": 1024, "pattern": "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$"}),
        )
    } else {
        (
            json!(["lastTransitionTime", "message", "reason", "status", "type"]),
            json!({"description": "A reason in CamelCase, for programs.", "type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}),
        )
    };
    json!({
        "description": "Conditions of the object, one entry for each type.",
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "A condition of the object.",
            "type": "object",
            "required": required,
            "properties": {
                "type": {
                    "description": "Type of the condition.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
                "status": {"description": "True, False or Unknown.", "type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"description": "Generation of the object that the condition was set for.", "type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"description": "When the status last changed.", "type": "string", "format": "date-time"},
                "reason": reason,
                "message": {"description": "A human-readable message.", "type": "string", "maxLength": 32768},
            },
        },
    })
}

/// The top of every schema but that of a kind whose spec may be left out.
pub(super) fn object(description: &str, spec: &Value, status: &Value) -> Value {
    let mut schema = object_without_required_spec(description, spec, status);
    schema["required"] = json!(["spec"]);
    schema
}

/// The top of a schema whose spec may be left out.
pub(super) fn object_without_required_spec(description: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "description": description,
        "type": "object",
        "properties": {
            "apiVersion": {"description": "Group and version of this schema.", "type": "string"},
            "kind": {"description": "Kind of the object.", "type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    })
}
