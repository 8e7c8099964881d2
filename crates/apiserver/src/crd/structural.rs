//! The compiled form of a definition's schema, and what follows from it for any object: defaults, and nulls that mean nothing.
//!
//! Validation of values is in `values`, of rules in `rules`; whether a schema itself is acceptable is the business of `definition`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regex::Regex;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use super::formats::Format;
use super::rules::Rule;

/// The type that a schema declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Kind {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How the elements of a list are identified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// A bound of a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) exclusive: bool,
}

/// A node of a compiled schema.
#[derive(Debug, Default)]
pub(crate) struct Structural {
    pub(crate) kind: Option<Kind>,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) embedded: bool,
    /// The format's name as written, when it is one that is checked for the type.
    pub(crate) format: Option<String>,
    pub(crate) text_format: Option<Format>,
    pub(crate) list: ListType,
    pub(crate) properties: BTreeMap<String, Structural>,
    pub(crate) additional: Option<Box<Structural>>,
    pub(crate) items: Option<Box<Structural>>,
    pub(crate) default: Option<Value>,
    pub(crate) required: Vec<String>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) pattern: Option<(String, Option<Arc<Regex>>)>,
    pub(crate) min_items: Option<i64>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) all_of: Vec<Structural>,
    pub(crate) any_of: Vec<Structural>,
    pub(crate) one_of: Vec<Structural>,
    pub(crate) not: Option<Box<Structural>>,
    pub(crate) rules: Vec<Rule>,
    /// Whether there is a rule here or below, and whether one compares with the old value.
    pub(crate) has_rules: bool,
    pub(crate) has_transition_rules: bool,
    /// Whether a list here or below is a set or a map, or an object carries its own kind.
    pub(crate) has_keyed_lists: bool,
    pub(crate) has_embedded: bool,
}

impl Structural {
    /// Compiles a schema; what is wrong with it is reported by `definition`, here it only has no effect.
    pub(crate) fn compile(raw: &Value) -> Self {
        let flag = |key: &str| raw[key].as_bool().unwrap_or(false);
        let bound = |key: &str, exclusive: &str| {
            raw[key].as_f64().map(|value| Bound {
                value,
                exclusive: flag(exclusive),
            })
        };
        let child = |key: &str| {
            raw.get(key)
                .filter(|child| child.is_object())
                .map(|child| Box::new(Self::compile(child)))
        };
        let children = |key: &str| {
            raw[key]
                .as_array()
                .into_iter()
                .flatten()
                .map(Self::compile)
                .collect::<Vec<_>>()
        };
        let texts = |key: &str| {
            raw[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let int_or_string = flag("x-kubernetes-int-or-string");
        let kind = raw["type"].as_str().and_then(Kind::named);
        let (format, text_format) = format(raw, kind, int_or_string);
        let mut node = Self {
            kind,
            nullable: flag("nullable"),
            int_or_string,
            embedded: flag("x-kubernetes-embedded-resource"),
            format,
            text_format,
            list: match raw["x-kubernetes-list-type"].as_str() {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(texts("x-kubernetes-list-map-keys")),
                _ => ListType::Atomic,
            },
            properties: raw["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, raw)| (name.clone(), Self::compile(raw)))
                .collect(),
            additional: child("additionalProperties"),
            items: child("items"),
            default: raw.get("default").filter(|default| !default.is_null()).cloned(),
            required: texts("required"),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: raw["multipleOf"].as_f64(),
            min_length: raw["minLength"].as_i64(),
            max_length: raw["maxLength"].as_i64(),
            pattern: raw["pattern"]
                .as_str()
                .filter(|text| !text.is_empty())
                .map(|text| (text.to_owned(), pattern(text))),
            min_items: raw["minItems"].as_i64(),
            max_items: raw["maxItems"].as_i64(),
            min_properties: raw["minProperties"].as_i64(),
            max_properties: raw["maxProperties"].as_i64(),
            enumeration: raw["enum"].as_array().cloned().unwrap_or_default(),
            all_of: children("allOf"),
            any_of: children("anyOf"),
            one_of: children("oneOf"),
            not: child("not"),
            rules: Rule::compile_all(&raw["x-kubernetes-validations"]),
            ..Self::default()
        };
        node.summarise();
        node
    }

    fn summarise(&mut self) {
        let below = || {
            self.properties
                .values()
                .chain(self.additional.as_deref())
                .chain(self.items.as_deref())
        };
        let has_rules = !self.rules.is_empty() || below().chain(&self.all_of).any(|node| node.has_rules);
        let has_transition_rules = self.rules.iter().any(|rule| rule.uses_old_self)
            || below().chain(&self.all_of).any(|node| node.has_transition_rules);
        let has_keyed_lists = self.list != ListType::Atomic || below().any(|node| node.has_keyed_lists);
        let has_embedded = self.embedded || below().any(|node| node.has_embedded);
        self.has_rules = has_rules;
        self.has_transition_rules = has_transition_rules;
        self.has_keyed_lists = has_keyed_lists;
        self.has_embedded = has_embedded;
    }

    /// The schema of a field or of a map's value.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// Removes nulls that are neither allowed nor replaced by a default.
    pub(crate) fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, value| {
                    let Some(node) = self.field(key) else { return true };
                    if value.is_null() && !node.nullable && node.default.is_none() {
                        return false;
                    }
                    node.drop_nulls(value);
                    true
                });
            }
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    list.iter_mut().for_each(|item| items.drop_nulls(item));
                }
            }
            _ => {}
        }
    }

    /// Fills in defaults, also inside of what is filled in.
    pub(crate) fn fill_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(map) => self.fill_map(map),
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    for item in list {
                        items.replace_null(item);
                        items.fill_defaults(item);
                    }
                }
            }
            _ => {}
        }
    }

    fn fill_map(&self, map: &mut Map<String, Value>) {
        for (name, property) in &self.properties {
            let Some(default) = &property.default else {
                continue;
            };
            match map.get_mut(name) {
                None => drop(map.insert(name.clone(), default.clone())),
                Some(value) => property.replace_null(value),
            }
        }
        for (key, value) in map.iter_mut() {
            if let Some(property) = self.properties.get(key) {
                property.fill_defaults(value);
            } else if let Some(values) = &self.additional {
                values.replace_null(value);
                values.fill_defaults(value);
            }
        }
    }

    fn replace_null(&self, value: &mut Value) {
        if value.is_null()
            && !self.nullable
            && let Some(default) = &self.default
        {
            *value = default.clone();
        }
    }
}

