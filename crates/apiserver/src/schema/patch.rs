//! JSON patch (RFC 6902), merge patch (RFC 7396) and strategic merge patch.
//!
//! Owns how a patch changes a document. Server-side apply, which also keeps owners, is in `managed_fields`.

use json_patch::jsonptr::Pointer;
use json_patch::{AddOperation, PatchOperation};
use serde_json::{Map, Value};

use crate::schema::types::{Node, TypeSchema};

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed (HTTP 400).
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the document (HTTP 422).
    #[error("{0}")]
    DoesNotApply(String),
}

/// Applies a JSON patch. As on a genuine server, keys that an object lacks are null to `test` and can be replaced.
///
/// # Errors
/// The patch is malformed, or an operation does not fit the document.
pub fn json_patch(document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError::Malformed(format!("error decoding patch: {error}")))?;
    let mut result = document.clone();
    // One by one, since which keys are missing depends on the operations before.
    for (index, operation) in operations.0.into_iter().enumerate() {
        let Some(operation) = lenient(&result, operation) else {
            continue;
        };
        json_patch::patch(&mut result, &[operation]).map_err(|mut error| {
            error.operation = index;
            PatchError::DoesNotApply(error.to_string())
        })?;
    }
    Ok(result)
}

/// The operation as the RFC would have it written for a key that may be missing; `None` if there is nothing to do.
fn lenient(document: &Value, operation: PatchOperation) -> Option<PatchOperation> {
    match operation {
        PatchOperation::Replace(replace) if lacks_key(document, &replace.path) => {
            Some(PatchOperation::Add(AddOperation {
                path: replace.path,
                value: replace.value,
            }))
        }
        PatchOperation::Test(test) if test.value.is_null() && lacks_key(document, &test.path) => None,
        other => Some(other),
    }
}

/// Whether the path leads to an object that is there but has no such key.
fn lacks_key(document: &Value, path: &Pointer) -> bool {
    let Some((parent, key)) = path.split_back() else {
        return false;
    };
    let parent = document.pointer(parent.as_str()).and_then(Value::as_object);
    parent.is_some_and(|parent| !parent.contains_key(&*key.decoded()))
}

/// Applies a merge patch.
#[must_use]
pub fn merge_patch(document: &Value, patch: &Value) -> Value {
    let mut result = document.clone();
    merge_into(&mut result, patch);
    result
}

fn merge_into(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, change) in changes {
        if change.is_null() {
            map.remove(key);
        } else if let Some(known) = map.get_mut(key) {
            merge_into(known, change);
        } else {
            let mut new = Value::Null;
            merge_into(&mut new, change);
            map.insert(key.clone(), new);
        }
    }
}

/// Applies a strategic merge patch: lists with a merge key are merged by it, and directives (`$patch`, `$retainKeys`,
/// `$deleteFromPrimitiveList`, `$setElementOrder`) are honoured.
///
/// # Errors
/// The patch is not an object, an element of a merged list has no key, or a directive is unknown.
pub fn strategic_merge(schema: &TypeSchema, document: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(changes) = patch else {
        return Err(PatchError::Malformed(
            "a strategic merge patch must be an object".to_owned(),
        ));
    };
    let base = document.as_object().cloned().unwrap_or_default();
    merge_map(schema.root(), base, changes).map(Value::Object)
}

const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

