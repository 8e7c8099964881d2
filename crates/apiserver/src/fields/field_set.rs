//! Sets of fields (FieldsV1): their algebra, and how they follow from objects.
//!
//! The semantics are those of structured-merge-diff; the schema says which lists are sets, maps or atoms. Who owns which set is the
//! business of `managed_fields`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::fields::step_map::StepMap;
use crate::schema::types::{ListKind, Node};

/// One step of a path in FieldsV1's spelling: `f:name`, `k:{"name":"a"}`, `v:"x"`.
pub(crate) type Step = String;

/// A set of fields. `own` means that the path itself is a member (`.`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) own: bool,
    pub(crate) below: StepMap,
}

impl Fields {
    fn leaf() -> Self {
        Self {
            own: true,
            below: StepMap::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.own && self.below.is_empty()
    }

    pub(crate) fn from_json(value: &Value) -> Self {
        let Value::Object(map) = value else {
            return Self::default();
        };
        let mut fields = Self {
            own: map.contains_key("."),
            below: StepMap::default(),
        };
        for (step, child) in map.iter().filter(|(step, _)| *step != ".") {
            let mut below = Self::from_json(child);
            below.own |= child.as_object().is_some_and(Map::is_empty);
            fields.below.insert(step.clone(), below);
        }
        fields
    }

    /// Appends the set as FieldsV1 has it in JSON.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut first = true;
        if self.own && !self.below.is_empty() {
            out.extend_from_slice(b"\".\":{}");
            first = false;
        }
        for (step, child) in self.below.iter() {
            if !std::mem::replace(&mut first, false) {
                out.push(b',');
            }
            // Writing to memory does not fail.
            drop(serde_json::to_writer(&mut *out, step.as_str()));
            out.push(b':');
            child.write(out);
        }
        out.push(b'}');
    }

    #[cfg(test)]
    pub(crate) fn into_json(self) -> Value {
        let mut text = Vec::new();
        self.write(&mut text);
        serde_json::from_slice(&text).expect("it is JSON")
    }

    fn put(&mut self, step: Step, child: Self) {
        if !child.is_empty() {
            self.below.insert(step, child);
        }
    }

    pub(crate) fn union(&mut self, other: &Self) {
        self.own |= other.own;
        if self.below.is_empty() {
            self.below = other.below.clone();
            return;
        }
        for (step, child) in other.below.iter() {
            self.below.entry(step).union(child);
        }
    }

    /// Removes the members of `other`; what lies below them stays.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.own &= !other.own;
        for (step, gone) in other.below.iter() {
            if let Some(child) = self.below.get_mut(step) {
                child.subtract(gone);
                if child.is_empty() {
                    self.below.remove(step);
                }
            }
        }
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut common = Self {
            own: self.own && other.own,
            below: StepMap::default(),
        };
        for (step, child) in self.below.iter() {
            if let Some(theirs) = other.below.get(step) {
                common.put(step.clone(), child.intersection(theirs));
            }
        }
        common
    }

    /// The set with the declared fields above its members as members too.
    pub(crate) fn with_named_parents(&self, node: Node<'_>) -> Self {
        let mut result = Self {
            own: self.own,
            below: StepMap::default(),
        };
        for (step, child) in self.below.iter() {
            let (below, declared) = match step.strip_prefix("f:") {
                Some(name) => (node.field(name), node.property(name).is_some()),
                None => (node.items(), false),
            };
            let mut child = child.with_named_parents(below);
            child.own |= declared && !child.below.is_empty();
            result.below.insert(step.clone(), child);
        }
        result
    }

    /// Removes the places reached by a path of field names, with all below.
    pub(crate) fn remove_tree(&mut self, names: &[&str]) {
        match names {
            [] => {}
            [name] => drop(self.below.remove(&format!("f:{name}"))),
            [name, rest @ ..] => {
                let step = format!("f:{name}");
                if let Some(child) = self.below.get_mut(&step) {
                    child.remove_tree(rest);
                    if child.is_empty() {
                        self.below.remove(&step);
                    }
                }
            }
        }
    }

    /// Calls `visit` with the path of every member, at each place the members before what lies deeper.
    pub(crate) fn each(&self, path: &mut Vec<Step>, visit: &mut impl FnMut(&[Step])) {
        for (step, _) in self.below.iter().filter(|(_, child)| child.own) {
            path.push(step.clone());
            visit(path);
            path.pop();
        }
        for (step, child) in self.below.iter() {
            path.push(step.clone());
            child.each(path, visit);
            path.pop();
        }
    }
}

