//! Labels, annotations and taints that have other names in v1, wherever they are named: metadata, selectors, affinities, tolerations.

use serde_json::{Map, Value, json};

use crate::report::Notes;

/// The conversion of a label or annotation.
enum Fate {
    /// It has another key; the value stays.
    Renamed(&'static str),
    /// It has another key, and means more or less than before.
    Widened(&'static str, &'static str),
    /// It is gone.
    Gone(&'static str),
}

/// Whose annotations of cluster-autoscaler are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bearer {
    Pod,
    /// A pod of a DaemonSet, or what cluster-autoscaler takes for one.
    DaemonPod,
    Node,
}

const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// The key of the taint of nodes on their way out, before v1 (D-379).
const OLD_TAINT: &str = "karpenter.sh/disruption";
const AUTOSCALER: &str = "cluster-autoscaler.kubernetes.io/";
/// By which cluster-autoscaler takes a pod for one of a DaemonSet.
pub(crate) const DAEMON_POD: &str = "cluster-autoscaler.kubernetes.io/daemonset-pod";

fn fate(key: &str) -> Option<Fate> {
    Some(match key {
        "karpenter.sh/provisioner-name" => Fate::Renamed("karpenter.sh/nodepool"),
        "karpenter.sh/do-not-evict" => Fate::Widened(
            DO_NOT_DISRUPT,
            "v1 does not read do-not-evict. It also keeps the node from consolidation and drift; when a node expires, the node's other pods leave and only this one is waited for",
        ),
        "karpenter.sh/do-not-consolidate" => Fate::Widened(
            DO_NOT_DISRUPT,
            "v1 does not read do-not-consolidate. It also keeps the node from drift",
        ),
        "karpenter.k8s.aws/instance-pods" => {
            Fate::Gone("nodes no longer carry this label; what names it matches no node")
        }
        _ => return None,
    })
}

/// The key that a label has in v1.
pub(crate) fn label_in_v1(key: &str) -> Option<&'static str> {
    match fate(key) {
        Some(Fate::Renamed(new)) => Some(new),
        _ => None,
    }
}

/// Renames keys of labels or annotations at a path.
pub(crate) fn rename_keys(entries: &mut Map<String, Value>, path: &str, notes: &mut Notes) {
    let keys: Vec<String> = entries.keys().cloned().collect();
    for key in keys {
        let field = format!("{path}.{key}");
        let new = match fate(&key) {
            None => continue,
            Some(Fate::Gone(why)) => {
                notes.manual(&field, why);
                continue;
            }
            Some(Fate::Renamed(new)) => {
                notes.moved(&field, &format!("{path}.{new}"), "another name");
                new
            }
            Some(Fate::Widened(new, why)) => {
                notes.changed(&field, &format!("{path}.{new}"), why);
                new
            }
        };
        if let Some(value) = entries.remove(&key) {
            // If both are set, v1 already uses the new one.
            entries.entry(new.to_owned()).or_insert(value);
        }
    }
}

/// Why an annotation of cluster-autoscaler has nothing to say here.
fn without_effect(name: &str, bearer: Bearer) -> Option<&'static str> {
    Some(match name {
        // There, the rule for pods of DaemonSets comes before those that read annotations.
        "safe-to-evict" | "scale-down-disabled" if bearer == Bearer::DaemonPod => {
            "cluster-autoscaler does not read it on pods of DaemonSets; as karpenter.sh/do-not-disrupt it would keep every node that has such a pod"
        }
        "safe-to-evict-local-volumes" => {
            "local volumes never keep a node here: pods with emptyDir are moved unless they are protected with karpenter.sh/do-not-disrupt"
        }
        "pod-scale-up-delay" => {
            "no pod waits on its own account; the batching window (BATCH_IDLE_DURATION, BATCH_MAX_DURATION) is for all pods"
        }
        "enable-ds-eviction" => {
            "daemon pods are evicted with their node unless they tolerate karpenter.sh/disrupted"
        }
        "daemonset-pod" => {
            "only pods of DaemonSets count as daemons here: others are moved, and their node is not empty before"
        }
        _ => return None,
    })
}

/// Whether an annotation of cluster-autoscaler with this value keeps its node; `None` of one that says nothing of that.
fn protects(name: &str, value: &str) -> Option<bool> {
    match name {
        "safe-to-evict" => Some(value == "false"),
        "scale-down-disabled" => Some(value == "true"),
        _ => None,
    }
}