fn merge_map(
    node: Node<'_>,
    mut base: Map<String, Value>,
    changes: &Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    match changes
        .get("$patch")
        .map(|directive| directive.as_str().unwrap_or_default())
    {
        Some("replace") => return Ok(without_directives(changes)),
        Some("delete") => return Ok(Map::new()),
        Some("merge") | None => {}
        Some(other) => {
            return Err(PatchError::Malformed(format!(
                "unknown patch type {other:?} found"
            )));
        }
    }
    // Lists whose order is given, as they were before.
    let mut ordered: Vec<(&str, &[Value], Vec<Value>)> = Vec::new();
    for (key, order) in changes {
        if let (Some(field), Some(order)) = (key.strip_prefix(SET_ORDER), order.as_array()) {
            let before = base
                .get(field)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            ordered.push((field, order, before));
        }
    }
    if let Some(keep) = changes.get("$retainKeys").and_then(Value::as_array) {
        base.retain(|key, _| keep.iter().any(|kept| kept == key));
    }
    for (key, change) in changes {
        if key.starts_with('$') {
            if let Some(field) = key.strip_prefix(DELETE_FROM)
                && let (Some(Value::Array(list)), Some(gone)) = (base.get_mut(field), change.as_array())
            {
                list.retain(|item| !gone.contains(item));
            }
            continue;
        }
        let field = node.field(key);
        let merged = match (base.remove(key), change) {
            (_, Value::Null) => continue,
            (Some(Value::Object(old)), Value::Object(new)) => Value::Object(merge_map(field, old, new)?),
            (None, Value::Object(new)) => Value::Object(merge_map(field, Map::new(), new)?),
            (old, Value::Array(new)) => {
                let old = match old {
                    Some(Value::Array(list)) => list,
                    _ => Vec::new(),
                };
                Value::Array(merge_list(field, old, new)?)
            }
            (_, other) => other.clone(),
        };
        base.insert(key.clone(), merged);
    }
    for (field, order, before) in ordered {
        if let Some(Value::Array(list)) = base.get_mut(field) {
            let key = node.field(field).strategic_list().unwrap_or_default();
            reorder(list, order, &before, key);
        }
    }
    Ok(base)
}

/// A map as it is inserted where nothing was.
fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter()
        .filter(|(key, _)| !key.starts_with('$'))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn merge_list(node: Node<'_>, mut base: Vec<Value>, changes: &[Value]) -> Result<Vec<Value>, PatchError> {
    let Some(key) = node.strategic_list() else {
        return Ok(changes.to_vec());
    };
    if key.is_empty() {
        let before = base.clone();
        for change in changes {
            if !base.contains(change) {
                base.push(change.clone());
            }
        }
        reorder(&mut base, changes, &before, "");
        return Ok(base);
    }
    if changes
        .iter()
        .any(|change| change["$patch"] == "replace" && change.as_object().is_some_and(|map| map.len() == 1))
    {
        return Ok(changes
            .iter()
            .filter(|change| change["$patch"] != "replace")
            .cloned()
            .collect());
    }
    let before = base.clone();
    for change in changes {
        let Value::Object(change) = change else {
            return Err(PatchError::Malformed(format!(
                "an element merged by {key:?} must be an object"
            )));
        };
        let Some(identity) = change.get(key) else {
            return Err(PatchError::Malformed(format!(
                "map: {} does not contain declared merge key: {key}",
                Value::Object(change.clone())
            )));
        };
        let position = base.iter().position(|item| &item[key] == identity);
        match (change.get("$patch").and_then(Value::as_str), position) {
            (Some("delete"), Some(_)) => base.retain(|item| &item[key] != identity),
            (Some("delete"), None) => {}
            (_, Some(position)) => {
                let old = base[position].as_object().cloned().unwrap_or_default();
                base[position] = Value::Object(merge_map(node.items(), old, change)?);
            }
            (_, None) => base.push(Value::Object(merge_map(node.items(), Map::new(), change)?)),
        }
    }
    reorder(&mut base, changes, &before, key);
    Ok(base)
}

