//! Tables: what `kubectl get` shows, printed on the server as a real one does.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::accept::MetaVersion;
use crate::reading::partial;
use crate::registry::Resource;
use crate::request::Request;
use crate::table_kinds::{
    AUTOSCALER, BUDGET, CLAIM, CRON_JOB, DAEMON_SET, DEPLOYMENT, EVENT, JOB, NODE, POD, REPLICA_SET, SERVICE,
    STATEFUL_SET, VOLUME, autoscaler, budget, claim, cron_job, daemon_set, deployment, event, job, node, pod,
    replica_set, service, stateful_set, volume,
};

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
pub(crate) struct Column(pub(crate) &'static str, pub(crate) &'static str, pub(crate) u8);

pub(crate) const NAME: Column = Column("Name", "string", 0);
pub(crate) const AGE: Column = Column("Age", "string", 0);

/// A table of objects.
pub(crate) fn render(
    resource: &Resource,
    objects: &[&Value],
    list_meta: &Value,
    (version, include): (MetaVersion, Include),
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
                Include::Metadata => row["object"] = partial(object, version),
                Include::Object => row["object"] = (*object).clone(),
            }
            row
        })
        .collect();
    json!({"kind": "Table", "apiVersion": version.api_version(), "metadata": list_meta, "columnDefinitions": columns, "rows": rows})
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

pub(crate) fn plain(value: &Value) -> String {
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

pub(crate) fn age(text: &str, now: Timestamp) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => human(now.as_second() - time.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

pub(crate) fn created(object: &Value, now: Timestamp) -> Value {
    json!(
        object["metadata"]["creationTimestamp"]
            .as_str()
            .map_or_else(|| "<unknown>".to_owned(), |text| age(text, now))
    )
}

pub(crate) fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

pub(crate) fn number(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or(0))
}

pub(crate) fn texts(value: &Value, path: &str) -> String {
    json_path(value, path)
        .iter()
        .map(|value| plain(value))
        .collect::<Vec<_>>()
        .join(",")
}

pub(crate) fn selector(value: &Value) -> String {
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
        ("batch", "cronjobs") => (CRON_JOB, cron_job),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => (
            &[
                NAME,
                Column("Validations", "integer", 0),
                Column("ParamKind", "string", 0),
                AGE,
            ],
            |o, now| {
                let kind = &o["spec"]["paramKind"];
                let kind = if kind.is_null() {
                    "<unset>".to_owned()
                } else {
                    format!("{}/{}", plain(&kind["apiVersion"]), plain(&kind["kind"]))
                };
                vec![
                    o["metadata"]["name"].clone(),
                    json!(o["spec"]["validations"].as_array().map_or(0, Vec::len)),
                    json!(kind),
                    created(o, now),
                ]
            },
        ),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => (
            &[
                NAME,
                Column("PolicyName", "string", 0),
                Column("ParamRef", "string", 0),
                AGE,
            ],
            |o, now| {
                let reference = &o["spec"]["paramRef"];
                let reference = match (reference["name"].as_str(), reference["namespace"].as_str()) {
                    (None, _) if reference.is_null() => "<unset>".to_owned(),
                    (Some(name), Some(namespace)) => format!("{namespace}/{name}"),
                    (Some(name), None) => format!("*/{name}"),
                    (None, _) => selector(&reference["selector"]),
                };
                vec![
                    o["metadata"]["name"].clone(),
                    o["spec"]["policyName"].clone(),
                    json!(reference),
                    created(o, now),
                ]
            },
        ),
        ("autoscaling", "horizontalpodautoscalers") => (AUTOSCALER, autoscaler),
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
