//! A call for an instance that is under way, with all that its answer means.
//!
//! Owns what a launch has to remember until EC2 has answered. It makes no call.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use spokeshave_api::EC2NodeClass;
use spokeshave_provider_aws::addresses::{Addresses, Chosen};
use spokeshave_provider_aws::fleet::{self, Place};
use spokeshave_provider_aws::launch::Template;

use crate::batch::{REMEMBERED_FOR, Ticket};

/// A call for an instance, with all that its answer means to the NodeClaim that it is for: it may come when the class has changed, and something else would be
/// launched. One that ends before EC2 was asked gives back the addresses that were set aside for it.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) ticket: Ticket,
    pub(crate) class: Arc<EC2NodeClass>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) asked: fleet::Asked,
    pub(crate) chosen: Chosen,
    pub(crate) addresses: Arc<Mutex<Addresses>>,
    pub(crate) since: Timestamp,
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Once EC2 was asked it may have taken them, until it is asked how many are free.
        if !self.ticket.is_asked() {
            let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            addresses.settle(&self.chosen, &BTreeSet::new());
        }
    }
}

/// A launch template of a call, and the types that it was named for.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) template: Template<'static>,
    types: BTreeSet<String>,
}

impl Sent {
    pub(crate) fn of(template: Template<'_>) -> Self {
        let types = template.candidates.iter();
        Sent {
            types: types.map(|one| one.instance_type.name.clone()).collect(),
            template: Template {
                request: template.request,
                candidates: Vec::new(),
                reservation_id: template.reservation_id,
            },
        }
    }
}

impl Flight {
    /// Whether there is nothing to come back to: EC2 has answered, or was not asked.
    pub(crate) fn is_over(&self) -> bool {
        self.ticket.is_answered() || !self.ticket.is_asked()
    }

    /// Whether what the call may have launched is garbage collection's by now.
    pub(crate) fn is_old(&self, now: Timestamp) -> bool {
        now.duration_since(self.since) >= REMEMBERED_FOR
    }

    /// The template that an instance was launched from. `None` where none was asked for there.
    pub(crate) fn template(&self, place: &Place) -> Option<&Template<'static>> {
        let is_there = |one: &Place| one.instance_type == place.instance_type && one.zone == place.zone;
        if !self.asked.places.iter().any(is_there) {
            return None;
        }
        let key = (place.instance_type.clone(), place.zone.clone());
        let reservation = self.asked.reservations.get(&key);
        let sent = self.sent.iter().find(|sent| {
            sent.types.contains(&place.instance_type) && sent.template.reservation_id.as_ref() == reservation
        });
        sent.map(|sent| &sent.template)
    }
}
