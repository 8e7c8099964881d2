//! Which ids of the behaviour specification have a test that bears their name.
//!
//! Owns the ranges that must be complete, and what is left out of them with its reason.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};

/// Ranges of ids: a letter, the first and the last number, and what they are about.
const RANGES: [(char, u32, u32, &str); 6] = [
    ('d', 241, 275, "forceful disruption"),
    ('d', 276, 285, "interruption"),
    ('d', 297, 352, "termination"),
    ('p', 140, 149, "cluster state"),
    ('p', 160, 176, "life cycle of NodeClaims"),
    ('p', 180, 187, "controllers of NodePools"),
];

/// Left out, with the reason.
const LEFT_OUT: [(char, u32, u32, &str); 4] = [
    (
        'd',
        272,
        279,
        "SQS queue and EventBridge messages of the AWS provider",
    ),
    ('d', 284, 284, "keys of the AWS provider's cache"),
    ('p', 167, 167, "no provider has a registration hook"),
    ('p', 185, 187, "CapacityBuffers and NodeOverlays are not built"),
];

/// Prints every id without a test; fails when there is one.
pub fn run() -> Result<()> {
    let mut tested = BTreeSet::new();
    for directory in ["crates", "xtask"] {
        collect(Path::new(directory), &mut tested)?;
    }
    let mut missing = 0;
    for (letter, first, last, what) in RANGES {
        let mut without = Vec::new();
        let mut excused = Vec::new();
        for number in first..=last {
            let name = format!("{}-{number:03}", letter.to_ascii_uppercase());
            let reason = LEFT_OUT
                .iter()
                .find(|(other, from, to, _)| *other == letter && (*from..=*to).contains(&number));
            match reason {
                _ if tested.contains(&(letter, number)) => {}
                Some((.., reason)) => excused.push(format!("{name} ({reason})")),
                None => without.push(name),
            }
        }
        missing += without.len();
        let count = last - first + 1;
        println!(
            "{what}: {count} ids, {} without a test: {}",
            without.len(),
            without.join(" ")
        );
        for one in excused {
            println!("  left out: {one}");
        }
    }
    if missing > 0 {
        bail!("{missing} ids have no test that bears their name");
    }
    Ok(())
}

fn collect(directory: &Path, tested: &mut BTreeSet<(char, u32)>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, tested)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            for line in text.lines() {
                if let Some((_, name)) = line.split_once("fn ") {
                    let end =
                        name.find(|character: char| !character.is_ascii_alphanumeric() && character != '_');
                    tested.extend(ids(&name[..end.unwrap_or(name.len())]));
                }
            }
        }
    }
    Ok(())
}

/// `d_271_and_p_173_…` → D-271, P-173.
fn ids(name: &str) -> Vec<(char, u32)> {
    let parts: Vec<&str> = name.split('_').collect();
    let pairs = parts.windows(2).filter_map(|pair| {
        let letter = match pair[0] {
            "d" => 'd',
            "p" => 'p',
            _ => return None,
        };
        (pair[1].len() == 3).then_some(())?;
        Some((letter, pair[1].parse().ok()?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::ids;

    #[test]
    fn ids_are_read_from_the_names_of_tests() {
        assert_eq!(ids("d_271_p_173_below_90_is_told"), [('d', 271), ('p', 173)]);
        assert!(ids("w_20_nodes_of_d_1_and_p_12").is_empty());
    }
}
