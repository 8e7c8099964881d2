//! Nodes: the taint of a new one, taints and provider IDs that are refused, and the columns of `kubectl get nodes`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name, or_none};
use super::{KindRules, PLAIN};
use crate::cause::Cause;
use crate::error::ApiResult;
use crate::json_path::json_path;
use crate::store::state::State;

pub(super) const RULES: KindRules = KindRules {
    check,
    admit,
    keeps_status: true,
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn admit(_: &State, object: &mut Value) -> ApiResult<()> {
    not_ready_taint(object);
    Ok(())
}

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    let mut seen = Vec::new();
    for (index, taint) in spec["taints"].as_array().into_iter().flatten().enumerate() {
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"]
            .contains(&taint["effect"].as_str().unwrap_or_default())
        {
            let cause = Cause {
                reason: "FieldValueNotSupported",
                field: format!("metadata.taints[{index}].effect"),
                message: format!(
                    "Unsupported value: {}: supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                    taint["effect"]
                ),
            };
            // An update is judged by the rules of a new node first, and then by its own.
            causes.extend(std::iter::repeat_n(cause, 1 + usize::from(old.is_some())));
        }
    }
    for taint in spec["taints"].as_array().into_iter().flatten() {
        let identity = (taint["key"].clone(), taint["effect"].clone());
        if seen.contains(&identity) {
            causes.push(Cause {
                reason: "FieldValueDuplicate",
                field: format!("metadata.taints[{}]", seen.len()),
                message: format!("Duplicate value: {taint}: taints must be unique by key and effect pair"),
            });
        }
        seen.push(identity);
    }
    if let Some(old) = old {
        let (before, after) = (&old["spec"]["providerID"], &spec["providerID"]);
        if !before.is_null() && before != "" && before != after {
            causes.push(Cause {
                reason: "FieldValueForbidden",
                field: "spec.providerID".to_owned(),
                message: "Forbidden: node updates may not change providerID except from \"\" to valid"
                    .to_owned(),
            });
        }
    }
}

/// A node that does not say otherwise is not ready yet, and nothing is to run on it.
fn not_ready_taint(object: &mut Value) {
    let taints = &mut object["spec"]["taints"];
    if !taints.is_array() {
        *taints = json!([]);
    }
    if let Some(list) = taints.as_array_mut() {
        let known = list
            .iter()
            .any(|taint| taint["key"] == "node.kubernetes.io/not-ready" && taint["effect"] == "NoSchedule");
        if !known {
            list.push(json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}));
        }
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Status", "string", 0),
    Column("Roles", "string", 0),
    AGE,
    Column("Version", "string", 0),
    Column("Internal-IP", "string", 1),
    Column("External-IP", "string", 1),
    Column("OS-Image", "string", 1),
    Column("Kernel-Version", "string", 1),
    Column("Container-Runtime", "string", 1),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = json_path(object, ".status.conditions[?(@.type==\"Ready\")].status");
    let mut status = match ready.first().and_then(|status| status.as_str()) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let roles: Vec<&str> = object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .filter(|role| !role.is_empty())
        .collect();
    let address = |kind: &str| {
        let found = json_path(
            object,
            &format!(".status.addresses[?(@.type==\"{kind}\")].address"),
        );
        or_none(
            found
                .first()
                .and_then(|address| address.as_str())
                .unwrap_or_default(),
        )
    };
    let info = |field: &str| {
        json!(
            object["status"]["nodeInfo"][field]
                .as_str()
                .filter(|text| !text.is_empty())
                .unwrap_or("<unknown>")
        )
    };
    vec![
        name(object),
        json!(status),
        or_none(&roles.join(",")),
        created(object, now),
        json!(
            object["status"]["nodeInfo"]["kubeletVersion"]
                .as_str()
                .unwrap_or_default()
        ),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}
