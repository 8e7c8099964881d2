//! Tells what holds up terminations: the condition `spokeshave.dev/TerminationBlocked` on the NodeClaim, and an event on it and on its Node.
//!
//! Owns how often that is written: when it begins, ends or gets another reason at once; when only the words change, once a minute. The log has a line for
//! each reason, and none for other words; events are for reasons that last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, TERMINATION_BLOCKED};
use spokeshave_model::ObjectRef;
use spokeshave_plan::blockers::{BLOCKED_AFTER, Blocker, blocked_action, blocked_event, held_up_since};
use spokeshave_plan::lifecycle::claim_ref;

use crate::act::hands::Hands;

/// Least time between two writes for the words alone.
const REWORD_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// What was in the way of a NodeClaim's end at the last look.
#[derive(Debug)]
struct Seen {
    reason: &'static str,
    /// Since when it has been that.
    since: Timestamp,
    /// When the words were last written.
    written: Option<Timestamp>,
}

/// What was seen last, by UID of the NodeClaim. Lost: the words are written once more, and a reason lasts from the next look on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<BTreeMap<String, Seen>>>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what is in the way now, and says since when nothing else has been.
    fn see(&self, uid: &str, reason: &'static str, now: Timestamp) -> Timestamp {
        let mut told = self.lock();
        let seen = told.entry(uid.to_owned()).or_insert(Seen {
            reason,
            since: now,
            written: None,
        });
        if seen.reason != reason {
            seen.reason = reason;
            seen.since = now;
        }
        seen.since
    }

    fn written(&self, uid: &str) -> Option<Timestamp> {
        self.lock().get(uid).and_then(|seen| seen.written)
    }

    fn note_written(&self, uid: &str, when: Timestamp) {
        if let Some(seen) = self.lock().get_mut(uid) {
            seen.written = Some(when);
        }
    }

    fn forget(&self, uid: &str) {
        self.lock().remove(uid);
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
        let since = held_up_since(&claim, now);
        let same_step = known.is_some_and(|known| known.last_transition_time == since);
        let same_reason = known
            .zip(blocker)
            .is_some_and(|(known, blocker)| known.reason == blocker.reason);
        let just_told = self
            .told
            .written(claim.uid())
            .is_some_and(|last| now.duration_since(last) < REWORD_AFTER);
        if let Some(blocker) = blocker {
            let unchanged = now.duration_since(self.told.see(claim.uid(), blocker.reason, now));
            let lasts = Duration::try_from(unchanged).is_ok_and(|unchanged| unchanged >= BLOCKED_AFTER);
            // Where one pod after the other goes, the reason may change by the second: for that there is the condition.
            if lasts || !same_step {
                for object in node.into_iter().chain([claim_ref(&claim)]) {
                    self.tell(&blocked_event(object, blocker, since));
                }
            }
        }
        if same_step && same_reason && just_told {
            return;
        }
        if let Some(action) = blocked_action(&claim, blocker, now) {
            match self.run(&action).await {
                Ok(()) => {
                    match blocker {
                        Some(_) => self.told.note_written(claim.uid(), now),
                        None => self.told.forget(claim.uid()),
                    }
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
        self.told.forget(claim.uid());
    }
}
