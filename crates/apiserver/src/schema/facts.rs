//! Facts about the core kinds, taken once from a real server (`cargo xtask openapi-facts`): which resources there are, and the type, list
//! type and merge key of each field.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

const TABLE: &str = include_str!("../../facts/kubernetes.json");

#[derive(Deserialize)]
struct Table {
    resources: Vec<Value>,
    #[serde(borrow)]
    definitions: BTreeMap<&'static str, &'static RawValue>,
}

/// What is read of every definition at the start.
#[derive(Deserialize)]
struct Described {
    #[serde(rename = "x-kubernetes-group-version-kind", default)]
    kinds: Vec<GroupVersionKind>,
}

#[derive(Deserialize, PartialEq, Eq, Hash)]
struct GroupVersionKind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
}

/// The parsed table. Definitions stay text, of which only the few used ones are parsed: as trees they would be ten times the size.
pub(crate) struct Facts {
    pub(crate) resources: Vec<Value>,
    /// In the order of their names.
    definitions: Vec<(&'static str, &'static RawValue)>,
    by_kind: FxHashMap<GroupVersionKind, &'static str>,
    indexes: FxHashMap<&'static str, u32>,
}

/// The table, parsed at first use.
pub(crate) fn facts() -> &'static Facts {
    static FACTS: OnceLock<Facts> = OnceLock::new();
    FACTS.get_or_init(|| {
        let table: Table = serde_json::from_str(TABLE).expect("the committed table is JSON");
        let mut by_kind = FxHashMap::default();
        for (name, definition) in &table.definitions {
            let described: Described =
                serde_json::from_str(definition.get()).expect("the committed definitions are objects");
            by_kind.extend(described.kinds.into_iter().map(|kind| (kind, *name)));
        }
        let indexes = table.definitions.keys().copied().zip(0..).collect();
        Facts {
            resources: table.resources,
            definitions: table.definitions.into_iter().collect(),
            by_kind,
            indexes,
        }
    })
}

impl Facts {
    /// A definition by name; null for an unknown one.
    pub(crate) fn definition(&self, name: &str) -> Value {
        let index = self.definition_index(name);
        index
            .and_then(|index| self.definition_at(index as usize))
            .map(|(_, definition)| definition)
            .unwrap_or_default()
    }

    /// Name and content of a definition, by its place among all.
    pub(crate) fn definition_at(&self, index: usize) -> Option<(&'static str, Value)> {
        let (name, text) = self.definitions.get(index)?;
        Some((*name, serde_json::from_str(text.get()).unwrap_or_default()))
    }

    /// How many definitions there are.
    pub(crate) fn definition_count(&self) -> usize {
        self.definitions.len()
    }

    /// Name of a kind's definition.
    pub(crate) fn definition_name(&self, group: &str, version: &str, kind: &str) -> Option<&str> {
        self.by_kind
            .get(&GroupVersionKind {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
            })
            .copied()
    }

    /// Place of a definition among all, in the order of their names.
    pub(crate) fn definition_index(&self, name: &str) -> Option<u32> {
        self.indexes.get(name).copied()
    }
}
