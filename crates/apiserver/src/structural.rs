//! Structural schemas: what a value must look like, with the wording of Kubernetes' own errors.

use std::sync::{Arc, Mutex, PoisonError};

use regex::Regex;
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::crd::Cause;

/// Compiled patterns; `None` for one that does not compile. Patterns come from definitions, so there are few.
static PATTERNS: Mutex<Option<FxHashMap<String, Option<Arc<Regex>>>>> = Mutex::new(None);

fn pattern(text: &str) -> Option<Arc<Regex>> {
    let mut patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    let patterns = patterns.get_or_insert_with(FxHashMap::default);
    if let Some(known) = patterns.get(text) {
        return known.clone();
    }
    // RE2 accepts an escaped slash, which this engine refuses.
    let compiled = Regex::new(&text.replace("\\/", "/")).ok().map(Arc::new);
    patterns.insert(text.to_owned(), compiled.clone());
    compiled
}

/// What is wrong with the schema of a definition itself.
pub(crate) fn check_schema(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(map) = schema.as_object() else {
        causes.push(invalid(path, schema, "must be an object"));
        return;
    };
    let open = [
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
    ]
    .iter()
    .any(|flag| map.get(*flag).is_some_and(|value| value == &Value::Bool(true)));
    match map.get("type").and_then(Value::as_str) {
        None if !open => causes.push(required(
            &format!("{path}.type"),
            "must not be empty for specified object fields",
        )),
        Some(kind) if !["object", "array", "string", "integer", "number", "boolean"].contains(&kind) => {
            causes.push(unsupported(
                &format!("{path}.type"),
                kind,
                &["array", "boolean", "integer", "number", "object", "string"],
            ));
        }
        _ => {}
    }
    if let Some(text) = map.get("pattern").and_then(Value::as_str)
        && pattern(text).is_none()
    {
        causes.push(invalid(
            &format!("{path}.pattern"),
            &Value::from(text),
            "must be a valid regular expression, but isn't",
        ));
    }
    for (name, property) in map
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        check_schema(property, &format!("{path}.properties[{name}]"), causes);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = map.get(key).filter(|child| child.is_object()) {
            check_schema(child, &format!("{path}.{key}"), causes);
        }
    }
    if map.get("type").and_then(Value::as_str) == Some("array") && !map.contains_key("items") {
        causes.push(required(&format!("{path}.items"), "must be specified"));
    }
}

/// Removes nulls where a default will take their place; other nulls of fields that are not nullable go too.
pub(crate) fn drop_nulls_with_default(schema: &Value, object: &mut Value) {
    match object {
        Value::Object(map) => {
            map.retain(|key, value| {
                let property = &schema["properties"][key];
                !(value.is_null()
                    && !property.is_null()
                    && !property["nullable"].as_bool().unwrap_or(false)
                    && !property["default"].is_null())
            });
            for (key, value) in map.iter_mut() {
                let property = &schema["properties"][key];
                drop_nulls_with_default(
                    if property.is_null() {
                        &schema["additionalProperties"]
                    } else {
                        property
                    },
                    value,
                );
            }
        }
        Value::Array(list) => {
            for item in list {
                drop_nulls_with_default(&schema["items"], item);
            }
        }
        _ => {}
    }
}

/// Everything wrong with a value.
pub(crate) fn validate(schema: &Value, object: &Value, causes: &mut Vec<Cause>) {
    check(schema, object, "", causes);
}

fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if !schema.is_object() {
        return;
    }
    if value.is_null() {
        if !schema["nullable"].as_bool().unwrap_or(false) && !schema["type"].is_null() {
            let kind = schema["type"].as_str().unwrap_or_default();
            causes.push(type_invalid(path, value, kind, "null"));
        }
        return;
    }
    if !check_type(schema, value, path, causes) {
        return;
    }
    check_value(schema, value, path, causes);
    match value {
        Value::Object(map) => check_object(schema, map, path, causes),
        Value::Array(list) => check_list(schema, list, path, causes),
        _ => {}
    }
    check_combinations(schema, value, path, causes);
}

fn check_type(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        if value.is_i64() || value.is_u64() || value.is_string() {
            return true;
        }
        causes.push(type_invalid(path, value, "integer,string", kind_of(value)));
        return false;
    }
    let Some(kind) = schema["type"].as_str() else {
        return true;
    };
    let fits = match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => true,
    };
    if !fits {
        causes.push(type_invalid(path, value, kind, kind_of(value)));
    }
    fits
}

