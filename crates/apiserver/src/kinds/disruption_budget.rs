//! PodDisruptionBudgets: bounds, of which one is set, selectors and policies that mean something, and the columns of `kubectl get poddisruptionbudgets`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name, number, plain};
use super::{KindRules, PLAIN};
use crate::cause::Cause;
use crate::checks::{at_most_all, number_or_percentage, one_of, selector};

pub(super) const RULES: KindRules = KindRules {
    check,
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn check(new: &Value, _: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        causes.push(Cause::invalid(
            "spec",
            spec,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        number_or_percentage(&spec[field], &format_args!("spec.{field}"), causes);
        at_most_all(&spec[field], &format_args!("spec.{field}"), causes);
    }
    selector(&spec["selector"], &"spec.selector", causes);
    let (field, policies) = ("unhealthyPodEvictionPolicy", ["AlwaysAllow", "IfHealthyBudget"]);
    one_of(&spec[field], &format_args!("spec.{field}"), &policies, causes);
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Min Available", "string", 0),
    Column("Max Unavailable", "string", 0),
    Column("Allowed Disruptions", "integer", 0),
    AGE,
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let shown = |value: &Value| {
        json!(if value.is_null() {
            "N/A".to_owned()
        } else {
            plain(value)
        })
    };
    vec![
        name(object),
        shown(&object["spec"]["minAvailable"]),
        shown(&object["spec"]["maxUnavailable"]),
        number(&object["status"]["disruptionsAllowed"]),
        created(object, now),
    ]
}
