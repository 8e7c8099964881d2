//! Pods, what makes pods, and Nodes: annotations, selectors and tolerations under their present names. Everything else in them stays as it is.
//!
//! Kinds that are not known here have their pods found by their containers; retired names elsewhere in them are left to the user, with a line each.

use serde_json::{Map, Value};

use crate::fields::below;
use crate::names::{self, Bearer};
use crate::report::Notes;

/// Fields that select pods: what they name are labels of pods, and not of nodes.
const SELECTORS_OF_PODS: [&str; 4] = ["labelSelector", "namespaceSelector", "podSelector", "selector"];

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
    if let Some(path) = pod_of(&kind) {
        let pointer: String = path.iter().map(|key| format!("/{key}")).collect();
        if let Some(found) = object.pointer_mut(&pointer) {
            pod(found, &path.join("."), &kind, notes);
            return;
        }
    }
    // Objects of Karpenter itself have fields for what nodes are called, and their own conversions; what a revision records may not change.
    let version = object["apiVersion"].as_str().unwrap_or_default();
    if !version.starts_with("karpenter.") && kind != "ControllerRevision" {
        other_kind(object, "", &kind, &kind, notes);
    }
}

/// A pod, or the template of one.
fn pod(pod: &mut Value, path: &str, kind: &str, notes: &mut Notes) {
    let bearer = if is_daemon(pod, kind) {
        Bearer::DaemonPod
    } else {
        Bearer::Pod
    };
    in_metadata(pod, "annotations", path, Some(bearer), notes);
    if let Some(spec) = pod.get_mut("spec") {
        names::rename_in_pod_spec(spec, &below(path, "spec"), notes);
    }
}

/// Whether cluster-autoscaler takes a pod of this kind for one of a DaemonSet, which never keeps its node.
fn is_daemon(pod: &Value, kind: &str) -> bool {
    let metadata = &pod["metadata"];
    let owners = metadata["ownerReferences"].as_array();
    let is_owned = owners
        .into_iter()
        .flatten()
        .any(|owner| owner["controller"] == true && owner["kind"] == "DaemonSet");
    kind == "DaemonSet" || is_owned || metadata["annotations"][names::DAEMON_POD] == "true"
}

/// An object of a kind that is not known here, or a value in one: its pods, wherever it has them, and a line for each retired name elsewhere. The owner is the
/// kind of the innermost manifest that the value is in: an object may hold others whole.
fn other_kind(value: &mut Value, path: &str, kind: &str, owner: &str, notes: &mut Notes) {
    if value.pointer("/spec/containers").is_some_and(Value::is_array) {
        pod(value, path, owner, notes);
        // Beside the fields of a pod there may be others, such as podMetadata of a Prometheus.
        if let Some(Value::Object(spec)) = value.get_mut("spec") {
            let place = below(path, "spec");
            let others = spec
                .iter_mut()
                .filter(|(name, _)| !names::OF_POD_SPEC.contains(&name.as_str()));
            for (name, value) in others {
                entry(name, value, &place, kind, owner, notes);
            }
        }
        return;
    }
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                other_kind(item, &format!("{path}[{index}]"), kind, owner, notes);
            }
        }
        Value::Object(map) => {
            let own = map.get("kind").and_then(Value::as_str).map(str::to_owned);
            let owner = own.as_deref().unwrap_or(owner);
            for (name, value) in map.iter_mut() {
                if !(path.is_empty() && name == "status") {
                    entry(name, value, path, kind, owner, notes);
                }
            }
        }
        Value::String(text) => {
            if let Some(what) = names::retired(text) {
                left(path, &what, kind, notes);
            }
        }
        _ => {}
    }
}

/// A field below a path.
fn entry(name: &str, value: &mut Value, path: &str, kind: &str, owner: &str, notes: &mut Notes) {
    if SELECTORS_OF_PODS.contains(&name) {
        return;
    }
    let field = below(path, name);
    match names::retired(name).or_else(|| names::retired_protection(name, value)) {
        Some(what) => left(&field, &what, kind, notes),
        None => other_kind(value, &field, kind, owner, notes),
    }
}