/// The format's name when it is checked for the type, and the check of a text.
fn format(raw: &Value, kind: Option<Kind>, int_or_string: bool) -> (Option<String>, Option<Format>) {
    let Some(name) = raw["format"].as_str().filter(|_| !int_or_string) else {
        return (None, None);
    };
    match kind {
        None | Some(Kind::String) => match Format::named(name) {
            Some(format) => (Some(name.to_owned()), Some(format)),
            None => (None, None),
        },
        Some(Kind::Integer) if matches!(name, "int32" | "int64") => (Some(name.to_owned()), None),
        Some(Kind::Number) if matches!(name, "float" | "double") => (Some(name.to_owned()), None),
        _ => (None, None),
    }
}

/// Compiled patterns; `None` for one that does not compile. Patterns come from definitions, so there are few.
static PATTERNS: Mutex<Option<FxHashMap<String, Option<Arc<Regex>>>>> = Mutex::new(None);

/// A pattern as Go's RE2 understands it; `None` when it does not compile.
pub(crate) fn pattern(text: &str) -> Option<Arc<Regex>> {
    let mut patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    let patterns = patterns.get_or_insert_with(FxHashMap::default);
    if let Some(known) = patterns.get(text) {
        return known.clone();
    }
    let compiled = Regex::new(&as_regex(text)).ok().map(Arc::new);
    patterns.insert(text.to_owned(), compiled.clone());
    compiled
}

/// RE2 accepts any escaped punctuation, an unclosed `]` or `}` and ASCII-only classes; this engine wants them spelled out.
fn as_regex(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut in_class = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('d') => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
                Some('D') if !in_class => out.push_str("[^0-9]"),
                Some('w') => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                Some('W') if !in_class => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str(if in_class { r"\t\n\f\r " } else { r"[\t\n\f\r ]" }),
                Some('S') if !in_class => out.push_str(r"[^\t\n\f\r ]"),
                Some('b') => out.push_str("(?-u:\\b)"),
                Some('/') => out.push('/'),
                Some(escaped) => {
                    out.push('\\');
                    out.push(escaped);
                }
                None => out.push('\\'),
            },
            '[' if in_class && !matches!(characters.peek(), Some(':')) => out.push_str("\\["),
            '[' if in_class => {
                out.push('[');
                // A named class such as [:alpha:] ends with its own bracket.
                for one in characters.by_ref() {
                    out.push(one);
                    if one == ']' {
                        break;
                    }
                }
            }
            '[' => {
                in_class = true;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    out.extend(characters.next());
                }
                if characters.peek() == Some(&']') {
                    characters.next();
                    out.push_str("\\]");
                }
            }
            ']' => {
                in_class = false;
                out.push(']');
            }
            // Set operations that RE2 does not have.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(character);
            }
            '-' if in_class && characters.peek() == Some(&'-') => out.push_str("\\-"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_reach_into_defaults_maps_and_lists() {
        let schema = Structural::compile(&json!({"properties": {
            "object": {"type": "object", "default": {}, "properties": {"x": {"type": "integer", "default": 5}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"w": {"type": "boolean", "default": true}}}},
            "null": {"type": "string", "default": "d"},
            "nullable": {"type": "string", "default": "d", "nullable": true},
            "gone": {"type": "string"},
            "open": {"x-kubernetes-preserve-unknown-fields": true},
        }}));
        let mut value = json!({"list": [{}, {"p": "UDP"}], "map": {"a": {}, "b": {"w": false}}, "null": null, "nullable": null, "gone": null, "open": {"kept": null}});
        schema.drop_nulls(&mut value);
        schema.fill_defaults(&mut value);
        assert_eq!(
            value,
            json!({
                "object": {"x": 5}, "list": [{"p": "TCP"}, {"p": "UDP"}], "map": {"a": {"w": true}, "b": {"w": false}}, "null": "d", "nullable": null, "open": {"kept": null},
            })
        );
        let once = value.clone();
        schema.fill_defaults(&mut value);
        assert_eq!(value, once);
    }

    #[test]
    fn patterns_mean_what_they_mean_to_go() {
        for (source, text, matches) in [
            (r"^a\/b$", "a/b", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[[:alpha:]]+$", "a1", false),
            (r"^\d+$", "٣", false),
            (r"^[\w.]+$", "a_b.c", true),
            ("b", "abc", true),
            (r"^[a&&b]+$", "&", true),
            (r"^[][]+$", "][", true),
            (r"^([0-9]+(s|m|h))+|(Never)$", "720h", true),
            (
                r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$",
                "karpenter.sh/nodepool",
                true,
            ),
            (
                r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$",
                "0 9 * * 1-5",
                true,
            ),
        ] {
            let pattern = pattern(source).expect(source);
            assert_eq!(pattern.is_match(text), matches, "{source} {text}");
        }
        assert!(pattern("(").is_none());
    }
}
