//! The files of manifests behind paths that may be directories.
//!
//! Owns which files of a directory count, and in which order. What is in them is read by others.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Extensions that count as manifests inside a directory.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The files behind paths that may be directories.
///
/// # Errors
/// A path cannot be read, or a directory holds no manifest.
pub(crate) fn files_of_all(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(files_of(path)?);
    }
    Ok(files)
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("cannot read directory {}", path.display()))? {
        let file = entry
            .with_context(|| format!("cannot read directory {}", path.display()))?
            .path();
        if is_kustomization(&file) {
            note_kustomization(&file.display().to_string());
            continue;
        }
        if is_manifest(&file) {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("{} has no file that ends in .yaml, .yml or .json", path.display());
    }
    Ok(files)
}

/// Files of a directory that are read, and those that are named because they are not. None where it is no directory.
pub(crate) fn noticed_in(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    files
        .filter(|file| is_manifest(file) || is_kustomization(file))
        .collect()
}

/// Whether a file of a directory counts as a manifest.
fn is_manifest(file: &Path) -> bool {
    let extension = file
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default();
    file.is_file() && EXTENSIONS.contains(&extension) && !is_kustomization(file)
}

/// kustomize's own file: a recipe for manifests and no manifest.
fn is_kustomization(file: &Path) -> bool {
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    matches!(name, "kustomization.yaml" | "kustomization.yml" | "Kustomization")
}

/// Notes that a file was skipped, and what to pass instead.
pub(crate) fn note_kustomization(origin: &str) {
    eprintln!(
        "note: skipped {origin}, which is for kustomize: pass what `kubectl kustomize DIRECTORY` prints instead"
    );
}