fn key_step(item: &Value, keys: &[Box<str>], node: Node<'_>) -> Step {
    let mut identity = Map::new();
    for key in keys {
        let value = item
            .get(&**key)
            .filter(|value| !value.is_null())
            .or_else(|| node.field(key).default_value());
        if let Some(value) = value {
            identity.insert(key.to_string(), value.clone());
        } else if &**key == "protocol" {
            // The one default among merge keys; the document that the facts come from leaves defaults out.
            identity.insert(key.to_string(), json!("TCP"));
        }
    }
    format!("k:{}", Value::Object(identity))
}

/// The elements of an associative list by their step; `None` when it is atomic or not a list of that kind.
pub(crate) fn elements<'a>(node: Node<'_>, list: &'a [Value]) -> Option<Vec<(Step, &'a Value)>> {
    match node.list_kind() {
        ListKind::Atomic => None,
        ListKind::Set => Some(list.iter().map(|item| (format!("v:{item}"), item)).collect()),
        ListKind::Map(keys) => {
            let items = node.items().resolved();
            list.iter().all(Value::is_object).then(|| {
                list.iter()
                    .map(|item| (key_step(item, keys, items), item))
                    .collect()
            })
        }
    }
}

fn is_granular_map(node: Node<'_>) -> bool {
    !node.is_atomic_map()
}

/// All fields of a value.
pub(crate) fn fields_of(node: Node<'_>, value: &Value) -> Fields {
    match value {
        Value::Object(map) if is_granular_map(node) => {
            let mut fields = Fields::default();
            for (key, value) in map {
                let mut child = fields_of(node.field(key), value);
                child.own |= is_empty(value) && !value.is_array() || node.property(key).is_none();
                fields.put(format!("f:{key}"), child);
            }
            fields
        }
        Value::Array(list) => match elements(node, list) {
            Some(elements) => {
                let mut fields = Fields::default();
                for (step, item) in elements {
                    let mut child = fields_of(node.items(), item);
                    child.own = true;
                    fields.below.insert(step, child);
                }
                fields
            }
            None => Fields::leaf(),
        },
        _ => Fields::leaf(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// What distinguishes two values.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// Added or modified.
    pub(crate) changed: Fields,
    pub(crate) removed: Fields,
}

impl Difference {
    fn put(&mut self, step: &str, child: Self) {
        if !child.changed.is_empty() {
            self.changed.below.insert(step.to_owned(), child.changed);
        }
        if !child.removed.is_empty() {
            self.removed.below.insert(step.to_owned(), child.removed);
        }
    }
}

/// Compares two values; at least one is given.
pub(crate) fn compare(node: Node<'_>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let mut difference = Difference::default();
    let is_leaf = match (old, new) {
        (Some(Value::Object(_)), None | Some(Value::Object(_) | Value::Null))
        | (None | Some(Value::Null), Some(Value::Object(_))) => compare_maps(
            node,
            old.and_then(Value::as_object),
            new.and_then(Value::as_object),
            &mut difference,
        ),
        (Some(Value::Array(_)), None | Some(Value::Array(_) | Value::Null))
        | (None | Some(Value::Null), Some(Value::Array(_))) => compare_lists(
            node,
            old.and_then(Value::as_array),
            new.and_then(Value::as_array),
            &mut difference,
        ),
        _ => true,
    };
    if old.is_none() {
        difference.changed.own = true;
    } else if new.is_none() {
        difference.removed.own = true;
    } else if is_leaf && old != new {
        difference.changed.own = true;
    }
    difference
}

/// Compares two objects without their managed fields.
pub(crate) fn compare_objects(node: Node<'_>, old: &Value, new: &Value) -> Difference {
    let mut difference = Difference::default();
    for (key, (old, new)) in zip(old.as_object(), new.as_object()) {
        let child = if key == "metadata" {
            let mut child = Difference::default();
            let node = node.field(key);
            for (name, (old, new)) in zip(old.and_then(Value::as_object), new.and_then(Value::as_object)) {
                if name != "managedFields" {
                    child.put(&format!("f:{name}"), compare(node.field(name), old, new));
                }
            }
            child
        } else {
            compare(node.field(key), old, new)
        };
        difference.put(&format!("f:{key}"), child);
    }
    difference
}

type Pair<'a> = (&'a str, (Option<&'a Value>, Option<&'a Value>));

/// The fields of two maps side by side, in order.
fn zip<'a>(old: Option<&'a Map<String, Value>>, new: Option<&'a Map<String, Value>>) -> Vec<Pair<'a>> {
    let mut pairs = Vec::with_capacity(old.map_or(0, Map::len).max(new.map_or(0, Map::len)) + 1);
    let (mut old, mut new) = (
        old.into_iter().flatten().peekable(),
        new.into_iter().flatten().peekable(),
    );
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some((left, _)), Some((right, _))) => left.cmp(right),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return pairs,
        };
        let left = if order.is_le() { old.next() } else { None };
        let right = if order.is_ge() { new.next() } else { None };
        if let Some((key, _)) = left.or(right) {
            pairs.push((key, (left.map(|(_, value)| value), right.map(|(_, value)| value))));
        }
    }
}

