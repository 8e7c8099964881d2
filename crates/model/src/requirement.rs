//! One requirement on one label key: a set of values or its complement, integer bounds, and a minimum number of distinct values
//! (P §2.1). This module owns the algebra of a single key; sets of requirements are in `requirements`.

use crate::labels;
use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The eight operators of the API (P-030).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The value is one of those listed.
    In,
    /// The value is none of those listed, or the label is absent.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// An integer greater than the value.
    Gt,
    /// An integer less than the value.
    Lt,
    /// An integer greater than or equal to the value.
    Gte,
    /// An integer less than or equal to the value.
    Lte,
}

impl Operator {
    /// The operator's name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::Gt => "Gt",
            Operator::Lt => "Lt",
            Operator::Gte => "Gte",
            Operator::Lte => "Lte",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Operator {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        use Operator::{DoesNotExist, Exists, Gt, Gte, In, Lt, Lte, NotIn};
        [In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte]
            .into_iter()
            .find(|operator| operator.as_str() == text)
            .ok_or(())
    }
}

/// A requirement entry of an API object that has no meaning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error, Serialize, Deserialize)]
pub enum RequirementError {
    /// The operator is none of the eight.
    #[error(
        "key {key} has an unsupported operator {operator} not in [DoesNotExist Exists Gt Gte In Lt Lte NotIn]"
    )]
    UnknownOperator {
        /// The label key.
        key: String,
        /// The operator as written.
        operator: String,
    },
    /// A numeric operator without exactly one integer.
    #[error("key {key} with operator {operator} must have a single positive integer value")]
    NotAnInteger {
        /// The label key.
        key: String,
        /// The numeric operator.
        operator: Operator,
    },
    /// `In` without values.
    #[error("key {key} with operator In must have a value defined")]
    NoValues {
        /// The label key.
        key: String,
    },
}

/// A requirement on one label key. Keys are normalised (P-033).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    key: String,
    complement: bool,
    values: BTreeSet<String>,
    gte: Option<i64>,
    lte: Option<i64>,
    min_values: Option<u32>,
    /// It came of a requirement that demanded the label, so that an absent one does not satisfy it, although it reads as `NotIn` or `DoesNotExist`. Never
    /// set where the operator says so by itself: equal requirements stay equal, whatever they were made of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    present: bool,
}

