//! Tables: what `kubectl get` shows, printed on the server as a real one does.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::reading::partial;
use crate::registry::Resource;
use crate::request::Request;

/// What comes along with each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

pub(crate) fn include(request: &Request) -> Include {
    match request.parameter("includeObject") {
        "None" => Include::Nothing,
        "Object" => Include::Object,
        _ => Include::Metadata,
    }
}

/// A column: its name, type and priority (0 always, 1 with `-o wide`).
#[derive(Clone, Copy)]
struct Column(&'static str, &'static str, u8);

const NAME: Column = Column("Name", "string", 0);
const AGE: Column = Column("Age", "string", 0);

/// A table of objects.
pub(crate) fn render(
    resource: &Resource,
    objects: &[&Value],
    list_meta: &Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let (columns, rows): (Vec<Value>, Vec<Vec<Value>>) = match resource.custom() {
        Some(version) => custom(&version.printer_columns(), objects, now),
        None => core(resource, objects, now),
    };
    let rows: Vec<Value> = rows
        .into_iter()
        .zip(objects)
        .map(|(cells, object)| {
            let mut row = json!({"cells": cells});
            match include {
                Include::Nothing => row["object"] = Value::Null,
                Include::Metadata => row["object"] = partial(object),
                Include::Object => row["object"] = (*object).clone(),
            }
            row
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta, "columnDefinitions": columns, "rows": rows})
}

fn column(column: &Column) -> Value {
    let format = if column.0 == "Name" { "name" } else { "" };
    json!({"name": column.0, "type": column.1, "format": format, "description": "", "priority": column.2})
}

fn custom(printers: &[Value], objects: &[&Value], now: Timestamp) -> (Vec<Value>, Vec<Vec<Value>>) {
    let mut columns = vec![column(&NAME)];
    for printer in printers {
        columns.push(json!({
            "name": printer["name"], "type": printer["type"], "format": printer["format"].as_str().unwrap_or_default(),
            "description": printer["description"].as_str().unwrap_or_default(), "priority": printer["priority"].as_i64().unwrap_or(0),
        }));
    }
    let rows = objects
        .iter()
        .map(|object| {
            let mut cells = vec![object["metadata"]["name"].clone()];
            for printer in printers {
                let found = json_path(object, printer["jsonPath"].as_str().unwrap_or_default());
                cells.push(match (printer["type"].as_str().unwrap_or_default(), &found[..]) {
                    (_, []) => Value::Null,
                    ("date", [first, ..]) => json!(
                        first
                            .as_str()
                            .map_or_else(|| "<unknown>".to_owned(), |text| age(text, now))
                    ),
                    ("string", [one]) => json!(plain(one)),
                    ("string", many) => json!(
                        many.iter()
                            .map(|value| plain(value))
                            .collect::<Vec<_>>()
                            .join(",")
                    ),
                    (_, [first, ..]) => (*first).clone(),
                });
            }
            cells
        })
        .collect();
    (columns, rows)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The subset of JSONPath that printer columns use: fields with escaped dots, `[*]`, `[n]` and `[?(@.a=="b")]`.
pub(crate) fn json_path<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    let mut rest = path.trim().trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let Some(end) = closing(after) else {
                return Vec::new();
            };
            let inner = &after[..end];
            rest = &after[end + 1..];
            found = found
                .into_iter()
                .flat_map(|value| subscript(value, inner))
                .collect();
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let (name, after) = field_name(rest);
            rest = after;
            if !name.is_empty() {
                found = found.into_iter().filter_map(|value| value.get(&name)).collect();
            } else if !rest.starts_with('[') {
                return found;
            }
        }
    }
    found.retain(|value| !value.is_null());
    found
}

fn closing(text: &str) -> Option<usize> {
    let mut quoted = None;
    for (index, character) in text.char_indices() {
        match (quoted, character) {
            (None, ']') => return Some(index),
            (None, '"' | '\'') => quoted = Some(character),
            (Some(open), character) if open == character => quoted = None,
            _ => {}
        }
    }
    None
}

fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[index..]),
            other => name.push(other),
        }
    }
    (name, "")
}

