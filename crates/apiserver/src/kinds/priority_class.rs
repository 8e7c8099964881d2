//! PriorityClasses: the default policy, and their columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name};
use super::filling::{set, with};
use super::{KindRules, PLAIN};

pub(super) const RULES: KindRules = KindRules {
    default,
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn default(object: &mut Value) {
    with(object, |object| {
        set(object, "preemptionPolicy", json!("PreemptLowerPriority"));
    });
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Value", "integer", 0),
    Column("Global-Default", "boolean", 0),
    AGE,
    Column("PreemptionPolicy", "string", 0),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        object["value"].clone(),
        json!(object["globalDefault"] == true),
        created(object, now),
        object["preemptionPolicy"].clone(),
    ]
}
