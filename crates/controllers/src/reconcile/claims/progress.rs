//! What follows from the progress of NodeClaims: metrics, the health of their NodePools, what is known of zones, and lines of the log.
//!
//! Owns what was taken into account in this term. What the conditions say counts, and not what was written: the answer to a write may be lost, and whoever led before
//! may have died after it.

use spokeshave_api::conditions::{Conditioned as _, INITIALIZED, REGISTERED};
use spokeshave_api::{NodeClaim, labels};
use spokeshave_plan::lifecycle::Progress;

use super::Claims;
use super::remembered::Remembered;
use crate::observe::decision::DecisionKind;
use crate::reconcile::launch_ends;

/// What was taken into account of a NodeClaim.
#[derive(Debug, Default)]
struct Noted {
    joined: bool,
    came_up: bool,
    given_up: bool,
}

/// What was taken into account. Lost: what came before this term is known by its time.
#[derive(Debug, Default)]
pub(super) struct Notes(Remembered<Noted>);

impl Notes {
    /// True once for each NodeClaim.
    fn is_news(&self, claim: &NodeClaim, what: fn(&mut Noted) -> &mut bool) -> bool {
        let is_news = |noted: &mut Noted| !std::mem::replace(what(noted), true);
        self.0.look(claim, Noted::default, is_news)
    }

    /// Whether it is news that a claim is given up.
    pub(super) fn gives_up(&self, claim: &NodeClaim) -> bool {
        self.is_news(claim, |noted| &mut noted.given_up)
    }

    /// The NodeClaim of this name is gone.
    pub(super) fn forget(&self, name: &str) {
        self.0.forget(name);
    }
}

impl Claims {
    /// Takes into account, once in a term, that the Node of a claim has joined and that it can run pods.
    pub(super) fn take_note(&self, claim: &NodeClaim) {
        let joined = claim.true_condition(REGISTERED);
        if let Some(joined) = joined.filter(|_| self.notes.is_news(claim, |noted| &mut noted.joined)) {
            let at = joined.last_transition_time;
            launch_ends::joined(&self.cluster, claim, at);
            // Who led before has counted it.
            if launch_ends::is_of_term(&self.cluster, at) {
                let zone = claim.label(labels::ZONE).unwrap_or_default();
                let pool = claim.node_pool().unwrap_or_default();
                self.journal.families.nodes_created.inc(&[pool, zone]);
            }
        }
        if claim.is_true(INITIALIZED) && self.notes.is_news(claim, |noted| &mut noted.came_up) {
            self.cluster.memory().vain.came_up(claim.name());
        }
    }

    /// What was written of a claim.
    pub(super) fn progressed(&self, claim: &NodeClaim, progress: &[Progress]) {
        if !progress.is_empty()
            && let Some(written) = self.cluster.stores.node_claims.get_named(claim.name())
        {
            self.take_note(&written);
        }
        for step in progress {
            match step {
                Progress::Registered { node } => {
                    tracing::info!(NodeClaim = claim.name(), Node = node, "registered nodeclaim");
                }
                Progress::Rejoined { node } => {
                    tracing::info!(NodeClaim = claim.name(), Node = node, "registered node again");
                }
                Progress::Initialized { node } => {
                    tracing::info!(NodeClaim = claim.name(), Node = node, "initialized nodeclaim");
                    self.journal.note(
                        DecisionKind::Ready,
                        node,
                        "can run pods",
                        format!("nodeclaim {} is initialised", claim.name()),
                        None,
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::NodeClaimSpec;

    #[test]
    fn what_becomes_of_a_nodeclaim_is_news_once_and_of_its_namesake_again() {
        let claim = |uid: &str| {
            let mut claim = NodeClaim::new("a", NodeClaimSpec::default());
            claim.metadata.uid = Some(uid.to_owned());
            claim
        };
        let notes = Notes::default();
        let joins = |uid: &str| notes.is_news(&claim(uid), |noted| &mut noted.joined);
        assert!(joins("1") && !joins("1"));
        assert!(notes.gives_up(&claim("1")), "something else");
        assert!(joins("2") && !joins("2"));
        notes.forget("a");
        assert!(joins("2"));
    }
}
