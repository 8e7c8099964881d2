//! Events of a provider as messages about instances (G-008, G-016): each comes again until it is acknowledged.
//!
//! Owns the stream across connections. It ends nothing by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use spokeshave_model::interruption::InterruptionKind as Kind;
use spokeshave_ports::{CloudError, Interruption, Interruptions, SharedClock};
use tonic::Streaming;

use crate::convert;
use crate::errors;
use crate::kinds::{kind_named, message_of};
use crate::link::{Link, within};
use crate::wire::provider_event::Event;
use crate::wire::{
    self, AcknowledgeRequest, Capability, EventsRequest, InterruptionKind, LaunchFailure, ProviderEvent,
};

/// Pause after a stream that broke off.
const RETRY: Duration = Duration::from_secs(1);
const ACKNOWLEDGE_LIMIT: Duration = Duration::from_secs(10);
/// Events that are remembered as done, and failures of launches that nobody has asked about.
const REMEMBERED: usize = 4096;

/// What is remembered of events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    done: BTreeSet<String>,
    order: VecDeque<String>,
    /// Failures of launches that were pending, by UID of the NodeClaim.
    failed: BTreeMap<String, LaunchFailure>,
}

impl Events {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_done(&self, id: &str) -> bool {
        self.state().done.contains(id)
    }

    fn set_done(&self, id: &str) {
        let mut state = self.state();
        if state.done.insert(id.to_owned()) {
            state.order.push_back(id.to_owned());
        }
        while state.order.len() > REMEMBERED {
            if let Some(oldest) = state.order.pop_front() {
                state.done.remove(&oldest);
            }
        }
    }

    /// Why a launch that was pending has failed.
    pub(crate) fn failure(&self, uid: &str) -> Option<CloudError> {
        let failure = self.state().failed.remove(uid);
        failure.map(errors::launch_error)
    }

    /// The messages, for as long as somebody listens.
    pub(crate) fn listen<'a>(&'a self, link: &'a Arc<Link>, clock: &'a SharedClock) -> Interruptions<'a> {
        let start: Option<Streaming<ProviderEvent>> = None;
        futures::stream::unfold(start, move |mut stream| async move {
            loop {
                let Some(open) = &mut stream else {
                    let mut client = link.up_with(Capability::Events).await;
                    match client.watch_events(EventsRequest {}).await {
                        Ok(answer) => stream = Some(answer.into_inner()),
                        Err(status) => {
                            tracing::warn!(code = ?status.code(), message = status.message(), "events of the provider cannot be read");
                            clock.sleep(RETRY).await;
                        }
                    }
                    continue;
                };
                match open.message().await {
                    Ok(Some(event)) => match self.take(event) {
                        Taken::Message(message) => return Some((message, stream)),
                        Taken::Done(id) => drop(self.acknowledge(link, clock, &id).await),
                    },
                    Ok(None) => stream = None,
                    Err(status) => {
                        tracing::warn!(code = ?status.code(), message = status.message(), "events of the provider have broken off");
                        stream = None;
                    }
                }
                if stream.is_none() {
                    clock.sleep(RETRY).await;
                }
            }
        })
        .boxed()
    }

    fn take(&self, event: ProviderEvent) -> Taken {
        let id = event.id;
        if self.is_done(&id) {
            return Taken::Done(id);
        }
        match event.event {
            Some(Event::Interruption(interruption)) => {
                let ends_at = interruption.deadline.as_ref().and_then(convert::timestamp_of);
                let sent_at = interruption.sent_at.as_ref().and_then(convert::timestamp_of);
                Taken::Message(Interruption {
                    kind: kind_of(&interruption),
                    provider_id: interruption.provider_id,
                    id,
                    sent_at,
                    ends_at,
                })
            }
            Some(Event::LaunchFailed(failed)) if failed.provider_id.is_empty() => {
                let mut state = self.state();
                if state.failed.len() >= REMEMBERED {
                    state.failed.pop_first();
                }
                state
                    .failed
                    .insert(failed.nodeclaim_uid, failed.failure.unwrap_or_default());
                Taken::Done(id)
            }
            Some(Event::LaunchFailed(failed)) => Taken::Message(Interruption {
                id,
                provider_id: failed.provider_id,
                kind: Ok(Kind::InstanceTerminated),
                sent_at: None,
                ends_at: None,
            }),
            None => Taken::Message(Interruption {
                kind: Err("an event of a kind that this version does not know".to_owned()),
                provider_id: String::new(),
                id,
                sent_at: None,
                ends_at: None,
            }),
        }
    }

    /// Lets the provider forget an event.
    pub(crate) async fn acknowledge(
        &self,
        link: &Link,
        clock: &SharedClock,
        id: &str,
    ) -> Result<(), CloudError> {
        self.set_done(id);
        let mut client = link.client()?;
        let request = AcknowledgeRequest {
            ids: vec![id.to_owned()],
        };
        match within(clock, ACKNOWLEDGE_LIMIT, client.acknowledge_events(request)).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(status)) => Err(errors::cloud_error("AcknowledgeEvents", &status)),
            None => Err(CloudError::Timeout("AcknowledgeEvents".to_owned())),
        }
    }
}

