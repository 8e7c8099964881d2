//! Every behaviour of the specification has a test that bears its id in its name, or a written reason why not.
//!
//! Owns how ids appear in names of tests (`d_041_d_042_…`, `d_022_to_d_030_…`, `w_05_…`, `g_1_14_…`, `invariant_8_…`) and the reading of
//! `docs/spec/coverage.md`, the table of reasons. What a test proves is for its reader to judge.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::specification::{FOLDER, Family, Id, Specification, cited};

/// Most ids that the name of one test may spell: a test that bears more proves none of them in particular. A range (`d_022_to_d_030`), which is one table of
/// the specification, spells two.
const MOST_IDS: usize = 5;

/// Adds a finding for every id without test and reason, and for every reason that has become pointless. Returns how many ids have a test.
pub(crate) fn check(root: &Path, specification: &Specification, findings: &mut Vec<String>) -> Result<usize> {
    let (mut names, mut idle) = (Vec::new(), Vec::new());
    for folder in ["crates", "xtask"] {
        visit(&root.join(folder), &mut names, &mut idle)?;
    }
    findings.extend(names.iter().filter_map(|name| overloaded(name)));
    findings.extend(idle.iter().map(|name| {
        format!("test {name}: may return before it has looked at anything, and bears ids; let it prove them, or run where it can")
    }));
    let tested: BTreeSet<Id> = names.iter().flat_map(|name| ids(name)).collect();
    let path = root.join(FOLDER).join("coverage.md");
    let table = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let reasons = reasons(&table, specification);
    findings.extend(judge(specification, &tested, &reasons));
    Ok(specification.ids.intersection(&tested).count())
}

/// A row of `coverage.md`.
#[derive(Debug)]
struct Reason {
    line: usize,
    ids: BTreeSet<Id>,
    text: String,
}

fn judge(specification: &Specification, tested: &BTreeSet<Id>, reasons: &[Reason]) -> Vec<String> {
    let mut findings = Vec::new();
    let excused: BTreeSet<Id> = reasons
        .iter()
        .flat_map(|reason| reason.ids.iter().copied())
        .collect();
    for id in &specification.ids {
        if !tested.contains(id) && !excused.contains(id) {
            findings.push(format!(
                "{id}: no test bears its name; write one, or a reason into {FOLDER}/coverage.md"
            ));
        }
    }
    for reason in reasons {
        let place = format!("{FOLDER}/coverage.md:{}", reason.line);
        if reason.text.split_whitespace().count() < 3 {
            findings.push(format!("{place}: a row needs a reason"));
        }
        for id in reason.ids.intersection(tested) {
            findings.push(format!("{place}: {id} has a test; take it out of the row"));
        }
    }
    findings
}

/// Rows whose first cell names ids: one by one, or as ranges (`D-288 to D-296`), of which the ids that exist count.
fn reasons(table: &str, specification: &Specification) -> Vec<Reason> {
    let rows = (1..).zip(table.lines()).filter_map(|(line, row)| {
        let (cell, text) = row.strip_prefix("| ")?.split_once(" | ")?;
        let mut ids = BTreeSet::new();
        for part in cell.split(", ") {
            match cited(part)[..] {
                [id] => ids.extend([id]),
                [first, last] if first.family == last.family => ids.extend(range(first, last, specification)),
                _ => return None,
            }
        }
        let text = text.trim_end_matches('|').trim().to_owned();
        Some(Reason { line, ids, text })
    });
    rows.collect()
}

fn range(first: Id, last: Id, specification: &Specification) -> Vec<Id> {
    let ids = specification.ids.iter().copied();
    ids.filter(|id| id.family == first.family && (first.number..=last.number).contains(&id.number))
        .collect()
}

/// A finding about a test whose name spells too many ids.
fn overloaded(name: &str) -> Option<String> {
    let number = spelt(name).len();
    (number > MOST_IDS).then(|| {
        format!("test {name}: spells {number} ids, and {MOST_IDS} at most tell what it proves; split it")
    })
}

/// Collects the names of all tests, and of those with ids that may prove nothing.
fn visit(folder: &Path, names: &mut Vec<String>, idle: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            visit(&path, names, idle)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            names.extend(tests(&text).map(|(name, _)| name.to_owned()));
            idle.extend(
                returning(&text)
                    .filter(|name| !ids(name).is_empty())
                    .map(str::to_owned),
            );
        }
    }
    Ok(())
}

/// Names of functions that follow an attribute `#[test]` or `#[tokio::test…]`, also inside `proptest!`, and their lines.
pub(crate) fn tests(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut is_test = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let line = line.trim();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
            return None;
        }
        if line.starts_with("#[") || line.starts_with("//") {
            return None;
        }
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        let name = function.filter(|_| std::mem::take(&mut is_test))?;
        Some((name.split('(').next()?, number))
    })
}

/// Names of tests whose first statement returns where something is not so.
fn returning(text: &str) -> impl Iterator<Item = &str> {
    tests(text).filter_map(move |(name, number)| {
        let mut lines = text.lines().map(str::trim).skip(number - 1);
        lines.find(|line| line.ends_with('{'))?;
        let (condition, then) = (lines.next()?, lines.next().unwrap_or_default());
        let returns =
            condition.contains("{ return") || (condition.ends_with('{') && then.starts_with("return"));
        (condition.starts_with("if ") && returns).then_some(name)
    })
}

