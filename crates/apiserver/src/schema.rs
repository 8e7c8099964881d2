//! Schemas as a tree that patches, pruning and validation walk: for core kinds from the table of facts, for others from their
//! CustomResourceDefinition.

use serde_json::{Map, Value};

use crate::facts::facts;

/// The schema of one kind.
#[derive(Debug, Clone)]
pub struct TypeSchema {
    root: Value,
    core: bool,
}

impl TypeSchema {
    /// The schema of a core kind.
    #[must_use]
    pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Self> {
        let name = facts().definition_name(group, version, kind)?;
        Some(Self {
            root: serde_json::json!({"$ref": name}),
            core: true,
        })
    }

    /// The schema of a custom kind, from its `openAPIV3Schema`.
    #[must_use]
    pub fn custom(mut root: Value) -> Self {
        // Metadata is that of every object, whatever the definition says of it.
        if root["properties"].is_object() {
            root["properties"]["metadata"] = serde_json::json!({"$ref": OBJECT_META});
        }
        Self { root, core: false }
    }

    /// The node at the top.
    pub(crate) fn root(&self) -> Node<'_> {
        Node(&self.root).resolved()
    }
}

pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// How the elements of a list are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind<'a> {
    Atomic,
    Set,
    Map(Vec<&'a str>),
}

/// A place in a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a>(pub(crate) &'a Value);

static NOTHING: Value = Value::Null;

impl<'a> Node<'a> {
    pub(crate) fn unknown() -> Node<'static> {
        Node(&NOTHING)
    }

    /// Follows a reference into the table of facts.
    pub(crate) fn resolved(self) -> Node<'a> {
        match self.0.get("$ref").and_then(Value::as_str) {
            Some(name) => Node(&facts().definitions[name]),
            None => self,
        }
    }

    pub(crate) fn is_unknown(self) -> bool {
        self.0.is_null()
    }

    /// The schema of a field or of a map's value; unknown where nothing is declared.
    pub(crate) fn field(self, name: &str) -> Node<'a> {
        let this = self.resolved();
        match this
            .0
            .get("properties")
            .and_then(|properties| properties.get(name))
        {
            Some(property) => Node(property),
            None => match this.0.get("additionalProperties") {
                Some(values) if values.is_object() => Node(values),
                _ => Node::unknown(),
            },
        }
    }

    pub(crate) fn items(self) -> Node<'a> {
        match self.resolved().0.get("items") {
            Some(items) => Node(items),
            None => Node::unknown(),
        }
    }

    pub(crate) fn kind(self) -> &'a str {
        self.resolved()
            .0
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(crate) fn flag(self, name: &str) -> bool {
        let here = self.0.get(name).and_then(Value::as_bool).unwrap_or(false);
        here || self
            .resolved()
            .0
            .get(name)
            .and_then(Value::as_bool)
            .unwrap_or(false)
    }

    fn text(self, name: &str) -> Option<&'a str> {
        self.0
            .get(name)
            .or_else(|| self.resolved().0.get(name))
            .and_then(Value::as_str)
    }

    /// List semantics of server-side apply.
    pub(crate) fn list_kind(self) -> ListKind<'a> {
        match self.text("x-kubernetes-list-type") {
            Some("set") => ListKind::Set,
            Some("map") => {
                let keys = self.0.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                ListKind::Map(keys.into_iter().flatten().filter_map(Value::as_str).collect())
            }
            _ => ListKind::Atomic,
        }
    }

    /// True when an object is owned as a whole.
    pub(crate) fn is_atomic_map(self) -> bool {
        self.text("x-kubernetes-map-type") == Some("atomic")
    }

    /// Merge key of a strategic merge patch; empty for a list of primitives that is merged.
    pub(crate) fn strategic_list(self) -> Option<&'a str> {
        let strategy = self.text("x-kubernetes-patch-strategy")?;
        strategy
            .split(',')
            .any(|part| part == "merge")
            .then(|| self.text("x-kubernetes-patch-merge-key").unwrap_or_default())
    }

    /// True when unknown fields are kept.
    pub(crate) fn preserves_unknown(self) -> bool {
        self.flag("x-kubernetes-preserve-unknown-fields")
    }

    fn has_declared_fields(self) -> bool {
        let this = self.resolved();
        this.0.get("properties").is_some() || this.0.get("additionalProperties").is_some()
    }

    /// True for objects whose content the schema does not describe, such as raw extensions and quantities.
    fn is_opaque(self) -> bool {
        self.is_unknown() || self.preserves_unknown() || !self.has_declared_fields()
    }
}

/// Removes the fields that the schema does not know and returns their paths, as a real server does unless told otherwise.
pub fn prune(schema: &TypeSchema, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    if let Value::Object(map) = object {
        prune_object(schema.root(), map, "", true, schema.core, &mut dropped);
    }
    dropped
}