fn subscript<'a>(value: &'a Value, inner: &str) -> Vec<&'a Value> {
    if inner == "*" {
        return match value {
            Value::Array(list) => list.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        };
    }
    if let Some(filter) = inner
        .strip_prefix("?(")
        .and_then(|filter| filter.strip_suffix(')'))
    {
        let Some((left, right)) = filter.split_once("==") else {
            return Vec::new();
        };
        let wanted = right.trim().trim_matches(['"', '\'']);
        let path = left.trim().trim_start_matches('@');
        let list = value.as_array().into_iter().flatten();
        return list
            .filter(|item| {
                json_path(item, path)
                    .first()
                    .is_some_and(|found| plain(found) == wanted)
            })
            .collect();
    }
    if let Ok(index) = inner.parse::<usize>() {
        return value.get(index).into_iter().collect();
    }
    value.get(inner.trim_matches(['"', '\''])).into_iter().collect()
}

/// A duration as kubectl shows it: `45s`, `5m30s`, `3h`, `2d`, `1y20d`.
pub(crate) fn human(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, "m", seconds % 60, "s")
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        pair(days, "d", hours % 24, "h")
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        pair(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

fn age(text: &str, now: Timestamp) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => human(now.as_second() - time.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

fn created(object: &Value, now: Timestamp) -> Value {
    json!(
        object["metadata"]["creationTimestamp"]
            .as_str()
            .map_or_else(|| "<unknown>".to_owned(), |text| age(text, now))
    )
}

fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

fn number(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or(0))
}

fn texts(value: &Value, path: &str) -> String {
    json_path(value, path)
        .iter()
        .map(|value| plain(value))
        .collect::<Vec<_>>()
        .join(",")
}

fn selector(value: &Value) -> String {
    let mut parts: Vec<String> = value["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    for expression in value["matchExpressions"].as_array().into_iter().flatten() {
        let values = texts(expression, ".values[*]");
        parts.push(format!(
            "{} {} ({values})",
            plain(&expression["key"]),
            plain(&expression["operator"]).to_lowercase()
        ));
    }
    parts.join(",")
}

type Cells = fn(&Value, Timestamp) -> Vec<Value>;

fn core(resource: &Resource, objects: &[&Value], now: Timestamp) -> (Vec<Value>, Vec<Vec<Value>>) {
    let (columns, cells): (&[Column], Cells) = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => (POD, pod),
        ("", "nodes") => (NODE, node),
        ("", "namespaces") => (&[NAME, Column("Status", "string", 0), AGE], |o, now| {
            vec![
                o["metadata"]["name"].clone(),
                o["status"]["phase"].clone(),
                created(o, now),
            ]
        }),
        ("", "events") => (EVENT, event),
        ("events.k8s.io", "events") => (EVENT, event),
        ("", "services") => (SERVICE, service),
        ("", "configmaps") => (&[NAME, Column("Data", "string", 0), AGE], |o, now| {
            vec![
                o["metadata"]["name"].clone(),
                json!(o["data"].as_object().map_or(0, serde_json::Map::len)),
                created(o, now),
            ]
        }),
        ("", "secrets") => (
            &[
                NAME,
                Column("Type", "string", 0),
                Column("Data", "integer", 0),
                AGE,
            ],
            |o, now| {
                vec![
                    o["metadata"]["name"].clone(),
                    o["type"].clone(),
                    json!(o["data"].as_object().map_or(0, serde_json::Map::len)),
                    created(o, now),
                ]
            },
        ),
        ("", "persistentvolumeclaims") => (CLAIM, claim),
        ("", "persistentvolumes") => (VOLUME, volume),
        ("apps", "deployments") => (DEPLOYMENT, deployment),
        ("apps", "replicasets") => (REPLICA_SET, replica_set),
        ("apps", "statefulsets") => (STATEFUL_SET, stateful_set),
        ("apps", "daemonsets") => (DAEMON_SET, daemon_set),
        ("batch", "jobs") => (JOB, job),
        ("policy", "poddisruptionbudgets") => (BUDGET, budget),
        ("coordination.k8s.io", "leases") => (&[NAME, Column("Holder", "string", 0), AGE], |o, now| {
            vec![
                o["metadata"]["name"].clone(),
                o["spec"]["holderIdentity"].clone(),
                created(o, now),
            ]
        }),
        ("scheduling.k8s.io", "priorityclasses") => (
            &[
                NAME,
                Column("Value", "integer", 0),
                Column("Global-Default", "boolean", 0),
                AGE,
                Column("PreemptionPolicy", "string", 0),
            ],
            |o, now| {
                vec![
                    o["metadata"]["name"].clone(),
                    o["value"].clone(),
                    json!(o["globalDefault"] == true),
                    created(o, now),
                    o["preemptionPolicy"].clone(),
                ]
            },
        ),
        ("storage.k8s.io", "storageclasses") => (
            &[
                NAME,
                Column("Provisioner", "string", 0),
                Column("ReclaimPolicy", "string", 0),
                Column("VolumeBindingMode", "string", 0),
                Column("AllowVolumeExpansion", "string", 0),
                AGE,
            ],
            |o, now| {
                let default =
                    o["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
                let name = plain(&o["metadata"]["name"]);
                vec![
                    json!(if default {
                        format!("{name} (default)")
                    } else {
                        name
                    }),
                    o["provisioner"].clone(),
                    o["reclaimPolicy"].clone(),
                    o["volumeBindingMode"].clone(),
                    json!(o["allowVolumeExpansion"] == true),
                    created(o, now),
                ]
            },
        ),
        ("storage.k8s.io", "volumeattachments") => (
            &[
                NAME,
                Column("Attacher", "string", 0),
                Column("PV", "string", 0),
                Column("Node", "string", 0),
                Column("Attached", "boolean", 0),
                AGE,
            ],
            |o, now| {
                vec![
                    o["metadata"]["name"].clone(),
                    o["spec"]["attacher"].clone(),
                    o["spec"]["source"]["persistentVolumeName"].clone(),
                    o["spec"]["nodeName"].clone(),
                    o["status"]["attached"].clone(),
                    created(o, now),
                ]
            },
        ),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            (&[NAME, Column("Created At", "date", 0)], |o, _| {
                vec![
                    o["metadata"]["name"].clone(),
                    o["metadata"]["creationTimestamp"].clone(),
                ]
            })
        }
        ("", "serviceaccounts") => (&[NAME, AGE], |o, now| {
            vec![o["metadata"]["name"].clone(), created(o, now)]
        }),
        _ => (&[NAME, AGE], |o, now| {
            vec![o["metadata"]["name"].clone(), created(o, now)]
        }),
    };
    (
        columns.iter().map(column).collect(),
        objects.iter().map(|object| cells(object, now)).collect(),
    )
}

