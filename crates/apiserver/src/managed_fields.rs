//! Field ownership: `metadata.managedFields` and server-side apply.
//!
//! Owns sets of fields (FieldsV1), how they change by updates, and how an applied configuration is merged, conflicts included. The semantics
//! are those of structured-merge-diff; the schema says which lists are sets, maps or atoms.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::schema::{ListKind, Node, TypeSchema};

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
}

/// One step of a path in FieldsV1's spelling: `f:name`, `k:{"name":"a"}`, `v:"x"`.
type Step = String;

/// A set of fields. `own` says that the place itself is a member (`.`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Fields {
    own: bool,
    below: BTreeMap<Step, Fields>,
}

impl Fields {
    fn leaf() -> Self {
        Self {
            own: true,
            below: BTreeMap::new(),
        }
    }

    fn is_empty(&self) -> bool {
        !self.own && self.below.is_empty()
    }

    fn from_json(value: &Value) -> Self {
        let Value::Object(map) = value else {
            return Self::default();
        };
        let mut fields = Self {
            own: map.contains_key("."),
            below: BTreeMap::new(),
        };
        for (step, child) in map {
            if step == "." {
                continue;
            }
            let mut below = Self::from_json(child);
            if child.as_object().is_some_and(Map::is_empty) {
                below.own = true;
            }
            fields.below.insert(step.clone(), below);
        }
        fields
    }

    fn to_json(&self) -> Value {
        let mut map = Map::new();
        if self.own && !self.below.is_empty() {
            map.insert(".".to_owned(), json!({}));
        }
        for (step, child) in &self.below {
            map.insert(step.clone(), child.to_json());
        }
        Value::Object(map)
    }

    fn union(&mut self, other: &Self) {
        self.own |= other.own;
        for (step, child) in &other.below {
            self.below.entry(step.clone()).or_default().union(child);
        }
    }

    /// Removes the members of `other`.
    fn subtract(&mut self, other: &Self) {
        if other.own {
            self.own = false;
        }
        for (step, gone) in &other.below {
            if let Some(child) = self.below.get_mut(step) {
                child.subtract(gone);
                if child.is_empty() {
                    self.below.remove(step);
                }
            }
        }
    }

    fn contains(&self, path: &[Step]) -> bool {
        match path.split_first() {
            None => self.own,
            Some((step, rest)) => self.below.get(step).is_some_and(|child| child.contains(rest)),
        }
    }

    /// Calls `visit` with the path of every member, children before their parents.
    fn each_member(&self, path: &mut Vec<Step>, visit: &mut impl FnMut(&[Step], bool)) {
        for (step, child) in &self.below {
            path.push(step.clone());
            child.each_member(path, visit);
            path.pop();
        }
        if self.own {
            visit(path, self.below.is_empty());
        }
    }
}

fn key_step(item: &Value, keys: &[&str], node: Node<'_>) -> Step {
    let mut identity = Map::new();
    for key in keys {
        let value = item
            .get(key)
            .cloned()
            .or_else(|| node.field(key).resolved().0.get("default").cloned());
        if let Some(value) = value.or_else(|| (*key == "protocol").then(|| json!("TCP"))) {
            identity.insert((*key).to_owned(), value);
        }
    }
    format!("k:{}", Value::Object(identity))
}

fn value_step(item: &Value) -> Step {
    format!("v:{item}")
}

/// The elements of an associative list by their step; `None` when it is atomic or not a list of that kind.
fn elements<'a>(node: Node<'_>, list: &'a [Value]) -> Option<Vec<(Step, &'a Value)>> {
    match node.list_kind() {
        ListKind::Atomic => None,
        ListKind::Set => Some(list.iter().map(|item| (value_step(item), item)).collect()),
        ListKind::Map(keys) => list.iter().all(Value::is_object).then(|| {
            list.iter()
                .map(|item| (key_step(item, &keys, node.items()), item))
                .collect()
        }),
    }
}

fn is_composite(node: Node<'_>, value: &Value) -> bool {
    match value {
        Value::Object(_) => !node.is_atomic_map() && !node.is_unknown(),
        Value::Array(list) => elements(node, list).is_some(),
        _ => false,
    }
}

