//! Where a pod may run, as its spec says, in a Pod and in a template: what is wrong with selectors of nodes, affinities, gates, spread and tolerations.

use std::fmt::Display;

use serde_json::Value;
use spokeshave_syntax::names::{DNS_LABEL, is_dns_label, label_value_problems};

use crate::cause::Cause;
use crate::checks::{
    items, label_key, label_values, labels, object_name, one_of, requirement, selector, text,
};

pub(super) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const DO_NOT_SCHEDULE: &str = "DoNotSchedule";

/// What is wrong with the spec at `path`. Its tolerations are checked separately: on a real server other things come before them.
pub(super) fn check(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    labels(
        &spec["nodeSelector"],
        &format_args!("{path}.nodeSelector"),
        causes,
    );
    if spec["affinity"].is_object() {
        affinity(&spec["affinity"], &format_args!("{path}.affinity"), causes);
    }
    gates(items(&spec["schedulingGates"]), path, causes);
    let constraints = items(&spec["topologySpreadConstraints"]);
    for (index, constraint) in constraints.iter().enumerate() {
        spread(
            constraint,
            &constraints[index + 1..],
            &format_args!("{path}.topologySpreadConstraints[{index}]"),
            causes,
        );
    }
}

fn affinity(affinity: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    let of_nodes = &affinity["nodeAffinity"];
    node_affinity(of_nodes, &format_args!("{here}.nodeAffinity"), causes);
    for kind in ["podAffinity", "podAntiAffinity"] {
        pod_affinity(&affinity[kind], &format_args!("{here}.{kind}"), causes);
    }
}

fn node_affinity(affinity: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    if affinity[REQUIRED].is_object() {
        let here = format!("{here}.{REQUIRED}.nodeSelectorTerms");
        let terms = items(&affinity[REQUIRED]["nodeSelectorTerms"]);
        if terms.is_empty() {
            causes.push(Cause::required(
                &here,
                "must have at least one node selector term",
            ));
        }
        for (index, term) in terms.iter().enumerate() {
            node_term(term, true, &format_args!("{here}[{index}]"), causes);
        }
    }
    for (index, preferred) in items(&affinity[PREFERRED]).iter().enumerate() {
        let here = format!("{here}.{PREFERRED}[{index}]");
        weight(&preferred["weight"], &here, causes);
        let term = &preferred["preference"];
        node_term(term, false, &format_args!("{here}.preference"), causes);
    }
}

/// A term over labels and fields of nodes. What is only preferred may name values that no label can have.
fn node_term(term: &Value, is_required: bool, here: &dyn Display, causes: &mut Vec<Cause>) {
    for (index, expression) in items(&term["matchExpressions"]).iter().enumerate() {
        let here = format!("{here}.matchExpressions[{index}]");
        requirement(expression, true, &here, causes);
        if is_required {
            label_values(expression, &here, causes);
        }
    }
    for (index, field) in items(&term["matchFields"]).iter().enumerate() {
        field_requirement(field, &format_args!("{here}.matchFields[{index}]"), causes);
    }
}

fn field_requirement(requirement: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    let values = items(&requirement["values"]);
    match text(&requirement["operator"]) {
        "In" | "NotIn" if values.len() != 1 => causes.push(Cause::required(
            format_args!("{here}.values"),
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        )),
        "In" | "NotIn" => {}
        other => causes.push(Cause::invalid(
            format_args!("{here}.operator"),
            &Value::from(other),
            "not a valid selector operator",
        )),
    }
    let key = text(&requirement["key"]);
    if key != "metadata.name" {
        causes.push(Cause::invalid(
            format_args!("{here}.key"),
            &Value::from(key),
            "not a valid field selector key",
        ));
        return;
    }
    for (index, value) in values.iter().enumerate() {
        object_name(value, &format_args!("{here}.values[{index}]"), causes);
    }
}

fn weight(weight: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    if weight.as_i64().is_none_or(|weight| !(1..=100).contains(&weight)) {
        causes.push(Cause::invalid(
            format_args!("{here}.weight"),
            weight,
            "must be in the range 1-100",
        ));
    }
}

fn pod_affinity(affinity: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    for (index, term) in items(&affinity[REQUIRED]).iter().enumerate() {
        affinity_term(term, &format_args!("{here}.{REQUIRED}[{index}]"), causes);
    }
    for (index, weighted) in items(&affinity[PREFERRED]).iter().enumerate() {
        let here = format!("{here}.{PREFERRED}[{index}]");
        weight(&weighted["weight"], &here, causes);
        let term = &weighted["podAffinityTerm"];
        affinity_term(term, &format_args!("{here}.podAffinityTerm"), causes);
    }
}

fn affinity_term(term: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    for field in ["labelSelector", "namespaceSelector"] {
        selector(&term[field], &format_args!("{here}.{field}"), causes);
    }
    for name in items(&term["namespaces"]) {
        if !is_dns_label(text(name)) {
            causes.push(Cause::invalid(format_args!("{here}.namespace"), name, DNS_LABEL));
        }
    }
    keys_of_labels(term, here, causes);
    let topology = text(&term["topologyKey"]);
    if topology.is_empty() {
        causes.push(Cause::required(
            format_args!("{here}.topologyKey"),
            "can not be empty",
        ));
    }
    label_key(topology, &format_args!("{here}.topologyKey"), causes);
}

