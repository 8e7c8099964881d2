//! ReplicaSets: defaults and columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, number};
use super::filling::{set, with};
use super::workload::{self, WIDE, row};
use super::{KindRules, PLAIN, pod_template};

pub(super) const RULES: KindRules = KindRules {
    default,
    check: |new, old, causes| {
        workload::check("replicaset", new, old, causes);
        workload::keep_selector(new, old, causes);
    },
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn default(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        with(spec, |spec| set(spec, "replicas", json!(1)));
        pod_template::default(&mut spec["template"]["spec"]);
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Desired", "integer", 0),
    Column("Current", "integer", 0),
    Column("Ready", "integer", 0),
    AGE,
    WIDE[0],
    WIDE[1],
    WIDE[2],
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let cells = [
        number(&object["spec"]["replicas"]),
        number(&status["replicas"]),
        number(&status["readyReplicas"]),
    ];
    row(object, now, cells)
}
