//! Whether paths lead to the same file, so that nothing is written over what is read.
//!
//! Owns where a path leads, and in which words it is refused. It opens none.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::manifest_files;

/// Whether writing a file would change an input, which may be a directory of manifests.
pub(crate) fn would_change(path: &Path, input: &Path) -> bool {
    let is_within = || {
        let files = manifest_files::noticed_in(input);
        files.iter().any(|file| is_same(path, file))
    };
    is_same(path, input) || is_within()
}

/// Why what an option names is not written. `what` is read, and would be lost: "the scenario", for example.
pub(crate) fn refusal(option: &str, path: &Path, what: &str) -> String {
    let shown = path.display();
    format!("{option} {shown}: this is {what}, which would be written over; expected another file")
}

/// Whether two paths lead to one file. A device such as `/dev/null` keeps nothing that could be written over.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let found = fs::metadata(one).ok();
    if found
        .as_ref()
        .is_some_and(|found| !found.is_file() && !found.is_dir())
    {
        return false;
    }
    // A file may have several names, none of which leads to another.
    let number = |found: &fs::Metadata| (found.dev(), found.ino());
    let known = fs::metadata(other).ok();
    if found
        .zip(known)
        .is_some_and(|(one, other)| number(&one) == number(&other))
    {
        return true;
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
