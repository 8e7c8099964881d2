//! Whether a CustomResourceDefinition is acceptable: names, versions, structural schemas, defaults that satisfy their schema, rules that
//! compile. The checks and their wording are those of apiextensions.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::cause::{Cause, NO_FIELD, go_json};
use super::path::Path;
use super::rules;
use super::structural::{Structural, pattern};
use super::{rule_types, text, values};
use crate::schema::{self, TypeSchema};

/// Everything wrong with a definition.
pub(crate) fn check(crd: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &crd["spec"];
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    if crd["metadata"]["name"] != json!(format!("{plural}.{group}")) {
        causes.push(Cause::invalid(
            "metadata.name",
            &crd["metadata"]["name"],
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    check_spec(spec, &mut causes);
    if spec["preserveUnknownFields"] == true {
        causes.push(Cause::invalid(
            "spec.preserveUnknownFields",
            &json!(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    let stores = spec["versions"]
        .as_array()
        .is_some_and(|versions| versions.iter().any(|version| version["storage"] == true));
    if !stores {
        causes.push(Cause::invalid(
            "status.storedVersions",
            &Value::Null,
            "must have at least one stored version",
        ));
    }
    causes
}

fn check_spec(spec: &Value, causes: &mut Vec<Cause>) {
    let group = text(&spec["group"]);
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !is_dns_1123_subdomain(group) {
        causes.push(Cause::invalid(
            "spec.group",
            &spec["group"],
            crate::validate::SUBDOMAIN,
        ));
    } else if !group.contains('.') {
        causes.push(Cause::invalid(
            "spec.group",
            &spec["group"],
            "should be a domain with at least one dot",
        ));
    }
    match text(&spec["scope"]) {
        "" => causes.push(Cause::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        _ => causes.push(Cause::not_supported(
            "spec.scope",
            &spec["scope"],
            ["Cluster", "Namespaced"],
        )),
    }
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            causes.push(Cause::required(
                format!("spec.versions[{index}].schema.openAPIV3Schema"),
                "",
            ));
        }
    }
    let shared = Shared::of(&versions);
    for (index, version) in versions.iter().enumerate() {
        check_version(version, &format!("spec.versions[{index}]"), shared, causes);
    }
    let names: BTreeSet<&str> = versions.iter().map(|version| text(&version["name"])).collect();
    if names.len() != versions.len() {
        causes.push(Cause::invalid(
            "spec.versions",
            &shown_versions(spec),
            "must contain unique version names",
        ));
    }
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        causes.push(Cause::invalid(
            "spec.versions",
            &shown_versions(spec),
            "must have exactly one version marked as storage version",
        ));
    }
    if let Some(first) = versions.first()
        && let Some(problem) = dns_1035(text(&first["name"]))
    {
        causes.push(Cause::invalid(
            "spec.version",
            &json!(text(&first["name"])),
            &problem,
        ));
    }
    check_names(&spec["names"], causes);
    // What is the same in all versions is told of once, where a server keeps it.
    if let Some(first) = versions.first() {
        if shared.schema {
            check_version_schema(first, "spec.validation.openAPIV3Schema", causes);
        }
        if shared.subresources {
            check_subresources(&first["subresources"], "spec.subresources", causes);
        }
        if shared.columns {
            check_columns(
                &first["additionalPrinterColumns"],
                "spec.additionalPrinterColumns",
                causes,
            );
        }
        if shared.selectable_fields {
            check_selectable_fields(first, "spec.selectableFields", causes);
        }
    }
    check_conversion(&spec["conversion"], causes);
}

/// What all versions have in common.
#[derive(Debug, Clone, Copy)]
struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable_fields: bool,
}

impl Shared {
    fn of(versions: &[&Value]) -> Self {
        let same = |key: &str| {
            versions
                .first()
                .is_some_and(|first| versions.iter().all(|version| version[key] == first[key]))
        };
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable_fields: same("selectableFields"),
        }
    }
}

/// Versions as a server's own type shows them; what they share it keeps elsewhere.
fn shown_versions(spec: &Value) -> Value {
    let Some(versions) = spec["versions"].as_array() else {
        return Value::Null;
    };
    let shown = |version: &Value| {
        json!({
            "Name": version["name"], "Served": version["served"] == true, "Storage": version["storage"] == true, "Deprecated": version["deprecated"] == true,
            "DeprecationWarning": version["deprecationWarning"], "Schema": null, "Subresources": null, "AdditionalPrinterColumns": null, "SelectableFields": null,
        })
    };
    versions.iter().map(shown).collect()
}

fn check_version(version: &Value, path: &str, shared: Shared, causes: &mut Vec<Cause>) {
    if let Some(problem) = dns_1035(text(&version["name"])) {
        causes.push(Cause::invalid(
            format!("{path}.name"),
            &json!(text(&version["name"])),
            &problem,
        ));
    }
    if !version["deprecationWarning"].is_null() && version["deprecated"] != true {
        causes.push(Cause::invalid(
            format!("{path}.deprecationWarning"),
            &version["deprecationWarning"],
            "can only be set for deprecated versions",
        ));
    }
    if !shared.schema {
        check_version_schema(version, &format!("{path}.schema.openAPIV3Schema"), causes);
    }
    if !shared.subresources {
        check_subresources(&version["subresources"], &format!("{path}.subresources"), causes);
    }
    if !shared.columns {
        check_columns(
            &version["additionalPrinterColumns"],
            &format!("{path}.additionalPrinterColumns"),
            causes,
        );
    }
    if !shared.selectable_fields {
        check_selectable_fields(version, &format!("{path}.selectableFields"), causes);
    }
}

fn check_names(names: &Value, causes: &mut Vec<Cause>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(&names[key]).is_empty() {
            causes.push(Cause::required(format!("spec.names.{key}"), ""));
        }
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        let (name, mixed_case) = (text(&names[key]), key.ends_with("ind"));
        if name.is_empty() {
            continue;
        }
        let judged = if mixed_case {
            name.to_lowercase()
        } else {
            name.to_owned()
        };
        if let Some(problem) = dns_1035(&judged) {
            let intro = if mixed_case {
                "may have mixed case, but should otherwise match: "
            } else {
                ""
            };
            causes.push(Cause::invalid(
                format!("spec.names.{key}"),
                &names[key],
                &format!("{intro}{problem}"),
            ));
        }
    }
    if !text(&names["kind"]).is_empty() && names["kind"] == names["listKind"] {
        causes.push(Cause::invalid(
            "spec.names.listKind",
            &names["listKind"],
            "kind and listKind may not be the same",
        ));
    }
    for key in ["shortNames", "categories"] {
        for (index, name) in names[key].as_array().into_iter().flatten().enumerate() {
            if let Some(problem) = dns_1035(text(name)) {
                causes.push(Cause::invalid(
                    format!("spec.names.{key}[{index}]"),
                    name,
                    &problem,
                ));
            }
        }
    }
}

fn check_conversion(conversion: &Value, causes: &mut Vec<Cause>) {
    match text(&conversion["strategy"]) {
        "" if conversion.is_null() => {}
        "" => causes.push(Cause::required("spec.conversion.strategy", "")),
        "None" => {
            if !conversion["webhook"].is_null() {
                causes.push(Cause::forbidden(
                    "spec.conversion.webhookClientConfig",
                    "should not be set when strategy is not set to Webhook",
                ));
            }
        }
        "Webhook" => {}
        _ => causes.push(Cause::not_supported(
            "spec.conversion.strategy",
            &conversion["strategy"],
            ["None", "Webhook"],
        )),
    }
}

fn simple_path(value: &Value, path: String, causes: &mut Vec<Cause>) -> bool {
    if text(value).starts_with('.') {
        return true;
    }
    causes.push(Cause::invalid(
        path,
        value,
        "must be a simple json path starting with .",
    ));
    false
}

fn check_subresources(subresources: &Value, path: &str, causes: &mut Vec<Cause>) {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return;
    }
    for (key, prefixes, words) in [
        (
            "specReplicasPath",
            &[".spec."][..],
            "should be a json path under .spec",
        ),
        (
            "statusReplicasPath",
            &[".status."][..],
            "should be a json path under .status",
        ),
        (
            "labelSelectorPath",
            &[".spec.", ".status."][..],
            "should be a json path under either .spec or .status",
        ),
    ] {
        let (value, path) = (&scale[key], format!("{path}.scale.{key}"));
        if text(value).is_empty() {
            if key != "labelSelectorPath" {
                causes.push(Cause::required(path, ""));
            }
        } else if simple_path(value, path.clone(), causes)
            && !prefixes.iter().any(|prefix| text(value).starts_with(prefix))
        {
            causes.push(Cause::invalid(path, value, words));
        }
    }
}

fn check_columns(columns: &Value, path: &str, causes: &mut Vec<Cause>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = [
        "byte",
        "date",
        "date-time",
        "double",
        "float",
        "int32",
        "int64",
        "password",
    ];
    for (index, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}[{index}]");
        if text(&column["name"]).is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        }
        let types = format!("must be one of {}", TYPES.join(","));
        match text(&column["type"]) {
            "" => causes.push(Cause::required(format!("{path}.type"), &types)),
            kind if !TYPES.contains(&kind) => {
                causes.push(Cause::invalid(format!("{path}.type"), &column["type"], &types))
            }
            _ => {}
        }
        let format = text(&column["format"]);
        if !format.is_empty() && !FORMATS.contains(&format) {
            let formats = format!("must be one of {}", FORMATS.join(","));
            causes.push(Cause::invalid(
                format!("{path}.format"),
                &column["format"],
                &formats,
            ));
        }
        if text(&column["jsonPath"]).is_empty() {
            causes.push(Cause::required(format!("{path}.JSONPath"), ""));
        } else {
            simple_path(&column["jsonPath"], format!("{path}.JSONPath"), causes);
        }
    }
}

