//! The reconcile driver: takes keys from a queue, works on several at a time, and survives errors and panics.
//!
//! Owns the loop and its metrics (controller-runtime's names). It never decides what a reconcile does; an error or a panic of
//! one key delays that key only.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use spokeshave_ports::causes;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::metrics::{Counter, Gauge, Histogram, Metrics, STANDARD_BUCKETS};
use crate::queue::WorkQueue;
use crate::shutdown::Shutdown;

/// Buckets of `controller_runtime_reconcile_time_seconds`: the standard ones up to a minute, as upstream's framework has them.
const RECONCILE_BUCKETS: &[f64] = STANDARD_BUCKETS.first_chunk::<40>().unwrap();

/// What to do next with a key after a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing, until something adds the key.
    Done,
    /// Another look after this time. Zero is at once, a few times in a row; a key that never has enough slows down like one that is stale.
    After(Duration),
    /// The input was outdated (a conflict), and the watch event about it will add the key. If it does not arrive (a stalled watch),
    /// another look after a pause that doubles each time.
    Stale,
}

/// The error of a reconcile: anything that can be displayed.
pub type ReconcileError = Box<dyn std::error::Error + Send + Sync>;

/// So often a key may have another look at once; every step of an object's life is one.
const LOOKS_IN_A_ROW: u32 = 10;

/// The key of a controller that has only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Singleton;

/// The key of a controller that has only one.
pub const SINGLETON: Singleton = Singleton;

impl fmt::Display for Singleton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("singleton")
    }
}

/// controller-runtime's metrics, shared by all controllers of a process.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    total: Counter,
    errors: Counter,
    terminal_errors: Counter,
    panics: Counter,
    time: Histogram,
    max_concurrent: Gauge,
    active: Gauge,
}

impl ControllerMetrics {
    /// Registers the families.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        let by_controller = &["controller"];
        Self {
            total: metrics.counter(
                "controller_runtime_reconcile_total",
                "Total number of reconciliations per controller",
                &["controller", "result"],
            ),
            errors: metrics.counter(
                "controller_runtime_reconcile_errors_total",
                "Total number of reconciliation errors per controller",
                by_controller,
            ),
            terminal_errors: metrics.counter(
                "controller_runtime_terminal_reconcile_errors_total",
                "Total number of terminal reconciliation errors per controller",
                by_controller,
            ),
            panics: metrics.counter(
                "controller_runtime_reconcile_panics_total",
                "Total number of reconciliation panics per controller",
                by_controller,
            ),
            time: metrics.histogram(
                "controller_runtime_reconcile_time_seconds",
                "Length of time per reconciliation per controller",
                by_controller,
                RECONCILE_BUCKETS,
            ),
            max_concurrent: metrics.gauge(
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller",
                by_controller,
            ),
            active: metrics.gauge(
                "controller_runtime_active_workers",
                "Number of currently used workers per controller",
                by_controller,
            ),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "concurrency is a small number")]
    fn begin(&self, controller: &str, concurrency: usize) {
        self.max_concurrent.set(&[controller], concurrency as f64);
        self.active.set(&[controller], 0.0);
        for counter in [&self.errors, &self.terminal_errors, &self.panics] {
            counter.add(&[controller], 0.0);
        }
        for result in ["success", "error", "requeue", "requeue_after"] {
            self.total.add(&[controller, result], 0.0);
        }
    }
}

/// Reconciles keys of `queue`, at most `concurrency` at a time and each key never twice at a time, until `shutdown`; then
/// finishes what is in work and returns.
///
/// `Ok(Done)` and `Ok(After)` forget the key's failures; `Err` and a panic are logged with the key, counted, and retried
/// with the queue's back-off.
pub async fn run_controller<Key, Reconcile, Work>(
    name: &str,
    queue: WorkQueue<Key>,
    concurrency: usize,
    reconcile: Reconcile,
    shutdown: Shutdown,
    metrics: ControllerMetrics,
) where
    Key: Ord + Clone + fmt::Display + Send + Sync + 'static,
    Reconcile: Fn(Key) -> Work + Send + Sync + 'static,
    Work: Future<Output = Result<Requeue, ReconcileError>> + Send + 'static,
{
    let concurrency = concurrency.max(1);
    metrics.begin(name, concurrency);
    let driver = Arc::new(Driver {
        name: name.to_owned(),
        queue,
        reconcile: Box::new(move |key| Box::pin(reconcile(key))),
        metrics,
    });
    drive(driver, concurrency, shutdown).await;
}

