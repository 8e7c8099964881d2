//! Conditions of label selectors: what each operator asks of a label's value.

use std::collections::BTreeSet;

/// Whether the value of a label, if it has one, fulfils an operator of `matchExpressions`; `is_among` says whether a value is one of the expression's. An
/// operator that is not one of these is never fulfilled.
pub fn holds(operator: &str, is_among: impl FnOnce(&str) -> bool, value: Option<&str>) -> bool {
    match operator {
        "In" => value.is_some_and(is_among),
        "NotIn" => !value.is_some_and(is_among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// One condition of a selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// The label is one of the values.
    In(String, BTreeSet<String>),
    /// The label is absent or none of the values.
    NotIn(String, BTreeSet<String>),
    /// The label is present.
    Exists(String),
    /// The label is absent.
    DoesNotExist(String),
    /// The label is a number above this one; only in selectors that are written as text.
    Greater(String, i64),
    /// The label is a number below this one; only in selectors that are written as text.
    Less(String, i64),
}

impl Condition {
    /// That a label has one value.
    #[must_use]
    pub fn is(key: &str, value: &str) -> Self {
        Condition::In(key.to_owned(), BTreeSet::from([value.to_owned()]))
    }

    /// An entry of `matchExpressions`. `None` when the operator is unknown.
    #[must_use]
    pub fn of_expression(key: &str, operator: &str, values: BTreeSet<String>) -> Option<Self> {
        let key = key.to_owned();
        Some(match operator {
            "In" => Condition::In(key, values),
            "NotIn" => Condition::NotIn(key, values),
            "Exists" => Condition::Exists(key),
            "DoesNotExist" => Condition::DoesNotExist(key),
            _ => return None,
        })
    }

    /// The label that decides.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Condition::In(key, _)
            | Condition::NotIn(key, _)
            | Condition::Exists(key)
            | Condition::DoesNotExist(key)
            | Condition::Greater(key, _)
            | Condition::Less(key, _) => key,
        }
    }

    /// The key and values of a condition that names the values it accepts.
    #[must_use]
    pub fn wanted(&self) -> Option<(&str, &BTreeSet<String>)> {
        match self {
            Condition::In(key, values) => Some((key, values)),
            _ => None,
        }
    }

    /// Whether labels, asked by key, fulfil it.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let value = label(self.key());
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Condition::In(_, values) => holds("In", |value| values.contains(value), value),
            Condition::NotIn(_, values) => holds("NotIn", |value| values.contains(value), value),
            Condition::Exists(_) => value.is_some(),
            Condition::DoesNotExist(_) => value.is_none(),
            Condition::Greater(_, bound) => number().is_some_and(|number| number > *bound),
            Condition::Less(_, bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_agree_in_both_forms() {
        let values = ["a".to_owned(), "b".to_owned()];
        let cases = [
            ("In", &values[..], [true, false, false]),
            ("NotIn", &values[..], [false, true, true]),
            ("Exists", &[][..], [true, true, false]),
            ("DoesNotExist", &[][..], [false, false, true]),
        ];
        for (operator, values, expected) in cases {
            for (value, expected) in [Some("a"), Some("c"), None].into_iter().zip(expected) {
                let is_among = |value: &str| values.iter().any(|known| known == value);
                assert_eq!(holds(operator, is_among, value), expected, "{operator} {value:?}");
                let set = values.iter().cloned().collect();
                let condition = Condition::of_expression("k", operator, set).unwrap();
                let label = |key: &str| value.filter(|_| key == "k");
                assert_eq!(condition.matches(label), expected, "{condition:?} {value:?}");
            }
        }
        assert!(!holds("Gt", |_| true, Some("a")));
        assert_eq!(Condition::of_expression("k", "Gt", BTreeSet::new()), None);
    }

    #[test]
    fn numbers() {
        let at = |text: &'static str| move |_: &str| Some(text);
        assert!(Condition::Greater("k".to_owned(), 4).matches(at("5")));
        assert!(!Condition::Greater("k".to_owned(), 4).matches(at("4")));
        assert!(Condition::Less("k".to_owned(), 4).matches(at("-3")));
        assert!(!Condition::Less("k".to_owned(), 4).matches(at("three")));
        assert!(!Condition::Less("k".to_owned(), 4).matches(|_: &str| None));
    }
}
