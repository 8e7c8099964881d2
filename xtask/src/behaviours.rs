//! `cargo xtask behaviours`: every behaviour of the specification of disruption, and every weakness that is promised to be mended, has a test
//! named for it.
//!
//! It reads names of test functions only (`d_041_d_042_…`, `d_022_to_d_030_…`, `w_05_…`); what a test proves is for its reader to judge.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// D-001 to D-240: voluntary disruption (candidates, cost, loop, methods, budgets, drift).
const LAST_BEHAVIOUR: u32 = 240;

/// The weaknesses that voluntary disruption mends (docs/compat.md).
fn weaknesses() -> BTreeSet<u32> {
    let ranges = [1..=17, 22..=28, 31..=43, 45..=45, 56..=59];
    ranges.into_iter().flatten().collect()
}

/// Fails with a list of what no test is named for.
pub(crate) fn run() -> Result<()> {
    let mut named = Named::default();
    visit(Path::new("crates"), &mut named)?;
    let behaviours: Vec<String> = (1..=LAST_BEHAVIOUR)
        .filter(|number| !named.behaviours.contains(number))
        .map(|number| format!("D-{number:03}"))
        .collect();
    let weaknesses: Vec<String> = weaknesses()
        .into_iter()
        .filter(|number| !named.weaknesses.contains(number))
        .map(|number| format!("W-{number:02}"))
        .collect();
    let missing: Vec<String> = behaviours.into_iter().chain(weaknesses).collect();
    if !missing.is_empty() {
        bail!("no test is named for {}", missing.join(", "));
    }
    println!(
        "behaviours: a test is named for each of D-001 to D-{LAST_BEHAVIOUR} and for each weakness that is mended"
    );
    Ok(())
}

#[derive(Debug, Default)]
struct Named {
    behaviours: BTreeSet<u32>,
    weaknesses: BTreeSet<u32>,
}

fn visit(folder: &Path, named: &mut Named) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            visit(&path, named)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            tests(&text).for_each(|name| named.read(name));
        }
    }
    Ok(())
}

/// Names of functions that follow an attribute `#[test]` or `#[tokio::test…]`.
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

impl Named {
    fn read(&mut self, name: &str) {
        let words: Vec<&str> = name.split('_').collect();
        let mut last = None;
        for (index, word) in words.iter().enumerate() {
            let number = words.get(index + 1).and_then(|next| next.parse::<u32>().ok());
            match (*word, number) {
                ("d", Some(number)) => {
                    let is_range = index > 0 && words[index - 1] == "to";
                    let first = last.filter(|_| is_range).unwrap_or(number);
                    self.behaviours.extend(first..=number);
                    last = Some(number);
                }
                ("w", Some(number)) => {
                    self.weaknesses.insert(number);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_one_by_one_and_as_ranges() {
        let text = "#[test]\nfn d_001_d_003_to_d_005_w_07_words() {\n}\nfn d_100_no_test() {}\n#[tokio::test(start_paused = true)]\nasync fn g_1_4_d_162_more() {";
        let mut named = Named::default();
        tests(text).for_each(|name| named.read(name));
        assert_eq!(named.behaviours, [1, 3, 4, 5, 162].into());
        assert_eq!(named.weaknesses, [7].into());
    }
}
