//! Events: what the parts tell of objects. Those of workload controllers are counted together as genuine clients do it: an equal one raises a count, many
//! similar ones become one, and of one object only so much is told.
//!
//! Owns what Events look like, and the memory of what controllers have told lately, which ends with the process as that of a genuine controller does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use serde_json::json;
use spokeshave_runtime::{Object, TokenBucket};

use crate::objects::{name, namespace, time};

/// So many messages of one reason within the period are told one by one, the further ones together.
const ONE_BY_ONE: usize = 9;
const PERIOD: SignedDuration = SignedDuration::from_mins(10);
const TOGETHER: &str = "(combined from similar events): ";
/// What a component tells of one object at once, and how many a second after that.
const BURST: u32 = 25;
const RATE: f64 = 1.0 / 300.0;
/// For how long an Event is raised; about as long as servers keep them.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Of how many objects it is remembered what was told.
const MOST_SOURCES: usize = 4096;

/// A component, and the UID of what it tells of.
pub(crate) type Source = (String, String);
/// Reason and message; no message for those that are told together.
pub(crate) type Key = (String, String);

/// What has been told lately, and of what.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<BTreeMap<Source, OfOne>>);

/// What a component has told of an object.
#[derive(Debug)]
struct OfOne {
    bucket: TokenBucket,
    /// Messages within the period, by reason.
    messages: BTreeMap<String, (BTreeSet<String>, Timestamp)>,
    written: BTreeMap<Key, Written>,
    last: Timestamp,
}

/// An Event that the server has.
#[derive(Debug)]
struct Written {
    name: String,
    count: i32,
    last: Timestamp,
}

/// What is to be written.
#[derive(Debug, PartialEq)]
pub(crate) struct Telling {
    pub(crate) key: Key,
    pub(crate) message: String,
    /// The Event to be raised, and to what count; none for a new one.
    pub(crate) raised: Option<(String, i32)>,
}

impl OfOne {
    fn new(now: Timestamp) -> Self {
        Self {
            bucket: TokenBucket::new(RATE, BURST),
            messages: BTreeMap::new(),
            written: BTreeMap::new(),
            last: now,
        }
    }

    /// Under what an event is counted, and what it says.
    fn key(&mut self, reason: &str, message: &str, now: Timestamp) -> (Key, String) {
        let (messages, last) = self
            .messages
            .entry(reason.to_owned())
            .or_insert_with(|| (BTreeSet::new(), now));
        if now.duration_since(*last) > PERIOD {
            messages.clear();
        }
        *last = now;
        if messages.contains(message) || messages.len() < ONE_BY_ONE {
            messages.insert(message.to_owned());
            return ((reason.to_owned(), message.to_owned()), message.to_owned());
        }
        ((reason.to_owned(), String::new()), format!("{TOGETHER}{message}"))
    }

    fn next(&mut self, reason: &str, message: &str, now: Timestamp) -> Option<Telling> {
        self.last = now;
        self.written
            .retain(|_, written| now.duration_since(written.last) < LIFETIME);
        let (key, message) = self.key(reason, message, now);
        let raised = self.written.get_mut(&key).map(|written| {
            written.count = written.count.saturating_add(1);
            written.last = now;
            (written.name.clone(), written.count)
        });
        let telling = Telling { key, message, raised };
        self.bucket.try_take(now).then_some(telling)
    }
}

impl Told {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Source, OfOne>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be written of an event, if anything.
    pub(crate) fn next(
        &self,
        source: &Source,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> Option<Telling> {
        let mut told = self.lock();
        if !told.contains_key(source) && told.len() >= MOST_SOURCES {
            let oldest = told.iter().min_by_key(|(_, of_one)| of_one.last);
            if let Some(oldest) = oldest.map(|(source, _)| source.clone()) {
                told.remove(&oldest);
            }
        }
        told.entry(source.clone())
            .or_insert_with(|| OfOne::new(now))
            .next(reason, message, now)
    }

    /// The server has an Event of this name from now on.
    pub(crate) fn keep(&self, source: &Source, key: Key, name: String, now: Timestamp) {
        if let Some(of_one) = self.lock().get_mut(source) {
            let written = Written {
                name,
                count: 1,
                last: now,
            };
            of_one.written.insert(key, written);
        }
    }
}

/// An Event about an object in a namespace: type, reason and message.
pub(crate) fn event<K: Object>(
    component: &str,
    object: &K,
    (kind, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> Option<Event> {
    let (now, metadata) = (time(now), object.meta());
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"generateName": format!("{}.", name(metadata)), "namespace": namespace(metadata)},
        "involvedObject": {"apiVersion": K::api_version(&()), "kind": K::kind(&()), "name": name(metadata), "namespace": namespace(metadata), "uid": metadata.uid},
        "type": kind, "reason": reason, "message": message, "count": 1, "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
    });
    serde_json::from_value(event).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn source() -> Source {
        ("job-controller".to_owned(), "1".to_owned())
    }

    /// Tells, and keeps what is new under its message as name.
    fn tell(told: &Told, message: &str, second: i64) -> Option<(String, i32)> {
        let telling = told.next(&source(), "Created", message, at(second))?;
        let Some((_, count)) = telling.raised else {
            told.keep(&source(), telling.key, "a name".to_owned(), at(second));
            return Some((telling.message, 1));
        };
        Some((telling.message, count))
    }

    #[test]
    fn equal_events_raise_a_count_while_the_server_has_the_first() {
        let told = Told::default();
        let said = |count: i32| Some(("a".to_owned(), count));
        assert_eq!(tell(&told, "a", 0), said(1));
        assert_eq!(tell(&told, "a", 1), said(2));
        assert_eq!(tell(&told, "a", 3000), said(3));
        assert_eq!(tell(&told, "a", 3000 + 3600), said(1));
    }

    #[test]
    fn similar_events_are_told_together_and_of_one_object_not_too_many() {
        let told = Told::default();
        let said: Vec<Option<(String, i32)>> = (0..30)
            .map(|number| tell(&told, &format!("pod {number}"), 0))
            .collect();
        let one = |number: usize| Some((format!("pod {number}"), 1));
        assert_eq!([&said[0], &said[8]], [&one(0), &one(8)]);
        assert_eq!(said[9], Some((format!("{TOGETHER}pod 9"), 1)));
        assert_eq!(said[10], Some((format!("{TOGETHER}pod 10"), 2)));
        assert_eq!(said[24], Some((format!("{TOGETHER}pod 24"), 16)));
        assert_eq!(said[25..], vec![None; 5], "a burst of 25");
        // What was not told counts; after the period, messages are told one by one again.
        assert_eq!(
            tell(&told, "pod 40", 300),
            Some((format!("{TOGETHER}pod 40"), 22))
        );
        assert_eq!(tell(&told, "pod 41", 1000), Some(("pod 41".to_owned(), 1)));
    }

    #[test]
    fn what_was_told_of_the_oldest_is_forgotten_first() {
        let told = Told::default();
        let of = |number: usize| ("job-controller".to_owned(), number.to_string());
        for number in 0..=MOST_SOURCES {
            let second = i64::try_from(number).unwrap();
            told.next(&of(number), "Created", "a", at(second));
        }
        let known = told.lock();
        assert_eq!(known.len(), MOST_SOURCES);
        assert!(!known.contains_key(&of(0)) && known.contains_key(&of(1)));
    }
}
