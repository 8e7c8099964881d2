//! Consumes an object field by field, so that unhandled fields remain and can be reported.

use serde_json::{Map, Value, json};

use crate::report::Notes;

/// The path of a field below another; at the top it is its name.
pub(crate) fn below(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// The fields of an object that have not been taken yet.
pub(crate) struct Fields {
    path: String,
    map: Map<String, Value>,
}

impl Fields {
    /// The fields of a mapping; something else is reported and has none.
    pub(crate) fn of(path: &str, value: Value, notes: &mut Notes) -> Self {
        let map = match value {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => {
                notes.unknown(path, format!("expected a mapping, found {other}; it is left out"));
                Map::new()
            }
        };
        Self {
            path: path.to_owned(),
            map,
        }
    }

    /// The path of a field.
    pub(crate) fn path(&self, key: &str) -> String {
        below(&self.path, key)
    }

    /// Takes a field; null is as absent.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|value| !value.is_null())
    }

    /// Takes the fields of a field.
    pub(crate) fn nested(&mut self, key: &str, notes: &mut Notes) -> Option<Fields> {
        let value = self.take(key)?;
        Some(Fields::of(&self.path(key), value, notes))
    }

    /// The remaining fields.
    pub(crate) fn rest(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.map)
    }

    /// Reports unhandled fields.
    pub(crate) fn report_rest(self, notes: &mut Notes) {
        for (key, value) in &self.map {
            notes.unknown(
                &self.path(key),
                format!("no version of this kind has such a field; its value {value} is left out"),
            );
        }
    }
}

/// Sets a field below others, which are made where they are missing.
pub(crate) fn set(object: &mut Value, path: &[&str], value: Value) {
    let mut place = object;
    for key in path {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[*key];
    }
    *place = value;
}

/// Sets a field if there is a value.
pub(crate) fn set_some(object: &mut Value, path: &[&str], value: Option<Value>) {
    if let Some(value) = value {
        set(object, path, value);
    }
}

/// Removes a field of a mapping somewhere below.
pub(crate) fn remove(object: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut place = object;
    for key in parents {
        place = place.get_mut(*key)?;
    }
    let map = place.as_object_mut()?;
    map.remove(*last)
}

/// A field somewhere below, unless it is null.
pub(crate) fn get<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let mut place = object;
    for key in path {
        place = place.get(*key)?;
    }
    (!place.is_null()).then_some(place)
}

/// A text somewhere below.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> Option<&'a str> {
    get(object, path).and_then(Value::as_str)
}
