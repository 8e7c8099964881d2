//! Tells what holds up terminations: the condition `spokeshave.dev/TerminationBlocked` on the NodeClaim, and an event on it and on its Node.
//!
//! Owns how often that is written: when it begins, ends or gets another reason at once; when only the words change, once a minute. The log has a line for
//! each reason, and none for other words.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, TERMINATION_BLOCKED};
use spokeshave_model::ObjectRef;
use spokeshave_plan::blockers::{Blocker, blocked_action, blocked_event};
use spokeshave_plan::lifecycle::claim_ref;

use crate::act::hands::Hands;

/// Least time between two writes for the words alone.
const REWORD_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// When the words were last written, by UID of the NodeClaim. Lost: they are written once more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<BTreeMap<String, Timestamp>>>);

impl Told {
    fn last(&self, uid: &str) -> Option<Timestamp> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.get(uid).copied()
    }

    fn note(&self, uid: &str, when: Option<Timestamp>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match when {
            Some(when) => told.insert(uid.to_owned(), when),
            None => told.remove(uid),
        };
    }
}

impl Hands {
    /// Brings a NodeClaim up to date about what holds up its end. `node` also gets the event.
    pub(crate) async fn report_blocker(
        &self,
        claim: &NodeClaim,
        node: Option<ObjectRef>,
        blocker: Option<&Blocker>,
    ) {
        // A write of this very look may have made the claim newer than the caller's.
        let Some(claim) = self
            .stores
            .node_claims
            .get_named(claim.name())
            .filter(|current| current.uid() == claim.uid())
        else {
            return;
        };
        let known = claim.condition(TERMINATION_BLOCKED);
        if known.is_none() && blocker.is_none() {
            return;
        }
        let now = self.clock.now();
        let same_reason = known
            .zip(blocker)
            .is_some_and(|(known, blocker)| known.reason == blocker.reason);
        let just_told = self
            .told
            .last(claim.uid())
            .is_some_and(|last| now.duration_since(last) < REWORD_AFTER);
        if let Some(blocker) = blocker {
            let since = known
                .filter(|_| same_reason)
                .map_or(now, |known| known.last_transition_time);
            for object in node.into_iter().chain([claim_ref(&claim)]) {
                self.tell(&blocked_event(object, blocker, since));
            }
        }
        if same_reason && just_told {
            return;
        }
        if let Some(action) = blocked_action(&claim, blocker, now) {
            match self.run(&action).await {
                Ok(()) => {
                    self.told.note(claim.uid(), blocker.map(|_| now));
                    if let Some(blocker) = blocker.filter(|_| !same_reason) {
                        tracing::warn!(
                            NodeClaim = claim.name(),
                            reason = blocker.reason,
                            detail = blocker.message,
                            "termination is held up"
                        );
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "telling what holds up a termination; the next look tries again")
                }
            }
        }
    }

    /// A NodeClaim is no more.
    pub(crate) fn forget_blocker(&self, claim: &NodeClaim) {
        self.told.note(claim.uid(), None);
    }
}
