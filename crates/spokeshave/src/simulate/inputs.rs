//! The files that go into a simulation: whether they are there, what they are, and whether what they hold fits into memory.
//!
//! Owns their list and the places at which the scenario names them. What is in them is read elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use spokeshave_comparison::Input;
use spokeshave_scenario::Timeline;
use spokeshave_scenario::generate::check_size;
use spokeshave_scenario::workload::Kind;

use super::cluster::{beside, shown};
use super::document::{Document, Wrong};
use super::imports::{as_named, sha256};
use crate::plan::files;

/// Refuses files of the cluster and of policies that are not there, and says where the scenario names them.
///
/// # Errors
/// Names the first of them.
pub(crate) fn refuse_missing(document: &Document) -> Result<()> {
    let cluster = &document.scenario.cluster;
    let mut named = listed("spec.cluster.manifests", &cluster.manifests);
    named.extend(listed("spec.cluster.snapshot", &cluster.snapshot));
    let catalog = cluster.catalog.iter();
    named.extend(catalog.map(|name| ("spec.cluster.catalog".to_owned(), name.as_str())));
    for policy in &document.scenario.policies {
        let field = format!("{}.manifests", policy.path);
        named.extend(listed(&field, &policy.manifests));
    }
    for (field, name) in named {
        let path = beside(&document.file, name);
        if is_standard_input(&path) {
            continue;
        }
        if let Err(error) = std::fs::metadata(&path) {
            let message = format!("cannot read {}: {error}", path.display());
            return Err(document.unread(&field, message));
        }
    }
    Ok(())
}

fn listed<'n>(field: &str, names: &'n [String]) -> Vec<(String, &'n str)> {
    // One may stand there without a list.
    let of_name = |index: usize| match names.len() {
        1 => field.to_owned(),
        _ => format!("{field}[{index}]"),
    };
    let named = names.iter().enumerate();
    named
        .map(|(index, name)| (of_name(index), name.as_str()))
        .collect()
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// A file that the scenario names, or the files of a directory.
///
/// # Errors
/// One of them cannot be read.
pub(crate) fn of(document: &Document, name: &str, format: &str) -> Result<Vec<Input>> {
    let path = beside(&document.file, name);
    if !path.is_dir() {
        return Ok(input(&path, name, format)?.into_iter().collect());
    }
    let mut found = Vec::new();
    for file in files::expand(&[path])? {
        found.extend(input(&file, &as_named(document, &file), format)?);
    }
    Ok(found)
}

/// One file, as it is shown; none for standard input, which nobody can read again.
///
/// # Errors
/// It cannot be read.
pub(crate) fn input(path: &Path, shown: &str, format: &str) -> Result<Option<Input>> {
    if path.is_dir() || is_standard_input(path) {
        return Ok(None);
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(Input {
        file: shown.to_owned(),
        format: format.to_owned(),
        sha256: sha256(&bytes),
        licence: None,
    }))
}

/// Whether the scenario fits into memory with what has been read so far; `dumps` are those that it begins with.
///
/// # Errors
/// Names the file and the workload that is too much, at its place in the scenario.
pub(crate) fn fit(
    document: &Document,
    dumps: &[PathBuf],
    timelines: &BTreeMap<String, Timeline>,
) -> Result<(), Wrong> {
    check_size(&document.scenario, timelines).map_err(|excess| {
        let mut workloads = document.scenario.workloads.iter();
        let workload = workloads.find(|workload| workload.name == excess.workload);
        let files = match workload.map(|workload| &workload.kind) {
            Some(Kind::Import(source)) => format!("{}: ", source.files.join(", ")),
            Some(_) => String::new(),
            None => format!("{}: ", shown(dumps)),
        };
        document.wrong(&excess.field, format!("{files}{excess}"))
    })
}