impl Requirement {
    /// Builds a requirement. A numeric operator whose value is not an integer matches nothing.
    pub fn new<V: Into<String>>(key: &str, operator: Operator, values: impl IntoIterator<Item = V>) -> Self {
        let canonical = labels::normalize(key);
        let mut requirement = Requirement {
            key: canonical.to_owned(),
            complement: false,
            values: BTreeSet::new(),
            gte: None,
            lte: None,
            min_values: None,
            present: false,
        };
        let mut values = values.into_iter().map(Into::into);
        match operator {
            Operator::In | Operator::NotIn => {
                requirement.values = values.collect();
                requirement.complement = operator == Operator::NotIn;
            }
            Operator::Exists => requirement.complement = true,
            Operator::DoesNotExist => {}
            Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
                let bound = values.next().and_then(|value| value.parse::<i64>().ok());
                // A bound past the end of the integers matches nothing, which is `DoesNotExist` (P-030).
                match (operator, bound) {
                    (Operator::Gt, Some(bound)) => requirement.gte = bound.checked_add(1),
                    (Operator::Gte, bound) => requirement.gte = bound,
                    (Operator::Lt, Some(bound)) => requirement.lte = bound.checked_sub(1),
                    (Operator::Lte, bound) => requirement.lte = bound,
                    _ => {}
                }
                requirement.complement = requirement.gte.is_some() || requirement.lte.is_some();
                requirement.present = !requirement.complement;
            }
        }
        if canonical != key && requirement.values.remove("") {
            let meant = labels::normalize_value(key, "");
            requirement.values.insert(meant.to_owned());
        }
        requirement
    }

    /// `key In [value]`.
    pub fn is(key: &str, value: &str) -> Self {
        Self::new(key, Operator::In, [value])
    }

    /// `key In values`.
    pub fn one_of<V: Into<String>>(key: &str, values: impl IntoIterator<Item = V>) -> Self {
        Self::new(key, Operator::In, values)
    }

    /// `key Exists`: no constraint but presence. Also what an absent key reads as (P §2.2).
    pub fn exists(key: &str) -> Self {
        Self::new(key, Operator::Exists, [""; 0])
    }

    /// `key DoesNotExist`.
    pub fn does_not_exist(key: &str) -> Self {
        Self::new(key, Operator::DoesNotExist, [""; 0])
    }

    /// From an API entry; refuses what has no meaning.
    pub fn parse(key: &str, operator: &str, values: &[String]) -> Result<Self, RequirementError> {
        let operator: Operator = operator.parse().map_err(|()| RequirementError::UnknownOperator {
            key: key.to_owned(),
            operator: operator.to_owned(),
        })?;
        match operator {
            Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte
                if (values.len() != 1 || values[0].parse::<i64>().is_err()) =>
            {
                return Err(RequirementError::NotAnInteger {
                    key: key.to_owned(),
                    operator,
                });
            }
            Operator::In if values.is_empty() => {
                return Err(RequirementError::NoValues { key: key.to_owned() });
            }
            _ => {}
        }
        Ok(Self::new(key, operator, values.iter().cloned()))
    }

    /// From a pod's node selector expression.
    pub fn from_node_selector(expression: &NodeSelectorRequirement) -> Result<Self, RequirementError> {
        Self::parse(
            &expression.key,
            &expression.operator,
            expression.values.as_deref().unwrap_or_default(),
        )
    }

    /// With a minimum number of distinct values among the instance types kept (P §2.3).
    #[must_use]
    pub fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    /// The normalised label key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The listed values: allowed ones, or excluded ones when `is_complement`.
    pub fn values(&self) -> &BTreeSet<String> {
        &self.values
    }

    /// Whether `values` are exclusions.
    pub fn is_complement(&self) -> bool {
        self.complement
    }

    /// The inclusive lower bound.
    pub fn gte(&self) -> Option<i64> {
        self.gte
    }

    /// The inclusive upper bound.
    pub fn lte(&self) -> Option<i64> {
        self.lte
    }

    /// The minimum number of distinct values.
    pub fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    /// How many values it lists as the allowed ones, if it does.
    pub(crate) fn listed(&self) -> Option<usize> {
        (!self.complement).then_some(self.values.len())
    }

    /// Lowers the minimum number of values to what is reached (best-effort policy, P-120). None is none: an API server takes no minimum of zero (P-005).
    pub fn lower_min_values(&mut self, reached: u32) {
        let lowered = self.min_values.map(|minimum| minimum.min(reached));
        self.min_values = lowered.filter(|minimum| *minimum > 0);
    }

    /// The operator that describes the present state; bounded sets report `Exists`.
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, false) => Operator::NotIn,
            (true, true) => Operator::Exists,
            (false, false) => Operator::In,
            (false, true) => Operator::DoesNotExist,
        }
    }

    /// Whether an absent label satisfies it: true for `NotIn` and `DoesNotExist`, unless they came of something that demanded the label, as `Exists` and
    /// `NotIn` of one key together do.
    pub fn is_satisfied_by_absence(&self) -> bool {
        self.reads_as_absence() && !self.present
    }

    /// The same by the operator alone, which is all that upstream's algebra of NodePools and instance types looks at (P-034, P-036).
    pub fn reads_as_absence(&self) -> bool {
        matches!(self.operator(), Operator::NotIn | Operator::DoesNotExist)
    }

    /// Whether nothing satisfies it, because it demands the label and allows no value, as `In [a]` and `NotIn [a]` together do.
    pub fn is_contradiction(&self) -> bool {
        self.present && self.operator() == Operator::DoesNotExist
    }

    fn within_bounds(&self, value: &str) -> bool {
        if self.gte.is_none() && self.lte.is_none() {
            return true;
        }
        // P-032: with any bound set, what is not an integer fails.
        let Ok(number) = value.parse::<i64>() else {
            return false;
        };
        self.gte.is_none_or(|gte| number >= gte) && self.lte.is_none_or(|lte| number <= lte)
    }

    /// Whether a label with this value satisfies the requirement.
    pub fn has(&self, value: &str) -> bool {
        self.values.contains(value) != self.complement && self.within_bounds(value)
    }

    /// A member of the set: the smallest listed value; for complements the smallest integer at or above the lower bound (or zero)
    /// that is allowed. `None` for `DoesNotExist` and for complements no integer of which is allowed. Upstream draws at random and
    /// may draw an excluded value (B-47).
    pub fn any(&self) -> Option<String> {
        if !self.complement {
            return self.values.first().cloned();
        }
        let start = self.gte.unwrap_or_else(|| self.lte.map_or(0, |lte| lte.min(0)));
        let end = self.lte.unwrap_or(i64::MAX);
        (0..=self.values.len() as i64)
            .map_while(|step| start.checked_add(step))
            .take_while(|number| *number <= end)
            .map(|number| number.to_string())
            .find(|text| self.has(text))
    }

    /// The only allowed value, if there is exactly one.
    pub fn single_value(&self) -> Option<&str> {
        if self.complement || self.values.len() != 1 {
            None
        } else {
            self.values.first().map(String::as_str)
        }
    }

    /// The requirement that holds when both do (P-031).
    #[must_use]
    pub fn intersection(&self, other: &Requirement) -> Requirement {
        let min_values = self.min_values.max(other.min_values);
        let demanded = !(self.is_satisfied_by_absence() && other.is_satisfied_by_absence());
        let (gte, lte) = (self.gte.max(other.gte), min_option(self.lte, other.lte));
        if matches!((gte, lte), (Some(gte), Some(lte)) if gte > lte) {
            let mut none = Requirement::does_not_exist(&self.key).with_min_values(min_values);
            none.present = demanded;
            return none;
        }
        let complement = self.complement && other.complement;
        let values: BTreeSet<String> = match (self.complement, other.complement) {
            (true, true) => self.values.union(&other.values).cloned().collect(),
            (true, false) => other.values.difference(&self.values).cloned().collect(),
            (false, true) => self.values.difference(&other.values).cloned().collect(),
            (false, false) => self.values.intersection(&other.values).cloned().collect(),
        };
        let mut result = Requirement {
            key: self.key.clone(),
            complement,
            values,
            gte,
            lte,
            min_values,
            present: false,
        };
        let bounds = result.clone();
        result.values.retain(|value| bounds.within_bounds(value));
        if !complement {
            (result.gte, result.lte) = (None, None);
        }
        result.present = demanded && result.reads_as_absence();
        result
    }

    /// Whether the intersection is not empty, without building it. Two complements always intersect unless their bounds cross.
    pub fn has_intersection(&self, other: &Requirement) -> bool {
        let (gte, lte) = (self.gte.max(other.gte), min_option(self.lte, other.lte));
        if matches!((gte, lte), (Some(gte), Some(lte)) if gte > lte) {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => true,
            (true, false) => other
                .values
                .iter()
                .any(|value| self.has(value) && other.has(value)),
            (false, _) => self
                .values
                .iter()
                .any(|value| self.has(value) && other.has(value)),
        }
    }

    /// As API entries (key, operator, values, minValues). Both bounds become two entries (P-039); exclusions beside bounds are lost,
    /// as upstream.
    pub fn to_entries(&self) -> Vec<(Operator, Vec<String>, Option<u32>)> {
        let mut entries = Vec::new();
        if let Some(gte) = self.gte {
            entries.push((Operator::Gte, vec![gte.to_string()], self.min_values));
        }
        if let Some(lte) = self.lte {
            entries.push((Operator::Lte, vec![lte.to_string()], self.min_values));
        }
        if entries.is_empty() {
            entries.push((
                self.operator(),
                self.values.iter().cloned().collect(),
                self.min_values,
            ));
        }
        entries
    }
}

