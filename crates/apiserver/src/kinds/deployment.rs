//! Deployments: defaults, strategies that are none, and columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, number};
use super::filling::{set, with};
use super::workload::{self, WIDE, ready, row};
use super::{KindRules, PLAIN, pod_template};
use crate::cause::Cause;
use crate::checks::{amount, at_most_all, number_or_percentage, text};

pub(super) const RULES: KindRules = KindRules {
    default,
    check,
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

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    workload::check("deployment", new, old, causes);
    check_strategy(&new["spec"]["strategy"], causes);
    workload::keep_selector(new, old, causes);
}

fn check_strategy(strategy: &Value, causes: &mut Vec<Cause>) {
    let rolling = &strategy["rollingUpdate"];
    match text(&strategy["type"]) {
        "RollingUpdate" => check_rolling_update(rolling, causes),
        "Recreate" if rolling.is_null() => {}
        "Recreate" => causes.push(Cause::forbidden(
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        )),
        _ => causes.push(Cause::not_supported(
            "spec.strategy",
            strategy,
            ["Recreate", "RollingUpdate"],
        )),
    }
}

fn check_rolling_update(rolling: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.strategy.rollingUpdate";
    for field in ["maxUnavailable", "maxSurge"] {
        number_or_percentage(&rolling[field], &format_args!("{path}.{field}"), causes);
    }
    let unavailable = &rolling["maxUnavailable"];
    if amount(unavailable) == 0 && amount(&rolling["maxSurge"]) == 0 {
        causes.push(Cause::invalid(
            format_args!("{path}.maxUnavailable"),
            unavailable,
            "may not be 0 when `maxSurge` is 0",
        ));
    }
    at_most_all(unavailable, &format_args!("{path}.maxUnavailable"), causes);
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
