//! Plans that an independent check has nothing against: pods whose places break a rule hold up nobody else, because it is decided again without them.
//!
//! Owns how often, and who is left out. Who decides, and what is told of it, is the caller's.

use std::collections::BTreeMap;

use spokeshave_audit::Violation;
use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_plan::Provisioned;

/// How often it is decided again, each time without further pods. After that something is wrong with more than some pods.
const MOST_RETRIES: usize = 2;

/// An outcome that the check has nothing against.
pub(crate) struct Sound<T> {
    /// About all pods that were meant, those that were left out included.
    pub(crate) outcome: Provisioned,
    /// What was decided besides.
    pub(crate) more: T,
    /// Pods that were left out, each with the violation because of which it was.
    pub(crate) refused: BTreeMap<PodId, String>,
}

/// Decides about some pods. `decide` is told whom to leave out, and `found` what the check finds each time. `None` when what remains breaks a rule however
/// many pods are left out: nothing of it counts then.
pub(crate) fn decide_soundly<T>(
    snapshot: &Snapshot,
    mut decide: impl FnMut(&BTreeMap<PodId, String>) -> (Provisioned, T),
    mut found: impl FnMut(&[Violation]),
) -> Option<Sound<T>> {
    let mut refused: BTreeMap<PodId, String> = BTreeMap::new();
    for _ in 0..=MOST_RETRIES {
        let (mut outcome, more) = decide(&refused);
        let violations = check(snapshot, &outcome);
        if violations.is_empty() {
            outcome.pods.extend(refused.keys());
            outcome.pods.sort_unstable();
            return Some(Sound {
                outcome,
                more,
                refused,
            });
        }
        found(&violations);
        let (pods, placements) = (&outcome.pods, &outcome.placements);
        let suspects = spokeshave_audit::suspects(snapshot, pods, placements, &violations);
        if suspects.is_empty() {
            return None;
        }
        refused.extend(suspects);
    }
    None
}

fn check(snapshot: &Snapshot, outcome: &Provisioned) -> Vec<Violation> {
    if outcome.pods.is_empty() {
        // Nothing is carried out: the check would go through all nodes for it.
        return Vec::new();
    }
    spokeshave_audit::check_placements(snapshot, &outcome.pods, &outcome.placements)
}
