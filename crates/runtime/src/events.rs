//! Events about objects: de-duplicated, rate-limited, and never delaying a reconcile.
//!
//! Owns de-duplication (D-034), rates (P §17), aggregation and the writing of core/v1 Events with source component
//! `karpenter`. Publishing never waits and never fails: when the queue to the server is full, the event is dropped and
//! counted. Memory is bounded: the number of remembered events is limited, the oldest are forgotten first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use spokeshave_ports::{Entropy, SharedClock, name_suffix};
use tokio::sync::mpsc;

use crate::backoff::{Backoff, TokenBucket};
use crate::metrics::{Counter, Metrics};
use crate::shutdown::Shutdown;

/// For how long an equal event is suppressed (D-034).
const DEFAULT_PERIOD: Duration = Duration::from_secs(120);
/// Attempts to write one event before it is dropped.
const ATTEMPTS: u32 = 4;
/// Longest message that the API server accepts, in bytes.
const LONGEST_MESSAGE_BYTES: usize = 1024;

/// `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// For information.
    Normal,
    /// Something is wrong.
    Warning,
}

impl EventKind {
    /// As written in the Event.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        }
    }
}

/// An event about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct EventNotice {
    /// The object. An object without namespace has its events in `default`.
    pub object: ObjectReference,
    /// Normal or Warning.
    pub kind: EventKind,
    /// Reason in CamelCase.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// With the reason, what makes two events equal. The message does not count unless it is here. Empty: never suppressed.
    pub dedupe_values: Vec<String>,
    /// For how long an equal event is suppressed; two minutes when absent.
    pub dedupe_period: Option<Duration>,
    /// Sustained number per second and burst of all events with this reason; unlimited when absent.
    pub rate: Option<(f64, u32)>,
}

impl EventNotice {
    /// A notice that is de-duplicated by the UID of its object, for two minutes.
    #[must_use]
    pub fn new(object: ObjectReference, kind: EventKind, reason: &str, message: impl Into<String>) -> Self {
        let dedupe_values = object.uid.iter().cloned().collect();
        Self {
            object,
            kind,
            reason: reason.to_owned(),
            message: message.into(),
            dedupe_values,
            dedupe_period: None,
            rate: None,
        }
    }
}

/// The memory of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecorderOptions {
    /// Events that wait to be written; more are dropped.
    pub queue_length: usize,
    /// Events remembered for de-duplication and for aggregation each.
    pub memory: usize,
}

impl Default for EventRecorderOptions {
    fn default() -> Self {
        Self {
            queue_length: 1000,
            memory: 10_000,
        }
    }
}

/// Takes events from anywhere. Clones share one memory and one queue.
#[derive(Clone)]
pub struct EventRecorder {
    shared: Arc<Shared>,
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").finish_non_exhaustive()
    }
}

struct Shared {
    clock: SharedClock,
    queue: mpsc::Sender<EventNotice>,
    filter: Mutex<Filter>,
    dropped: Counter,
}

impl EventRecorder {
    /// A recorder and its writer. The writer is to be run beside the controllers.
    #[must_use]
    pub fn new(
        client: Client,
        component: &str,
        clock: SharedClock,
        entropy: &Entropy,
        metrics: &Metrics,
        options: EventRecorderOptions,
    ) -> (Self, EventWriter) {
        let (sender, receiver) = mpsc::channel(options.queue_length.max(1));
        let dropped = metrics.counter(
            "spokeshave_events_dropped_total",
            "Events that were not written: the queue was full or the server refused them.",
            &["reason"],
        );
        let entropy = entropy.child("events");
        let writer = EventWriter {
            client,
            component: component.to_owned(),
            clock: clock.clone(),
            receiver,
            names: entropy.rng("names"),
            backoff: entropy.child("backoff"),
            written: Memory::new(options.memory),
            dropped: dropped.clone(),
        };
        let filter = Mutex::new(Filter {
            told: Memory::new(options.memory),
            buckets: BTreeMap::new(),
        });
        (
            Self {
                shared: Arc::new(Shared {
                    clock,
                    queue: sender,
                    filter,
                    dropped,
                }),
            },
            writer,
        )
    }

    /// Records an event, unless an equal one was recorded recently or its reason exceeds its rate. Never waits.
    pub fn publish(&self, notice: EventNotice) {
        let now = self.shared.clock.now();
        let passes = self
            .shared
            .filter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .passes(&notice, now);
        if passes && let Err(full) = self.shared.queue.try_send(notice) {
            self.shared.dropped.inc(&[&full.into_inner().reason]);
        }
    }
}

/// Decides which events are recorded.
struct Filter {
    told: Memory<String, ()>,
    buckets: BTreeMap<String, TokenBucket>,
}

