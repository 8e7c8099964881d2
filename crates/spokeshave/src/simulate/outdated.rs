//! NodePools of versions that are not read, by file and line: a dump of an older cluster has none that is.
//!
//! Owns that one sentence. What becomes of them is the business of `convert`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use super::inventory::{self, Piece};
use crate::plan::files;
use crate::plan::world::is_outdated;

/// What is to be said of them, if there are any.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn hint(paths: &[PathBuf]) -> Result<Option<String>> {
    let mut found: Vec<String> = Vec::new();
    for path in files::expand(paths)? {
        if path == Path::new("-") {
            continue;
        }
        let (file, bytes) = files::bytes_of(&path)?;
        let mut look = |piece: &Piece<'_>| found.extend(outdated(&file, piece));
        inventory::each(&file, &bytes, &mut look)?;
    }
    let more = match found.len() {
        0 => return Ok(None),
        1 => String::new(),
        number => format!(" (and {} more)", number - 1),
    };
    Ok(Some(format!(
        "{}{more}, which is not read: `spokeshave convert -f FILE` makes it the version that is",
        found[0]
    )))
}

fn outdated(file: &str, piece: &Piece<'_>) -> Option<String> {
    let object: Value = serde_json::from_str(piece.json).ok()?;
    let kind = object["kind"].as_str().or(piece.kind)?;
    let version = object["apiVersion"].as_str()?;
    let name = object["metadata"]["name"].as_str().unwrap_or("without a name");
    let is_meant = ["NodePool", "Provisioner"].contains(&kind) && is_outdated(version);
    is_meant.then(|| format!("{file}:{}: {kind} {name} is of {version}", piece.line))
}
