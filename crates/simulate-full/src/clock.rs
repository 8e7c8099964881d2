//! Virtual time in which one thing happens after the other: what is due at one instant comes in the order in which it was asked for.
//!
//! Owns the time of a run. It goes on only when everything that follows from the last sleep that ended has been done, so that the order at one instant is
//! that of the fast engine's event queue, and not that of a timer's buckets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use spokeshave_ports::Clock;
use tokio::sync::Notify;

/// A pause of the runtime's own time, which is not that of the run: it ends when nothing else is left to do.
const SETTLED: Duration = Duration::from_millis(1);

/// The clock. Everything in a run shares it.
pub(crate) struct VirtualClock {
    time: Mutex<Time>,
    more: Notify,
}

struct Time {
    now: Timestamp,
    asked: u64,
    sleeps: BinaryHeap<Reverse<Due>>,
}

/// A sleep by when it ends, and when it was asked for.
struct Due {
    at: Timestamp,
    number: u64,
    alarm: Arc<Alarm>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Default)]
struct Alarm {
    has_rung: AtomicBool,
    is_cancelled: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for VirtualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualClock").finish_non_exhaustive()
    }
}

impl VirtualClock {
    /// A clock that stands at the start until it is [run](Self::run).
    pub(crate) fn new(start: Timestamp) -> Arc<Self> {
        Arc::new(VirtualClock {
            time: Mutex::new(Time {
                now: start,
                asked: 0,
                sleeps: BinaryHeap::new(),
            }),
            more: Notify::new(),
        })
    }

    /// Lets time pass, in a runtime whose own time is paused.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SETTLED).await;
            match self.next() {
                Some(alarm) => alarm.ring(),
                None => self.more.notified().await,
            }
        }
    }

    /// The next sleep to end; it is then.
    fn next(&self) -> Option<Arc<Alarm>> {
        let mut time = lock(&self.time);
        while let Some(Reverse(due)) = time.sleeps.pop() {
            if !due.alarm.is_cancelled.load(Ordering::Relaxed) {
                time.now = time.now.max(due.at);
                return Some(due.alarm);
            }
        }
        None
    }
}

impl Alarm {
    fn ring(&self) {
        self.has_rung.store(true, Ordering::Relaxed);
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }
}

/// A sleep; nobody is woken for one that is given up.
struct Sleep(Arc<Alarm>);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.has_rung.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        *lock(&self.0.waker) = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        lock(&self.time).now
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let alarm = Arc::new(Alarm::default());
        {
            let mut time = lock(&self.time);
            let span = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
            let at = time.now.saturating_add(span).unwrap_or(Timestamp::MAX);
            time.asked += 1;
            let number = time.asked;
            time.sleeps.push(Reverse(Due {
                at,
                number,
                alarm: alarm.clone(),
            }));
        }
        self.more.notify_one();
        Box::pin(Sleep(alarm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_due_at_one_instant_comes_in_the_order_in_which_it_was_asked_for() {
        let clock = VirtualClock::new(Timestamp::UNIX_EPOCH);
        let order: Arc<Mutex<Vec<(&str, i64)>>> = Arc::default();
        for (name, first, second) in [("a", 3, 7), ("b", 9, 1), ("c", 0, 10), ("d", 5, 4)] {
            let (clock, order) = (clock.clone(), order.clone());
            tokio::spawn(async move {
                clock.sleep(Duration::from_secs(first)).await;
                clock.sleep(Duration::from_secs(second)).await;
                lock(&order).push((name, clock.now().as_second()));
            });
        }
        drop(clock.sleep(Duration::from_secs(2)));
        tokio::spawn(clock.clone().run());
        tokio::task::yield_now().await;
        clock.sleep(Duration::from_secs(20)).await;
        assert_eq!(*lock(&order), [("d", 9), ("c", 10), ("a", 10), ("b", 10)]);
    }
}