/// Keys of labels whose values are the pod's own.
fn keys_of_labels(term: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = items(&term[field]);
        if !keys.is_empty() && term["labelSelector"].is_null() {
            causes.push(Cause::forbidden(
                format_args!("{here}.{field}"),
                "must not be specified when labelSelector is not set",
            ));
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            label_key(text(key), &format_args!("{here}.{field}[{index}]"), causes);
        }
    }
    let others = items(&term["mismatchLabelKeys"]);
    for (index, key) in items(&term["matchLabelKeys"]).iter().enumerate() {
        if others.contains(key) {
            causes.push(Cause::invalid(
                format_args!("{here}.matchLabelKeys[{index}]"),
                key,
                "exists in both matchLabelKeys and mismatchLabelKeys",
            ));
        }
    }
}

fn gates(gates: &[Value], path: &str, causes: &mut Vec<Cause>) {
    for (index, gate) in gates.iter().enumerate() {
        let here = format!("{path}.schedulingGates[{index}]");
        label_key(text(&gate["name"]), &here, causes);
        if gates[..index].iter().any(|other| other["name"] == gate["name"]) {
            causes.push(Cause::duplicate(&here, &gate["name"]));
        }
    }
}

/// A constraint and those that follow it.
fn spread(constraint: &Value, others: &[Value], here: &dyn Display, causes: &mut Vec<Cause>) {
    positive(&constraint["maxSkew"], &format_args!("{here}.maxSkew"), causes);
    let topology = text(&constraint["topologyKey"]);
    if topology.is_empty() {
        causes.push(Cause::required(
            format_args!("{here}.topologyKey"),
            "can not be empty",
        ));
    }
    let action = text(&constraint["whenUnsatisfiable"]);
    let actions = [DO_NOT_SCHEDULE, "ScheduleAnyway"];
    if !actions.contains(&action) {
        causes.push(Cause::not_supported(
            format_args!("{here}.whenUnsatisfiable"),
            &Value::from(action),
            actions,
        ));
    }
    let is_same = |other: &Value| {
        text(&other["topologyKey"]) == topology && text(&other["whenUnsatisfiable"]) == action
    };
    if others.iter().any(is_same) {
        causes.push(Cause::duplicate(
            format_args!("{here}.{{topologyKey, whenUnsatisfiable}}"),
            &Value::from(format!("{{{topology}, {action}}}")),
        ));
    }
    let domains = &constraint["minDomains"];
    positive(domains, &format_args!("{here}.minDomains"), causes);
    if !domains.is_null() && action != DO_NOT_SCHEDULE {
        causes.push(Cause::invalid(
            format_args!("{here}.minDomains"),
            domains,
            &format!("can only use minDomains if whenUnsatisfiable={DO_NOT_SCHEDULE}, not {action}"),
        ));
    }
    for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let (policy, policies) = (&constraint[field], &["Honor", "Ignore"]);
        one_of(policy, &format_args!("{here}.{field}"), policies, causes);
    }
    keys_of_labels(constraint, here, causes);
    let pods = &constraint["labelSelector"];
    selector(pods, &format_args!("{here}.labelSelector"), causes);
}

/// A number above 0, if it is there.
fn positive(value: &Value, path: &dyn Display, causes: &mut Vec<Cause>) {
    if value.as_i64().is_some_and(|number| number <= 0) {
        causes.push(Cause::invalid(path, value, "must be greater than zero"));
    }
}

/// What is wrong with the tolerations at `path`.
pub(super) fn tolerations(tolerations: &Value, path: &dyn Display, causes: &mut Vec<Cause>) {
    for (index, one) in items(tolerations).iter().enumerate() {
        toleration(one, &format_args!("{path}[{index}]"), causes);
    }
}

fn toleration(toleration: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    let field = |name: &str| text(&toleration[name]);
    let (key, operator, value) = (field("key"), field("operator"), field("value"));
    let invalid = |name: &str, value: &str, problem: &str| {
        Cause::invalid(format_args!("{here}.{name}"), &Value::from(value), problem)
    };
    if !key.is_empty() {
        label_key(key, &format_args!("{here}.key"), causes);
    } else if operator != "Exists" {
        let problem =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        causes.push(invalid("operator", operator, problem));
    }
    let effect = &toleration["effect"];
    if text(effect) != "NoExecute" && !toleration["tolerationSeconds"].is_null() {
        let problem = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        causes.push(invalid("effect", text(effect), problem));
    }
    let unsupported = |operators: &[&'static str]| {
        Cause::not_supported(
            format_args!("{here}.operator"),
            &toleration["operator"],
            operators.iter().copied(),
        )
    };
    match operator {
        "" | "Equal" => {
            let problems = label_value_problems(value);
            if !problems.is_empty() {
                causes.push(invalid("operator", value, &problems.join(";")));
            }
        }
        "Exists" if value.is_empty() => {}
        "Exists" => {
            let problem = "value must be empty when `operator` is 'Exists'";
            causes.push(invalid("operator", value, problem));
        }
        // Known, and not in use: a gate is closed.
        "Lt" | "Gt" => causes.push(unsupported(&["Equal", "Exists", "Lt", "Gt"])),
        _ => causes.push(unsupported(&["Equal", "Exists"])),
    }
    one_of(effect, &format_args!("{here}.effect"), &EFFECTS, causes);
}
