//! Label and field selectors of query parameters and objects.

use std::collections::BTreeSet;

use serde_json::Value;
use spokeshave_syntax::Condition;
use spokeshave_syntax::names::{label_value_problems, qualified_name_problems};

use crate::error::{ApiError, ApiResult};

/// A label selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Condition>);

impl LabelSelector {
    /// Reads the text form: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    ///
    /// # Errors
    /// HTTP 400 in a real server's words.
    pub fn parse(text: &str) -> ApiResult<Self> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let mut parser = Parser {
            tokens: tokens(text),
            next: 0,
        };
        parser.requirements().map(Self).map_err(ApiError::bad_request)
    }

    /// Reads the object form (`matchLabels`, `matchExpressions`). `None` when it cannot be read.
    #[must_use]
    pub fn from_object(selector: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            requirements.push(Condition::is(key, value.as_str()?));
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            let operator = expression["operator"].as_str()?;
            requirements.push(Condition::of_expression(
                expression["key"].as_str()?,
                operator,
                values,
            )?);
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
        self.0.iter().all(|condition| condition.matches(label))
    }
}

/// A piece of a selector's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'a str),
    End,
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Token::Word(text) | Token::Symbol(text) => text,
            Token::End => "",
        }
    }
}

const SYMBOLS: [&str; 9] = ["!=", "==", ")", ",", "!", "=", ">", "<", "("];

fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_space = |character: char| matches!(character, ' ' | '\t' | '\r' | '\n');
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let length = match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            Some(symbol) => {
                found.push(Token::Symbol(symbol));
                symbol.len()
            }
            None => {
                let end = rest
                    .find(|character| is_space(character) || "=!(),><".contains(character))
                    .unwrap_or(rest.len());
                found.push(Token::Word(&rest[..end]));
                end
            }
        };
        rest = rest[length..].trim_start_matches(is_space);
    }
    found
}

/// Reads tokens as client-go's parser does, errors included.
struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.next).copied().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<Condition>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    requirements.push(
                        self.requirement()
                            .map_err(|problem| format!("unable to parse requirement: {problem}"))?,
                    );
                    match self.take() {
                        Token::End => return Ok(requirements),
                        Token::Symbol(",") => {
                            let next = self.peek();
                            if !matches!(next, Token::Word(_) | Token::Symbol("!")) {
                                return Err(format!(
                                    "found '{}', expected: identifier after ','",
                                    next.text()
                                ));
                            }
                        }
                        other => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.text()
                            ));
                        }
                    }
                }
                Token::End => return Ok(requirements),
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Condition, String> {
        let mut token = self.take();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.take();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        check_key(key)?;
        let key = key.to_owned();
        if negated {
            return Ok(Condition::DoesNotExist(key));
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(Condition::Exists(key));
        }
        let operator = self.take();
        match operator {
            Token::Word("in") => Ok(Condition::In(
                key.clone(),
                self.values(&key)?.into_iter().collect(),
            )),
            Token::Word("notin") => Ok(Condition::NotIn(
                key.clone(),
                self.values(&key)?.into_iter().collect(),
            )),
            Token::Symbol("=" | "==") => Ok(Condition::is(&key, self.value(&key)?.as_str())),
            Token::Symbol("!=") => Ok(Condition::NotIn(key.clone(), BTreeSet::from([self.value(&key)?]))),
            Token::Symbol(symbol @ (">" | "<")) => {
                let value = self.value(&key)?;
                let bound = value.parse().map_err(|_| {
                    format!("values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")
                })?;
                Ok(if symbol == ">" {
                    Condition::Greater(key, bound)
                } else {
                    Condition::Less(key, bound)
                })
            }
            other => Err(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                other.text()
            )),
        }
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        let value = match self.peek() {
            Token::End | Token::Symbol(",") => "",
            Token::Word(value) => {
                self.next += 1;
                value
            }
            Token::Symbol(other) => return Err(format!("found '{other}', expected: identifier")),
        };
        check_value(key, 0, value)?;
        Ok(value.to_owned())
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        let open = self.take();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = Vec::new();
        loop {
            match self.peek() {
                Token::Word(value) => {
                    self.next += 1;
                    check_value(key, values.len(), value)?;
                    values.push(value.to_owned());
                    match self.take() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => return Ok(values),
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Symbol(",") => {
                    self.next += 1;
                    values.push(String::new());
                }
                Token::Symbol(")") => {
                    self.next += 1;
                    values.push(String::new());
                    return Ok(values);
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        other.text()
                    ));
                }
            }
        }
    }
}

