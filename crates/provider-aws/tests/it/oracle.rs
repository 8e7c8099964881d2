//! Reads the oracle's cases and expectations: those of the repository, or generated ones in the folder that AWS_CASES names (`just parity-aws`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, fs};

use serde_json::Value;

fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../e2e/aws/cases")
}

/// What follows a prefix in the names of the generated YAML files, without the extension, in order.
pub fn generated(prefix: &str) -> Vec<String> {
    let folder = env::var_os("AWS_CASES").map(PathBuf::from);
    let entries = folder
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().ok()?;
            Some(name.strip_prefix(prefix)?.strip_suffix(".yaml")?.to_owned())
        })
        .collect();
    names.sort();
    names
}

/// A JSON file below `e2e/aws/cases`.
pub fn json(name: &str) -> Value {
    serde_json::from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A file below `e2e/aws/cases`.
pub fn text(name: &str) -> String {
    let generated = env::var_os("AWS_CASES").map(|folder| PathBuf::from(folder).join(name));
    let path = generated
        .filter(|path| path.exists())
        .unwrap_or_else(|| cases().join(name));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Cases of a kind in which ours differs from upstream's on purpose, with the reason.
pub fn differences(kind: &str) -> BTreeMap<String, String> {
    let listed = json("differences.json");
    serde_json::from_value(listed[kind].clone()).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// The entries of a list.
pub fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field]
        .as_array()
        .unwrap_or_else(|| panic!("{field} is not a list"))
}
