//! RuntimeClasses: their handler, what pods that name one take over (overhead, selector of nodes, tolerations), columns.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use spokeshave_syntax::Quantity;
use spokeshave_syntax::names::{DNS_LABEL, is_dns_label};

use super::columns::{AGE, Column, NAME, created, name};
use super::filling::with;
use super::{KindRules, PLAIN, placement};
use crate::cause::Cause;
use crate::checks::{immutable, items, labels, text};
use crate::store::state::State;

pub(super) const RULES: KindRules = KindRules {
    check,
    columns: &[NAME, Column("Handler", "string", 0), AGE],
    cells,
    ..PLAIN
};

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let handler = &new["handler"];
    if let Some(old) = old {
        immutable(handler, &old["handler"], "handler", causes);
    }
    match text(handler) {
        "" => causes.push(Cause::required("handler", "")),
        name if !is_dns_label(name) => causes.push(Cause::invalid("handler", handler, DNS_LABEL)),
        _ => {}
    }
    let scheduling = &new["scheduling"];
    labels(&scheduling["nodeSelector"], &"scheduling.nodeSelector", causes);
    placement::tolerations(&scheduling["tolerations"], &"scheduling.tolerations", causes);
}

/// What a new pod takes over from the class that it names. Only a class gives overhead, so a pod without one has none.
///
/// # Errors
/// There is no such class, or the pod says something else.
pub(super) fn admit_pod(state: &State, spec: &mut Value) -> Result<(), String> {
    let class = match spec["runtimeClassName"].as_str() {
        None => None,
        Some(named) => {
            let place = ("node.k8s.io".to_owned(), "runtimeclasses".to_owned());
            let class = state.stored(&place, &(String::new(), named.to_owned()));
            Some(class.ok_or_else(|| format!("pod rejected: RuntimeClass {named:?} not found"))?)
        }
    };
    let none = Value::Null;
    let class = class.as_ref().map_or(&none, |class| &class.value);
    set_overhead(&class["overhead"], spec)?;
    set_scheduling(&class["scheduling"], spec)
}

fn set_overhead(overhead: &Value, spec: &mut Value) -> Result<(), String> {
    let own = &spec["overhead"];
    if overhead.is_null() {
        return match own.is_object() {
            true => Err(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                    .to_owned(),
            ),
            false => Ok(()),
        };
    }
    let (own, fixed) = (amounts(own), &overhead["podFixed"]);
    if !own.is_empty() && own != amounts(fixed) {
        return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
    }
    if fixed.is_object() {
        spec["overhead"] = fixed.clone();
    }
    Ok(())
}

/// Amounts of resources, however they are written.
fn amounts(list: &Value) -> BTreeMap<&str, Option<Quantity>> {
    let amounts = list.as_object().into_iter().flatten();
    amounts
        .map(|(name, amount)| (name.as_str(), text(amount).parse().ok()))
        .collect()
}

fn set_scheduling(scheduling: &Value, spec: &mut Value) -> Result<(), String> {
    if scheduling.is_null() {
        return Ok(());
    }
    let selector = scheduling["nodeSelector"].as_object();
    for (key, value) in selector.into_iter().flatten() {
        let own = &spec["nodeSelector"][key];
        if own.is_string() && own != value {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(value),
                text(own)
            ));
        }
    }
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        let all = selector.iter().map(|(key, value)| (key.clone(), value.clone()));
        with(&mut spec["nodeSelector"], |own| own.extend(all));
    }
    let own = items(&spec["tolerations"]).iter();
    let all: Vec<&Value> = own.chain(items(&scheduling["tolerations"])).collect();
    let merged = without_the_redundant(&all);
    spec["tolerations"] = Value::from(merged);
    Ok(())
}

/// Tolerations without those whose taints another one tolerates too; of equal ones the first stays.
fn without_the_redundant(all: &[&Value]) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let later = all.iter().skip(index + 1);
        let is_in_another = kept.iter().any(|other| tolerates_all(other, one))
            || later
                .filter(|other| *other != one)
                .any(|other| tolerates_all(other, one));
        if !is_in_another {
            kept.push((*one).clone());
        }
    }
    kept
}

/// Whether a toleration tolerates all that another one does.
fn tolerates_all(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let of = |field: &str| (text(&wide[field]), text(&narrow[field]));
    let ((key, own_key), (effect, own_effect)) = (of("key"), of("effect"));
    let ((operator, own_operator), (value, own_value)) = (of("operator"), of("value"));
    if key != own_key && !(key.is_empty() && operator == "Exists") {
        return false;
    }
    if effect != own_effect && !effect.is_empty() {
        return false;
    }
    let seconds = |toleration: &Value| toleration["tolerationSeconds"].as_i64();
    if effect == "NoExecute"
        && let Some(most) = seconds(wide)
        && seconds(narrow).is_none_or(|own| own > most)
    {
        return false;
    }
    match operator {
        "Exists" => true,
        "" | "Equal" => own_operator == "Equal" && own_value == value,
        _ => false,
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), object["handler"].clone(), created(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_another_toleration_covers_is_left_out() {
        let exists = json!({"key": "kata", "operator": "Exists"});
        let equal = json!({"key": "kata", "operator": "Equal", "value": "a", "effect": "NoSchedule"});
        let all = json!({"operator": "Exists"});
        let brief =
            json!({"key": "kata", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let long =
            json!({"key": "kata", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 50});
        let other = json!({"key": "gpu", "operator": "Exists"});
        for (given, kept) in [
            (vec![&exists, &other], vec![&exists, &other]),
            (vec![&equal, &exists], vec![&exists]),
            (vec![&exists, &equal], vec![&exists]),
            (vec![&exists, &exists], vec![&exists]),
            (vec![&brief, &long], vec![&long]),
            (vec![&long, &brief], vec![&long]),
            (vec![&equal, &other, &all], vec![&all]),
        ] {
            let merged = without_the_redundant(&given);
            assert_eq!(merged.iter().collect::<Vec<_>>(), kept, "{given:?}");
        }
    }

    #[test]
    fn overheads_are_compared_as_amounts() {
        assert_eq!(amounts(&json!({"cpu": "250m"})), amounts(&json!({"cpu": "0.25"})));
        assert_ne!(amounts(&json!({"cpu": "250m"})), amounts(&json!({"cpu": "0.3"})));
        assert_ne!(amounts(&json!({"cpu": "250m"})), amounts(&json!({})));
    }
}
