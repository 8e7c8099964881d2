//! ConfigMaps and Secrets: texts that join the data, their size, that an immutable one stays as it is and the type of any, and their columns.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::columns::{AGE, Column, NAME, created, name};
use super::filling::{set, with};
use super::{KindRules, PLAIN};
use crate::cause::Cause;
use crate::checks::immutable;

/// Most bytes in the data of a ConfigMap or Secret.
const MOST_DATA: usize = 1024 * 1024;

pub(super) const CONFIG_MAP: KindRules = KindRules {
    check: |new, old, causes| check("", new, old, causes),
    columns: &[NAME, Column("Data", "string", 0), AGE],
    cells: |object, now| vec![name(object), count(object), created(object, now)],
    ..PLAIN
};

pub(super) const SECRET: KindRules = KindRules {
    default: default_secret,
    check: |new, old, causes| {
        if let Some(old) = old {
            immutable(&new["type"], &old["type"], "type", causes);
        }
        check("data", new, old, causes);
    },
    columns: &[
        NAME,
        Column("Type", "string", 0),
        Column("Data", "integer", 0),
        AGE,
    ],
    cells: secret_cells,
    ..PLAIN
};

fn count(object: &Value) -> Value {
    json!(object["data"].as_object().map_or(0, Map::len))
}

fn secret_cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        object["type"].clone(),
        count(object),
        created(object, now),
    ]
}

/// Texts written as such join the encoded data.
fn default_secret(object: &mut Value) {
    with(object, |object| {
        set(object, "type", json!("Opaque"));
        let Some(Value::Object(texts)) = object.remove("stringData") else {
            return;
        };
        let data = object.entry("data").or_insert_with(|| json!({}));
        for (key, text) in texts {
            data[key] = json!(BASE64_STANDARD.encode(text.as_str().unwrap_or_default().as_bytes()));
        }
    });
}

/// Their size, at `size_field`, and that an immutable one stays as it is.
fn check(size_field: &str, new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let values = ["data", "binaryData"]
        .into_iter()
        .flat_map(|field| new[field].as_object().into_iter().flatten());
    let size: usize = values.map(|(_, value)| value.as_str().map_or(0, str::len)).sum();
    if size > MOST_DATA {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: size_field.to_owned(),
            message: format!("Too long: may not be more than {MOST_DATA} bytes"),
        });
    }
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return;
    };
    if new["immutable"] != true {
        causes.push(forbidden("immutable"));
    }
    for field in ["data", "binaryData"] {
        if new[field] != old[field] {
            causes.push(forbidden(field));
        }
    }
}

fn forbidden(field: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden",
        field: field.to_owned(),
        message: "Forbidden: field is immutable when `immutable` is set".to_owned(),
    }
}
