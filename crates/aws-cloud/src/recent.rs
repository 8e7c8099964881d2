//! Launches of this process: one instance for a NodeClaim however often it is asked for, and instances that EC2 does not tell of yet.
//!
//! Owns the memory of launches, those included that EC2 has not answered yet. A launch whose answer was not written down is found again by the NodeClaim's UID
//! for as long as the process lives; what a process that was killed has launched is garbage collection's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::NodeClaim;

use crate::batch::REMEMBERED_FOR;
use crate::flight::Flight;

/// EC2 may say for so long that it does not know an instance which it has just launched.
const UNKNOWN_FOR: SignedDuration = SignedDuration::from_secs(30);

/// The launch of a NodeClaim.
#[derive(Debug, Default)]
pub(crate) struct Launch {
    /// What was launched, and when.
    pub(crate) made: Option<(Timestamp, NodeClaim)>,
    /// A call for it that EC2 has not answered.
    pub(crate) flight: Option<Flight>,
}

/// The launch of one NodeClaim: whoever holds it launches.
pub(crate) type Slot = Arc<tokio::sync::Mutex<Launch>>;

/// Launches by the UID of their NodeClaim.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    slots: Mutex<BTreeMap<String, Slot>>,
}

impl Recent {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The launch for a NodeClaim, which others of the same NodeClaim wait for.
    pub(crate) fn slot(&self, uid: &str, now: Timestamp) -> Slot {
        let mut slots = self.slots();
        slots.retain(|_, slot| {
            let is_held = Arc::strong_count(slot) > 1;
            let launch = slot.try_lock();
            is_held || launch.is_ok_and(|launch| is_remembered(&launch, now))
        });
        slots.entry(uid.to_owned()).or_default().clone()
    }

    /// What was launched for the NodeClaim of this UID.
    pub(crate) fn of(&self, uid: &str) -> Option<NodeClaim> {
        let slots = self.slots();
        let launch = slots.get(uid)?.try_lock().ok()?;
        launch.made.as_ref().map(|(_, claim)| claim.clone())
    }

    /// A NodeClaim is given up: nobody waits for the call for it any more.
    pub(crate) fn give_up(&self, uid: &str) {
        if let Some(slot) = self.slots().get(uid)
            && let Ok(mut launch) = slot.try_lock()
        {
            launch.flight = None;
        }
    }

    /// Forgets calls that EC2 has not answered and that nobody waits for now.
    pub(crate) fn forget_flights(&self) {
        for slot in self.slots().values() {
            if let Ok(mut launch) = slot.try_lock() {
                launch.flight = None;
            }
        }
    }

    /// Instances that EC2 may not tell of yet, as NodeClaims.
    pub(crate) fn unknown(&self, now: Timestamp) -> Vec<NodeClaim> {
        let slots = self.slots();
        let launches = slots.values().filter_map(|slot| slot.try_lock().ok());
        let young = launches.filter(|launch| is_younger(launch, UNKNOWN_FOR, now));
        young
            .filter_map(|launch| Some(launch.made.as_ref()?.1.clone()))
            .collect()
    }

    /// The same for one instance.
    pub(crate) fn unknown_one(&self, provider_id: &str, now: Timestamp) -> Option<NodeClaim> {
        let mut unknown = self.unknown(now).into_iter();
        unknown.find(|claim| claim.provider_id() == Some(provider_id))
    }

    /// Adds to the instances that EC2 lists those that it does not tell of yet, and gives all of them in order. Those that this process has launched get the UIDs of
    /// their NodeClaims: EC2 knows whose an instance is only once its Node has joined.
    pub(crate) fn complete(&self, listed: &mut Vec<NodeClaim>, now: Timestamp) {
        for mut unknown in self.unknown(now) {
            if listed
                .iter()
                .all(|claim| claim.provider_id() != unknown.provider_id())
            {
                unknown.metadata.creation_timestamp.get_or_insert(Time(now));
                listed.push(unknown);
            }
        }
        listed.sort_by(|a, b| a.provider_id().cmp(&b.provider_id()));
        let slots = self.slots();
        for (uid, slot) in &*slots {
            let Ok(launch) = slot.try_lock() else { continue };
            let made = launch.made.as_ref();
            let id = made.and_then(|(_, claim)| claim.provider_id());
            if let Ok(at) = listed.binary_search_by(|claim| claim.provider_id().cmp(&id)) {
                listed[at].metadata.uid = Some(uid.clone());
            }
        }
    }

    /// An instance is ending: nobody finds it again.
    pub(crate) fn forget(&self, provider_id: &str) {
        self.slots().retain(|_, slot| {
            let is_it = |launch: &Launch| {
                let claim = launch.made.as_ref().map(|(_, claim)| claim);
                claim.is_some_and(|claim| claim.provider_id() == Some(provider_id))
            };
            // A launch that is under way is another one's.
            !slot.try_lock().is_ok_and(|launch| is_it(&launch))
        });
    }
}

/// Whether something was launched, no longer ago than this.
fn is_younger(launch: &Launch, age: SignedDuration, now: Timestamp) -> bool {
    let at = launch.made.as_ref().map(|(at, _)| *at);
    at.is_some_and(|at| now.duration_since(at) < age)
}

fn is_remembered(launch: &Launch, now: Timestamp) -> bool {
    let flies = launch.flight.as_ref().is_some_and(|flight| !flight.is_old(now));
    flies || is_younger(launch, REMEMBERED_FOR, now)
}

/// What was launched for the same NodeClaim, if EC2 need not be asked whether it is still there.
pub(crate) fn still_fresh(launch: &Launch, now: Timestamp) -> Option<NodeClaim> {
    let fresh = is_younger(launch, UNKNOWN_FOR, now);
    let made = launch.made.as_ref().filter(|_| fresh);
    made.map(|(_, claim)| claim.clone())
}
