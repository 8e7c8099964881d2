//! Field ownership: `metadata.managedFields` and server-side apply.
//!
//! Owns who owns which set of fields: how updates and applied configurations change that, and which conflicts they meet. The algebra of
//! the sets is in `field_set`. The rules are those of structured-merge-diff and of Kubernetes' field managers around it.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::fields::field_managers::{Entry, entries, store, time_text};
use crate::fields::field_set::{Fields, compare_objects, elements, fields_of, merge, remove_items, shown};
use crate::fields::reset::Reset;
use crate::schema::decode::zero;
use crate::schema::types::{Node, TypeSchema};

/// Who writes, and when.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Name of the field manager.
    pub manager: &'a str,
    /// `apiVersion` in which the fields are written.
    pub api_version: &'a str,
    /// Subresource written through; empty for the main resource.
    pub subresource: &'a str,
    /// Time of the write.
    pub now: Timestamp,
    /// Fields that a write through this resource cannot change, and therefore does not own.
    pub reset: Reset,
}

/// A field that another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `"manager" using v1` as clients show it.
    pub manager: String,
    /// Path such as `.spec.replicas`.
    pub field: String,
}

/// Why an applied configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// Others own fields with other values (HTTP 409).
    Conflicts(Vec<Conflict>),
    /// The configuration is malformed (HTTP 400).
    Invalid(String),
    /// The configuration does not fit the schema (HTTP 500, as a real server has it).
    Untyped(String),
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Identity, and fields set by the server, have no owner.
fn strip_system_fields(fields: &mut Fields) {
    for step in ["f:apiVersion", "f:kind"] {
        fields.below.remove(step);
    }
    if let Some(metadata) = fields.below.get_mut("f:metadata") {
        metadata.own = false;
        for name in [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "generation",
            "managedFields",
            "resourceVersion",
        ] {
            metadata.below.remove(&format!("f:{name}"));
        }
        if metadata.is_empty() {
            fields.below.remove("f:metadata");
        }
    }
    fields.own = false;
}

fn is_reset(object: &Value) -> bool {
    object["metadata"]["managedFields"]
        .as_array()
        .is_some_and(|list| {
            list.is_empty() || list.len() == 1 && list[0].as_object().is_some_and(Map::is_empty)
        })
}

/// What an object is compared with when it is created: Go's empty struct, or for a custom kind nothing.
fn nothing(schema: &TypeSchema) -> Value {
    if schema.core { zero(schema) } else { json!({}) }
}

