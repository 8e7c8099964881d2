//! OpenAPI documents, as much of them as `kubectl explain`, `apply` and `diff` read.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::schema::facts::facts;
use crate::store::registry::{Registry, Resource};
use crate::verbs::answer::Answer;
use crate::wire::accept;

/// `/openapi/v3`: where each group version's document is.
pub(crate) fn v3_index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let path = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            paths.insert(
                path.clone(),
                json!({"serverRelativeURL": format!("/openapi/v3/{path}")}),
            );
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/PATH`: the document of one group version.
pub(crate) fn v3(registry: &Registry, path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').collect();
    let (group, version) = match parts[..] {
        ["api", version] => ("", version),
        ["apis", group, version] => (group, version),
        _ => return None,
    };
    let resources: Vec<_> = registry.of_version(group, version).collect();
    if resources.is_empty() {
        return None;
    }
    let prefix = format!("/{path}");
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in resources {
        let name = add_schema(resource, &mut schemas, "#/components/schemas/");
        add_paths(resource, &prefix, &name, &mut paths);
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": paths, "components": {"schemas": schemas},
    }))
}

/// Content type of `/openapi/v2` in protobuf, and the older name under which kubectl asks for it, which is none that parsers of media types read.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V2_PROTOBUF_SUBTYPES: [&str; 2] = [
    "com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "com.github.proto-openapi.spec.v2.v1.0+protobuf",
];

/// `/openapi/v2` in protobuf (gnostic's `openapi.v2.Document`): which API it is, and no kinds. kubectl asks for it when version 3 does not know a
/// kind; a document without it lets kubectl report that there is no such kind.
///
/// `swagger` (1), `info` (2) with `title` (1) and `version` (2), and empty `paths` (8).
const V2_DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.0\x42\x00";

/// `/openapi/v2` in what the client takes; 406 without a word, as a real server has it, where that is neither JSON nor protobuf.
pub(crate) fn v2_answer(registry: &Registry, header: &str) -> Answer {
    for clause in accept::clauses(header) {
        if clause.takes("json") {
            return Answer::ok(v2(registry));
        }
        if V2_PROTOBUF_SUBTYPES.iter().any(|subtype| clause.takes(subtype)) {
            return Answer::Bytes(V2_PROTOBUF, V2_DOCUMENT.into());
        }
    }
    Answer::Text(406, String::new())
}

/// `/openapi/v2`: everything in one document.
fn v2(registry: &Registry) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for resource in registry.all() {
        let prefix = if resource.group.is_empty() {
            format!("/api/{}", resource.version)
        } else {
            format!("/apis/{}/{}", resource.group, resource.version)
        };
        let name = add_schema(resource, &mut definitions, "#/definitions/");
        add_paths(resource, &prefix, &name, &mut paths);
    }
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": paths, "definitions": definitions})
}

fn add_schema(resource: &Resource, schemas: &mut Map<String, Value>, prefix: &str) -> String {
    let gvk = json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
    if let Some(version) = resource.custom() {
        let reversed: Vec<&str> = resource.group.split('.').rev().collect();
        let name = format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind);
        let mut schema = version.raw_schema().clone();
        schema["x-kubernetes-group-version-kind"] = gvk;
        let meta = add_definition(crate::schema::types::OBJECT_META, schemas, prefix);
        schema["properties"]["metadata"] = json!({"allOf": [{"$ref": format!("{prefix}{meta}")}], "description": "Standard object metadata."});
        for (field, description) in [
            ("apiVersion", "Group and version of this schema."),
            ("kind", "Kind of the object."),
        ] {
            schema["properties"][field] = json!({"type": "string", "description": description});
        }
        schemas.insert(name.clone(), schema);
        return name;
    }
    let name = facts()
        .definition_name(&resource.group, &resource.version, &resource.kind)
        .unwrap_or_default()
        .to_owned();
    add_definition(&name, schemas, prefix)
}

/// Copies a definition and all that it reaches, with references that point into the document.
fn add_definition(name: &str, schemas: &mut Map<String, Value>, prefix: &str) -> String {
    let mut open = vec![name.to_owned()];
    let mut seen: BTreeSet<String> = schemas.keys().cloned().collect();
    while let Some(name) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let mut schema = facts().definition(&name);
        point(&mut schema, prefix, &mut open);
        schemas.insert(name, schema);
    }
    name.to_owned()
}

fn point(schema: &mut Value, prefix: &str, open: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(target)) = map.get("$ref").cloned() {
                open.push(target.clone());
                map.remove("x-go");
                let reference = json!({"$ref": format!("{prefix}{target}")});
                if map.len() == 1 {
                    *schema = reference;
                } else {
                    map.remove("$ref");
                    map.insert("allOf".to_owned(), json!([reference]));
                }
                return;
            }
            // How Go writes a field is a note of ours.
            map.remove("x-go");
            for child in map.values_mut() {
                point(child, prefix, open);
            }
        }
        Value::Array(list) => {
            for child in list {
                point(child, prefix, open);
            }
        }
        _ => {}
    }
}

/// Paths by which clients find the kind of a resource, and whether it validates fields and rehearses writes.
fn add_paths(resource: &Resource, prefix: &str, _schema: &str, paths: &mut Map<String, Value>) {
    let gvk = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let operation = |action: &str, parameters: &[&str]| {
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
            .collect();
        json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk, "parameters": parameters, "responses": {"200": {"description": "OK"}}})
    };
    let write = ["dryRun", "fieldManager", "fieldValidation"];
    let base = if resource.namespaced {
        format!("{prefix}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{prefix}/{}", resource.plural)
    };
    let mut list = Map::new();
    let mut item = Map::new();
    for verb in &resource.verbs {
        match verb.as_str() {
            "list" => drop(list.insert(
                "get".to_owned(),
                operation("list", &["labelSelector", "fieldSelector", "limit", "continue"]),
            )),
            "create" => drop(list.insert("post".to_owned(), operation("post", &write))),
            "deletecollection" => {
                drop(list.insert("delete".to_owned(), operation("deletecollection", &["dryRun"])))
            }
            "get" => drop(item.insert("get".to_owned(), operation("get", &[]))),
            "update" => drop(item.insert("put".to_owned(), operation("put", &write))),
            "patch" => drop(item.insert(
                "patch".to_owned(),
                operation("patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
            )),
            "delete" => drop(item.insert(
                "delete".to_owned(),
                operation("delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
            )),
            _ => {}
        }
    }
    if !list.is_empty() {
        paths.insert(base.clone(), Value::Object(list.clone()));
        if resource.namespaced && list.contains_key("get") {
            paths.insert(
                format!("{prefix}/{}", resource.plural),
                json!({"get": list["get"]}),
            );
        }
    }
    if !item.is_empty() {
        paths.insert(format!("{base}/{{name}}"), Value::Object(item));
    }
}
