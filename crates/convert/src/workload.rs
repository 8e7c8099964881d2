//! Pods, what makes pods, and Nodes: annotations, selectors and tolerations under their present names. Everything else in them stays as it is.

use serde_json::{Map, Value};

use crate::names;
use crate::report::Notes;

/// Where a kind has its pod: the fields above `metadata` and `spec`.
fn pod_of(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "Pod" => &[],
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "ReplicationController" | "Job" => {
            &["spec", "template"]
        }
        "CronJob" => &["spec", "jobTemplate", "spec", "template"],
        "PodTemplate" => &["template"],
        _ => return None,
    })
}

/// Renames what is retired in an object, if it is a workload or a Node.
pub(crate) fn convert(object: &mut Value, notes: &mut Notes) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "Node" {
        node(object, notes);
        return;
    }
    let Some(path) = pod_of(&kind) else {
        return;
    };
    let mut pod = object;
    for key in path {
        let Some(below) = pod.get_mut(*key) else {
            return;
        };
        pod = below;
    }
    let prefix: String = path.iter().map(|key| format!("{key}.")).collect();
    in_metadata(pod, "annotations", &prefix, notes, true);
    if let Some(spec) = pod.get_mut("spec") {
        names::rename_in_pod_spec(spec, &format!("{prefix}spec"), notes);
    }
}

fn node(object: &mut Value, notes: &mut Notes) {
    in_metadata(object, "annotations", "", notes, true);
    in_metadata(object, "labels", "", notes, false);
}

fn in_metadata(object: &mut Value, place: &str, prefix: &str, notes: &mut Notes, autoscaler: bool) {
    let Some(entries) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut(place))
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let path = format!("{prefix}metadata.{place}");
    names::rename_keys(entries, &path, notes);
    if autoscaler {
        names::autoscaler_annotations(entries, &path, notes);
    }
}

/// The containers of a Deployment's pod.
pub(crate) fn containers(object: &Value) -> impl Iterator<Item = &Map<String, Value>> {
    object
        .pointer("/spec/template/spec/containers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
}

/// The words that start a container, each with its field.
pub(crate) fn words(container: &Map<String, Value>) -> impl Iterator<Item = (String, &str)> {
    ["command", "args"].into_iter().flat_map(|key| {
        let list = container.get(key).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .enumerate()
            .filter_map(move |(index, word)| Some((format!("{key}[{index}]"), word.as_str()?)))
    })
}

/// The environment variables of a container that have a name.
pub(crate) fn variables(container: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    let list = container.get("env").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|variable| Some((variable["name"].as_str()?, &variable["value"])))
}
