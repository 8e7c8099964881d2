//! Label selectors as values: parsed once, hashed and compared, matched against label maps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::{BTreeMap, BTreeSet};

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
}

/// A label selector. A missing or invalid one matches nothing, an empty one everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// Missing or invalid.
    #[default]
    Nothing,
    /// All conditions must hold.
    All(Vec<Condition>),
}

impl Condition {
    fn key(&self) -> &str {
        match self {
            Condition::In(key, _)
            | Condition::NotIn(key, _)
            | Condition::Exists(key)
            | Condition::DoesNotExist(key) => key,
        }
    }

    /// The key and values of a condition that names the values it accepts.
    pub fn wanted(&self) -> Option<(&str, &BTreeSet<String>)> {
        match self {
            Condition::In(key, values) => Some((key, values)),
            _ => None,
        }
    }

    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Condition::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Condition::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Condition::Exists(key) => labels.contains_key(key),
            Condition::DoesNotExist(key) => !labels.contains_key(key),
        }
    }
}

impl Selector {
    /// Parses a Kubernetes selector; one that cannot be understood selects nothing.
    pub fn parse(selector: Option<&LabelSelector>) -> Self {
        Self::understand(selector).unwrap_or(Selector::Nothing)
    }

    /// What selects everything.
    pub fn everything() -> Self {
        Selector::All(Vec::new())
    }

    /// Parses a Kubernetes selector; `None` when it cannot be understood. No selector selects nothing.
    pub fn understand(selector: Option<&LabelSelector>) -> Option<Self> {
        let Some(selector) = selector else {
            return Some(Selector::Nothing);
        };
        let mut conditions: Vec<Condition> = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(key, value)| Condition::In(key.clone(), BTreeSet::from([value.clone()])))
            .collect();
        for expression in selector.match_expressions.iter().flatten() {
            let values: BTreeSet<String> = expression.values.iter().flatten().cloned().collect();
            let key = expression.key.clone();
            conditions.push(match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => Condition::In(key, values),
                ("NotIn", false) => Condition::NotIn(key, values),
                ("Exists", true) => Condition::Exists(key),
                ("DoesNotExist", true) => Condition::DoesNotExist(key),
                _ => return None,
            });
        }
        conditions.sort();
        conditions.dedup();
        Some(Selector::All(conditions))
    }

    /// With the further condition that the label equals (or, with `negate`, differs from) the value (matchLabelKeys, P-104).
    #[must_use]
    pub fn and_label(self, key: &str, value: &str, negate: bool) -> Self {
        let Selector::All(mut conditions) = self else {
            return self;
        };
        let values = BTreeSet::from([value.to_owned()]);
        let key = key.to_owned();
        conditions.push(if negate {
            Condition::NotIn(key, values)
        } else {
            Condition::In(key, values)
        });
        conditions.sort();
        conditions.dedup();
        Selector::All(conditions)
    }

    /// Whether the labels satisfy the selector.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Selector::Nothing => false,
            Selector::All(conditions) => conditions.iter().all(|condition| condition.matches(labels)),
        }
    }

    /// The label keys that decide the match.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let conditions = match self {
            Selector::Nothing => &[][..],
            Selector::All(conditions) => conditions,
        };
        conditions.iter().map(Condition::key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: serde_json::Value) -> Selector {
        Selector::parse(serde_json::from_value::<LabelSelector>(value).ok().as_ref())
    }

    #[test]
    fn d_016_nil_matches_nothing_and_empty_matches_everything() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        assert!(!Selector::parse(None).matches(&labels));
        assert!(parse(json!({})).matches(&labels));
        assert!(parse(json!({"matchLabels": {"app": "web"}})).matches(&labels));
        assert!(
            !parse(json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}))
                .matches(&labels)
        );
        assert!(
            parse(json!({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["web"]}]}))
                .matches(&labels)
        );
        assert!(!parse(json!({"matchExpressions": [{"key": "app", "operator": "Bogus"}]})).matches(&labels));
    }
}
