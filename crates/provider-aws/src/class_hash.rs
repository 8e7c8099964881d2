//! The fingerprint of an EC2NodeClass, by which static drift is noticed (A1.6, A-010, A-011).
//!
//! Upstream's value is a hash of Go structs. Ours has a version of its own, so that a cluster that is taken over has its NodeClaims
//! stamped again and drifts no node.

use serde_json::Value;
use spokeshave_api::{EC2NodeClass, Quantity};
use spokeshave_provider_common::class_hash::{Stamp, canonical_fields, hash};

/// Version of the algorithm below. Change it whenever the value for any class changes.
pub const VERSION: &str = "spokeshave-v1";

/// Annotation with the hash, on EC2NodeClasses and NodeClaims.
pub const HASH_ANNOTATION: &str = "karpenter.k8s.aws/ec2nodeclass-hash";

/// Annotation with the version of the algorithm.
pub const HASH_VERSION_ANNOTATION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";

/// Where it is carried.
pub const STAMP: Stamp = Stamp {
    hash: HASH_ANNOTATION,
    hash_version: HASH_VERSION_ANNOTATION,
    version: VERSION,
};

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
    let fields = spec.as_object().into_iter().flatten();
    let fields = fields.filter(|(field, _)| FIELDS.contains(&field.as_str()));
    let mut hashed = canonical_fields(fields.map(|(field, value)| (field.clone(), by_value(field, value))));
    hashed.insert(
        "amiFamily".to_owned(),
        Value::from(class.resolved_ami_family().as_str()),
    );
    if let Some(bundle) = ca_bundle {
        hashed.insert("caBundle".to_owned(), Value::from(bundle));
    }
    hash(hashed)
}

/// The same with each size of a volume by its value: `20Gi` and `20480Mi` are one.
fn by_value(field: &str, value: &Value) -> Value {
    match (field, value) {
        ("volumeSize", Value::String(size)) => {
            let units = size.parse::<Quantity>().map(Quantity::to_units);
            units.map_or_else(|_| value.clone(), Value::from)
        }
        (_, Value::Object(fields)) => fields
            .iter()
            .map(|(field, value)| (field.clone(), by_value(field, value)))
            .collect(),
        (_, Value::Array(entries)) => entries.iter().map(|entry| by_value("", entry)).collect(),
        (_, other) => other.clone(),
    }
}
