//! A set of requirements, one per label key, and the two questions asked of it: does it intersect another set, and is it compatible
//! with what a pod asks (P §2.2, §2.3).

use crate::labels;
use crate::requirement::{Requirement, RequirementError};
use k8s_openapi::api::core::v1::NodeSelectorTerm;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Requirements by label key. Adding merges by intersection; order never matters.
///
/// A clone shares its content until one of the two is changed: thousands of offerings have the same few sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Requirements(Arc<BTreeMap<String, Requirement>>);

/// Why two sets of requirements do not go together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Incompatibility {
    /// The pod asks for a label that nothing here defines (P-034).
    UndefinedLabel {
        /// The label key asked for.
        key: String,
        /// A known key that the user may have meant (P-038).
        typo_of: Option<String>,
    },
    /// Both name the key, and no value satisfies both.
    NoCommonValue {
        /// What is asked for.
        incoming: Requirement,
        /// What is there.
        existing: Requirement,
    },
}

impl fmt::Display for Incompatibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incompatibility::UndefinedLabel { key, typo_of: None } => match labels::named_node(key) {
                Some(name) => write!(f, "only a node that is there has the name {name:?}"),
                None => write!(f, "label {key:?} does not have known values"),
            },
            Incompatibility::UndefinedLabel {
                key,
                typo_of: Some(known),
            } => {
                write!(f, "label {key:?} does not have known values (typo of {known:?}?)")
            }
            Incompatibility::NoCommonValue { incoming, existing } => {
                write!(f, "key {}, {incoming} not in {existing}", incoming.key())
            }
        }
    }
}

