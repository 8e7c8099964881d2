//! The fingerprint of an AKSNodeClass, by which static drift is noticed (Z1.4).
//!
//! Upstream's value is a hash of Go structs. Ours has a version of its own, so that a cluster that is taken over has its NodeClaims
//! stamped again and drifts no node.

use serde_json::{Map, Value};
use spokeshave_api::AKSNodeClass;
use spokeshave_api::hash::digest;

use crate::instance_types;

/// Version of the algorithm below. Change it whenever the value for any class changes.
pub const VERSION: &str = "spokeshave-v1";
/// Annotation with the hash, on AKSNodeClasses and NodeClaims.
pub const HASH_ANNOTATION: &str = "karpenter.azure.com/aksnodeclass-hash";
/// Annotation with the version of the algorithm.
pub const HASH_VERSION_ANNOTATION: &str = "karpenter.azure.com/aksnodeclass-hash-version";

/// The hash of a class: all of its spec but the tags, with defaults filled in; lists count as sets, what is empty as absent.
#[must_use]
pub fn class_hash(class: &AKSNodeClass) -> String {
    let spec = serde_json::to_value(&class.spec).unwrap_or_default();
    let mut hashed: Map<String, Value> = spec
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(field, _)| *field != "tags")
        .map(|(field, value)| (field.clone(), canonical(value)))
        .filter(|(_, value)| !is_empty(value))
        .collect();
    let family = instance_types::image_family(class);
    hashed.insert("imageFamily".to_owned(), Value::from(family.as_str()));
    hashed.insert(
        "osDiskSizeGB".to_owned(),
        Value::from(instance_types::os_disk_gb(class)),
    );
    digest(&text(&Value::Object(hashed))).to_string()
}

fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(field, value)| (field.clone(), canonical(value)))
                .filter(|(_, value)| !is_empty(value))
                .collect(),
        ),
        Value::Array(entries) => {
            let mut entries: Vec<Value> = entries.iter().map(canonical).collect();
            entries.sort_by_cached_key(text);
            entries.dedup();
            Value::Array(entries)
        }
        other => other.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Unambiguous text, whatever the order in which maps keep their keys.
fn text(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(field, _)| *field);
            let fields = fields
                .into_iter()
                .map(|(field, value)| format!("{}:{}", Value::from(field.as_str()), text(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(entries) => format!("[{}]", entries.iter().map(text).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
