//! The work queue: which keys need attention, in which order, and not before when.
//!
//! Owns client-go's rules, in order and on our clock: a key waits in the queue at most once; it is never given out twice at a
//! time; a key added while it is being worked on comes back afterwards; failures push it into the future. It never works on a
//! key itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_ports::SharedClock;
use tokio::sync::Notify;

use crate::backoff::{RateLimit, TokenBucket};
use crate::metrics::{Counter, Gauge, Histogram, Metrics, exponential_buckets};

/// Options of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueOptions {
    /// Delays after failures.
    pub rate_limit: RateLimit,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            rate_limit: RateLimit::DEFAULT,
        }
    }
}

/// Pauses of keys that are added again and again.
const REPEATS: RateLimit = RateLimit {
    base: Duration::from_millis(100),
    max: Duration::from_secs(10),
    bucket: None,
};

/// A queue of keys, shared by clones.
pub struct WorkQueue<Key> {
    inner: Arc<Inner<Key>>,
}

struct Inner<Key> {
    name: String,
    clock: SharedClock,
    core: Mutex<Core<Key>>,
    changed: Notify,
    metrics: QueueMetrics,
}

impl<Key> Clone for WorkQueue<Key> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<Key: Ord + Clone> fmt::Debug for WorkQueue<Key> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("name", &self.inner.name)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl<Key: Ord + Clone> WorkQueue<Key> {
    /// An empty queue. `name` is the label of its metrics.
    #[must_use]
    pub fn new(name: &str, clock: SharedClock, options: QueueOptions, metrics: &Metrics) -> Self
    where
        Key: Send + 'static,
    {
        let inner = Arc::new(Inner {
            name: name.to_owned(),
            clock,
            core: Mutex::new(Core::new(options.rate_limit)),
            changed: Notify::new(),
            metrics: QueueMetrics::new(name, metrics),
        });
        let observed = Arc::downgrade(&inner);
        metrics.before_render(move || {
            if let Some(inner) = observed.upgrade() {
                let now = inner.clock.now();
                let core = inner.core.lock().unwrap_or_else(PoisonError::into_inner);
                inner.metrics.observe_unfinished(&core, now);
            }
        });
        Self { inner }
    }

    /// Name of the queue.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The clock on which it runs.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    /// Adds a key at the end, unless it waits already.
    pub fn add(&self, key: Key) {
        let now = self.inner.clock.now();
        let mut core = self.lock();
        if core.add(key, now) {
            self.inner.metrics.added(core.waiting.len());
        }
        drop(core);
        self.inner.changed.notify_one();
    }

    /// Adds a key after `delay`. Of several delays for one key the one that ends first holds.
    pub fn add_after(&self, key: Key, delay: Duration) {
        if delay.is_zero() {
            self.add(key);
            return;
        }
        let now = self.inner.clock.now();
        self.lock().add_at(key, after(now, delay));
        self.inner.changed.notify_one();
    }

    /// Adds a key after a delay that doubles with every call, until [`forget`](Self::forget); and not faster than the
    /// queue's overall rate. Returns the delay.
    pub fn add_rate_limited(&self, key: Key) -> Duration {
        let now = self.inner.clock.now();
        let delay = self.lock().next_delay(&key, now);
        self.inner.metrics.retries.inc(&self.inner.metrics.labels());
        self.add_after(key, delay);
        delay
    }

    /// Adds a key whose look was of no avail: at once the first `free` times in a row, then after a delay that doubles up to ten seconds. It is no
    /// failure: neither is it counted as one, nor does it take from the rate of those. Returns the delay.
    pub fn add_again(&self, key: Key, free: u32) -> Duration {
        let repeats = {
            let mut core = self.lock();
            let repeats = core.repeats.entry(key.clone()).or_insert(0);
            *repeats = repeats.saturating_add(1);
            *repeats
        };
        let delay = match repeats.checked_sub(free + 1) {
            Some(beyond) => REPEATS.delay(beyond),
            None => Duration::ZERO,
        };
        self.add_after(key, delay);
        delay
    }

    /// Forgets how often a key was added [again](Self::add_again).
    pub fn settled(&self, key: &Key) {
        self.lock().repeats.remove(key);
    }

