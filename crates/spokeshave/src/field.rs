//! Which field of an object a reader of JSON has stopped at.
//!
//! A parser of typed objects says what it expected, and at which line and column, but not where in the object that is. Following the text up to there once
//! more finds the field, and costs nothing where nothing is wrong. It knows no kinds.

use serde::de::DeserializeOwned;

/// Reads an object from its JSON.
///
/// # Errors
/// Which field cannot be read, what it is, and what was expected.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| problem(text, &error))
}

/// What is wrong with a text and where in the object, without the parser's own place: `spec.containers: invalid type: integer 7, expected a sequence`.
pub(crate) fn problem(text: &str, error: &serde_json::Error) -> String {
    let message = error.to_string();
    let said = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(said, _)| said);
    let said = shortened(said.lines().next().unwrap_or_default());
    match path(text, error) {
        Some(path) => format!("{path}: {said}"),
        None => said,
    }
}

/// So many characters of a value are quoted at most: a file of something else may be one long text.
const LONGEST_QUOTE: usize = 80;

/// With the first value that is quoted cut to its beginning.
fn shortened(said: &str) -> String {
    let Some(begin) = said.find('"') else {
        return said.to_owned();
    };
    let end = after_string(said.as_bytes(), begin);
    match said[begin..end].char_indices().nth(LONGEST_QUOTE) {
        Some((cut, _)) => format!("{}…\"{}", &said[..begin + cut], &said[end..]),
        None => said.to_owned(),
    }
}

/// Where in a text a walk is inside of an object or a list.
enum Level {
    /// At the field of this name, if it has come to one.
    Fields(Option<String>),
    /// At the item of this position.
    Items(usize),
}

/// The field that ends where the parser has stopped, or begins there; none at the top, or where the parser does not say.
fn path(text: &str, error: &serde_json::Error) -> Option<String> {
    let seen = text.get(..offset(text, error)?)?.as_bytes();
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while let Some(byte) = seen.get(at) {
        let mut next = at + 1;
        match byte {
            b'{' => levels.push(Level::Fields(None)),
            b'[' => levels.push(Level::Items(0)),
            b'}' | b']' => drop(levels.pop()),
            b',' => match levels.last_mut() {
                Some(Level::Fields(name)) => *name = None,
                Some(Level::Items(position)) => *position += 1,
                None => {}
            },
            b'"' => {
                next = after_string(seen, at);
                if let Some(Level::Fields(name)) = levels.last_mut()
                    && name.is_none()
                {
                    *name = serde_json::from_slice(&seen[at..next]).ok();
                }
            }
            _ => {}
        }
        at = next;
    }
    if seen.trim_ascii_end().ends_with(b"[") {
        // No item has been read: it is about the list.
        levels.pop();
    }
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Fields(Some(name)) if path.is_empty() => path = name,
            Level::Fields(Some(name)) => path.push_str(&format!(".{name}")),
            Level::Fields(None) => {}
            Level::Items(position) => path.push_str(&format!("[{position}]")),
        }
    }
    (!path.is_empty()).then_some(path)
}

/// Bytes that the parser has gone past.
fn offset(text: &str, error: &serde_json::Error) -> Option<usize> {
    let begin = match error.line().checked_sub(1)? {
        0 => 0,
        lines => text.match_indices('\n').nth(lines - 1)?.0 + 1,
    };
    Some((begin + error.column()).min(text.len()))
}

/// The position after a string that begins at this one.
fn after_string(text: &[u8], begin: usize) -> usize {
    let mut is_escaped = false;
    for (position, byte) in text.iter().enumerate().skip(begin + 1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return position + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::Node;

    use super::*;

    fn said<T: DeserializeOwned + std::fmt::Debug>(text: &str) -> String {
        read::<T>(text).expect_err("it cannot be read")
    }

    #[test]
    fn the_field_that_cannot_be_read_is_named() {
        type Lists = BTreeMap<String, Vec<BTreeMap<String, i64>>>;
        for (text, field) in [
            (r#"{"a": [{"x": 1}, {"y.z": "two"}]}"#, "a[1].y.z: "),
            ("{\n  \"a\": [],\n  \"b\": 7\n}", "b: "),
            (r#"{"a": [{}, []]}"#, "a[1]: "),
            (r#"{"a": [7]}"#, "a[0]: "),
            (r#"{"a\"}": {}}"#, "a\"}: "),
            (r#"{"é": [{"ü": true}]}"#, "é[0].ü: "),
            (r#"{"a": [{"x": 1, "y": null}], "b": []}"#, "a[0].y: "),
            ("[]", ""),
        ] {
            let message = said::<Lists>(text);
            assert!(
                message.starts_with(&format!("{field}invalid type: ")),
                "{text}: {message}"
            );
            assert!(
                message.contains(", expected ") && !message.contains(" at line "),
                "{message}"
            );
        }
        assert_eq!(
            said::<Lists>(r#"{"a": [{"x": "two"}]}"#),
            "a[0].x: invalid type: string \"two\", expected i64"
        );
        let long = format!(r#"{{"a": [{{"x": "é\"{}"}}]}}"#, "é".repeat(300));
        assert_eq!(
            said::<Lists>(&long),
            format!(
                r#"a[0].x: invalid type: string "é\"{}…", expected i64"#,
                "é".repeat(76)
            )
        );
        let node = r#"{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": []}"#;
        assert!(said::<Node>(node).starts_with("spec: "), "{}", said::<Node>(node));
    }
}
