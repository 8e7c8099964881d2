//! The record of an instance: a `KWOKInstance` named after its NodeClaim, and how it reads as a NodeClaim.

use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use spokeshave_api::{KWOKInstance, NodeClaim, NodeClaimSpec, NodeClaimStatus, labels};

use crate::keys;

/// Image that every instance runs.
const IMAGE_ID: &str = "kwok-ami";
/// Phase of an instance whose Node has been made.
pub(crate) const RUNNING: &str = "Running";
/// Phase of an instance whose end was asked for.
pub(crate) const TERMINATING: &str = "Terminating";

/// Most characters of the NodeClaim's name in the instance's name; the whole stays a valid label value.
const CLAIM_NAME_LIMIT: usize = 47;
const SUFFIX_LENGTH: usize = 10;
/// Kubernetes' own alphabet for generated names.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Name of the instance and of its Node: `kwok-<NodeClaim>-<suffix from its UID>`. It depends on nothing else, so that every attempt for
/// one NodeClaim meets the same record.
pub(crate) fn instance_name(claim: &NodeClaim) -> String {
    let name = claim.name();
    let cut = name
        .get(..CLAIM_NAME_LIMIT)
        .unwrap_or(name)
        .trim_end_matches(['-', '.']);
    format!("kwok-{cut}-{}", uid_suffix(claim.uid()))
}

/// FNV-1a over the UID, in letters. The record holds the whole UID and is compared with it.
fn uid_suffix(uid: &str) -> String {
    let mut hash = uid.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut suffix = String::with_capacity(SUFFIX_LENGTH);
    for _ in 0..SUFFIX_LENGTH {
        suffix.push(char::from(ALPHABET[(hash % 27) as usize]));
        hash /= 27;
    }
    suffix
}

/// The instance that a provider ID names; `None` when it is not one of this cloud.
pub(crate) fn instance_of(provider_id: &str) -> Option<&str> {
    provider_id
        .strip_prefix(keys::PROVIDER_ID_PREFIX)
        .filter(|name| !name.is_empty())
}

/// The provider ID of an instance.
pub(crate) fn provider_id(instance: &KWOKInstance) -> String {
    format!("{}{}", keys::PROVIDER_ID_PREFIX, instance.name())
}

/// When the end of the instance began, if it did. A record that somebody deletes counts as well.
pub(crate) fn termination_started(instance: &KWOKInstance) -> Option<Timestamp> {
    let started = instance
        .status
        .as_ref()
        .and_then(|status| status.termination_started.as_ref());
    let deleted = instance.metadata.deletion_timestamp.as_ref();
    started.map(|time| time.0).or_else(|| deleted.map(|time| time.0))
}

/// The cloud's message about the instance that nobody has taken yet.
pub(crate) fn message(instance: &KWOKInstance) -> Option<&str> {
    let annotations = instance.metadata.annotations.as_ref()?;
    annotations.get(keys::MESSAGE).map(String::as_str)
}

/// When the cloud takes the instance back.
pub(crate) fn ends_at(instance: &KWOKInstance) -> Option<Timestamp> {
    let annotations = instance.metadata.annotations.as_ref()?;
    annotations.get(keys::ENDS_AT)?.parse().ok()
}

/// Whether the instance's Node has been made.
pub(crate) fn is_running(instance: &KWOKInstance) -> bool {
    instance
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        == Some(RUNNING)
}

/// The instance as a NodeClaim: what `Get` and `List` answer, and what `Create` adds to the one it was given.
pub(crate) fn as_node_claim(instance: KWOKInstance) -> NodeClaim {
    let (provider_id, terminated) = (provider_id(&instance), termination_started(&instance));
    let spec = instance.spec;
    let mut claim = NodeClaim::new(&spec.node_claim_name, NodeClaimSpec::default());
    claim.metadata.uid = Some(spec.node_claim_uid);
    claim.metadata.labels = Some(spec.labels);
    claim.metadata.creation_timestamp = instance.metadata.creation_timestamp;
    claim.metadata.deletion_timestamp = terminated.map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time);
    if let Some(pool) = spec.node_pool {
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.entry(labels::NODE_POOL.to_owned()).or_insert(pool);
    }
    if !spec.price.is_empty() {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert(labels::PRICE_AT_LAUNCH.to_owned(), spec.price);
    }
    claim.status = Some(NodeClaimStatus {
        provider_id: Some(provider_id),
        image_id: Some(IMAGE_ID.to_owned()),
        capacity: spec.capacity,
        allocatable: spec.allocatable,
        ..NodeClaimStatus::default()
    });
    claim
}

/// The kind of the records, read leniently.
pub(crate) fn record_kind() -> ApiResource {
    ApiResource::erase::<KWOKInstance>(&())
}

/// A record, unless somebody has written one that is none; that harms no other. Without who wrote which field, which is half of it in memory.
pub(crate) fn readable(mut object: DynamicObject) -> Option<KWOKInstance> {
    object.metadata.managed_fields = None;
    let name = object.metadata.name.clone().unwrap_or_default();
    object
        .try_parse::<KWOKInstance>()
        .map_err(|error| tracing::warn!(name, %error, "ignoring a KWOKInstance that cannot be read"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_depend_on_the_uid_alone_and_are_valid() {
        let claim = |name: &str, uid: &str| {
            let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
            claim.metadata.uid = Some(uid.to_owned());
            instance_name(&claim)
        };
        assert_eq!(claim("default-x2b4c", "u-1"), claim("default-x2b4c", "u-1"));
        assert_ne!(claim("default-x2b4c", "u-1"), claim("default-x2b4c", "u-2"));
        let long = claim(&format!("{}-{}", "a".repeat(46), "b".repeat(20)), "u-1");
        assert!(
            long.len() <= 63 && long.starts_with(&format!("kwok-{}-", "a".repeat(46))),
            "{long}"
        );
        assert!(!long.contains("--"), "{long}");
    }
}