enum Taken {
    Message(Interruption),
    /// Nothing is left to do but to say so.
    Done(String),
}

fn kind_of(message: &wire::Interruption) -> Result<Kind, String> {
    kind_named(message.kind()).ok_or_else(|| {
        format!(
            "interruption of unknown kind {}: {}",
            message.kind, message.message
        )
    })
}

/// Messages of a provider in this process that are not acknowledged, under the IDs that the other side knows.
///
/// Clouds use the ID of a message again once it is done with (kwok's is its instance's name), and the other side acts on no event twice: an event's ID is
/// its own, also after a restart. Where the cloud says when it happened, that makes the ID, which a server that starts again finds again. Where it does not,
/// an event that comes again after a restart is another one: two of them end a NodeClaim once.
#[derive(Debug)]
pub(crate) struct Unacknowledged {
    /// By the cloud's ID and the instance: one message of a cloud may name several.
    held: BTreeMap<(String, String), (String, Interruption)>,
    next: i128,
}

impl Unacknowledged {
    pub(crate) fn new(clock: &SharedClock) -> Self {
        Unacknowledged {
            held: BTreeMap::new(),
            next: clock.now().as_nanosecond(),
        }
    }

    /// The ID of a message: the same for as long as it is not acknowledged.
    pub(crate) fn hold(&mut self, message: &Interruption) -> String {
        let key = (message.id.clone(), message.provider_id.clone());
        let same = |held: &Interruption| held.kind == message.kind && held.sent_at == message.sent_at;
        let id = match self.held.get(&key).filter(|(_, held)| same(held)) {
            Some((id, _)) => id.clone(),
            None => {
                let own = self.own_part(message);
                format!("{} {} {own}", message.id, message.provider_id)
            }
        };
        self.held.insert(key, (id.clone(), message.clone()));
        id
    }

    /// What tells this message from others of the cloud's ID.
    fn own_part(&mut self, message: &Interruption) -> String {
        let Some(sent_at) = message.sent_at else {
            self.next += 1;
            return self.next.to_string();
        };
        let kind = message.kind.as_ref().map_or("unreadable", |kind| kind.label());
        format!("{kind} {}", sent_at.as_nanosecond())
    }

    /// The message of an ID.
    pub(crate) fn of(&self, id: &str) -> Option<Interruption> {
        let found = self.held.values().find(|(held, _)| held == id);
        found.map(|(_, message)| message.clone())
    }

    pub(crate) fn forget(&mut self, id: &str) {
        self.held.retain(|_, (held, _)| held != id);
    }
}

