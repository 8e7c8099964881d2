//! Where manifests come from: files, read as they are written, each object with its file and the lines of its fields.
//!
//! A document that cannot be read is named with its line and does not keep the others from being read.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::lines::Lines;
use crate::plan::documents::{Document, Style, documents, line_of, list_parts};
use crate::plan::{dump, files};
use crate::yaml;

/// One object with its place.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// The object as written.
    pub(crate) object: Value,
    /// The file's name, as given, or the cluster.
    pub(crate) origin: String,
    /// The line on which it begins; absent in a cluster.
    pub(crate) line: Option<usize>,
    /// The lines of its fields.
    pub(crate) lines: Lines,
}

/// A document that could not be read.
#[derive(Debug)]
pub(crate) struct Problem {
    /// The file's name, as given.
    pub(crate) origin: String,
    /// The line.
    pub(crate) line: usize,
    /// What is wrong, and what to do.
    pub(crate) text: String,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) objects: Vec<Placed>,
    pub(crate) problems: Vec<Problem>,
}

/// Reads all files.
///
/// # Errors
/// A path cannot be opened, or is no text.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Source> {
    let mut source = Source::default();
    for file in files::expand(paths)? {
        let (origin, bytes) = files::bytes_of(&file)?;
        let text = dump::as_text(&bytes).with_context(|| origin.clone())?;
        source.text(&origin, text);
    }
    Ok(source)
}

impl Source {
    /// Reads the documents of one text.
    pub(crate) fn text(&mut self, origin: &str, text: &str) {
        for document in documents(text) {
            let first = line_of(text, document.offset);
            if document.style() == Style::Json {
                self.json(origin, &document, first);
            } else if let Some(parts) = list_parts(document.text).filter(|parts| is_list(&parts.header)) {
                for (offset, item) in parts.items {
                    let first = line_of(text, document.offset + offset);
                    self.yaml(origin, item, true, first);
                }
            } else {
                self.yaml(origin, document.text, false, first);
            }
        }
    }

    fn json(&mut self, origin: &str, document: &Document<'_>, first: usize) {
        for value in serde_json::Deserializer::from_str(document.text).into_iter::<Value>() {
            match value {
                Ok(Value::Array(items)) => items
                    .into_iter()
                    .for_each(|item| self.keep(origin, item, first, &Lines::default())),
                Ok(value) => {
                    // The lines are right where one object is written over several of them.
                    let lines = Lines::of(document.text, false, first);
                    self.keep(origin, value, first, &lines);
                }
                Err(error) => {
                    let line = first + error.line().saturating_sub(1);
                    let message = error.to_string();
                    let text = format!("is not valid JSON: {}", dump::without_place(&message));
                    self.problem(origin, line, document.text, text);
                    return;
                }
            }
        }
    }

    fn yaml(&mut self, origin: &str, text: &str, in_sequence: bool, first: usize) {
        let json = if in_sequence {
            yaml::only_item_to_json(text)
        } else {
            yaml::to_json(text)
        };
        let read = json.map(|json| serde_json::from_str::<Value>(&json));
        match read {
            Ok(Ok(object)) => self.keep(origin, object, first, &Lines::of(text, in_sequence, first)),
            Ok(Err(error)) => self.problem(origin, first, text, error.to_string()),
            Err(error) => {
                let inner = error.location().map_or(1, |location| location.line());
                let line = first + usize::try_from(inner).unwrap_or(1).max(1) - 1;
                let message = error.to_string();
                let told = format!("is not valid YAML: {}", dump::without_place(&message));
                self.problem(origin, line, text, told);
            }
        }
    }

    fn problem(&mut self, origin: &str, line: usize, document: &str, text: String) {
        let text = if dump::is_template(document) {
            format!("{text}; it holds parts of a Helm template: convert what `helm template` prints")
        } else {
            text
        };
        self.problems.push(Problem {
            origin: origin.to_owned(),
            line,
            text,
        });
    }

    fn keep(&mut self, origin: &str, object: Value, line: usize, lines: &Lines) {
        if object.is_null() {
            return;
        }
        let is_list = object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        if is_list && let Some(items) = object["items"].as_array() {
            for item in items {
                self.keep(origin, item.clone(), line, &Lines::default());
            }
            return;
        }
        if let Some(field) = template_field(&object, String::new()) {
            let line = lines
                .line_of(&field)
                .and_then(|line| usize::try_from(line).ok())
                .unwrap_or(line);
            self.problems.push(Problem {
                origin: origin.to_owned(),
                line,
                text: format!("{field} holds part of a Helm template: convert what `helm template` prints"),
            });
            return;
        }
        self.objects.push(Placed {
            object,
            origin: origin.to_owned(),
            line: Some(line),
            lines: lines.clone(),
        });
    }
}

fn is_list(header: &str) -> bool {
    let header = yaml::to_json(header).ok();
    let header: Option<Value> = header.and_then(|header| serde_json::from_str(&header).ok());
    header.is_some_and(|header| header["kind"].as_str().is_some_and(|kind| kind.ends_with("List")))
}

/// The first field with template syntax.
fn template_field(value: &Value, path: String) -> Option<String> {
    match value {
        Value::String(text) => dump::is_template(text).then_some(path),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| template_field(item, format!("{path}[{index}]"))),
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            if dump::is_template(key) {
                return Some(path);
            }
            template_field(value, path)
        }),
        _ => None,
    }
}