fn check_value(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let name = if path.is_empty() { "value" } else { path };
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(|allowed| format!("{allowed}")).collect();
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            field: path.to_owned(),
            message: format!(
                "Unsupported value: {value}: supported values: {}",
                allowed.join(", ")
            ),
        });
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
            causes.push(Cause {
                reason: "FieldValueTooLong",
                field: path.to_owned(),
                message: format!("Too long: may not be more than {} bytes", schema["maxLength"]),
            });
        }
        if schema["minLength"].as_u64().is_some_and(|least| length < least) {
            causes.push(invalid(
                path,
                value,
                &format!(
                    "{name} in body should be at least {} chars long",
                    schema["minLength"]
                ),
            ));
        }
        if let Some(source) = schema["pattern"].as_str()
            && pattern(source).is_some_and(|pattern| !pattern.is_match(text))
        {
            causes.push(invalid(
                path,
                value,
                &format!("{name} in body should match '{source}'"),
            ));
        }
        if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
            causes.push(invalid(
                path,
                value,
                &format!("{name} in body must be of type date-time: {value}"),
            ));
        }
    }
    if let Some(number) = value.as_f64() {
        if schema["minimum"].as_f64().is_some_and(|least| number < least) {
            causes.push(invalid(
                path,
                value,
                &format!(
                    "{name} in body should be greater than or equal to {}",
                    schema["minimum"]
                ),
            ));
        }
        if schema["maximum"].as_f64().is_some_and(|most| number > most) {
            causes.push(invalid(
                path,
                value,
                &format!(
                    "{name} in body should be less than or equal to {}",
                    schema["maximum"]
                ),
            ));
        }
    }
}

fn check_object(schema: &Value, map: &serde_json::Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !map.contains_key(name) {
            causes.push(required(&join(path, name), ""));
        }
    }
    count(schema, "Properties", map.len(), path, causes);
    for (key, child) in map {
        if path.is_empty() && matches!(key.as_str(), "metadata" | "apiVersion" | "kind") {
            continue;
        }
        let property = &schema["properties"][key];
        let property = if property.is_null() {
            &schema["additionalProperties"]
        } else {
            property
        };
        check(property, child, &join(path, key), causes);
    }
}

fn check_list(schema: &Value, list: &[Value], path: &str, causes: &mut Vec<Cause>) {
    count(schema, "Items", list.len(), path, causes);
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let kind = schema["x-kubernetes-list-type"].as_str().unwrap_or_default();
    for (index, item) in list.iter().enumerate() {
        let here = format!("{path}[{index}]");
        let same = |other: &Value| match kind {
            "set" => other == item,
            "map" => keys.iter().all(|key| other[*key] == item[*key]),
            _ => false,
        };
        if list[..index].iter().any(same) {
            let shown = if kind == "map" {
                Value::Object(
                    keys.iter()
                        .map(|key| ((*key).to_owned(), item[*key].clone()))
                        .collect(),
                )
            } else {
                item.clone()
            };
            causes.push(Cause {
                reason: "FieldValueDuplicate",
                field: here.clone(),
                message: format!("Duplicate value: {shown}"),
            });
        }
        check(&schema["items"], item, &here, causes);
    }
}

fn count(schema: &Value, what: &str, number: usize, path: &str, causes: &mut Vec<Cause>) {
    let number = number as u64;
    if schema[format!("max{what}")]
        .as_u64()
        .is_some_and(|most| number > most)
    {
        causes.push(Cause {
            reason: "FieldValueTooMany",
            field: path.to_owned(),
            message: format!(
                "Too many: {number}: must have at most {} items",
                schema[format!("max{what}")]
            ),
        });
    }
    if schema[format!("min{what}")]
        .as_u64()
        .is_some_and(|least| number < least)
    {
        causes.push(invalid(
            path,
            &Value::from(number),
            &format!(
                "{path} in body should have at least {} items",
                schema[format!("min{what}")]
            ),
        ));
    }
}

