//! Deployments: defaults and columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, number};
use super::filling::{set, with};
use super::workload::{self, WIDE, ready, row};
use super::{KindRules, PLAIN, pod_template};

pub(super) const RULES: KindRules = KindRules {
    default,
    check: |new, old, causes| workload::check("deployment", new, old, causes),
    counts_annotations: true,
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn default(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        default_spec(spec);
    }
}

fn default_spec(spec: &mut Value) {
    with(spec, |spec| {
        set(spec, "replicas", json!(1));
        set(spec, "revisionHistoryLimit", json!(10));
        set(spec, "progressDeadlineSeconds", json!(600));
        set(spec, "strategy", json!({}));
    });
    with(&mut spec["strategy"], |strategy| {
        set(strategy, "type", json!("RollingUpdate"));
        if strategy["type"] == "RollingUpdate" {
            let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
            with(rolling, |rolling| {
                set(rolling, "maxSurge", json!("25%"));
                set(rolling, "maxUnavailable", json!("25%"));
            });
        }
    });
    pod_template::default(&mut spec["template"]["spec"]);
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Ready", "string", 0),
    Column("Up-to-date", "string", 0),
    Column("Available", "string", 0),
    AGE,
    WIDE[0],
    WIDE[1],
    WIDE[2],
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let cells = [
        ready(object),
        number(&status["updatedReplicas"]),
        number(&status["availableReplicas"]),
    ];
    row(object, now, cells)
}
