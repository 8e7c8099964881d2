//! ValidatingAdmissionPolicies and their bindings, as objects: defaults and checks (`admission_policy`), and their columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name, plain, selector};
use super::{KindRules, PLAIN};
use crate::admission_policy::checks;

pub(super) const POLICY: KindRules = KindRules {
    default: |object| checks::defaults("ValidatingAdmissionPolicy", object),
    check: |new, _, causes| checks::check("ValidatingAdmissionPolicy", &new["spec"], causes),
    columns: POLICY_COLUMNS,
    cells: policy_cells,
    ..PLAIN
};

pub(super) const BINDING: KindRules = KindRules {
    default: |object| checks::defaults("ValidatingAdmissionPolicyBinding", object),
    check: |new, _, causes| checks::check("ValidatingAdmissionPolicyBinding", &new["spec"], causes),
    columns: BINDING_COLUMNS,
    cells: binding_cells,
    ..PLAIN
};

const POLICY_COLUMNS: &[Column] = &[
    NAME,
    Column("Validations", "integer", 0),
    Column("ParamKind", "string", 0),
    AGE,
];

fn policy_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = &object["spec"]["paramKind"];
    let kind = if kind.is_null() {
        "<unset>".to_owned()
    } else {
        format!("{}/{}", plain(&kind["apiVersion"]), plain(&kind["kind"]))
    };
    vec![
        name(object),
        json!(object["spec"]["validations"].as_array().map_or(0, Vec::len)),
        json!(kind),
        created(object, now),
    ]
}

const BINDING_COLUMNS: &[Column] = &[
    NAME,
    Column("PolicyName", "string", 0),
    Column("ParamRef", "string", 0),
    AGE,
];

fn binding_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let reference = &object["spec"]["paramRef"];
    let reference = match (reference["name"].as_str(), reference["namespace"].as_str()) {
        (None, _) if reference.is_null() => "<unset>".to_owned(),
        (Some(named), Some(namespace)) => format!("{namespace}/{named}"),
        (Some(named), None) => format!("*/{named}"),
        (None, _) => selector(&reference["selector"]),
    };
    vec![
        name(object),
        object["spec"]["policyName"].clone(),
        json!(reference),
        created(object, now),
    ]
}
