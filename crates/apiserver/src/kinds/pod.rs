//! Pods: defaults, admission (service account, priority, tolerations, runtime class, quality of service), and the columns of `kubectl get pods`. What may
//! change is in `pod_update`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name, or_none};
use super::filling::{set, with};
use super::keeping::copy;
use super::{KindRules, PLAIN, pod_template, pod_update, priority_class, runtime_class, service_account};
use crate::cause::Cause;
use crate::checks::{items, text};
use crate::error::{ApiError, ApiResult};
use crate::json_path::json_path;
use crate::store::state::State;

pub(super) const RULES: KindRules = KindRules {
    default,
    check,
    admit,
    update,
    keep: pod_update::keep,
    check_part: pod_update::check_part,
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn default(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        with(spec, |spec| set(spec, "enableServiceLinks", json!(true)));
        pod_template::default(spec);
    }
}

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    // What stays as it is has been checked.
    if old.is_some_and(|old| old["spec"] == *spec) {
        return;
    }
    pod_template::check(spec, "spec", causes);
    if let Some(old) = old {
        pod_update::check(spec, &old["spec"], causes);
        return;
    }
    if !items(&spec["ephemeralContainers"]).is_empty() {
        causes.push(Cause::forbidden(
            "spec.ephemeralContainers",
            "cannot be set on create",
        ));
    }
    if spec["nodeName"].is_string() && is_gated(spec) {
        causes.push(Cause::forbidden(
            "spec.nodeName",
            "cannot be set until all schedulingGates have been cleared",
        ));
    }
}

/// Its priority a pod keeps when an update leaves it out.
fn update(old: &Value, object: &mut Value) {
    let spec = &mut object["spec"];
    for field in ["priority", "preemptionPolicy"] {
        if spec.get(field).is_none() {
            copy(field, &old["spec"], spec);
        }
    }
    tolerate_sick_nodes(spec);
}

fn is_gated(spec: &Value) -> bool {
    !items(&spec["schedulingGates"]).is_empty()
}

/// What a new pod gets by its account and its classes, and what every one gets.
fn admit(state: &State, object: &mut Value) -> ApiResult<()> {
    set_admitted(state, object).map_err(|problem| {
        let name = text(&object["metadata"]["name"]);
        ApiError::forbidden("", "pods", name, &problem)
    })
}

/// What admission adds to a new pod, in a real server's order: the service account, priority, tolerations of sick nodes, what its runtime class asks for, its
/// quality of service.
fn set_admitted(state: &State, object: &mut Value) -> Result<(), String> {
    let qos = pod_template::quality_of_service(&object["spec"]);
    service_account::admit_pod(state, object)?;
    let spec = &mut object["spec"];
    set_priority(state, spec)?;
    tolerate_sick_nodes(spec);
    runtime_class::admit_pod(state, spec)?;
    let is_gated = is_gated(spec);
    object["status"] = json!({"phase": "Pending", "qosClass": qos});
    if is_gated {
        // Until the last gate is gone no scheduler looks at the pod; then its scheduler says why the pod waits.
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    Ok(())
}

/// A pod has the priority of its class, and may say so.
fn set_priority(state: &State, spec: &mut Value) -> Result<(), String> {
    let class = priority_class::of_pod(state, text(&spec["priorityClassName"]))?;
    if let Some(own) = spec["priority"].as_i64().filter(|own| *own != class.value) {
        return Err(format!(
            "the integer value of priority ({own}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            class.value
        ));
    }
    let policy = spec["preemptionPolicy"].as_str();
    if let Some(own) = policy.filter(|own| *own != class.policy) {
        return Err(format!(
            "the string value of PreemptionPolicy ({own}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            class.policy
        ));
    }
    spec["priority"] = json!(class.value);
    spec["preemptionPolicy"] = json!(class.policy);
    if !class.name.is_empty() {
        spec["priorityClassName"] = json!(class.name);
    }
    Ok(())
}

/// Five minutes on a node that is not ready or not reachable, unless the pod says otherwise.
fn tolerate_sick_nodes(spec: &mut Value) {
    if !spec["tolerations"].is_array() {
        spec["tolerations"] = json!([]);
    }
    if let Some(tolerations) = spec["tolerations"].as_array_mut() {
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            let tolerated = tolerations.iter().any(|toleration| {
                let named = toleration["key"].as_str().unwrap_or_default();
                let effect = toleration["effect"].as_str().unwrap_or_default();
                (named == key || named.is_empty() && toleration["operator"] == "Exists")
                    && (effect == "NoExecute" || effect.is_empty())
            });
            if !tolerated {
                tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            }
        }
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Ready", "string", 0),
    Column("Status", "string", 0),
    Column("Restarts", "string", 0),
    AGE,
    Column("IP", "string", 1),
    Column("Node", "string", 1),
    Column("Nominated Node", "string", 1),
    Column("Readiness Gates", "string", 1),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let statuses = object["status"]["containerStatuses"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let total = object["spec"]["containers"].as_array().map_or(0, Vec::len);
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    let restarts: i64 = statuses
        .iter()
        .filter_map(|status| status["restartCount"].as_i64())
        .sum();
    let mut shown = object["status"]["reason"]
        .as_str()
        .or_else(|| object["status"]["phase"].as_str())
        .unwrap_or_default()
        .to_owned();
    let gated = json_path(object, ".status.conditions[?(@.type==\"PodScheduled\")].reason")
        .first()
        .is_some_and(|reason| **reason == "SchedulingGated");
    if gated {
        shown = "SchedulingGated".to_owned();
    }
    for status in statuses.iter().rev() {
        let state = &status["state"];
        if let Some(reason) = state["waiting"]["reason"]
            .as_str()
            .or_else(|| state["terminated"]["reason"].as_str())
        {
            shown = reason.to_owned();
        }
    }
    if !object["metadata"]["deletionTimestamp"].is_null() {
        shown = "Terminating".to_owned();
    }
    let text = |value: &Value| or_none(value.as_str().unwrap_or_default());
    vec![
        name(object),
        json!(format!("{ready}/{total}")),
        json!(shown),
        json!(restarts.to_string()),
        created(object, now),
        text(&object["status"]["podIP"]),
        text(&object["spec"]["nodeName"]),
        text(&object["status"]["nominatedNodeName"]),
        json!("<none>"),
    ]
}
