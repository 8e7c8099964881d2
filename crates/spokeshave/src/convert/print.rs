//! The output of `convert`: manifests, the text report, and both as JSON.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use spokeshave_convert::{Change, Level, Line};

use super::source::{Placed, Problem};
use crate::text::count;

/// Of the document for machines; docs/convert.md names every field.
pub(crate) const API_VERSION: &str = "convert.spokeshave.dev/v1alpha1";

/// A line of the report with its place.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) level: Level,
    pub(crate) change: Change,
    #[serde(rename = "file")]
    pub(crate) origin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    /// `Provisioner default`; empty for what could not be read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) object: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) field: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) became: Option<String>,
    pub(crate) text: String,
}

impl Entry {
    pub(crate) fn of(line: &Line, placed: &Placed) -> Self {
        let own = placed.lines.line_of(&line.field);
        Self {
            level: line.change.level(),
            change: line.change,
            origin: placed.origin.clone(),
            line: own.and_then(|line| usize::try_from(line).ok()).or(placed.line),
            object: super::named(&placed.object),
            field: line.field.clone(),
            became: line.became.clone(),
            text: line.text.clone(),
        }
    }

    pub(crate) fn unreadable(problem: Problem) -> Self {
        Self {
            level: Change::Unreadable.level(),
            change: Change::Unreadable,
            origin: problem.origin,
            line: Some(problem.line),
            object: String::new(),
            field: String::new(),
            became: None,
            text: problem.text,
        }
    }
}

/// Everything that is printed.
#[derive(Debug)]
pub(crate) struct Printed {
    /// Objects, with what each was made from.
    pub(crate) objects: Vec<(String, Value)>,
    pub(crate) entries: Vec<Entry>,
    /// Objects that are as they were.
    pub(crate) unchanged: usize,
    /// Objects that would be refused.
    pub(crate) refused: usize,
}

impl Printed {
    fn entries_of(&self, level: Level) -> usize {
        self.entries.iter().filter(|entry| entry.level == level).count()
    }
}

/// The objects as YAML documents, each under a comment that says where it is from.
///
/// # Errors
/// An object cannot be written as YAML.
pub(crate) fn manifests(printed: &Printed) -> Result<String> {
    let mut text = String::new();
    for (comment, object) in &printed.objects {
        writeln!(text, "---\n# {comment}")?;
        text.push_str(&serde_saphyr::to_string(object)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

/// The text report: one line each, then a summary.
pub(crate) fn report(printed: &Printed) -> String {
    let mut text = String::new();
    for entry in &printed.entries {
        let line = entry.line.map(|line| format!(":{line}")).unwrap_or_default();
        let subject = [entry.object.as_str(), entry.field.as_str()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        let became = match &entry.became {
            Some(became) if *became != entry.field => format!(" -> {became}"),
            _ => String::new(),
        };
        let colon = if subject.is_empty() && became.is_empty() {
            ""
        } else {
            ": "
        };
        let _ = writeln!(
            text,
            "{}{line}: {} {subject}{became}{colon}{}",
            entry.origin,
            entry.change.word(),
            entry.text
        );
    }
    let made = printed.objects.len();
    let _ = writeln!(
        text,
        "{} written, {} unchanged, {} refused; {}, {}, {}",
        count(made, "object"),
        printed.unchanged,
        printed.refused,
        count(printed.entries_of(Level::Error), "error"),
        count(printed.entries_of(Level::Warning), "warning"),
        count(printed.entries_of(Level::Note), "note"),
    );
    text
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    objects: Vec<&'a Value>,
    report: &'a [Entry],
    unchanged: usize,
    refused: usize,
}

/// Both in one document.
///
/// # Errors
/// It cannot be written as JSON.
pub(crate) fn json(printed: &Printed) -> Result<String> {
    let document = Document {
        api_version: API_VERSION,
        kind: "Conversion",
        objects: printed.objects.iter().map(|(_, object)| object).collect(),
        report: &printed.entries,
        unchanged: printed.unchanged,
        refused: printed.refused,
    };
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}