/// Elements named in `order` are in that order, the others in that of `before`; the two are merged so that elements which were there
/// before keep their order, and new ones come as early as that allows.
fn reorder(list: &mut Vec<Value>, order: &[Value], before: &[Value], key: &str) {
    let position = |list: &[Value], item: &Value| {
        list.iter().position(|other| {
            if key.is_empty() {
                other == item
            } else {
                other[key] == item[key]
            }
        })
    };
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        list.drain(..).partition(|item| position(order, item).is_some());
    named.sort_by_key(|item| position(order, item));
    others.sort_by_key(|item| position(before, item));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(left), Some(right)) = (named.peek(), others.peek()) {
        let right_first = match (position(before, left), position(before, right)) {
            (Some(left), Some(right)) => right < left,
            _ => false,
        };
        list.extend(if right_first { others.next() } else { named.next() });
    }
    list.extend(named.chain(others));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn pod() -> TypeSchema {
        TypeSchema::builtin("", "v1", "Pod").expect("pods are known")
    }

    #[test]
    fn rfc_7396_examples() {
        for (document, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            assert_eq!(merge_patch(&document, &patch), result, "{document} + {patch}");
        }
    }

    #[test]
    fn strategic_lists_merge_by_their_key() {
        let document = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}], "tolerations": [{"key": "x"}]},
                              "metadata": {"finalizers": ["f/a"]}});
        let patch = json!({"spec": {"containers": [{"name": "b", "image": "3"}, {"name": "c", "image": "4"}], "tolerations": [{"key": "y"}]},
                           "metadata": {"finalizers": ["f/b"]}});
        let result = strategic_merge(&pod(), &document, &patch).unwrap();
        assert_eq!(
            result["spec"]["containers"],
            json!([{"name": "a", "image": "1"}, {"name": "b", "image": "3"}, {"name": "c", "image": "4"}])
        );
        assert_eq!(
            result["spec"]["tolerations"],
            json!([{"key": "y"}]),
            "an atomic list is replaced"
        );
        assert_eq!(
            result["metadata"]["finalizers"],
            json!(["f/b", "f/a"]),
            "what is new comes first, as on a real server"
        );
    }

    #[test]
    fn strategic_directives() {
        let document = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"a": "b"}},
                              "metadata": {"finalizers": ["f/a", "f/b"], "labels": {"x": "y"}}});
        let apply = |patch| strategic_merge(&pod(), &document, &patch).unwrap();
        assert_eq!(
            apply(json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}))["spec"]["containers"],
            json!([{"name": "b"}])
        );
        assert_eq!(
            apply(json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}))["spec"]["containers"],
            json!([{"name": "z"}])
        );
        assert_eq!(
            apply(json!({"metadata": {"labels": {"$patch": "replace", "n": "m"}}}))["metadata"]["labels"],
            json!({"n": "m"})
        );
        assert_eq!(
            apply(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["f/a"]}}))["metadata"]["finalizers"],
            json!(["f/b"])
        );
        assert_eq!(
            apply(json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}))["spec"]["containers"],
            json!([{"name": "b"}, {"name": "a"}])
        );
        assert_eq!(
            apply(
                json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}})
            )["spec"]["volumes"],
            json!([{"name": "v", "hostPath": {"path": "/"}}])
        );
        assert!(
            strategic_merge(
                &pod(),
                &document,
                &json!({"spec": {"containers": [{"image": "x"}]}})
            )
            .is_err()
        );
    }

    #[test]
    fn json_patch_errors_have_their_class() {
        let document = json!({"a": 1});
        assert_eq!(
            json_patch(&document, &json!([{"op": "replace", "path": "/a", "value": 2}])).unwrap(),
            json!({"a": 2})
        );
        assert!(matches!(
            json_patch(&document, &json!([{"op": "test", "path": "/a", "value": 2}])),
            Err(PatchError::DoesNotApply(_))
        ));
        assert!(matches!(
            json_patch(&document, &json!({"op": "add"})),
            Err(PatchError::Malformed(_))
        ));
    }

    #[test]
    fn json_patches_replace_and_test_keys_that_are_missing() {
        let document = json!({"a": {"b": 1}, "list": [1]});
        let apply = |patch: Value| json_patch(&document, &patch);
        let replaced = apply(json!([
            {"op": "replace", "path": "/a/x~1y", "value": 2},
            {"op": "remove", "path": "/a/b"},
            {"op": "test", "path": "/a/b", "value": null},
            {"op": "replace", "path": "/a/b", "value": {}},
            {"op": "replace", "path": "/a/b/c", "value": 3},
        ]));
        assert_eq!(replaced, Ok(json!({"a": {"x/y": 2, "b": {"c": 3}}, "list": [1]})));
        for refused in [
            json!({"op": "replace", "path": "/nothing/b", "value": 2}),
            json!({"op": "replace", "path": "/list/1", "value": 2}),
            json!({"op": "test", "path": "/nothing/b", "value": null}),
            json!({"op": "test", "path": "/a/c", "value": 1}),
            json!({"op": "test", "path": "/a/b", "value": null}),
            json!({"op": "remove", "path": "/a/c"}),
        ] {
            let first = json!({"op": "test", "path": "/a/c", "value": null});
            let Err(PatchError::DoesNotApply(message)) = apply(json!([first, refused])) else {
                panic!("{refused} applies");
            };
            assert!(message.contains("'/1'"), "it names the operation: {message}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z$/]{0,6}".prop_map(Value::from)
        ];
        let key = prop::sample::select(vec![
            "spec",
            "containers",
            "name",
            "$patch",
            "$retainKeys",
            "metadata",
            "finalizers",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "a",
        ]);
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Containers by name, each once, in any order.
    fn containers() -> impl Strategy<Value = Vec<(String, String)>> {
        let names = prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..=4).prop_shuffle();
        (names, prop::collection::vec("[x-z]", 4))
            .prop_map(|(names, images)| names.into_iter().map(str::to_owned).zip(images).collect())
    }

    proptest! {
        #[test]
        fn arbitrary_patches_never_panic(document in any_json(), patch in any_json()) {
            let _ = strategic_merge(&pod(), &document, &patch);
            let _ = json_patch(&document, &patch);
            let merged = merge_patch(&document, &patch);
            prop_assert_eq!(merge_patch(&merged, &patch), merged.clone(), "a merge patch is idempotent");
        }

        #[test]
        fn merge_patches_are_those_of_another_implementation(document in any_json(), patch in any_json()) {
            let mut theirs = document.clone();
            json_patch::merge(&mut theirs, &patch);
            prop_assert_eq!(merge_patch(&document, &patch), theirs);
        }

        #[test]
        fn a_json_patch_that_was_computed_leads_where_it_was_computed_for(from in any_json(), to in any_json()) {
            let patch = serde_json::to_value(json_patch::diff(&from, &to)).unwrap();
            prop_assert_eq!(json_patch(&from, &patch).unwrap(), to);
        }

        /// What kubectl sends: changed elements by their key, deletions, and the order that is wanted.
        #[test]
        fn a_strategic_patch_as_clients_compute_it_leads_to_the_list_they_want(old in containers(), new in containers()) {
            let list = |containers: &[(String, String)]| -> Vec<Value> {
                containers.iter().map(|(name, image)| json!({"name": name, "image": image})).collect()
            };
            let mut elements: Vec<Value> = list(&new);
            let gone = old.iter().filter(|(name, _)| new.iter().all(|(kept, _)| kept != name));
            elements.extend(gone.map(|(name, _)| json!({"name": name, "$patch": "delete"})));
            let order: Vec<Value> = new.iter().map(|(name, _)| json!({"name": name})).collect();
            let patch = json!({"spec": {"containers": elements, "$setElementOrder/containers": order}});
            let document = json!({"spec": {"containers": list(&old)}});
            let merged = strategic_merge(&pod(), &document, &patch).map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
            let result = merged["spec"]["containers"].as_array().cloned().unwrap_or_default();
            prop_assert_eq!(result, list(&new));
        }
    }
}
