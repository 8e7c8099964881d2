//! Reading JSON that may name a field twice: the last one wins, and the others are reported.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads a value. Also returns the paths of fields that occur more than once.
///
/// # Errors
/// What is no JSON.
pub(crate) fn parse(text: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Reader(&mut duplicates).deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, duplicates))
}

struct Reader<'d>(&'d mut Vec<String>);

impl Reader<'_> {
    /// Paths are built on the way back, so they cost nothing if there are none.
    fn below(&mut self, known: usize, step: &str) {
        for path in &mut self.0[known..] {
            if !path.starts_with('[') {
                path.insert(0, '.');
            }
            path.insert_str(0, step);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let known = self.0.len();
            let Some(item) = access.next_element_seed(Reader(self.0))? else {
                return Ok(Value::Array(list));
            };
            if self.0.len() > known {
                self.below(known, &format!("[{}]", list.len()));
            }
            list.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let known = self.0.len();
            let value = access.next_value_seed(Reader(self.0))?;
            if self.0.len() > known {
                self.below(known, &key);
            }
            if map.contains_key(&key) {
                self.0.push(key.clone());
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn duplicates_are_named_by_their_paths() {
        for (text, expected) in [
            (r#"{"a": 1, "b": [1, {"c": null}]}"#, vec![]),
            (r#"{"a": 1, "a": 2}"#, vec!["a"]),
            (
                r#"{"data": {"k": "1", "k": "2", "k": "3"}}"#,
                vec!["data.k", "data.k"],
            ),
            (
                r#"{"spec": {"containers": [{}, {"name": "a", "env": [[{"x": 1, "x": 1}]], "name": "b"}]}}"#,
                vec!["spec.containers[1].env[0][0].x", "spec.containers[1].name"],
            ),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap().1, expected, "{text}");
        }
        assert_eq!(
            parse(br#"{"a": 1, "a": {"b": 2}}"#).unwrap().0,
            serde_json::json!({"a": {"b": 2}})
        );
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_json_reads(text in "[\\[\\]{}:,\"a-c0-9.eE+ \\\\-]{0,40}") {
            let ours = parse(text.as_bytes()).map(|(value, _)| value).map_err(|error| error.to_string());
            let theirs = serde_json::from_slice::<Value>(text.as_bytes()).map_err(|error| error.to_string());
            prop_assert_eq!(ours, theirs);
        }
    }
}