impl Requirements {
    /// No requirement at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// One `In` per label.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        labels
            .into_iter()
            .map(|(key, value)| Requirement::is(key, value))
            .collect()
    }

    /// What the labels of a node say, each once: by its canonical key, where the node has it by several.
    pub fn of_node(labels: &BTreeMap<String, String>) -> Self {
        Self::from_labels(labels.iter().filter(|(key, _)| labels::counts(key, labels)))
    }

    /// The conjunction of a node selector term's expressions; `matchFields` are not looked at (P §2.2): of required affinity, `constraints` reads them.
    pub fn from_term(term: &NodeSelectorTerm) -> Result<Self, RequirementError> {
        term.match_expressions
            .iter()
            .flatten()
            .map(Requirement::from_node_selector)
            .collect()
    }

    /// Adds one requirement, intersecting with what is there for its key.
    pub fn add(&mut self, requirement: Requirement) {
        let requirements = Arc::make_mut(&mut self.0);
        match requirements.get_mut(requirement.key()) {
            Some(existing) => *existing = existing.intersection(&requirement),
            None => {
                requirements.insert(requirement.key().to_owned(), requirement);
            }
        }
    }

    /// Adds every requirement of another set.
    pub fn add_all(&mut self, other: &Requirements) {
        for requirement in other.iter() {
            self.add(requirement.clone());
        }
    }

    /// Replaces whatever is there for the requirement's key.
    pub fn replace(&mut self, requirement: Requirement) {
        Arc::make_mut(&mut self.0).insert(requirement.key().to_owned(), requirement);
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        if self.0.contains_key(key) {
            Arc::make_mut(&mut self.0).remove(key);
        }
    }

    /// Whether the key is defined.
    pub fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The requirement of a key, if defined.
    pub fn find(&self, key: &str) -> Option<&Requirement> {
        self.0.get(key)
    }

    /// The requirement of a key; an absent key reads as `Exists`.
    pub fn get(&self, key: &str) -> Cow<'_, Requirement> {
        self.0
            .get(key)
            .map_or_else(|| Cow::Owned(Requirement::exists(key)), Cow::Borrowed)
    }

    /// Requirements in key order.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.0.values()
    }

    /// How many keys are defined.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when nothing is required.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The minimum number of values that a key asks for.
    pub fn min_values(&self, key: &str) -> Option<u32> {
        self.find(key)?.min_values()
    }

    /// Whether any key asks for a minimum number of values.
    pub fn has_min_values(&self) -> bool {
        self.iter().any(|requirement| requirement.min_values().is_some())
    }

    /// Lowers minValues of requirements that list fewer values: an API server would refuse a NodeClaim with them (P-005). True where there were any.
    pub fn lower_min_values_to_listed(&mut self) -> bool {
        let lists_too_few = |one: &&Requirement| {
            let listed = one.listed().unwrap_or(usize::MAX);
            one.min_values().is_some_and(|minimum| minimum as usize > listed)
        };
        let too_few: Vec<Requirement> = self.iter().filter(lists_too_few).cloned().collect();
        let any = !too_few.is_empty();
        for mut requirement in too_few {
            let listed = requirement.listed().unwrap_or_default();
            requirement.lower_min_values(listed as u32);
            self.replace(requirement);
        }
        any
    }

    /// P §2.2: for each key of both sets the requirements must intersect, except that NotIn/DoesNotExist never conflict with
    /// NotIn/DoesNotExist (P-036). The error is the first conflict in key order.
    pub fn intersects(&self, incoming: &Requirements) -> Result<(), Incompatibility> {
        let (few, many) = if self.len() <= incoming.len() {
            (self, incoming)
        } else {
            (incoming, self)
        };
        for key in few.0.keys().filter(|key| many.0.contains_key(*key)) {
            let (Some(existing), Some(incoming)) = (self.0.get(key), incoming.0.get(key)) else {
                continue;
            };
            let both_absent = existing.reads_as_absence() && incoming.reads_as_absence();
            if !both_absent && !existing.has_intersection(incoming) {
                return Err(Incompatibility::NoCommonValue {
                    incoming: incoming.clone(),
                    existing: existing.clone(),
                });
            }
        }
        Ok(())
    }

    /// P §2.2: whether a thing with these requirements satisfies the incoming ones. A key that is neither defined here nor in
    /// `allow_undefined` must be NotIn or DoesNotExist. As upstream, what came of `Exists` and `NotIn` counts as NotIn: a node that is launched for it
    /// gets the label. Of a node that is there, ask [`satisfy`](Self::satisfy).
    pub fn compatible(
        &self,
        incoming: &Requirements,
        allow_undefined: &BTreeSet<String>,
    ) -> Result<(), Incompatibility> {
        for requirement in incoming.iter() {
            let key = requirement.key();
            if self.contains(key) || allow_undefined.contains(key) || requirement.reads_as_absence() {
                continue;
            }
            return Err(Incompatibility::UndefinedLabel {
                key: key.to_owned(),
                typo_of: self.typo_of(key, allow_undefined),
            });
        }
        self.intersects(incoming)
    }

    /// Whether a node with these labels satisfies what is asked, as Kubernetes sees it: a label that it does not have must not be demanded.
    #[must_use]
    pub fn satisfy(&self, asked: &Requirements) -> bool {
        let defined = |one: &Requirement| self.contains(one.key()) || one.is_satisfied_by_absence();
        asked.iter().all(defined) && self.intersects(asked).is_ok()
    }

    /// A known key that contains the given one, or ends with what follows its slash (P-038).
    fn typo_of(&self, key: &str, allow_undefined: &BTreeSet<String>) -> Option<String> {
        let suffix = key.split_once('/').map_or(key, |(_, suffix)| suffix);
        let known = allow_undefined.iter().chain(self.0.keys());
        known
            .filter(|known| known.contains(key) || known.ends_with(suffix))
            .map(Clone::clone)
            .next()
    }

    /// Labels for a NodeClaim: a member of each custom key's set; well-known and restricted keys are left to the provider (P-068).
    pub fn custom_labels(&self, well_known: &BTreeSet<String>) -> BTreeMap<String, String> {
        let custom = self.iter().filter(|requirement| {
            !well_known.contains(requirement.key()) && !labels::is_restricted(requirement.key())
        });
        custom
            .filter_map(|requirement| Some((requirement.key().to_owned(), requirement.any()?)))
            .collect()
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(iter: I) -> Self {
        let mut requirements = Requirements::new();
        for requirement in iter {
            requirements.add(requirement);
        }
        requirements
    }
}

