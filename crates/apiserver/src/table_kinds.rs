//! The columns and cells of the core kinds, as kubectl prints them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::table::{
    AGE, Column, NAME, age, created, human, json_path, number, or_none, plain, selector, texts,
};

pub(crate) const POD: &[Column] = &[
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

pub(crate) fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
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

pub(crate) const NODE: &[Column] = &[
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

pub(crate) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
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

pub(crate) const EVENT: &[Column] = &[
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

pub(crate) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
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

pub(crate) const SERVICE: &[Column] = &[
    NAME,
    Column("Type", "string", 0),
    Column("Cluster-IP", "string", 0),
    Column("External-IP", "string", 0),
    Column("Port(s)", "string", 0),
    AGE,
    Column("Selector", "string", 1),
];

pub(crate) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
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

pub(crate) const CLAIM: &[Column] = &[
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

pub(crate) fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
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

pub(crate) const VOLUME: &[Column] = &[
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

pub(crate) fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
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
pub(crate) const DEPLOYMENT: &[Column] = &[
    NAME,
    Column("Ready", "string", 0),
    Column("Up-to-date", "string", 0),
    Column("Available", "string", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
    WORKLOAD_WIDE[2],
];

/// A row of a kind that makes pods: its name, these cells, its age, and what `-o wide` adds.
fn workload<const N: usize>(object: &Value, now: Timestamp, cells: [Value; N]) -> Vec<Value> {
    let name = object["metadata"]["name"].clone();
    let mut row = Vec::from([name]);
    row.extend(cells);
    row.push(created(object, now));
    row.extend(wide(object));
    row
}

/// `ready/wanted`.
fn ready(object: &Value) -> Value {
    let ready = object["status"]["readyReplicas"].as_i64().unwrap_or(0);
    json!(format!(
        "{ready}/{}",
        object["spec"]["replicas"].as_i64().unwrap_or(0)
    ))
}

fn wide(object: &Value) -> [Value; 3] {
    let template = &object["spec"]["template"];
    [
        json!(texts(template, ".spec.containers[*].name")),
        json!(texts(template, ".spec.containers[*].image")),
        or_none(&selector(&object["spec"]["selector"])),
    ]
}

pub(crate) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let cells = [
        ready(object),
        number(&status["updatedReplicas"]),
        number(&status["availableReplicas"]),
    ];
    workload(object, now, cells)
}

pub(crate) const REPLICA_SET: &[Column] = &[
    NAME,
    Column("Desired", "integer", 0),
    Column("Current", "integer", 0),
    Column("Ready", "integer", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
    WORKLOAD_WIDE[2],
];

pub(crate) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let cells = [
        number(&object["spec"]["replicas"]),
        number(&status["replicas"]),
        number(&status["readyReplicas"]),
    ];
    workload(object, now, cells)
}

pub(crate) const STATEFUL_SET: &[Column] = &[
    NAME,
    Column("Ready", "string", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
];

pub(crate) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images, _] = wide(object);
    vec![
        object["metadata"]["name"].clone(),
        ready(object),
        created(object, now),
        containers,
        images,
    ]
}

pub(crate) const DAEMON_SET: &[Column] = &[
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

pub(crate) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let labels: Vec<String> = object["spec"]["template"]["spec"]["nodeSelector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    let cells = [
        number(&status["desiredNumberScheduled"]),
        number(&status["currentNumberScheduled"]),
        number(&status["numberReady"]),
        number(&status["updatedNumberScheduled"]),
        number(&status["numberAvailable"]),
        or_none(&labels.join(",")),
    ];
    workload(object, now, cells)
}

pub(crate) const JOB: &[Column] = &[
    NAME,
    Column("Status", "string", 0),
    Column("Completions", "string", 0),
    Column("Duration", "string", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
    WORKLOAD_WIDE[2],
];

pub(crate) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
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
    let cells = [
        json!(shown),
        json!(format!(
            "{}/{completions}",
            status["succeeded"].as_i64().unwrap_or(0)
        )),
        json!(duration),
    ];
    workload(object, now, cells)
}

pub(crate) const BUDGET: &[Column] = &[
    NAME,
    Column("Min Available", "string", 0),
    Column("Max Unavailable", "string", 0),
    Column("Allowed Disruptions", "integer", 0),
    AGE,
];

pub(crate) fn budget(object: &Value, now: Timestamp) -> Vec<Value> {
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

pub(crate) const CRON_JOB: &[Column] = &[
    NAME,
    Column("Schedule", "string", 0),
    Column("Timezone", "string", 0),
    Column("Suspend", "boolean", 0),
    Column("Active", "integer", 0),
    Column("Last Schedule", "string", 0),
    AGE,
    WORKLOAD_WIDE[0],
    WORKLOAD_WIDE[1],
    WORKLOAD_WIDE[2],
];

pub(crate) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
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
        object["metadata"]["name"].clone(),
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

pub(crate) const AUTOSCALER: &[Column] = &[
    NAME,
    Column("Reference", "string", 0),
    Column("Targets", "string", 0),
    Column("MinPods", "string", 0),
    Column("MaxPods", "string", 0),
    Column("Replicas", "string", 0),
    AGE,
];

pub(crate) fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let target = &spec["scaleTargetRef"];
    vec![
        object["metadata"]["name"].clone(),
        json!(format!("{}/{}", plain(&target["kind"]), plain(&target["name"]))),
        json!(targets(&spec["metrics"], &status["currentMetrics"])),
        json!(
            spec["minReplicas"]
                .as_i64()
                .map_or_else(|| "<unset>".to_owned(), |count| count.to_string())
        ),
        number(&spec["maxReplicas"]),
        number(&status["currentReplicas"]),
        created(object, now),
    ]
}

/// `cpu: 30%/80%`, of the first two metrics.
fn targets(metrics: &Value, current: &Value) -> String {
    let metrics = metrics.as_array().map(Vec::as_slice).unwrap_or_default();
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> = metrics
        .iter()
        .enumerate()
        .take(2)
        .map(|(index, metric)| target(metric, &current[index]))
        .collect();
    let text = shown.join(", ");
    if metrics.len() > 2 {
        format!("{text} + {} more...", metrics.len() - 2)
    } else {
        text
    }
}

fn target(metric: &Value, current: &Value) -> String {
    let (field, named) = match metric["type"].as_str().unwrap_or_default() {
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "External" => ("external", false),
        _ => return "<unknown type>".to_owned(),
    };
    let (wanted, found) = (&metric[field]["target"], &current[field]["current"]);
    let known = |value: &Value, unit: &str| {
        if value.is_null() {
            "<unknown>".to_owned()
        } else {
            format!("{}{unit}", plain(value))
        }
    };
    let name = if named {
        format!("{}: ", plain(&metric[field]["name"]))
    } else {
        String::new()
    };
    if !wanted["averageValue"].is_null() {
        let average = if matches!(field, "object" | "external") {
            " (avg)"
        } else {
            ""
        };
        format!(
            "{name}{}/{}{average}",
            known(&found["averageValue"], ""),
            plain(&wanted["averageValue"])
        )
    } else if named {
        let percent = &wanted["averageUtilization"];
        let percent = if percent.is_null() {
            "<auto>".to_owned()
        } else {
            format!("{percent}%")
        };
        format!("{name}{}/{percent}", known(&found["averageUtilization"], "%"))
    } else {
        format!("{}/{}", known(&found["value"], ""), plain(&wanted["value"]))
    }
}
