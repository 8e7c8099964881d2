//! An object as it came over the wire: a tree, of which only the version is understood.
//!
//! Everything that talks to the API server handles this one type, and the kind's own decoder runs at the end, from the tree. So
//! the machinery of watches and requests exists once in the program and not once a kind, and one malformed object cannot break the list or the
//! watch that carries it. It never repairs anything.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DynamicResourceScope;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::store::ObjectKey;

/// An object that is not decoded; `METADATA` asks the server for metadata only.
#[derive(Clone, Debug)]
pub(crate) struct Raw<const METADATA: bool = false> {
    /// Only with the version, which kube's watcher reads.
    metadata: ObjectMeta,
    pub(crate) tree: Value,
}

/// The API server's names of a kind.
#[derive(Clone, Debug)]
pub(crate) struct RawKind {
    group: Cow<'static, str>,
    version: Cow<'static, str>,
    kind: Cow<'static, str>,
    plural: Cow<'static, str>,
}

impl RawKind {
    pub(crate) fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            group: Cow::Owned(K::group(&()).into_owned()),
            version: Cow::Owned(K::version(&()).into_owned()),
            kind: Cow::Owned(K::kind(&()).into_owned()),
            plural: Cow::Owned(K::plural(&()).into_owned()),
        }
    }
}

impl<const METADATA: bool> Raw<METADATA> {
    pub(crate) fn new(tree: Value) -> Self {
        let metadata = ObjectMeta {
            resource_version: text(&tree, "resourceVersion").map(str::to_owned),
            ..ObjectMeta::default()
        };
        Self { metadata, tree }
    }

    pub(crate) fn into_tree(self) -> Value {
        self.tree
    }
}

/// A string of an object's metadata.
fn text<'a>(tree: &'a Value, field: &str) -> Option<&'a str> {
    tree.get("metadata")?.get(field)?.as_str()
}

/// Identity of an object that is not decoded.
pub(crate) fn key(tree: &Value) -> ObjectKey {
    ObjectKey {
        namespace: text(tree, "namespace").unwrap_or_default().to_owned(),
        name: text(tree, "name").unwrap_or_default().to_owned(),
    }
}

/// UID of an object that is not decoded.
pub(crate) fn uid(tree: &Value) -> Option<&str> {
    text(tree, "uid")
}

/// Version of an object that is not decoded.
pub(crate) fn version(tree: &Value) -> Option<u64> {
    text(tree, "resourceVersion")?.parse().ok()
}

impl<'de, const METADATA: bool> Deserialize<'de> for Raw<METADATA> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tree = Tree { of_metadata: false }.deserialize(deserializer)?;
        if tree.get("metadata").is_none() {
            return Err(D::Error::custom("an object without metadata"));
        }
        Ok(Self::new(tree))
    }
}

/// Reads an object, or its metadata, as a tree without managedFields: they are a third of it, and are never read.
struct Tree {
    of_metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.of_metadata {
            "the metadata of a Kubernetes object"
        } else {
            "a Kubernetes object"
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut tree = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let value = match (key.as_str(), self.of_metadata) {
                ("metadata", false) => fields.next_value_seed(Tree { of_metadata: true })?,
                ("managedFields", true) => {
                    fields.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => fields.next_value()?,
            };
            tree.insert(key, value);
        }
        Ok(Value::Object(tree))
    }
}

impl<const METADATA: bool> Serialize for Raw<METADATA> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.tree.serialize(serializer)
    }
}

impl<const METADATA: bool> Resource for Raw<METADATA> {
    type DynamicType = RawKind;
    type Scope = DynamicResourceScope;

    fn kind(dt: &RawKind) -> Cow<'_, str> {
        Cow::Borrowed(&dt.kind)
    }
    fn group(dt: &RawKind) -> Cow<'_, str> {
        Cow::Borrowed(&dt.group)
    }
    fn version(dt: &RawKind) -> Cow<'_, str> {
        Cow::Borrowed(&dt.version)
    }
    fn plural(dt: &RawKind) -> Cow<'_, str> {
        Cow::Borrowed(&dt.plural)
    }
    fn metadata_api() -> bool {
        METADATA
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
