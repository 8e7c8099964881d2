//! Values and names as rules see them: JSON becomes CEL's values by the schema of its place, and names become identifiers.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;

use super::formats::Format;
use super::rules::Position;
use super::structural::{Kind, Structural};

/// A value as rules see it: by its declared type, objects with their declared fields only.
pub(super) fn convert(at: Position<'_>, value: &Value) -> Cel {
    let schema = at.node;
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match (schema.kind, number.as_i64(), number.as_f64()) {
            (Some(Kind::Number), _, Some(float)) => Cel::Float(float),
            (_, Some(integer), _) => Cel::Int(integer),
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a whole number, checked against the schema"
            )]
            (Some(Kind::Integer), None, Some(float)) => Cel::Int(float as i64),
            (_, _, float) => Cel::Float(float.unwrap_or(f64::NAN)),
        },
        Value::String(text) => convert_text(schema, text),
        Value::Array(list) => {
            let item = |item| {
                schema.items.as_deref().map_or_else(
                    || convert_open(item),
                    |items| convert(Position::below(items), item),
                )
            };
            Cel::List(Arc::new(list.iter().map(item).collect()))
        }
        Value::Object(map) => {
            let fields = map.iter().filter_map(|(key, child)| {
                if let Some(node) = schema.properties.get(key) {
                    let value = if at.root && key == "metadata" {
                        convert_metadata(node, child)
                    } else {
                        convert(Position::below(node), child)
                    };
                    return Some((escape(key)?, value));
                }
                match (at.root, key.as_str(), &schema.additional) {
                    (true, "apiVersion" | "kind", _) => Some((key.clone(), convert_open(child))),
                    (true, "metadata", _) => {
                        Some((key.clone(), convert_metadata(&Structural::default(), child)))
                    }
                    (_, _, Some(values)) => Some((key.clone(), convert(Position::below(values), child))),
                    _ if schema.properties.is_empty() => Some((key.clone(), convert_open(child))),
                    _ => None,
                }
            });
            map_of(fields)
        }
    }
}

fn map_of(fields: impl Iterator<Item = (String, Cel)>) -> Cel {
    // The CEL crate's type, which nothing goes through in its random order.
    let map: HashMap<Key, Cel> = fields
        .map(|(key, value)| (Key::String(Arc::new(key)), value))
        .collect();
    Cel::Map(Map { map: Arc::new(map) })
}

/// Of metadata, rules see the names, and what the schema declares.
fn convert_metadata(node: &Structural, metadata: &Value) -> Cel {
    let fields = metadata
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, child)| match node.properties.get(key) {
            Some(node) => Some((escape(key)?, convert(Position::below(node), child))),
            None if matches!(key.as_str(), "name" | "generateName") => {
                Some((key.clone(), convert_open(child)))
            }
            None => None,
        });
    map_of(fields)
}

fn convert_open(value: &Value) -> Cel {
    match value {
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(convert_open).collect())),
        Value::Object(map) => map_of(map.iter().map(|(key, child)| (key.clone(), convert_open(child)))),
        scalar => convert(
            Position {
                node: &Structural::default(),
                root: false,
            },
            scalar,
        ),
    }
}

/// An object without a schema, all of its fields as they are named; who owns which field is not shown.
pub(crate) fn open(object: &Value) -> Cel {
    let Value::Object(map) = object else {
        return convert_open(object);
    };
    let fields = map.iter().map(|(key, value)| {
        let metadata = value.as_object().filter(|_| key == "metadata");
        let value = match metadata {
            Some(metadata) => {
                let shown = metadata.iter().filter(|(key, _)| *key != "managedFields");
                map_of(shown.map(|(key, value)| (key.clone(), convert_open(value))))
            }
            None => convert_open(value),
        };
        (key.clone(), value)
    });
    map_of(fields)
}

fn convert_text(schema: &Structural, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    match schema.text_format {
        Some(Format::DateTime) => text.parse().map_or_else(|_| plain(), Cel::Timestamp),
        Some(Format::Date) => format!("{text}T00:00:00Z")
            .parse()
            .map_or_else(|_| plain(), Cel::Timestamp),
        Some(Format::Duration) => duration(text).unwrap_or_else(plain),
        Some(Format::Byte) => decode_base64(text).map_or_else(plain, |bytes| Cel::Bytes(Arc::new(bytes))),
        _ => plain(),
    }
}

thread_local! {
    static DURATION: Option<Program> = Program::compile("duration(text)").ok();
}

/// CEL's own function makes the value, so no other crate's duration type is needed here.
fn duration(text: &str) -> Option<Cel> {
    DURATION.with(|program| {
        let mut context = Context::default();
        context.add_variable_from_value("text", text.to_owned());
        program.as_ref()?.execute(&context).ok()
    })
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut buffer = 0_u32;
    let mut bits = 0;
    for byte in text.trim_end_matches('=').bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = buffer << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(buffer >> bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A field's name as an identifier; `None` when it cannot be one, and rules cannot see the field.
pub(crate) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '_' if rest.peek() == Some(&'_') => {
                rest.next();
                out.push_str("__underscores__");
            }
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            other if other.is_ascii_alphanumeric() || other == '_' => out.push(other),
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        for (name, escaped) in [
            ("a", Some("a")),
            ("a_b", Some("a_b")),
            ("a__b", Some("a__underscores__b")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("namespace", Some("__namespace__")),
            ("int", Some("int")),
            ("1a", None),
            ("ä", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }

    #[test]
    fn bytes_are_decoded() {
        assert_eq!(decode_base64("YWJj").as_deref(), Some(&b"abc"[..]));
        assert_eq!(decode_base64("YQ==").as_deref(), Some(&b"a"[..]));
        assert_eq!(decode_base64("?"), None);
    }
}
