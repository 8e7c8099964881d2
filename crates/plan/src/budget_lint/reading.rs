//! A NodePool's budgets read from JSON that may be anything, with a finding for each part that cannot be what was meant.

use super::{Finding, Level, Reading, error, field};
use crate::budget_repair as repair;
use crate::calendar::REASONS;
use jiff::Timestamp;
use serde_json::Value;
use spokeshave_api::{Budget, Cron, CronError, DisruptionReason};

/// Reads the budgets of a NodePool, whatever they look like.
pub fn read(pool: &Value) -> Reading {
    let disruption = &pool["spec"]["disruption"];
    let mut findings = Vec::new();
    unknown_fields(disruption, &mut findings);
    let written = match &disruption["budgets"] {
        Value::Null => None,
        Value::Array(entries) => Some(entries.as_slice()),
        other => {
            findings.push(error(
                "budgets-malformed",
                "spec.disruption.budgets".to_owned(),
                format!("expected a list of budgets, found {other}"),
                None,
            ));
            Some(std::slice::from_ref(other))
        }
    };
    let budgets = match written {
        None => vec![Budget::always("10%")],
        Some(entries) => entries
            .iter()
            .enumerate()
            .map(|(index, entry)| read_budget(index, entry, &mut findings))
            .collect(),
    };
    Reading {
        budgets,
        written: written.is_some(),
        findings,
    }
}

/// D-381, and misspelt fields beside `budgets`.
fn unknown_fields(disruption: &Value, findings: &mut Vec<Finding>) {
    const KNOWN: [&str; 3] = ["budgets", "consolidationPolicy", "consolidateAfter"];
    let keys = disruption.as_object().into_iter().flat_map(serde_json::Map::keys);
    for key in keys.filter(|key| !KNOWN.contains(&key.as_str())) {
        let at = format!("spec.disruption.{key}");
        if key == "expireAfter" {
            findings.push(Finding {
                level: Level::Warning,
                ..error(
                    "expire-after-misplaced",
                    at,
                    "is not read here: the default of 720h holds; it belongs to spec.template.spec"
                        .to_owned(),
                    Some(format!(
                        "template:\n  spec:\n    expireAfter: {}",
                        repair::text_value(&disruption[key])
                    )),
                )
            });
        } else if let Some(known) = repair::nearest(key, &KNOWN) {
            let message = format!("no such field; {known} is meant, and its default holds meanwhile");
            findings.push(error("field-unknown", at, message, Some(format!("{known}:"))));
        }
    }
}

fn read_budget(index: usize, entry: &Value, findings: &mut Vec<Finding>) -> Budget {
    const KNOWN: [&str; 4] = ["nodes", "reasons", "schedule", "duration"];
    if !entry.is_object() {
        findings.push(error(
            "budgets-malformed",
            field(index, ""),
            format!("expected a budget with nodes, reasons, schedule, duration; found {entry}"),
            None,
        ));
        return Budget::always("");
    }
    let keys = entry.as_object().into_iter().flat_map(serde_json::Map::keys);
    for key in keys.filter(|key| !KNOWN.contains(&key.as_str())) {
        let (message, suggestion) = match repair::nearest(key, &KNOWN) {
            Some("reasons") => (
                "no such field; reasons is meant, and without it the budget limits every reason".to_owned(),
                Some(repair::reasons_line(&entry[key])),
            ),
            Some(known) => (
                format!("no such field; {known} is meant"),
                Some(format!("{known}: {}", repair::text_value(&entry[key]))),
            ),
            None => (
                "no such field; a budget has nodes, reasons, schedule and duration, and its times are UTC"
                    .to_owned(),
                None,
            ),
        };
        findings.push(error("field-unknown", field(index, key), message, suggestion));
    }
    let mut budget = Budget::always("10%");
    read_nodes(index, &entry["nodes"], &mut budget, findings);
    read_reasons(index, &entry["reasons"], &mut budget, findings);
    read_schedule(index, entry, &mut budget, findings);
    budget
}

/// D-185.
fn read_nodes(index: usize, nodes: &Value, budget: &mut Budget, findings: &mut Vec<Finding>) {
    if nodes.is_null() {
        return;
    }
    let text = repair::scalar(nodes);
    budget.nodes = nodes.as_str().unwrap_or_default().to_owned();
    if nodes.is_string() && budget.allowed(1).is_ok() {
        return;
    }
    let message = if nodes.is_string() {
        format!("{text:?} is neither a whole number nor a percentage from 0% to 100%; nothing is allowed")
    } else {
        format!("{text} is not a text: put it in quotes")
    };
    let suggestion = repair::nodes(&text).map(|nodes| format!("nodes: \"{nodes}\""));
    findings.push(error(
        "nodes-malformed",
        field(index, "nodes"),
        message,
        suggestion,
    ));
}