const POD: &[Column] = &[
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

fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
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
        object["metadata"]["name"].clone(),
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

const NODE: &[Column] = &[
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

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
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
        object["metadata"]["name"].clone(),
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

const EVENT: &[Column] = &[
    Column("Last Seen", "string", 0),
    Column("Type", "string", 0),
    Column("Reason", "string", 0),
    Column("Object", "string", 0),
    Column("Subobject", "string", 1),
    Column("Source", "string", 1),
    Column("Message", "string", 0),
    Column("First Seen", "string", 1),
    Column("Count", "string", 1),
    Column("Name", "string", 1),
];

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let time = |field: &str| {
        let text = object[field].as_str().or_else(|| object["eventTime"].as_str());
        json!(text.map_or_else(|| "<unknown>".to_owned(), |text| age(text, now)))
    };
    let involved = &object["involvedObject"];
    let source = object["source"]["component"]
        .as_str()
        .or_else(|| object["reportingComponent"].as_str())
        .unwrap_or_default();
    vec![
        time("lastTimestamp"),
        object["type"].clone(),
        object["reason"].clone(),
        json!(format!(
            "{}/{}",
            plain(&involved["kind"]).to_lowercase(),
            plain(&involved["name"])
        )),
        json!(involved["fieldPath"].as_str().unwrap_or_default()),
        json!(source),
        json!(object["message"].as_str().unwrap_or_default().trim()),
        time("firstTimestamp"),
        json!(object["count"].as_i64().unwrap_or(1).to_string()),
        object["metadata"]["name"].clone(),
    ]
}

const SERVICE: &[Column] = &[
    NAME,
    Column("Type", "string", 0),
    Column("Cluster-IP", "string", 0),
    Column("External-IP", "string", 0),
    Column("Port(s)", "string", 0),
    AGE,
    Column("Selector", "string", 1),
];

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = object["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| format!("{}/{}", plain(&port["port"]), plain(&port["protocol"])))
        .collect();
    let labels: Vec<String> = object["spec"]["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    vec![
        object["metadata"]["name"].clone(),
        object["spec"]["type"].clone(),
        or_none(object["spec"]["clusterIP"].as_str().unwrap_or_default()),
        json!("<none>"),
        or_none(&ports.join(",")),
        created(object, now),
        or_none(&labels.join(",")),
    ]
}

const CLAIM: &[Column] = &[
    NAME,
    Column("Status", "string", 0),
    Column("Volume", "string", 0),
    Column("Capacity", "string", 0),
    Column("Access Modes", "string", 0),
    Column("StorageClass", "string", 0),
    Column("VolumeAttributesClass", "string", 0),
    AGE,
    Column("VolumeMode", "string", 1),
];

fn modes(value: &Value) -> String {
    let short = |mode: &Value| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO".to_owned(),
        "ReadOnlyMany" => "ROX".to_owned(),
        "ReadWriteMany" => "RWX".to_owned(),
        "ReadWriteOncePod" => "RWOP".to_owned(),
        other => other.to_owned(),
    };
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(short)
        .collect::<Vec<_>>()
        .join(",")
}

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let text = |value: &Value| json!(value.as_str().unwrap_or_default());
    let status = if object["metadata"]["deletionTimestamp"].is_null() {
        object["status"]["phase"].clone()
    } else {
        json!("Terminating")
    };
    vec![
        object["metadata"]["name"].clone(),
        status,
        text(&object["spec"]["volumeName"]),
        text(&object["status"]["capacity"]["storage"]),
        json!(modes(&object["status"]["accessModes"])),
        text(&object["spec"]["storageClassName"]),
        json!("<unset>"),
        created(object, now),
        text(&object["spec"]["volumeMode"]),
    ]
}

