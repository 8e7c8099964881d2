//! Jobs: defaults, the labels by which a new one finds its pods, what may change, and columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, human};
use super::filling::{set, with};
use super::keeping::{copy, copy_node_affinity};
use super::workload::{WIDE, not_negative, row};
use super::{KindRules, PLAIN, pod_template};
use crate::cause::Cause;
use crate::checks::{immutable, items, text};
use crate::error::ApiResult;
use crate::store::state::State;

pub(super) const RULES: KindRules = KindRules {
    default,
    check,
    admit,
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn default(object: &mut Value) {
    let spec = &mut object["spec"];
    with(spec, |spec| {
        if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
            set(spec, "completions", json!(1));
        }
        set(spec, "parallelism", json!(1));
        set(spec, "backoffLimit", json!(6));
        set(spec, "completionMode", json!("NonIndexed"));
        set(spec, "suspend", json!(false));
        set(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
        set(spec, "manualSelector", json!(false));
    });
    pod_template::default(&mut spec["template"]["spec"]);
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if !labels.is_null() && object["metadata"]["labels"].is_null() {
        object["metadata"]["labels"] = labels;
    }
}

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    check_template(spec, "spec", causes);
    for field in ["parallelism", "completions", "backoffLimit"] {
        not_negative(spec, field, causes);
    }
    if let Some(old) = old {
        check_update(spec, old, causes);
    }
}

/// What is wrong with the `spec` of a Job, or of a CronJob's template, at `path`.
pub(super) fn check_template(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    pod_template::check_template(&spec["template"], &format!("{path}.template"), causes);
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let path = format!("{path}.template.spec.restartPolicy");
    causes.extend(match text(policy) {
        "OnFailure" | "Never" => None,
        // What it is where nobody says otherwise.
        "" | "Always" => Some(Cause::required(path, "valid values: \"OnFailure\", \"Never\"")),
        _ => Some(Cause::not_supported(path, policy, ["OnFailure", "Never"])),
    });
}

/// What may not change of the spec of a Job.
fn check_update(spec: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let before = &old["spec"];
    let completions = &spec["completions"];
    if spec["completionMode"] != "Indexed" {
        immutable(completions, &before["completions"], "spec.completions", causes);
    } else if !completions.is_null()
        && *completions != before["completions"]
        && *completions != spec["parallelism"]
    {
        causes.push(Cause::invalid(
            "spec.completions",
            completions,
            "can only be modified in tandem with spec.parallelism",
        ));
    }
    immutable(&spec["selector"], &before["selector"], "spec.selector", causes);
    check_template_update(&spec["template"], old, causes);
    for field in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        immutable(&spec[field], &before[field], &format!("spec.{field}"), causes);
    }
}

/// The template stays, but for where its pods may run and what they ask for, as long as none of them runs.
fn check_template_update(template: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let mut before = old["spec"]["template"].clone();
    if !is_held(old) {
        immutable(template, &before, "spec.template", causes);
        return;
    }
    let (spec, before) = (&template["spec"], &mut before["spec"]);
    copy_node_affinity(spec, before);
    for field in ["nodeSelector", "schedulingGates", "tolerations"] {
        copy(field, spec, before);
    }
    for list in ["containers", "initContainers"] {
        let known = before.get_mut(list).and_then(Value::as_array_mut);
        for (known, container) in known.into_iter().flatten().zip(items(&spec[list])) {
            if known["name"] == container["name"] {
                copy("resources", container, known);
            }
        }
    }
    immutable(spec, before, "spec.template.spec", causes);
}

/// Whether a Job is suspended and has no pods.
fn is_held(job: &Value) -> bool {
    let status = &job["status"];
    let is_suspended = |one: &Value| one["type"] == "Suspended" && one["status"] == "True";
    job["spec"]["suspend"] == true
        && (status["startTime"].is_null() || items(&status["conditions"]).iter().any(is_suspended))
        && status["active"].as_i64().unwrap_or(0) == 0
}

/// Labels by which a new Job finds its pods, unless its author has chosen them.
fn admit(_: &State, object: &mut Value) -> ApiResult<()> {
    if object["spec"]["manualSelector"] == true {
        return Ok(());
    }
    let (uid, name) = (
        object["metadata"]["uid"].clone(),
        object["metadata"]["name"].clone(),
    );
    job_labels(&mut object["metadata"]["labels"], &uid, &name);
    job_labels(&mut object["spec"]["template"]["metadata"]["labels"], &uid, &name);
    if object["spec"]["selector"].is_null() {
        object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
    Ok(())
}

fn job_labels(labels: &mut Value, uid: &Value, name: &Value) {
    with(labels, |labels| {
        for key in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
            set(labels, key, uid.clone());
        }
        for key in ["batch.kubernetes.io/job-name", "job-name"] {
            set(labels, key, name.clone());
        }
    });
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Status", "string", 0),
    Column("Completions", "string", 0),
    Column("Duration", "string", 0),
    AGE,
    WIDE[0],
    WIDE[1],
    WIDE[2],
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let is = |kind: &str| {
        status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["type"] == kind && one["status"] == "True")
    };
    let is_going = !object["metadata"]["deletionTimestamp"].is_null();
    let shown = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if is_going {
        "Terminating"
    } else {
        let steps = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
        steps.into_iter().find(|step| is(step)).unwrap_or("Running")
    };
    let completions = object["spec"]["completions"]
        .as_i64()
        .map_or_else(|| "1 of".to_owned(), |total| total.to_string());
    let start = status["startTime"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok());
    let end = status["completionTime"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok())
        .unwrap_or(now);
    let duration = start.map_or_else(String::new, |start| human(end.as_second() - start.as_second()));
    let cells = [
        json!(shown),
        json!(format!(
            "{}/{completions}",
            status["succeeded"].as_i64().unwrap_or(0)
        )),
        json!(duration),
    ];
    row(object, now, cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubectl's printer, which asks for the end first.
    #[test]
    fn a_job_that_stops_is_not_shown_as_running() {
        let shown = |conditions: &[&str], deleted: Value| {
            let conditions: Vec<Value> = conditions
                .iter()
                .map(|kind| json!({"type": kind, "status": "True"}))
                .collect();
            let job = json!({
                "metadata": {"name": "j", "deletionTimestamp": deleted}, "spec": {}, "status": {"conditions": conditions},
            });
            let cells = cells(&job, Timestamp::UNIX_EPOCH);
            cells[1].as_str().map(str::to_owned).unwrap_or_default()
        };
        for (conditions, expected) in [
            (&[][..], "Running"),
            (&["Suspended"][..], "Suspended"),
            (&["FailureTarget"][..], "FailureTarget"),
            (&["SuccessCriteriaMet"][..], "SuccessCriteriaMet"),
            (&["FailureTarget", "Failed"][..], "Failed"),
            (&["SuccessCriteriaMet", "Complete"][..], "Complete"),
        ] {
            assert_eq!(shown(conditions, Value::Null), expected, "{conditions:?}");
        }
        let deleted = || json!("2026-01-01T00:00:00Z");
        assert_eq!(shown(&["FailureTarget"], deleted()), "Terminating");
        assert_eq!(shown(&["Complete"], deleted()), "Complete");
    }
}
