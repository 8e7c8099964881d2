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

/// Adds the objects of one file.
///
/// # Errors
/// It is neither YAML nor JSON.
pub(crate) fn add(file: &str, bytes: &[u8], inventory: &mut Inventory) -> Result<()> {
    let text = as_text(bytes).with_context(|| file.to_owned())?;
    for document in documents(text) {
        match document.style() {
            Style::Json => json(file, text, &document, inventory)?,
            Style::Yaml => block(file, text, &document, inventory)?,
        }
    }
    Ok(())
}

fn json(file: &str, text: &str, document: &Document<'_>, inventory: &mut Inventory) -> Result<()> {
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
        value_of(file, line_of(text, offset), value.get(), inventory)?;
    }
    Ok(())
}

fn block(file: &str, text: &str, document: &Document<'_>, inventory: &mut Inventory) -> Result<()> {
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
        return value_of(file, line, &json, inventory);
    };
    let header = yaml::to_json(&parts.header).unwrap_or_default();
    let kind = serde_json::from_str::<Envelope<'_>>(&header).map_or(String::new(), |head| head.kind);
    for (offset, item) in parts.items {
        let line = line_of(text, document.offset + offset);
        let json = yaml::only_item_to_json(item).map_err(|error| invalid(line, &error))?;
        object(file, line, &json, kind.strip_suffix("List"), inventory);
    }
    Ok(())
}

/// An object, or a list of them.
fn value_of(file: &str, line: usize, json: &str, inventory: &mut Inventory) -> Result<()> {
    let envelope: Envelope<'_> = serde_json::from_str(json).map_err(|error| {
        anyhow!(
            "{file}:{line}: is not a Kubernetes object: {}",
            without_place(&error.to_string())
        )
    })?;
    match envelope.items.filter(|_| envelope.kind.ends_with("List")) {
        Some(items) => {
            for item in items {
                object(
                    file,
                    line,
                    item.get(),
                    envelope.kind.strip_suffix("List"),
                    inventory,
                );
            }
        }
        None => object(file, line, json, None, inventory),
    }
    Ok(())
}

fn object(file: &str, line: usize, json: &str, default: Option<&str>, inventory: &mut Inventory) {
    match Object::read(json, default.filter(|kind| !kind.is_empty())) {
        Ok(object) => inventory.add(object),
        Err(error) => say(&format!(
            "note: {file}:{line}: an object cannot be read and is left out: {}",
            without_place(&error.to_string())
        )),
    }
}
