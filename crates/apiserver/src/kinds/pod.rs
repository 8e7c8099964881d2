//! Pods: defaults, admission (priority, tolerations, quality of service), what may change, and the columns of `kubectl get pods`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name, or_none};
use super::filling::{set, with};
use super::{KindRules, PLAIN, pod_template};
use crate::cause::Cause;
use crate::error::{ApiError, ApiResult};
use crate::json_path::json_path;
use crate::store::state::State;

pub(super) const RULES: KindRules = KindRules {
    default,
    check,
    admit,
    update,
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
    pod_template::check(&new["spec"], "spec", causes);
    if let Some(old) = old {
        check_update(&new["spec"], &old["spec"], causes);
    }
}

fn update(_: &Value, object: &mut Value) {
    tolerate_sick_nodes(&mut object["spec"]);
}

/// Of a running pod little may change.
fn check_update(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if new == old {
        return;
    }
    let comparable = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(map) = spec.as_object_mut() {
            for field in [
                "activeDeadlineSeconds",
                "tolerations",
                "terminationGracePeriodSeconds",
                "schedulingGates",
                "ephemeralContainers",
                "nodeName",
            ] {
                map.remove(field);
            }
        }
        for list in ["containers", "initContainers"] {
            for container in spec
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                container["image"] = Value::Null;
                if container["resources"].is_object() {
                    container["resources"] = Value::Null;
                }
            }
        }
        spec
    };
    let gated = has_scheduling_gates(old);
    let moved = old["nodeName"].is_string() && old["nodeName"] != new["nodeName"];
    if (!gated && comparable(new) != comparable(old)) || moved {
        causes.push(Cause {
            reason: "FieldValueForbidden",
            field: "spec".to_owned(),
            message: "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)".to_owned(),
        });
    }
}

fn has_scheduling_gates(spec: &Value) -> bool {
    spec["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
}

/// Priority by the classes of the cluster, and what every new pod gets.
fn admit(state: &State, object: &mut Value) -> ApiResult<()> {
    let classes = state
        .collections
        .get(&("scheduling.k8s.io".to_owned(), "priorityclasses".to_owned()));
    let find = |name: &str| {
        let class = classes?.objects.get(&(String::new(), name.to_owned()))?;
        let policy = class.value["preemptionPolicy"]
            .as_str()
            .unwrap_or("PreemptLowerPriority")
            .to_owned();
        Some((class.value["value"].as_i64().unwrap_or(0), policy))
    };
    let default = classes
        .into_iter()
        .flat_map(|classes| classes.objects.iter())
        .find(|(_, class)| class.value["globalDefault"] == true)
        .map(|((_, name), class)| (name.clone(), class.value["value"].as_i64().unwrap_or(0)));
    set_admitted(object, find, default).map_err(|problem| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut error = ApiError::new(403, "Forbidden", format!("pods {name:?} is forbidden: {problem}"));
        error.details = json!({"name": name, "kind": "pods"});
        error
    })
}

/// What admission adds to a new pod: priority, tolerations of sick nodes, the service account, its quality of service.
fn set_admitted(
    object: &mut Value,
    priority_class: impl Fn(&str) -> Option<(i64, String)>,
    default_class: Option<(String, i64)>,
) -> Result<(), String> {
    let qos = quality_of_service(&object["spec"]);
    let spec = &mut object["spec"];
    with(spec, |spec| {
        set(spec, "serviceAccountName", json!("default"));
        let account = spec["serviceAccountName"].clone();
        set(spec, "serviceAccount", account);
        set(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    });
    let name = spec["priorityClassName"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        let (class, value) = default_class.unwrap_or_default();
        spec["priority"] = json!(value);
        if !class.is_empty() {
            spec["priorityClassName"] = json!(class);
        }
    } else {
        let (value, policy) =
            priority_class(&name).ok_or_else(|| format!("no PriorityClass with name {name} was found"))?;
        spec["priority"] = json!(value);
        spec["preemptionPolicy"] = json!(policy);
    }
    tolerate_sick_nodes(spec);
    let is_gated = has_scheduling_gates(&object["spec"]);
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

fn quality_of_service(spec: &Value) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for container in ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
    {
        let resources = &container["resources"];
        for name in ["cpu", "memory"] {
            let (request, limit) = (&resources["requests"][name], &resources["limits"][name]);
            any |= !request.is_null() || !limit.is_null();
            guaranteed &= !limit.is_null() && (request.is_null() || request == limit);
        }
    }
    match (any, guaranteed) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        (false, _) => "BestEffort",
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