/// D-188: an unknown reason limits all of them, an empty list none.
fn read_reasons(index: usize, reasons: &Value, budget: &mut Budget, findings: &mut Vec<Finding>) {
    let entries = match reasons {
        Value::Null => return,
        Value::Array(entries) => entries.clone(),
        other => {
            findings.push(error(
                "reasons-malformed",
                field(index, "reasons"),
                format!("expected a list, found {other}"),
                Some(repair::reasons_line(other)),
            ));
            vec![other.clone()]
        }
    };
    let names: Vec<String> = entries.iter().map(repair::scalar).collect();
    for (position, name) in names.iter().enumerate() {
        if REASONS.contains(&DisruptionReason::from(name.as_str())) {
            continue;
        }
        let at = field(index, &format!("reasons[{position}]"));
        let (message, suggestion) = match repair::reason(name) {
            repair::ReasonRepair::Is(reason) => (
                format!(
                    "{name:?} is no reason; {reason} is meant, and until then this budget limits every reason"
                ),
                Some(format!("- {reason}")),
            ),
            // The operator asks budgets for it like for any other reason, where a policy has a soft age.
            repair::ReasonRepair::NeverLimited if name.as_str() == DisruptionReason::Expired.as_str() => (
                format!(
                    "{name:?} is no reason of a NodePool: it limits what the soft age of a DisruptionPolicy replaces, none of Empty, Drifted and Underutilized; expiration is never limited"
                ),
                None,
            ),
            repair::ReasonRepair::NeverLimited => (
                format!(
                    "{name:?} is no reason, and this budget limits every reason; expiration is never limited"
                ),
                None,
            ),
            repair::ReasonRepair::Unknown => (
                format!(
                    "{name:?} is no reason, and this budget limits every reason; there are Empty, Drifted and Underutilized"
                ),
                None,
            ),
        };
        findings.push(error("reason-unknown", at, message, suggestion));
    }
    if names.is_empty() {
        findings.push(Finding {
            level: Level::Warning,
            ..error(
                "reasons-empty",
                field(index, "reasons"),
                "an empty list means that this budget limits no reason; leave the field out to limit all"
                    .to_owned(),
                Some(format!("- nodes: \"{}\"", budget.nodes)),
            )
        });
    }
    budget.reasons = Some(
        names
            .iter()
            .map(|name| DisruptionReason::from(name.as_str()))
            .collect(),
    );
}

/// D-184, D-186, D-187, D-189…D-194.
fn read_schedule(index: usize, entry: &Value, budget: &mut Budget, findings: &mut Vec<Finding>) {
    let (schedule, duration) = (&entry["schedule"], &entry["duration"]);
    if schedule.is_null() && duration.is_null() {
        return;
    }
    let at = |name| field(index, name);
    if !schedule.is_null() {
        let text = repair::scalar(schedule);
        if let Some(finding) = schedule_finding(at("schedule"), &text) {
            findings.push(finding);
        }
        budget.schedule = Some(text);
    }
    let duration_text = repair::scalar(duration);
    match repair::duration(&duration_text) {
        _ if duration.is_null() => findings.push(error(
            "schedule-without-duration",
            at("duration"),
            "is missing: a schedule needs it to know when its windows end; nothing is allowed".to_owned(),
            Some("duration: 8h".to_owned()),
        )),
        repair::DurationRepair::Fine => budget.duration = duration_text.parse().ok(),
        repair::DurationRepair::Is(better) => {
            budget.duration = duration_text.parse().ok();
            findings.push(error(
                "duration-malformed",
                at("duration"),
                format!("{duration_text:?} is not hours and minutes, as in 8h or 1h30m"),
                Some(format!("duration: {better}")),
            ));
        }
        repair::DurationRepair::Zero => {
            budget.duration = duration_text.parse().ok();
            findings.push(error(
                "duration-zero",
                at("duration"),
                "a window of no length never opens: the budget limits nothing".to_owned(),
                None,
            ));
        }
    }
    if schedule.is_null() {
        findings.push(error(
            "duration-without-schedule",
            at("schedule"),
            "is missing: a duration needs it to know when its windows begin; nothing is allowed".to_owned(),
            Some("schedule: \"0 9 * * 1-5\"".to_owned()),
        ));
    }
}

fn schedule_finding(at: String, text: &str) -> Option<Finding> {
    let problem = match text.parse::<Cron>() {
        Err(problem) => problem,
        // Whether a schedule ever fires does not depend on when one asks, leap days of the year 2100 aside.
        Ok(cron) => cron
            .next_after(Timestamp::from_second(1_767_225_600).unwrap_or_default())
            .err()?,
    };
    let code = match problem {
        CronError::NeverFires(_) => "schedule-never-fires",
        CronError::TimeZone(_) => "schedule-time-zone",
        CronError::Shape(_) | CronError::Field { .. } => "schedule-malformed",
    };
    let mut message = format!("{problem}; nothing is allowed");
    if code == "schedule-time-zone" {
        message.push_str("; move the hours to UTC by hand");
    }
    let suggestion = repair::schedule(text).map(|schedule| format!("schedule: \"{schedule}\""));
    Some(error(code, at, message, suggestion))
}
