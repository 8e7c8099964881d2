//! Ending well: a signal that everyone can await, and a group of tasks that is drained within a time limit.
//!
//! Owns the order of shutdown: first the signal, then every task finishes its current work, then late tasks are aborted
//! and named; and the word that a task has panicked. It never decides when to end.

use std::cell::Cell;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use spokeshave_ports::SharedClock;
use spokeshave_watched as watch;
use tokio::task::JoinHandle;

/// A signal to end, shared by clones. Once given it stays given.
#[derive(Clone)]
pub struct Shutdown {
    requested: Arc<watch::Sender<bool>>,
    parent: Option<Box<Shutdown>>,
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown")
            .field("requested", &self.is_requested())
            .finish_non_exhaustive()
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    /// A signal not yet given.
    #[must_use]
    pub fn new() -> Self {
        Self {
            requested: Arc::new(watch::Sender::new(false)),
            parent: None,
        }
    }

    /// A signal that is given when this one is, and can also be given alone; such as "this replica stopped leading".
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            requested: Arc::new(watch::Sender::new(false)),
            parent: Some(Box::new(self.clone())),
        }
    }

    /// Gives the signal.
    pub fn request(&self) {
        self.requested.send_replace(true);
    }

    /// True once the signal was given, here or on a parent.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow() || self.parent.as_ref().is_some_and(|parent| parent.is_requested())
    }

    /// Waits for the signal.
    pub async fn requested(&self) {
        let mut own = self.requested.subscribe();
        let own = async move {
            // The sender lives in `self`, which outlives this future.
            let _ = own.wait_for(|requested| *requested).await;
        };
        match &self.parent {
            None => own.await,
            Some(parent) => tokio::select! {
                biased;
                () = Box::pin(parent.requested()) => {}
                () = own => {}
            },
        }
    }

    /// Runs `work` until it is done or the signal is given; `None` when cut off.
    pub async fn cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.requested() => None,
            done = work => Some(done),
        }
    }
}

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// How many tasks of [`TaskGroup`]s have panicked on this thread: on a runtime of one thread, all of them.
#[must_use]
pub fn panics_here() -> usize {
    PANICS.with(Cell::get)
}

/// Long-running tasks with names, ended together.
#[derive(Debug, Default)]
pub struct TaskGroup {
    tasks: Vec<(String, JoinHandle<()>)>,
    /// The name of the first task that has panicked.
    panicked: watch::Sender<Option<String>>,
}

impl TaskGroup {
    /// An empty group.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task. A panic in it is logged with its name and harms no other task; whoever cannot go on without it asks [`panicked`](Self::panicked).
    pub fn spawn(&mut self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        let name = name.into();
        let (label, panicked) = (name.clone(), self.panicked.clone());
        // Boxed, because tokio's part of a task is much code, and this is one kind of task instead of a hundred.
        let task: BoxFuture<'static, ()> = Box::pin(task);
        let guarded = async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                PANICS.with(|panics| panics.set(panics.get() + 1));
                tracing::error!(task = label, "task panicked and has ended");
                panicked.send_if_modified(|first| {
                    let is_first = first.is_none();
                    if is_first {
                        *first = Some(label);
                    }
                    is_first
                });
            }
        };
        self.tasks.push((name, tokio::spawn(guarded)));
    }

    /// Number of tasks that have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tasks
            .iter()
            .filter(|(_, handle)| !handle.is_finished())
            .count()
    }

    /// Waits until a task of the group panics, now or later, and returns its name.
    pub fn panicked(&self) -> BoxFuture<'static, String> {
        // The sender is in the future, so that it waits for what may never happen.
        let sender = self.panicked.clone();
        Box::pin(async move {
            let _ = sender.subscribe().wait_for(Option::is_some).await;
            sender.borrow().clone().unwrap_or_default()
        })
    }

    /// Waits for all tasks, at most `limit` of cluster time; cuts off those that are late and returns their names.
    /// Give the [`Shutdown`] signal first.
    pub async fn drain(mut self, clock: &SharedClock, limit: Duration) -> Vec<String> {
        let mut deadline = clock.sleep(limit);
        let mut late = Vec::new();
        for (name, mut handle) in std::mem::take(&mut self.tasks) {
            let ended = tokio::select! {
                biased;
                _ = &mut handle => true,
                () = &mut deadline, if late.is_empty() => false,
                () = std::future::ready(()), if !late.is_empty() => false,
            };
            if !ended {
                handle.abort();
                late.push(name);
            }
        }
        late
    }
}

/// No task outlives its group: dropping it without draining aborts its tasks at once.
impl Drop for TaskGroup {
    fn drop(&mut self) {
        for (_, handle) in &self.tasks {
            handle.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::TokioClock;

    use super::*;

    fn clock() -> SharedClock {
        TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared()
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_ends_with_its_parent_but_not_the_other_way() {
        let parent = Shutdown::new();
        let (one, two) = (parent.child(), parent.child());
        one.request();
        one.requested().await;
        assert!(one.is_requested() && !two.is_requested() && !parent.is_requested());
        assert_eq!(one.cut(std::future::pending::<()>()).await, None);
        parent.request();
        two.requested().await;
        assert!(two.is_requested());
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_is_dropped_takes_its_tasks_along() {
        let clock = clock();
        let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut group = TaskGroup::new();
        let (timer, flag) = (clock.clone(), done.clone());
        group.spawn("long", async move {
            timer.sleep(Duration::from_secs(5)).await;
            flag.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        clock.sleep(Duration::from_secs(1)).await;
        drop(group);
        clock.sleep(Duration::from_secs(60)).await;
        assert!(!done.load(std::sync::atomic::Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_named_and_draining_waits_for_the_willing_and_names_the_late() {
        let (clock, shutdown) = (clock(), Shutdown::new());
        let mut group = TaskGroup::new();
        let (signal, timer) = (shutdown.clone(), clock.clone());
        group.spawn("polite", async move {
            signal.requested().await;
            timer.sleep(Duration::from_secs(3)).await;
        });
        group.spawn("stubborn", std::future::pending());
        group.spawn("broken", async { panic!("a bug") });
        assert_eq!(group.panicked().await, "broken");
        shutdown.request();
        let start = clock.now();
        assert_eq!(group.drain(&clock, Duration::from_secs(10)).await, ["stubborn"]);
        assert_eq!(clock.since(start), Duration::from_secs(10));
    }
}