/// Annotations of cluster-autoscaler on pods and nodes, with what they become here.
pub(crate) fn autoscaler_annotations(
    entries: &mut Map<String, Value>,
    path: &str,
    bearer: Bearer,
    notes: &mut Notes,
) {
    let names: Vec<String> = entries
        .keys()
        .filter_map(|key| key.strip_prefix(AUTOSCALER))
        .map(str::to_owned)
        .collect();
    for name in names {
        let key = format!("{AUTOSCALER}{name}");
        let field = format!("{path}.{key}");
        if let Some(why) = without_effect(&name, bearer) {
            notes.dropped(&field, why);
            entries.remove(&key);
            continue;
        }
        let value = entries
            .get(&key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let Some(protects) = protects(&name, &value) else {
            notes.unknown(&field, "this annotation of cluster-autoscaler is not known here; it is left as it is, and nothing reads it");
            continue;
        };
        entries.remove(&key);
        if protects {
            entries
                .entry(DO_NOT_DISRUPT.to_owned())
                .or_insert_with(|| json!("true"));
            notes.changed(
                &field,
                &format!("{path}.{DO_NOT_DISRUPT}"),
                "also keeps the node from drift; expiry starts all the same, and the drain then waits for the pod",
            );
        } else {
            notes.dropped(
                &field,
                format!("{value:?} permits what is permitted here anyway: pods are moved unless they are protected"),
            );
        }
    }
}

/// What has become of a name that is retired, of any kind.
pub(crate) fn retired(name: &str) -> Option<String> {
    match fate(name) {
        Some(Fate::Renamed(new) | Fate::Widened(new, _)) => Some(format!("{name} is {new} in v1")),
        Some(Fate::Gone(why)) => Some(format!("{name}: {why}")),
        None => {
            (name == OLD_TAINT).then(|| format!("{name} is karpenter.sh/disrupted in v1, without a value"))
        }
    }
}

/// What would have to be said in place of an annotation of cluster-autoscaler that protects.
pub(crate) fn retired_protection(key: &str, value: &Value) -> Option<String> {
    let name = key.strip_prefix(AUTOSCALER)?;
    let is_protected = protects(name, value.as_str()?) == Some(true);
    is_protected.then(|| format!("{key} is {DO_NOT_DISRUPT}: \"true\" here"))
}

/// The fields of a pod's spec that are read here.
pub(crate) const OF_POD_SPEC: [&str; 4] = [
    "affinity",
    "nodeSelector",
    "tolerations",
    "topologySpreadConstraints",
];

/// Labels that a pod names in selectors, affinities and spread constraints, and the taints that it tolerates.
pub(crate) fn rename_in_pod_spec(spec: &mut Value, path: &str, notes: &mut Notes) {
    if let Some(Value::Object(selector)) = spec.get_mut("nodeSelector") {
        rename_keys(selector, &format!("{path}.nodeSelector"), notes);
    }
    for place in ["affinity", "topologySpreadConstraints"] {
        if let Some(value) = spec.get_mut(place) {
            rename_named(value, &format!("{path}.{place}"), notes);
        }
    }
    let tolerations = spec.get_mut("tolerations").and_then(Value::as_array_mut);
    for (index, toleration) in tolerations.into_iter().flatten().enumerate() {
        rename_toleration(toleration, &format!("{path}.tolerations[{index}]"), notes);
    }
}

/// Values of `key` and `topologyKey`, at any depth.
fn rename_named(value: &mut Value, path: &str, notes: &mut Notes) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                rename_named(item, &format!("{path}[{index}]"), notes);
            }
        }
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                let path = format!("{path}.{name}");
                match value.as_str() {
                    Some(label) if matches!(name.as_str(), "key" | "topologyKey") => {
                        if let Some(new) = label_in_v1(label) {
                            notes.moved(&path, &path, format!("{label} is {new} in v1"));
                            *value = json!(new);
                        } else if let Some(Fate::Gone(why)) = fate(label) {
                            notes.manual(&path, why);
                        }
                    }
                    // Selectors of pods speak of pods' labels, not of nodes'.
                    _ if name == "labelSelector" || name == "namespaceSelector" => {}
                    _ => rename_named(value, &path, notes),
                }
            }
        }
        _ => {}
    }
}

/// The taint of nodes on their way out (D-379).
fn rename_toleration(toleration: &mut Value, path: &str, notes: &mut Notes) {
    if toleration["key"] != OLD_TAINT {
        return;
    }
    let Some(map) = toleration.as_object_mut() else {
        return;
    };
    map.insert("key".to_owned(), json!("karpenter.sh/disrupted"));
    map.insert("operator".to_owned(), json!("Exists"));
    map.remove("value");
    notes.changed(
        path,
        path,
        "the taint is karpenter.sh/disrupted:NoSchedule without a value in v1; who tolerates it is not evicted at all",
    );
}