fn check_combinations(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let passes = |part: &Value| {
        let mut found = Vec::new();
        check(part, value, path, &mut found);
        found.is_empty()
    };
    for part in schema["allOf"].as_array().into_iter().flatten() {
        check(part, value, path, causes);
    }
    if let Some(parts) = schema["anyOf"].as_array()
        && schema["x-kubernetes-int-or-string"] != true
        && !parts.iter().any(passes)
    {
        causes.push(invalid(
            path,
            value,
            &format!("{path} in body must be valid against at least one schema (anyOf)"),
        ));
    }
    if let Some(parts) = schema["oneOf"].as_array()
        && parts.iter().filter(|part| passes(part)).count() != 1
    {
        causes.push(invalid(
            path,
            value,
            &format!("{path} in body must be valid against one and only one schema (oneOf)"),
        ));
    }
    if schema["not"].is_object() && passes(&schema["not"]) {
        causes.push(invalid(
            path,
            value,
            &format!("{path} in body must not validate the schema (not)"),
        ));
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn invalid(path: &str, value: &Value, problem: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid",
        field: path.to_owned(),
        message: format!("Invalid value: {}: {problem}", shown(value)),
    }
}

fn required(path: &str, problem: &str) -> Cause {
    let message = if problem.is_empty() {
        "Required value".to_owned()
    } else {
        format!("Required value: {problem}")
    };
    Cause {
        reason: "FieldValueRequired",
        field: path.to_owned(),
        message,
    }
}

fn unsupported(path: &str, value: &str, allowed: &[&str]) -> Cause {
    let allowed: Vec<String> = allowed.iter().map(|allowed| format!("{allowed:?}")).collect();
    Cause {
        reason: "FieldValueNotSupported",
        field: path.to_owned(),
        message: format!(
            "Unsupported value: {value:?}: supported values: {}",
            allowed.join(", ")
        ),
    }
}

fn type_invalid(path: &str, value: &Value, kind: &str, found: &str) -> Cause {
    Cause {
        reason: "FieldValueTypeInvalid",
        field: path.to_owned(),
        message: format!(
            "Invalid value: {}: {path} in body must be of type {kind}: {}",
            quoted(found),
            quoted(if value.is_null() { "null" } else { found })
        ),
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// A value as errors show it: objects and lists by their kind.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "\"object\"".to_owned(),
        Value::Array(_) => "\"array\"".to_owned(),
        other => other.to_string(),
    }
}

/// The value at a dotted path with `[index]` parts, as errors show it.
pub(crate) fn shown_at(object: &Value, path: &str) -> String {
    let mut here = object;
    for part in path
        .split(['.', '['])
        .map(|part| part.trim_end_matches(']'))
        .filter(|part| !part.is_empty())
    {
        here = match here {
            Value::Array(list) => part
                .parse::<usize>()
                .ok()
                .and_then(|index| list.get(index))
                .unwrap_or(&Value::Null),
            other => &other[part],
        };
    }
    shown(here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn causes(schema: &Value, value: &Value) -> Vec<String> {
        let mut causes = Vec::new();
        validate(schema, value, &mut causes);
        causes.iter().map(Cause::sentence).collect()
    }

    #[test]
    fn errors_read_as_those_of_kubernetes() {
        let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "required": ["template"], "properties": {
            "weight": {"type": "integer", "minimum": 1, "maximum": 100},
            "nodes": {"type": "string", "pattern": "^((100|[0-9]{1,2})%|[0-9]+)$"},
            "policy": {"type": "string", "enum": ["A", "B"]},
            "list": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 3}},
            "size": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "template": {"type": "object"},
        }}}});
        for (spec, expected) in [
            (
                json!({"template": {}, "weight": 0}),
                "spec.weight: Invalid value: 0: spec.weight in body should be greater than or equal to 1",
            ),
            (
                json!({"template": {}, "weight": 101}),
                "spec.weight: Invalid value: 101: spec.weight in body should be less than or equal to 100",
            ),
            (
                json!({"template": {}, "weight": "x"}),
                "spec.weight: Invalid value: \"string\": spec.weight in body must be of type integer: \"string\"",
            ),
            (json!({}), "spec.template: Required value"),
            (
                json!({"template": {}, "nodes": "-1"}),
                "spec.nodes: Invalid value: \"-1\": spec.nodes in body should match '^((100|[0-9]{1,2})%|[0-9]+)$'",
            ),
            (
                json!({"template": {}, "policy": "C"}),
                "spec.policy: Unsupported value: \"C\": supported values: \"A\", \"B\"",
            ),
            (
                json!({"template": {}, "list": ["a", "a"]}),
                "spec.list[1]: Duplicate value: \"a\"",
            ),
            (
                json!({"template": {}, "list": ["abcd"]}),
                "spec.list[0]: Too long: may not be more than 3 bytes",
            ),
            (
                json!({"template": {}, "list": ["a", "b", "c"]}),
                "spec.list: Too many: 3: must have at most 2 items",
            ),
            (
                json!({"template": {}, "size": true}),
                "spec.size: Invalid value: \"boolean\": spec.size in body must be of type integer,string: \"boolean\"",
            ),
        ] {
            assert_eq!(causes(&schema, &json!({"spec": spec})), [expected], "{spec}");
        }
        assert_eq!(
            causes(&schema, &json!({"spec": {"template": {}, "size": 3}})),
            Vec::<String>::new()
        );
    }

    #[test]
    fn bad_schemas_are_refused() {
        let mut causes = Vec::new();
        check_schema(
            &json!({"type": "object", "properties": {"a": {"type": "strin"}, "b": {"type": "string", "pattern": "("}, "c": {"type": "array"}, "d": {}}}),
            "s",
            &mut causes,
        );
        let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "s.properties[a].type",
                "s.properties[b].pattern",
                "s.properties[c].items",
                "s.properties[d].type"
            ]
        );
    }
}
