//! Whether a CustomResourceDefinition is acceptable: its names, versions, subresources and columns, and what changes when it replaces another.
//! The schemas of its versions are judged in `version_schema`. The checks and their wording are those of apiextensions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::text;
use super::version_schema::check_version_schema;
use crate::cause::Cause;
use crate::checks::{immutable, items};

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

/// What may not change: where the objects of a definition are, and the versions in which some may still be stored.
pub(crate) fn check_update(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let is_established = items(&old["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
    let (before, after) = (&old["spec"], &new["spec"]);
    let (named_before, named) = (&before["names"], &after["names"]);
    if is_established {
        immutable(&after["scope"], &before["scope"], "spec.scope", &mut causes);
        immutable(
            &named["kind"],
            &named_before["kind"],
            "spec.names.kind",
            &mut causes,
        );
    }
    immutable(&after["group"], &before["group"], "spec.group", &mut causes);
    immutable(
        &named["plural"],
        &named_before["plural"],
        "spec.names.plural",
        &mut causes,
    );
    let versions = items(&after["versions"]);
    for (index, version) in items(&old["status"]["storedVersions"]).iter().enumerate() {
        if versions.iter().all(|there| there["name"] != *version) {
            let name = text(version);
            causes.push(Cause::invalid(
                format!("status.storedVersions[{index}]"),
                version,
                &format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
                ),
            ));
        }
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
            spokeshave_syntax::names::SUBDOMAIN,
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
    // Values that are equal in all versions are reported once, at the top level.
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
