//! Whose rules of topology look at pods that have come, gone or moved.
//!
//! It answers for classes, and says yes rather than no: which domain a rule compares is not looked at.

use spokeshave_model::constraints::{Constraints, PodTerm};
use spokeshave_model::snapshot::Snapshot;

/// The classes that some rule binds: their own, or the anti-affinity of others.
pub(super) fn bound(snapshot: &Snapshot) -> Vec<bool> {
    let classes = &snapshot.classes;
    let mut bound = vec![false; classes.len()];
    for class in classes.ruled() {
        bound[class.index()] = true;
    }
    let repelling = classes.repelling().iter();
    let keep_away: Vec<&PodTerm> = repelling
        .flat_map(|class| &classes[class.index()].anti_affinity)
        .collect();
    if !keep_away.is_empty() {
        for (bound, class) in bound.iter_mut().zip(classes.iter()) {
            *bound |= keep_away.iter().any(|term| selects(term, class));
        }
    }
    bound
}

/// The classes with a rule that counts a pod of one of these, or that the anti-affinity of one of these keeps away.
pub(super) fn affected(snapshot: &Snapshot, recounted: &[&Constraints]) -> Vec<bool> {
    let classes = &snapshot.classes;
    let mut affected = vec![false; classes.len()];
    for other in recounted {
        for class in classes.may_count(&other.labels) {
            affected[class.index()] |= counts(&classes[class.index()], other);
        }
        for term in &other.anti_affinity {
            for class in classes.selected(&term.selector) {
                let namespace = &classes[class.index()].namespace;
                affected[class.index()] |= term.namespaces.contains(namespace);
            }
        }
    }
    affected
}

/// Whether a rule of a class counts pods of another.
fn counts(class: &Constraints, other: &Constraints) -> bool {
    let spreads = class.spreads.iter();
    let mut spreads = spreads.filter(|_| class.namespace == other.namespace);
    spreads.any(|spread| spread.selector.matches(&other.labels))
        || class.topology_terms().any(|term| selects(term, other))
}

fn selects(term: &PodTerm, class: &Constraints) -> bool {
    term.namespaces.contains(&class.namespace) && term.selector.matches(&class.labels)
}
