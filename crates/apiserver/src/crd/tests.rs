//! What a genuine server answered, recorded in `vectors/` (see `vectors/record.py`), against what we answer.

use super::*;
use proptest::prelude::*;

fn definition(schema: &Value) -> Value {
    json!({
        "metadata": {"name": "vectors.vectors.example.com"},
        "spec": {
            "group": "vectors.example.com", "scope": "Cluster",
            "names": {"plural": "vectors", "singular": "vector", "kind": "Vector", "listKind": "VectorList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn object(content: &Value) -> Value {
    let mut object =
        json!({"apiVersion": "vectors.example.com/v1", "kind": "Vector", "metadata": {"name": "x"}});
    for (key, value) in content.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

fn sorted(causes: &[Cause]) -> Vec<[String; 3]> {
    let mut causes: Vec<[String; 3]> = causes
        .iter()
        .map(|cause| {
            [
                cause.reason.to_owned(),
                cause.field.clone(),
                cause.message.clone(),
            ]
        })
        .collect();
    causes.sort();
    causes
}

fn recorded(causes: &Value) -> Vec<[String; 3]> {
    serde_json::from_value(causes.clone()).expect("three texts each")
}

/// Numbers are equal when they are the same number: Go writes 2.0 as 2.
fn like_go(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(like_go).collect(),
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, value)| (key.clone(), like_go(value)))
                .collect(),
        ),
        #[expect(clippy::cast_possible_truncation, reason = "small whole numbers")]
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => json!(float as i64),
            _ => value.clone(),
        },
        other => other.clone(),
    }
}

fn check_objects(text: &str) {
    let vectors: Value = serde_json::from_str(text).expect("the vectors are JSON");
    let compiled = CompiledCrd::compile(&definition(&vectors["schema"])).expect("the schema is accepted");
    let version = compiled.version("v1").expect("it is served");
    let mut wrong = Vec::new();
    for case in vectors["cases"].as_array().expect("cases") {
        let mut new = object(&case["new"]);
        let old = case.get("old").map(object);
        version.prune(&mut new);
        version.default(&mut new);
        let causes = version.validate(&new, old.as_ref());
        if case["causes"].is_array() {
            if sorted(&causes) != recorded(&case["causes"]) {
                wrong.push(format!(
                    "{}\n  ours {:?}\n  real {}",
                    case["new"],
                    sorted(&causes),
                    case["causes"]
                ));
            }
        } else if !causes.is_empty() || like_go(&new) != like_go(&object(&case["result"])) {
            wrong.push(format!(
                "{}\n  ours {new} {causes:?}\n  real {}",
                case["new"], case["result"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn values_are_judged_and_defaulted_as_by_a_genuine_server() {
    check_objects(include_str!("../../vectors/custom-values.json"));
}

#[test]
fn rules_are_evaluated_as_by_a_genuine_server() {
    check_objects(include_str!("../../vectors/rules.json"));
}

#[test]
fn what_an_update_does_not_touch_is_tolerated_as_by_a_genuine_server() {
    check_objects(include_str!("../../vectors/ratcheting.json"));
}

#[test]
fn definitions_are_judged_as_by_a_genuine_server() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../vectors/definitions.json")).expect("the vectors are JSON");
    let mut wrong = Vec::new();
    for case in vectors["cases"].as_array().expect("cases") {
        let mut crd = json!({"metadata": {"name": case["name"]}, "spec": case["spec"]});
        (crate::kinds::rules("apiextensions.k8s.io", "CustomResourceDefinition").default)(&mut crd);
        let causes = CompiledCrd::compile(&crd).err().unwrap_or_default();
        let expected = if case["causes"].is_array() {
            recorded(&case["causes"])
        } else {
            Vec::new()
        };
        if sorted(&causes) != expected {
            wrong.push(format!(
                "{}\n  ours {:?}\n  real {expected:?}",
                case["spec"],
                sorted(&causes)
            ));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn columns_scale_and_selectable_fields_come_from_the_definition() {
    let mut crd = definition(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}, "colour": {"type": "string"}}}}}),
    );
    let version = &mut crd["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}});
    version["selectableFields"] = json!([{"jsonPath": ".spec.colour"}]);
    let compiled = CompiledCrd::compile(&crd).expect("it is sound");
    let version = compiled.version("v1").expect("it is served");
    assert!(version.has_status() && compiled.version("v2").is_none());
    assert_eq!(
        version.scale(),
        Some(("spec.size".to_owned(), "status.size".to_owned(), None))
    );
    assert_eq!(version.selectable_fields(), ["spec.colour"]);
    assert_eq!(version.printer_columns()[0]["name"], "Age");
    let causes = version.validate(&object(&json!({"spec": {"size": -1}})), None);
    assert_eq!(
        causes[0].sentence(),
        ".spec.size: Invalid value: -1: should be a non-negative integer"
    );
}

/// Any JSON, with names that schemas of this file's vectors use.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|float| json!(float)),
        "[a-z0-9:/%.é-]{0,12}".prop_map(Value::from)
    ];
    let key = prop::sample::select(vec![
        "spec",
        "type",
        "properties",
        "items",
        "i",
        "l",
        "m",
        "emb",
        "kind",
        "metadata",
        "labels",
        "default",
        "enum",
        "anyOf",
        "required",
        "pattern",
        "x-kubernetes-validations",
        "rule",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "additionalProperties",
        "maximum",
        "lm",
        "opt",
    ]);
    leaf.prop_recursive(5, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_schemas_and_objects_never_panic(schema in any_json(), new in any_json(), old in any_json()) {
        let _ = CompiledCrd::compile(&definition(&schema));
        let _ = CompiledCrd::compile(&json!({"spec": schema}));
        let structural = Structural::compile(&schema);
        let mut value = new.clone();
        structural.drop_nulls(&mut value);
        structural.fill_defaults(&mut value);
        let root = Path::root("");
        let _ = values::validate(&structural, &value, Some(&old), &root);
        let _ = rules::validate(&structural, &value, Some(&old), &root);
        let mut causes = Vec::new();
        values::validate_lists(&structural, &value, &root, &mut causes);
        prop_assert!(values::validate(&structural, &value, Some(&value), &root).is_empty(), "nothing has changed");
    }

    #[test]
    fn arbitrary_objects_never_panic_under_rules(new in any_json(), old in any_json()) {
        let vectors: Value = serde_json::from_str(include_str!("../../vectors/rules.json")).expect("the vectors are JSON");
        let structural = Structural::compile(&vectors["schema"]);
        let _ = rules::validate(&structural, &new, Some(&old), &Path::root(""));
    }
}
