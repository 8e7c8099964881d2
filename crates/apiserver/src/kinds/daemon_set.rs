//! DaemonSets: defaults, strategies that are none, the generation of their template, and columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, number, or_none, plain};
use super::filling::{set, with};
use super::workload::{self, WIDE, row};
use super::{KindRules, PLAIN, pod_template};
use crate::cause::Cause;
use crate::checks::{amount, at_most_all, number_or_percentage, text};

/// Annotation that counts changes of the template, as servers have written it since the beta of the kind.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) const RULES: KindRules = KindRules {
    default,
    check,
    update,
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn default(object: &mut Value) {
    with(&mut object["spec"], |spec| {
        workload::default_update_strategy(spec, &[("maxSurge", 0), ("maxUnavailable", 1)]);
        set(spec, "revisionHistoryLimit", json!(10));
    });
    pod_template::default(&mut object["spec"]["template"]["spec"]);
    with(&mut object["metadata"]["annotations"], |annotations| {
        set(annotations, TEMPLATE_GENERATION, json!("1"));
    });
}

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    workload::check("daemonset", new, old, causes);
    check_strategy(&new["spec"]["updateStrategy"], causes);
    workload::keep_selector(new, old, causes);
}

fn check_strategy(strategy: &Value, causes: &mut Vec<Cause>) {
    match text(&strategy["type"]) {
        "RollingUpdate" => check_rolling_update(&strategy["rollingUpdate"], causes),
        "OnDelete" => {}
        _ => causes.push(Cause::not_supported(
            "spec.updateStrategy",
            strategy,
            ["RollingUpdate", "OnDelete"],
        )),
    }
}

/// While they are replaced, daemons may be missing, or there may be too many of them: one of the two, and not both.
fn check_rolling_update(rolling: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.updateStrategy.rollingUpdate";
    for check in [number_or_percentage, at_most_all] {
        for field in ["maxUnavailable", "maxSurge"] {
            check(&rolling[field], &format_args!("{path}.{field}"), causes);
        }
    }
    match (amount(&rolling["maxUnavailable"]), amount(&rolling["maxSurge"])) {
        (0, 0) => causes.push(Cause::required(
            format_args!("{path}.maxUnavailable"),
            "cannot be 0 when maxSurge is 0",
        )),
        (0, _) | (_, 0) => {}
        _ => causes.push(Cause::invalid(
            format_args!("{path}.maxSurge"),
            &rolling["maxSurge"],
            "may not be set when maxUnavailable is non-zero",
        )),
    }
}

/// Counts changes of the template.
fn update(old: &Value, object: &mut Value) {
    let changed = object["spec"]["template"] != old["spec"]["template"];
    let number = old["metadata"]["annotations"][TEMPLATE_GENERATION]
        .as_str()
        .and_then(|text| text.parse::<i64>().ok())
        .unwrap_or(0);
    object["metadata"]["annotations"][TEMPLATE_GENERATION] = json!((number + i64::from(changed)).to_string());
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Desired", "integer", 0),
    Column("Current", "integer", 0),
    Column("Ready", "integer", 0),
    Column("Up-to-date", "integer", 0),
    Column("Available", "integer", 0),
    Column("Node Selector", "string", 0),
    AGE,
    WIDE[0],
    WIDE[1],
    WIDE[2],
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let labels: Vec<String> = object["spec"]["template"]["spec"]["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    let cells = [
        number(&status["desiredNumberScheduled"]),
        number(&status["currentNumberScheduled"]),
        number(&status["numberReady"]),
        number(&status["updatedNumberScheduled"]),
        number(&status["numberAvailable"]),
        or_none(&labels.join(",")),
    ];
    row(object, now, cells)
}
