//! What our CustomResourceDefinitions accept and refuse, case by case (`tests/corpus/*.yaml`), as the embedded API server sees it. The same files
//! are held against a genuine kube-apiserver by `tests/corpus/against_server.py`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use spokeshave_api::crds::{Cloud, crd_values_of};
use spokeshave_apiserver::{CompiledCrd, CrdVersion};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    base: Value,
    cases: Vec<Case>,
}

/// The form is explained in `nodepool.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    set: BTreeMap<String, Value>,
    then: Option<BTreeMap<String, Value>>,
    status: Option<BTreeMap<String, Value>>,
    error: Option<String>,
    #[serde(default)]
    shows: BTreeMap<String, Value>,
}

/// Writes the shorthands for many copies out.
fn expand(value: &Value) -> Value {
    let count = |key: &str| value[key].as_u64();
    match value {
        Value::Array(items) => items.iter().map(expand).collect(),
        Value::Object(fields) => {
            let copy = || expand(&value["of"]);
            if let Some(count) = count("$list") {
                (0..count).map(|_| copy()).collect()
            } else if let Some(count) = count("$map") {
                (0..count)
                    .map(|index| (format!("key-{index}"), copy()))
                    .collect::<Map<_, _>>()
                    .into()
            } else if let Some(count) = count("$text") {
                json!(copy().as_str().unwrap().repeat(usize::try_from(count).unwrap()))
            } else {
                fields
                    .iter()
                    .map(|(key, value)| (key.clone(), expand(value)))
                    .collect::<Map<_, _>>()
                    .into()
            }
        }
        other => other.clone(),
    }
}

/// `target` with the values at the dotted paths; null takes the field away.
fn change(target: &Value, paths: &BTreeMap<String, Value>) -> Value {
    let mut target = target.clone();
    for (path, value) in paths {
        let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
        let mut place = &mut target;
        for name in parents.split('.').filter(|name| !name.is_empty()) {
            place = &mut place[name];
        }
        if value.is_null() {
            place.as_object_mut().unwrap().remove(last);
        } else {
            place[last] = expand(value);
        }
    }
    target
}

fn at<'a>(target: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(target, |place, name| &place[name])
}

fn includes(actual: &Value, wanted: &Value) -> bool {
    match (actual, wanted) {
        (Value::Object(actual), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| actual.get(key).is_some_and(|actual| includes(actual, value))),
        (Value::Array(actual), Value::Array(wanted)) => {
            actual.len() == wanted.len()
                && actual
                    .iter()
                    .zip(wanted)
                    .all(|(actual, wanted)| includes(actual, wanted))
        }
        (actual, wanted) => actual == wanted,
    }
}

/// Stores an object as an API server does: prune, default, validate.
fn store(version: &CrdVersion, object: &Value, old: Option<&Value>) -> Result<Value, String> {
    let mut object = object.clone();
    version.prune(&mut object);
    version.default(&mut object);
    let causes = version.validate(&object, old);
    if causes.is_empty() {
        return Ok(object);
    }
    let sentences: Vec<String> = causes.iter().map(spokeshave_apiserver::Cause::sentence).collect();
    Err(sentences.join("; "))
}

fn run(version: &CrdVersion, base: &Value, case: &Case) -> Result<Value, String> {
    let mut stored = store(version, &change(base, &case.set), None)?;
    for paths in [&case.then, &case.status].into_iter().flatten() {
        stored = store(version, &change(&stored, paths), Some(&stored))?;
    }
    Ok(stored)
}

fn definition(object: &Value) -> Value {
    [Cloud::Kwok, Cloud::Aws, Cloud::Azure]
        .into_iter()
        .flat_map(crd_values_of)
        .find(|crd| crd["spec"]["names"]["kind"] == object["kind"])
        .unwrap()
}

/// Runs one file and returns its number of cases and what went wrong.
fn check(text: &str) -> (usize, Vec<String>) {
    let corpus: Corpus = serde_saphyr::from_str(text).unwrap();
    let crd = definition(&corpus.base);
    let compiled = CompiledCrd::compile(&crd).unwrap();
    let version = compiled.served().next().unwrap();
    let mut wrong = Vec::new();
    for case in &corpus.cases {
        let result = run(version, &corpus.base, case);
        let name = &case.name;
        match (&case.error, &result) {
            (None, Ok(stored)) => {
                for (path, wanted) in &case.shows {
                    let actual = at(stored, path);
                    if !includes(actual, wanted) {
                        wrong.push(format!("{name}: {path} is {actual}, not {wanted}"));
                    }
                }
            }
            (None, Err(error)) => wrong.push(format!("{name}: must be accepted, refused with: {error}")),
            (Some(wanted), Ok(_)) => wrong.push(format!("{name}: must be refused with: {wanted}")),
            (Some(wanted), Err(error)) if !error.contains(wanted.as_str()) => {
                wrong.push(format!("{name}: refused with: {error}\n  instead of: {wanted}"));
            }
            (Some(_), Err(_)) => {}
        }
    }
    (corpus.cases.len(), wrong)
}