fn check_selectable_fields(version: &Value, path: &str, causes: &mut Vec<Cause>) {
    let schema = &version["schema"]["openAPIV3Schema"];
    let fields: Vec<&Value> = version["selectableFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|field| &field["jsonPath"])
        .collect();
    for (index, field) in fields.iter().enumerate() {
        let here = format!("{path}[{index}].jsonPath");
        let found = text(field).strip_prefix('.').map(|rest| {
            rest.split('.')
                .fold(schema, |node, name| &node["properties"][name])
        });
        match found {
            _ if text(field).is_empty() => causes.push(Cause::required(here, "")),
            None => causes.push(Cause::invalid(
                here,
                field,
                &format!("is an invalid path: expected [ or . but got: {}", text(field)),
            )),
            Some(Value::Null) => causes.push(Cause::invalid(
                here,
                field,
                "is an invalid path: does not refer to a valid field",
            )),
            Some(_) if text(field).starts_with(".metadata") => causes.push(Cause::invalid(
                here,
                field,
                "must not point to fields in metadata",
            )),
            Some(node) if !matches!(text(&node["type"]), "string" | "boolean" | "integer") => {
                let problem = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                causes.push(Cause::invalid(here, field, problem));
            }
            Some(_) if fields[..index].contains(field) => causes.push(Cause::duplicate(here, field)),
            Some(_) => {}
        }
    }
    if fields.len() > 8 {
        causes.push(Cause::too_many(path, fields.len(), 8));
    }
}

fn check_version_schema(version: &Value, path: &str, causes: &mut Vec<Cause>) {
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

/// What stands under a logical junctor only restricts values; it must not describe structure.
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

/// Defaults must satisfy the schema that they stand in.
fn check_defaults(schema: &Value, path: &str, inside_meta: bool, causes: &mut Vec<Cause>) {
    let default = &schema["default"];
    if !default.is_null() && !inside_meta {
        let here = format!("{path}.default");
        let mut pruned = json!({"spec": {"default": default}});
        let wrapped = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"default": schema}}}});
        schema::prune(&TypeSchema::custom(&wrapped), &mut pruned);
        if pruned["spec"]["default"] != *default {
            causes.push(Cause::invalid(&here, default, "must not have unknown fields"));
        }
        let compiled = Structural::compile(schema);
        // The messages name places inside of the default, the fields also where it stands.
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

/// Errors of schemas come before those of rules.
struct Found {
    schema: Vec<Cause>,
    rules: Vec<Cause>,
}

/// The whole schema, and its compiled form when it is sound enough for rules.
struct Context<'s> {
    root: &'s Value,
    compiled: Option<Structural>,
}

/// What the way down to a node says of it.
struct Visit<'s> {
    context: &'s Context<'s>,
    is_root: bool,
    inside_meta: bool,
    no_defaults: Option<String>,
    /// Place above that cannot be compared with its old value.
    uncorrelatable: Option<String>,
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

fn check_node(
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

fn is_dns_1123_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        let edge =
            |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        edge(label.as_bytes().first())
            && edge(label.as_bytes().last())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// What keeps a name from being a label of DNS as RFC 1035 has them.
pub(crate) fn dns_1035(name: &str) -> Option<String> {
    const RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let mut problems = Vec::new();
    if name.len() > 63 {
        problems.push("must be no more than 63 characters");
    }
    let fits = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-');
    if !fits {
        problems.push(RULE);
    }
    (!problems.is_empty()).then(|| problems.join(","))
}
