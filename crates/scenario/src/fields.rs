//! Reads a document field by field, so that every error is reported with its path and a suggestion, and none hides another.
//!
//! Owns the words for wrong values. It knows no file and no line: the reader of the document maps a path to its line.

use std::cell::RefCell;

use serde::Deserialize as _;
use serde::de::value::{Error, StrDeserializer};
use serde_json::{Map, Value};
use spokeshave_api::{GoDuration, Quantity};

/// As many characters of what a file says are quoted.
const MOST_QUOTED: usize = 60;

/// One thing that is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, such as `spec.workloads[0].jobs.cron`; empty for the document as a whole.
    pub field: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// Collects problems while a document is read.
#[derive(Debug, Default)]
pub(crate) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(crate) fn add(&self, field: impl Into<String>, message: impl Into<String>) {
        self.0.borrow_mut().push(Problem {
            field: field.into(),
            message: message.into(),
        });
    }

    pub(crate) fn into_vec(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}

/// A value, and its path.
#[derive(Clone)]
pub(crate) struct Item<'a> {
    pub(crate) value: &'a Value,
    pub(crate) path: String,
    problems: &'a Problems,
}

/// A mapping whose keys are known.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    pub(crate) path: String,
    problems: &'a Problems,
}

impl<'a> Item<'a> {
    pub(crate) fn document(value: &'a Value, problems: &'a Problems) -> Self {
        Self {
            value,
            path: String::new(),
            problems,
        }
    }

    /// Notes a problem here.
    pub(crate) fn wrong<T>(&self, message: impl Into<String>) -> Option<T> {
        self.problems.add(&self.path, message);
        None
    }

    fn expected<T>(&self, what: &str) -> Option<T> {
        let found = shown(self.value);
        self.wrong(format!("{found} is not valid; expected {what}"))
    }

    /// The mapping, after each key that is not in `known` has been named.
    pub(crate) fn fields(&self, known: &[&str]) -> Option<Fields<'a>> {
        let Some(map) = self.value.as_object() else {
            return self.expected(&format!("a mapping with {}", listed(known)));
        };
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let hint = match closest(key, known) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("expected one of {}", listed(known)),
            };
            self.problems
                .add(join(&self.path, key), format!("unknown field {key:?}; {hint}"));
        }
        Some(Fields {
            map,
            path: self.path.clone(),
            problems: self.problems,
        })
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> Option<Vec<Item<'a>>> {
        let Some(items) = self.value.as_array() else {
            return self.expected("a list");
        };
        let items = items.iter().enumerate().map(|(index, value)| Item {
            value,
            path: format!("{}[{index}]", self.path),
            problems: self.problems,
        });
        Some(items.collect())
    }

    /// The items of a list, or the value itself as the only one.
    pub(crate) fn one_or_more(&self) -> Option<Vec<Item<'a>>> {
        match self.value {
            Value::Array(items) if items.is_empty() => self.wrong("is empty; expected at least one value"),
            Value::Array(_) => self.items(),
            _ => Some(vec![self.clone()]),
        }
    }

    /// The entries of a mapping with keys of any name.
    pub(crate) fn entries(&self) -> Option<Vec<(&'a str, Item<'a>)>> {
        let Some(map) = self.value.as_object() else {
            return self.expected("a mapping");
        };
        let entries = map.iter().map(|(key, value)| {
            let item = Item {
                value,
                path: join(&self.path, key),
                problems: self.problems,
            };
            (key.as_str(), item)
        });
        Some(entries.collect())
    }

    /// A text that is not empty.
    pub(crate) fn text(&self) -> Option<&'a str> {
        match self.value.as_str() {
            Some("") => self.wrong("is empty; expected a text"),
            Some(text) => Some(text),
            None => self.expected("a text"),
        }
    }

    /// A name as Kubernetes takes it for labels and objects.
    pub(crate) fn name(&self) -> Option<&'a str> {
        let text = self.text()?;
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
        let bytes = text.as_bytes();
        let valid = bytes.len() <= 52
            && bytes.iter().all(|byte| inside(*byte))
            && edge(bytes.first())
            && edge(bytes.last());
        match valid {
            true => Some(text),
            false => self.wrong(format!(
                "{text:?} cannot be part of an object's name; expected at most 52 lower-case letters, digits and hyphens, such as \"web\""
            )),
        }
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.value.as_bool() {
            Some(value) => Some(value),
            None => self.expected("true or false"),
        }
    }

    /// A whole number in a range.
    pub(crate) fn count(&self, low: u64, high: u64) -> Option<u64> {
        match self.value.as_u64() {
            Some(value) if (low..=high).contains(&value) => Some(value),
            _ => self.expected(&format!("a whole number from {low} to {high}")),
        }
    }

    /// A number in a range.
    pub(crate) fn number(&self, low: f64, high: f64) -> Option<f64> {
        match self.value.as_f64() {
            Some(value) if (low..=high).contains(&value) => Some(value),
            _ => self.expected(&format!("a number from {low} to {high}")),
        }
    }

    /// A duration in milliseconds, such as `90s`, `1h30m` or `10d9h`.
    pub(crate) fn duration(&self) -> Option<u64> {
        const EXPECTED: &str = "a duration such as 90s, 1h30m or 10d9h";
        let Some(text) = self.value.as_str() else {
            return self.expected(EXPECTED);
        };
        match duration_ms(text) {
            Ok(milliseconds) => Some(milliseconds),
            Err(problem) => self.wrong(format!(
                "{text:?} is not a duration: {problem}; expected {EXPECTED}"
            )),
        }
    }

    /// The same, more than nothing.
    pub(crate) fn span(&self) -> Option<u64> {
        match self.duration()? {
            0 => self.wrong("is 0; expected a duration above it, such as 90s or 30d"),
            milliseconds => Some(milliseconds),
        }
    }

    /// A quantity above 0, written as a text or as a number.
    pub(crate) fn quantity(&self, example: &str) -> Option<Quantity> {
        let text = match self.value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return self.expected(&format!("a quantity such as {example}")),
        };
        match text.parse::<Quantity>() {
            Ok(quantity) if quantity.milli() > 0 => Some(quantity),
            Ok(_) => self.wrong(format!(
                "{text:?} is not above 0; expected a quantity such as {example}"
            )),
            Err(_) => self.wrong(format!(
                "{text:?} is not a quantity; expected a number with an optional suffix, such as {example}"
            )),
        }
    }

    /// One of some words.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let Some(text) = self.value.as_str() else {
            return self.expected(&format!("one of {}", listed(&names)));
        };
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*choice);
        }
        let hint = match closest(text, &names) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("expected one of {}", listed(&names)),
        };
        self.wrong(format!("{text:?} is not known here; {hint}"))
    }
}

