//! Filling in what a user may leave out: helpers for defaults of all kinds.

use serde_json::{Map, Value, json};

/// Sets a field that is not there.
pub(super) fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    map.entry(key.to_owned()).or_insert(value);
}

/// Changes an object; null becomes one first.
pub(super) fn with(value: &mut Value, change: impl FnOnce(&mut Map<String, Value>)) {
    if value.is_null() {
        *value = json!({});
    }
    if let Value::Object(map) = value {
        change(map);
    }
}

/// Changes the `spec`, where there is one.
pub(super) fn with_spec(object: &mut Value, change: impl FnOnce(&mut Map<String, Value>)) {
    if let Some(spec) = object.get_mut("spec") {
        with(spec, change);
    }
}
