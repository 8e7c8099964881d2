//! Every id and every section of the specification that is cited anywhere exists.
//!
//! Owns which files are read: sources, tests, scripts and documents of the repository. What is cited rightly is for readers to judge.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::behaviours;
use crate::specification::{Specification, cited, cited_sections};

/// Folders and files that may cite, from the root of the repository.
const PLACES: &[&str] = &[
    "crates",
    "xtask",
    "e2e",
    "docs",
    "examples",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "justfile",
];

/// Extensions of hand-written files.
const ENDINGS: &[&str] = &["rs", "md", "py", "sh", "go", "toml", "yaml"];

/// Adds a finding for every citation of something that the specification does not define.
pub(crate) fn check(root: &Path, specification: &Specification, findings: &mut Vec<String>) -> Result<()> {
    let mut files = Vec::new();
    for place in PLACES {
        collect(&root.join(place), &mut files)?;
    }
    files.sort();
    for path in files {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        // It spells ids that do not exist, to test how they are read.
        if shown == "xtask/src/specification.rs" || shown == "xtask/src/behaviours.rs" {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("reading {shown}"))?;
        findings.extend(unknown(specification, &text).into_iter().map(|(line, what)| {
            format!(
                "{shown}:{line}: {what} is not in {}",
                crate::specification::FOLDER
            )
        }));
    }
    Ok(())
}

/// Citations of what is not defined, with their lines.
fn unknown(specification: &Specification, text: &str) -> BTreeSet<(usize, String)> {
    let mut unknown = BTreeSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let ids = cited(line)
            .into_iter()
            .filter(|id| !specification.ids.contains(id));
        unknown.extend(ids.map(|id| (number, id.to_string())));
        for (letter, section) in cited_sections(line) {
            let sections = match letter {
                'P' => &specification.provisioning_sections,
                _ => &specification.disruption_sections,
            };
            if !sections.contains(&section) {
                unknown.insert((number, format!("{letter} §{section}")));
            }
        }
    }
    for (name, line) in behaviours::tests(text) {
        let ids = behaviours::ids(name)
            .into_iter()
            .filter(|id| !specification.ids.contains(id));
        unknown.extend(ids.map(|id| (line, format!("{id} (in the name of a test)"))));
    }
    unknown
}

fn collect(place: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if place.is_dir() {
        if place.file_name().is_some_and(|name| name == "target") {
            return Ok(());
        }
        for entry in fs::read_dir(place).with_context(|| format!("reading {}", place.display()))? {
            collect(&entry?.path(), files)?;
        }
    } else if place.file_name().is_some_and(|name| name == "justfile")
        || place
            .extension()
            .is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
    {
        files.push(place.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specification::{Family, Id};

    #[test]
    fn what_is_not_defined_is_named_with_its_line() {
        let id = |number| Id {
            family: Family::Disruption,
            number,
        };
        let specification = Specification {
            ids: [id(1), id(2), id(4)].into(),
            disruption_sections: ["8.4".to_owned()].into(),
            ..Specification::default()
        };
        let text = "// D-001 and D-003 (D §8.4, D §9)\n#[test]\nfn d_001_to_d_004_words() {}\n";
        let expected = [(1, "D §9"), (1, "D-003"), (3, "D-003 (in the name of a test)")];
        let found = unknown(&specification, text);
        assert_eq!(found, expected.map(|(line, what)| (line, what.to_owned())).into());
    }
}
