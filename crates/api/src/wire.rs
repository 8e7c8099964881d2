//! Quantities and selectors as they stand in objects.
//!
//! Owns the way between the types of objects and those of `syntax`; the syntax itself is there.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use spokeshave_syntax::{Quantity, QuantityError, holds};

/// A value that objects hold as a text.
pub trait WireForm: Sized {
    /// Its type in objects.
    type Wire;
    /// Why a text is not understood.
    type Error;

    /// Reads it from an object.
    ///
    /// # Errors
    /// The text is not understood; the error names it.
    fn from_wire(wire: &Self::Wire) -> Result<Self, Self::Error>;

    /// For writing into an object.
    fn to_wire(self) -> Self::Wire;
}

impl WireForm for Quantity {
    type Wire = WireQuantity;
    type Error = QuantityError;

    fn from_wire(wire: &WireQuantity) -> Result<Self, QuantityError> {
        wire.0.parse()
    }

    fn to_wire(self) -> WireQuantity {
        WireQuantity(self.to_string())
    }
}

/// Whether a selector matches labels. An empty one matches everything.
#[must_use]
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|expression| {
            let value = labels.get(&expression.key).map(String::as_str);
            let is_among = |value: &str| expression.values.iter().flatten().any(|known| known == value);
            holds(&expression.operator, is_among, value)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_matches_when_all_of_it_does() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let selector: LabelSelector = serde_json::from_value(json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        assert!(selects(&selector, &labels(&[("app", "web"), ("tier", "b")])));
        assert!(!selects(&selector, &labels(&[("app", "web"), ("tier", "c")])));
        assert!(!selects(&selector, &labels(&[("tier", "a")])));
        assert!(!selects(
            &selector,
            &labels(&[("app", "web"), ("tier", "a"), ("old", "")])
        ));
        assert!(selects(&LabelSelector::default(), &labels(&[])));
    }
}
