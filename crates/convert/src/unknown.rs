//! Fields that the schema of a v1 kind does not have: found by walking it beside the object.

use serde_json::Value;

use crate::fields::below;

/// Paths of fields that the schema does not know, with their values, in order.
pub(crate) fn fields(schema: &Value, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(schema, object, "", &mut found);
    found
}

fn walk(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    match value {
        Value::Object(map) => {
            let known = schema["properties"].as_object();
            let any = &schema["additionalProperties"];
            for (key, value) in map {
                let path = below(path, key);
                match known.and_then(|known| known.get(key)) {
                    Some(schema) => walk(schema, value, &path, found),
                    // A bare `type: object`, as metadata's, says nothing about its fields.
                    None if any.is_object() => walk(any, value, &path, found),
                    None if known.is_some() => found.push(path),
                    None => {}
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(&schema["items"], item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// Removes the same fields.
pub(crate) fn prune(schema: &Value, object: &mut Value) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    match object {
        Value::Object(map) => {
            let known = schema["properties"].as_object();
            let any = &schema["additionalProperties"];
            if let Some(known) = known {
                map.retain(|key, _| known.contains_key(key) || any.is_object());
            }
            for (key, value) in map.iter_mut() {
                match known.and_then(|known| known.get(key)) {
                    Some(schema) => prune(schema, value),
                    None => prune(any, value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(&schema["items"], item)),
        _ => {}
    }
}
