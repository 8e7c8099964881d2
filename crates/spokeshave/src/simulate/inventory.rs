//! Dumps as inventories: every object of a file handed to the reader of recordings, with its line.
//!
//! Owns the cutting of files; what an object means for a simulation is the business of the crate `scenario`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use serde::Deserialize;
use serde_json::value::RawValue;
use spokeshave_scenario::import::inventory::Inventory;
use spokeshave_scenario::import::objects::Object;

use crate::plan::documents::{Document, Style, documents, line_of, list_parts};
use crate::plan::dump::{as_text, without_place};
use crate::plan::files;
use crate::text::say;
use crate::yaml;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// The workloads and pods of files and directories. An object that cannot be read is named on standard error and left out.
///
/// # Errors
/// A file cannot be read, or is neither YAML nor JSON.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Inventory> {
    let mut inventory = Inventory::default();
    for path in files::expand(paths)? {
        let (file, bytes) = files::bytes_of(&path)?;
        add(&file, &bytes, &mut inventory)?;
    }
    Ok(inventory)
}

/// One object of a file.
pub(crate) struct Piece<'a> {
    /// The line on which it begins.
    pub(crate) line: usize,
    /// It, as JSON.
    pub(crate) json: &'a str,
    /// The kind of the items of its list, for one that does not say its own.
    pub(crate) kind: Option<&'a str>,
    /// Its text, from that line on.
    pub(crate) text: &'a str,
    /// The text is a sequence of which it is the one element.
    pub(crate) in_sequence: bool,
}

/// Takes objects, in the order of their file.
type Take<'t> = &'t mut dyn FnMut(&Piece<'_>);

/// Adds the objects of one file.
///
/// # Errors
/// It is neither YAML nor JSON.
pub(crate) fn add(file: &str, bytes: &[u8], inventory: &mut Inventory) -> Result<()> {
    let mut take = |piece: &Piece<'_>| object(file, piece, inventory);
    each(file, bytes, &mut take)
}

/// Hands over the objects of one file.
///
/// # Errors
/// It is neither YAML nor JSON.
pub(crate) fn each(file: &str, bytes: &[u8], take: Take<'_>) -> Result<()> {
    let text = as_text(bytes).with_context(|| file.to_owned())?;
    for document in documents(text) {
        match document.style() {
            Style::Json => json(file, text, &document, take)?,
            Style::Yaml => block(file, text, &document, take)?,
        }
    }
    Ok(())
}

fn json(file: &str, text: &str, document: &Document<'_>, take: Take<'_>) -> Result<()> {
    let mut stream = serde_json::Deserializer::from_str(document.text).into_iter::<&RawValue>();
    while let Some(value) = stream.next() {
        let first = line_of(text, document.offset);
        let value = value.map_err(|error| {
            let line = first + error.line().saturating_sub(1);
            anyhow!(
                "{file}:{line}: is not valid JSON: {}",
                without_place(&error.to_string())
            )
        })?;
        let offset = document.offset + (stream.byte_offset() - value.get().len());
        let mut walk = Walk::new(value.get(), line_of(text, offset));
        let values: Vec<&RawValue> = serde_json::from_str(value.get()).unwrap_or_else(|_| vec![value]);
        for one in values {
            value_of(file, walk.line_of(one.get()), one.get(), one.get(), take)?;
        }
    }
    Ok(())
}

/// Finds the lines of parts of a text that are asked for in order, in one walk over it.
struct Walk<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl<'t> Walk<'t> {
    fn new(text: &'t str, line: usize) -> Self {
        Walk { text, at: 0, line }
    }

    fn line_of(&mut self, part: &str) -> usize {
        let begin = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let passed = self.text.as_bytes().get(self.at..begin).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.at = self.at.max(begin);
        self.line
    }
}

fn block(file: &str, text: &str, document: &Document<'_>, take: Take<'_>) -> Result<()> {
    let invalid = |line: usize, error: &yaml::Problem| {
        let inner = error.location().map_or(1, |location| location.line());
        let line = line + usize::try_from(inner).unwrap_or(1).max(1) - 1;
        anyhow!(
            "{file}:{line}: is not valid YAML: {}",
            without_place(&error.to_string())
        )
    };
    let Some(parts) = list_parts(document.text) else {
        let line = line_of(text, document.offset);
        let json = yaml::to_json(document.text).map_err(|error| invalid(line, &error))?;
        return value_of(file, line, &json, document.text, take);
    };
    let header = yaml::to_json(&parts.header).unwrap_or_default();
    let kind = serde_json::from_str::<Envelope<'_>>(&header).map_or(String::new(), |head| head.kind);
    for (offset, item) in parts.items {
        let line = line_of(text, document.offset + offset);
        let json = yaml::only_item_to_json(item).map_err(|error| invalid(line, &error))?;
        take(&Piece {
            line,
            json: &json,
            kind: kind_of_items(&kind),
            text: item,
            in_sequence: true,
        });
    }
    Ok(())
}

/// An object, or a list of them; `text` is that of the whole.
fn value_of(file: &str, line: usize, json: &str, text: &str, take: Take<'_>) -> Result<()> {
    let envelope: Envelope<'_> = serde_json::from_str(json).map_err(|error| {
        anyhow!(
            "{file}:{line}: is not a Kubernetes object: {}",
            without_place(&error.to_string())
        )
    })?;
    match envelope.items.filter(|_| envelope.kind.ends_with("List")) {
        Some(items) => {
            let mut walk = Walk::new(json, line);
            for item in items {
                take(&Piece {
                    line: walk.line_of(item.get()),
                    json: item.get(),
                    kind: kind_of_items(&envelope.kind),
                    text: item.get(),
                    in_sequence: false,
                });
            }
        }
        None => take(&Piece {
            line,
            json,
            kind: None,
            text,
            in_sequence: false,
        }),
    }
    Ok(())
}

/// `Pod` of a `PodList`.
fn kind_of_items(kind: &str) -> Option<&str> {
    kind.strip_suffix("List").filter(|kind| !kind.is_empty())
}

fn object(file: &str, piece: &Piece<'_>, inventory: &mut Inventory) {
    match Object::read(piece.json, piece.kind) {
        Ok(object) => inventory.add(object),
        Err(error) => say(&format!(
            "note: {file}:{}: an object cannot be read and is left out: {}",
            piece.line,
            without_place(&error.to_string())
        )),
    }
}
