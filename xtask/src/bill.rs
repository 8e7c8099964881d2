//! `cargo xtask bill`: what a release is made of, as a CycloneDX document and as the texts of all licences.
//!
//! Owns the walk over cargo's metadata: what the program of one target is linked from, without tools, tests and build scripts. The same lock file makes the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

const USAGE: &str = "usage: cargo xtask bill TARGET DIR    writes sbom.cdx.json and LICENSES.txt";
const PROGRAM: &str = "spokeshave";

/// Writes both files.
///
/// # Errors
/// cargo cannot be run, or a file cannot be read or written.
pub fn run(arguments: &[String]) -> Result<()> {
    let [target, folder] = arguments else {
        bail!("{USAGE}");
    };
    let metadata = metadata(target)?;
    let packages = linked(&metadata)?;
    let folder = Path::new(folder);
    std::fs::write(folder.join("sbom.cdx.json"), document(&metadata, &packages)?)?;
    std::fs::write(folder.join("LICENSES.txt"), licences(&packages)?)?;
    println!("{} packages", packages.len());
    Ok(())
}

fn metadata(target: &str) -> Result<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            target,
            // As release/build.sh builds it.
            "--features",
            "spokeshave/aws",
        ])
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// The packages that the program is linked from, itself included, by name and version.
fn linked(metadata: &Value) -> Result<BTreeMap<(String, String), &Value>> {
    let packages: BTreeMap<&str, &Value> = list(metadata, "packages")
        .map(|package| (text(package, "id"), package))
        .collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"], "nodes")
        .map(|node| (text(node, "id"), node))
        .collect();
    let program = packages
        .values()
        .find(|package| text(package, "name") == PROGRAM && package["source"].is_null())
        .context("the workspace has no program spokeshave")?;
    let mut seen = BTreeSet::new();
    let mut waiting = vec![text(program, "id")];
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = nodes.get(id).with_context(|| format!("{id} is not resolved"))?;
        let normal =
            list(node, "deps").filter(|dep| list(dep, "dep_kinds").any(|kind| kind["kind"].is_null()));
        waiting.extend(normal.map(|dep| text(dep, "pkg")));
    }
    let key = |package: &Value| {
        (
            text(package, "name").to_owned(),
            text(package, "version").to_owned(),
        )
    };
    Ok(seen
        .into_iter()
        .filter_map(|id| packages.get(id))
        .map(|package| (key(package), *package))
        .collect())
}

/// An expression in the form of today: some packages still write `MIT/Apache-2.0`.
fn expression(package: &Value) -> String {
    text(package, "license").replace('/', " OR ")
}

fn reference(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

fn component(package: &Value) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": text(package, "name"),
        "version": text(package, "version"),
        "purl": reference(package),
        "licenses": [{"expression": expression(package)}],
    });
    if let Some(repository) = package["repository"].as_str() {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

/// CycloneDX 1.5, without a serial number and a time, which would differ with every build.
fn document(metadata: &Value, packages: &BTreeMap<(String, String), &Value>) -> Result<String> {
    let ids: BTreeMap<&str, String> = packages
        .values()
        .map(|package| (text(package, "id"), reference(package)))
        .collect();
    let mut dependencies: Vec<Value> = list(&metadata["resolve"], "nodes")
        .filter_map(|node| {
            let own = ids.get(text(node, "id"))?;
            let on: BTreeSet<&String> = list(node, "deps")
                .filter(|dep| list(dep, "dep_kinds").any(|kind| kind["kind"].is_null()))
                .filter_map(|dep| ids.get(text(dep, "pkg")))
                .collect();
            Some(json!({"ref": own, "dependsOn": on}))
        })
        .collect();
    dependencies.sort_by(|one, other| text(one, "ref").cmp(text(other, "ref")));
    let (program, libraries): (Vec<&Value>, Vec<&Value>) = packages
        .values()
        .partition(|package| text(package, "name") == PROGRAM && package["source"].is_null());
    let mut main = component(program.first().context("the program is not among its packages")?);
    main["type"] = json!("application");
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": main},
        "components": libraries.into_iter().map(component).collect::<Vec<_>>(),
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// The texts that a package comes with; equal texts are printed once, below all that have them.
fn licences(packages: &BTreeMap<(String, String), &Value>) -> Result<String> {
    let mut out = "Spokeshave is licensed under Apache-2.0. It is linked from these packages:\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((name, version), package) in packages {
        writeln!(out, "{name} {version}: {}", expression(package))?;
        let folder = Path::new(text(package, "manifest_path"))
            .parent()
            .context("a manifest has a folder")?;
        let mut files: Vec<_> = folder
            .read_dir()?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        files.sort();
        for file in files.iter().filter(|file| file.is_file()) {
            let base = file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .to_uppercase();
            if ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
                .iter()
                .any(|word| base.starts_with(word))
            {
                let words = String::from_utf8_lossy(&std::fs::read(file)?).replace("\r\n", "\n");
                texts
                    .entry(words.trim().to_owned())
                    .or_default()
                    .push(format!("{name} {version}"));
            }
        }
    }
    let mut by_names: Vec<(&Vec<String>, &String)> =
        texts.iter().map(|(words, names)| (names, words)).collect();
    by_names.sort();
    for (names, words) in by_names {
        write!(
            out,
            "\n{}\n{}\n{}\n\n{words}\n",
            "=".repeat(80),
            names.join(", "),
            "=".repeat(80)
        )?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_linked_from_what_it_names_and_not_from_its_tests() {
        let metadata = metadata("x86_64-unknown-linux-gnu").expect("cargo metadata");
        let packages = linked(&metadata).expect("packages");
        let names: BTreeSet<&str> = packages.keys().map(|(name, _)| name.as_str()).collect();
        for linked in [
            "spokeshave",
            "spokeshave-plan",
            "kube-client",
            "tokio",
            "aws-sigv4",
        ] {
            assert!(names.contains(linked), "{linked} is not in {names:?}");
        }
        for other in ["xtask", "proptest", "spokeshave-example", "tempfile", "tar"] {
            assert!(!names.contains(other), "{other} is linked");
        }
        let printed = document(&metadata, &packages).expect("a document");
        let bill: Value = serde_json::from_str(&printed).expect("JSON");
        assert_eq!(bill["components"].as_array().unwrap().len() + 1, packages.len());
        assert_eq!(bill["dependencies"].as_array().unwrap().len(), packages.len());
        let all: BTreeSet<&str> = list(&bill, "components")
            .map(|one| text(one, "bom-ref"))
            .collect();
        for dependency in list(&bill, "dependencies") {
            for on in list(dependency, "dependsOn") {
                assert!(all.contains(on.as_str().unwrap()), "{on} is no component");
            }
        }
        let texts = licences(&packages).expect("licences");
        assert!(texts.contains("\ntokio "), "every package is named");
        assert!(texts.contains("Apache License") && texts.contains("Permission is hereby granted"));
        assert_eq!(texts, licences(&packages).expect("licences"));
    }
}