const VOLUME: &[Column] = &[
    NAME,
    Column("Capacity", "string", 0),
    Column("Access Modes", "string", 0),
    Column("Reclaim Policy", "string", 0),
    Column("Status", "string", 0),
    Column("Claim", "string", 0),
    Column("StorageClass", "string", 0),
    Column("VolumeAttributesClass", "string", 0),
    Column("Reason", "string", 0),
    AGE,
    Column("VolumeMode", "string", 1),
];

fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let text = |value: &Value| json!(value.as_str().unwrap_or_default());
    let claim = &object["spec"]["claimRef"];
    let claim = if claim.is_object() {
        format!("{}/{}", plain(&claim["namespace"]), plain(&claim["name"]))
    } else {
        String::new()
    };
    vec![
        object["metadata"]["name"].clone(),
        text(&object["spec"]["capacity"]["storage"]),
        json!(modes(&object["spec"]["accessModes"])),
        text(&object["spec"]["persistentVolumeReclaimPolicy"]),
        text(&object["status"]["phase"]),
        json!(claim),
        text(&object["spec"]["storageClassName"]),
        json!("<unset>"),
        text(&object["status"]["reason"]),
        created(object, now),
        text(&object["spec"]["volumeMode"]),
    ]
}

const WORKLOAD_WIDE: [Column; 3] = [
    Column("Containers", "string", 1),
    Column("Images", "string", 1),
    Column("Selector", "string", 1),
];
const DEPLOYMENT: &[Column] = &[
    NAME,
    Column("Ready", "string", 0),
    Column("Up-to-date", "string", 0),
    Column("Available", "string", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
    WORKLOAD_WIDE[2],
];

fn wide(object: &Value) -> [Value; 3] {
    let template = &object["spec"]["template"];
    [
        json!(texts(template, ".spec.containers[*].name")),
        json!(texts(template, ".spec.containers[*].image")),
        or_none(&selector(&object["spec"]["selector"])),
    ]
}

fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let mut cells = vec![
        object["metadata"]["name"].clone(),
        json!(format!(
            "{}/{}",
            status["readyReplicas"].as_i64().unwrap_or(0),
            object["spec"]["replicas"].as_i64().unwrap_or(0)
        )),
        number(&status["updatedReplicas"]),
        number(&status["availableReplicas"]),
        created(object, now),
    ];
    cells.extend(wide(object));
    cells
}

