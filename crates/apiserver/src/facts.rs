//! Facts about the core kinds, taken once from a real server (`cargo xtask openapi-facts`): which resources there are, and the type, list
//! type and merge key of each field.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde_json::Value;

const TABLE: &str = include_str!("../facts/kubernetes.json");

/// The parsed table.
pub(crate) struct Facts {
    pub(crate) resources: Vec<Value>,
    pub(crate) definitions: Value,
    by_kind: FxHashMap<(String, String, String), String>,
    indexes: FxHashMap<String, u32>,
}

/// The table, parsed at first use.
pub(crate) fn facts() -> &'static Facts {
    static FACTS: OnceLock<Facts> = OnceLock::new();
    FACTS.get_or_init(|| {
        let mut table: Value = serde_json::from_str(TABLE).expect("the committed table is JSON");
        let resources = match table["resources"].take() {
            Value::Array(resources) => resources,
            _ => Vec::new(),
        };
        let definitions = table["definitions"].take();
        let mut by_kind = FxHashMap::default();
        for (name, definition) in definitions.as_object().into_iter().flatten() {
            for kind in definition["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let text = |key: &str| kind[key].as_str().unwrap_or_default().to_owned();
                by_kind.insert((text("group"), text("version"), text("kind")), name.clone());
            }
        }
        let names = definitions
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone());
        let indexes = names.zip(0..).collect();
        Facts {
            resources,
            definitions,
            by_kind,
            indexes,
        }
    })
}

impl Facts {
    /// Name of a kind's definition.
    pub(crate) fn definition_name(&self, group: &str, version: &str, kind: &str) -> Option<&str> {
        self.by_kind
            .get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
            .map(String::as_str)
    }

    /// Place of a definition among all, in the order of their names.
    pub(crate) fn definition_index(&self, name: &str) -> Option<u32> {
        self.indexes.get(name).copied()
    }
}