impl Filter {
    fn passes(&mut self, notice: &EventNotice, now: Timestamp) -> bool {
        if !notice.dedupe_values.is_empty() {
            // Upstream's key: the lower-case reason, then the values. The separator occurs in none of them.
            let mut key = notice.reason.to_lowercase();
            for value in &notice.dedupe_values {
                key.push('\0');
                key.push_str(value);
            }
            if self.told.get(&key, now).is_some() {
                return false;
            }
            self.told
                .put(key, (), now, notice.dedupe_period.unwrap_or(DEFAULT_PERIOD));
        }
        match notice.rate {
            None => true,
            Some((rate, burst)) => {
                let bucket = self
                    .buckets
                    .entry(notice.reason.clone())
                    .or_insert_with(|| TokenBucket::new(rate, burst));
                bucket.try_take(now)
            }
        }
    }
}

/// A map of limited size whose entries expire. When it is full, the entry that would expire first is evicted.
struct Memory<Key, Value> {
    entries: BTreeMap<Key, (Timestamp, Value)>,
    by_expiry: BTreeSet<(Timestamp, Key)>,
    limit: usize,
}

impl<Key: Ord + Clone, Value> Memory<Key, Value> {
    fn new(limit: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            by_expiry: BTreeSet::new(),
            limit: limit.max(1),
        }
    }

    fn get(&mut self, key: &Key, now: Timestamp) -> Option<&mut Value> {
        self.entries
            .get_mut(key)
            .filter(|(expiry, _)| *expiry > now)
            .map(|(_, value)| value)
    }

    fn put(&mut self, key: Key, value: Value, now: Timestamp, period: Duration) {
        self.remove(&key);
        while let Some(first) = self.by_expiry.first().cloned() {
            if first.0 > now && self.entries.len() < self.limit {
                break;
            }
            self.remove(&first.1);
        }
        let expiry = now.saturating_add(period).unwrap_or(Timestamp::MAX);
        self.by_expiry.insert((expiry, key.clone()));
        self.entries.insert(key, (expiry, value));
    }

    fn remove(&mut self, key: &Key) {
        if let Some((expiry, _)) = self.entries.remove(key) {
            self.by_expiry.remove(&(expiry, key.clone()));
        }
    }
}

/// The key by which events are aggregated into one with a count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    namespace: String,
    object_kind: String,
    object_name: String,
    object_uid: String,
    kind: EventKind,
    reason: String,
    message: String,
}

/// How long the count of an existing Event is increased instead of creating a new one; the server keeps Events for an hour.
const AGGREGATION_PERIOD: Duration = Duration::from_secs(3000);

/// The half of a recorder that talks to the server.
pub struct EventWriter {
    client: Client,
    component: String,
    clock: SharedClock,
    receiver: mpsc::Receiver<EventNotice>,
    names: ChaCha8Rng,
    backoff: Entropy,
    written: Memory<Identity, Written>,
    dropped: Counter,
}

#[derive(Clone, Debug)]
struct Written {
    name: String,
    count: i32,
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter")
            .field("component", &self.component)
            .finish_non_exhaustive()
    }
}

impl EventWriter {
    /// Writes events until `shutdown`, then what is already queued.
    pub async fn run(mut self, shutdown: Shutdown) {
        while let Some(Some(notice)) = shutdown.cut(self.receiver.recv()).await {
            self.write(notice, &shutdown).await;
        }
        while let Ok(notice) = self.receiver.try_recv() {
            self.write(notice, &shutdown).await;
        }
    }

    async fn write(&mut self, mut notice: EventNotice, shutdown: &Shutdown) {
        truncate(&mut notice.message);
        let mut backoff = Backoff::new(
            Duration::from_millis(500),
            Duration::from_secs(10),
            self.backoff.rng("retry"),
        );
        for attempt in 1..=ATTEMPTS {
            let error = match self.send(&notice).await {
                Ok(()) => return,
                Err(error) => error,
            };
            // A rejected request would be rejected again; do not delay the shutdown.
            if attempt == ATTEMPTS || !is_retryable(&error) || shutdown.is_requested() {
                self.dropped.inc(&[&notice.reason]);
                tracing::debug!(reason = notice.reason, object = ?notice.object.name, %error, "event not written");
                return;
            }
            let pause = backoff.next_delay();
            let _ = shutdown.cut(self.clock.sleep(pause)).await;
        }
    }