/// All fields of a value.
fn fields_of(node: Node<'_>, value: &Value) -> Fields {
    if !is_composite(node, value) {
        return Fields::leaf();
    }
    let mut fields = Fields::default();
    match value {
        Value::Object(map) => {
            if map.is_empty() {
                return Fields::leaf();
            }
            for (key, child) in map {
                fields
                    .below
                    .insert(format!("f:{key}"), fields_of(node.field(key), child));
            }
        }
        Value::Array(list) => {
            if list.is_empty() {
                return Fields::leaf();
            }
            for (step, item) in elements(node, list).unwrap_or_default() {
                let mut child = fields_of(node.items(), item);
                child.own = true;
                fields.below.insert(step, child);
            }
        }
        _ => {}
    }
    fields
}

/// Fields that differ between two values: those that `new` has (`changed`) and those that only `old` had (`removed`).
fn compare(
    node: Node<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    changed: &mut Fields,
    removed: &mut Fields,
) {
    match (old, new) {
        (None, None) => {}
        (None, Some(new)) => {
            let mut added = fields_of(node, new);
            added.own = true;
            *changed = added;
        }
        (Some(old), None) => {
            let mut gone = fields_of(node, old);
            gone.own = true;
            *removed = gone;
        }
        (Some(old), Some(new)) if old == new => {}
        (Some(Value::Object(old)), Some(new_value @ Value::Object(new))) if is_composite(node, new_value) => {
            for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
                compare_child(
                    &format!("f:{key}"),
                    node.field(key),
                    old.get(key),
                    new.get(key),
                    changed,
                    removed,
                );
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            match (elements(node, old), elements(node, new)) {
                (Some(old), Some(new)) => {
                    let old: BTreeMap<Step, &Value> = old.into_iter().collect();
                    let new: BTreeMap<Step, &Value> = new.into_iter().collect();
                    for step in old
                        .keys()
                        .chain(new.keys().filter(|step| !old.contains_key(*step)))
                    {
                        compare_child(
                            step,
                            node.items(),
                            old.get(step).copied(),
                            new.get(step).copied(),
                            changed,
                            removed,
                        );
                    }
                }
                _ => changed.own = true,
            }
        }
        _ => *changed = fields_of(node, new.unwrap_or(&Value::Null)),
    }
}

fn compare_child(
    step: &str,
    node: Node<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    changed: &mut Fields,
    removed: &mut Fields,
) {
    let (mut child_changed, mut child_removed) = (Fields::default(), Fields::default());
    compare(node, old, new, &mut child_changed, &mut child_removed);
    if !child_changed.is_empty() {
        changed.below.insert(step.to_owned(), child_changed);
    }
    if !child_removed.is_empty() {
        removed.below.insert(step.to_owned(), child_removed);
    }
}

/// Fields that nobody owns: identity, and what the server sets.
fn strip_system_fields(fields: &mut Fields) {
    for step in ["f:apiVersion", "f:kind"] {
        fields.below.remove(step);
    }
    if let Some(metadata) = fields.below.get_mut("f:metadata") {
        metadata.own = false;
        for name in [
            "name",
            "generateName",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "managedFields",
        ] {
            metadata.below.remove(&format!("f:{name}"));
        }
        if metadata.is_empty() {
            fields.below.remove("f:metadata");
        }
    }
    for step in ["f:spec", "f:status"] {
        if let Some(child) = fields.below.get_mut(step)
            && !child.below.is_empty()
        {
            child.own = false;
        }
    }
    fields.own = false;
}

/// One entry of `metadata.managedFields`.
#[derive(Debug, Clone)]
struct Entry {
    manager: String,
    operation: String,
    api_version: String,
    subresource: String,
    time: Option<String>,
    fields: Fields,
}

impl Entry {
    fn is_of(&self, writer: &Writer<'_>, operation: &str) -> bool {
        self.manager == writer.manager
            && self.operation == operation
            && self.subresource == writer.subresource
            && (self.api_version == writer.api_version || operation == "Apply")
    }
}

fn entries(object: &Value) -> Vec<Entry> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = object["metadata"]["managedFields"].as_array();
    list.into_iter()
        .flatten()
        .filter(|entry| entry["manager"].is_string() || entry["operation"].is_string())
        .map(|entry| Entry {
            manager: text(&entry["manager"]),
            operation: text(&entry["operation"]),
            api_version: text(&entry["apiVersion"]),
            subresource: text(&entry["subresource"]),
            time: entry["time"].as_str().map(str::to_owned),
            fields: Fields::from_json(&entry["fieldsV1"]),
        })
        .collect()
}