fn check_key(key: &str) -> Result<(), String> {
    match qualified_name_problems(key) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(format!("<nil>: Invalid value: {key:?}: {}", problems.join("; "))),
    }
}

fn check_value(key: &str, index: usize, value: &str) -> Result<(), String> {
    match label_value_problems(value) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(format!(
            "values[{index}][{key}]: Invalid value: {value:?}: {}",
            problems.join("; ")
        )),
    }
}

/// Where a path of a field selector leads in a stored object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPlace {
    /// Dotted paths, of which the first one counts at which there is something.
    paths: Vec<String>,
    /// What is seen where there is nothing: a zero value of Go's.
    nothing: &'static str,
}

impl FieldPlace {
    /// The text at a path.
    #[must_use]
    pub fn at(path: &str) -> Self {
        Self::first_of([path])
    }

    /// The text at the first path at which there is any.
    #[must_use]
    pub fn first_of<const N: usize>(paths: [&str; N]) -> Self {
        Self {
            paths: Vec::from(paths.map(str::to_owned)),
            nothing: "",
        }
    }

    /// The place of something else than text: of a flag that is `false`, or a number that is `0`, where there is nothing.
    #[must_use]
    pub fn or(self, nothing: &'static str) -> Self {
        Self { nothing, ..self }
    }

    fn holds(&self, object: &Value, wanted: &str) -> bool {
        let found = |path: &String| {
            let found = path.split('.').fold(object, |here, part| &here[part]);
            (!found.is_null() && found != "").then_some(found)
        };
        match self.paths.iter().find_map(found) {
            None => self.nothing == wanted,
            Some(Value::String(text)) => text == wanted,
            Some(other) => {
                let text = other.to_string();
                text == wanted
            }
        }
    }
}

/// A field selector: equalities of what is at some places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<(FieldPlace, bool, String)>);

impl FieldSelector {
    /// Reads `metadata.name=a,status.phase!=Running`; `read` says where a path leads in a stored object, or what is wrong with it.
    ///
    /// # Errors
    /// HTTP 400 for an unreadable selector or a path that the resource does not index.
    pub fn parse(text: &str, read: impl Fn(&str) -> Result<FieldPlace, String>) -> ApiResult<Self> {
        let mut terms = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (path, equal, value) = if let Some((path, value)) = part.split_once("!=") {
                (path, false, value)
            } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (path, true, value)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let place = read(path.trim()).map_err(ApiError::bad_request)?;
            terms.push((place, equal, value.trim().to_owned()));
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
        self.0
            .iter()
            .all(|(place, equal, wanted)| place.holds(object, wanted) == *equal)
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
        for (bad, problem) in [
            ("a in", "unable to parse requirement: found '' expected: '('"),
            ("a in x", "unable to parse requirement: found 'x' expected: '('"),
            (
                "a in (b",
                "unable to parse requirement: found '', expected: ',' or ')'",
            ),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("=b", "found '=', expected: !, identifier, or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            (
                "a near (b)",
                "unable to parse requirement: found 'near', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a,", "found '', expected: identifier after ','"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ] {
            assert_eq!(LabelSelector::parse(bad).unwrap_err().message, problem, "{bad:?}");
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
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {"restarts": 3}});
        let read = |path: &str| match path {
            "spec.unschedulable" => Ok(FieldPlace::at(path).or("false")),
            "name" => Ok(FieldPlace::first_of([
                "spec.name",
                "metadata.name",
                "spec.nodeName",
            ])),
            _ => Ok(FieldPlace::at(path)),
        };
        let matches = |text: &str| FieldSelector::parse(text, read).unwrap().matches(&pod);
        assert!(
            matches("metadata.name=a,spec.nodeName!=x")
                && matches("status.phase=")
                && !matches("spec.nodeName=")
        );
        assert!(matches("spec.unschedulable=false") && !matches("spec.unschedulable="));
        assert!(matches("status.restarts=3") && !matches("status.restarts="));
        assert!(matches("name=a") && matches("name!=n"), "the first that there is");
        let error =
            FieldSelector::parse("spec.image=x", |path| Err(format!("{path} is not known"))).unwrap_err();
        assert_eq!(error.message, "spec.image is not known");
    }

