//! What Deployments, ReplicaSets, StatefulSets and DaemonSets have in common: a selector that fits their template and stays, and columns about it.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::columns::{Column, created, name, or_none, selector, texts};
use super::filling::{set, with};
use super::pod_template;
use crate::cause::Cause;
use crate::checks::{immutable, one_of, selector as check_selector};
use crate::selector::LabelSelector;

/// The last columns, with `-o wide`.
pub(super) const WIDE: [Column; 3] = [
    Column("Containers", "string", 1),
    Column("Images", "string", 1),
    Column("Selector", "string", 1),
];

/// A row of a kind that makes pods: its name, these cells, its age, and what `-o wide` adds.
pub(super) fn row<const N: usize>(object: &Value, now: Timestamp, cells: [Value; N]) -> Vec<Value> {
    let mut row = Vec::from([name(object)]);
    row.extend(cells);
    row.push(created(object, now));
    row.extend(wide(object));
    row
}

/// `ready/wanted`.
pub(super) fn ready(object: &Value) -> Value {
    let ready = object["status"]["readyReplicas"].as_i64().unwrap_or(0);
    json!(format!(
        "{ready}/{}",
        object["spec"]["replicas"].as_i64().unwrap_or(0)
    ))
}

/// Containers, images and selector.
pub(super) fn wide(object: &Value) -> [Value; 3] {
    let template = &object["spec"]["template"];
    [
        json!(texts(template, ".spec.containers[*].name")),
        json!(texts(template, ".spec.containers[*].image")),
        or_none(&selector(&object["spec"]["selector"])),
    ]
}

/// A rolling update with these numbers, unless another strategy is named.
pub(super) fn default_update_strategy(spec: &mut Map<String, Value>, numbers: &[(&str, i64)]) {
    let strategy = spec.entry("updateStrategy").or_insert_with(|| json!({}));
    with(strategy, |strategy| {
        if strategy.get("type").is_none_or(|kind| kind == "") {
            strategy.insert("type".to_owned(), json!("RollingUpdate"));
        }
        if strategy["type"] == "RollingUpdate" {
            let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
            with(rolling, |rolling| {
                for (name, number) in numbers {
                    set(rolling, name, json!(number));
                }
            });
        }
    });
}

/// A non-negative number of the spec, if present.
pub(super) fn not_negative(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    if spec[field].as_i64().is_some_and(|value| value < 0) {
        causes.push(Cause::invalid(
            format_args!("spec.{field}"),
            &spec[field],
            "must be greater than or equal to 0",
        ));
    }
}

/// What is wrong with a workload whose kind is called so in messages.
pub(super) fn check(kind: &str, new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    not_negative(spec, "replicas", causes);
    if spec["selector"].is_null() {
        causes.push(Cause::required("spec.selector", ""));
    } else {
        check_selector(&spec["selector"], &"spec.selector", causes);
        match LabelSelector::from_object(&spec["selector"]) {
            Some(selector) if selector.is_empty() => causes.push(Cause::invalid(
                "spec.selector",
                &spec["selector"],
                &format!("empty selector is invalid for {}", kind),
            )),
            Some(selector) if !selector.matches(&spec["template"]["metadata"]["labels"]) => {
                let labels = &spec["template"]["metadata"]["labels"];
                causes.push(Cause::invalid(
                    "spec.template.metadata.labels",
                    labels,
                    "`selector` does not match template `labels`",
                ));
            }
            Some(_) => {}
            None => causes.push(Cause::invalid(
                "spec.selector",
                &spec["selector"],
                "invalid label selector",
            )),
        }
    }
    let template = &spec["template"];
    // What stays as it is has been checked.
    if old.is_some_and(|old| old["spec"]["template"] == *template) {
        return;
    }
    pod_template::check_template(template, "spec.template", causes);
    let policy = &template["spec"]["restartPolicy"];
    one_of(policy, &"spec.template.spec.restartPolicy", &["Always"], causes);
}

/// A selector stays, as pods are found by it.
pub(super) fn keep_selector(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if let Some(old) = old {
        let (new, old) = (&new["spec"]["selector"], &old["spec"]["selector"]);
        immutable(new, old, "spec.selector", causes);
    }
}
