//! `cargo xtask tidy`: the house rules that a compiler does not check.
//!
//! Owns the table "which crate may depend on which" (the same as in ARCHITECTURE.md), the licences that we accept, and the rules about files. It only reads;
//! it never changes a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::pure::{DRAWING, FORBIDDEN, PURE};
use crate::specification::Specification;
use crate::{architecture, behaviours, circles, citations, features, links, modules, pure, scripts};

/// One row: a crate, and the crates of ours that its normal (not development) dependencies may name.
const ALLOWED: &[(&str, &[&str])] = &[
    ("spokeshave-api", &["spokeshave-syntax"]),
    ("spokeshave-model", &["spokeshave-api", "spokeshave-syntax"]),
    ("spokeshave-schedule", &["spokeshave-api", "spokeshave-model"]),
    (
        "spokeshave-plan",
        &["spokeshave-api", "spokeshave-model", "spokeshave-schedule"],
    ),
    ("spokeshave-audit", &["spokeshave-api", "spokeshave-model"]),
    (
        "spokeshave-story",
        &[
            "spokeshave-api",
            "spokeshave-model",
            "spokeshave-plan",
            "spokeshave-schedule",
        ],
    ),
    (
        "spokeshave-view",
        &[
            "spokeshave-api",
            "spokeshave-model",
            "spokeshave-plan",
            "spokeshave-story",
        ],
    ),
    (
        "spokeshave-web",
        &[
            "spokeshave-charts",
            "spokeshave-model",
            "spokeshave-plan",
            "spokeshave-story",
            "spokeshave-view",
        ],
    ),
    ("spokeshave-charts", &[]),
    ("spokeshave-convert", &["spokeshave-api"]),
    (
        "spokeshave-scenario",
        &["spokeshave-api", "spokeshave-model", "spokeshave-ports"],
    ),
    (
        "spokeshave-simulate",
        &[
            "spokeshave-api",
            "spokeshave-model",
            "spokeshave-plan",
            "spokeshave-ports",
            "spokeshave-scenario",
            "spokeshave-schedule",
        ],
    ),
    (
        "spokeshave-comparison",
        &["spokeshave-charts", "spokeshave-scenario", "spokeshave-simulate"],
    ),
    ("spokeshave-example", &["spokeshave-api", "spokeshave-model"]),
    ("spokeshave-ports", &["spokeshave-api", "spokeshave-model"]),
    ("spokeshave-features", &[]),
    ("spokeshave-syntax", &[]),
    ("spokeshave-watched", &[]),
    ("spokeshave-runtime", &["spokeshave-ports", "spokeshave-watched"]),
    (
        "spokeshave-controllers",
        &[
            "spokeshave-api",
            "spokeshave-audit",
            "spokeshave-mirror",
            "spokeshave-model",
            "spokeshave-plan",
            "spokeshave-ports",
            "spokeshave-runtime",
            "spokeshave-watched",
        ],
    ),
    ("spokeshave-mirror", &["spokeshave-ports"]),
    (
        "spokeshave-provider-common",
        &["spokeshave-api", "spokeshave-model"],
    ),
    (
        "spokeshave-provider-aws",
        &["spokeshave-api", "spokeshave-model", "spokeshave-provider-common"],
    ),
    (
        "spokeshave-provider-azure",
        &["spokeshave-api", "spokeshave-model", "spokeshave-provider-common"],
    ),
    (
        "spokeshave-azure-cloud",
        &[
            "spokeshave-api",
            "spokeshave-mirror",
            "spokeshave-model",
            "spokeshave-ports",
            "spokeshave-provider-azure",
            "spokeshave-provider-common",
        ],
    ),
    (
        "spokeshave-azure-http",
        &[
            "spokeshave-azure-cloud",
            "spokeshave-ports",
            "spokeshave-provider-common",
        ],
    ),
    (
        "spokeshave-azure-simulated",
        &[
            "spokeshave-api",
            "spokeshave-azure-cloud",
            "spokeshave-ports",
            "spokeshave-provider-azure",
        ],
    ),
    (
        "spokeshave-aws-cloud",
        &[
            "spokeshave-api",
            "spokeshave-mirror",
            "spokeshave-model",
            "spokeshave-ports",
            "spokeshave-provider-aws",
            "spokeshave-provider-common",
        ],
    ),
    (
        "spokeshave-aws-http",
        &[
            "spokeshave-aws-cloud",
            "spokeshave-model",
            "spokeshave-ports",
            "spokeshave-provider-aws",
            "spokeshave-provider-common",
        ],
    ),
    (
        "spokeshave-ec2-simulated",
        &[
            "spokeshave-api",
            "spokeshave-aws-cloud",
            "spokeshave-model",
            "spokeshave-ports",
            "spokeshave-provider-aws",
        ],
    ),
    (
        "spokeshave-provider-kwok",
        &[
            "spokeshave-api",
            "spokeshave-model",
            "spokeshave-ports",
            "spokeshave-syntax",
        ],
    ),
    (
        "spokeshave-provider-grpc",
        &[
            "spokeshave-api",
            "spokeshave-mirror",
            "spokeshave-model",
            "spokeshave-ports",
            "spokeshave-syntax",
        ],
    ),
    (
        "spokeshave-apiserver",
        &["spokeshave-syntax", "spokeshave-watched"],
    ),
    (
        "spokeshave-cluster",
        &["spokeshave-api", "spokeshave-ports", "spokeshave-runtime"],
    ),
    (
        "spokeshave-simulate-full",
        &[
            "spokeshave-api",
            "spokeshave-apiserver",
            "spokeshave-cluster",
            "spokeshave-controllers",
            "spokeshave-features",
            "spokeshave-model",
            "spokeshave-plan",
            "spokeshave-ports",
            "spokeshave-runtime",
            "spokeshave-scenario",
            "spokeshave-simulate",
        ],
    ),
    (
        "spokeshave-sim",
        &[
            "spokeshave-api",
            "spokeshave-apiserver",
            "spokeshave-aws-cloud",
            "spokeshave-azure-cloud",
            "spokeshave-azure-simulated",
            "spokeshave-cluster",
            "spokeshave-controllers",
            "spokeshave-ec2-simulated",
            "spokeshave-features",
            "spokeshave-model",
            "spokeshave-ports",
            "spokeshave-provider-aws",
            "spokeshave-provider-azure",
            "spokeshave-provider-grpc",
            "spokeshave-provider-kwok",
            "spokeshave-runtime",
            "spokeshave-watched",
        ],
    ),
];

