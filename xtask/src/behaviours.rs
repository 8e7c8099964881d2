//! Every behaviour of the specification that is promised has a test that bears its id in its name.
//!
//! It reads the names of test functions only (`d_041_d_042_…`, `d_022_to_d_030_…`, `w_05_…`); what a test proves is for its reader to judge.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// An id: its letter and its number.
type Id = (char, u32);

/// Ids that must have a test: the letter, the first and the last number, and what they are about.
const PROMISED: &[(char, u32, u32, &str)] = &[
    ('d', 1, 240, "voluntary disruption"),
    ('d', 241, 275, "forceful disruption"),
    ('d', 276, 285, "interruption"),
    ('d', 297, 352, "termination"),
    ('p', 30, 40, "requirements"),
    ('p', 56, 64, "collecting pods"),
    ('p', 66, 69, "planned NodeClaims"),
    ('p', 72, 72, "preferences"),
    ('p', 80, 125, "placement"),
    ('p', 140, 149, "cluster state"),
    ('p', 160, 176, "life cycle of NodeClaims"),
    ('p', 180, 187, "controllers of NodePools"),
    ('w', 1, 17, "weaknesses that voluntary disruption mends"),
    ('w', 22, 28, "weaknesses that voluntary disruption mends"),
    ('w', 31, 43, "weaknesses that voluntary disruption mends"),
    ('w', 45, 45, "weaknesses that voluntary disruption mends"),
    ('w', 56, 59, "weaknesses that voluntary disruption mends"),
];

/// Left out, with the reason.
const LEFT_OUT: &[(char, u32, u32, &str)] = &[
    (
        'd',
        272,
        279,
        "SQS queue and EventBridge messages of the AWS provider",
    ),
    ('d', 284, 284, "keys of the AWS provider's cache"),
];

/// Adds a finding for every promised id without a test. Returns how many ids have one.
pub(crate) fn check(root: &Path, findings: &mut Vec<String>) -> Result<usize> {
    let mut tested = BTreeSet::new();
    for folder in ["crates", "xtask"] {
        visit(&root.join(folder), &mut tested)?;
    }
    for (letter, first, last, subject) in PROMISED {
        let ids = (*first..=*last).map(|number| (*letter, number));
        for id in ids.filter(|id| !tested.contains(id) && !is_left_out(*id)) {
            findings.push(format!("{}: no test bears its name ({subject})", spelt(id)));
        }
    }
    Ok(tested.len())
}

fn is_left_out((letter, number): Id) -> bool {
    let mut left_out = LEFT_OUT.iter();
    left_out.any(|(other, first, last, _)| *other == letter && (*first..=*last).contains(&number))
}

fn spelt((letter, number): Id) -> String {
    let width = if letter == 'w' { 2 } else { 3 };
    format!("{}-{number:0width$}", letter.to_ascii_uppercase())
}

fn visit(folder: &Path, tested: &mut BTreeSet<Id>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            visit(&path, tested)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            tested.extend(tests(&text).flat_map(ids));
        }
    }
    Ok(())
}

/// Names of functions that follow an attribute `#[test]` or `#[tokio::test…]`, also inside `proptest!`.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
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
        name.split('(').next()
    })
}

/// `d_271_and_p_173_…` gives D-271 and P-173; `d_003_to_d_005` also what lies between.
fn ids(name: &str) -> Vec<Id> {
    let words: Vec<&str> = name.split('_').collect();
    let mut ids: Vec<Id> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let letter = match *word {
            "d" => 'd',
            "p" => 'p',
            "w" => 'w',
            _ => continue,
        };
        let width = if letter == 'w' { 2 } else { 3 };
        let digits = words.get(index + 1).filter(|digits| digits.len() == width);
        let Some(number) = digits.and_then(|digits| digits.parse::<u32>().ok()) else {
            continue;
        };
        let is_range = index > 0 && words[index - 1] == "to";
        let start = ids.last().filter(|(other, _)| is_range && *other == letter);
        let start = start.map_or(number, |(_, start)| *start);
        ids.extend((start..=number).map(|number| (letter, number)));
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_one_by_one_and_as_ranges() {
        let text = "#[test]\nfn d_001_d_003_to_d_005_w_07_words() {\n}\nfn d_100_no_test() {}\n#[tokio::test(start_paused = true)]\nasync fn g_1_4_d_162_p_088_more() {";
        let found: BTreeSet<Id> = tests(text).flat_map(ids).collect();
        let expected = [1, 3, 4, 5, 162].map(|number| ('d', number));
        assert_eq!(found, expected.into_iter().chain([('p', 88), ('w', 7)]).collect());
        assert!(ids("group_1_of_2_of_d_1").is_empty());
        assert_eq!(spelt(('w', 7)), "W-07");
    }
}
