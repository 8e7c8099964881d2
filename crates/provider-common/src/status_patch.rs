//! The status of a NodeClass as a merge patch, and its finalizer's end.
//!
//! Owns what such a patch must say. It is refused once the class has changed since it was read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Value, json};

/// What turns one status into the other; `None` when they are the same. Fields that have become empty are taken away: a merge patch keeps what it does not name.
#[must_use]
pub fn status_patch<S: Serialize + PartialEq>(
    read: &ObjectMeta,
    before: Option<&S>,
    after: Option<&S>,
) -> Option<Value> {
    if before == after {
        return None;
    }
    let value = |status: Option<&S>| serde_json::to_value(status).unwrap_or_default();
    let (old, mut status) = (value(before), value(after));
    for field in old.as_object().into_iter().flat_map(|old| old.keys()) {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    Some(json!({"metadata": {"resourceVersion": read.resource_version}, "status": status}))
}

/// What takes the finalizer off; `None` when it is not there.
#[must_use]
pub fn finalizer_patch(read: &ObjectMeta, finalizer: &str) -> Option<Value> {
    let all = read.finalizers.as_deref().unwrap_or_default();
    let left: Vec<&String> = all.iter().filter(|it| *it != finalizer).collect();
    (left.len() < all.len())
        .then(|| json!({"metadata": {"resourceVersion": read.resource_version, "finalizers": left}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_020_z_004_a_status_patch_takes_away_what_has_become_empty_and_names_the_version_it_was_read_at() {
        let read = ObjectMeta {
            resource_version: Some("7".to_owned()),
            finalizers: Some(vec!["a/one".to_owned(), "b/two".to_owned()]),
            ..ObjectMeta::default()
        };
        let (old, new) = (json!({"images": [1], "zone": "a"}), json!({"zone": "b"}));
        assert_eq!(
            status_patch(&read, Some(&old), Some(&new)),
            Some(json!({"metadata": {"resourceVersion": "7"}, "status": {"images": null, "zone": "b"}}))
        );
        assert_eq!(status_patch(&read, Some(&old), Some(&old)), None);
        assert_eq!(
            finalizer_patch(&read, "a/one"),
            Some(json!({"metadata": {"resourceVersion": "7", "finalizers": ["b/two"]}}))
        );
        assert_eq!(finalizer_patch(&read, "c/three"), None);
    }
}
