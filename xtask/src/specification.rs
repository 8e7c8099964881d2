//! The behaviour specification in `docs/spec`, as far as a machine reads it: which ids and sections there are.
//!
//! Owns the families of ids (their letter, their digits, the file that defines them) and how they are written in prose. The meaning of an id is not checked.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Where the specification is, from the root of the repository.
pub(crate) const FOLDER: &str = "docs/spec";

/// A kind of id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// `A-001`: AWS.
    Aws,
    /// `B-01`: weaknesses of provisioning seen upstream.
    ProvisioningWeakness,
    /// `D-001`: disruption and termination.
    Disruption,
    /// `G-001`: other providers and the protocol.
    Protocol,
    /// `App. G.1-14`: a scenario of disruption.
    Scenario,
    /// `invariant 8`.
    Invariant,
    /// `P-001`: provisioning.
    Provisioning,
    /// `W-01`: weaknesses of disruption seen upstream.
    DisruptionWeakness,
    /// `Z-001`: Azure.
    Azure,
}

impl Family {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Provisioning,
        Self::Disruption,
        Self::DisruptionWeakness,
        Self::ProvisioningWeakness,
        Self::Scenario,
        Self::Invariant,
        Self::Aws,
        Self::Azure,
        Self::Protocol,
    ];

    /// The file that defines its ids.
    fn file(self) -> &'static str {
        match self {
            Self::Provisioning | Self::ProvisioningWeakness => "provisioning.md",
            Self::Disruption | Self::DisruptionWeakness | Self::Scenario => "disruption.md",
            Self::Invariant => "invariants.md",
            Self::Aws | Self::Azure | Self::Protocol => "providers.md",
        }
    }

    /// The prefix of the number in prose.
    fn prefix(self) -> &'static str {
        match self {
            Self::Provisioning => "P-",
            Self::Disruption => "D-",
            Self::DisruptionWeakness => "W-",
            Self::ProvisioningWeakness => "B-",
            Self::Scenario => "App. G.1-",
            Self::Invariant => "invariant ",
            Self::Aws => "A-",
            Self::Azure => "Z-",
            Self::Protocol => "G-",
        }
    }

    /// How many digits its numbers have; `None` where they are not padded.
    pub(crate) fn digits(self) -> Option<usize> {
        match self {
            Self::Scenario | Self::Invariant => None,
            Self::DisruptionWeakness | Self::ProvisioningWeakness => Some(2),
            Self::Provisioning | Self::Disruption | Self::Aws | Self::Azure | Self::Protocol => Some(3),
        }
    }
}

/// One id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    /// Its kind.
    pub(crate) family: Family,
    /// Its number.
    pub(crate) number: u32,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.family.digits().unwrap_or(1);
        write!(f, "{}{:0width$}", self.family.prefix(), self.number)
    }
}

/// What the specification defines.
#[derive(Debug, Default)]
pub(crate) struct Specification {
    /// Every id.
    pub(crate) ids: BTreeSet<Id>,
    /// Numbers of the sections of provisioning.md (`P §6.8`).
    pub(crate) provisioning_sections: BTreeSet<String>,
    /// Numbers of the sections of disruption.md (`D §8.4`).
    pub(crate) disruption_sections: BTreeSet<String>,
}

impl Specification {
    /// Reads the files of `docs/spec`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let text = |file: &str| {
            let path = root.join(FOLDER).join(file);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let mut specification = Self {
            provisioning_sections: sections(&text("provisioning.md")?),
            disruption_sections: sections(&text("disruption.md")?),
            ..Self::default()
        };
        for family in Family::ALL {
            let found = defined(family, &text(family.file())?);
            ensure!(
                !found.is_empty(),
                "{FOLDER}/{}: defines no {}… any more",
                family.file(),
                family.prefix()
            );
            specification.ids.extend(found);
        }
        Ok(specification)
    }
}

