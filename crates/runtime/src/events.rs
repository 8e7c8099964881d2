//! Events about objects: de-duplicated, rate-limited, and never delaying a reconcile.
//!
//! Owns de-duplication (D-034), rates (P §17), aggregation and the writing of core/v1 Events with source component
//! `karpenter`. Publishing never waits and never fails: when the queue to the server is full, the event is dropped and
//! counted, and does not count as told. No reason takes the whole queue, nor do several: a pass tells the same of each pod or node, over and over, and that
//! must not take the place of what is told once. Memory is bounded: the number of remembered events is limited, and each is forgotten when its time is over.

mod memory;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use spokeshave_ports::{Entropy, SharedClock, causes, name_suffix};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use self::memory::{Digest, Memory};
use crate::backoff::{Backoff, TokenBucket};
use crate::metrics::{Counter, Metrics};
use crate::shutdown::Shutdown;

/// For how long an equal event is suppressed (D-034).
const DEFAULT_PERIOD: Duration = Duration::from_secs(120);
/// How many times the free places of the queue a reason may hold: three quarters of the queue when it is alone.
const SHARE: usize = 3;
/// Attempts to write one event before it is dropped.
const ATTEMPTS: u32 = 4;
/// Longest message that the API server accepts, in bytes.
const LONGEST_MESSAGE_BYTES: usize = 1024;

/// `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Events remembered for de-duplication and for aggregation each. What does not fit is not told before others are forgotten, and not aggregated.
    pub memory: usize,
}

impl Default for EventRecorderOptions {
    fn default() -> Self {
        Self {
            queue_length: 1000,
            // A pass may tell two of each node and one of each pod. That must fit several times over: some 25 megabytes for the one and, with the names of the Events,
            // 55 for the other, were they ever full.
            memory: 250_000,
        }
    }
}

/// Takes events from anywhere. Clones share one memory and one queue.
#[derive(Clone)]
pub struct EventRecorder {
    /// `None` where nothing is to be told.
    shared: Option<Arc<Shared>>,
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").finish_non_exhaustive()
    }
}

struct Shared {
    clock: SharedClock,
    queue: mpsc::Sender<EventNotice>,
    queued: Queued,
    filter: Mutex<Filter>,
    dropped: Counter,
}

impl Shared {
    /// Queues an event, or gives it back when there is no room for it.
    fn send(&self, notice: EventNotice) -> Result<(), EventNotice> {
        let mut queued = self.queued.lock();
        let same = queued.get(&notice.reason).copied().unwrap_or_default();
        // Measured by what is free and not by the length, so that several reasons leave something free too.
        if same >= self.queue.capacity().saturating_mul(SHARE) {
            return Err(notice);
        }
        let reason = notice.reason.clone();
        self.queue.try_send(notice).map_err(TrySendError::into_inner)?;
        *queued.entry(reason).or_default() += 1;
        Ok(())
    }
}

/// How many events of each reason are in the queue. Both halves of a recorder share it.
#[derive(Clone, Default)]
struct Queued(Arc<Mutex<BTreeMap<String, usize>>>);

impl Queued {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One has left the queue.
    fn remove(&self, reason: &str) {
        if let Some(count) = self.lock().get_mut(reason) {
            *count = count.saturating_sub(1);
        }
    }
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
            "Events that were not written: queue or memory was full, or the server refused them.",
            &["reason"],
        );
        let entropy = entropy.child("events");
        let queued = Queued::default();
        let writer = EventWriter {
            client,
            component: component.to_owned(),
            clock: clock.clone(),
            receiver,
            queued: queued.clone(),
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
                shared: Some(Arc::new(Shared {
                    clock,
                    queue: sender,
                    queued,
                    filter,
                    dropped,
                })),
            },
            writer,
        )
    }

    /// A recorder for who must not write: what it is told goes nowhere, and none of it is missed.
    #[must_use]
    pub fn silent() -> Self {
        Self { shared: None }
    }

    /// Records an event, unless an equal one was recorded recently or its reason exceeds its rate. Never waits.
    pub fn publish(&self, notice: EventNotice) {
        let Some(shared) = &self.shared else {
            return;
        };
        let now = shared.clock.now();
        let mut filter = shared.filter.lock().unwrap_or_else(PoisonError::into_inner);
        match filter.judge(&notice, now) {
            Verdict::Suppressed => {}
            Verdict::NoRoom => shared.dropped.inc(&[&notice.reason]),
            Verdict::Passes(key) => {
                if let Err(notice) = shared.send(notice) {
                    // Who did not fit is told the next time. Were it remembered, the first of a long list would get all places every time.
                    if let Some(key) = key {
                        filter.told.remove(key);
                    }
                    shared.dropped.inc(&[&notice.reason]);
                }
            }
        }
    }
}

/// What becomes of an event.
enum Verdict {
    /// It is recorded, and remembered under this key if equal ones are to be suppressed.
    Passes(Option<Digest>),
    /// An equal one was recorded recently, or its reason exceeds its rate.
    Suppressed,
    /// It cannot be remembered. Recorded all the same, it would be so in every pass, and take the places of others in the queue.
    NoRoom,
}

/// Decides which events are recorded.
struct Filter {
    told: Memory<()>,
    buckets: BTreeMap<String, TokenBucket>,
}