/// Licences that we accept; an expression passes when one of its alternatives does.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Longest source file, in lines. A file beyond it has outgrown its subject.
const LONGEST_FILE_LINES: usize = 600;

/// Runs every check and fails with the list of all findings.
pub fn run() -> Result<()> {
    let root = workspace_root()?;
    let metadata = cargo_metadata(&root)?;
    let mut findings = Vec::new();
    check_dependencies(&metadata, &mut findings)?;
    check_licences(&metadata, &mut findings)?;
    features::check(&root, &mut findings)?;
    let files = sources(&root)?;
    check_files(&root, &files, &mut findings)?;
    pure::check(&root, &files, &mut findings)?;
    modules::check(&root, &metadata, &files, &mut findings)?;
    architecture::check(&root, ALLOWED, &mut findings)?;
    let specification = Specification::read(&root)?;
    citations::check(&root, &specification, &mut findings)?;
    let ids = behaviours::check(&root, &specification, &mut findings)?;
    circles::check(&root, &mut findings)?;
    scripts::check(&root, &mut findings)?;
    links::check(&root, &documents(&root)?, &mut findings)?;
    if findings.is_empty() {
        println!(
            "tidy: {} crates, {} files, tests of {ids} of {} ids: no findings",
            ALLOWED.len() + 2,
            files.len(),
            specification.ids.len()
        );
        return Ok(());
    }
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    bail!("{} finding(s)", findings.len())
}

fn workspace_root() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .map(Path::to_path_buf)
        .context("the xtask crate has no parent directory")
}

fn cargo_metadata(root: &Path) -> Result<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}