fn assert_all_right(text: &str, at_least: usize) {
    let (count, wrong) = check(text);
    assert!(count >= at_least, "{count} cases");
    assert!(
        wrong.is_empty(),
        "{} of {count} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn p_003_to_p_012_node_pools() {
    assert_all_right(include_str!("corpus/nodepool.yaml"), 120);
}

#[test]
fn p_011_node_claims() {
    assert_all_right(include_str!("corpus/nodeclaim.yaml"), 25);
}

#[test]
fn p_013_node_overlays() {
    assert_all_right(include_str!("corpus/nodeoverlay.yaml"), 25);
}

#[test]
fn p_014_capacity_buffers() {
    assert_all_right(include_str!("corpus/capacitybuffer.yaml"), 15);
}

#[test]
fn p_015_kwok_node_classes() {
    assert_all_right(include_str!("corpus/kwoknodeclass.yaml"), 5);
}

#[test]
fn a_001_a_002_a_003_ec2_node_classes() {
    assert_all_right(include_str!("corpus/ec2nodeclass.yaml"), 100);
}

#[test]
fn z_001_aks_node_classes() {
    assert_all_right(include_str!("corpus/aksnodeclass.yaml"), 70);
}

/// Objects of this kind in YAML or JSON documents, at any depth.
fn objects_of(kind: &str, value: &Value, found: &mut Vec<Value>) {
    if value["kind"] == kind && value["spec"].is_object() {
        found.push(value.clone());
    }
    match value {
        Value::Object(fields) => fields.values().for_each(|value| objects_of(kind, value, found)),
        Value::Array(items) => items.iter().for_each(|value| objects_of(kind, value, found)),
        _ => {}
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its cases where they are")]
fn a_001_every_class_of_the_parity_scenarios_is_admitted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/aws/cases");
    let mut classes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("launch-") && name.ends_with(".yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            documents
                .iter()
                .for_each(|value| objects_of("EC2NodeClass", value, &mut classes));
        }
    }
    assert!(classes.len() >= 12, "{} classes", classes.len());
    let compiled = CompiledCrd::compile(&definition(&classes[0])).unwrap();
    let version = compiled.served().next().unwrap();
    for class in classes {
        let refused = store(version, &class, None).err();
        // The scenarios call upstream's provider without admission; this class tests the provider's error about its tag.
        let is_wrong = class["metadata"]["name"] == "bad-tag";
        assert_eq!(refused.is_some(), is_wrong, "{}: {refused:?}", class["metadata"]);
    }
}

#[test]
fn a_case_that_does_not_hold_is_noticed() {
    let text = include_str!("corpus/kwoknodeclass.yaml");
    let (_, wrong) = check(&text.replace("error: \"should match", "error: \"should not match"));
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    let (_, wrong) = check(&text.replace("2024-01-01T01:01:01Z", "2024-01-01T01:01:02Z"));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}

/// The rules of a schema: the place of each, with `[]` for elements and values, and its message.
fn rules(schema: &Value, path: &str, found: &mut Vec<(String, String)>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let message = rule["message"]
            .as_str()
            .expect("each of our rules says what it wants");
        let below = rule["fieldPath"].as_str().unwrap_or_default();
        found.push((format!("{path}{below}"), message.to_owned()));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if path.is_empty() { "" } else { "." };
        rules(property, &format!("{path}{dot}{name}"), found);
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            rules(&schema[part], &format!("{path}[]"), found);
        }
    }
}

/// The place of a cause, without the index or the key.
fn place(field: &str) -> String {
    let mut place = String::new();
    let mut inside = false;
    for letter in field.chars() {
        match letter {
            '[' => {
                inside = true;
                place.push('[');
            }
            ']' => {
                inside = false;
                place.push(']');
            }
            _ if inside => {}
            letter => place.push(letter),
        }
    }
    place
}

/// Every place where a case was refused, with the message.
fn refusals(text: &str) -> (Value, std::collections::BTreeSet<(String, String)>) {
    let corpus: Corpus = serde_saphyr::from_str(text).unwrap();
    let crd = definition(&corpus.base);
    let compiled = CompiledCrd::compile(&crd).unwrap();
    let version = compiled.served().next().unwrap();
    let mut refused = std::collections::BTreeSet::new();
    for case in corpus.cases.iter().filter(|case| case.error.is_some()) {
        let mut stored: Option<Value> = None;
        let steps = [Some(&case.set), case.then.as_ref(), case.status.as_ref()];
        for paths in steps.into_iter().flatten() {
            let mut object = change(stored.as_ref().unwrap_or(&corpus.base), paths);
            version.prune(&mut object);
            version.default(&mut object);
            let causes = version.validate(&object, stored.as_ref());
            refused.extend(
                causes
                    .into_iter()
                    .map(|cause| (place(&cause.field), cause.message)),
            );
            stored = Some(object);
        }
    }
    (
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone(),
        refused,
    )
}

#[test]
fn every_rule_refuses_a_case_with_its_message() {
    let mut missing = Vec::new();
    let mut count = 0;
    for text in [
        include_str!("corpus/nodepool.yaml"),
        include_str!("corpus/nodeclaim.yaml"),
        include_str!("corpus/nodeoverlay.yaml"),
        include_str!("corpus/capacitybuffer.yaml"),
        include_str!("corpus/kwoknodeclass.yaml"),
        include_str!("corpus/ec2nodeclass.yaml"),
        include_str!("corpus/aksnodeclass.yaml"),
    ] {
        let (schema, refused) = refusals(text);
        let mut all = Vec::new();
        rules(&schema, "", &mut all);
        count += all.len();
        missing.extend(all.into_iter().filter(|(path, message)| {
            !refused
                .iter()
                .any(|(field, said)| field == path && said.contains(message.as_str()))
        }));
    }
    assert!(count >= 80, "{count} rules");
    assert!(
        missing.is_empty(),
        "rules that no case in tests/corpus breaks: {missing:#?}"
    );
}
