//! The entries of `metadata.managedFields`: how they are read, joined when there are too many, ordered and kept.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::fields::field_set::Fields;
use crate::fields::managed_fields::Writer;
use crate::fields::packed;

/// Entries of updates that an object keeps; beyond them the oldest are joined.
const MOST_UPDATE_MANAGERS: usize = 10;

/// One entry of `metadata.managedFields`.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) manager: String,
    pub(crate) operation: String,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: Option<String>,
    pub(crate) fields: Fields,
}

impl Entry {
    pub(crate) fn new(writer: &Writer<'_>, operation: &str) -> Self {
        Self {
            manager: writer.manager.to_owned(),
            operation: operation.to_owned(),
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            time: None,
            fields: Fields::default(),
        }
    }

    pub(crate) fn is_of(&self, writer: &Writer<'_>, operation: &str) -> bool {
        self.manager == writer.manager
            && self.operation == operation
            && self.subresource == writer.subresource
            && (self.api_version == writer.api_version || operation == "Apply")
    }
}

pub(crate) fn entries(object: &Value) -> Vec<Entry> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = object["metadata"]["managedFields"].as_array();
    list.into_iter()
        .flatten()
        .filter(|entry| entry["manager"].is_string() || entry["operation"].is_string())
        .map(|entry| Entry {
            manager: text(&entry["manager"]),
            operation: text(&entry["operation"]),
            api_version: text(&entry["apiVersion"]),
            subresource: text(&entry["subresource"]),
            time: entry["time"].as_str().map(str::to_owned),
            fields: packed::unpack(&entry["fieldsV1"]),
        })
        .collect()
}

pub(crate) fn store(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    cap_update_managers(&mut entries);
    entries.sort_by(|a, b| {
        (&a.operation, &a.time, &a.manager, &a.api_version, &a.subresource).cmp(&(
            &b.operation,
            &b.time,
            &b.manager,
            &b.api_version,
            &b.subresource,
        ))
    });
    let list: Vec<Value> = entries
        .into_iter()
        .map(|entry| {
            let mut out = json!({
                "manager": entry.manager, "operation": entry.operation, "apiVersion": entry.api_version, "fieldsType": "FieldsV1",
                "fieldsV1": packed::pack(&entry.fields),
            });
            if let Some(time) = entry.time {
                out["time"] = json!(time);
            }
            if !entry.subresource.is_empty() {
                out["subresource"] = json!(entry.subresource);
            }
            out
        })
        .collect();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if list.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), Value::Array(list));
        }
    }
}

/// Joins the oldest updates of one version when there are too many.
fn cap_update_managers(entries: &mut Vec<Entry>) {
    let is_update = |entry: &Entry| entry.operation == "Update";
    while entries.iter().filter(|entry| is_update(entry)).count() > MOST_UPDATE_MANAGERS {
        let mut order: Vec<usize> = (0..entries.len())
            .filter(|index| is_update(&entries[*index]))
            .collect();
        order.sort_by(|a, b| {
            (&entries[*a].time, &entries[*a].manager).cmp(&(&entries[*b].time, &entries[*b].manager))
        });
        let pair = order.iter().enumerate().find_map(|(position, first)| {
            let same = |second: &&usize| entries[**second].api_version == entries[*first].api_version;
            order[position + 1..]
                .iter()
                .find(same)
                .map(|second| (*first, *second))
        });
        let Some((first, second)) = pair else { return };
        let joined = entries[first].fields.clone();
        let entry = &mut entries[second];
        entry.fields.union(&joined);
        "ancient-changes".clone_into(&mut entry.manager);
        entry.subresource.clear();
        entries.remove(first);
    }
}

pub(crate) fn time_text(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
