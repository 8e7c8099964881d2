//! The objects of files, directories and standard input as one dump: the one reader of `plan`, `explain` and `budgets`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::dump::{self, Dump};
use crate::arguments::Misuse;
use crate::manifest_files;
use crate::text::say;

const STANDARD_INPUT: &str = "standard input";

/// Reads all files, in the order given; a directory's files are sorted by name, and `-` is standard input.
///
/// # Errors
/// A file cannot be read or holds something else than Kubernetes objects, or all of them together hold none.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Dump> {
    let files = expand(paths)?;
    let several = files.len() > 1;
    let mut whole = Dump::default();
    let mut blank: Vec<String> = Vec::new();
    for file in &files {
        let (origin, bytes) = bytes_of(file)?;
        let dump = dump::read(&origin, &bytes)?;
        drop(bytes);
        if dump.is_blank() {
            blank.push(origin);
        } else if several {
            whole.append(dump.of_file(&origin));
        } else {
            whole = dump;
        }
    }
    if whole.is_blank() {
        bail!(
            "{}: holds no object; expected what `kubectl get … -o yaml` writes",
            blank.join(", ")
        );
    }
    for file in blank {
        say(&format!("note: {file} holds no object"));
    }
    Ok(whole)
}

/// The files behind paths, in the order given: a directory's are sorted by name, and `-` is standard input.
///
/// # Errors
/// A path cannot be read, a directory holds no manifest, or standard input is named twice.
pub(crate) fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    check(paths)?;
    let mut files: Vec<PathBuf> = Vec::new();
    for path in paths {
        if is_standard_input(path) {
            files.push(path.clone());
        } else {
            files.extend(manifest_files::files_of_all(std::slice::from_ref(path))?);
        }
    }
    Ok(files)
}

/// Whether these can all be read, as far as their names tell.
///
/// # Errors
/// Standard input is named twice: a [`Misuse`].
pub(crate) fn check(paths: &[PathBuf]) -> Result<()> {
    let inputs = paths.iter().filter(|path| is_standard_input(path));
    if inputs.count() > 1 {
        return Err(Misuse("-f -: standard input can be read only once".to_owned()).into());
    }
    Ok(())
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// The name of a file in messages, and what it holds.
///
/// # Errors
/// It cannot be read.
pub(crate) fn bytes_of(path: &Path) -> Result<(String, Vec<u8>)> {
    if is_standard_input(path) {
        let mut bytes = Vec::new();
        let mut input = std::io::stdin().lock();
        input
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
        return Ok((STANDARD_INPUT.to_owned(), bytes));
    }
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    Ok((shown, bytes))
}
