//! The subset of JSONPath that printer columns use: fields with escaped dots, `[*]`, `[n]` and `[?(@.a=="b")]`.

use serde_json::Value;

/// All values at a path, without nulls; none where the path cannot be read.
pub(crate) fn json_path<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    let mut rest = path.trim().trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let Some(end) = closing(after) else {
                return Vec::new();
            };
            let inner = &after[..end];
            rest = &after[end + 1..];
            found = found
                .into_iter()
                .flat_map(|value| subscript(value, inner))
                .collect();
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let (name, after) = field_name(rest);
            rest = after;
            if !name.is_empty() {
                found = found.into_iter().filter_map(|value| value.get(&name)).collect();
            } else if !rest.starts_with('[') {
                return found;
            }
        }
    }
    found.retain(|value| !value.is_null());
    found
}

fn closing(text: &str) -> Option<usize> {
    let mut quoted = None;
    for (index, character) in text.char_indices() {
        match (quoted, character) {
            (None, ']') => return Some(index),
            (None, '"' | '\'') => quoted = Some(character),
            (Some(open), character) if open == character => quoted = None,
            _ => {}
        }
    }
    None
}

fn field_name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[index..]),
            other => name.push(other),
        }
    }
    (name, "")
}

fn subscript<'a>(value: &'a Value, inner: &str) -> Vec<&'a Value> {
    if inner == "*" {
        return match value {
            Value::Array(list) => list.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        };
    }
    if let Some(filter) = inner
        .strip_prefix("?(")
        .and_then(|filter| filter.strip_suffix(')'))
    {
        let Some((left, right)) = filter.split_once("==") else {
            return Vec::new();
        };
        let wanted = right.trim().trim_matches(['"', '\'']);
        let path = left.trim().trim_start_matches('@');
        let list = value.as_array().into_iter().flatten();
        return list
            .filter(|item| {
                json_path(item, path)
                    .first()
                    .is_some_and(|found| text(found) == wanted)
            })
            .collect();
    }
    if let Ok(index) = inner.parse::<usize>() {
        return value.get(index).into_iter().collect();
    }
    value.get(inner.trim_matches(['"', '\''])).into_iter().collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_paths_of_printer_columns() {
        let object = json!({"metadata": {"labels": {"karpenter.sh/nodepool": "a"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]}, "list": [1, 2]});
        let found = |path: &str| json_path(&object, path).into_iter().map(text).collect::<Vec<_>>();
        assert_eq!(found(r".metadata.labels.karpenter\.sh/nodepool"), ["a"]);
        assert_eq!(found(".status.conditions[?(@.type==\"Ready\")].status"), ["True"]);
        assert_eq!(found(".status.conditions[*].type"), ["Ready", "X"]);
        assert_eq!(found(".list[1]"), ["2"]);
        assert!(found(".nothing.here").is_empty() && found(".list[").is_empty());
    }
}