    /// Forgets the failures of a key.
    pub fn forget(&self, key: &Key) {
        self.lock().failures.remove(key);
    }

    /// Failures of a key since it was last forgotten.
    #[must_use]
    pub fn failures(&self, key: &Key) -> u32 {
        self.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Takes the next key, waiting for one. No other worker gets the key until [`done`](Self::done).
    pub async fn next(&self) -> Key {
        loop {
            let next_due = {
                let now = self.inner.clock.now();
                let mut core = self.lock();
                let promoted = core.promote(now);
                for _ in 0..promoted {
                    self.inner.metrics.added(core.waiting.len());
                }
                if let Some((key, waited)) = core.take(now) {
                    self.inner.metrics.taken(core.waiting.len(), waited);
                    if !core.waiting.is_empty() {
                        self.inner.changed.notify_one();
                    }
                    return key;
                }
                core.next_due()
            };
            let changed = self.inner.changed.notified();
            match next_due {
                None => changed.await,
                Some(due) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.inner.clock.sleep_until(due) => {}
                },
            }
        }
    }

    /// Takes the next key if one is due.
    #[must_use]
    pub fn try_next(&self) -> Option<Key> {
        let now = self.inner.clock.now();
        let mut core = self.lock();
        core.promote(now);
        let (key, waited) = core.take(now)?;
        self.inner.metrics.taken(core.waiting.len(), waited);
        Some(key)
    }

    /// Releases a key; if it was added in the meantime, it is queued again.
    pub fn done(&self, key: &Key) {
        let now = self.inner.clock.now();
        let mut core = self.lock();
        let (worked, waits_again) = core.done(key, now);
        self.inner
            .metrics
            .work_duration
            .observe(&self.inner.metrics.labels(), worked.as_secs_f64());
        if waits_again {
            self.inner.metrics.added(core.waiting.len());
            self.inner.changed.notify_one();
        }
    }

    /// Number of keys that wait now, without those in the future.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// True when nothing waits now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when nothing waits, nothing is being worked on and nothing is due within `horizon`.
    #[must_use]
    pub fn is_idle(&self, horizon: Duration) -> bool {
        let limit = after(self.inner.clock.now(), horizon);
        let core = self.lock();
        core.waiting.is_empty() && core.working.is_empty() && core.next_due().is_none_or(|due| due > limit)
    }

    fn lock(&self) -> MutexGuard<'_, Core<Key>> {
        self.inner.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn after(now: Timestamp, delay: Duration) -> Timestamp {
    now.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

/// The rules, without waiting.
struct Core<Key> {
    /// In the order in which they will be given out, with the instant since which they wait.
    waiting: VecDeque<(Key, Timestamp)>,
    /// Keys in `waiting`, and keys being worked on that must come back.
    dirty: BTreeSet<Key>,
    /// Keys being worked on, since when.
    working: BTreeMap<Key, Timestamp>,
    /// When a key becomes due, in order; the number keeps the order of adding among equals.
    due: BTreeMap<(Timestamp, u64), Key>,
    due_of: BTreeMap<Key, (Timestamp, u64)>,
    failures: BTreeMap<Key, u32>,
    /// How often keys were added again in a row.
    repeats: BTreeMap<Key, u32>,
    rate_limit: RateLimit,
    bucket: Option<TokenBucket>,
    sequence: u64,
}

impl<Key: Ord + Clone> Core<Key> {
    fn new(rate_limit: RateLimit) -> Self {
        Self {
            waiting: VecDeque::new(),
            dirty: BTreeSet::new(),
            working: BTreeMap::new(),
            due: BTreeMap::new(),
            due_of: BTreeMap::new(),
            failures: BTreeMap::new(),
            repeats: BTreeMap::new(),
            rate_limit,
            bucket: rate_limit
                .bucket
                .map(|(rate, burst)| TokenBucket::new(rate, burst)),
            sequence: 0,
        }
    }

    /// True when the key waits now and did not before.
    fn add(&mut self, key: Key, now: Timestamp) -> bool {
        if !self.dirty.insert(key.clone()) || self.working.contains_key(&key) {
            return false;
        }
        self.waiting.push_back((key, now));
        true
    }

    fn add_at(&mut self, key: Key, due: Timestamp) {
        if let Some(known) = self.due_of.get(&key).copied() {
            if known.0 <= due {
                return;
            }
            self.due.remove(&known);
        }
        let place = (due, self.sequence);
        self.sequence += 1;
        self.due.insert(place, key.clone());
        self.due_of.insert(key, place);
    }

    fn next_delay(&mut self, key: &Key, now: Timestamp) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let own = self.rate_limit.delay(*failures);
        *failures = failures.saturating_add(1);
        let shared = self
            .bucket
            .as_mut()
            .map_or(Duration::ZERO, |bucket| bucket.reserve(now));
        own.max(shared)
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|(due, _)| *due)
    }