fn store(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|a, b| {
        (&a.operation, &a.time, &a.manager, &a.api_version, &a.subresource).cmp(&(
            &b.operation,
            &b.time,
            &b.manager,
            &b.api_version,
            &b.subresource,
        ))
    });
    let list: Vec<Value> = entries
        .into_iter()
        .map(|entry| {
            let mut out = json!({
                "manager": entry.manager, "operation": entry.operation, "apiVersion": entry.api_version, "fieldsType": "FieldsV1",
                "fieldsV1": entry.fields.to_json(),
            });
            if let Some(time) = entry.time {
                out["time"] = json!(time);
            }
            if !entry.subresource.is_empty() {
                out["subresource"] = json!(entry.subresource);
            }
            out
        })
        .collect();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if list.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), Value::Array(list));
        }
    }
}

fn time_text(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// Records an update: what changed belongs to the writer now. Entries sent by the client count only as a reset (`[]` or `[{}]`).
pub fn update(schema: &TypeSchema, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let reset = new["metadata"]["managedFields"].as_array().is_some_and(|list| {
        list.is_empty()
            || list
                .iter()
                .all(|entry| entry.as_object().is_some_and(Map::is_empty))
    });
    let mut known = match old {
        Some(old) if !reset => entries(old),
        _ => Vec::new(),
    };
    if let Some(metadata) = new["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    let (mut changed, mut removed) = (Fields::default(), Fields::default());
    compare_without_managed(schema, old, new, &mut changed, &mut removed);
    strip_system_fields(&mut changed);
    strip_system_fields(&mut removed);
    if reset && old.is_some() {
        store(new, Vec::new());
        return;
    }
    for entry in &mut known {
        let own = entry.is_of(writer, "Update");
        if !own {
            entry.fields.subtract(&changed);
        }
        entry.fields.subtract(&removed);
    }
    if !changed.is_empty() {
        let time = Some(time_text(writer.now));
        match known.iter_mut().find(|entry| entry.is_of(writer, "Update")) {
            Some(entry) => {
                entry.fields.union(&changed);
                entry.time = time;
            }
            None => known.push(Entry {
                manager: writer.manager.to_owned(),
                operation: "Update".to_owned(),
                api_version: writer.api_version.to_owned(),
                subresource: writer.subresource.to_owned(),
                time,
                fields: changed,
            }),
        }
    }
    store(new, known);
}

/// Compares two objects leaving their managed fields out, without copying them.
fn compare_without_managed(
    schema: &TypeSchema,
    old: Option<&Value>,
    new: &Value,
    changed: &mut Fields,
    removed: &mut Fields,
) {
    let root = schema.root();
    let empty = Map::new();
    let old = old.and_then(Value::as_object).unwrap_or(&empty);
    let new = new.as_object().unwrap_or(&empty);
    for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
        let node = root.field(key);
        if key == "metadata" {
            let (mut child_changed, mut child_removed) = (Fields::default(), Fields::default());
            let old = old.get(key).and_then(Value::as_object).unwrap_or(&empty);
            let new = new.get(key).and_then(Value::as_object).unwrap_or(&empty);
            for name in old
                .keys()
                .chain(new.keys().filter(|name| !old.contains_key(*name)))
            {
                if name != "managedFields" {
                    compare_child(
                        &format!("f:{name}"),
                        node.field(name),
                        old.get(name),
                        new.get(name),
                        &mut child_changed,
                        &mut child_removed,
                    );
                }
            }
            changed.below.insert("f:metadata".to_owned(), child_changed);
            removed.below.insert("f:metadata".to_owned(), child_removed);
        } else {
            compare_child(
                &format!("f:{key}"),
                node,
                old.get(key),
                new.get(key),
                changed,
                removed,
            );
        }
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
    if applied["metadata"]["managedFields"]
        .as_array()
        .is_some_and(|list| !list.is_empty())
    {
        return Err(ApplyError::Invalid(
            "metadata.managedFields must be nil".to_owned(),
        ));
    }
    let root = schema.root();
    check_elements(root, applied, "")?;
    let mut wanted = fields_of(root, applied);
    strip_system_fields(&mut wanted);
    let empty = json!({});
    let base = live.unwrap_or(&empty);
    let mut known = live.map(entries).unwrap_or_default();

    let mut conflicts = Vec::new();
    let mut taken = Fields::default();
    for entry in known.iter().filter(|entry| !entry.is_of(writer, "Apply")) {
        let mut path = Vec::new();
        wanted.each_member(&mut path, &mut |path, is_leaf| {
            if is_leaf
                && entry.fields.contains(path)
                && lookup(root, base, path) != lookup(root, applied, path)
            {
                conflicts.push(Conflict {
                    manager: describe(entry),
                    field: shown(path),
                });
                insert(&mut taken, path);
            }
        });
    }
    if !conflicts.is_empty() && !force {
        return Err(ApplyError::Conflicts(conflicts));
    }

    let mut result = merge(root, Some(base), applied);
    let previous = known
        .iter()
        .find(|entry| entry.is_of(writer, "Apply"))
        .map(|entry| entry.fields.clone());
    if let Some(previous) = previous {
        let mut gone = Vec::new();
        previous.each_member(&mut Vec::new(), &mut |path, _| {
            let others = known
                .iter()
                .any(|entry| !entry.is_of(writer, "Apply") && owns_within(&entry.fields, path));
            if !owns_within(&wanted, path) && !others {
                gone.push(path.to_vec());
            }
        });
        // Whole elements first: without its key an element could not be found any more.
        gone.sort_by_key(Vec::len);
        for path in gone {
            remove(root, &mut result, &path);
        }
    }
    let same = live.is_some_and(|live| equal_but_managed(live, &result));
    let time = Some(time_text(writer.now));
    for entry in known.iter_mut().filter(|entry| !entry.is_of(writer, "Apply")) {
        entry.fields.subtract(&taken);
    }
    match known.iter_mut().find(|entry| entry.is_of(writer, "Apply")) {
        Some(entry) => {
            if !same || entry.fields != wanted {
                entry.time = time;
            }
            writer.api_version.clone_into(&mut entry.api_version);
            entry.fields = wanted;
        }
        None => known.push(Entry {
            manager: writer.manager.to_owned(),
            operation: "Apply".to_owned(),
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            time,
            fields: wanted,
        }),
    }
    store(&mut result, known);
    Ok(result)
}

/// Keyed lists must have their keys, and no element twice.
fn check_elements(node: Node<'_>, value: &Value, path: &str) -> Result<(), ApplyError> {
    match value {
        Value::Object(map) => map
            .iter()
            .try_for_each(|(key, child)| check_elements(node.field(key), child, &format!("{path}.{key}"))),
        Value::Array(list) => {
            if let Some(elements) = elements(node, list) {
                let mut seen = std::collections::BTreeSet::new();
                for (step, _) in elements {
                    if !seen.insert(step.clone()) {
                        return Err(ApplyError::Invalid(format!(
                            "{path}: duplicate entries for key [{}]",
                            shown(&[step])
                        )));
                    }
                }
            }
            list.iter()
                .try_for_each(|item| check_elements(node.items(), item, path))
        }
        _ => Ok(()),
    }
}

fn owns_within(fields: &Fields, path: &[Step]) -> bool {
    match path.split_first() {
        None => !fields.is_empty(),
        Some((step, rest)) => fields
            .below
            .get(step)
            .is_some_and(|child| owns_within(child, rest)),
    }
}

fn equal_but_managed(a: &Value, b: &Value) -> bool {
    let without = |value: &Value| {
        let mut value = value.clone();
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        value
    };
    without(a) == without(b)
}

fn insert(fields: &mut Fields, path: &[Step]) {
    match path.split_first() {
        None => fields.own = true,
        Some((step, rest)) => insert(fields.below.entry(step.clone()).or_default(), rest),
    }
}

fn describe(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", entry.subresource));
    }
    if entry.operation == "Update" {
        text.push_str(&format!(" using {}", entry.api_version));
        if let Some(time) = &entry.time {
            text.push_str(&format!(" at {time}"));
        }
    }
    text
}

/// `.spec.containers[name="a"].image`.
fn shown(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        if let Some(name) = step.strip_prefix("f:") {
            text.push('.');
            text.push_str(name);
        } else if let Some(key) = step.strip_prefix("k:") {
            let key: Value = serde_json::from_str(key).unwrap_or_default();
            let parts: Vec<String> = key
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            text.push_str(&format!("[{}]", parts.join(",")));
        } else {
            text.push_str(&format!("[={}]", step.trim_start_matches("v:")));
        }
    }
    text
}