impl<'a> Fields<'a> {
    /// A field that may be absent; one that is written as null is absent.
    pub(crate) fn get(&self, name: &str) -> Option<Item<'a>> {
        let value = self.map.get(name).filter(|value| !value.is_null())?;
        Some(Item {
            value,
            path: join(&self.path, name),
            problems: self.problems,
        })
    }

    /// A field that must be there.
    pub(crate) fn require(&self, name: &str, example: &str) -> Option<Item<'a>> {
        let found = self.get(name);
        if found.is_none() {
            self.problems.add(
                &self.path,
                format!("{name} is missing; write for example `{name}: {example}`"),
            );
        }
        found
    }

    /// A field that may be absent, read by a function; none both when it is absent and when it is wrong.
    pub(crate) fn read<T>(&self, name: &str, read: impl FnOnce(&Item<'a>) -> Option<T>) -> Option<T> {
        self.get(name).and_then(|item| read(&item))
    }

    /// Those of `names` that are present.
    pub(crate) fn present(&self, names: &[&'static str]) -> Vec<&'static str> {
        let present = names.iter().filter(|name| self.get(name).is_some());
        present.copied().collect()
    }

    /// Notes a problem with this mapping.
    pub(crate) fn wrong<T>(&self, message: impl Into<String>) -> Option<T> {
        self.problems.add(&self.path, message);
        None
    }
}

fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// A value in a message, cut where it gets long.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        scalar => shortened(&scalar.to_string()),
    }
}

/// What is quoted of a text: a file that is no table may be one long cell.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub(crate) fn listed(names: &[&str]) -> String {
    names.join(", ")
}

/// The known name that was probably meant.
pub(crate) fn closest<'n>(text: &str, names: &[&'n str]) -> Option<&'n str> {
    let lower = text.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&lower, &name.to_lowercase());
    let near = names.iter().map(|name| (distance(name), *name)).min()?;
    let most = 1 + text.chars().count() / 4;
    (near.0 <= most).then_some(near.1)
}

/// A duration in milliseconds: days, then what Go writes.
///
/// # Errors
/// It is malformed, negative, or longer than a thousand years.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    const DAY_MS: u64 = 86_400_000;
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => (Some(days), rest),
        None => (None, text),
    };
    let days = match days {
        None => 0,
        Some(days) if !days.is_empty() && days.bytes().all(|byte| byte.is_ascii_digit()) => days
            .parse::<u64>()
            .ok()
            .filter(|days| *days <= 366_000)
            .ok_or("too many days")?,
        Some(days) => return Err(format!("{days:?} is not a whole number of days")),
    };
    if rest.is_empty() && text.ends_with('d') {
        return Ok(days * DAY_MS);
    }
    let rest: GoDuration =
        rest.parse()
            .map_err(|_| match text.bytes().all(|byte| byte.is_ascii_digit()) {
                true => "it has no unit",
                false if is_too_long(rest) => "it is longer than 292 years",
                false => "it is not a sequence of numbers with the units d, h, m, s, ms",
            })?;
    let rest = rest.to_std().ok_or("it is negative")?;
    Ok(days * DAY_MS + u64::try_from(rest.as_millis()).unwrap_or(u64::MAX / 2))
}

/// Whether a text that Go refuses is a duration which is only too long for it: in objects such are read as the longest.
fn is_too_long(text: &str) -> bool {
    let written = StrDeserializer::<Error>::new(text);
    GoDuration::deserialize(written).is_ok_and(|longest| longest.to_std().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_days() {
        for (text, expected) in [
            ("30d", 2_592_000_000),
            ("10d9h", 896_400_000),
            ("1d0s", 86_400_000),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("0s", 0),
        ] {
            assert_eq!(duration_ms(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "d",
            "1.5d",
            "-1d",
            "-1s",
            "5",
            "1w",
            "1d-1h",
            "9999999999d",
            "1d1d",
        ] {
            assert!(duration_ms(text).is_err(), "{text:?}");
        }
        for text in ["999999999h", "1d2562048h", "99999999999999999999999s"] {
            let problem = duration_ms(text).expect_err(text);
            assert_eq!(problem, "it is longer than 292 years", "{text}");
        }
    }

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let names = ["deployments", "jobs", "statefulSets", "import"];
        assert_eq!(closest("deployment", &names), Some("deployments"));
        assert_eq!(closest("statefulsets", &names), Some("statefulSets"));
        assert_eq!(closest("daemons", &names), None);
    }
}
