//! What examples share that run the same for many numbers: seeds that are lived, points at which an operator is killed.
//!
//! Owns the threads, how long somebody waits for them, and the command that runs an example again. What is run, and what is made of it, is the example's.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
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