fn position(node: Node<'_>, list: &[Value], step: &str) -> Option<usize> {
    elements(node, list)?
        .iter()
        .position(|(candidate, _)| candidate == step)
}

fn lookup<'v>(node: Node<'_>, value: &'v Value, path: &[Step]) -> Option<&'v Value> {
    let Some((step, rest)) = path.split_first() else {
        return Some(value);
    };
    match (value, step.strip_prefix("f:")) {
        (Value::Object(map), Some(name)) => lookup(node.field(name), map.get(name)?, rest),
        (Value::Array(list), None) => lookup(node.items(), &list[position(node, list, step)?], rest),
        _ => None,
    }
}

fn remove(node: Node<'_>, value: &mut Value, path: &[Step]) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    match (value, step.strip_prefix("f:")) {
        (Value::Object(map), Some(name)) => {
            if rest.is_empty() {
                map.remove(name);
            } else if let Some(child) = map.get_mut(name) {
                remove(node.field(name), child, rest);
            }
        }
        (Value::Array(list), None) => {
            if let Some(position) = position(node, list, step) {
                if rest.is_empty() {
                    list.remove(position);
                } else {
                    remove(node.items(), &mut list[position], rest);
                }
            }
        }
        _ => {}
    }
}

fn merge(node: Node<'_>, base: Option<&Value>, applied: &Value) -> Value {
    match (base, applied) {
        (Some(Value::Object(old)), Value::Object(new)) if is_composite(node, applied) => {
            let mut result = old.clone();
            for (key, child) in new {
                let merged = merge(node.field(key), old.get(key), child);
                result.insert(key.clone(), merged);
            }
            Value::Object(result)
        }
        (Some(Value::Array(old)), Value::Array(new)) => match (elements(node, old), elements(node, new)) {
            (Some(old), Some(new)) => Value::Array(merge_lists(node, &old, &new)),
            _ => applied.clone(),
        },
        _ => applied.clone(),
    }
}

