//! Checks that several kinds share, or the metadata of all: words, names, labels, selectors, numbers or percentages, and what stays as it is. Messages and
//! places are a real server's.
//!
//! A place is written only when something is wrong there.

use std::fmt::Display;

use serde_json::Value;
use spokeshave_syntax::names::{SUBDOMAIN, is_dns_label, label_value_problems, qualified_name_problems};

use crate::cause::Cause;

/// Longest name of an object, in bytes.
const LONGEST_NAME: usize = 253;
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// The text of a field, empty where there is none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list, none where there is none.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A field that stays as it is.
pub(crate) fn immutable(new: &Value, old: &Value, path: &str, causes: &mut Vec<Cause>) {
    if new != old {
        causes.push(Cause::invalid(path, new, "field is immutable"));
    }
}

/// A word that is one of a few, if it is there.
pub(crate) fn one_of(value: &Value, path: &dyn Display, allowed: &[&str], causes: &mut Vec<Cause>) {
    if let Some(word) = value.as_str()
        && !allowed.contains(&word)
    {
        causes.push(Cause::not_supported(path, value, allowed.iter().copied()));
    }
}

/// The name of another object, if there is one.
pub(crate) fn object_name(value: &Value, path: &dyn Display, causes: &mut Vec<Cause>) {
    let Some(name) = value.as_str() else { return };
    if name.len() > LONGEST_NAME {
        let problem = format!("must be no more than {LONGEST_NAME} characters");
        causes.push(Cause::invalid(path, value, &problem));
    }
    if !name.split('.').all(is_dns_label) {
        causes.push(Cause::invalid(path, value, SUBDOMAIN));
    }
}

pub(crate) fn label_key(key: &str, path: &dyn Display, causes: &mut Vec<Cause>) {
    for problem in qualified_name_problems(key) {
        causes.push(Cause::invalid(path, &Value::from(key), &problem));
    }
}

fn label_value(value: &Value, path: &dyn Display, causes: &mut Vec<Cause>) {
    for problem in label_value_problems(text(value)) {
        causes.push(Cause::invalid(path, value, &problem));
    }
}

/// Labels, keys and values; what is wrong with any of them is said of the whole.
pub(crate) fn labels(labels: &Value, path: &dyn Display, causes: &mut Vec<Cause>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        label_key(key, path, causes);
        label_value(value, path, causes);
    }
}

/// The object form of a label selector.
pub(crate) fn selector(selector: &Value, path: &dyn Display, causes: &mut Vec<Cause>) {
    if !selector.is_object() {
        return;
    }
    labels(
        &selector["matchLabels"],
        &format_args!("{path}.matchLabels"),
        causes,
    );
    for (index, expression) in items(&selector["matchExpressions"]).iter().enumerate() {
        let here = format!("{path}.matchExpressions[{index}]");
        requirement(expression, false, &here, causes);
        label_values(expression, &here, causes);
    }
}

/// A requirement of a selector: its operator, which has as many values as it takes, and its key. Only selectors of nodes compare numbers.
pub(crate) fn requirement(
    requirement: &Value,
    compares_numbers: bool,
    here: &dyn Display,
    causes: &mut Vec<Cause>,
) {
    let count = items(&requirement["values"]).len();
    match text(&requirement["operator"]) {
        "In" | "NotIn" if count == 0 => causes.push(Cause::required(
            format_args!("{here}.values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if count > 0 => causes.push(Cause::forbidden(
            format_args!("{here}.values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "Gt" | "Lt" if compares_numbers && count != 1 => causes.push(Cause::required(
            format_args!("{here}.values"),
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        "Gt" | "Lt" if compares_numbers => {}
        other => causes.push(Cause::invalid(
            format_args!("{here}.operator"),
            &Value::from(other),
            "not a valid selector operator",
        )),
    }
    let key = text(&requirement["key"]);
    label_key(key, &format_args!("{here}.key"), causes);
}

/// The values of a requirement, as those of labels.
pub(crate) fn label_values(requirement: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    for (index, value) in items(&requirement["values"]).iter().enumerate() {
        label_value(value, &format_args!("{here}.values[{index}]"), causes);
    }
}

/// The number of a text such as `25%`.
fn percentage(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// A number or a percentage, as a number; 0 where it is neither.
pub(crate) fn amount(value: &Value) -> i64 {
    let percentage = value.as_str().and_then(percentage);
    value.as_i64().or(percentage).unwrap_or(0)
}

/// A number that is not negative, or a percentage, if it is there.
pub(crate) fn number_or_percentage(value: &Value, path: &dyn Display, causes: &mut Vec<Cause>) {
    let problem = match value {
        Value::String(text) if percentage(text).is_none() => PERCENT,
        Value::Number(_) if amount(value) < 0 => "must be greater than or equal to 0",
        _ => return,
    };
    causes.push(Cause::invalid(path, value, problem));
}

/// A percentage of not more than all.
pub(crate) fn at_most_all(value: &Value, path: &dyn Display, causes: &mut Vec<Cause>) {
    if value.as_str().and_then(percentage).is_some_and(|part| part > 100) {
        causes.push(Cause::invalid(path, value, "must not be greater than 100%"));
    }
}