/// Records an update: what changed belongs to the writer now.
pub fn update(schema: &TypeSchema, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let mut known = match old {
        Some(old) if !writer.subresource.is_empty() => entries(old),
        _ if is_reset(new) => Vec::new(),
        _ => {
            // A client may edit the list; one that does not know it must not lose it.
            let sent = entries(new);
            if sent.is_empty() {
                old.map(entries).unwrap_or_default()
            } else {
                sent
            }
        }
    };
    if let Some(metadata) = new["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    // Whose fields were never tracked, or no longer, is not tracked by halves.
    if known.is_empty() && old.is_some() {
        return;
    }
    let empty = if old.is_none() {
        nothing(schema)
    } else {
        Value::Null
    };
    record(schema, old.unwrap_or(&empty), new, writer, &mut known);
    store(new, known);
}

fn record(schema: &TypeSchema, old: &Value, new: &Value, writer: &Writer<'_>, known: &mut Vec<Entry>) {
    let mut difference = compare_objects(schema.root(), old, new);
    writer.reset.apply(&mut difference.changed);
    writer.reset.apply(&mut difference.removed);
    for entry in known.iter_mut() {
        if !entry.is_of(writer, "Update") {
            entry.fields.subtract(&difference.changed);
        }
        entry.fields.subtract(&difference.removed);
    }
    strip_system_fields(&mut difference.changed);
    if difference.changed.is_empty() {
        return;
    }
    if !known.iter().any(|entry| entry.is_of(writer, "Update")) {
        known.push(Entry::new(writer, "Update"));
    }
    if let Some(entry) = known.iter_mut().find(|entry| entry.is_of(writer, "Update")) {
        entry.fields.union(&difference.changed);
        entry.time = Some(time_text(writer.now));
    }
}

/// Merges an applied configuration into the live object and records its owner.
///
/// # Errors
/// Conflicts without `force`, or a malformed configuration.
pub fn apply(
    schema: &TypeSchema,
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    if !applied["metadata"]["managedFields"].is_null() {
        return Err(ApplyError::Invalid(
            "metadata.managedFields must be nil".to_owned(),
        ));
    }
    let root = schema.root();
    check_elements(root, applied, "").map_err(|problem| ApplyError::Untyped(untyped(applied, &problem)))?;
    let empty = nothing(schema);
    let base = live.unwrap_or(&empty);
    let mut known = live.map(entries).unwrap_or_default();
    if let (Some(live), true) = (live, known.is_empty()) {
        let before = Writer {
            manager: "before-first-apply",
            subresource: "",
            reset: Reset::Nothing,
            ..*writer
        };
        record(schema, &nothing(schema), live, &before, &mut known);
    }
    let mut result = merged(root, base, applied, writer, &mut known, force)?;
    if writer.manager == "kubectl"
        && result["metadata"]["annotations"][LAST_APPLIED]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    {
        let mut last = applied.clone();
        if let Some(annotations) = last["metadata"]["annotations"].as_object_mut() {
            annotations.remove(LAST_APPLIED);
        }
        result["metadata"]["annotations"][LAST_APPLIED] = json!(format!("{last}\n"));
    }
    store(&mut result, known);
    Ok(result)
}

fn merged(
    root: Node<'_>,
    base: &Value,
    applied: &Value,
    writer: &Writer<'_>,
    known: &mut Vec<Entry>,
    force: bool,
) -> Result<Value, ApplyError> {
    let mut result = merge(root, Some(base), Some(applied));
    if let Some(metadata) = result["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    let mut wanted = fields_of(root, applied);
    writer.reset.apply(&mut wanted);
    let last = known
        .iter()
        .position(|entry| entry.is_of(writer, "Apply"))
        .map(|index| known.remove(index));
    if let Some(last) = &last {
        result = prune(root, &result, &last.fields, &wanted, known);
    }
    let mut difference = compare_objects(root, base, &result);
    writer.reset.apply(&mut difference.changed);
    writer.reset.apply(&mut difference.removed);
    let taken: Vec<Fields> = known
        .iter()
        .map(|entry| entry.fields.intersection(&difference.changed))
        .collect();
    let mut conflicts = Vec::new();
    let allowed = if writer.manager == "kubectl" {
        last_applied_fields(root, base)
    } else {
        None
    };
    for (entry, taken) in known.iter().zip(&taken) {
        let mut refused = taken.clone();
        if let Some(allowed) = &allowed {
            refused.subtract(allowed);
        }
        refused.each(&mut Vec::new(), &mut |path| {
            conflicts.push(Conflict {
                manager: describe(entry),
                field: shown(path),
            })
        });
    }
    if !conflicts.is_empty() && !force {
        return Err(ApplyError::Conflicts(conflicts));
    }
    for (entry, taken) in known.iter_mut().zip(&taken) {
        entry.fields.subtract(taken);
        entry.fields.subtract(&difference.removed);
    }
    strip_system_fields(&mut wanted);
    let mut entry = Entry::new(writer, "Apply");
    entry.fields = wanted;
    let same = difference.changed.is_empty() && difference.removed.is_empty();
    entry.time = if same {
        last.and_then(|last| last.time)
    } else {
        Some(time_text(writer.now))
    };
    known.push(entry);
    Ok(result)
}

/// Removes fields that the manager applied last time and that have no owner any more.
fn prune(root: Node<'_>, merged: &Value, last: &Fields, wanted: &Fields, others: &[Entry]) -> Value {
    let empty = || json!({});
    let last = last.with_named_parents(root);
    let pruned = remove_items(root, merged, &last).unwrap_or_else(empty);
    let mut claimed = wanted.clone();
    for entry in others {
        claimed.union(&entry.fields);
    }
    let all = fields_of(root, merged).with_named_parents(root);
    // What was taken out but is claimed comes back …
    let mut gone = all.clone();
    let mut kept = fields_of(root, &pruned).with_named_parents(root);
    kept.union(&claimed.with_named_parents(root));
    gone.subtract(&kept);
    let pruned = remove_items(root, merged, &gone).unwrap_or_else(empty);
    // … and so does what this manager did not apply.
    let mut gone = all;
    gone.subtract(&fields_of(root, &pruned).with_named_parents(root));
    remove_items(root, merged, &gone.intersection(&last)).unwrap_or_else(empty)
}

/// Fields that a client-side `kubectl apply` has set and that are unchanged: kubectl may take them over without a conflict.
fn last_applied_fields(root: Node<'_>, live: &Value) -> Option<Fields> {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last["apiVersion"] != live["apiVersion"] {
        return None;
    }
    let mut fields = fields_of(root, &last);
    let difference = compare_objects(root, &last, live);
    fields.subtract(&difference.changed);
    fields.subtract(&difference.removed);
    Some(fields)
}

/// What is said of an applied configuration that does not fit the schema.
pub(crate) fn untyped(applied: &Value, problem: &str) -> String {
    format!(
        "failed to create typed patch object ({}): {problem}",
        identity(applied)
    )
}

/// `namespace/name; group/version, Kind=kind`, as errors name an object.
fn identity(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let version = if version.contains('/') {
        version
    } else {
        format!("/{version}")
    };
    format!(
        "{}/{}; {version}, Kind={}",
        text(&object["metadata"]["namespace"]),
        text(&object["metadata"]["name"]),
        text(&object["kind"])
    )
}

/// Keyed lists must have no element twice.
fn check_elements(node: Node<'_>, value: &Value, path: &str) -> Result<(), String> {
    match value {
        Value::Object(map) => map
            .iter()
            .try_for_each(|(key, child)| check_elements(node.field(key), child, &format!("{path}.{key}"))),
        Value::Array(list) => {
            let mut seen = std::collections::BTreeSet::new();
            for (step, _) in elements(node, list).unwrap_or_default() {
                if !seen.insert(step.clone()) {
                    return Err(format!("{path}: duplicate entries for key {}", shown(&[step])));
                }
            }
            list.iter()
                .try_for_each(|item| check_elements(node.items(), item, path))
        }
        _ => Ok(()),
    }
}

/// A manager as conflicts name it.
pub(super) fn describe(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", entry.subresource));
    }
    if entry.operation == "Update" {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::packed;

    fn schema() -> TypeSchema {
        TypeSchema::builtin("apps", "v1", "Deployment").expect("deployments are known")
    }

    fn writer(manager: &str) -> Writer<'_> {
        Writer {
            manager,
            api_version: "apps/v1",
            subresource: "",
            now: Timestamp::from_second(1_700_000_000).unwrap(),
            reset: Reset::Status,
        }
    }

    fn config(replicas: Option<i32>, image: &str) -> Value {
        let mut value = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"app": "d"}},
            "spec": {"selector": {"matchLabels": {"app": "d"}},
                     "template": {"spec": {"containers": [{"name": "c", "image": image, "ports": [{"containerPort": 80}]}]}}},
        });
        if let Some(replicas) = replicas {
            value["spec"]["replicas"] = json!(replicas);
        }
        value
    }

    fn owners(object: &Value) -> Vec<(String, String)> {
        entries(object)
            .into_iter()
            .map(|entry| (entry.manager, entry.operation))
            .collect()
    }

    /// The field sets of an object, as clients see them.
    fn sets(object: &Value) -> Vec<Value> {
        let mut object = object.clone();
        packed::expand(&mut object);
        let entries = object["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten();
        entries.map(|entry| entry["fieldsV1"].clone()).collect()
    }

    #[test]
    fn applying_twice_changes_nothing() {
        let first = apply(&schema(), None, &config(Some(1), "a"), &writer("x"), false).unwrap();
        let later = Writer {
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            ..writer("x")
        };
        assert_eq!(
            apply(&schema(), Some(&first), &config(Some(1), "a"), &later, false).unwrap(),
            first
        );
        assert_eq!(sets(&first)[0]["f:metadata"], json!({"f:labels": {"f:app": {}}}));
        let containers = &sets(&first)[0]["f:spec"]["f:template"]["f:spec"]["f:containers"];
        assert_eq!(
            containers[r#"k:{"name":"c"}"#],
            json!({".": {}, "f:name": {}, "f:image": {}, "f:ports": {r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:containerPort": {}}}})
        );
    }

    #[test]
    fn another_value_of_another_owner_conflicts_unless_forced() {
        let live = apply(&schema(), None, &config(Some(1), "a"), &writer("x"), false).unwrap();
        let Err(ApplyError::Conflicts(conflicts)) =
            apply(&schema(), Some(&live), &config(Some(2), "a"), &writer("y"), false)
        else {
            panic!("replicas differ");
        };
        assert_eq!(
            conflicts,
            [Conflict {
                manager: "\"x\"".to_owned(),
                field: ".spec.replicas".to_owned()
            }]
        );
        let forced = apply(&schema(), Some(&live), &config(Some(2), "a"), &writer("y"), true).unwrap();
        assert_eq!(forced["spec"]["replicas"], 2);
        let lost = entries(&forced).remove(0).fields.into_json();
        assert!(lost["f:spec"].get("f:replicas").is_none(), "x has lost the field");
        let shared = apply(&schema(), Some(&live), &config(Some(1), "a"), &writer("y"), false).unwrap();
        assert_eq!(owners(&shared).len(), 2, "equal values are owned together");
    }

    #[test]
    fn fields_no_longer_applied_go_unless_somebody_else_owns_them() {
        let live = apply(&schema(), None, &config(Some(3), "a"), &writer("x"), false).unwrap();
        let without = apply(&schema(), Some(&live), &config(None, "a"), &writer("x"), false).unwrap();
        assert!(without["spec"].get("replicas").is_none());
        let shared = apply(&schema(), Some(&live), &config(Some(3), "a"), &writer("y"), false).unwrap();
        let kept = apply(&schema(), Some(&shared), &config(None, "a"), &writer("x"), false).unwrap();
        assert_eq!(kept["spec"]["replicas"], 3);
        let mut dropped = config(Some(3), "a");
        dropped["spec"]["template"]["spec"]["containers"] = json!([{"name": "other", "image": "b"}]);
        let replaced = apply(&schema(), Some(&live), &dropped, &writer("x"), false).unwrap();
        assert_eq!(
            replaced["spec"]["template"]["spec"]["containers"],
            json!([{"name": "other", "image": "b"}])
        );
    }

    #[test]
    fn an_update_takes_what_it_changes() {
        let live = apply(&schema(), None, &config(Some(1), "a"), &writer("x"), false).unwrap();
        let mut scaled = live.clone();
        scaled["spec"]["replicas"] = json!(5);
        update(&schema(), Some(&live), &mut scaled, &writer("kubectl-edit"));
        assert_eq!(
            owners(&scaled),
            [
                ("x".to_owned(), "Apply".to_owned()),
                ("kubectl-edit".to_owned(), "Update".to_owned())
            ]
        );
        let edit = &sets(&scaled)[1];
        assert_eq!(edit, &json!({"f:spec": {"f:replicas": {}}}));
        assert!(matches!(
            apply(
                &schema(),
                Some(&scaled),
                &config(Some(1), "a"),
                &writer("x"),
                false
            ),
            Err(ApplyError::Conflicts(_))
        ));
        let mut same = scaled.clone();
        update(&schema(), Some(&scaled), &mut same, &writer("nobody"));
        assert_eq!(same, scaled, "an update that changes nothing owns nothing");
    }

    #[test]
    fn created_maps_are_owned_with_their_dot() {
        let mut object = config(Some(1), "a");
        update(&schema(), None, &mut object, &writer("kubectl-create"));
        assert_eq!(
            sets(&object)[0]["f:metadata"]["f:labels"],
            json!({".": {}, "f:app": {}})
        );
    }

    #[test]
    fn an_empty_list_of_managed_fields_resets_them() {
        let live = apply(&schema(), None, &config(Some(1), "a"), &writer("x"), false).unwrap();
        let mut reset = live.clone();
        reset["metadata"]["managedFields"] = json!([{}]);
        update(&schema(), Some(&live), &mut reset, &writer("z"));
        assert!(reset["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn duplicate_keys_are_refused() {
        let mut twice = config(None, "a");
        twice["spec"]["template"]["spec"]["containers"] = json!([{"name": "c"}, {"name": "c"}]);
        assert!(matches!(
            apply(&schema(), None, &twice, &writer("x"), false),
            Err(ApplyError::Untyped(_))
        ));
    }
}
