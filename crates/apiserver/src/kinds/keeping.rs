//! Keeping what was: fields that are taken from another version of an object, and those by which versions are compared.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What an object has beside some fields.
pub(super) fn all_but<'a>(object: &'a Value, fields: &[&str]) -> BTreeMap<&'a str, &'a Value> {
    let all = object.as_object().into_iter().flatten();
    all.map(|(field, value)| (field.as_str(), value))
        .filter(|(field, _)| !fields.contains(field))
        .collect()
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
