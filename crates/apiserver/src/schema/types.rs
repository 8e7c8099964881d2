//! Schemas as a tree that patches, pruning, validation and decoding walk: for core kinds from the table of facts, for others from their
//! CustomResourceDefinition. A tree is compiled once; a reference leads into the tree of the core definition that it names.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::schema::facts::facts;

/// The schema of one kind.
#[derive(Debug, Clone)]
pub struct TypeSchema {
    root: TypeNode,
    pub(crate) core: bool,
}

/// Name of the definition that describes the metadata of every object.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl TypeSchema {
    /// The schema of a core kind.
    #[must_use]
    pub fn builtin(group: &str, version: &str, kind: &str) -> Option<Self> {
        let name = facts().definition_name(group, version, kind)?;
        Some(Self {
            root: TypeNode::reference(name)?,
            core: true,
        })
    }

    /// The schema of a custom kind, from its `openAPIV3Schema`.
    #[must_use]
    pub fn custom(raw: &Value) -> Self {
        let mut root = TypeNode::compile(raw);
        // Metadata is that of every object, whatever its CRD defines.
        if let Some(metadata) = TypeNode::reference(OBJECT_META) {
            root.properties.insert("metadata".into(), metadata);
            root.has_properties = true;
        }
        Self { root, core: false }
    }

    /// The node at the top.
    pub(crate) fn root(&self) -> Node<'_> {
        Node(&self.root).resolved()
    }

    /// The node of the metadata of any object.
    pub(crate) fn metadata() -> Node<'static> {
        static METADATA: OnceLock<TypeNode> = OnceLock::new();
        Node(METADATA.get_or_init(|| TypeNode::reference(OBJECT_META).unwrap_or_default())).resolved()
    }
}

/// Types that Go reads and writes in a way of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Special {
    #[default]
    None,
    Quantity,
    Time,
    MicroTime,
    IntOrString,
    /// Any value is kept.
    Raw,
}

/// When Go leaves a field out of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Omit {
    Never,
    Empty,
    Zero,
}

/// The kind of a Go type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoKind {
    Bool,
    Number,
    Text,
    Struct,
    Map,
    List,
    Pointer,
    Other,
}

/// How Go writes a field.
#[derive(Debug, Clone)]
pub(crate) struct Go {
    /// Its type as Go's error messages spell it.
    pub(crate) name: Box<str>,
    pub(crate) omit: Omit,
    pub(crate) kind: GoKind,
}

/// A compiled place in a schema.
#[derive(Debug, Clone, Default)]
pub(crate) struct TypeNode {
    /// Index of a core definition that says the rest.
    target: Option<u32>,
    kind: Option<Box<str>>,
    pub(crate) properties: BTreeMap<Box<str>, TypeNode>,
    has_properties: bool,
    additional: Option<Box<TypeNode>>,
    any_additional: bool,
    items: Option<Box<TypeNode>>,
    list_type: Option<Box<str>>,
    list_keys: Vec<Box<str>>,
    map_type: Option<Box<str>>,
    merge_key: Option<Box<str>>,
    preserves_unknown: bool,
    embedded: bool,
    pub(crate) default: Option<Box<Value>>,
    pub(crate) special: Special,
    pub(crate) go: Option<Box<Go>>,
    declared: bool,
}

/// A core definition by its place among all, compiled at first use: a cluster meets few of the hundreds.
fn definition(index: u32) -> Option<&'static TypeNode> {
    static DEFINITIONS: OnceLock<Box<[OnceLock<TypeNode>]>> = OnceLock::new();
    let definitions =
        DEFINITIONS.get_or_init(|| (0..facts().definition_count()).map(|_| OnceLock::new()).collect());
    let node = definitions.get(index as usize)?;
    Some(node.get_or_init(|| {
        let (name, raw) = facts().definition_at(index as usize).unwrap_or_default();
        TypeNode {
            special: special(name),
            ..TypeNode::compile(&raw)
        }
    }))
}

