//! Whether the schema of a version is acceptable: it is structural, and its defaults satisfy it. What holds at each of its places is judged in
//! `schema_nodes`.

use serde_json::{Map, Value, json};

use super::path::Path;
use super::schema_nodes::{Context, Found, Visit, check_node};
use super::structural::{Structural, pattern};
use super::{rules, text, values};
use crate::cause::{Cause, NO_FIELD};
use crate::schema::types::{self, TypeSchema};

pub(super) fn check_version_schema(version: &Value, path: &str, causes: &mut Vec<Cause>) {
    let raw = &version["schema"]["openAPIV3Schema"];
    let Some(map) = raw.as_object() else { return };
    let has_status = version["subresources"]["status"].is_object();
    if has_status && map.contains_key("type") && raw["type"] != "object" {
        let problem = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        causes.push(Cause::invalid(format!("{path}.type"), &raw["type"], problem));
    }
    if raw["nullable"] == true {
        causes.push(Cause::forbidden(
            format!("{path}.nullable"),
            "nullable cannot be true at the root",
        ));
    }
    let mut structural = Vec::new();
    check_structure(raw, Level::Root, path, &mut structural);
    structural.sort_by_key(Cause::sentence);
    let sound = structural.is_empty();
    causes.append(&mut structural);
    let before = causes.len();
    if sound {
        check_defaults(raw, path, false, causes);
    }
    let defaults_hold = sound && causes.len() == before;
    let mut found = Found {
        schema: Vec::new(),
        rules: Vec::new(),
    };
    let context = Context {
        root: raw,
        compiled: defaults_hold.then(|| Structural::compile(raw)),
    };
    check_node(
        raw,
        path,
        &mut Visit {
            context: &context,
            is_root: true,
            inside_meta: false,
            no_defaults: None,
            uncorrelatable: None,
        },
        context.compiled.as_ref(),
        &mut found,
    );
    causes.append(&mut found.schema);
    causes.append(&mut found.rules);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The invariants of a structural schema.
fn check_structure(schema: &Value, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let Some(map) = schema.as_object() else {
        causes.push(Cause::invalid(path, schema, "must be an object"));
        return;
    };
    let flag = |key: &str| map.get(key) == Some(&Value::Bool(true));
    let kind = text(&schema["type"]);
    let embedded = flag("x-kubernetes-embedded-resource");
    let int_or_string = flag("x-kubernetes-int-or-string");
    let preserves = flag("x-kubernetes-preserve-unknown-fields");
    if kind == "array" && schema["items"].is_null() {
        causes.push(Cause::required(format!("{path}.items"), "must be specified"));
    }
    if schema["items"].is_object() {
        check_structure(&schema["items"], Level::Item, &format!("{path}.items"), causes);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        check_structure(
            property,
            Level::Field,
            &format!("{path}.properties[{name}]"),
            causes,
        );
    }
    if let Some(additional) = map
        .get("additionalProperties")
        .filter(|additional| *additional != &Value::Bool(false))
    {
        let here = format!("{path}.additionalProperties");
        if level == Level::Root {
            causes.push(Cause::forbidden(&here, "must not be used at the root"));
        }
        if embedded {
            causes.push(Cause::forbidden(
                &here,
                "must not be used if x-kubernetes-embedded-resource is set",
            ));
        }
        if additional.is_object() {
            check_structure(additional, Level::Field, &here, causes);
        }
    }
    if int_or_string {
        for (other, set) in [
            ("x-kubernetes-preserve-unknown-fields", preserves),
            ("x-kubernetes-embedded-resource", embedded),
        ] {
            if set {
                causes.push(Cause::invalid(
                    format!("{path}.{other}"),
                    &json!(true),
                    "must be false if x-kubernetes-int-or-string is true",
                ));
            }
        }
    }
    check_value_validation(schema, true, level, path, causes);
    check_type_at(level, kind, embedded, int_or_string || preserves, path, causes);
    if level == Level::Root || embedded {
        for name in ["kind", "apiVersion"] {
            let property = &schema["properties"][name];
            if property.is_object() && property["type"] != "string" {
                causes.push(Cause::invalid(
                    format!("{path}.properties[{name}].type"),
                    &json!(text(&property["type"])),
                    "must be string",
                ));
            }
        }
    }
    let metadata = &schema["properties"]["metadata"];
    if metadata.is_object() {
        check_metadata(
            metadata,
            level,
            embedded,
            &format!("{path}.properties[metadata]"),
            causes,
        );
    }
    if embedded && !preserves && schema["properties"].as_object().is_none_or(Map::is_empty) {
        let problem = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(format!("{path}.properties"), problem));
    }
}