async fn drive<Key>(driver: Arc<Driver<Key>>, concurrency: usize, shutdown: Shutdown)
where
    Key: Ord + Clone + fmt::Display + Send + Sync + 'static,
{
    let mut workers = JoinSet::new();
    loop {
        // Reap first, so that a free worker is seen before the next key is taken.
        while workers.try_join_next().is_some() {}
        if workers.len() >= concurrency {
            tokio::select! {
                biased;
                () = shutdown.requested() => break,
                _ = workers.join_next() => {}
            }
            continue;
        }
        let Some(key) = shutdown.cut(driver.queue.next()).await else {
            break;
        };
        let driver = driver.clone();
        workers.spawn(async move { driver.work(key).await });
    }
    while workers.join_next().await.is_some() {}
}

/// Runs a controller that has only one key, beginning at once. `Requeue::After` is its period; with `Requeue::Done` it waits
/// until [`SINGLETON`] is added to the queue.
pub async fn run_singleton<Reconcile, Work>(
    name: &str,
    queue: WorkQueue<Singleton>,
    reconcile: Reconcile,
    shutdown: Shutdown,
    metrics: ControllerMetrics,
) where
    Reconcile: Fn() -> Work + Send + Sync + 'static,
    Work: Future<Output = Result<Requeue, ReconcileError>> + Send + 'static,
{
    queue.add(SINGLETON);
    run_controller(name, queue, 1, move |_| reconcile(), shutdown, metrics).await;
}

/// Boxed, so that the loop around it is compiled once per key type and not once per controller.
type Reconciler<Key> = Box<dyn Fn(Key) -> BoxFuture<'static, Result<Requeue, ReconcileError>> + Send + Sync>;

struct Driver<Key> {
    name: String,
    queue: WorkQueue<Key>,
    reconcile: Reconciler<Key>,
    metrics: ControllerMetrics,
}

impl<Key: Ord + Clone + fmt::Display> Driver<Key> {
    async fn work(&self, key: Key) {
        let controller = self.name.as_str();
        let clock = self.queue.clock().clone();
        let start = clock.now();
        self.metrics.active.add(&[controller], 1.0);
        // The future is made inside, because making it may panic too.
        // Every line of the log says which controller writes it, and about what.
        let span = tracing::error_span!("reconcile", controller, name = %key);
        let work = async { (self.reconcile)(key.clone()).await };
        let outcome = AssertUnwindSafe(work.instrument(span)).catch_unwind().await;
        self.metrics.active.add(&[controller], -1.0);
        self.metrics
            .time
            .observe(&[controller], clock.since(start).as_secs_f64());
        match outcome {
            Ok(Ok(requeue)) => {
                self.queue.forget(&key);
                let result = match requeue {
                    Requeue::Done => {
                        self.queue.settled(&key);
                        "success"
                    }
                    Requeue::After(delay) if delay.is_zero() => {
                        self.queue.add_again(key.clone(), LOOKS_IN_A_ROW);
                        "requeue_after"
                    }
                    Requeue::After(delay) => {
                        self.queue.settled(&key);
                        self.queue.add_after(key.clone(), delay);
                        "requeue_after"
                    }
                    Requeue::Stale => {
                        self.queue.add_again(key.clone(), 0);
                        "requeue"
                    }
                };
                self.metrics.total.inc(&[controller, result]);
            }
            Ok(Err(error)) => {
                self.failed(&key);
                tracing::error!(controller, name = %key, error = %causes(error.as_ref()), "reconcile failed");
            }
            Err(panic) => {
                self.failed(&key);
                self.metrics.panics.inc(&[controller]);
                tracing::error!(controller, name = %key, panic = panic_text(panic.as_ref()), "reconcile panicked");
            }
        }
        self.queue.done(&key);
    }

