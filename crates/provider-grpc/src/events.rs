//! Events of a provider as messages about instances (G-008, G-016): each comes again until it is acknowledged.
//!
//! Owns the stream across connections. It ends nothing by itself.

use std::collections::{BTreeMap, VecDeque};
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
use crate::opening::Opening;
use crate::wire::provider_event::Event;
use crate::wire::{
    self, AcknowledgeRequest, Capability, EventsRequest, FailureKind, InterruptionKind, LaunchFailed,
    LaunchFailure, ProviderEvent,
};

const ACKNOWLEDGE_LIMIT: Duration = Duration::from_secs(10);
/// Events that are remembered as done, launches that were answered, and failures of launches.
const REMEMBERED: usize = 4096;

/// What is remembered of events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// IDs of events that are done with.
    done: Latest<()>,
    /// Provider IDs of instances that launches were answered with, by UID of the NodeClaim.
    launched: Latest<String>,
    /// Failures of launches without such an answer, by UID of the NodeClaim.
    failed: Latest<LaunchFailure>,
}

/// One value of each key: once there are too many, the key that came first is forgotten.
#[derive(Debug, Default)]
struct Latest<T> {
    values: BTreeMap<String, T>,
    order: VecDeque<String>,
}

impl<T> Latest<T> {
    fn insert(&mut self, key: &str, value: T) {
        if self.values.insert(key.to_owned(), value).is_none() {
            self.order.push_back(key.to_owned());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
    }

    fn get(&self, key: &str) -> Option<&T> {
        self.values.get(key)
    }

    fn remove(&mut self, key: &str) -> Option<T> {
        let removed = self.values.remove(key)?;
        self.order.retain(|one| one.as_str() != key);
        Some(removed)
    }
}

/// Whether a NodeClaim ends with this failure. After any other the launch is asked for again, with the same UID: an event that comes late tells of an attempt
/// before.
fn is_final(failure: &LaunchFailure) -> bool {
    matches!(
        failure.kind(),
        FailureKind::InsufficientCapacity | FailureKind::ClassNotReady
    )
}

impl Events {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_done(&self, id: &str) -> bool {
        self.state().done.get(id).is_some()
    }

    fn set_done(&self, id: &str) {
        self.state().done.insert(id, ());
    }

    /// Why a launch that was pending has failed.
    pub(crate) fn failure(&self, uid: &str) -> Option<CloudError> {
        let failure = self.state().failed.remove(uid);
        failure.map(errors::launch_error)
    }

    /// Whether a launch has failed for good whose instance was not known then.
    pub(crate) fn has_failed(&self, uid: &str) -> bool {
        self.state().failed.get(uid).is_some_and(is_final)
    }

    /// Takes note of the instance that a launch was answered with, and says whether the launch has failed for good meanwhile.
    pub(crate) fn note_launch(&self, uid: &str, provider_id: &str) -> bool {
        let mut state = self.state();
        if !provider_id.is_empty() {
            state.launched.insert(uid, provider_id.to_owned());
        }
        state.failed.remove(uid).is_some_and(|failure| is_final(&failure))
    }

    /// The messages, for as long as somebody listens.
    pub(crate) fn listen<'a>(&'a self, link: &'a Arc<Link>, clock: &'a SharedClock) -> Interruptions<'a> {
        let closed: Option<Streaming<ProviderEvent>> = None;
        let start = (closed, Opening::new("WatchEvents", clock));
        futures::stream::unfold(start, move |(mut stream, mut opening)| async move {
            loop {
                let Some(open) = &mut stream else {
                    let mut client = link.up_with(Capability::Events).await;
                    opening.begin();
                    match client.watch_events(EventsRequest {}).await {
                        Ok(answer) => stream = Some(answer.into_inner()),
                        Err(status) => opening.pause_after(Some(&status)).await,
                    }
                    continue;
                };
                let ended = match open.message().await {
                    Ok(Some(event)) => {
                        opening.works();
                        match self.take(event) {
                            Taken::Message(message) => return Some((message, (stream, opening))),
                            Taken::Done(id) => drop(self.acknowledge(link, clock, &id).await),
                        }
                        continue;
                    }
                    Ok(None) => None,
                    Err(status) => Some(status),
                };
                stream = None;
                opening.pause_after(ended.as_ref()).await;
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
            Some(Event::LaunchFailed(failed)) => self.take_failure(id, failed),
            None => {
                let unknown = "an event of a kind that this version does not know";
                Taken::message(id, String::new(), Err(unknown.to_owned()))
            }
        }
    }

    /// An instance that has failed ends as one that has ended by itself. A launch without one is told to who asks for it next, or by the next list that
    /// has its instance. An event without an instance names no attempt: what was answered since ends only by a failure after which nobody asks again.
    fn take_failure(&self, id: String, failed: LaunchFailed) -> Taken {
        let LaunchFailed {
            provider_id,
            nodeclaim_uid: uid,
            failure,
        } = failed;
        let failure = failure.unwrap_or_default();
        let mut state = self.state();
        let launched = state.launched.get(&uid).cloned();
        let is_launched = launched.is_some();
        let meant = launched.filter(|_| is_final(&failure));
        match Some(provider_id).filter(|named| !named.is_empty()).or(meant) {
            Some(instance) => Taken::message(id, instance, Ok(Kind::InstanceTerminated)),
            None if uid.is_empty() => {
                let nothing = "an event LaunchFailed with neither provider_id nor nodeclaim_uid";
                Taken::message(id, String::new(), Err(nothing.to_owned()))
            }
            None if is_launched => Taken::Done(id),
            None => {
                state.failed.insert(&uid, failure);
                Taken::Done(id)
            }
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
            None => Err(errors::no_answer("AcknowledgeEvents", ACKNOWLEDGE_LIMIT)),
        }
    }
}

enum Taken {
    Message(Interruption),
    /// Nothing is left to do but to say so.
    Done(String),
}

impl Taken {
    fn message(id: String, provider_id: String, kind: Result<Kind, String>) -> Self {
        Self::Message(Interruption {
            id,
            provider_id,
            kind,
            sent_at: None,
            ends_at: None,
        })
    }
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