fn special(name: &str) -> Special {
    match name.strip_prefix("io.k8s.").unwrap_or(name) {
        "apimachinery.pkg.api.resource.Quantity" => Special::Quantity,
        "apimachinery.pkg.apis.meta.v1.Time" => Special::Time,
        "apimachinery.pkg.apis.meta.v1.MicroTime" => Special::MicroTime,
        "apimachinery.pkg.util.intstr.IntOrString" => Special::IntOrString,
        "apimachinery.pkg.runtime.RawExtension" | "apimachinery.pkg.apis.meta.v1.FieldsV1" => Special::Raw,
        other
            if other.starts_with("apiextensions-apiserver.")
                && other.contains(".v1.JSON")
                && !other.ends_with(".JSONSchemaProps") =>
        {
            Special::Raw
        }
        _ => Special::None,
    }
}

impl TypeNode {
    fn reference(name: &str) -> Option<Self> {
        let target = facts().definition_index(name)?;
        Some(Self {
            target: Some(target),
            declared: true,
            ..Self::default()
        })
    }

    fn compile(raw: &Value) -> Self {
        let text = |key: &str| raw[key].as_str().map(Box::from);
        let flag = |key: &str| raw[key].as_bool().unwrap_or(false);
        let properties: BTreeMap<Box<str>, TypeNode> = raw["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, raw)| (Box::from(name.as_str()), Self::compile(raw)))
            .collect();
        let strategy = raw["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
        let merge_key = strategy
            .split(',')
            .any(|part| part == "merge")
            .then(|| text("x-kubernetes-patch-merge-key").unwrap_or_default());
        Self {
            target: raw["$ref"]
                .as_str()
                .and_then(|name| facts().definition_index(name)),
            kind: text("type"),
            has_properties: raw["properties"].is_object(),
            properties,
            additional: raw
                .get("additionalProperties")
                .filter(|values| values.is_object())
                .map(|values| Box::new(Self::compile(values))),
            any_additional: raw["additionalProperties"] == true,
            items: raw
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| Box::new(Self::compile(items))),
            list_type: text("x-kubernetes-list-type"),
            list_keys: raw["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(Box::from)
                .collect(),
            map_type: text("x-kubernetes-map-type"),
            merge_key,
            preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            default: raw
                .get("default")
                .filter(|default| !default.is_null())
                .map(|default| Box::new(default.clone())),
            special: Special::None,
            go: raw["x-go"].as_str().and_then(Go::read).map(Box::new),
            declared: true,
        }
    }
}

impl Go {
    /// Reads `TYPE HOW`, where HOW is when the field is left out and its kind.
    fn read(text: &str) -> Option<Self> {
        let (name, how) = text.split_once(' ')?;
        let mut letters = how.chars();
        let omit = match letters.next()? {
            'e' => Omit::Empty,
            'z' => Omit::Zero,
            _ => Omit::Never,
        };
        let kind = match letters.next()? {
            'b' => GoKind::Bool,
            'n' => GoKind::Number,
            't' => GoKind::Text,
            's' => GoKind::Struct,
            'm' => GoKind::Map,
            'l' => GoKind::List,
            'p' => GoKind::Pointer,
            _ => GoKind::Other,
        };
        Some(Self {
            name: name.into(),
            omit,
            kind,
        })
    }
}

/// How the elements of a list are identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind<'a> {
    Atomic,
    Set,
    Map(&'a [Box<str>]),
}

/// A place in a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node<'a>(pub(crate) &'a TypeNode);

fn nothing() -> &'static TypeNode {
    static NOTHING: OnceLock<TypeNode> = OnceLock::new();
    NOTHING.get_or_init(TypeNode::default)
}

impl<'a> Node<'a> {
    /// Follows a reference to a core definition.
    pub(crate) fn resolved(self) -> Node<'a> {
        match self.0.target.and_then(definition) {
            Some(node) => Node(node),
            None => self,
        }
    }

    pub(crate) fn is_unknown(self) -> bool {
        !self.0.declared
    }

