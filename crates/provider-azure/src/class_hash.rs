//! The fingerprint of an AKSNodeClass, by which static drift is noticed (Z1.4).
//!
//! Upstream's value is a hash of Go structs. Ours has a version of its own, so that a cluster that is taken over has its NodeClaims
//! stamped again and drifts no node.

use serde_json::Value;
use spokeshave_api::AKSNodeClass;
use spokeshave_provider_common::class_hash::{Stamp, canonical_fields, hash};

use crate::instance_types;

/// Version of the algorithm below. Change it whenever the value for any class changes.
pub const VERSION: &str = "spokeshave-v1";
/// Annotation with the hash, on AKSNodeClasses and NodeClaims.
pub const HASH_ANNOTATION: &str = "karpenter.azure.com/aksnodeclass-hash";
/// Annotation with the version of the algorithm.
pub const HASH_VERSION_ANNOTATION: &str = "karpenter.azure.com/aksnodeclass-hash-version";

/// Where it is carried.
pub const STAMP: Stamp = Stamp {
    hash: HASH_ANNOTATION,
    hash_version: HASH_VERSION_ANNOTATION,
    version: VERSION,
};

/// The hash of a class: all of its spec but the tags, with defaults filled in; lists count as sets, what is empty as absent.
#[must_use]
pub fn class_hash(class: &AKSNodeClass) -> String {
    let spec = serde_json::to_value(&class.spec).unwrap_or_default();
    let fields = spec.as_object().cloned().unwrap_or_default().into_iter();
    let mut hashed = canonical_fields(fields.filter(|(field, _)| field != "tags"));
    let family = instance_types::image_family(class);
    hashed.insert("imageFamily".to_owned(), Value::from(family.as_str()));
    hashed.insert(
        "osDiskSizeGB".to_owned(),
        Value::from(instance_types::os_disk_gb(class)),
    );
    hash(hashed)
}
