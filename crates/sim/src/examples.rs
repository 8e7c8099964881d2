//! What examples share that run the same for many numbers: seeds that are lived, points at which an operator is killed.
//!
//! Owns the threads, how long somebody waits for them, which of them stand still, and the command that runs an example again. What is run, and what is made of it,
//! is the example's.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long somebody waits, by the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    until: Option<Instant>,
}

impl Patience {
    /// For so many seconds from now on, or without end.
    #[must_use]
    pub fn begin(seconds: Option<u64>) -> Self {
        let until = |seconds| now().checked_add(Duration::from_secs(seconds));
        Self {
            until: seconds.and_then(until),
        }
    }

    /// How much of it is left, if it has an end.
    #[must_use]
    pub fn left(self) -> Option<Duration> {
        Some(self.until?.saturating_duration_since(now()))
    }

    /// Whether nothing of it is left.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

/// A clock, and how somebody waits by it.
pub trait Clock {
    /// What it shows.
    fn now(&self) -> Instant;

    /// Lets go of what is held until something has changed, or for so much time at most; it may also come back for no reason.
    fn wait<'m, T>(&self, changed: &Condvar, held: MutexGuard<'m, T>, at_most: Duration)
    -> MutexGuard<'m, T>;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Instant {
        now()
    }

    fn wait<'m, T>(
        &self,
        changed: &Condvar,
        held: MutexGuard<'m, T>,
        at_most: Duration,
    ) -> MutexGuard<'m, T> {
        let waited = changed.wait_timeout(held, at_most);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Runs that have begun and not ended, with since when each has been at its instant of virtual time.
#[derive(Debug)]
pub struct UnderWay<R, C = WallClock> {
    clock: C,
    /// How long each may stay at one.
    standstill: Duration,
    runs: Mutex<BTreeMap<R, Instant>>,
    /// One of them has gone on or ended.
    changed: Condvar,
}

impl<R: Ord + Copy> UnderWay<R> {
    /// None yet. Whoever has been at one instant for so long, by the wall clock, stands still.
    #[must_use]
    pub fn new(standstill: Duration) -> Self {
        Self::by(WallClock, standstill)
    }
}

