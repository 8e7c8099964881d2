//! Waiting longer after each failure, and never more often than a rate.
//!
//! Owns the arithmetic only: given now, how long to wait. Nothing here sleeps.

use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The back-off of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Delay after the first failure of a key; doubles with each further one.
    pub base: Duration,
    /// Longest delay of a key.
    pub max: Duration,
    /// Retries of all keys together: sustained number per second, and burst.
    pub bucket: Option<(f64, u32)>,
}

impl RateLimit {
    /// Ours as upstream's: 5 ms to 1000 s per key, 10 retries a second with a burst of 100 overall.
    pub const DEFAULT: RateLimit = RateLimit {
        base: Duration::from_millis(5),
        max: Duration::from_secs(1000),
        bucket: Some((10.0, 100)),
    };
    /// The "reasonable" limiter of P §15.2: 100 ms to 1 min per key, 10 a second with a burst of 100 overall.
    pub const REASONABLE: RateLimit = RateLimit {
        base: Duration::from_millis(100),
        max: Duration::from_secs(60),
        bucket: Some((10.0, 100)),
    };

    /// Delay of a key after `failures` failures before this one.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max)
    }
}

/// A token bucket: `rate` tokens a second, at most `burst` saved up.
///
/// Stored as the time at which the bucket would be full again (the generic cell rate algorithm), in integers, so that
/// it neither drifts nor rounds.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    interval_nanoseconds: i128,
    burst: i128,
    full_at_nanoseconds: i128,
}

impl TokenBucket {
    /// A full bucket. A rate that is not positive and finite gives one token a day; a burst of 0 counts as 1.
    #[must_use]
    pub fn new(rate: f64, burst: u32) -> Self {
        let seconds = if rate.is_finite() && rate > 0.0 {
            1.0 / rate
        } else {
            86_400.0
        };
        let interval = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(86_400));
        Self {
            interval_nanoseconds: i128::try_from(interval.as_nanos()).unwrap_or(i128::MAX / 2),
            burst: i128::from(burst.max(1)),
            full_at_nanoseconds: i128::MIN / 2,
        }
    }

    /// Takes a token now or from the future, and returns how long to wait until it is available.
    pub fn reserve(&mut self, now: Timestamp) -> Duration {
        let wait = self.wait_nanoseconds(now);
        self.full_at_nanoseconds =
            self.full_at_nanoseconds.max(now.as_nanosecond()) + self.interval_nanoseconds;
        Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// Takes a token if one is available.
    pub fn try_take(&mut self, now: Timestamp) -> bool {
        if self.wait_nanoseconds(now) > 0 {
            return false;
        }
        self.reserve(now);
        true
    }

    /// Time until a token is available, in nanoseconds; zero if one is.
    fn wait_nanoseconds(&self, now: Timestamp) -> i128 {
        let now = now.as_nanosecond();
        let full_at = self.full_at_nanoseconds.max(now) + self.interval_nanoseconds;
        (full_at - now - self.burst * self.interval_nanoseconds).max(0)
    }
}

/// Exponential back-off with jitter from Entropy, for loops that talk to a server.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    failures: u32,
    rng: ChaCha8Rng,
}

impl Backoff {
    /// From `base`, doubling up to `max`; each delay is stretched by a random factor between 1 and 2.
    #[must_use]
    pub fn new(base: Duration, max: Duration, rng: ChaCha8Rng) -> Self {
        Self {
            base,
            max,
            failures: 0,
            rng,
        }
    }

    /// Delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let delay = self.base.saturating_mul(factor).min(self.max);
        self.failures = self.failures.saturating_add(1);
        jitter(&mut self.rng, delay, 1.0)
    }

    /// Forgets the failures.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last reset.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// `duration` stretched by a random factor between 1 and `1 + max_factor`.
pub(crate) fn jitter(rng: &mut ChaCha8Rng, duration: Duration, max_factor: f64) -> Duration {
    duration + duration.mul_f64(rng.random::<f64>() * max_factor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spokeshave_ports::Entropy;

    use super::*;

    #[test]
    fn keys_wait_twice_as_long_each_time_up_to_the_limit() {
        let limit = RateLimit::REASONABLE;
        let delays: Vec<u128> = [0, 1, 2, 9, 10, 63, u32::MAX]
            .map(|n| limit.delay(n).as_millis())
            .to_vec();
        assert_eq!(delays, [100, 200, 400, 51_200, 60_000, 60_000, 60_000]);
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_repeats_with_the_seed() {
        let make = || {
            Backoff::new(
                Duration::from_secs(1),
                Duration::from_secs(4),
                Entropy::new(1).rng("x"),
            )
        };
        let (mut one, mut two) = (make(), make());
        for expected in [1, 2, 4, 4] {
            let delay = one.next_delay();
            assert_eq!(delay, two.next_delay());
            assert!((expected..=2 * expected).contains(&delay.as_secs()), "{delay:?}");
        }
        one.reset();
        assert!(one.next_delay() < Duration::from_secs(2));
    }

    proptest! {
        /// In any window the bucket gives at most burst + rate × length tokens, and at least that many to a greedy taker.
        #[test]
        fn a_bucket_gives_its_rate(steps in proptest::collection::vec(0_i64..400, 1..200), burst in 1_u32..12) {
            let mut bucket = TokenBucket::new(10.0, burst);
            let (mut now, mut taken) = (Timestamp::UNIX_EPOCH, 0_i64);
            let mut model_millitokens = i64::from(burst) * 1000;
            for step in steps {
                now += jiff::SignedDuration::from_millis(step);
                model_millitokens = (model_millitokens + step * 10).min(i64::from(burst) * 1000);
                let expected = model_millitokens >= 1000;
                prop_assert_eq!(bucket.try_take(now), expected);
                if expected {
                    model_millitokens -= 1000;
                    taken += 1;
                }
            }
            let elapsed_milliseconds = now.as_millisecond();
            prop_assert!(taken <= i64::from(burst) + elapsed_milliseconds / 100);
        }
    }
}
