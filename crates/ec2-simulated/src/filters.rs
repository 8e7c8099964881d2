//! Filters of `Describe…` calls: of one filter any value may match, of several all must.
//!
//! Owns matching. What a filter's name stands for is the caller's.

use std::collections::BTreeMap;

use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::requests::Filter;

/// Whether something has what all filters ask for. `property` gives the values that it has under a filter's name; `None` for a name that EC2 does not
/// know for this call.
///
/// # Errors
/// `InvalidParameterValue` for such a name, as EC2.
pub(crate) fn matches(
    filters: &[Filter],
    tags: &BTreeMap<String, String>,
    property: impl Fn(&str) -> Option<Vec<String>>,
) -> Result<bool, ApiError> {
    for filter in filters {
        let found = if filter.name == "tag-key" {
            tags.keys().cloned().collect()
        } else if let Some(key) = filter.name.strip_prefix("tag:") {
            tags.get(key).cloned().into_iter().collect()
        } else {
            property(&filter.name).ok_or_else(|| {
                let message = format!("The filter '{}' is invalid", filter.name);
                ApiError::new("InvalidParameterValue", &message)
            })?
        };
        let wanted = |value: &String| filter.values.iter().any(|pattern| is_like(pattern, value));
        if !found.iter().any(wanted) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a text is like a pattern in which `*` is any text and `?` any character.
pub(crate) fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Positions after the last star and in the text where its match was tried: going back to that star is enough.
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, read));
                at += 1;
            }
            Some(&wanted) if wanted == '?' || wanted == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((after, tried)) = star else { return false };
                star = Some((after, tried + 1));
                (at, read) = (after, tried + 1);
            }
        }
    }
    pattern[at..].iter().all(|&rest| rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_ec2s() {
        for (pattern, text, expected) in [
            ("m5.large", "m5.large", true),
            ("m5.*", "m5.large", true),
            ("*", "", true),
            ("m?.large", "m5.large", true),
            ("m5", "m5.large", false),
            ("*large", "m5.xlarge", true),
            ("*a*b", "xaybzb", true),
            ("*a*b", "xaybz", false),
            ("a?", "a", false),
        ] {
            assert_eq!(is_like(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn all_filters_hold_and_an_unknown_one_is_an_error() {
        let tags = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let property = |name: &str| (name == "state").then(|| vec!["active".to_owned()]);
        let ask = |filters: &[Filter]| matches(filters, &tags, property);
        assert_eq!(
            ask(&[Filter::tag("team", "*"), Filter::new("state", ["x", "active"])]),
            Ok(true)
        );
        assert_eq!(ask(&[Filter::tag("team", "b")]), Ok(false));
        assert_eq!(
            ask(&[Filter::new("nonsense", ["x"])]).unwrap_err().code,
            "InvalidParameterValue"
        );
    }
}