/// True when the maps are compared as a whole.
fn compare_maps(
    node: Node<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    difference: &mut Difference,
) -> bool {
    if !is_granular_map(node) || old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty) {
        return true;
    }
    for (key, (old, new)) in zip(old, new) {
        if old != new {
            difference.put(&format!("f:{key}"), compare(node.field(key), old, new));
        }
    }
    false
}

/// True when the lists are compared as a whole.
fn compare_lists(
    node: Node<'_>,
    old: Option<&Vec<Value>>,
    new: Option<&Vec<Value>>,
    difference: &mut Difference,
) -> bool {
    if old.is_none_or(Vec::is_empty) && new.is_none_or(Vec::is_empty) {
        return true;
    }
    let old = old.map_or(Some(Vec::new()), |list| elements(node, list));
    let new = new.map_or(Some(Vec::new()), |list| elements(node, list));
    let (Some(old), Some(new)) = (old, new) else {
        return true;
    };
    let mut pairs: BTreeMap<&str, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for (step, item) in &old {
        pairs.entry(step).or_default().0.push(item);
    }
    for (step, item) in &new {
        pairs.entry(step).or_default().1.push(item);
    }
    for (step, (old, new)) in pairs {
        if old == new {
            continue;
        }
        let child = match (&old[..], &new[..]) {
            ([_, _, ..], [_, _, ..]) => Difference {
                changed: Fields::leaf(),
                removed: Fields::default(),
            },
            ([_, _, ..], new) => {
                let mut child = new
                    .first()
                    .map(|new| compare(node.items(), None, Some(new)))
                    .unwrap_or_default();
                child.removed.own = true;
                child
            }
            (old, [_, _, ..]) => {
                let mut child = old
                    .first()
                    .map(|old| compare(node.items(), Some(old), None))
                    .unwrap_or_default();
                child.changed.own = true;
                child
            }
            (old, new) => compare(node.items(), old.first().copied(), new.first().copied()),
        };
        difference.put(step, child);
    }
    false
}

