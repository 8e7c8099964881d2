//! Events: the two APIs, of which the core form is kept and either is shown, and their columns.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::columns::{Column, age, name, plain};
use super::{KindRules, PLAIN};
use crate::schema::{TypeSchema, decode};

pub(super) const RULES: KindRules = KindRules {
    columns: COLUMNS,
    cells,
    ..PLAIN
};

/// Old name, new name.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// `v1` → `events.k8s.io/v1`.
pub(crate) fn to_new(event: &Value) -> Value {
    let mut new = rename(event, "events.k8s.io/v1", |name| {
        RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| *new)
    });
    if let Some(map) = new.as_object_mut() {
        // The old form always has them, the new one only when they say something.
        for name in ["reportingController", "reportingInstance"] {
            if map.get(name).is_some_and(|text| text == "") {
                map.remove(name);
            }
        }
    }
    new
}

/// `events.k8s.io/v1` → `v1`, with what the old form always has.
pub(crate) fn to_core(new_form: &TypeSchema, mut event: Value) -> Value {
    decode::complete(new_form, &mut event);
    rename(&event, "v1", |name| {
        RENAMED.iter().find(|(_, new)| *new == name).map(|(old, _)| *old)
    })
}

fn rename(event: &Value, api_version: &str, new_name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let mut renamed = Map::new();
    for (name, value) in event.as_object().into_iter().flatten() {
        renamed.insert(new_name(name).unwrap_or(name).to_owned(), value.clone());
    }
    renamed.insert("apiVersion".to_owned(), json!(api_version));
    Value::Object(renamed)
}

const COLUMNS: &[Column] = &[
    Column("Last Seen", "string", 0),
    Column("Type", "string", 0),
    Column("Reason", "string", 0),
    Column("Object", "string", 0),
    Column("Subobject", "string", 1),
    Column("Source", "string", 1),
    Column("Message", "string", 0),
    Column("First Seen", "string", 1),
    Column("Count", "string", 1),
    Column("Name", "string", 1),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let since = |time: &Value| time.as_str().map(|text| age(text, now));
    let unknown = || "<unknown>".to_owned();
    let first = since(&object["firstTimestamp"]).or_else(|| since(&object["eventTime"]));
    let first = first.unwrap_or_else(unknown);
    let series = &object["series"];
    // Of a series the event itself tells of the first time only.
    let (last, count) = if series.is_object() {
        (since(&series["lastObservedTime"]), &series["count"])
    } else {
        let last = since(&object["lastTimestamp"]).unwrap_or_else(|| first.clone());
        (Some(last), &object["count"])
    };
    // The new form counts nothing that has happened once.
    let least = i64::from(!series.is_object());
    let involved = &object["involvedObject"];
    let source = object["source"]["component"]
        .as_str()
        .or_else(|| object["reportingComponent"].as_str())
        .unwrap_or_default();
    vec![
        json!(last.unwrap_or_else(unknown)),
        object["type"].clone(),
        object["reason"].clone(),
        json!(format!(
            "{}/{}",
            plain(&involved["kind"]).to_lowercase(),
            plain(&involved["name"])
        )),
        json!(involved["fieldPath"].as_str().unwrap_or_default()),
        json!(source),
        json!(object["message"].as_str().unwrap_or_default().trim()),
        json!(first),
        json!(count.as_i64().unwrap_or(0).max(least)),
        name(object),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_both_ways() {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "involvedObject": {"kind": "Pod"}, "message": "m", "reason": "R",
                           "source": {"component": "c"}, "count": 2, "type": "Normal", "eventTime": null});
        let new = to_new(&event);
        assert_eq!(
            (new["regarding"]["kind"].as_str(), new["note"].as_str()),
            (Some("Pod"), Some("m"))
        );
        let schema = TypeSchema::builtin("events.k8s.io", "v1", "Event").expect("events are known");
        let back = to_core(&schema, new);
        for (name, value) in event.as_object().expect("an object") {
            assert_eq!(&back[name], value, "{name}");
        }
    }
}