fn prune_value(node: Node<'_>, value: &mut Value, path: &str, core: bool, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let top = node.flag("x-kubernetes-embedded-resource");
            prune_object(node, map, path, top, core, dropped);
        }
        Value::Array(list) => {
            let items = node.items();
            if items.is_unknown() {
                return;
            }
            for (index, item) in list.iter_mut().enumerate() {
                prune_value(items, item, &format!("{path}[{index}]"), core, dropped);
            }
        }
        _ => {}
    }
}

fn prune_object(
    node: Node<'_>,
    map: &mut Map<String, Value>,
    path: &str,
    top: bool,
    core: bool,
    dropped: &mut Vec<String>,
) {
    let opaque = if core {
        node.is_opaque()
    } else {
        node.preserves_unknown() || node.is_unknown()
    };
    let any_value = node
        .resolved()
        .0
        .get("additionalProperties")
        .is_some_and(|values| values == &Value::Bool(true));
    map.retain(|key, value| {
        let field = node.field(key);
        let child = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        if field.is_unknown() {
            let standard = top && matches!(key.as_str(), "apiVersion" | "kind" | "metadata");
            if !opaque && !standard && !any_value {
                dropped.push(child);
                return false;
            }
            return true;
        }
        prune_value(field, value, &child, core || key == "metadata" && top, dropped);
        true
    });
}

/// Type errors of a core object, worded as the Go decoder words them.
pub(crate) fn type_errors(schema: &TypeSchema, object: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check_types(schema.root(), object, "", &mut errors);
    errors
}

fn check_types(node: Node<'_>, value: &Value, path: &str, errors: &mut Vec<String>) {
    if node.is_unknown() || value.is_null() {
        return;
    }
    let node = node.resolved();
    let format = node.0.get("format").and_then(Value::as_str).unwrap_or_default();
    let fits = match node.kind() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" if format == "int-or-string" => value.is_string() || value.is_number(),
        "string" => {
            value.is_string() || node.0.get("properties").is_none() && is_quantity(node) && value.is_number()
        }
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => true,
    };
    if !fits {
        errors.push(format!(
            "json: cannot unmarshal {} into Go struct field {} of type {}",
            json_kind(value),
            path,
            go_type(node.kind())
        ));
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                check_types(
                    node.field(key),
                    child,
                    &if path.is_empty() {
                        key.clone()
                    } else {
                        format!("{path}.{key}")
                    },
                    errors,
                );
            }
        }
        Value::Array(list) => {
            for child in list {
                check_types(node.items(), child, path, errors);
            }
        }
        _ => {}
    }
}

/// Quantities are declared as strings and may be written as numbers.
fn is_quantity(node: Node<'_>) -> bool {
    node.0
        .get("description")
        .and_then(Value::as_str)
        .is_some_and(|text| text.starts_with("Quantity is"))
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn go_type(kind: &str) -> &str {
    match kind {
        "integer" => "int32",
        "boolean" => "bool",
        "object" => "map",
        "array" => "slice",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn core_kinds_have_merge_keys_and_list_types() {
        let pod = TypeSchema::builtin("", "v1", "Pod").expect("pods are known");
        let containers = pod.root().field("spec").field("containers");
        assert_eq!(containers.strategic_list(), Some("name"));
        assert_eq!(containers.list_kind(), ListKind::Map(vec!["name"]));
        let ports = containers.items().field("ports");
        assert_eq!(
            ports.list_kind(),
            ListKind::Map(vec!["containerPort", "protocol"])
        );
        assert_eq!(
            pod.root().field("metadata").field("finalizers").strategic_list(),
            Some("")
        );
        assert!(pod.root().field("spec").field("nodeSelector").is_atomic_map());
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let pod = TypeSchema::builtin("", "v1", "Pod").expect("pods are known");
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}, "nonsense": 1},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/x": 2}}, "imagee": "x"}], "nodeSelector": {"a": "b"}},
        });
        assert_eq!(
            prune(&pod, &mut object),
            ["metadata.nonsense", "spec.containers[0].imagee"]
        );
        assert_eq!(
            object["spec"]["containers"][0]["resources"]["requests"]["example.com/x"],
            2
        );
    }

    #[test]
    fn type_errors_name_the_field() {
        let pod = TypeSchema::builtin("", "v1", "Pod").expect("pods are known");
        let errors = type_errors(
            &pod,
            &json!({"spec": {"containers": {"name": "c"}, "hostNetwork": "yes"}}),
        );
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("spec.containers"), "{errors:?}");
        let fine = type_errors(
            &pod,
            &json!({"spec": {"containers": [{"resources": {"limits": {"cpu": 1}}, "livenessProbe": {"httpGet": {"port": 80}}}]}}),
        );
        assert_eq!(fine, Vec::<String>::new());
    }
}
