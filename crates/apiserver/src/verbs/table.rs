//! Tables: what `kubectl get` shows, printed on the server as a real one does.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json_path::json_path;
use crate::kinds::columns::{Column, NAME, age, plain};
use crate::kinds::rules;
use crate::store::registry::Resource;
use crate::verbs::reading::partial;
use crate::wire::accept::MetaVersion;
use crate::wire::request::Request;

/// What comes along with each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

pub(crate) fn include(request: &Request) -> Include {
    match request.parameter("includeObject") {
        "None" => Include::Nothing,
        "Object" => Include::Object,
        _ => Include::Metadata,
    }
}

/// A table of objects.
pub(crate) fn render(
    resource: &Resource,
    objects: &[&Value],
    list_meta: &Value,
    (version, include): (MetaVersion, Include),
    now: Timestamp,
) -> Value {
    let (columns, rows): (Vec<Value>, Vec<Vec<Value>>) = match resource.custom() {
        Some(version) => custom(&version.printer_columns(), objects, now),
        None => {
            let rules = rules(&resource.group, &resource.kind);
            let rows = objects.iter().map(|object| (rules.cells)(object, now)).collect();
            (rules.columns.iter().map(column).collect(), rows)
        }
    };
    let rows: Vec<Value> = rows
        .into_iter()
        .zip(objects)
        .map(|(cells, object)| {
            let mut row = json!({"cells": cells});
            match include {
                Include::Nothing => row["object"] = Value::Null,
                Include::Metadata => row["object"] = partial(object, version),
                Include::Object => row["object"] = (*object).clone(),
            }
            row
        })
        .collect();
    json!({"kind": "Table", "apiVersion": version.api_version(), "metadata": list_meta, "columnDefinitions": columns, "rows": rows})
}

fn column(column: &Column) -> Value {
    let format = if column.0 == "Name" { "name" } else { "" };
    json!({"name": column.0, "type": column.1, "format": format, "description": "", "priority": column.2})
}

fn custom(printers: &[Value], objects: &[&Value], now: Timestamp) -> (Vec<Value>, Vec<Vec<Value>>) {
    let mut columns = vec![column(&NAME)];
    for printer in printers {
        columns.push(json!({
            "name": printer["name"], "type": printer["type"], "format": printer["format"].as_str().unwrap_or_default(),
            "description": printer["description"].as_str().unwrap_or_default(), "priority": printer["priority"].as_i64().unwrap_or(0),
        }));
    }
    let rows = objects
        .iter()
        .map(|object| {
            let mut cells = vec![object["metadata"]["name"].clone()];
            for printer in printers {
                let found = json_path(object, printer["jsonPath"].as_str().unwrap_or_default());
                cells.push(match (printer["type"].as_str().unwrap_or_default(), &found[..]) {
                    (_, []) => Value::Null,
                    ("date", [first, ..]) => json!(
                        first
                            .as_str()
                            .map_or_else(|| "<unknown>".to_owned(), |text| age(text, now))
                    ),
                    ("string", [one]) => json!(plain(one)),
                    ("string", many) => json!(
                        many.iter()
                            .map(|value| plain(value))
                            .collect::<Vec<_>>()
                            .join(",")
                    ),
                    (_, [first, ..]) => (*first).clone(),
                });
            }
            cells
        })
        .collect();
    (columns, rows)
}
