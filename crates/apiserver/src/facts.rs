//! Facts about the core kinds, taken once from a real server (`cargo xtask openapi-facts`): which resources there are, and the type, list
//! type and merge key of each field.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

const TABLE: &str = include_str!("../facts/kubernetes.json");

#[derive(Deserialize)]
struct Table {
    resources: Vec<Value>,
    #[serde(borrow)]
    definitions: BTreeMap<&'static str, &'static RawValue>,
}

/// The parsed table. Definitions stay text, of which the few that are asked for are parsed: as trees they would be ten times the size.
pub(crate) struct Facts {
    pub(crate) resources: Vec<Value>,
    definitions: BTreeMap<&'static str, &'static RawValue>,
    by_kind: FxHashMap<(String, String, String), &'static str>,
    indexes: FxHashMap<&'static str, u32>,
}

/// The table, parsed at first use.
pub(crate) fn facts() -> &'static Facts {
    static FACTS: OnceLock<Facts> = OnceLock::new();
    FACTS.get_or_init(|| {
        let table: Table = serde_json::from_str(TABLE).expect("the committed table is JSON");
        let mut by_kind = FxHashMap::default();
        for (name, definition) in &table.definitions {
            let definition = parsed(definition);
            for kind in definition["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let text = |key: &str| kind[key].as_str().unwrap_or_default().to_owned();
                by_kind.insert((text("group"), text("version"), text("kind")), *name);
            }
        }
        let indexes = table.definitions.keys().copied().zip(0..).collect();
        Facts {
            resources: table.resources,
            definitions: table.definitions,
            by_kind,
            indexes,
        }
    })
}

fn parsed(definition: &RawValue) -> Value {
    serde_json::from_str(definition.get()).unwrap_or_default()
}

impl Facts {
    /// A definition by name; null for an unknown one.
    pub(crate) fn definition(&self, name: &str) -> Value {
        self.definitions
            .get(name)
            .map(|text| parsed(text))
            .unwrap_or_default()
    }

    /// All definitions, in the order of their names.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.definitions.iter().map(|(name, text)| (*name, parsed(text)))
    }

    /// Name of a kind's definition.
    pub(crate) fn definition_name(&self, group: &str, version: &str, kind: &str) -> Option<&str> {
        self.by_kind
            .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
            .copied()
    }

    /// Place of a definition among all, in the order of their names.
    pub(crate) fn definition_index(&self, name: &str) -> Option<u32> {
        self.indexes.get(name).copied()
    }
}
