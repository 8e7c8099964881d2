//! Leases: their numbers, and the columns of `kubectl get leases`.

use jiff::Timestamp;
use serde_json::Value;

use super::columns::{AGE, Column, NAME, created, name};
use super::{KindRules, PLAIN};
use crate::cause::Cause;

pub(super) const RULES: KindRules = KindRules {
    check,
    columns: &[NAME, Column("Holder", "string", 0), AGE],
    cells,
    ..PLAIN
};

fn check(new: &Value, _: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    for field in ["leaseDurationSeconds", "leaseTransitions"] {
        let least = i64::from(field == "leaseDurationSeconds");
        if spec[field].as_i64().is_some_and(|value| value < least) {
            let problem = if least == 1 {
                "must be greater than 0"
            } else {
                "must be greater than or equal to 0"
            };
            causes.push(Cause::invalid(format!("spec.{field}"), &spec[field], problem));
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        object["spec"]["holderIdentity"].clone(),
        created(object, now),
    ]
}