    async fn send(&mut self, notice: &EventNotice) -> kube::Result<()> {
        let now = self.clock.now();
        let namespace = match notice.object.namespace.as_deref() {
            None | Some("") => "default",
            Some(namespace) => namespace,
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let identity = identity(notice, namespace);
        if let Some(written) = self.written.get(&identity, now) {
            written.count = written.count.saturating_add(1);
            let (name, count) = (written.name.clone(), written.count);
            let patch = json!({ "count": count, "lastTimestamp": Time(seconds(now)) });
            match api
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                // The server no longer has it: create it again.
                Err(kube::Error::Api(status)) if status.code == 404 => self.written.remove(&identity),
                answer => return answer.map(drop),
            }
        }
        let event = self.event(notice, namespace, now);
        let name = event.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &event).await?;
        self.written
            .put(identity, Written { name, count: 1 }, now, AGGREGATION_PERIOD);
        Ok(())
    }

    fn event(&mut self, notice: &EventNotice, namespace: &str, now: Timestamp) -> Event {
        let object = notice.object.name.as_deref().unwrap_or("unknown");
        let name = format!("{object}.{}", name_suffix(&mut self.names, 16));
        let involved_object = notice.object.clone();
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object,
            reason: Some(notice.reason.clone()),
            message: Some(notice.message.clone()),
            type_: Some(notice.kind.as_str().to_owned()),
            source: Some(EventSource {
                component: Some(self.component.clone()),
                host: None,
            }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(String::new()),
            first_timestamp: Some(Time(seconds(now))),
            last_timestamp: Some(Time(seconds(now))),
            count: Some(1),
            ..Event::default()
        }
    }
}

fn identity(notice: &EventNotice, namespace: &str) -> Identity {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Identity {
        namespace: namespace.to_owned(),
        object_kind: text(&notice.object.kind),
        object_name: text(&notice.object.name),
        object_uid: text(&notice.object.uid),
        kind: notice.kind,
        reason: notice.reason.clone(),
        message: notice.message.clone(),
    }
}

fn is_retryable(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

/// `Time` is written without fractions.
fn seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn truncate(message: &mut String) {
    if message.len() <= LONGEST_MESSAGE_BYTES {
        return;
    }
    let mut end = LONGEST_MESSAGE_BYTES - 3;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.truncate(end);
    message.push_str("...");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(reason: &str, uid: &str) -> EventNotice {
        let object = ObjectReference {
            uid: Some(uid.into()),
            ..ObjectReference::default()
        };
        EventNotice::new(object, EventKind::Normal, reason, "text")
    }

    fn filter(limit: usize) -> Filter {
        Filter {
            told: Memory::new(limit),
            buckets: BTreeMap::new(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// D-034: the same reason and values within the period are recorded once; the message is not part of the key.
    #[test]
    fn d_034_equal_events_are_told_once_per_period() {
        let mut filter = filter(100);
        let mut other_text = notice("Nominated", "1");
        other_text.message = "another text".into();
        assert!(filter.passes(&notice("Nominated", "1"), at(0)));
        assert!(!filter.passes(&other_text, at(119)));
        assert!(filter.passes(&notice("Nominated", "2"), at(119)));
        assert!(filter.passes(&notice("Evicted", "1"), at(119)));
        assert!(filter.passes(&notice("Nominated", "1"), at(120)));
    }

    /// D-035: an event may bring its own period.
    #[test]
    fn d_035_an_event_may_set_its_own_period() {
        let mut filter = filter(100);
        let mut rare = notice("Unconsolidatable", "1");
        rare.dedupe_period = Some(Duration::from_secs(900));
        assert!(filter.passes(&rare, at(0)));
        assert!(!filter.passes(&rare, at(899)));
        assert!(filter.passes(&rare, at(900)));
    }

    /// P §17: condition events have no de-duplication values and always pass.
    #[test]
    fn events_without_values_always_pass() {
        let mut filter = filter(100);
        let mut always = notice("Launched", "1");
        always.dedupe_values.clear();
        assert!(filter.passes(&always, at(0)) && filter.passes(&always, at(0)));
    }

    /// P §17: Nominated is limited to 5 a second with a burst of 10.
    #[test]
    fn p_206_a_reason_has_a_rate() {
        let mut filter = filter(1000);
        let mut told = 0;
        for number in 0..100 {
            let mut limited = notice("Nominated", &number.to_string());
            limited.rate = Some((5.0, 10));
            told += i32::from(filter.passes(&limited, at(number / 50)));
        }
        assert_eq!(told, 15, "ten at once, five more a second later");
    }

    #[test]
    fn memory_is_bounded() {
        let mut filter = filter(10);
        for number in 0..1000 {
            assert!(filter.passes(&notice("Evicted", &number.to_string()), at(0)));
        }
        assert_eq!(filter.told.entries.len(), 10);
        assert_eq!(filter.told.by_expiry.len(), 10);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let mut message = "é".repeat(1000);
        truncate(&mut message);
        assert!(message.len() <= LONGEST_MESSAGE_BYTES && message.ends_with("é..."));
    }
}