impl fmt::Display for Requirements {
    /// Sorted, comma separated, without restricted labels.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self
            .iter()
            .filter(|requirement| !labels::is_restricted(requirement.key()));
        let texts: Vec<String> = shown.map(ToString::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirement::Operator;

    #[test]
    fn a_clone_keeps_its_content_when_the_other_changes() {
        let one: Requirements = [Requirement::is("a", "1"), Requirement::is("b", "2")]
            .into_iter()
            .collect();
        let mut other = one.clone();
        other.add(Requirement::is("c", "3"));
        other.replace(Requirement::is("a", "9"));
        other.remove("b");
        other.remove("not there");
        let keys = |requirements: &Requirements| -> Vec<String> {
            requirements.iter().map(|it| it.key().to_owned()).collect()
        };
        assert_eq!(
            (keys(&one), keys(&other)),
            (vec!["a".into(), "b".into()], vec!["a".into(), "c".into()])
        );
        assert!(one.get("a").has("1") && other.get("a").has("9"));
    }

    fn well_known() -> BTreeSet<String> {
        labels::WELL_KNOWN.iter().map(ToString::to_string).collect()
    }

    fn set(requirements: impl IntoIterator<Item = Requirement>) -> Requirements {
        requirements.into_iter().collect()
    }

    #[test]
    fn p_034_example_2_undefined_custom_keys() {
        let bare = Requirements::new();
        let team = set([Requirement::is("team", "a")]);
        let ask =
            |operator, values: &[&str]| set([Requirement::new("team", operator, values.iter().copied())]);
        let refused = bare
            .compatible(&ask(Operator::In, &["a"]), &well_known())
            .map_err(|error| error.to_string());
        assert_eq!(
            refused,
            Err("label \"team\" does not have known values".to_owned())
        );
        assert!(
            bare.compatible(&ask(Operator::Gt, &["1"]), &well_known())
                .is_err()
        );
        assert!(
            bare.compatible(&ask(Operator::NotIn, &["a"]), &well_known())
                .is_ok()
        );
        assert!(
            bare.compatible(&ask(Operator::DoesNotExist, &[]), &well_known())
                .is_ok()
        );
        assert!(
            team.compatible(&ask(Operator::Exists, &[]), &well_known())
                .is_ok()
        );
        assert!(
            team.compatible(&ask(Operator::DoesNotExist, &[]), &well_known())
                .is_err()
        );
    }

    #[test]
    fn p_034_a_node_without_the_label_does_not_satisfy_what_demands_it() {
        use Operator::{DoesNotExist, Exists, Gt, In, NotIn};
        let bare = Requirements::new();
        let labelled = set([Requirement::is("team", "5")]);
        let ask = |asked: &[(Operator, &[&str])]| -> Requirements {
            let asked = asked.iter();
            asked
                .map(|(operator, values)| Requirement::new("team", *operator, values.iter().copied()))
                .collect()
        };
        for (asked, of_bare, of_labelled) in [
            (ask(&[(Exists, &[]), (NotIn, &["gpu"])]), false, true),
            (ask(&[(Gt, &["3"]), (NotIn, &["8"])]), false, true),
            (ask(&[(In, &["5"]), (NotIn, &["5"])]), false, false),
            (ask(&[(In, &["5"]), (In, &["6"])]), false, false),
            (ask(&[(NotIn, &["5"])]), true, false),
            (ask(&[(DoesNotExist, &[])]), true, false),
            (ask(&[(In, &["5"])]), false, true),
        ] {
            assert_eq!(
                (bare.satisfy(&asked), labelled.satisfy(&asked)),
                (of_bare, of_labelled),
                "{asked}"
            );
        }
        // A node that is launched gets the label, so NodePools are asked as upstream asks them.
        let some = ask(&[(Exists, &[]), (NotIn, &["gpu"])]);
        assert!(bare.compatible(&some, &BTreeSet::new()).is_ok());
        assert_eq!(some.custom_labels(&well_known())["team"], "0");
    }

    #[test]
    fn p_035_well_known_keys_may_be_undefined_only_where_allowed() {
        let zone = set([Requirement::is(labels::ZONE, "a")]);
        assert!(Requirements::new().compatible(&zone, &well_known()).is_ok());
        assert!(Requirements::new().compatible(&zone, &BTreeSet::new()).is_err());
    }

    #[test]
    fn p_036_absence_never_conflicts_with_absence() {
        let left = set([Requirement::new("k", Operator::NotIn, ["a"])]);
        let right = set([Requirement::does_not_exist("k")]);
        assert_eq!(left.intersects(&right), Ok(()));
    }

    #[test]
    fn p_038_typo_hints() {
        let ask = |key: &str| set([Requirement::is(key, "a")]);
        let text = |key: &str| {
            Requirements::new()
                .compatible(&ask(key), &well_known())
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            text("zone"),
            Err(
                r#"label "zone" does not have known values (typo of "topology.kubernetes.io/zone"?)"#
                    .to_owned()
            )
        );
        assert_eq!(text("topology.k8s.io/zone"), Err(r#"label "topology.k8s.io/zone" does not have known values (typo of "topology.kubernetes.io/zone"?)"#.to_owned()));
    }

    #[test]
    fn rendering_hides_restricted_labels() {
        let requirements = set([
            Requirement::is(labels::HOSTNAME, "n"),
            Requirement::is("b", "1"),
            Requirement::is("a", "2"),
        ]);
        assert_eq!(requirements.to_string(), "a In [2], b In [1]");
    }
}
