//! The two Event APIs: events are kept in the core form and shown in either.

use serde_json::{Map, Value, json};

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
    rename(event, "events.k8s.io/v1", |name| {
        RENAMED.iter().find(|(old, _)| *old == name).map(|(_, new)| *new)
    })
}

/// `events.k8s.io/v1` → `v1`.
pub(crate) fn to_core(event: &Value) -> Value {
    rename(event, "v1", |name| {
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
        assert_eq!(to_core(&new), event);
    }
}
