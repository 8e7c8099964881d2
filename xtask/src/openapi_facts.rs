//! Regenerates `crates/apiserver/facts/kubernetes.json` from a real server: which resources there are, and for each field of the core kinds
//! its type, list type, merge key and the first sentence of its description.
//!
//! Inputs: `--openapi FILE` (the body of /openapi/v2), `--discovery FILE` (a JSON array of APIResourceList, one per group version),
//! `--go-types FILE` (the output of `xtask/go-types`, which says how the Go types write each field).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

const OUTPUT: &str = "crates/apiserver/facts/kubernetes.json";

/// Runs the command with its arguments.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (mut openapi, mut discovery, mut go_types) = (None, None, None);
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let value = rest.next().with_context(|| format!("{flag} needs a file"))?;
        match flag.as_str() {
            "--openapi" => openapi = Some(read(value)?),
            "--discovery" => discovery = Some(read(value)?),
            "--go-types" => {
                go_types = Some(fs::read_to_string(value).with_context(|| format!("cannot read {value}"))?)
            }
            other => bail!("unknown flag {other}"),
        }
    }
    let openapi = openapi.context("--openapi FILE is needed")?;
    let discovery = discovery.context("--discovery FILE is needed")?;
    let go_types = go_types.context("--go-types FILE is needed")?;
    let resources = resources(&discovery);
    let mut definitions = definitions(&openapi, &resources);
    add_go_types(&mut definitions, &go_types);
    let facts = json!({"resources": resources, "definitions": definitions});
    // One line per entry keeps differences readable without the cost of full indentation.
    let mut text = String::from("{\"resources\":[\n");
    text.push_str(
        &facts["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join(",\n"),
    );
    text.push_str("\n],\"definitions\":{\n");
    let lines: Vec<String> = facts["definitions"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{}:{value}", Value::String(name.clone())))
        .collect();
    text.push_str(&lines.join(",\n"));
    text.push_str("\n}}\n");
    fs::write(OUTPUT, &text).with_context(|| format!("cannot write {OUTPUT}"))?;
    println!("{OUTPUT}: {} bytes, {} definitions", text.len(), lines.len());
    Ok(())
}

fn read(path: &str) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    serde_json::from_str(&text).with_context(|| format!("{path} is not JSON"))
}

/// Notes with each field how Go writes it: its type, when it is left out, and its kind.
fn add_go_types(definitions: &mut BTreeMap<String, Value>, go_types: &str) {
    for line in go_types.lines() {
        let mut parts = line.split('|');
        let Some(definition) = parts.next().and_then(|name| definitions.get_mut(name)) else {
            continue;
        };
        for field in parts {
            if let Some((name, go)) = field.split_once(' ')
                && let Some(property) = definition["properties"].get_mut(name)
            {
                property["x-go"] = json!(go);
            }
        }
    }
}

/// One entry a resource, with its subresources folded in.
fn resources(discovery: &Value) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for list in discovery.as_array().into_iter().flatten() {
        let group_version = list["groupVersion"].as_str().unwrap_or_default();
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        let entries: Vec<&Value> = list["resources"].as_array().into_iter().flatten().collect();
        for entry in &entries {
            let name = entry["name"].as_str().unwrap_or_default();
            if name.contains('/') {
                continue;
            }
            let prefix = format!("{name}/");
            let subresources: Vec<Value> = entries
                .iter()
                .filter_map(|other| {
                    let sub = other["name"].as_str()?.strip_prefix(&prefix)?;
                    Some(json!({
                        "name": sub, "kind": other["kind"], "group": other.get("group"), "version": other.get("version"), "verbs": other["verbs"],
                    }))
                })
                .collect();
            found.push(json!({
                "group": group, "version": version, "plural": name, "singular": entry["singularName"], "kind": entry["kind"],
                "namespaced": entry["namespaced"], "verbs": entry["verbs"], "shortNames": entry.get("shortNames"),
                "categories": entry.get("categories"), "subresources": subresources,
            }));
        }
    }
    found
}

/// The definitions that the resources reach, cut down.
fn definitions(openapi: &Value, resources: &[Value]) -> BTreeMap<String, Value> {
    let all = &openapi["definitions"];
    let mut wanted: BTreeSet<(String, String, String)> = BTreeSet::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for resource in resources {
        let (group, version) = (text(&resource["group"]), text(&resource["version"]));
        wanted.insert((group.clone(), version.clone(), text(&resource["kind"])));
        for sub in resource["subresources"].as_array().into_iter().flatten() {
            let pick =
                |value: &Value, other: &str| value.as_str().map_or_else(|| other.to_owned(), str::to_owned);
            wanted.insert((
                pick(&sub["group"], &group),
                pick(&sub["version"], &version),
                text(&sub["kind"]),
            ));
        }
    }
    let mut open: Vec<String> = all
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, definition)| {
            definition["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|gvk| wanted.contains(&(text(&gvk["group"]), text(&gvk["version"]), text(&gvk["kind"]))))
        })
        .map(|(name, _)| name.clone())
        .collect();
    let mut done = BTreeMap::new();
    while let Some(name) = open.pop() {
        if done.contains_key(&name) {
            continue;
        }
        let mut references = BTreeSet::new();
        let slim = slim(&all[&name], &mut references);
        done.insert(name, slim);
        open.extend(references);
    }
    done
}

/// A schema with what we use of it.
fn slim(schema: &Value, references: &mut BTreeSet<String>) -> Value {
    let mut out = Map::new();
    for key in ["type", "format", "required", "default", "enum"] {
        if let Some(value) = schema.get(key) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(target) = schema["$ref"]
        .as_str()
        .and_then(|target| target.strip_prefix("#/definitions/"))
    {
        out.insert("$ref".to_owned(), json!(target));
        references.insert(target.to_owned());
    }
    for (key, value) in schema.as_object().into_iter().flatten() {
        if key == "x-kubernetes-group-version-kind" {
            // Types such as DeleteOptions are listed for every group; those lists say nothing.
            if value.as_array().is_some_and(|list| list.len() <= 2) {
                out.insert(key.clone(), value.clone());
            }
        } else if key.starts_with("x-kubernetes-") {
            out.insert(key.clone(), value.clone());
        }
    }
    if let Some(description) = schema["description"].as_str() {
        out.insert("description".to_owned(), json!(first_sentence(description)));
    }
    if let Some(items) = schema.get("items") {
        out.insert("items".to_owned(), slim(items, references));
    }
    if let Some(values) = schema
        .get("additionalProperties")
        .filter(|values| values.is_object())
    {
        out.insert("additionalProperties".to_owned(), slim(values, references));
    }
    if let Some(properties) = schema["properties"].as_object() {
        let slimmed: Map<String, Value> = properties
            .iter()
            .map(|(name, property)| (name.clone(), slim(property, references)))
            .collect();
        out.insert("properties".to_owned(), Value::Object(slimmed));
    }
    Value::Object(out)
}

fn first_sentence(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.match_indices(". ")
        .map(|(at, _)| at)
        .find(|at| !line[..*at].ends_with("e.g") && !line[..*at].ends_with("i.e"))
        .map_or(line, |at| &line[..=at])
}
