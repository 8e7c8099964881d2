//! Time: the trait by which everything learns the hour, and the clock of simulated clusters.
//!
//! Owns the mapping from tokio's timer to cluster time. It reads the system clock at most once, at start, and never looks at it again; an operator's clock
//! follows it, see `system_clock`.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A clock that all parts of one program share.
pub type SharedClock = Arc<dyn Clock>;

/// Longest single sleep, about 30 years: beyond it timers overflow, and nobody waits that long.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Source of cluster time. Cluster time never goes backwards.
pub trait Clock: Send + Sync + Debug {
    /// The present instant of cluster time.
    fn now(&self) -> Timestamp;

    /// Time by the timer alone, since some fixed instant: it goes on evenly even where the system clock, and with it cluster time, is set. For terms that
    /// others measure too. The default is for clocks that nobody sets.
    fn elapsed(&self) -> Duration {
        self.since(Timestamp::UNIX_EPOCH)
    }

    /// Completes after `duration` of cluster time, by the timer alone.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Completes at `deadline`, at once when it has passed.
    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, ()> {
        self.sleep(self.until(deadline))
    }

    /// Cluster time that has passed since `earlier`; zero when `earlier` lies ahead.
    fn since(&self, earlier: Timestamp) -> Duration {
        Duration::try_from(self.now().duration_since(earlier)).unwrap_or(Duration::ZERO)
    }

    /// Cluster time left until `later`; zero when it has passed.
    fn until(&self, later: Timestamp) -> Duration {
        Duration::try_from(later.duration_since(self.now())).unwrap_or(Duration::ZERO)
    }
}

/// Cluster time on tokio's timer: `epoch + (tokio's instant − origin) × speed`.
///
/// Speed 1 on tokio's paused clock is virtual time; speed 20 on the running clock is a cluster that lives twenty times
/// faster than the wall. Under a paused clock, make it inside the runtime, so that the origin is virtual too.
#[derive(Debug, Clone)]
pub struct TokioClock {
    epoch: Timestamp,
    origin: Instant,
    speed: f64,
}

impl TokioClock {
    /// A clock that reads `epoch` now and runs `speed` times as fast as tokio's. A speed that is not a positive finite
    /// number counts as 1.
    #[must_use]
    pub fn new(epoch: Timestamp, speed: f64) -> Self {
        let speed = if speed.is_finite() && speed > 0.0 {
            speed
        } else {
            1.0
        };
        Self {
            epoch,
            origin: Instant::now(),
            speed,
        }
    }

    /// A clock that starts from the system clock.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "this and SystemClock are where the system clock is read"
    )]
    pub fn wall(speed: f64) -> Self {
        Self::new(Timestamp::now(), speed)
    }

    /// The same clock for those who share it.
    #[must_use]
    pub fn shared(self) -> SharedClock {
        Arc::new(self)
    }

    /// How many seconds of cluster time pass in one second of tokio's.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.speed
    }

    #[expect(
        clippy::float_cmp,
        reason = "exactly 1 is the case without rounding, nothing else is meant"
    )]
    fn is_real_time(&self) -> bool {
        self.speed == 1.0
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.origin.elapsed();
        let elapsed = if self.is_real_time() {
            SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX)
        } else {
            SignedDuration::try_from_secs_f64(elapsed.as_secs_f64() * self.speed)
                .unwrap_or(SignedDuration::MAX)
        };
        self.epoch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let duration = if self.is_real_time() {
            duration
        } else {
            Duration::try_from_secs_f64(duration.as_secs_f64() / self.speed).unwrap_or(LONGEST_SLEEP)
        };
        tokio::time::sleep(duration.min(LONGEST_SLEEP)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn virtual_time_moves_only_by_sleeping() {
        let clock = TokioClock::new(epoch(), 1.0);
        assert_eq!(clock.now(), epoch());
        clock.sleep(Duration::from_secs(86_400)).await;
        assert_eq!(clock.now().to_string(), "2026-01-02T00:00:00Z");
        assert_eq!(clock.since(epoch()), Duration::from_secs(86_400));
        assert_eq!(clock.until(epoch()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_clock_sleeps_short_and_counts_long() {
        let clock = TokioClock::new(epoch(), 20.0);
        let start = Instant::now();
        clock.sleep(Duration::from_secs(100)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        assert_eq!(clock.since(epoch()), Duration::from_secs(100));
        clock.sleep_until(epoch()).await;
        assert_eq!(
            start.elapsed(),
            Duration::from_secs(5),
            "a deadline in the past does not wait"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn senseless_speeds_count_as_one_and_endless_sleeps_do_not_panic() {
        for speed in [0.0, -3.0, f64::NAN, f64::INFINITY] {
            assert!((TokioClock::new(epoch(), speed).speed() - 1.0).abs() < f64::EPSILON);
        }
        let slow = TokioClock::new(epoch(), 0.001);
        tokio::select! {
            biased;
            () = slow.sleep(Duration::MAX) => panic!("an endless sleep has ended"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}
