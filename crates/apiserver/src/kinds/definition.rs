//! CustomResourceDefinitions as objects: defaults of names, and their columns. What a definition does is in `crd`.

use serde_json::{Value, json};

use super::columns::{Column, NAME, name};
use super::filling::{set, with};
use super::{KindRules, PLAIN};

pub(super) const RULES: KindRules = KindRules {
    default,
    columns: &[NAME, Column("Created At", "date", 0)],
    cells: |object, _| vec![name(object), object["metadata"]["creationTimestamp"].clone()],
    ..PLAIN
};

fn default(object: &mut Value) {
    with(&mut object["spec"], |spec| {
        set(spec, "conversion", json!({"strategy": "None"}));
        let kind = spec
            .get("names")
            .and_then(|names| names["kind"].as_str())
            .unwrap_or_default()
            .to_owned();
        if let Some(names) = spec.get_mut("names").filter(|_| !kind.is_empty()) {
            with(names, |names| {
                set(names, "singular", json!(kind.to_lowercase()));
                set(names, "listKind", json!(format!("{kind}List")));
            });
        }
    });
}
