//! Reads the oracle's cases and expectations.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../e2e/aws/cases")
}

/// A JSON file below `e2e/aws/cases`.
pub fn json(name: &str) -> Value {
    serde_json::from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A file below `e2e/aws/cases`.
pub fn text(name: &str) -> String {
    let path = cases().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The entries of a list.
pub fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field]
        .as_array()
        .unwrap_or_else(|| panic!("{field} is not a list"))
}