fn check_type_at(level: Level, kind: &str, embedded: bool, open: bool, path: &str, causes: &mut Vec<Cause>) {
    let here = format!("{path}.type");
    if embedded && kind != "object" {
        let problem = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() {
            Cause::required(&here, problem)
        } else {
            Cause::invalid(&here, &json!(kind), problem)
        });
    } else if kind.is_empty() && !open {
        let what = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        causes.push(Cause::required(&here, &format!("must not be empty {what}")));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        causes.push(Cause::invalid(&here, &json!(kind), "must be object at the root"));
    }
}

/// Of metadata at the top only the names can be restricted.
fn check_metadata(metadata: &Value, level: Level, embedded: bool, path: &str, causes: &mut Vec<Cause>) {
    if (level == Level::Root || embedded) && metadata["type"] != "object" {
        causes.push(Cause::invalid(
            format!("{path}.type"),
            &json!(text(&metadata["type"])),
            "must be object",
        ));
    }
    if level != Level::Root {
        return;
    }
    let names_only = metadata["properties"].as_object().is_none_or(|map| {
        map.keys()
            .all(|name| matches!(name.as_str(), "name" | "generateName"))
    });
    let known = ["type", "properties", "description", "default"];
    let nothing_else = metadata
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, _)| known.contains(&key.as_str()));
    if !(names_only && nothing_else) {
        let problem = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(path, problem));
    }
}

fn is_int_or_string(any_of: &Value) -> bool {
    any_of == &json!([{"type": "integer"}, {"type": "string"}])
}

fn check_value_validation(
    schema: &Value,
    allows_int_or_string: bool,
    level: Level,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    for key in ["anyOf", "allOf", "oneOf"] {
        let parts = &schema[key];
        // The one way of naming types here: a number or a text, alone or as the first of several restrictions.
        if key == "anyOf" && is_int_or_string(parts) && allows_int_or_string {
            continue;
        }
        for (index, part) in parts.as_array().into_iter().flatten().enumerate() {
            let first_of_all = allows_int_or_string && key == "allOf" && index == 0;
            check_nested(
                part,
                first_of_all,
                level,
                &format!("{path}.{key}[{index}]"),
                causes,
            );
        }
    }
    if schema["not"].is_object() {
        check_nested(&schema["not"], false, level, &format!("{path}.not"), causes);
    }
    if let Some(source) = schema["pattern"].as_str()
        && pattern(source).is_none()
    {
        let problem = "must be a valid regular expression, but isn't";
        causes.push(Cause::invalid(
            format!("{path}.pattern"),
            &schema["pattern"],
            problem,
        ));
    }
}

/// A schema under a logical junctor only restricts values; it must not describe structure.
fn check_nested(part: &Value, allows_int_or_string: bool, level: Level, path: &str, causes: &mut Vec<Cause>) {
    check_value_validation(part, allows_int_or_string, level, path, causes);
    if part["items"].is_object() {
        check_nested(&part["items"], false, level, &format!("{path}.items"), causes);
    }
    for (name, property) in part["properties"].as_object().into_iter().flatten() {
        let here = format!("{path}.properties[{name}]");
        if name == "metadata" {
            causes.push(Cause::forbidden(
                &here,
                "must not be specified in a nested context",
            ));
        }
        check_nested(property, false, Level::Field, &here, causes);
    }
    for (key, problem) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            "must be false to be structural",
        ),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        if !part[key].is_null() && part[key] != false {
            causes.push(Cause::forbidden(format!("{path}.{key}"), problem));
        }
    }
}

/// Defaults must satisfy their schema.
fn check_defaults(schema: &Value, path: &str, inside_meta: bool, causes: &mut Vec<Cause>) {
    let default = &schema["default"];
    if !default.is_null() && !inside_meta {
        let here = format!("{path}.default");
        let mut pruned = json!({"spec": {"default": default}});
        let wrapped = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"default": schema}}}});
        types::prune(&TypeSchema::custom(&wrapped), &mut pruned);
        if pruned["spec"]["default"] != *default {
            causes.push(Cause::invalid(&here, default, "must not have unknown fields"));
        }
        let compiled = Structural::compile(schema);
        // The messages have paths inside the default, the fields also the path of the default.
        let root = Path::root("");
        let mut found = values::validate(&compiled, default, None, &root);
        if found.is_empty() {
            found = rules::validate(&compiled, default, None, &root);
        }
        causes.extend(found.into_iter().map(|cause| match cause.field.as_str() {
            NO_FIELD => Cause {
                field: here.clone(),
                ..cause
            },
            field => Cause {
                field: format!("{here}.{field}"),
                ..cause
            },
        }));
    }
    if schema["items"].is_object() {
        check_defaults(&schema["items"], &format!("{path}.items"), inside_meta, causes);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let meta = inside_meta
            || schema["x-kubernetes-embedded-resource"] == true
                && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        check_defaults(property, &format!("{path}.properties[{name}]"), meta, causes);
    }
}
