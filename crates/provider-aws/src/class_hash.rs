//! The fingerprint of an EC2NodeClass, by which static drift is noticed (A1.6, A-010, A-011).
//!
//! Upstream's value is a hash of Go structs. Ours has a version of its own, so that a cluster that is taken over has its NodeClaims
//! stamped again and drifts no node.

use serde_json::{Map, Value};
use spokeshave_api::hash::digest;
use spokeshave_api::{EC2NodeClass, Quantity};

/// Version of the algorithm below. Change it whenever the value for any class changes.
pub const VERSION: &str = "spokeshave-v1";

/// Annotation with the hash, on EC2NodeClasses and NodeClaims.
pub const HASH_ANNOTATION: &str = "karpenter.k8s.aws/ec2nodeclass-hash";

/// Annotation with the version of the algorithm.
pub const HASH_VERSION_ANNOTATION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";

/// Fields of the spec whose change drifts nodes (column H of A1.2). What selectors resolve to is compared with the instance instead.
/// The resolved family is hashed as well, whichever field it comes from.
const FIELDS: [&str; 15] = [
    "associatePublicIPAddress",
    "blockDeviceMappings",
    "connectionTracking",
    "context",
    "cpuOptions",
    "detailedMonitoring",
    "instanceProfile",
    "instanceStorePolicy",
    "kubelet",
    "metadataOptions",
    "networkInterfaces",
    "placementGroupSelector",
    "role",
    "tags",
    "userData",
];

/// The hash of a class for a cluster with these certificates: lists count as sets, what is empty as absent, sizes of volumes by value.
#[must_use]
pub fn class_hash(class: &EC2NodeClass, ca_bundle: Option<&str>) -> String {
    let spec = serde_json::to_value(&class.spec).expect("a spec can be written as JSON");
    let mut hashed: Map<String, Value> = spec
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(field, _)| FIELDS.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), canonical(value)))
        .filter(|(_, value)| !is_empty(value))
        .collect();
    hashed.insert(
        "amiFamily".to_owned(),
        Value::from(class.resolved_ami_family().as_str()),
    );
    if let Some(bundle) = ca_bundle {
        hashed.insert("caBundle".to_owned(), Value::from(bundle));
    }
    digest(&text(&Value::Object(hashed))).to_string()
}

fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(field, value)| match (field.as_str(), value.as_str()) {
                    ("volumeSize", Some(size)) => {
                        let size = size.parse::<Quantity>();
                        (
                            field.clone(),
                            size.map_or_else(|_| value.clone(), |size| Value::from(size.to_units())),
                        )
                    }
                    _ => (field.clone(), canonical(value)),
                })
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