    /// A requirement as text, and what it means, said once more: whether it holds for the value of its label.
    fn requirement() -> impl Strategy<Value = (String, String, Meaning)> {
        let key = prop::sample::select(vec!["a", "b.c/d", "e-f"]);
        let values = prop::collection::btree_set(prop::sample::select(vec!["", "1", "2", "x"]), 1..3);
        let gap = prop::sample::select(vec!["", " ", "  "]);
        (key, values, 0..9_u8, gap).prop_map(|(key, values, what, gap)| {
            let list: Vec<&str> = values.into_iter().collect();
            let (one, all) = (list[0], list.join(&format!("{gap},{gap}")));
            let owned: Vec<String> = list.iter().map(|value| (*value).to_owned()).collect();
            let just = vec![one.to_owned()];
            let (text, meaning) = match what {
                0 => (format!("{gap}{key}{gap}"), Meaning::Exists),
                1 => (format!("!{gap}{key}"), Meaning::Absent),
                2 => (format!("{key}{gap}={gap}{one}"), Meaning::OneOf(just)),
                3 => (format!("{key}{gap}=={gap}{one}"), Meaning::OneOf(just)),
                4 => (format!("{key}{gap}!={gap}{one}"), Meaning::NoneOf(just)),
                5 => (format!("{key} in{gap}({gap}{all}{gap})"), Meaning::OneOf(owned)),
                6 => (
                    format!("{key} notin{gap}({gap}{all}{gap})"),
                    Meaning::NoneOf(owned),
                ),
                7 => (format!("{key}{gap}>{gap}1"), Meaning::More(1)),
                _ => (format!("{key}{gap}<{gap}2"), Meaning::Less(2)),
            };
            (key.to_owned(), text, meaning)
        })
    }

    #[derive(Debug, Clone)]
    enum Meaning {
        Exists,
        Absent,
        OneOf(Vec<String>),
        NoneOf(Vec<String>),
        More(i64),
        Less(i64),
    }

    impl Meaning {
        fn holds(&self, label: Option<&str>) -> bool {
            let number = label.and_then(|label| label.parse::<i64>().ok());
            match self {
                Self::Exists => label.is_some(),
                Self::Absent => label.is_none(),
                Self::OneOf(values) => label.is_some_and(|label| values.iter().any(|value| value == label)),
                Self::NoneOf(values) => label.is_none_or(|label| values.iter().all(|value| value != label)),
                Self::More(bound) => number.is_some_and(|number| number > *bound),
                Self::Less(bound) => number.is_some_and(|number| number < *bound),
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in ".{0,30}") {
            let _ = LabelSelector::parse(&text);
            let _ = FieldSelector::parse(&text, |path| Ok(FieldPlace::at(path)));
        }
        #[test]
        fn a_selector_means_what_its_requirements_mean(
            requirements in prop::collection::vec(requirement(), 1..4),
            labels in prop::collection::btree_map(prop::sample::select(vec!["a", "b.c/d", "e-f"]), prop::sample::select(vec!["", "1", "2", "3", "x"]), 0..4),
        ) {
            let text: Vec<&str> = requirements.iter().map(|(_, text, _)| text.as_str()).collect();
            let text = text.join(",");
            let selector = LabelSelector::parse(&text).map_err(|error| TestCaseError::fail(format!("{text:?}: {}", error.message)))?;
            let expected = requirements.iter().all(|(key, _, meaning)| meaning.holds(labels.get(key.as_str()).copied()));
            prop_assert_eq!(selector.matches(&json!(labels)), expected, "{:?} on {:?}", text, labels);
        }
        #[test]
        fn a_field_selector_means_what_its_terms_mean(name in "[ab]{1,2}", node in "[ab]{0,1}", terms in prop::collection::vec((any::<bool>(), any::<bool>(), "[ab]{0,2}"), 1..4)) {
            let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node}});
            let path = |is_name: bool| if is_name { "metadata.name" } else { "spec.nodeName" };
            let text: Vec<String> = terms.iter().map(|(is_name, equal, value)| format!("{}{}{value}", path(*is_name), if *equal { "=" } else { "!=" })).collect();
            let selector = FieldSelector::parse(&text.join(","), |path| Ok(FieldPlace::at(path))).map_err(|error| TestCaseError::fail(error.message))?;
            let expected = terms.iter().all(|(is_name, equal, value)| (value == if *is_name { &name } else { &node }) == *equal);
            prop_assert_eq!(selector.matches(&pod), expected);
        }
        #[test]
        fn arbitrary_selectorlike_text_never_panics(text in "[a-c!=<>,() ]{0,20}( in| notin)?[a-c,() ]{0,12}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                let _ = selector.matches(&json!({"a": "b"}));
            }
        }
    }
}
