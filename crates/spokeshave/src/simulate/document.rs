//! A scenario file as text: read with the line of every problem.
//!
//! Owns the form of messages, `FILE:LINE: FIELD: PROBLEM`. What the fields mean is the business of the crate `scenario`.

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Error, Result};
use serde_json::Value;
use spokeshave_scenario::{Problem, Scenario};

use super::imports::sha256;
use crate::lines::Lines;
use crate::plan::dump::{as_text, without_place};
use crate::yaml;

/// What is wrong with a scenario, one line each.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) Vec<String>);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\nerror: "))
    }
}

impl std::error::Error for Wrong {}

/// A scenario file.
pub(crate) struct Document {
    /// Its name in messages.
    pub(crate) file: String,
    /// What it says.
    pub(crate) scenario: Scenario,
    /// SHA-256 of its text, in hexadecimal.
    pub(crate) sha256: String,
    lines: Lines,
}

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be opened; or [`Wrong`], with everything that is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {file}"))?;
        let text = as_text(&bytes).with_context(|| file.clone())?;
        Ok(Self::parse(&file, text)?)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, Wrong> {
        let invalid = |line: u64, problem: &str| Wrong(vec![format!("{file}:{line}: {problem}")]);
        let value: Value = yaml::to_json(text)
            .map_err(|error| {
                let line = error.location().map_or(1, |location| location.line());
                let message = error.to_string();
                invalid(line, &format!("is not valid YAML: {}", without_place(&message)))
            })
            .and_then(|json| serde_json::from_str(&json).map_err(|error| invalid(1, &error.to_string())))?;
        // Comments alone are no more than nothing.
        if value.is_null() {
            return Err(invalid(1, "the file is empty; expected a Scenario"));
        }
        let lines = Lines::of(text, false, 1);
        match Scenario::read(&value) {
            Ok(scenario) => Ok(Self {
                file: file.to_owned(),
                scenario,
                sha256: sha256(text.as_bytes()),
                lines,
            }),
            Err(problems) => {
                let mut said: Vec<(u64, String)> = problems
                    .iter()
                    .map(|problem| shown(file, &lines, problem))
                    .collect();
                said.sort_by_key(|(line, _)| *line);
                Err(Wrong(said.into_iter().map(|(_, text)| text).collect()))
            }
        }
    }

    /// A scenario that no file holds.
    pub(crate) fn of(scenario: Scenario) -> Self {
        Self {
            file: String::new(),
            scenario,
            sha256: String::new(),
            lines: Lines::default(),
        }
    }

    /// `FILE:LINE` of a field.
    pub(crate) fn place(&self, field: &str) -> String {
        let line = self.lines.line_of(field).unwrap_or(1);
        format!("{}:{line}", self.file)
    }

    /// A problem that only shows once other files have been read.
    pub(crate) fn wrong(&self, field: &str, message: impl Into<String>) -> Wrong {
        let problem = Problem {
            field: field.to_owned(),
            message: message.into(),
        };
        Wrong(vec![shown(&self.file, &self.lines, &problem).1])
    }

    /// A file that a field names cannot be read, which is no mistake of the scenario.
    pub(crate) fn unread(&self, field: &str, message: impl Into<String>) -> Error {
        Error::msg(self.wrong(field, message).to_string())
    }
}

fn shown(file: &str, lines: &Lines, problem: &Problem) -> (u64, String) {
    let line = lines.line_of(&problem.field).unwrap_or(1);
    if file.is_empty() {
        // No file holds the scenario.
        return (line, problem.message.clone());
    }
    let field = match problem.field.as_str() {
        "" => String::new(),
        field => format!(" {field}:"),
    };
    (line, format!("{file}:{line}:{field} {}", problem.message))
}
