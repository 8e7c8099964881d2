//! That a simulation writes over nothing that it reads, and no output over another.
//!
//! Owns what is read and what is written. It opens none of it.

use std::path::{Path, PathBuf};

use spokeshave_scenario::workload::Kind;

use super::args::SimulateArgs;
use super::cluster::paths_of;
use super::document::{Document, Wrong};
use crate::same_file::{is_same, refusal, would_change};

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
        if let Some((what, _)) = inputs.iter().find(|(_, input)| would_change(path, input)) {
            problems.push(refusal(option, path, what));
        } else if let Some((other, _)) = outputs.iter().find(|(_, other)| is_same(path, other)) {
            problems.push(format!(
                "{option} {}: {other} is written to this file; expected another one",
                path.display()
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