/// Elements of the applied list in their order; elements of the old list that it does not name keep their place before the next shared one.
fn merge_lists(node: Node<'_>, old: &[(Step, &Value)], new: &[(Step, &Value)]) -> Vec<Value> {
    let named: BTreeMap<&Step, &Value> = new.iter().map(|(step, item)| (step, *item)).collect();
    let before: BTreeMap<&Step, &Value> = old.iter().map(|(step, item)| (step, *item)).collect();
    let mut result = Vec::new();
    let mut rest = old.iter();
    for (step, item) in new {
        if before.contains_key(step) {
            // Shared elements of the old list up to this one have their place in the applied order.
            for (old_step, old_item) in rest.by_ref() {
                if old_step == step {
                    break;
                }
                if !named.contains_key(old_step) {
                    result.push((*old_item).clone());
                }
            }
        }
        result.push(merge(node.items(), before.get(step).copied(), item));
    }
    result.extend(
        rest.filter(|(step, _)| !named.contains_key(step))
            .map(|(_, item)| (*item).clone()),
    );
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> TypeSchema {
        TypeSchema::builtin("apps", "v1", "Deployment").expect("deployments are known")
    }

    fn writer(manager: &str) -> Writer<'_> {
        Writer {
            manager,
            api_version: "apps/v1",
            subresource: "",
            now: Timestamp::from_second(1_700_000_000).unwrap(),
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
        assert_eq!(
            first["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"],
            json!({"f:labels": {"f:app": {}}})
        );
        let containers = &first["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
            ["f:containers"];
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
        assert!(
            !entries(&forced)[0]
                .fields
                .contains(&["f:spec".to_owned(), "f:replicas".to_owned()]),
            "x has lost the field"
        );
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
        let edit = &scaled["metadata"]["managedFields"][1]["fieldsV1"];
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
            object["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:labels"],
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
            Err(ApplyError::Invalid(_))
        ));
    }
}
