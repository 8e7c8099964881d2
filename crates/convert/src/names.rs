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

const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

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

/// Annotations of cluster-autoscaler on pods and nodes, with what they become here.
pub(crate) fn autoscaler_annotations(entries: &mut Map<String, Value>, path: &str, notes: &mut Notes) {
    const DOMAIN: &str = "cluster-autoscaler.kubernetes.io/";
    let keys: Vec<String> = entries
        .keys()
        .filter(|key| key.starts_with(DOMAIN))
        .cloned()
        .collect();
    for key in keys {
        let field = format!("{path}.{key}");
        let value = entries
            .get(&key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let protects = match &key[DOMAIN.len()..] {
            "safe-to-evict" => value == "false",
            "scale-down-disabled" => value == "true",
            "safe-to-evict-local-volumes" => {
                notes.dropped(&field, "local volumes never keep a node here: pods with emptyDir are moved unless they are protected with karpenter.sh/do-not-disrupt");
                entries.remove(&key);
                continue;
            }
            "pod-scale-up-delay" => {
                notes.dropped(&field, "no pod waits on its own account; the batching window (BATCH_IDLE_DURATION, BATCH_MAX_DURATION) is for all pods");
                entries.remove(&key);
                continue;
            }
            "enable-ds-eviction" => {
                notes.dropped(
                    &field,
                    "daemon pods are evicted with their node unless they tolerate karpenter.sh/disrupted",
                );
                entries.remove(&key);
                continue;
            }
            _ => {
                notes.unknown(&field, "this annotation of cluster-autoscaler is not known here; it is left as it is, and nothing reads it");
                continue;
            }
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
    if toleration["key"] != "karpenter.sh/disruption" {
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