/// The entries of a list in JSON.
pub(crate) fn array<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// A text in JSON.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Direct edges of every member against its row, and the whole reach of pure crates.
fn check_dependencies(metadata: &Value, findings: &mut Vec<String>) -> Result<()> {
    let names: BTreeMap<&str, &str> = array(metadata, "packages")
        .map(|package| (text(package, "id"), text(package, "name")))
        .collect();
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in array(&metadata["resolve"], "nodes") {
        let targets = array(node, "deps")
            .filter(|dep| array(dep, "dep_kinds").any(|kind| kind["kind"].is_null()))
            .map(|dep| text(dep, "pkg"))
            .collect();
        edges.insert(text(node, "id"), targets);
    }
    for member in array(metadata, "workspace_members").filter_map(Value::as_str) {
        let name = names.get(member).copied().unwrap_or_default();
        if matches!(name, "spokeshave" | "xtask") {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(row, _)| *row == name) else {
            findings.push(format!(
                "{name}: has no row in xtask/src/tidy.rs and ARCHITECTURE.md; add one to both"
            ));
            continue;
        };
        for target in &edges[member] {
            let target = names[target];
            if target.starts_with("spokeshave") && !allowed.contains(&target) {
                findings.push(format!(
                    "{name}: must not depend on {target} (its row allows {allowed:?})"
                ));
            }
        }
        if DRAWING.contains(&name) {
            for target in &edges[member] {
                let target = names[target];
                // `rand` brings the trait by which a generator of `ports::Entropy` is read.
                if FORBIDDEN.contains(&target) && target != "rand" {
                    findings.push(format!(
                        "{name}: draws from seeds only and must not depend on {target}"
                    ));
                }
            }
        }
        if PURE.contains(&name) {
            for reached in reach(member, &edges) {
                let reached = names[reached];
                if FORBIDDEN.contains(&reached) {
                    findings.push(format!("{name}: is pure and must not reach {reached}"));
                }
            }
        }
    }
    Ok(())
}

fn reach<'a>(start: &'a str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        for next in edges.get(id).into_iter().flatten() {
            if seen.insert(*next) {
                open.push(next);
            }
        }
    }
    seen
}

/// Whether licences of the list satisfy an SPDX expression; `/` between two of them, as older manifests have it, is read as OR.
fn is_accepted(expression: &str) -> bool {
    spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|licence| LICENCES.contains(&licence.to_string().as_str()))
    })
}

/// Every package that can end up in a build has a licence from the list.
fn check_licences(metadata: &Value, findings: &mut Vec<String>) -> Result<()> {
    for package in array(metadata, "packages") {
        let licence = text(package, "license");
        if !is_accepted(licence) {
            findings.push(format!(
                "{} {}: licence {licence:?} is not on the list in xtask/src/tidy.rs",
                text(package, "name"),
                text(package, "version")
            ));
        }
    }
    Ok(())
}

/// Documents whose links are checked, from the root.
fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = ["docs", "e2e", "charts", "crates"]
        .map(|folder| root.join(folder))
        .into();
    waiting.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|file| root.join(file)),
    );
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                waiting.push(entry?.path());
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path.strip_prefix(root)?.to_path_buf());
        }
    }
    found.sort();
    Ok(found)
}

/// Every source file of ours.
fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "e2e"] {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Rules about single files.
fn check_files(root: &Path, files: &[PathBuf], findings: &mut Vec<String>) -> Result<()> {
    for path in files {
        let content = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let shown = path.strip_prefix(root).unwrap_or(path).display().to_string();
        if !content.starts_with("//!") {
            findings.push(format!(
                "{shown}: the first line must be a `//!` header saying what the file owns"
            ));
        }
        let lines = content.lines().count();
        findings.extend(check_length(&shown, lines));
        for (number, line) in content.lines().enumerate() {
            for mark in FORBIDDEN_MARKS {
                if line.contains(mark.0) && !shown.ends_with("tidy.rs") {
                    findings.push(format!("{shown}:{}: {} ({})", number + 1, mark.0, mark.1));
                }
            }
        }
    }
    Ok(())
}

/// A file that has outgrown its subject.
fn check_length(shown: &str, lines: usize) -> Option<String> {
    (lines > LONGEST_FILE_LINES).then(|| {
        format!("{shown}: {lines} lines; a file beyond {LONGEST_FILE_LINES} has outgrown its subject")
    })
}

/// Text that must not be in a source file, with the reason.
const FORBIDDEN_MARKS: &[(&str, &str)] = &[
    ("#[ignore", "a test runs or is deleted"),
    ("todo!(", "finish it or say in docs/roadmap.md that it is missing"),
    (
        "unimplemented!(",
        "finish it or say in docs/roadmap.md that it is missing",
    ),
    ("thread::sleep", "wait on the Clock"),
    ("FIXME", "mend it or write it into docs/roadmap.md"),
    ("TODO", "finish it or write it into docs/roadmap.md"),
];

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            if path
                .file_name()
                .is_some_and(|name| name != "target" && name != "data")
            {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
