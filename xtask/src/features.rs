//! Dependencies have the same features whichever package is built, so that one build serves the program, the laboratory and all tests.
//!
//! Owns the comparison. What asks for the features that one of them lacks is the crate `features`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What `cargo` selects for the program, and for examples of the laboratory: packages and kinds of edges.
const SELECTIONS: [(&str, &[&str]); 2] = [
    (
        "cargo run",
        &["--package", "spokeshave", "--edges", "normal,build"],
    ),
    (
        "cargo run --package spokeshave-sim --example …",
        &["--package", "spokeshave-sim", "--edges", "normal,build,dev"],
    ),
];
/// What it selects for `cargo test --workspace`.
const ALL: &[&str] = &["--workspace", "--edges", "normal,build,dev"];

/// Features by package and version. A package may be built twice, for the host and for the target.
type Features = BTreeMap<String, BTreeSet<String>>;

/// Compares the features of what is built for the program and for the laboratory with those of what is built for all tests.
pub(crate) fn check(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let all = features(root, ALL)?;
    for (command, selection) in SELECTIONS {
        findings.extend(differences(command, &features(root, selection)?, &all));
    }
    Ok(())
}

fn features(root: &Path, selection: &[&str]) -> Result<Features> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}|{f}"])
        .args(selection)
        .current_dir(root)
        .output()
        .context("cannot run cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines such as `mio v1.2.4 (proc-macro)|default,log (*)`.
fn read(tree: &str) -> Features {
    let mut found = Features::new();
    for (package, features) in tree.lines().filter_map(|line| line.split_once('|')) {
        let name: Vec<&str> = package.split(' ').take(2).collect();
        let features = features.trim_end_matches(" (*)").to_owned();
        found.entry(name.join(" ")).or_default().insert(features);
    }
    found
}

fn differences(command: &str, some: &Features, all: &Features) -> Vec<String> {
    let missing = |package: &str, here: &BTreeSet<String>| {
        let wanted = all.get(package).filter(|wanted| *wanted != here)?;
        let split = |sets: &BTreeSet<String>| -> BTreeSet<String> {
            sets.iter()
                .flat_map(|set| set.split(','))
                .map(str::to_owned)
                .collect()
        };
        let lacking: Vec<String> = split(wanted).difference(&split(here)).cloned().collect();
        Some(lacking.join(", "))
    };
    let findings = some.iter().filter_map(|(package, here)| {
        let lacking = missing(package, here)?;
        Some(format!(
            "{package}: {command} builds it without the features {lacking} that cargo test --workspace has, so that it and all that depends on it are built twice; \
             ask for them in crates/features/Cargo.toml"
        ))
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_only_tests_ask_for_is_found() {
        let all = read("mio v1.2.4|default,log\nserde v1.0.0 (*)|std (*)\nquick v1.0.0 (proc-macro)|\n");
        let same = read("mio v1.2.4|default,log (*)\nquick v1.0.0 (proc-macro)|\n");
        assert_eq!(differences("cargo run", &same, &all), [""; 0]);
        let fewer = read("mio v1.2.4|default\nserde v1.0.0|std\n");
        let found = differences("cargo run", &fewer, &all);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("mio v1.2.4: cargo run builds it without the features log"),
            "{found:?}"
        );
    }
}