fn min_option(left: Option<i64>, right: Option<i64>) -> Option<i64> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (left, right) => left.or(right),
    }
}

impl fmt::Display for Requirement {
    /// `key Op [v1 v2 …]` with at most five values, then the bounds and minValues (P §2.1).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = self.operator();
        write!(f, "{} {operator}", self.key)?;
        if matches!(operator, Operator::In | Operator::NotIn) {
            let shown: Vec<&str> = self.values.iter().take(5).map(String::as_str).collect();
            write!(f, " [{}", shown.join(" "))?;
            if self.values.len() > 5 {
                write!(f, " and {} others", self.values.len() - 5)?;
            }
            write!(f, "]")?;
        }
        if let Some(gte) = self.gte {
            write!(f, " >={gte}")?;
        }
        if let Some(lte) = self.lte {
            write!(f, " <={lte}")?;
        }
        if let Some(min_values) = self.min_values {
            write!(f, " minValues {min_values}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(operator: Operator, values: &[&str]) -> Requirement {
        Requirement::new("key", operator, values.iter().copied())
    }

    #[test]
    fn p_030_operators_have_inclusive_bounds_and_gt_maximum_matches_nothing() {
        assert_eq!(requirement(Operator::Gt, &["8"]).gte(), Some(9));
        assert_eq!(requirement(Operator::Lt, &["8"]).lte(), Some(7));
        assert_eq!(requirement(Operator::Gte, &["8"]).gte(), Some(8));
        assert_eq!(requirement(Operator::Lte, &["8"]).lte(), Some(8));
        assert_eq!(
            requirement(Operator::Gt, &["9223372036854775807"]).operator(),
            Operator::DoesNotExist
        );
        assert_eq!(requirement(Operator::Gt, &["8"]).operator(), Operator::Exists);
        for operator in [
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
            Operator::DoesNotExist,
            Operator::Gte,
        ] {
            assert_eq!(operator.as_str().parse(), Ok(operator));
        }
    }

    #[test]
    fn p_032_example_3_bounds_match_integers_only() {
        let above = requirement(Operator::Gt, &["8"]);
        let from = requirement(Operator::Gte, &["8"]);
        assert!(!above.has("8") && above.has("9") && from.has("8"));
        assert!(!above.has("abc") && !from.has("abc"));
    }

    #[test]
    fn p_031_intersection_of_crossing_bounds_is_does_not_exist_and_keeps_min_values() {
        let left = requirement(Operator::Gt, &["8"]).with_min_values(Some(2));
        let right = requirement(Operator::Lt, &["3"]).with_min_values(Some(4));
        let both = left.intersection(&right);
        assert_eq!(both.operator(), Operator::DoesNotExist);
        assert_eq!(both.min_values(), Some(4));
        assert!(!left.has_intersection(&right));
    }

    #[test]
    fn p_031_intersection_table() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        for (left, right, text) in [
            ((In, vec!["a", "b"]), (In, vec!["b", "c"]), "key In [b]"),
            ((In, vec!["a", "b"]), (NotIn, vec!["b"]), "key In [a]"),
            ((NotIn, vec!["a"]), (NotIn, vec!["b"]), "key NotIn [a b]"),
            ((Exists, vec![]), (NotIn, vec!["b"]), "key NotIn [b]"),
            ((In, vec!["a"]), (In, vec!["b"]), "key DoesNotExist"),
            ((DoesNotExist, vec![]), (Exists, vec![]), "key DoesNotExist"),
            ((In, vec!["1", "9", "x"]), (Gt, vec!["3"]), "key In [9]"),
            ((NotIn, vec!["1", "9"]), (Gt, vec!["3"]), "key NotIn [9] >=4"),
            ((Gt, vec!["3"]), (Lt, vec!["9"]), "key Exists >=4 <=8"),
        ] {
            let (left, right) = (requirement(left.0, &left.1), requirement(right.0, &right.1));
            assert_eq!(left.intersection(&right).to_string(), text);
            assert_eq!(right.intersection(&left).to_string(), text);
            let non_empty = left.intersection(&right).operator() != DoesNotExist;
            assert_eq!(left.has_intersection(&right), non_empty, "{left} ∩ {right}");
        }
    }