impl Filter {
    fn judge(&mut self, notice: &EventNotice, now: Timestamp) -> Verdict {
        let mut told = None;
        if !notice.dedupe_values.is_empty() {
            // Upstream's key: the lower-case reason, then the values.
            let key = Digest::of(&(notice.reason.to_lowercase(), &notice.dedupe_values));
            if self.told.get(key, now).is_some() {
                return Verdict::Suppressed;
            }
            let period = notice.dedupe_period.unwrap_or(DEFAULT_PERIOD);
            if !self.told.put(key, (), now, period) {
                return Verdict::NoRoom;
            }
            told = Some(key);
        }
        if let Some((rate, burst)) = notice.rate {
            let bucket = self
                .buckets
                .entry(notice.reason.clone())
                .or_insert_with(|| TokenBucket::new(rate, burst));
            if !bucket.try_take(now) {
                return Verdict::Suppressed;
            }
        }
        Verdict::Passes(told)
    }
}

/// How long the count of an existing Event is increased instead of creating a new one; the server keeps Events for an hour.
const AGGREGATION_PERIOD: Duration = Duration::from_secs(3000);

/// The half of a recorder that talks to the server.
pub struct EventWriter {
    client: Client,
    component: String,
    clock: SharedClock,
    receiver: mpsc::Receiver<EventNotice>,
    queued: Queued,
    names: ChaCha8Rng,
    backoff: Entropy,
    written: Memory<Written>,
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
        self.queued.remove(&notice.reason);
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
                tracing::debug!(reason = notice.reason, object = ?notice.object.name, error = %causes(&error), "event not written");
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
        if let Some(written) = self.written.get(identity, now) {
            let (name, count) = (written.name.clone(), written.count.saturating_add(1));
            let patch = json!({ "count": count, "lastTimestamp": Time(seconds(now)) });
            match api
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                // The server no longer has it: create it again.
                Err(kube::Error::Api(status)) if status.code == 404 => self.written.remove(identity),
                Err(error) => return Err(error),
                // Not before: an attempt that has failed is followed by another one for the same occurrence, or by none.
                Ok(_) => {
                    if let Some(written) = self.written.get(identity, now) {
                        written.count = count;
                    }
                    return Ok(());
                }
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

/// The key by which events are aggregated into one with a count.
fn identity(notice: &EventNotice, namespace: &str) -> Digest {
    let object = &notice.object;
    Digest::of(&(
        namespace,
        object.kind.as_deref().unwrap_or_default(),
        object.name.as_deref().unwrap_or_default(),
        object.uid.as_deref().unwrap_or_default(),
        notice.kind,
        &notice.reason,
        &notice.message,
    ))
}

fn is_retryable(error: &kube::Error) -> bool {
    match error {
        // Where the name is taken, the next try draws another.
        kube::Error::Api(status) if status.reason == "AlreadyExists" => true,
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

    fn passes(filter: &mut Filter, notice: &EventNotice, now: Timestamp) -> bool {
        matches!(filter.judge(notice, now), Verdict::Passes(_))
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
        assert!(passes(&mut filter, &notice("Nominated", "1"), at(0)));
        assert!(!passes(&mut filter, &other_text, at(119)));
        assert!(passes(&mut filter, &notice("Nominated", "2"), at(119)));
        assert!(passes(&mut filter, &notice("Evicted", "1"), at(119)));
        assert!(passes(&mut filter, &notice("Nominated", "1"), at(120)));
    }

    /// D-035: an event may bring its own period.
    #[test]
    fn d_035_an_event_may_set_its_own_period() {
        let mut filter = filter(100);
        let mut rare = notice("Unconsolidatable", "1");
        rare.dedupe_period = Some(Duration::from_secs(900));
        assert!(passes(&mut filter, &rare, at(0)));
        assert!(!passes(&mut filter, &rare, at(899)));
        assert!(passes(&mut filter, &rare, at(900)));
    }

    /// P §17: condition events have no de-duplication values and always pass.
    #[test]
    fn events_without_values_always_pass() {
        let mut filter = filter(100);
        let mut always = notice("Launched", "1");
        always.dedupe_values.clear();
        assert!(passes(&mut filter, &always, at(0)) && passes(&mut filter, &always, at(0)));
    }

    /// P §17: Nominated is limited to 5 a second with a burst of 10.
    #[test]
    fn p_206_a_reason_has_a_rate() {
        let mut filter = filter(1000);
        let mut told = 0;
        for number in 0..100 {
            let mut limited = notice("Nominated", &number.to_string());
            limited.rate = Some((5.0, 10));
            told += i32::from(passes(&mut filter, &limited, at(number / 50)));
        }
        assert_eq!(told, 15, "ten at once, five more a second later");
    }

    /// What fits stays told for its period, and the rest is told once that is over.
    #[test]
    fn memory_is_bounded_and_who_is_in_it_stays_until_its_time_is_over() {
        let mut filter = filter(10);
        let mut round = |seconds| {
            let told = (0..1000).filter(|number| {
                let notice = notice("Evicted", &number.to_string());
                passes(&mut filter, &notice, at(seconds))
            });
            let told = told.count();
            let sizes = [filter.told.entries.len(), filter.told.by_expiry.len()];
            assert_eq!(sizes, [10, 10]);
            told
        };
        assert_eq!([round(0), round(1), round(119), round(120)], [10, 0, 0, 10]);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let mut message = "é".repeat(1000);
        truncate(&mut message);
        assert!(message.len() <= LONGEST_MESSAGE_BYTES && message.ends_with("é..."));
    }
}