fn left(field: &str, what: &str, kind: &str, notes: &mut Notes) {
    notes.manual(field, format!("{what}; in {kind} it is left as it is"));
}

fn node(object: &mut Value, notes: &mut Notes) {
    in_metadata(object, "annotations", "", Some(Bearer::Node), notes);
    in_metadata(object, "labels", "", None, notes);
}

fn in_metadata(object: &mut Value, place: &str, path: &str, bearer: Option<Bearer>, notes: &mut Notes) {
    let Some(entries) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut(place))
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let path = below(path, &format!("metadata.{place}"));
    names::rename_keys(entries, &path, notes);
    if let Some(bearer) = bearer {
        names::autoscaler_annotations(entries, &path, bearer, notes);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::{Change, Line};

    const PROTECTED: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    const MARKED: &str = names::DAEMON_POD;

    fn converted(mut object: Value) -> (Value, Vec<Line>) {
        let mut notes = Notes::new(0);
        convert(&mut object, &mut notes);
        (object, notes.lines)
    }

    fn told(lines: &[Line]) -> Vec<(Change, &str)> {
        lines
            .iter()
            .map(|line| (line.change, line.field.as_str()))
            .collect()
    }

    /// What protects a pod of a DaemonSet would keep every node.
    #[test]
    fn what_cluster_autoscaler_does_not_read_on_daemons_protects_nothing() {
        let owned = |kind: &str, controller: bool| json!([{"kind": kind, "controller": controller}]);
        let pod = |owners: Value| json!({"kind": "Pod", "metadata": {"ownerReferences": owners, "annotations": {PROTECTED: "false"}}});
        let template = json!({"template": {"metadata": {"annotations": {PROTECTED: "false"}}}});
        let marked =
            json!({"kind": "Pod", "metadata": {"annotations": {PROTECTED: "false", MARKED: "true"}}});
        for (object, is_protected) in [
            (json!({"kind": "DaemonSet", "spec": template}), false),
            (pod(owned("DaemonSet", true)), false),
            (marked, false),
            (json!({"kind": "Deployment", "spec": template}), true),
            (pod(owned("DaemonSet", false)), true),
            (pod(owned("ReplicaSet", true)), true),
        ] {
            let (found, lines) = converted(object);
            let text = found.to_string();
            assert_eq!(text.contains("do-not-disrupt"), is_protected, "{text}");
            assert!(!text.contains(PROTECTED), "{text}");
            let expected = if is_protected {
                Change::Changed
            } else {
                Change::Dropped
            };
            let about = lines.iter().filter(|line| line.field.ends_with(PROTECTED));
            let changes: Vec<Change> = about.map(|line| line.change).collect();
            assert_eq!(changes, [expected], "{text}");
        }
        // What Karpenter itself reads on every pod stays.
        let own = json!({"kind": "DaemonSet", "spec": {"template": {"metadata": {"annotations": {"karpenter.sh/do-not-evict": "true"}}}}});
        assert!(converted(own).0.to_string().contains("do-not-disrupt"));
    }

    #[test]
    fn pods_of_kinds_that_are_not_known_are_found_by_their_containers() {
        let spec =
            json!({"nodeSelector": {"karpenter.sh/provisioner-name": "a"}, "containers": [{"name": "c"}]});
        let template = json!({"metadata": {"annotations": {PROTECTED: "false"}}, "spec": spec});
        for (object, place) in [
            (
                json!({"kind": "Rollout", "spec": {"template": template}}),
                "spec.template",
            ),
            (
                json!({"kind": "LeaderWorkerSet", "spec": {"leaderWorkerTemplate": {"workerTemplate": template}}}),
                "spec.leaderWorkerTemplate.workerTemplate",
            ),
            // Not the Job of Kubernetes.
            (
                json!({"kind": "Job", "spec": {"tasks": [{"template": template}]}}),
                "spec.tasks[0].template",
            ),
        ] {
            let (found, lines) = converted(object);
            let text = found.to_string();
            assert!(
                text.contains(r#""karpenter.sh/nodepool":"a""#) && text.contains("do-not-disrupt"),
                "{text}"
            );
            let expected = [
                (
                    Change::Changed,
                    format!("{place}.metadata.annotations.{PROTECTED}"),
                ),
                (
                    Change::Moved,
                    format!("{place}.spec.nodeSelector.karpenter.sh/provisioner-name"),
                ),
            ];
            let expected = expected
                .each_ref()
                .map(|(change, field)| (*change, field.as_str()));
            assert_eq!(told(&lines), expected);
        }
    }

    /// What a kind has beside the fields of a pod, whole manifests in others, and what is a record of the past.
    #[test]
    fn kinds_that_have_containers_and_more_are_read_whole() {
        let spec = json!({
            "containers": [{"name": "c"}], "nodeSelector": {"karpenter.sh/provisioner-name": "a"},
            "podMetadata": {"annotations": {PROTECTED: "false"}},
        });
        let (found, lines) = converted(json!({"kind": "Prometheus", "spec": spec}));
        assert_eq!(found["spec"]["nodeSelector"]["karpenter.sh/nodepool"], "a");
        let left = format!("spec.podMetadata.annotations.{PROTECTED}");
        let expected = [
            (Change::Moved, "spec.nodeSelector.karpenter.sh/provisioner-name"),
            (Change::Manual, left.as_str()),
        ];
        assert_eq!(told(&lines), expected);

        let template = json!({"metadata": {"annotations": {PROTECTED: "false"}}, "spec": {"containers": [{"name": "c"}]}});
        let daemons = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": template}});
        let work = json!({"kind": "ManifestWork", "spec": {"workload": {"manifests": [daemons]}}});
        let (found, lines) = converted(work);
        assert!(!found.to_string().contains("do-not-disrupt"), "{found}");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0].change, Change::Dropped);

        let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"spec": {"template": template}}});
        assert_eq!(converted(revision.clone()), (revision, Vec::new()));
    }

    #[test]
    fn retired_names_in_kinds_that_are_not_known_are_left_and_told() {
        let object = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "spec": {"values": {
                "agents": {"nodeSelector": {"matchLabels": {"karpenter.sh/provisioner-name": "a"}}},
                "nodeSelector": {"karpenter.sh/provisioner-name": "a"},
                "podAnnotations": {PROTECTED: "false", "karpenter.sh/do-not-evict": "true"},
                "permits": {PROTECTED: "true"},
                "podSelector": {"karpenter.sh/provisioner-name": "a"},
                "tolerations": [{"key": "karpenter.sh/disruption"}],
            }},
            "status": {"key": "karpenter.sh/provisioner-name"},
        });
        let (found, lines) = converted(object.clone());
        assert_eq!(found, object);
        let expected = [
            "spec.values.agents.nodeSelector.matchLabels.karpenter.sh/provisioner-name".to_owned(),
            "spec.values.nodeSelector.karpenter.sh/provisioner-name".to_owned(),
            format!("spec.values.podAnnotations.{PROTECTED}"),
            "spec.values.podAnnotations.karpenter.sh/do-not-evict".to_owned(),
            "spec.values.tolerations[0].key".to_owned(),
        ];
        assert_eq!(
            told(&lines),
            expected.each_ref().map(|field| (Change::Manual, field.as_str()))
        );
        // Kinds without pods are told in the same way: a ConfigMap is well known.
        let texts = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "karpenter.sh/provisioner-name"}});
        let (found, lines) = converted(texts.clone());
        assert_eq!(found, texts);
        assert_eq!(told(&lines), [(Change::Manual, "data.key")]);
        let text =
            "karpenter.sh/provisioner-name is karpenter.sh/nodepool in v1; in ConfigMap it is left as it is";
        assert_eq!(lines[0].text, text);
        // Who has a definition here has a conversion of its own.
        let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "spec": {"tags": {"karpenter.sh/provisioner-name": "a"}}});
        assert!(converted(class).1.is_empty());
    }
}
