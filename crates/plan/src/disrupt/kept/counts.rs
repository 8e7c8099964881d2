//! Whose rules of topology look at pods that have come, gone or moved.
//!
//! It answers for classes, and says yes rather than no: which domain a rule compares is not looked at.

use spokeshave_model::constraints::{Constraints, PodTerm};
use spokeshave_model::snapshot::Snapshot;

/// The classes that some rule binds: their own, or the anti-affinity of others.
pub(super) fn bound(snapshot: &Snapshot) -> Vec<bool> {
    let keep_away: Vec<&PodTerm> = snapshot
        .classes
        .iter()
        .flat_map(|class| &class.anti_affinity)
        .collect();
    let is_kept_away = |class: &Constraints| keep_away.iter().any(|term| selects(term, class));
    let is_bound = |class: &Constraints| has_rules(class) || is_kept_away(class);
    snapshot.classes.iter().map(is_bound).collect()
}

/// The classes with a rule that counts a pod of one of these, or that the anti-affinity of one of these keeps away.
pub(super) fn affected(snapshot: &Snapshot, recounted: &[&Constraints]) -> Vec<bool> {
    if recounted.is_empty() {
        return vec![false; snapshot.classes.len()];
    }
    let is_affected = |class: &Constraints| {
        recounted
            .iter()
            .any(|other| counts(class, other) || other.anti_affinity.iter().any(|term| selects(term, class)))
    };
    snapshot.classes.iter().map(is_affected).collect()
}

fn has_rules(class: &Constraints) -> bool {
    !class.spreads.is_empty() || terms(class).next().is_some()
}

/// All terms of affinity and anti-affinity, preferred ones included.
fn terms(class: &Constraints) -> impl Iterator<Item = &PodTerm> {
    let preferred = class
        .preferred_affinity
        .iter()
        .chain(&class.preferred_anti_affinity);
    let required = class.affinity.iter().chain(&class.anti_affinity);
    required.chain(preferred.map(|(_, term)| term))
}

/// Whether a rule of a class counts pods of another.
fn counts(class: &Constraints, other: &Constraints) -> bool {
    let spreads = class.spreads.iter();
    let mut spreads = spreads.filter(|_| class.namespace == other.namespace);
    spreads.any(|spread| spread.selector.matches(&other.labels))
        || terms(class).any(|term| selects(term, other))
}

fn selects(term: &PodTerm, class: &Constraints) -> bool {
    term.namespaces.contains(&class.namespace) && term.selector.matches(&class.labels)
}
