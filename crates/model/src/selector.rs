//! Label selectors as values: parsed once, hashed and compared, matched against label maps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use spokeshave_syntax::Condition;
use std::collections::{BTreeMap, BTreeSet};

/// A label selector. A missing or invalid one matches nothing, an empty one everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// Missing or invalid.
    #[default]
    Nothing,
    /// All conditions must hold.
    All(Vec<Condition>),
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
            .map(|(key, value)| Condition::is(key, value))
            .collect();
        for expression in selector.match_expressions.iter().flatten() {
            let values: BTreeSet<String> = expression.values.iter().flatten().cloned().collect();
            let operator = expression.operator.as_str();
            if matches!(operator, "In" | "NotIn") == values.is_empty() {
                return None;
            }
            conditions.push(Condition::of_expression(&expression.key, operator, values)?);
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
        conditions.push(if negate {
            Condition::NotIn(key.to_owned(), BTreeSet::from([value.to_owned()]))
        } else {
            Condition::is(key, value)
        });
        conditions.sort();
        conditions.dedup();
        Selector::All(conditions)
    }

    /// Whether the labels satisfy the selector.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Selector::Nothing => false,
            Selector::All(conditions) => {
                let label = |key: &str| labels.get(key).map(String::as_str);
                conditions.iter().all(|condition| condition.matches(label))
            }
        }
    }

    /// The key and the values of a label that whatever is selected has, as far as one of the conditions names them.
    pub fn wanted(&self) -> Option<(&str, &BTreeSet<String>)> {
        match self {
            // Nothing is selected, whatever the values.
            Selector::Nothing => Some(("", const { &BTreeSet::new() })),
            Selector::All(conditions) => conditions.iter().find_map(Condition::wanted),
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
