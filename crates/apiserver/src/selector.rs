//! Label and field selectors as they stand in query parameters and in objects.

use serde_json::Value;

use crate::error::{ApiError, ApiResult};

/// One requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
    Greater(String, i64),
    Less(String, i64),
}

/// A label selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Reads the text form: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    ///
    /// # Errors
    /// HTTP 400 naming what cannot be read.
    pub fn parse(text: &str) -> ApiResult<Self> {
        let mut requirements = Vec::new();
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            if !part.is_empty() {
                requirements.push(requirement(part).ok_or_else(|| {
                    ApiError::bad_request(format!("unable to parse requirement: couldn't parse the selector string {text:?}: unexpected {part:?}"))
                })?);
            }
        }
        Ok(Self(requirements))
    }

    /// Reads the object form (`matchLabels`, `matchExpressions`). `None` when it cannot be read.
    #[must_use]
    pub fn from_object(selector: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            requirements.push(Requirement::In(key.clone(), vec![value.as_str()?.to_owned()]));
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = expression["key"].as_str()?.to_owned();
            let values = expression["values"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
            requirements.push(match expression["operator"].as_str()? {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::DoesNotExist(key),
                _ => return None,
            });
        }
        Some(Self(requirements))
    }

    /// True when nothing is required.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the labels of an object match.
    #[must_use]
    pub fn matches(&self, labels: &Value) -> bool {
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => {
                label(key).is_some_and(|value| values.iter().any(|wanted| wanted == value))
            }
            Requirement::NotIn(key, values) => {
                label(key).is_none_or(|value| values.iter().all(|unwanted| unwanted != value))
            }
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::DoesNotExist(key) => label(key).is_none(),
            Requirement::Greater(key, bound) => label(key)
                .and_then(|value| value.parse::<i64>().ok())
                .is_some_and(|value| value > *bound),
            Requirement::Less(key, bound) => label(key)
                .and_then(|value| value.parse::<i64>().ok())
                .is_some_and(|value| value < *bound),
        })
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(text: &str) -> Option<Requirement> {
    if let Some(key) = text.strip_prefix('!') {
        return Some(Requirement::DoesNotExist(key_of(key)?));
    }
    for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((key, value)) = text.split_once(operator) {
            let (key, value) = (key_of(key)?, value.trim());
            if !is_value(value) {
                return None;
            }
            let values = vec![value.to_owned()];
            return Some(if negated {
                Requirement::NotIn(key, values)
            } else {
                Requirement::In(key, values)
            });
        }
    }
    for (operator, greater) in [('>', true), ('<', false)] {
        if let Some((key, value)) = text.split_once(operator) {
            let (key, value) = (key_of(key)?, value.trim().parse().ok()?);
            return Some(if greater {
                Requirement::Greater(key, value)
            } else {
                Requirement::Less(key, value)
            });
        }
    }
    if let Some(open) = text.find('(') {
        let values = text[open + 1..].trim_end().strip_suffix(')')?;
        let mut words = text[..open].split_whitespace();
        let (key, operator) = (key_of(words.next()?)?, words.next()?);
        if words.next().is_some() {
            return None;
        }
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if !values.iter().all(|value| is_value(value)) {
            return None;
        }
        return match operator {
            "in" => Some(Requirement::In(key, values)),
            "notin" => Some(Requirement::NotIn(key, values)),
            _ => None,
        };
    }
    key_of(text).map(Requirement::Exists)
}

fn key_of(text: &str) -> Option<String> {
    let text = text.trim();
    let fine = !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/'));
    fine.then(|| text.to_owned())
}

fn is_value(text: &str) -> bool {
    text.len() <= 63
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// A field selector: equalities on dotted paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    /// Reads `metadata.name=a,status.phase!=Running`; `supported` says which paths a resource knows.
    ///
    /// # Errors
    /// HTTP 400 for an unreadable selector or a path that the resource does not index.
    pub fn parse(text: &str, supported: impl Fn(&str) -> bool) -> ApiResult<Self> {
        let mut terms = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (path, equal, value) = if let Some((path, value)) = part.split_once("!=") {
                (path, false, value)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, true, value)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid field selector: {part:?}; can't understand {part:?}"
                )));
            };
            let path = path.trim();
            if !supported(path) {
                return Err(ApiError::bad_request(format!(
                    "field label not supported: {path}"
                )));
            }
            terms.push((path.to_owned(), equal, value.trim().to_owned()));
        }
        Ok(Self(terms))
    }

    /// True when nothing is required.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object matches.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(path, equal, wanted)| {
            let mut here = object;
            for part in path.split('.') {
                here = &here[part];
            }
            let found = match here {
                Value::String(text) => text == wanted,
                Value::Null => wanted.is_empty() || wanted == "false",
                other => &other.to_string() == wanted,
            };
            found == *equal
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn label_selectors() {
        let labels = json!({"app": "web", "tier": "front", "size": "5"});
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app!=web", false),
            ("other!=x", true),
            ("app in (api, web)", true),
            ("app notin (api,web)", false),
            ("missing notin (a)", true),
            ("tier", true),
            ("!tier", false),
            ("!missing", true),
            ("app=web,tier=back", false),
            ("size>4", true),
            ("size<5", false),
            ("app in (web),tier,!x", true),
            ("app=", false),
        ] {
            assert_eq!(
                LabelSelector::parse(text).unwrap().matches(&labels),
                expected,
                "{text:?}"
            );
        }
        for bad in [
            "a b",
            "a in x",
            "a in (b",
            "=b",
            "a=b=c d",
            "!",
            "a near (b)",
            "a>x",
            "a in (b c)",
        ] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn object_selectors() {
        let selector = LabelSelector::from_object(&json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]})).unwrap();
        assert!(selector.matches(&json!({"a": "b"})) && !selector.matches(&json!({"a": "b", "c": "d"})));
        assert!(
            LabelSelector::from_object(&json!({"matchExpressions": [{"key": "c", "operator": "Near"}]}))
                .is_none()
        );
        assert!(LabelSelector::from_object(&json!({})).unwrap().is_empty());
    }

    #[test]
    fn field_selectors() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}});
        let matches = |text: &str| FieldSelector::parse(text, |_| true).unwrap().matches(&pod);
        assert!(
            matches("metadata.name=a,spec.nodeName!=x")
                && matches("status.phase=")
                && !matches("spec.nodeName=")
        );
        assert!(matches("spec.unschedulable=false"));
        let error = FieldSelector::parse("spec.image=x", |path| path == "metadata.name").unwrap_err();
        assert_eq!(error.message, "field label not supported: spec.image");
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,30}") {
            let _ = LabelSelector::parse(&text);
            let _ = FieldSelector::parse(&text, |_| true);
        }
        #[test]
        fn arbitrary_selectorlike_text_never_panics(text in "[a-c!=<>,() ]{0,20}( in| notin)?[a-c,() ]{0,12}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                let _ = selector.matches(&json!({"a": "b"}));
            }
        }
    }
}
