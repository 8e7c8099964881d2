//! Links of documents, as part of `cargo xtask tidy`: each leads to a file and a heading that exist, and every page of `docs/` is in its `SUMMARY.md`.
//!
//! Owns how headings become anchors, as GitHub and mdBook make them. It does not use the network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

/// Checks the documents of these paths, given from the root.
pub fn check(root: &Path, documents: &[PathBuf], findings: &mut Vec<String>) -> Result<()> {
    let mut texts = BTreeMap::new();
    for path in documents {
        let text = std::fs::read_to_string(root.join(path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        texts.insert(path.clone(), text);
    }
    let anchors: BTreeMap<&PathBuf, BTreeSet<String>> =
        texts.iter().map(|(path, text)| (path, anchors(text))).collect();
    for (path, text) in &texts {
        for (line, target) in links(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let leads_to = if file.is_empty() {
                path.clone()
            } else {
                normal(&path.parent().unwrap_or(Path::new("")).join(file))
            };
            let place = format!("{}:{line}", path.display());
            if !root.join(&leads_to).exists() {
                findings.push(format!("{place}: the link {target} leads nowhere"));
            } else if path.starts_with("docs") && !leads_to.starts_with("docs") {
                findings.push(format!(
                    "{place}: {target} is not part of the book; give its whole address"
                ));
            } else if !anchor.is_empty()
                && anchors
                    .get(&leads_to)
                    .is_some_and(|known| !known.contains(anchor))
            {
                findings.push(format!("{place}: {} has no heading {anchor}", leads_to.display()));
            }
        }
    }
    let summary = texts.get(Path::new("docs/SUMMARY.md")).map_or("", String::as_str);
    let listed: BTreeSet<PathBuf> = links(summary)
        .into_iter()
        .map(|(_, target)| Path::new("docs").join(target))
        .collect();
    let pages = texts
        .keys()
        .filter(|path| path.starts_with("docs") && !path.ends_with("SUMMARY.md"));
    for page in pages.filter(|page| !listed.contains(*page)) {
        findings.push(format!("{}: is not in docs/SUMMARY.md", page.display()));
    }
    Ok(())
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// The lines that are no code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((number + 1, line))
    })
}

/// The line without text in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Inline links to files of ours: line and target.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// A heading as it reads: of links only their texts.
fn words(heading: &str) -> String {
    let mut parts = heading.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    out
}

/// The anchors of all headings; the second of a name gets `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let Some(heading) = line.strip_prefix('#').map(|line| line.trim_start_matches('#')) else {
            continue;
        };
        let words = words(heading.trim()).to_lowercase();
        let slug: String = words
            .chars()
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        let free = (0..).map(|number| {
            if number == 0 {
                slug.clone()
            } else {
                format!("{slug}-{number}")
            }
        });
        found.extend(free.into_iter().find(|anchor| !found.contains(anchor)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_headings_are_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "README.md",
            "[a](docs/one.md#a-heading-that-is-there) [b](docs/two.md) [c](https://example.com) `[d](nowhere)`\n```\n[e](nowhere)\n```\n",
        );
        write(
            "docs/one.md",
            "# One\n## A heading, that `is` there!\n## Twice\n## Twice\n## With [a link](../README.md) in it\n[up](../README.md) [its address](https://example.com/README.md) [own](#twice-1) [other](#with-a-link-in-it) [wrong](#thrice)\n",
        );
        write("docs/SUMMARY.md", "# Summary\n");
        let mut findings = Vec::new();
        let documents = ["README.md", "docs/one.md", "docs/SUMMARY.md"].map(PathBuf::from);
        check(folder.path(), &documents, &mut findings).unwrap();
        let wanted = [
            "README.md:1: the link docs/two.md leads nowhere",
            "docs/one.md:5: ../README.md is not part of the book; give its whole address",
            "docs/one.md:6: ../README.md is not part of the book; give its whole address",
            "docs/one.md:6: docs/one.md has no heading thrice",
            "docs/one.md: is not in docs/SUMMARY.md",
        ];
        assert_eq!(findings, wanted);
        write("docs/SUMMARY.md", "- [One](one.md)\n");
        findings.clear();
        check(folder.path(), &documents[1..], &mut findings).unwrap();
        assert_eq!(findings, wanted[1..4]);
    }
}