    /// The schema of a field that is declared by name.
    pub(crate) fn property(self, name: &str) -> Option<Node<'a>> {
        self.resolved().0.properties.get(name).map(Node)
    }

    /// The schema of a field or of a map's value; unknown where nothing is declared.
    pub(crate) fn field(self, name: &str) -> Node<'a> {
        let this = self.resolved();
        match this.0.properties.get(name) {
            Some(property) => Node(property),
            None => this.values(),
        }
    }

    /// The schema of a map's values.
    pub(crate) fn values(self) -> Node<'a> {
        Node(
            self.resolved()
                .0
                .additional
                .as_deref()
                .unwrap_or_else(|| nothing()),
        )
    }

    pub(crate) fn items(self) -> Node<'a> {
        Node(self.resolved().0.items.as_deref().unwrap_or_else(|| nothing()))
    }

    pub(crate) fn kind(self) -> &'a str {
        self.resolved().0.kind.as_deref().unwrap_or_default()
    }

    /// List semantics of server-side apply.
    pub(crate) fn list_kind(self) -> ListKind<'a> {
        let own = self.0.list_type.is_some();
        let node = if own { self.0 } else { self.resolved().0 };
        match node.list_type.as_deref() {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(&node.list_keys),
            _ => ListKind::Atomic,
        }
    }

    /// True when an object is owned as a whole.
    pub(crate) fn is_atomic_map(self) -> bool {
        self.0
            .map_type
            .as_deref()
            .or(self.resolved().0.map_type.as_deref())
            == Some("atomic")
    }

    /// Merge key of a strategic merge patch; empty for a list of primitives that is merged.
    pub(crate) fn strategic_list(self) -> Option<&'a str> {
        self.0
            .merge_key
            .as_deref()
            .or(self.resolved().0.merge_key.as_deref())
    }

    /// True when unknown fields are kept.
    pub(crate) fn preserves_unknown(self) -> bool {
        self.0.preserves_unknown || self.resolved().0.preserves_unknown
    }

    /// True for an object that carries its own kind and metadata.
    fn is_embedded(self) -> bool {
        self.0.embedded || self.resolved().0.embedded
    }

    /// The default that the schema declares.
    pub(crate) fn default_value(self) -> Option<&'a Value> {
        self.0.default.as_deref().or(self.resolved().0.default.as_deref())
    }

    /// True where fields or values are declared.
    pub(crate) fn has_declared_fields(self) -> bool {
        let this = self.resolved().0;
        this.has_properties || this.additional.is_some()
    }
}

/// Removes the fields that the schema of a custom kind does not know and returns their paths.
pub fn prune(schema: &TypeSchema, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    if let Value::Object(map) = object {
        prune_object(schema.root(), map, "", true, &mut dropped);
    }
    dropped
}

fn prune_value(node: Node<'_>, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => prune_object(node, map, path, node.is_embedded(), dropped),
        Value::Array(list) => {
            let items = node.items();
            if items.is_unknown() {
                return;
            }
            for (index, item) in list.iter_mut().enumerate() {
                prune_value(items, item, &format!("{path}[{index}]"), dropped);
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
    dropped: &mut Vec<String>,
) {
    let open = node.preserves_unknown() || node.is_unknown() || node.resolved().0.any_additional;
    map.retain(|key, value| {
        // Metadata has a separate decoder.
        if top && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            return true;
        }
        let field = node.field(key);
        let child = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        if field.is_unknown() {
            if !open {
                dropped.push(child);
            }
            return open;
        }
        prune_value(field, value, &child, dropped);
        true
    });
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
        assert_eq!(containers.list_kind(), ListKind::Map(&["name".into()]));
        let ports = containers.items().field("ports");
        assert_eq!(
            ports.list_kind(),
            ListKind::Map(&["containerPort".into(), "protocol".into()])
        );
        assert_eq!(
            pod.root().field("metadata").field("finalizers").strategic_list(),
            Some("")
        );
        assert!(pod.root().field("spec").field("nodeSelector").is_atomic_map());
    }

    #[test]
    fn fields_unknown_to_a_definition_are_dropped_and_named() {
        let schema = TypeSchema::custom(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
            }}}}),
        );
        let mut object = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"},
            "spec": {"list": [{"a": "1", "b": "2"}], "open": {"x": 1}, "map": {"k": "v"}, "no": 1}, "other": {}});
        assert_eq!(
            prune(&schema, &mut object),
            ["other", "spec.list[0].b", "spec.no"]
        );
        assert_eq!(
            object["spec"],
            json!({"list": [{"a": "1"}], "open": {"x": 1}, "map": {"k": "v"}})
        );
    }
}