    #[test]
    fn p_039_both_bounds_become_two_entries() {
        let between = requirement(Operator::Gte, &["2"]).intersection(&requirement(Operator::Lte, &["5"]));
        assert_eq!(
            between.to_entries(),
            vec![
                (Operator::Gte, vec!["2".to_owned()], None),
                (Operator::Lte, vec!["5".to_owned()], None)
            ]
        );
    }

    #[test]
    fn b_47_any_never_draws_an_excluded_value_nor_panics_on_empty_ranges() {
        assert_eq!(
            requirement(Operator::NotIn, &["0", "1"]).any().as_deref(),
            Some("2")
        );
        assert_eq!(requirement(Operator::Lt, &["0"]).any().as_deref(), Some("-1"));
        assert_eq!(requirement(Operator::Gt, &["6"]).any().as_deref(), Some("7"));
        assert_eq!(requirement(Operator::DoesNotExist, &[]).any(), None);
        let one = requirement(Operator::Gte, &["3"])
            .intersection(&requirement(Operator::Lte, &["3"]))
            .intersection(&requirement(Operator::NotIn, &["3"]));
        assert_eq!(one.any(), None);
    }

    #[test]
    fn rendering_shows_at_most_five_values() {
        assert_eq!(
            requirement(Operator::In, &["g", "f", "e", "d", "c", "b", "a"]).to_string(),
            "key In [a b c d e and 2 others]"
        );
    }

