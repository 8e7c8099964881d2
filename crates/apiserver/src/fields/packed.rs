//! How objects keep the field sets of their managers: as text, a tenth of the size of the tree.
//!
//! In memory `metadata.managedFields[*].fieldsV1` is a marked text; all output of the server passes through [`write_json`], which writes that
//! text as the JSON that it is. What comes in and bears the mark is a forgery, and is cleared.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::fields::field_set::{Fields, Step};

/// No field set begins with it, and hardly any other text.
const MARK: char = '\0';
const MARK_BYTES: &[u8; 1] = b"\0";
const KEY: &str = "fieldsV1";

/// A field set as it is kept.
pub(crate) fn pack(fields: &Fields) -> Value {
    let mut text = Vec::from(*MARK_BYTES);
    fields.write(&mut text);
    text.shrink_to_fit();
    Value::String(String::from_utf8(text).unwrap_or_default())
}

/// A field set, kept or as clients send it.
pub(crate) fn unpack(value: &Value) -> Fields {
    match packed(value) {
        Some(text) => read(text).unwrap_or_default(),
        None => Fields::from_json(value),
    }
}

fn read(text: &str) -> Option<Fields> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let mut fields = FieldsReader.deserialize(&mut reader).ok()?;
    // At the top nothing is a leaf.
    fields.own = fields.own && !fields.below.is_empty();
    Some(fields)
}

/// Reads a set from FieldsV1 without a tree of values in between.
struct FieldsReader;

impl<'de> DeserializeSeed<'de> for FieldsReader {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldsReader {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        let mut is_leaf = true;
        while let Some(step) = access.next_key::<Step>()? {
            is_leaf = false;
            let child = access.next_value_seed(Self)?;
            if step == "." {
                fields.own = true;
            } else {
                fields.below.insert(step, child);
            }
        }
        fields.own |= is_leaf;
        Ok(fields)
    }
}

fn packed(value: &Value) -> Option<&str> {
    value.as_str()?.strip_prefix(MARK)
}

/// Turns kept field sets into trees.
pub(crate) fn expand(object: &mut Value) {
    let Some(list) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("managedFields"))
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    for fields in list.iter_mut().filter_map(|entry| entry.get_mut(KEY)) {
        if let Some(tree) = packed(fields).and_then(|text| serde_json::from_str(text).ok()) {
            *fields = tree;
        }
    }
}

/// Clears what only pretends to be a kept field set.
pub(crate) fn clear(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key == KEY && packed(value).is_some() {
                    *value = Value::Null;
                } else {
                    clear(value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(clear),
        _ => {}
    }
}

/// Appends a value as JSON.
pub(crate) fn write_json(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Object(map) => {
            out.push(b'{');
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_member(out, key, value);
            }
            out.push(b'}');
        }
        Value::Array(list) => {
            out.push(b'[');
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_json(out, item);
            }
            out.push(b']');
        }
        // Writing to memory does not fail.
        scalar => drop(serde_json::to_writer(out, scalar)),
    }
}

/// Appends a field of an object.
pub(crate) fn write_member(out: &mut Vec<u8>, key: &str, value: &Value) {
    drop(serde_json::to_writer(&mut *out, key));
    out.push(b':');
    match packed(value) {
        Some(text) if key == KEY => out.extend_from_slice(text.as_bytes()),
        _ => write_json(out, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn field_sets_come_out_as_they_were() {
        let tree = json!({"f:a": {".": {}, "k:{\"name\":\"x\\\"y\"}": {}}, "f:metadata": {"f:labels": {"f:é\n": {}}}});
        let fields = Fields::from_json(&tree);
        let kept = pack(&fields);
        assert_eq!(unpack(&kept), fields);
        let mut object = json!({"metadata": {"managedFields": [{"manager": "m", "fieldsV1": kept}]}});
        let mut out = Vec::new();
        write_json(&mut out, &object);
        let shown: Value = serde_json::from_slice(&out).expect("it is JSON");
        assert_eq!(shown["metadata"]["managedFields"][0]["fieldsV1"], tree);
        expand(&mut object);
        assert_eq!(object, shown);
    }

    #[test]
    fn forgeries_are_cleared() {
        let mut object =
            json!({"spec": [{"fieldsV1": "\u{0}{not json", "other": "\u{0}kept"}], "fieldsV1": "text"});
        clear(&mut object);
        assert_eq!(
            object,
            json!({"spec": [{"fieldsV1": null, "other": "\u{0}kept"}], "fieldsV1": "text"})
        );
    }

    fn any_fields() -> impl Strategy<Value = Fields> {
        let leaf = Just(json!({}));
        let tree = leaf.prop_recursive(4, 20, 4, |inner| {
            let step = prop::sample::select(vec![".", "f:a", "f:\"\\", "k:{\"n\":\"é\"}", "v:1"]);
            prop::collection::btree_map(step, inner, 0..4).prop_map(|map| json!(map))
        });
        tree.prop_map(|tree| {
            let mut fields = Fields::from_json(&tree);
            fields.own &= !fields.below.is_empty();
            fields
        })
    }

    proptest! {
        #[test]
        fn any_field_set_is_read_as_it_was_written(fields in any_fields()) {
            prop_assert_eq!(unpack(&pack(&fields)), fields.clone());
            let mut object = json!({"metadata": {"managedFields": [{"fieldsV1": pack(&fields)}]}});
            expand(&mut object);
            prop_assert_eq!(unpack(&object["metadata"]["managedFields"][0]["fieldsV1"]), fields);
        }

        #[test]
        fn other_values_are_written_as_serde_writes_them(text in "\\PC{0,20}", number in any::<f64>(), whole in any::<i64>()) {
            let value = json!({"a": [text, number, whole, null, true, {}, []], text.clone(): {"fieldsV1": text}});
            let mut out = Vec::new();
            write_json(&mut out, &value);
            prop_assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
    }
}