    fn failed(&self, key: &Key) {
        self.metrics.total.inc(&[&self.name, "error"]);
        self.metrics.errors.inc(&[&self.name]);
        self.queue.add_rate_limited(key.clone());
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use spokeshave_ports::{SharedClock, TokioClock};

    use super::*;
    use crate::{QueueOptions, RateLimit};

    fn fixture() -> (SharedClock, Metrics, WorkQueue<String>, Shutdown) {
        let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
        let metrics = Metrics::new(clock.clone());
        let queue = WorkQueue::new(
            "test",
            clock.clone(),
            QueueOptions {
                rate_limit: RateLimit::DEFAULT,
            },
            &metrics,
        );
        (clock, metrics, queue, Shutdown::new())
    }

    #[tokio::test(start_paused = true)]
    async fn errors_and_panics_delay_only_their_own_key() {
        let (clock, metrics, queue, shutdown) = fixture();
        let visits: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
        let seen = visits.clone();
        let controller = tokio::spawn(run_controller(
            "test",
            queue.clone(),
            4,
            move |key: String| {
                let visit = {
                    let mut seen = seen.lock().unwrap();
                    let visit = seen.entry(key.clone()).or_insert(0);
                    *visit += 1;
                    *visit
                };
                async move {
                    match key.as_str() {
                        "broken" if visit <= 2 => panic!("a bug"),
                        "failing" if visit <= 3 => Err("not yet".into()),
                        _ => Ok(Requeue::Done),
                    }
                }
            },
            shutdown.clone(),
            ControllerMetrics::new(&metrics),
        ));
        for key in ["broken", "failing", "fine"] {
            queue.add(key.to_owned());
        }
        clock.sleep(Duration::from_secs(10)).await;
        shutdown.request();
        controller.await.unwrap();
        let expected = [("broken", 3), ("failing", 4), ("fine", 1)].map(|(key, n)| (key.to_owned(), n));
        assert_eq!(*visits.lock().unwrap(), BTreeMap::from(expected));
        let text = metrics.render();
        for line in [
            r#"controller_runtime_reconcile_panics_total{controller="test"} 2"#,
            r#"controller_runtime_reconcile_errors_total{controller="test"} 5"#,
            r#"controller_runtime_reconcile_total{controller="test",result="success"} 3"#,
            r#"controller_runtime_active_workers{controller="test"} 0"#,
            r#"workqueue_depth{controller="test",name="test"} 0"#,
            r#"workqueue_retries_total{controller="test",name="test"} 5"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    /// How often a key is reconciled within a minute when each reconciliation ends like this.
    async fn looks_within_a_minute(requeue: Requeue) -> u32 {
        let (clock, metrics, queue, shutdown) = fixture();
        let count: Arc<Mutex<u32>> = Arc::default();
        let counter = count.clone();
        let controller = tokio::spawn(run_controller(
            "test",
            queue.clone(),
            1,
            move |_: String| {
                *counter.lock().unwrap() += 1;
                async move { Ok(requeue) }
            },
            shutdown.clone(),
            ControllerMetrics::new(&metrics),
        ));
        queue.add("key".to_owned());
        clock.sleep(Duration::from_secs(60)).await;
        shutdown.request();
        controller.await.unwrap();
        let count = *count.lock().unwrap();
        assert!(
            metrics
                .render()
                .contains(r#"controller_runtime_reconcile_errors_total{controller="test"} 0"#)
        );
        count
    }

    /// Whatever a reconcile asks for, its key never spins: the clock moves on.
    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_always_stale_or_never_has_enough_slows_down() {
        // The first look, 0.1 + 0.2 + … + 6.4 seconds, then one every ten.
        assert_eq!(looks_within_a_minute(Requeue::Stale).await, 1 + 7 + 4);
        assert_eq!(
            looks_within_a_minute(Requeue::After(Duration::ZERO)).await,
            1 + LOOKS_IN_A_ROW + 7 + 4
        );
        assert_eq!(looks_within_a_minute(Requeue::Done).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn at_most_so_many_at_a_time_and_shutdown_finishes_the_work() {
        let (clock, metrics, queue, shutdown) = fixture();
        let running: Arc<Mutex<(u32, u32, u32)>> = Arc::default();
        let (state, timer) = (running.clone(), clock.clone());
        let controller = tokio::spawn(run_controller(
            "test",
            queue.clone(),
            3,
            move |_key: String| {
                let (state, timer) = (state.clone(), timer.clone());
                async move {
                    {
                        let mut state = state.lock().unwrap();
                        state.0 += 1;
                        state.1 = state.1.max(state.0);
                    }
                    timer.sleep(Duration::from_secs(1)).await;
                    let mut state = state.lock().unwrap();
                    state.0 -= 1;
                    state.2 += 1;
                    Ok(Requeue::Done)
                }
            },
            shutdown.clone(),
            ControllerMetrics::new(&metrics),
        ));
        for number in 0..10 {
            queue.add(number.to_string());
        }
        clock.sleep(Duration::from_millis(1500)).await;
        shutdown.request();
        controller.await.unwrap();
        assert_eq!(
            *running.lock().unwrap(),
            (0, 3, 6),
            "two rounds of three, the second finished in shutdown"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_singleton_repeats_by_itself() {
        let (clock, metrics, _, shutdown) = fixture();
        let queue = WorkQueue::new("single", clock.clone(), QueueOptions::default(), &metrics);
        let count: Arc<Mutex<u32>> = Arc::default();
        let counter = count.clone();
        let task = tokio::spawn(run_singleton(
            "single",
            queue,
            move || {
                *counter.lock().unwrap() += 1;
                async { Ok(Requeue::After(Duration::from_secs(10))) }
            },
            shutdown.clone(),
            ControllerMetrics::new(&metrics),
        ));
        clock.sleep(Duration::from_secs(35)).await;
        shutdown.request();
        task.await.unwrap();
        assert_eq!(*count.lock().unwrap(), 4);
    }
}
