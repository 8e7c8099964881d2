//! CronJobs: defaults, schedules that are refused, and columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, age, created, name, or_none, selector, texts};
use super::filling::{set, with_spec};
use super::workload::{WIDE, not_negative};
use super::{KindRules, PLAIN, job};
use crate::cause::Cause;

pub(super) const RULES: KindRules = KindRules {
    default,
    check,
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn default(object: &mut Value) {
    with_spec(object, |spec| {
        set(spec, "concurrencyPolicy", json!("Allow"));
        set(spec, "suspend", json!(false));
        set(spec, "successfulJobsHistoryLimit", json!(3));
        set(spec, "failedJobsHistoryLimit", json!(1));
    });
}

/// What is run, and how often; whether the schedule can be read, its controller finds out, in the time zone that it knows.
fn check(new: &Value, _: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    let schedule = spec["schedule"].as_str().unwrap_or_default();
    if schedule.is_empty() {
        causes.push(Cause::required("spec.schedule", ""));
    } else if schedule.contains("TZ") {
        causes.push(Cause::invalid(
            "spec.schedule",
            &spec["schedule"],
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ));
    } else if !schedule.starts_with('@') && schedule.split_whitespace().count() != 5 {
        let problem = format!(
            "expected exactly 5 fields, found {}: {schedule:?}",
            schedule.split_whitespace().count()
        );
        causes.push(Cause::invalid("spec.schedule", &spec["schedule"], &problem));
    }
    if !["Allow", "Forbid", "Replace"].contains(&spec["concurrencyPolicy"].as_str().unwrap_or_default()) {
        causes.push(Cause::not_supported(
            "spec.concurrencyPolicy",
            &spec["concurrencyPolicy"],
            ["Allow", "Forbid", "Replace"],
        ));
    }
    for field in [
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ] {
        not_negative(spec, field, causes);
    }
    job::check_template(&spec["jobTemplate"]["spec"], "spec.jobTemplate.spec", causes);
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Schedule", "string", 0),
    Column("Timezone", "string", 0),
    Column("Suspend", "boolean", 0),
    Column("Active", "integer", 0),
    Column("Last Schedule", "string", 0),
    AGE,
    WIDE[0],
    WIDE[1],
    WIDE[2],
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let job = &spec["jobTemplate"]["spec"];
    let suspend = match spec["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = status["lastScheduleTime"]
        .as_str()
        .map_or_else(|| "<none>".to_owned(), |text| age(text, now));
    vec![
        name(object),
        spec["schedule"].clone(),
        or_none(spec["timeZone"].as_str().unwrap_or_default()),
        json!(suspend),
        json!(status["active"].as_array().map_or(0, Vec::len)),
        json!(last),
        created(object, now),
        json!(texts(&job["template"], ".spec.containers[*].name")),
        json!(texts(&job["template"], ".spec.containers[*].image")),
        or_none(&selector(&job["selector"])),
    ]
}
