//! What must hold at every place of a schema: values that its type allows, extensions that go together, rules that compile and only compare
//! what can be compared.

use serde_json::{Value, json};

use super::structural::Structural;
use super::{rule_types, rules, text};
use crate::cause::{Cause, go_json};

/// Errors of schemas come before those of rules.
pub(super) struct Found {
    pub(super) schema: Vec<Cause>,
    pub(super) rules: Vec<Cause>,
}

/// The whole schema, and its compiled form when it is sound enough for rules.
pub(super) struct Context<'s> {
    pub(super) root: &'s Value,
    pub(super) compiled: Option<Structural>,
}

/// The context of a node from its ancestors.
pub(super) struct Visit<'s> {
    pub(super) context: &'s Context<'s>,
    pub(super) is_root: bool,
    pub(super) inside_meta: bool,
    pub(super) no_defaults: Option<String>,
    /// Place above that cannot be compared with its old value.
    pub(super) uncorrelatable: Option<String>,
}

impl<'s> Visit<'s> {
    fn below(&self) -> Visit<'s> {
        Visit {
            context: self.context,
            is_root: false,
            inside_meta: self.inside_meta,
            no_defaults: self.no_defaults.clone(),
            uncorrelatable: self.uncorrelatable.clone(),
        }
    }
}

pub(super) fn check_node(
    schema: &Value,
    path: &str,
    visit: &mut Visit<'_>,
    compiled: Option<&Structural>,
    found: &mut Found,
) {
    let causes = &mut found.schema;
    let kind = text(&schema["type"]);
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(Cause::not_supported(
            format!("{path}.type"),
            &schema["type"],
            TYPES,
        ));
    }
    if let (Some(reason), false) = (&visit.no_defaults, schema["default"].is_null()) {
        causes.push(Cause::forbidden(
            format!("{path}.default"),
            &format!("must not be set {reason}"),
        ));
    }
    for key in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        if !schema[key].is_null() {
            causes.push(Cause::forbidden(
                format!("{path}.{key}"),
                &format!("{key} is not supported"),
            ));
        }
    }
    if kind == "null" {
        causes.push(Cause::forbidden(
            format!("{path}.type"),
            "type cannot be set to null, use nullable as an alternative",
        ));
    }
    if visit.inside_meta && schema["x-kubernetes-embedded-resource"] == true {
        causes.push(Cause::forbidden(
            format!("{path}.x-kubernetes-embedded-resource"),
            "must not be used inside of resource meta",
        ));
    }
    if schema["uniqueItems"] == true {
        let problem = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(format!("{path}.uniqueItems"), problem));
    }
    let additional = &schema["additionalProperties"];
    if !additional.is_null()
        && additional != true
        && schema["properties"]
            .as_object()
            .is_some_and(|map| !map.is_empty())
    {
        causes.push(Cause::forbidden(
            format!("{path}.additionalProperties"),
            "additionalProperties and properties are mutual exclusive",
        ));
    }
    check_children(schema, path, visit, compiled, found);
    check_extensions(schema, path, &mut found.schema);
    check_rules(schema, path, visit, compiled, found);
}

fn check_children(
    schema: &Value,
    path: &str,
    visit: &Visit<'_>,
    compiled: Option<&Structural>,
    found: &mut Found,
) {
    let additional = &schema["additionalProperties"];
    if additional.is_object() {
        let mut below = visit.below();
        if visit.inside_meta {
            below.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        check_node(
            additional,
            &format!("{path}.additionalProperties"),
            &mut below,
            compiled.and_then(|node| node.additional.as_deref()),
            found,
        );
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let mut below = visit.below();
        let own_meta = visit.is_root || schema["x-kubernetes-embedded-resource"] == true;
        if own_meta && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            below.inside_meta = true;
            if visit.is_root {
                below.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        check_node(
            property,
            &format!("{path}.properties[{name}]"),
            &mut below,
            compiled.and_then(|node| node.properties.get(name)),
            found,
        );
    }
    if schema["not"].is_object() {
        check_node(
            &schema["not"],
            &format!("{path}.not"),
            &mut visit.below(),
            None,
            found,
        );
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, part) in schema[key].as_array().into_iter().flatten().enumerate() {
            check_node(
                part,
                &format!("{path}.{key}[{index}]"),
                &mut visit.below(),
                None,
                found,
            );
        }
    }
    match &schema["items"] {
        Value::Array(_) => found.schema.push(Cause::forbidden(
            format!("{path}.items"),
            "items must be a schema object and not an array",
        )),
        items if items.is_object() => {
            let mut below = visit.below();
            if schema["x-kubernetes-list-type"] != "map" && below.uncorrelatable.is_none() {
                below.uncorrelatable = Some(path.to_owned());
            }
            check_node(
                items,
                &format!("{path}.items"),
                &mut below,
                compiled.and_then(|node| node.items.as_deref()),
                found,
            );
        }
        _ => {}
    }
}

fn check_extensions(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(&schema["type"]);
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        causes.push(Cause::invalid(
            format!("{path}.x-kubernetes-preserve-unknown-fields"),
            &json!(false),
            "must be true or undefined",
        ));
    }
    let mut wants = |key: &str, wanted: &str, allowed: &[&str]| {
        let value = &schema[key];
        if value.is_null() {
            return;
        }
        if kind != wanted {
            let problem = format!("must be {wanted} if {key} is specified");
            let here = format!("{path}.type");
            causes.push(if kind.is_empty() {
                Cause::required(here, &problem)
            } else {
                Cause::invalid(here, &schema["type"], &problem)
            });
        }
        if !allowed.contains(&text(value)) {
            causes.push(Cause::not_supported(
                format!("{path}.{key}"),
                value,
                allowed.iter().copied(),
            ));
        }
    };
    wants("x-kubernetes-map-type", "object", &["atomic", "granular"]);
    wants("x-kubernetes-list-type", "array", &["atomic", "set", "map"]);
    let list_type = text(&schema["x-kubernetes-list-type"]);
    let items = &schema["items"];
    if list_type == "set" {
        check_set_items(items, path, causes);
    }
    if matches!(list_type, "set" | "map") && items["nullable"] == true {
        let problem = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(Cause::forbidden(format!("{path}.items.nullable"), &problem));
    }
    let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !keys.is_empty() && list_type != "map" {
        let (here, problem) = (
            format!("{path}.x-kubernetes-list-type"),
            "must be map if x-kubernetes-list-map-keys is non-empty",
        );
        causes.push(if list_type.is_empty() {
            Cause::required(here, problem)
        } else {
            Cause::invalid(here, &json!(list_type), problem)
        });
    }
    if list_type == "map" {
        check_map_items(schema, &keys, path, causes);
    }
}