    #[test]
    fn p_031_a_value_is_in_the_intersection_exactly_when_it_is_in_both() {
        use spokeshave_example::Dice;
        let mut dice = Dice(7);
        let values = ["a", "b", "-3", "0", "1", "5", "9", "007"];
        let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];
        let mut draw = || {
            let operator: Operator = dice.pick(&operators).parse().expect("an operator");
            let numeric = matches!(
                operator,
                Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte
            );
            let count = if numeric { 1 } else { dice.below(4) };
            let pool = if numeric { &values[2..7] } else { &values[..] };
            let drawn: Vec<&str> = (0..count).map(|_| *dice.pick(pool)).collect();
            requirement(operator, &drawn)
        };
        for _ in 0..5000 {
            let (left, right, third) = (draw(), draw(), draw());
            let both = left.intersection(&right);
            for value in values {
                assert_eq!(
                    both.has(value),
                    left.has(value) && right.has(value),
                    "{value}: {left} ∩ {right} = {both}"
                );
            }
            assert_eq!(both, right.intersection(&left), "order does not matter");
            assert_eq!(
                both.intersection(&third),
                left.intersection(&right.intersection(&third)),
                "{left}, {right}, {third}"
            );
            assert_eq!(
                left.has_intersection(&right),
                both.operator() != Operator::DoesNotExist,
                "{left} ∩ {right} = {both}"
            );
            assert_eq!(
                both.is_satisfied_by_absence(),
                left.is_satisfied_by_absence() && right.is_satisfied_by_absence(),
                "absence: {left} ∩ {right} = {both}"
            );
        }
    }
}