/// `d_271_and_p_173_…` gives D-271 and P-173; `d_003_to_d_005` also what lies between.
pub(crate) fn ids(name: &str) -> Vec<Id> {
    let mut ids: Vec<Id> = Vec::new();
    for (id, is_range) in spelt(name) {
        let start = ids.last().filter(|last| is_range && last.family == id.family);
        let start = start.map_or(id.number, |last| last.number);
        ids.extend((start..=id.number).map(|number| Id { number, ..id }));
    }
    ids
}

/// The ids that a name spells, and whether each ends a range.
fn spelt(name: &str) -> Vec<(Id, bool)> {
    let words: Vec<&str> = name.split('_').collect();
    let mut spelt = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let next = |steps: usize| words.get(index + steps).copied().unwrap_or_default();
        let (family, digits) = match *word {
            "g" if next(1) == "1" => (Family::Scenario, next(2)),
            "a" => (Family::Aws, next(1)),
            "b" => (Family::ProvisioningWeakness, next(1)),
            "d" => (Family::Disruption, next(1)),
            "g" => (Family::Protocol, next(1)),
            "p" => (Family::Provisioning, next(1)),
            "w" => (Family::DisruptionWeakness, next(1)),
            "z" => (Family::Azure, next(1)),
            "invariant" => (Family::Invariant, next(1)),
            _ => continue,
        };
        if family.digits().is_some_and(|expected| expected != digits.len()) {
            continue;
        }
        let Ok(number) = digits.parse::<u32>() else {
            continue;
        };
        let is_range = index > 0 && words[index - 1] == "to";
        spelt.push((Id { family, number }, is_range));
    }
    spelt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(family: Family, numbers: &[u32]) -> Vec<Id> {
        numbers
            .iter()
            .map(|number| Id {
                family,
                number: *number,
            })
            .collect()
    }

    #[test]
    fn names_are_read_one_by_one_and_as_ranges() {
        let text = "#[test]\nfn d_001_d_003_to_d_005_w_07_words() {\n}\nfn d_100_no_test() {}\n#[tokio::test(start_paused = true)]\nasync fn g_1_4_d_162_p_088_more() {";
        let found: BTreeSet<Id> = super::tests(text).flat_map(|(name, _)| ids(name)).collect();
        let expected = [
            of(Family::Disruption, &[1, 3, 4, 5, 162]),
            of(Family::DisruptionWeakness, &[7]),
            of(Family::Scenario, &[4]),
            of(Family::Provisioning, &[88]),
        ];
        assert_eq!(found, expected.concat().into_iter().collect());
        assert!(ids("group_1_of_2_of_d_1").is_empty());
        assert_eq!(ids("invariant_36_words"), of(Family::Invariant, &[36]));
        assert_eq!(ids("a_pod_and_a_001"), of(Family::Aws, &[1]));
    }

    #[test]
    fn a_test_spells_few_ids() {
        assert_eq!(overloaded("d_001_d_002_w_03_p_004_g_1_5_words"), None);
        assert_eq!(overloaded("d_022_to_d_030_the_twelve_checks"), None);
        let many = overloaded("d_001_d_002_d_003_d_004_d_005_d_006_words").expect("a finding");
        assert!(many.contains("spells 6 ids"), "{many}");
    }

    #[test]
    fn a_test_that_may_return_at_once_is_found() {
        let text = [
            "#[test]\nfn d_001_asked(\n    one: u8,\n) {\n    if !is_asked() {\n        return;\n    }\n    assert!(true);\n}\n",
            "#[test]\nfn d_002_in_a_line() {\n    if !is_asked() { return; }\n}\n",
            "#[test]\nfn d_003_looks() {\n    let a = 1;\n    if a == 2 {\n        return;\n    }\n}\n",
            "#[test]\nfn d_004_branches() {\n    if one() {\n        assert!(two());\n    }\n}\n",
        ]
        .concat();
        let found: Vec<&str> = returning(&text).collect();
        assert_eq!(found, ["d_001_asked", "d_002_in_a_line"]);
    }

    #[test]
    fn an_id_needs_a_test_or_a_reason_and_a_reason_needs_an_id_without_test() {
        let specification = Specification {
            ids: of(Family::Disruption, &[1, 2, 3, 4, 5]).into_iter().collect(),
            ..Specification::default()
        };
        let table = "| Ids | Reason |\n|---|---|\n| D-003 | waits for a provider |\n| D-001 to D-002, D-003 | no longer true of two |\n| D-005 | |\n";
        let reasons = reasons(table, &specification);
        let tested = of(Family::Disruption, &[1, 2]).into_iter().collect();
        assert_eq!(
            judge(&specification, &tested, &reasons),
            [
                "D-004: no test bears its name; write one, or a reason into docs/spec/coverage.md",
                "docs/spec/coverage.md:4: D-001 has a test; take it out of the row",
                "docs/spec/coverage.md:4: D-002 has a test; take it out of the row",
                "docs/spec/coverage.md:5: a row needs a reason",
            ]
        );
    }
}