    /// Moves what is due into the queue; returns how many keys began to wait.
    fn promote(&mut self, now: Timestamp) -> usize {
        let mut promoted = 0;
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            self.due_of.remove(&key);
            promoted += usize::from(self.add(key, now));
        }
        promoted
    }

    fn take(&mut self, now: Timestamp) -> Option<(Key, Duration)> {
        let (key, since) = self.waiting.pop_front()?;
        self.dirty.remove(&key);
        self.working.insert(key.clone(), now);
        Some((
            key,
            Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO),
        ))
    }

    /// How long the key was worked on, and whether it waits again.
    fn done(&mut self, key: &Key, now: Timestamp) -> (Duration, bool) {
        let Some(since) = self.working.remove(key) else {
            return (Duration::ZERO, false);
        };
        let waits_again = self.dirty.contains(key);
        if waits_again {
            self.waiting.push_back((key.clone(), now));
        }
        (
            Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO),
            waits_again,
        )
    }
}

/// client-go's metrics of one queue.
struct QueueMetrics {
    name: String,
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
    unfinished: Gauge,
    longest: Gauge,
}

impl QueueMetrics {
    fn new(name: &str, metrics: &Metrics) -> Self {
        let labels = &["name", "controller"];
        let buckets = exponential_buckets(1e-8, 10.0, 12);
        let this = Self {
            name: name.to_owned(),
            depth: metrics.gauge("workqueue_depth", "Current depth of workqueue", labels),
            adds: metrics.counter("workqueue_adds_total", "Total number of adds handled by workqueue", labels),
            retries: metrics.counter("workqueue_retries_total", "Total number of retries handled by workqueue", labels),
            queue_duration: metrics.histogram(
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested",
                labels,
                &buckets,
            ),
            work_duration: metrics.histogram(
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes.",
                labels,
                &buckets,
            ),
            unfinished: metrics.gauge(
                "workqueue_unfinished_work_seconds",
                "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
                labels,
            ),
            longest: metrics.gauge(
                "workqueue_longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running.",
                labels,
            ),
        };
        this.depth.set(&this.labels(), 0.0);
        this.adds.add(&this.labels(), 0.0);
        this.retries.add(&this.labels(), 0.0);
        this
    }

    fn labels(&self) -> [&str; 2] {
        [&self.name, &self.name]
    }

    #[expect(clippy::cast_precision_loss, reason = "a queue of 2^52 keys does not exist")]
    fn added(&self, depth: usize) {
        self.adds.inc(&self.labels());
        self.depth.set(&self.labels(), depth as f64);
    }

    #[expect(clippy::cast_precision_loss, reason = "a queue of 2^52 keys does not exist")]
    fn taken(&self, depth: usize, waited: Duration) {
        self.depth.set(&self.labels(), depth as f64);
        self.queue_duration.observe(&self.labels(), waited.as_secs_f64());
    }

    fn observe_unfinished<Key>(&self, core: &Core<Key>, now: Timestamp) {
        let seconds = core
            .working
            .values()
            .map(|since| now.duration_since(*since).as_secs_f64());
        let (sum, longest) = seconds.fold((0.0, 0.0_f64), |(sum, longest), s| (sum + s, longest.max(s)));
        self.unfinished.set(&self.labels(), sum);
        self.longest.set(&self.labels(), longest);
    }
}

#[cfg(test)]
mod tests;
