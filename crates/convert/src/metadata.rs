//! Names, labels and annotations of retired kinds, and what the API server and retired controllers wrote beside them.

use serde_json::{Map, Value};

use crate::report::Notes;

/// Written by the API server; means nothing in a manifest.
const BY_SERVER: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// Written by controllers or tools, and about the old object.
const BY_CONTROLLERS: [&str; 10] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "karpenter.sh/provisioner-hash",
    "karpenter.sh/nodepool-hash",
    "karpenter.sh/nodepool-hash-version",
    "karpenter.k8s.aws/nodetemplate-hash",
    "karpenter.k8s.aws/ec2nodeclass-hash",
    "karpenter.k8s.aws/ec2nodeclass-hash-version",
    "karpenter.sh/linked",
    "karpenter.sh/managed-by",
    "karpenter.sh/emptiness-timestamp",
];

/// The metadata of a converted object.
pub(crate) fn converted(metadata: Value, notes: &mut Notes) -> Value {
    let Value::Object(mut map) = metadata else {
        return metadata;
    };
    let mut left_out: Vec<String> = BY_SERVER
        .iter()
        .filter(|key| map.remove(**key).is_some())
        .map(|key| (*key).to_owned())
        .collect();
    if let Some(Value::Object(annotations)) = map.get_mut("annotations") {
        for key in BY_CONTROLLERS {
            if annotations.remove(key).is_some() {
                left_out.push(format!("annotation {key}"));
            }
        }
        if annotations.is_empty() {
            map.remove("annotations");
        }
    }
    if let Some(owners) = map.remove("ownerReferences") {
        let of_retired = |owner: &Value| {
            let kind = owner["kind"].as_str().unwrap_or_default();
            matches!(kind, "Provisioner" | "Machine" | "AWSNodeTemplate")
        };
        let owners = owners.as_array().cloned().unwrap_or_default();
        let (retired, kept): (Vec<Value>, Vec<Value>) = owners.into_iter().partition(of_retired);
        if !retired.is_empty() {
            left_out.push("ownerReferences to retired kinds".to_owned());
        }
        if !kept.is_empty() {
            map.insert("ownerReferences".to_owned(), Value::Array(kept));
        }
    }
    if !left_out.is_empty() {
        notes.dropped(
            "metadata",
            format!(
                "{}: written by the API server or a controller about the old object",
                left_out.join(", ")
            ),
        );
    }
    rename_in(&mut map, "labels", notes);
    rename_in(&mut map, "annotations", notes);
    Value::Object(map)
}

fn rename_in(map: &mut Map<String, Value>, place: &str, notes: &mut Notes) {
    if let Some(Value::Object(entries)) = map.get_mut(place) {
        crate::names::rename_keys(entries, &format!("metadata.{place}"), notes);
    }
}
