//! The table of crates in ARCHITECTURE.md, as part of `cargo xtask tidy`: it says what the rules say.
//!
//! Owns how the table is read. What a crate may depend on is `tidy.rs`'s, which crates are pure `pure.rs`'s.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::pure;

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEAD: &str = "| Crate | Contents | May depend on (of ours) |";
/// Who may depend on nearly everything has no list in the document.
const NEARLY_ALL: &str = "all but";

/// A row: the section that it stands in, and the names of the third column.
struct Row {
    section: String,
    dependencies: Vec<String>,
}

/// Compares the table with the rules: crates, what each may depend on, and which are pure. The binary has no rule.
pub(crate) fn check(root: &Path, allowed: &[(&str, &[&str])], findings: &mut Vec<String>) -> Result<()> {
    let path = root.join(DOCUMENT);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    findings.extend(compare(&rows(&text), allowed));
    Ok(())
}

fn compare(rows: &BTreeMap<String, Row>, allowed: &[(&str, &[&str])]) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, dependencies) in allowed {
        let Some(row) = rows.get(short(name)) else {
            findings.push(format!(
                "{DOCUMENT}: the table of crates has no row `{}`",
                short(name)
            ));
            continue;
        };
        let expected: Vec<&str> = dependencies.iter().map(|one| short(one)).collect();
        let is_open = row.dependencies.iter().any(|one| one.starts_with(NEARLY_ALL));
        if !is_open && row.dependencies != expected {
            findings.push(format!(
                "{DOCUMENT}: `{}` may depend on {:?}, and by xtask/src/tidy.rs on {expected:?}",
                short(name),
                row.dependencies
            ));
        }
    }
    for (name, row) in rows {
        let whole = format!("spokeshave-{name}");
        if name != "spokeshave" && !allowed.iter().any(|(known, _)| *known == whole) {
            findings.push(format!("{DOCUMENT}: `{name}` has no row in xtask/src/tidy.rs"));
        }
        if (row.section == "pure") != pure::is_banned(&whole) {
            findings.push(format!(
                "{DOCUMENT}: `{name}` stands in the section {:?}, and xtask/src/pure.rs says otherwise",
                row.section
            ));
        }
    }
    findings
}

fn short(name: &str) -> &str {
    name.trim_start_matches("spokeshave-")
}

fn rows(text: &str) -> BTreeMap<String, Row> {
    let mut section = String::new();
    let mut rows = BTreeMap::new();
    let table = text.lines().skip_while(|line| *line != HEAD).skip(2);
    for line in table.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(first), Some(last)) = (cells.first(), cells.last()) else {
            continue;
        };
        if let Some(name) = first.strip_prefix("**").and_then(|rest| rest.strip_suffix("**")) {
            section = name.to_owned();
            continue;
        }
        let dependencies = last.split(", ").filter(|one| !matches!(*one, "" | "–"));
        let row = Row {
            section: section.clone(),
            dependencies: dependencies.map(str::to_owned).collect(),
        };
        rows.insert(first.trim_matches('`').to_owned(), row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &[(&str, &[&str])] = &[
        ("spokeshave-plan", &["spokeshave-api"]),
        ("spokeshave-runtime", &[]),
        ("spokeshave-sim", &["spokeshave-api", "spokeshave-plan"]),
    ];

    fn found(parts: &[&[&str]]) -> Vec<String> {
        let mut lines = vec!["Words.", HEAD, "|---|---|---|"];
        lines.extend(parts.concat());
        lines.extend(["", "| `after` | | api |"]);
        compare(&rows(&lines.join("\n")), ALLOWED)
    }

    #[test]
    fn the_table_and_the_rules_are_one() {
        let pure = "| **pure** | no async | |";
        let rest = [
            "| **shell** | | |",
            "| `runtime` | stores | – |",
            "| `sim` | a cluster | all but the binary |",
            "| `spokeshave` | the binary | all |",
        ];
        let plan = "| `plan` | decisions | api |";
        assert_eq!(found(&[&[pure, plan], &rest]), [""; 0]);

        let more = found(&[&[pure, "| `plan` | decisions | api, model |"], &rest]);
        assert!(
            more.len() == 1 && more[0].contains("`plan` may depend on"),
            "{more:?}"
        );
        let moved = found(&[&[pure], &rest, &[plan]]);
        assert!(
            moved.len() == 1 && moved[0].contains("section \"shell\""),
            "{moved:?}"
        );
        let unknown = found(&[&[pure, plan], &rest, &["| `new` | | api |"]]);
        assert!(
            unknown.len() == 1 && unknown[0].contains("`new` has no row"),
            "{unknown:?}"
        );
        let missing = found(&[&[pure], &rest]);
        assert!(
            missing.len() == 1 && missing[0].contains("has no row `plan`"),
            "{missing:?}"
        );
    }
}