fn check_set_items(items: &Value, path: &str, causes: &mut Vec<Cause>) {
    let problem = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (key, fits) = match text(&items["type"]) {
        "array" => (
            "x-kubernetes-list-type",
            matches!(text(&items["x-kubernetes-list-type"]), "" | "atomic"),
        ),
        "object" => (
            "x-kubernetes-map-type",
            items["x-kubernetes-map-type"] == "atomic",
        ),
        _ => return,
    };
    if !fits {
        causes.push(Cause::invalid(
            format!("{path}.items.{key}"),
            &items["x-kubernetes-list-type"],
            problem,
        ));
    }
}

fn check_map_items(schema: &Value, keys: &[&str], path: &str, causes: &mut Vec<Cause>) {
    let items = &schema["items"];
    let keys_path = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        causes.push(Cause::required(
            &keys_path,
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    if !items.is_object() {
        causes.push(Cause::required(
            format!("{path}.items"),
            "must have a schema if x-kubernetes-list-type is map",
        ));
        return;
    }
    if items["type"] != "object" {
        let problem = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid(
            format!("{path}.items.type"),
            &json!(text(&items["type"])),
            problem,
        ));
        return;
    }
    let shown = &schema["x-kubernetes-list-map-keys"];
    for (index, key) in keys.iter().enumerate() {
        let property = &items["properties"][key];
        match text(&property["type"]) {
            _ if property.is_null() => causes.push(Cause::invalid(
                &keys_path,
                shown,
                "entries must all be names of item properties",
            )),
            "array" | "object" => {
                let problem = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                causes.push(Cause::invalid(
                    format!("{path}.items.properties[{key}].type"),
                    &items["type"],
                    problem,
                ));
            }
            _ => {}
        }
        if keys[..index].contains(key) {
            causes.push(Cause::invalid(
                &keys_path,
                shown,
                "must not contain duplicate entries",
            ));
        }
    }
    for key in keys {
        let property = &items["properties"][key];
        let here = format!("{path}.items.properties[{key}]");
        if property.is_null() {
            continue;
        }
        let required = items["required"]
            .as_array()
            .is_some_and(|required| required.iter().any(|name| name == key));
        if !required && property["default"].is_null() {
            let problem = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(format!("{here}.default"), problem));
        }
        if property["nullable"] == true {
            causes.push(Cause::forbidden(
                format!("{here}.nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ));
        }
    }
}

fn check_rules(
    schema: &Value,
    path: &str,
    visit: &Visit<'_>,
    compiled: Option<&Structural>,
    found: &mut Found,
) {
    let rules = schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten();
    for (index, rule) in rules.enumerate() {
        let here = format!("{path}.x-kubernetes-validations[{index}]");
        check_rule_fields(schema, rule, &here, &mut found.schema);
    }
    let Some(compiled) = compiled.filter(|_| found.schema.is_empty()) else {
        return;
    };
    for (index, rule) in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let here = format!("{path}.x-kubernetes-validations[{index}]");
        let root = std::ptr::eq(schema, visit.context.root) || compiled.embedded;
        let optional = rule["optionalOldSelf"] == true;
        let expressions = [
            ("rule", text(&rule["rule"])),
            ("messageExpression", text(&rule["messageExpression"])),
        ];
        for (key, source) in expressions
            .into_iter()
            .filter(|(_, source)| !source.trim().is_empty())
        {
            let is_message = key == "messageExpression";
            let problem = match rules::parse(source.trim()) {
                Err(problem) if is_message => {
                    Some(format!("messageExpression compilation failed: {problem}"))
                }
                Err(problem) => Some(format!("compilation failed: {problem}")),
                Ok(expression) => {
                    rule_types::check(&expression, source.trim(), compiled, root, optional, is_message)
                }
            };
            if let Some(problem) = problem {
                let shown = shown_rule(rule);
                found.rules.push(Cause {
                    reason: "FieldValueInvalid",
                    field: format!("{here}.{key}"),
                    message: format!("Invalid value: {shown}: {problem}"),
                });
            }
        }
        let uses_old_self = compiled.rules.get(index).is_some_and(|rule| rule.uses_old_self);
        match &visit.uncorrelatable {
            Some(above) if uses_old_self => {
                let problem = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
                );
                found
                    .rules
                    .push(Cause::invalid(format!("{here}.rule"), &rule["rule"], &problem));
            }
            _ if !uses_old_self && !rule["optionalOldSelf"].is_null() => {
                let problem = "may not be set if oldSelf is not used in rule";
                found.rules.push(Cause::invalid(
                    format!("{here}.optionalOldSelf"),
                    &rule["optionalOldSelf"],
                    problem,
                ));
            }
            _ => {}
        }
    }
}

/// A rule as a server's own type shows it.
fn shown_rule(rule: &Value) -> String {
    let field = |name: &str, key: &str| format!("\"{name}\":{}", go_json(&json!(text(&rule[key]))));
    let nullable = |name: &str, key: &str| format!("\"{name}\":{}", go_json(&rule[key]));
    format!(
        "{{{},{},{},{},{},{}}}",
        field("Rule", "rule"),
        field("Message", "message"),
        field("MessageExpression", "messageExpression"),
        nullable("Reason", "reason"),
        field("FieldPath", "fieldPath"),
        nullable("OptionalOldSelf", "optionalOldSelf")
    )
}

fn check_rule_fields(schema: &Value, rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    const REASONS: [&str; 4] = [
        "FieldValueDuplicate",
        "FieldValueForbidden",
        "FieldValueInvalid",
        "FieldValueRequired",
    ];
    let blank = |key: &str| {
        rule[key]
            .as_str()
            .is_some_and(|text| !text.is_empty() && text.trim().is_empty())
    };
    let lines = |key: &str| text(&rule[key]).trim().contains(['\n', '\r']);
    let at = |key: &str| format!("{path}.{key}");
    if text(&rule["rule"]).trim().is_empty() {
        causes.push(Cause::required(at("rule"), "rule is not specified"));
    } else if blank("message") {
        causes.push(Cause::invalid(
            at("message"),
            &rule["message"],
            "must be non-empty if specified",
        ));
    } else if lines("message") {
        causes.push(Cause::invalid(
            at("message"),
            &rule["message"],
            "must not contain line breaks",
        ));
    } else if lines("rule") && text(&rule["message"]).is_empty() {
        causes.push(Cause::required(
            at("message"),
            "message must be specified if rule contains line breaks",
        ));
    }
    if blank("messageExpression") {
        causes.push(Cause::required(
            at("messageExpression"),
            "messageExpression must be non-empty if specified",
        ));
    }
    if let Some(reason) = rule["reason"].as_str()
        && !REASONS.contains(&reason)
    {
        causes.push(Cause::not_supported(at("reason"), &rule["reason"], REASONS));
    }
    let field_path = text(&rule["fieldPath"]);
    if field_path.is_empty() {
        return;
    }
    if field_path.trim().is_empty() {
        causes.push(Cause::invalid(
            at("fieldPath"),
            &rule["fieldPath"],
            "must be non-empty if specified",
        ));
    }
    if field_path.contains(['\n', '\r']) {
        causes.push(Cause::invalid(
            at("fieldPath"),
            &rule["fieldPath"],
            "must not contain line breaks",
        ));
    }
    if !leads_somewhere(schema, field_path) {
        causes.push(Cause::invalid(
            at("fieldPath"),
            &rule["fieldPath"],
            "must be a valid path",
        ));
    }
}

/// Whether a path such as `.a.b` or `['a']` names declared fields or keys of maps.
fn leads_somewhere(schema: &Value, path: &str) -> bool {
    let (name, rest) = if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        rest.split_at(end)
    } else if let Some(rest) = path.strip_prefix("['") {
        match rest.split_once("']") {
            Some(parts) => parts,
            None => return false,
        }
    } else {
        return false;
    };
    let below = match (&schema["properties"], &schema["additionalProperties"]) {
        (properties, _) if properties.is_object() => &properties[name],
        (_, values) => values,
    };
    below.is_object() && (rest.is_empty() || leads_somewhere(below, rest))
}
