//! That a simulation writes over nothing that it reads, and no output over another.
//!
//! Owns which paths lead to the same file. It opens none.

use std::fs;
use std::path::{Path, PathBuf};

use spokeshave_scenario::workload::Kind;

use super::args::SimulateArgs;
use super::cluster::paths_of;
use super::document::{Document, Wrong};
use crate::manifest_files;

/// Refuses outputs that are inputs or another output.
///
/// # Errors
/// Names each such option, its file, and what that is.
pub(crate) fn refuse(args: &SimulateArgs, document: &Document) -> Result<(), Wrong> {
    let inputs = inputs(args, document);
    let options = [
        ("--report", &args.report),
        ("--events", &args.events),
        ("--perfetto", &args.perfetto),
        ("--snapshot", &args.snapshot),
    ];
    let mut outputs: Vec<(&str, &Path)> = Vec::new();
    let mut problems = Vec::new();
    for (option, path) in options {
        let Some(path) = path.as_deref() else { continue };
        let shown = path.display();
        if let Some((what, _)) = inputs.iter().find(|(_, input)| would_change(path, input)) {
            problems.push(format!(
                "{option} {shown}: this is {what}, which would be written over; expected another file"
            ));
        } else if let Some((other, _)) = outputs.iter().find(|(_, other)| is_same(path, other)) {
            problems.push(format!(
                "{option} {shown}: {other} is written to this file; expected another one"
            ));
        }
        outputs.push((option, path));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Wrong(problems)),
    }
}

/// What is read, with a name for each.
fn inputs(args: &SimulateArgs, document: &Document) -> Vec<(&'static str, PathBuf)> {
    let scenario = &document.scenario;
    let mut found: Vec<(&'static str, PathBuf)> = Vec::new();
    let given = args.scenario.iter().cloned();
    found.extend(given.map(|path| ("the scenario", path)));
    let dumps = args.filenames.iter().cloned();
    found.extend(dumps.map(|path| ("a dump that is simulated", path)));
    let mut named = |what: &'static str, names: &[String]| {
        let paths = paths_of(document, names);
        found.extend(paths.into_iter().map(|path| (what, path)));
    };
    named("the scenario's catalog", scenario.cluster.catalog.as_slice());
    named("a dump of the scenario", &scenario.cluster.snapshot);
    named("a manifest of the scenario", &scenario.cluster.manifests);
    for policy in &scenario.policies {
        named("a manifest of a policy", &policy.manifests);
    }
    for workload in &scenario.workloads {
        if let Kind::Import(source) = &workload.kind {
            named("a recording of the scenario", &source.files);
        }
    }
    found
}

/// Whether writing a file would change an input, which may be a directory of manifests.
fn would_change(path: &Path, input: &Path) -> bool {
    let is_within = || manifest_files::is_manifest(path) && is_same(folder_of(path), input);
    is_same(path, input) || input.is_dir() && is_within()
}

/// Whether two paths lead to one file. A device such as `/dev/null` keeps nothing that could be written over.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let kind = fs::metadata(one).map(|found| found.file_type());
    if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
        return false;
    }
    target(one).is_some_and(|place| target(other) == Some(place))
}

/// Where a path leads once links are followed, also where there is no file yet.
fn target(path: &Path) -> Option<PathBuf> {
    if let Ok(target) = path.canonicalize() {
        return Some(target);
    }
    let folder = folder_of(path).canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}