/// The ids of a family that a text defines: first cells of table rows, or numbers of a list.
fn defined(family: Family, text: &str) -> BTreeSet<Id> {
    let of_list = |text: &str| -> Vec<u32> {
        let numbers = text.lines().filter_map(|line| line.split_once(". "));
        numbers.filter_map(|(number, _)| number.parse().ok()).collect()
    };
    let numbers: Vec<u32> = match family {
        Family::Invariant => of_list(text),
        Family::Scenario => {
            let scenarios = text.split("\n### G.1 ").nth(1).unwrap_or_default();
            of_list(scenarios.split("\n### ").next().unwrap_or_default())
        }
        _ => text
            .lines()
            .filter_map(|line| {
                line.strip_prefix("| ")?
                    .strip_prefix(family.prefix())?
                    .split_once(" |")
            })
            .filter_map(|(number, _)| number.parse().ok())
            .collect(),
    };
    numbers.into_iter().map(|number| Id { family, number }).collect()
}

/// Numbers of headings: `### 6.8 Topology` gives 6.8, `## 4. Pod classes` gives 4.
fn sections(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with("##"));
    headings
        .filter_map(|line| line.trim_start_matches('#').trim_start().split(' ').next())
        .map(|number| number.trim_end_matches('.').to_owned())
        .filter(|number| number.starts_with(|first: char| first.is_ascii_digit()))
        .collect()
}

/// The ids that a line of prose or code cites.
pub(crate) fn cited(line: &str) -> Vec<Id> {
    let mut ids = Vec::new();
    for family in Family::ALL {
        let line = if family == Family::Invariant {
            line.to_lowercase().replace("invariants ", "invariant ")
        } else {
            line.to_owned()
        };
        for (at, prefix) in line.match_indices(family.prefix()) {
            let before = line[..at].chars().next_back();
            if before.is_some_and(|before| before.is_alphanumeric() || matches!(before, '-' | '_')) {
                continue;
            }
            let digits: String = line[at + prefix.len()..]
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            let after = line[at + prefix.len() + digits.len()..].chars().next();
            let ends = after.is_none_or(|after| !after.is_alphanumeric() && after != '_');
            if ends && family.digits().is_none_or(|expected| expected == digits.len()) {
                ids.extend(digits.parse().ok().map(|number| Id { family, number }));
            }
        }
    }
    ids
}

/// The sections that a line cites: `P §6.8` and `D §8.4` give the letter and the number.
pub(crate) fn cited_sections(line: &str) -> Vec<(char, String)> {
    let of = |letter: char| {
        let mark = format!("{letter} §");
        let found = line.match_indices(&mark).map(|(at, mark)| {
            let rest = &line[at + mark.len()..];
            let number: String = rest
                .chars()
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect();
            (letter, number.trim_end_matches('.').to_owned())
        });
        found.collect::<Vec<_>>()
    };
    [of('P'), of('D')].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelt(ids: &[Id]) -> Vec<String> {
        ids.iter().map(Id::to_string).collect()
    }

    #[test]
    fn ids_are_defined_by_rows_and_lists() {
        let text = "| P-001 | a |\n| P-012 | see P-099 |\n1. no\n";
        let found: Vec<Id> = defined(Family::Provisioning, text).into_iter().collect();
        assert_eq!(spelt(&found), ["P-001", "P-012"]);
        let text = "\n### G.1 Functional\n\n1. a\n2. b\n### G.2 Other\n3. c\n";
        let found: Vec<Id> = defined(Family::Scenario, text).into_iter().collect();
        assert_eq!(spelt(&found), ["App. G.1-1", "App. G.1-2"]);
    }

    #[test]
    fn ids_are_cited_with_their_digits_and_nothing_else_is() {
        let line = "as P-168, (D-001…D-008), W-05: Invariant 36; App. G.1-4; UTF-8, AP-1234, P-1234, D-12 and xD-123";
        let found = spelt(&cited(line));
        let expected = ["P-168", "D-001", "D-008", "W-05", "App. G.1-4", "invariant 36"];
        assert_eq!(found, expected);
        assert_eq!(spelt(&cited("Invariants 2 and 38")), ["invariant 2"]);
    }

    #[test]
    fn sections_are_headings_with_numbers() {
        let found = sections("## 4. Pod classes\n### 6.8 Topology\n# Appendix A\n## Sources\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["4", "6.8"]);
        let cited = cited_sections("(P §6.8, D §4).");
        assert_eq!(cited, [('P', "6.8".to_owned()), ('D', "4".to_owned())]);
    }
}