/// Takes the members of a set out of a value; `None` when nothing is left.
pub(crate) fn remove_items(node: Node<'_>, value: &Value, gone: &Fields) -> Option<Value> {
    match value {
        Value::Object(map) if is_granular_map(node) => {
            let mut kept = Map::new();
            for (key, value) in map {
                let below = gone.below.get(&format!("f:{key}"));
                match below {
                    Some(below) if below.own => {}
                    Some(below) => {
                        if let Some(value) = remove_items(node.field(key), value, below) {
                            kept.insert(key.clone(), value);
                        }
                    }
                    None => drop(kept.insert(key.clone(), value.clone())),
                }
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(list) => {
            let elements = elements(node, list)?;
            let mut kept = Vec::new();
            for (step, item) in elements {
                match gone.below.get(&step) {
                    Some(below) if below.own => {}
                    Some(below) => kept.extend(remove_items(node.items(), item, below)),
                    None => kept.push(item.clone()),
                }
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::Object(_) => None,
        scalar => Some(scalar.clone()),
    }
}

/// True for a map or a list that is not empty and whose parts have owners of their own.
fn has_owned_parts(node: Node<'_>, value: &Value) -> bool {
    match value {
        Value::Object(map) => is_granular_map(node) && !map.is_empty(),
        Value::Array(list) => !list.is_empty() && elements(node, list).is_some(),
        _ => false,
    }
}

/// Lays an applied value over another one.
pub(crate) fn merge(node: Node<'_>, base: Option<&Value>, applied: Option<&Value>) -> Value {
    match (base, applied) {
        (Some(base), None) => base.clone(),
        // Null is a map or a list without anything in it, so it takes nothing away.
        (Some(base), Some(Value::Null)) if has_owned_parts(node, base) => base.clone(),
        (Some(Value::Object(old)), Some(Value::Object(new))) if is_granular_map(node) => {
            let mut result = old.clone();
            for (key, child) in new {
                let merged = merge(node.field(key), old.get(key), Some(child));
                result.insert(key.clone(), merged);
            }
            Value::Object(result)
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            match (elements(node, old), elements(node, new)) {
                (Some(old), Some(new)) => Value::Array(merge_lists(node, &old, &new)),
                _ => Value::Array(new.clone()),
            }
        }
        (_, Some(applied)) => applied.clone(),
        (None, None) => Value::Null,
    }
}

/// Elements of the applied list in their order; elements of the old list that it does not name keep their place among the shared ones.
fn merge_lists(node: Node<'_>, old: &[(Step, &Value)], new: &[(Step, &Value)]) -> Vec<Value> {
    let named: BTreeMap<&Step, &Value> = new.iter().map(|(step, item)| (step, *item)).collect();
    let before: BTreeMap<&Step, &Value> = old.iter().map(|(step, item)| (step, *item)).collect();
    let mut shared = new
        .iter()
        .map(|(step, _)| step)
        .filter(|step| before.contains_key(step));
    let mut next_shared = shared.next();
    let mut taken: Vec<&Step> = Vec::new();
    let mut result = Vec::new();
    let (mut left, mut right) = (0, 0);
    let join = |step: &Step, item: &Value| merge(node.items(), before.get(step).copied(), Some(item));
    while left < old.len() || right < new.len() {
        if let (Some((step, _)), Some((wanted, item))) = (old.get(left), new.get(right)) {
            if step == wanted {
                taken.push(step);
                result.push(join(wanted, item));
                left += 1;
                right += 1;
                next_shared = shared.next();
                continue;
            }
            if named.contains_key(step) && next_shared.is_some_and(|next| next != step) {
                left += 1;
                continue;
            }
        }
        if let Some((step, item)) = old.get(left) {
            if !named.contains_key(step) {
                result.push((*item).clone());
                left += 1;
                continue;
            } else if taken.contains(&step) {
                left += 1;
            }
        }
        if let Some((wanted, item)) = new.get(right) {
            taken.push(wanted);
            result.push(join(wanted, item));
            right += 1;
            if next_shared == Some(wanted) {
                next_shared = shared.next();
            }
        }
    }
    result
}

/// `.spec.containers[name="a"].image`.
pub(crate) fn shown(path: &[Step]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::types::TypeSchema;

    fn containers(names: &[&str]) -> Value {
        json!(names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>())
    }

    #[test]
    fn lists_keep_the_order_of_both_sides() {
        let pod = TypeSchema::builtin("", "v1", "Pod").expect("pods are known");
        let node = pod.root().field("spec").field("containers");
        for (old, new, merged) in [
            (&["a", "b"][..], &["b", "a"][..], &["b", "a"][..]),
            (&["a", "b", "c"], &["b"], &["a", "b", "c"]),
            (&["a", "b"], &["c"], &["a", "b", "c"]),
            (&["b"], &["a", "b", "c"], &["a", "b", "c"]),
            (&["a", "x", "b"], &["b", "a"], &["x", "b", "a"]),
        ] {
            assert_eq!(
                merge(node, Some(&containers(old)), Some(&containers(new))),
                containers(merged),
                "{old:?} + {new:?}"
            );
        }
    }

    #[test]
    fn set_algebra() {
        let set = |value: Value| Fields::from_json(&value);
        let mut all = set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
        assert_eq!(
            all.intersection(&set(json!({"f:a": {"f:b": {}}, "f:x": {}})))
                .into_json(),
            json!({"f:a": {"f:b": {}}})
        );
        all.subtract(&set(json!({"f:a": {}, "f:d": {}})));
        assert_eq!(all.clone().into_json(), json!({"f:a": {"f:b": {}, "f:c": {}}}));
        all.union(&set(json!({"f:e": {}})));
        all.remove_tree(&["a"]);
        assert_eq!(all.into_json(), json!({"f:e": {}}));
    }
}
