//! The clock of an operator that runs for months: the system's, made fit for deciding by.
//!
//! Owns how cluster time follows a system clock that is set or has slept. Forward at once by less than a minute: after a suspended machine resumes, or a clock
//! that was slow is corrected, the time has really passed. A farther leap makes what is known so old that nothing may be decided on it, so cluster time stays
//! behind, no time limit has passed, and whoever asks learns how far it was and starts anew. Backwards never, because what is due would have to wait for the
//! whole difference: cluster time goes on at half the speed until the system clock has caught up, and whoever cannot wait for that starts anew. Its timers
//! never heed the system clock.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::clock::{Clock, LONGEST_SLEEP, SharedClock};

/// How soon whoever sleeps until an instant learns that the system clock has been set.
const LOOK: Duration = Duration::from_secs(10);

/// Cluster time that follows the system clock. Clones share it.
#[derive(Clone)]
pub struct SystemClock {
    system: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    origin: Instant,
    last: Arc<Mutex<Reading>>,
}

/// What the clock showed, and when by tokio's timer.
#[derive(Clone, Copy)]
struct Reading {
    time: Timestamp,
    at: Instant,
    /// The furthest that the system clock had leapt forward at once.
    leapt: Duration,
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemClock")
            .field("last", &self.lock().time)
            .finish_non_exhaustive()
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl SystemClock {
    /// Leaps forward of this length or more are not followed: whoever uses such a clock starts anew when [`leapt`](Self::leapt) says that there was one.
    pub const FAR: Duration = Duration::from_secs(60);

    /// The clock of this machine.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this and TokioClock::wall are where the system clock is read"
    )]
    pub fn new() -> Self {
        Self::reading(Timestamp::now)
    }

    /// A clock that follows what `system` shows.
    #[must_use]
    pub fn reading(system: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        let origin = Instant::now();
        let last = Reading {
            time: system(),
            at: origin,
            leapt: Duration::ZERO,
        };
        Self {
            system: Arc::new(system),
            origin,
            last: Arc::new(Mutex::new(last)),
        }
    }

    /// The same clock for those who share it.
    #[must_use]
    pub fn shared(self) -> SharedClock {
        Arc::new(self)
    }

    /// How far it is ahead of the system clock, which somebody has set back.
    #[must_use]
    pub fn ahead(&self) -> Duration {
        let (ours, system) = (self.now(), (self.system)());
        Duration::try_from(ours.duration_since(system)).unwrap_or(Duration::ZERO)
    }

    /// The furthest that the system clock has leapt forward at once, followed or not: it has been set, or the machine was suspended and the timer with it.
    #[must_use]
    pub fn leapt(&self) -> Duration {
        self.read().leapt
    }

    fn read(&self) -> Reading {
        let mut last = self.lock();
        // Both are read under the lock, so that what several threads read comes in order.
        let (at, system) = (Instant::now(), (self.system)());
        let passed = at.saturating_duration_since(last.at);
        let later = |passed: Duration| last.time.saturating_add(passed).unwrap_or(Timestamp::MAX);
        let leap = Duration::try_from(system.duration_since(later(passed))).unwrap_or(Duration::ZERO);
        let time = if leap < Self::FAR {
            system.max(later(passed / 2))
        } else {
            later(passed)
        };
        let reading = Reading {
            time,
            at,
            leapt: last.leapt.max(leap),
        };
        *last = reading;
        reading
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.read().time
    }

    fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(duration.min(LONGEST_SLEEP)).boxed()
    }

    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        async move {
            loop {
                let left = clock.until(deadline);
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LOOK)).await;
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use jiff::SignedDuration;

    use super::*;

    /// A machine whose clock can be set, with tokio's paused time.
    struct Machine {
        clock: SystemClock,
        off_seconds: Arc<AtomicI64>,
    }

    impl Machine {
        fn new() -> Self {
            let (origin, off_seconds) = (Instant::now(), Arc::new(AtomicI64::new(0)));
            let off = off_seconds.clone();
            let system = move || {
                let off = SignedDuration::from_secs(off.load(Ordering::Relaxed));
                epoch() + SignedDuration::try_from(origin.elapsed()).unwrap() + off
            };
            Self {
                clock: SystemClock::reading(system),
                off_seconds,
            }
        }

        /// Sets the system clock, by as many seconds from the right time.
        fn set(&self, off_seconds: i64) {
            self.off_seconds.store(off_seconds, Ordering::Relaxed);
        }

        /// Seconds of cluster time since the start.
        fn seconds(&self) -> u64 {
            self.clock.since(epoch()).as_secs()
        }
    }

    fn epoch() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn it_follows_forward_at_once() {
        let machine = Machine::new();
        pass(10).await;
        assert_eq!(machine.seconds(), 10);
        machine.set(50);
        assert_eq!(machine.seconds(), 60);
        pass(10).await;
        assert_eq!(machine.seconds(), 70);
        assert_eq!(machine.clock.ahead(), Duration::ZERO);
        assert_eq!(machine.clock.elapsed(), Duration::from_secs(20));
    }

    /// What is known is as old as the leap is long: no time limit must pass for whoever has yet to learn what has happened meanwhile.
    #[tokio::test(start_paused = true)]
    async fn invariant_38_a_far_leap_is_told_and_lets_no_time_limit_pass() {
        let machine = Machine::new();
        pass(10).await;
        let limit = epoch() + SignedDuration::from_secs(900);
        let sleeping = tokio::spawn(machine.clock.sleep_until(limit));
        machine.set(3600);
        assert_eq!(machine.seconds(), 10);
        pass(20).await;
        assert_eq!(machine.seconds(), 30, "it goes on by its timer");
        assert!(!sleeping.is_finished());
        assert_eq!(machine.clock.leapt(), Duration::from_secs(3600));
        assert_eq!(machine.clock.ahead(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn it_remembers_the_furthest_leap() {
        let machine = Machine::new();
        pass(3600).await;
        assert_eq!(machine.clock.leapt(), Duration::ZERO);
        machine.set(40);
        assert_eq!(machine.clock.leapt(), Duration::from_secs(40));
        machine.set(60);
        assert_eq!(machine.clock.leapt(), Duration::from_secs(40), "it was shorter");
        machine.set(-3600);
        pass(60).await;
        assert_eq!(machine.seconds(), 3690, "at half the speed");
        machine.set(60);
        assert_eq!(machine.clock.leapt(), Duration::from_secs(40), "by its time");
    }

    #[tokio::test(start_paused = true)]
    async fn it_never_goes_back_and_is_caught_up_with() {
        let machine = Machine::new();
        pass(7200).await;
        let mut shown = machine.clock.now();
        machine.set(-3600);
        assert_eq!(machine.seconds(), 7200);
        assert_eq!(machine.clock.ahead(), Duration::from_secs(3600));
        for minute in 1..=180_u64 {
            pass(60).await;
            let now = machine.clock.now();
            assert!(now > shown, "it never stands still: {shown}, {now}");
            shown = now;
            let (ours, system) = (7200 + 30 * minute, 3600 + 60 * minute);
            assert_eq!(machine.seconds(), ours.max(system), "after {minute} minutes");
        }
        assert_eq!(machine.clock.ahead(), Duration::ZERO);
        assert_eq!(
            machine.clock.elapsed(),
            Duration::from_secs(18_000),
            "its timer heeds none of this"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_sleeps_until_an_instant_wakes_when_it_has_come() {
        let machine = Machine::new();
        let due = epoch() + SignedDuration::from_secs(120);
        let sleeping = tokio::spawn(machine.clock.sleep_until(due));
        pass(60).await;
        machine.set(50);
        let resumed = Instant::now();
        sleeping.await.unwrap();
        assert!(resumed.elapsed() <= LOOK, "{:?}", resumed.elapsed());
        let soon = machine.clock.now() + SignedDuration::from_secs(30);
        machine.set(0);
        machine.clock.sleep_until(soon).await;
        assert!(machine.clock.now() >= soon, "set back: not before it has come");
    }
}