const REPLICA_SET: &[Column] = &[
    NAME,
    Column("Desired", "integer", 0),
    Column("Current", "integer", 0),
    Column("Ready", "integer", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
    WORKLOAD_WIDE[2],
];

fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let mut cells = vec![
        object["metadata"]["name"].clone(),
        number(&object["spec"]["replicas"]),
        number(&status["replicas"]),
        number(&status["readyReplicas"]),
        created(object, now),
    ];
    cells.extend(wide(object));
    cells
}

const STATEFUL_SET: &[Column] = &[
    NAME,
    Column("Ready", "string", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
];

fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images, _] = wide(object);
    vec![
        object["metadata"]["name"].clone(),
        json!(format!(
            "{}/{}",
            object["status"]["readyReplicas"].as_i64().unwrap_or(0),
            object["spec"]["replicas"].as_i64().unwrap_or(0)
        )),
        created(object, now),
        containers,
        images,
    ]
}

const DAEMON_SET: &[Column] = &[
    NAME,
    Column("Desired", "integer", 0),
    Column("Current", "integer", 0),
    Column("Ready", "integer", 0),
    Column("Up-to-date", "integer", 0),
    Column("Available", "integer", 0),
    Column("Node Selector", "string", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
    WORKLOAD_WIDE[2],
];

fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let labels: Vec<String> = object["spec"]["template"]["spec"]["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    let mut cells = vec![
        object["metadata"]["name"].clone(),
        number(&status["desiredNumberScheduled"]),
        number(&status["currentNumberScheduled"]),
        number(&status["numberReady"]),
        number(&status["updatedNumberScheduled"]),
        number(&status["numberAvailable"]),
        or_none(&labels.join(",")),
        created(object, now),
    ];
    cells.extend(wide(object));
    cells
}

const JOB: &[Column] = &[
    NAME,
    Column("Status", "string", 0),
    Column("Completions", "string", 0),
    Column("Duration", "string", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
    WORKLOAD_WIDE[2],
];

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let is = |kind: &str| {
        status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["type"] == kind && one["status"] == "True")
    };
    let shown = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if is("Suspended") {
        "Suspended"
    } else {
        "Running"
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
    let mut cells = vec![
        object["metadata"]["name"].clone(),
        json!(shown),
        json!(format!(
            "{}/{completions}",
            status["succeeded"].as_i64().unwrap_or(0)
        )),
        json!(duration),
        created(object, now),
    ];
    cells.extend(wide(object));
    cells
}

const BUDGET: &[Column] = &[
    NAME,
    Column("Min Available", "string", 0),
    Column("Max Unavailable", "string", 0),
    Column("Allowed Disruptions", "integer", 0),
    AGE,
];

fn budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let shown = |value: &Value| {
        json!(if value.is_null() {
            "N/A".to_owned()
        } else {
            plain(value)
        })
    };
    vec![
        object["metadata"]["name"].clone(),
        shown(&object["spec"]["minAvailable"]),
        shown(&object["spec"]["maxUnavailable"]),
        number(&object["status"]["disruptionsAllowed"]),
        created(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_kubectl() {
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (10_799, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (50 * 3600, "2d2h"),
            (9 * 86_400, "9d"),
            (800 * 86_400, "2y70d"),
            (9 * 365 * 86_400, "9y"),
            (-5, "0s"),
        ] {
            assert_eq!(human(seconds), shown);
        }
    }

    #[test]
    fn json_paths_of_printer_columns() {
        let object = json!({"metadata": {"labels": {"karpenter.sh/nodepool": "a"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]}, "list": [1, 2]});
        let found = |path: &str| {
            json_path(&object, path)
                .into_iter()
                .map(plain)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(r".metadata.labels.karpenter\.sh/nodepool"), ["a"]);
        assert_eq!(found(".status.conditions[?(@.type==\"Ready\")].status"), ["True"]);
        assert_eq!(found(".status.conditions[*].type"), ["Ready", "X"]);
        assert_eq!(found(".list[1]"), ["2"]);
        assert!(found(".nothing.here").is_empty() && found(".list[").is_empty());
    }
}
