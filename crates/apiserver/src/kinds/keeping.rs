//! Keeping what was: fields that may not change, and fields that are taken from another version of an object.

use serde_json::{Map, Value, json};

use crate::cause::Cause;

/// A field that stays as it is.
pub(super) fn immutable(new: &Value, old: &Value, path: &str, causes: &mut Vec<Cause>) {
    if new != old {
        causes.push(Cause::invalid(path, new, "field is immutable"));
    }
}

/// Makes a field of an object what it is in another one: absent where it is absent there.
pub(super) fn copy(field: &str, from: &Value, object: &mut Value) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    match from.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}

/// Makes the node affinity of a pod's spec what it is in another one. An affinity of which nothing is left goes where the other has none.
pub(super) fn copy_node_affinity(from: &Value, spec: &mut Value) {
    let Some(map) = spec.as_object_mut() else {
        return;
    };
    let affinity = map.entry("affinity").or_insert_with(|| json!({}));
    copy("nodeAffinity", &from["affinity"], affinity);
    let is_empty = affinity.as_object().is_some_and(Map::is_empty);
    if is_empty && from["affinity"].is_null() {
        map.remove("affinity");
    }
}