/// A message of a provider in this process, under the ID by which it is acknowledged.
pub(crate) fn event_of(id: String, message: &Interruption) -> ProviderEvent {
    let (kind, text) = match &message.kind {
        Ok(kind) => (message_of(*kind), String::new()),
        Err(text) => (InterruptionKind::Unspecified, text.clone()),
    };
    ProviderEvent {
        id,
        event: Some(Event::Interruption(wire::Interruption {
            provider_id: message.provider_id.clone(),
            kind: kind.into(),
            deadline: message.ends_at.map(convert::timestamp_message),
            message: text,
            sent_at: message.sent_at.map(convert::timestamp_message),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KINDS;

    #[test]
    fn g_016_every_kind_is_the_same_on_the_other_side_and_what_is_done_comes_no_more() {
        let events = Events::default();
        for (_, kind) in KINDS {
            let message = Interruption {
                id: kind.label().to_owned(),
                provider_id: "shed://1".to_owned(),
                kind: Ok(kind),
                sent_at: Some(jiff::Timestamp::UNIX_EPOCH),
                ends_at: Some(jiff::Timestamp::UNIX_EPOCH),
            };
            let event = event_of(message.id.clone(), &message);
            assert!(matches!(events.take(event.clone()), Taken::Message(taken) if taken == message));
            events.set_done(&message.id);
            assert!(matches!(events.take(event), Taken::Done(id) if id == message.id));
        }
    }

    #[test]
    fn g_016_a_cloud_may_use_the_id_of_a_message_again() {
        let clock = spokeshave_ports::TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
        let message = |kind: Result<Kind, String>| Interruption {
            id: "i-1".to_owned(),
            provider_id: "shed://1".to_owned(),
            kind,
            sent_at: None,
            ends_at: None,
        };
        let mut held = Unacknowledged::new(&clock);
        let events = Events::default();
        let strange = message(Err("nonsense".to_owned()));
        let first = held.hold(&strange);
        assert_eq!(held.hold(&strange), first, "it comes again under its own ID");
        assert!(matches!(
            events.take(event_of(first.clone(), &strange)),
            Taken::Message(_)
        ));
        events.set_done(&first);
        assert_eq!(held.of(&first), Some(strange));
        held.forget(&first);
        assert_eq!(held.of(&first), None);
        // The next message about the instance has the same ID at the cloud, and is news.
        let spot = message(Ok(Kind::SpotInterrupted));
        let second = held.hold(&spot);
        let taken = events.take(event_of(second.clone(), &spot));
        assert!(matches!(taken, Taken::Message(taken) if taken.kind == Ok(Kind::SpotInterrupted)));
        // One that takes the place of another before that is acknowledged is another, too.
        let third = held.hold(&message(Ok(Kind::InstanceTerminated)));
        assert_ne!(second, third);
        assert_eq!(held.of(&second), None);
    }

    #[test]
    fn g_016_an_event_that_comes_again_after_a_restart_of_its_provider_is_the_same_one() {
        let at = |second: i64| {
            spokeshave_ports::TokioClock::new(jiff::Timestamp::from_second(second).unwrap(), 1.0).shared()
        };
        let message = |kind: Kind, sent: i64| Interruption {
            id: "i-1".to_owned(),
            provider_id: "shed://1".to_owned(),
            kind: Ok(kind),
            sent_at: Some(jiff::Timestamp::from_second(sent).unwrap()),
            ends_at: None,
        };
        let spot = message(Kind::SpotInterrupted, 5);
        let mut before = Unacknowledged::new(&at(10));
        let id = before.hold(&spot);
        let mut after = Unacknowledged::new(&at(20));
        assert_eq!(after.hold(&spot), id);
        assert_eq!(after.of(&id), Some(spot.clone()));
        // What is done with stays so when the cloud tells of it once more, and another event of the same name is news.
        after.forget(&id);
        assert_eq!(after.hold(&spot), id);
        for other in [
            message(Kind::SpotInterrupted, 6),
            message(Kind::InstanceStopped, 5),
        ] {
            assert_ne!(after.hold(&other), id);
        }
    }

    #[test]
    fn g_020_a_kind_that_is_not_known_is_a_message_that_cannot_be_read() {
        let strange = wire::Interruption {
            kind: 77,
            message: "new".into(),
            ..wire::Interruption::default()
        };
        assert_eq!(
            kind_of(&strange),
            Err("interruption of unknown kind 77: new".to_owned())
        );
    }

    #[test]
    fn g_008_a_launch_that_fails_later_is_told_to_who_asks_next() {
        let events = Events::default();
        let failed = wire::LaunchFailed {
            nodeclaim_uid: "u".into(),
            failure: Some(LaunchFailure {
                kind: 1,
                reason: String::new(),
                message: "sold out".into(),
            }),
            ..wire::LaunchFailed::default()
        };
        let event = ProviderEvent {
            id: "1".into(),
            event: Some(Event::LaunchFailed(failed)),
        };
        assert!(matches!(events.take(event), Taken::Done(_)));
        assert_eq!(
            events.failure("u"),
            Some(CloudError::InsufficientCapacity("sold out".into()))
        );
        assert_eq!(events.failure("u"), None);
    }
}
