//! YAML as JSON text, so that typed objects are read from one format only, and YAML with line numbers.
//!
//! It knows nothing about Kubernetes.

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Error, Spanned};

/// Why a text is not YAML.
pub(crate) type Problem = Error;

/// One document as JSON, in one line.
///
/// # Errors
/// The text is not valid YAML.
pub(crate) fn to_json(text: &str) -> Result<String, Error> {
    let value: Value = read(text)?;
    Ok(value.to_string())
}

/// The first item of a document that is a sequence, as JSON, in one line.
///
/// # Errors
/// The text is not valid YAML, or no sequence with an item.
pub(crate) fn only_item_to_json(text: &str) -> Result<String, Error> {
    let items: Vec<Value> = read(text)?;
    let item = items
        .first()
        .ok_or_else(|| Error::custom("expected an item of a list"))?;
    Ok(item.to_string())
}

/// The same, with every value on the line that it has in the YAML.
///
/// # Errors
/// As the other two.
pub(crate) fn to_json_by_line(text: &str, only_item: bool) -> Result<String, Error> {
    let tree: Spanned<Tree> = read(text)?;
    let mut json = ByLine {
        text: Vec::with_capacity(text.len()),
        line: 1,
    };
    match &tree.value {
        Tree::List(items) if only_item && !items.is_empty() => json.value(&items[0]),
        _ => json.value(&tree),
    }
    Ok(String::from_utf8(json.text).expect("JSON is written as UTF-8"))
}

/// A document whose parts know their line; JSON is YAML, too.
///
/// # Errors
/// The text is not valid YAML.
pub(crate) fn tree(text: &str) -> Result<Spanned<Tree>, Error> {
    read(text)
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false })
}

/// Writes a value that is finite and has only strings as keys.
fn put<T: serde::Serialize + ?Sized>(json: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(json, value).expect("a scalar is written into memory");
}

/// A document whose parts know their place.
pub(crate) enum Tree {
    Scalar(Value),
    List(Vec<Spanned<Tree>>),
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }
}

/// JSON text that breaks its lines where the YAML did.
struct ByLine {
    text: Vec<u8>,
    line: u64,
}

impl ByLine {
    fn advance(&mut self, line: u64) {
        while self.line < line {
            self.text.push(b'\n');
            self.line += 1;
        }
    }

    fn value(&mut self, tree: &Spanned<Tree>) {
        self.advance(tree.referenced.line());
        match &tree.value {
            Tree::Scalar(value) => put(&mut self.text, value),
            Tree::List(items) => {
                self.text.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.text.push(b',');
                    }
                    self.value(item);
                }
                self.text.push(b']');
            }
            Tree::Map(entries) => {
                self.text.push(b'{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        self.text.push(b',');
                    }
                    self.advance(key.referenced.line());
                    put(&mut self.text, &key.value);
                    self.text.push(b':');
                    self.value(value);
                }
                self.text.push(b'}');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "\
# a comment
a: 1
b: [yes, true, null, ~, 1.5, -3, \"1\"]
c:
  d: |
    two
    lines
  \"e\\\"\": {}
f: []
g: 2026-01-01T00:00:00Z
";

    #[test]
    fn yaml_becomes_the_same_json_in_one_line_and_by_line() {
        // `yes` is what kubectl, which reads YAML 1.1, takes it for.
        let expected = json!({
            "a": 1, "b": [true, true, null, null, 1.5, -3, "1"], "c": {"d": "two\nlines\n", "e\"": {}},
            "f": [], "g": "2026-01-01T00:00:00Z",
        });
        for json in [to_json(TEXT).unwrap(), to_json_by_line(TEXT, false).unwrap()] {
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), expected, "{json}");
        }
        let item = "- x: 1\n  y: two\n";
        for json in [
            only_item_to_json(item).unwrap(),
            to_json_by_line(item, true).unwrap(),
        ] {
            assert_eq!(
                serde_json::from_str::<Value>(&json).unwrap(),
                json!({"x": 1, "y": "two"})
            );
        }
    }

    #[test]
    fn values_keep_their_lines() {
        let json = to_json_by_line(TEXT, false).unwrap();
        for (value, line) in [
            ("\"a\":1", 2),
            ("1.5", 3),
            ("\"c\":", 4),
            ("\"f\":[]", 9),
            ("\"g\":", 10),
        ] {
            let at = json.find(value).unwrap_or_else(|| panic!("{value} in {json}"));
            assert_eq!(1 + json[..at].matches('\n').count(), line, "{value} in {json}");
        }
    }

    #[test]
    fn what_is_no_yaml_is_refused() {
        for text in ["a: [", "a: b: c", "- a\nb: 1"] {
            assert!(
                to_json(text).is_err() && to_json_by_line(text, false).is_err(),
                "{text}"
            );
        }
        assert!(only_item_to_json("a: 1").is_err() && only_item_to_json("[]").is_err());
    }
}