impl<R: Ord + Copy, C: Clock> UnderWay<R, C> {
    /// The same by another clock.
    #[must_use]
    pub fn by(clock: C, standstill: Duration) -> Self {
        Self {
            clock,
            standstill,
            runs: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<R, Instant>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run begins, or has nothing left to do at an instant.
    pub fn goes_on(&self, run: R) {
        let now = self.clock.now();
        self.runs().insert(run, now);
        self.changed.notify_all();
    }

    /// A run has ended.
    pub fn has_ended(&self, run: R) {
        self.runs().remove(&run);
        self.changed.notify_all();
    }

    /// Those that stand still. Each that is under way now is waited for until it goes on, has ended, or has been where it is for long enough: it may have come to
    /// a standstill only just before.
    pub fn stuck(&self) -> Vec<R> {
        let mut runs = self.runs();
        let mut doubtful = runs.clone();
        loop {
            doubtful.retain(|run, since| runs.get(run) == Some(&*since));
            let now = self.clock.now();
            // The one that came last is waited for the longest.
            let last = doubtful.values().max();
            let stood = last.map(|since| now.saturating_duration_since(*since));
            let left = stood.map(|stood| self.standstill.saturating_sub(stood));
            let Some(left) = left.filter(|left| !left.is_zero()) else {
                return doubtful.into_keys().collect();
            };
            runs = self.clock.wait(&self.changed, runs, left);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "whoever waits for an example has so many seconds of the wall clock"
)]
fn now() -> Instant {
    Instant::now()
}

/// How much is run at once where nobody says it.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What comes of each of these numbers, so many at once. When patience is over no further one is begun. `look` sees all that has come so far, each time
/// that something has.
pub fn each<T: Send>(
    numbers: impl Iterator<Item = u64> + Send,
    at_once: usize,
    patience: Patience,
    run: impl Fn(u64) -> T + Sync,
    look: impl Fn(&BTreeMap<u64, T>) + Sync,
) -> BTreeMap<u64, T> {
    let next = Mutex::new(numbers);
    let done: Mutex<BTreeMap<u64, T>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while !patience.is_over() {
                    let number = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(number) = number else {
                        break;
                    };
                    let outcome = run(number);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.insert(number, outcome);
                    look(&done);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The command that runs an example again: with debug assertions where this run has them, which its recipe is built without.
#[must_use]
pub fn command(example: &str) -> String {
    if cfg!(debug_assertions) {
        format!("cargo run -p spokeshave-sim --example {example} --")
    } else {
        format!("just {example}")
    }
}

/// The file for the log of a single seed, if one is asked for.
///
/// # Errors
/// It is asked for although there are several seeds, or none: logs are large, and the file has room for one.
pub fn log_of_one(file: Option<&str>, seeds: u64) -> Result<Option<&str>, String> {
    if file.is_some() && seeds != 1 {
        return Err(format!(
            "--log writes the log of a single seed, and there are {seeds}; name it, as in `1 --first-seed SEED --log FILE`"
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock of its own, on which nobody waits: whoever would, finds that all of the time has passed.
    struct Skipping {
        began: Instant,
        passed: Mutex<Duration>,
    }

    impl Skipping {
        fn begin() -> Self {
            Self {
                began: now(),
                passed: Mutex::default(),
            }
        }

        /// How much time has passed.
        fn passed(&self) -> Duration {
            *self.passed.lock().unwrap()
        }

        fn pass(&self, time: Duration) {
            *self.passed.lock().unwrap() += time;
        }
    }

    impl Clock for Skipping {
        fn now(&self) -> Instant {
            self.began + self.passed()
        }

        fn wait<'m, T>(&self, _: &Condvar, held: MutexGuard<'m, T>, at_most: Duration) -> MutexGuard<'m, T> {
            self.pass(at_most);
            held
        }
    }

    const STANDSTILL: Duration = Duration::from_secs(90);

    /// One has come where it is only when it is asked for, and never leaves it.
    #[test]
    fn a_run_that_has_only_just_come_to_a_standstill_is_found() {
        let under_way = UnderWay::by(Skipping::begin(), STANDSTILL);
        under_way.goes_on("through");
        under_way.goes_on("still");
        under_way.has_ended("through");
        assert_eq!(under_way.stuck(), ["still"]);
        assert_eq!(under_way.clock.passed(), STANDSTILL, "not before it is known");
    }

    /// One has stood for long enough, one for a while, and one came there only just before.
    #[test]
    fn how_long_a_run_has_stood_already_counts() {
        let under_way = UnderWay::by(Skipping::begin(), STANDSTILL);
        under_way.goes_on("old");
        under_way.clock.pass(STANDSTILL);
        assert_eq!(under_way.stuck(), ["old"]);
        assert_eq!(
            under_way.clock.passed(),
            STANDSTILL,
            "nobody waits for what is known"
        );
        under_way.goes_on("while");
        under_way.clock.pass(STANDSTILL / 3);
        assert_eq!(under_way.stuck(), ["old", "while"]);
        assert_eq!(under_way.clock.passed(), 2 * STANDSTILL);
        under_way.goes_on("while");
        under_way.goes_on("young");
        assert_eq!(under_way.stuck(), ["old", "while", "young"]);
        assert_eq!(under_way.clock.passed(), 3 * STANDSTILL);
    }

    /// An hour is longer than anybody waits for this test.
    #[test]
    fn a_run_that_goes_on_or_ends_is_not_waited_for() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let under_way = UnderWay::new(Duration::from_secs(3_600));
        assert!(under_way.stuck().is_empty());
        under_way.goes_on("slow");
        under_way.goes_on("last");
        let is_known = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                under_way.has_ended("last");
                while !is_known.load(Ordering::Relaxed) {
                    under_way.goes_on("slow");
                    std::thread::yield_now();
                }
            });
            let stuck = under_way.stuck();
            is_known.store(true, Ordering::Relaxed);
            assert!(stuck.is_empty(), "{stuck:?}");
        });
    }

    #[test]
    fn a_log_is_that_of_a_single_seed() {
        assert_eq!(log_of_one(Some("log"), 1), Ok(Some("log")));
        for seeds in [0, 1, 20] {
            assert_eq!(log_of_one(None, seeds), Ok(None));
        }
        for seeds in [0, 2, 20] {
            let problem = log_of_one(Some("log"), seeds).unwrap_err();
            assert!(problem.contains(&format!("there are {seeds};")), "{problem}");
        }
    }
}
