//! Preferences are hard until dropped, one at a time, in upstream's order (P §6.7).

use spokeshave_model::constraints::Constraints;
use spokeshave_model::taint::{PREFER_NO_SCHEDULE, Toleration};

/// What to do with preferences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreferencePolicy {
    /// Treat them as requirements until they are in the way.
    #[default]
    Respect,
    /// Act as if they were not there (P-092).
    Ignore,
}

/// Drops every preference at once, for the policy `Ignore`.
pub(crate) fn without_preferences(constraints: &Constraints) -> Constraints {
    let mut bare = constraints.clone();
    bare.preferred_terms.clear();
    bare.preferred_affinity.clear();
    bare.preferred_anti_affinity.clear();
    bare.spreads.retain(|spread| spread.required);
    bare
}

/// Drops the next preference. False when none is left.
pub(crate) fn relax(constraints: &mut Constraints, tolerate_prefer_no_schedule: bool) -> bool {
    if constraints.required_terms.len() > 1 {
        constraints.required_terms.remove(0);
        return true;
    }
    if remove_heaviest(&mut constraints.preferred_affinity)
        || remove_heaviest(&mut constraints.preferred_anti_affinity)
        || remove_heaviest(&mut constraints.preferred_terms)
    {
        return true;
    }
    if let Some(position) = constraints.spreads.iter().position(|spread| !spread.required) {
        constraints.spreads.swap_remove(position);
        return true;
    }
    let toleration = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some(PREFER_NO_SCHEDULE.to_owned()),
        ..Toleration::default()
    };
    if tolerate_prefer_no_schedule && !constraints.tolerations.contains(&toleration) {
        constraints.tolerations.push(toleration);
        return true;
    }
    false
}

/// Of equal weights the first goes first, as in a stable descending sort.
fn remove_heaviest<T>(terms: &mut Vec<(i32, T)>) -> bool {
    let Some(heaviest) = terms.iter().map(|(weight, _)| *weight).max() else {
        return false;
    };
    if let Some(position) = terms.iter().position(|(weight, _)| *weight == heaviest) {
        terms.remove(position);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_model::constraints::{PodTerm, Spread};
    use spokeshave_model::selector::Selector;
    use spokeshave_model::{Requirement, Requirements};
    use std::collections::BTreeSet;

    fn term(name: &str) -> PodTerm {
        PodTerm {
            topology_key: name.to_owned(),
            selector: Selector::Nothing,
            namespaces: BTreeSet::new(),
        }
    }

    fn spread(name: &str, required: bool) -> Spread {
        Spread {
            topology_key: name.to_owned(),
            max_skew: 1,
            min_domains: None,
            selector: Selector::Nothing,
            required,
            honor_affinity: true,
            honor_taints: false,
        }
    }

    fn set(value: &str) -> Requirements {
        [Requirement::is("k", value)].into_iter().collect()
    }

    #[test]
    fn p_090_p_091_relaxation_order() {
        let mut constraints = Constraints {
            required_terms: vec![set("a"), set("b")],
            preferred_affinity: vec![(1, term("light")), (9, term("heavy"))],
            preferred_anti_affinity: vec![(5, term("anti"))],
            preferred_terms: vec![(5, set("x")), (5, set("y"))],
            spreads: vec![spread("hard", true), spread("soft", false), spread("last", false)],
            ..Constraints::default()
        };
        let mut steps = Vec::new();
        let describe = |c: &Constraints| {
            format!(
                "{} {} {} {} {:?} {}",
                c.required_terms.len(),
                c.preferred_affinity.len(),
                c.preferred_anti_affinity.len(),
                c.preferred_terms.len(),
                c.spreads
                    .iter()
                    .map(|spread| spread.topology_key.as_str())
                    .collect::<Vec<_>>(),
                c.tolerations.len()
            )
        };
        while relax(&mut constraints, true) {
            steps.push(describe(&constraints));
        }
        assert_eq!(
            steps,
            [
                r#"1 2 1 2 ["hard", "soft", "last"] 0"#,
                r#"1 1 1 2 ["hard", "soft", "last"] 0"#,
                r#"1 0 1 2 ["hard", "soft", "last"] 0"#,
                r#"1 0 0 2 ["hard", "soft", "last"] 0"#,
                r#"1 0 0 1 ["hard", "soft", "last"] 0"#,
                r#"1 0 0 0 ["hard", "soft", "last"] 0"#,
                r#"1 0 0 0 ["hard", "last"] 0"#,
                r#"1 0 0 0 ["hard"] 0"#,
                r#"1 0 0 0 ["hard"] 1"#,
            ]
        );
        assert_eq!(
            constraints.required_terms,
            vec![set("b")],
            "the final required term is never dropped"
        );
    }
}