    /// An event that names its NodeClaim alone.
    fn failed(id: &str, uid: &str, kind: FailureKind) -> ProviderEvent {
        ProviderEvent {
            id: id.to_owned(),
            event: Some(Event::LaunchFailed(LaunchFailed {
                nodeclaim_uid: uid.to_owned(),
                failure: Some(LaunchFailure {
                    kind: kind.into(),
                    reason: String::new(),
                    message: "sold out".to_owned(),
                }),
                ..LaunchFailed::default()
            })),
        }
    }

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
        let event = failed("1", "u", FailureKind::InsufficientCapacity);
        assert!(matches!(events.take(event), Taken::Done(_)));
        assert_eq!(
            events.failure("u"),
            Some(CloudError::InsufficientCapacity("sold out".into()))
        );
        assert_eq!(events.failure("u"), None);
    }

    #[test]
    fn g_008_a_launch_that_was_answered_fails_by_its_instance() {
        let events = Events::default();
        let failed = |id: &str, uid: &str| failed(id, uid, FailureKind::InsufficientCapacity);
        assert!(!events.note_launch("u", "shed://1"));
        let taken = events.take(failed("1", "u"));
        assert!(matches!(taken, Taken::Message(told) if told.provider_id == "shed://1"));
        assert!(matches!(events.take(failed("2", "v")), Taken::Done(_)));
        assert!(events.has_failed("v"));
        assert!(
            events.note_launch("v", "shed://2"),
            "it failed before its answer came"
        );
        let taken = events.take(failed("3", ""));
        assert!(matches!(taken, Taken::Message(told) if told.kind.is_err()));
    }

    /// After such a failure the launch is asked for again with the same UID, and an event may come late, or twice.
    #[test]
    fn g_008_a_failure_that_is_retried_ends_no_instance_of_a_later_attempt() {
        for kind in [
            FailureKind::Unspecified,
            FailureKind::Invalid,
            FailureKind::Timeout,
            FailureKind::Transient,
        ] {
            let events = Events::default();
            assert!(matches!(events.take(failed("1", "u", kind)), Taken::Done(_)));
            assert!(!events.has_failed("u"), "{kind:?}: a list shows its instance");
            assert!(
                !events.note_launch("u", "shed://1"),
                "{kind:?}: its answer comes after the event"
            );
            assert!(
                matches!(events.take(failed("2", "u", kind)), Taken::Done(_)),
                "{kind:?}: the event comes after its answer"
            );
            assert!(!events.has_failed("u") && events.failure("u").is_none());
        }
    }

    #[test]
    fn g_008_the_launch_that_is_forgotten_is_the_oldest() {
        let events = Events::default();
        events.note_launch("z", "shed://z");
        for number in 1..REMEMBERED {
            events.note_launch(&format!("m{number}"), "shed://m");
        }
        // One that is known already takes no other's place.
        events.note_launch("m1", "shed://m1");
        let ends = |uid: &str| {
            let event = failed(uid, uid, FailureKind::InsufficientCapacity);
            matches!(events.take(event), Taken::Message(_))
        };
        assert!(ends("z") && ends("m1"));
        events.note_launch("a", "shed://a");
        assert!(ends("a") && ends("m1") && !ends("z"));
    }
}
