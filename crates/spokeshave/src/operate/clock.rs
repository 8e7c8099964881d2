//! What operators, and providers that run apart, do when the system clock is set, or their machine was suspended.
//!
//! Owns when it is said, and when the process ends because of it. How its time follows the system clock is `ports`'.

use std::time::Duration;

use spokeshave_ports::{Clock as _, SystemClock};

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// From here on it matters to deadlines and windows; and forward to what watches have told, which may have stood still for as long. Until this process ends, its
/// time does not follow such a leap.
const FAR: Duration = SystemClock::FAR;
/// From here on ages of what others make matter, too: the API server and the cloud write down when it was made, by clocks that are right. Catching up takes twice as long.
const TOO_FAR: Duration = Duration::from_secs(300);

/// Completes, with why this process ends, when the system clock has leapt forward far, or has been set back too far to be caught up with. Where it has been set
/// back less far, but so far that this process will be ahead of it for a while, the log says so, once each time.
pub(crate) async fn too_far_off(clock: SystemClock) -> anyhow::Error {
    let mut is_told = false;
    loop {
        clock.sleep(LOOK).await;
        let leapt = clock.leapt();
        if leapt >= FAR {
            return set_forward(leapt);
        }
        let ahead = clock.ahead();
        if ahead >= TOO_FAR {
            return set_back(ahead);
        }
        if ahead >= FAR && !is_told {
            tracing::warn!(
                seconds = ahead.as_secs(),
                "the system clock has been set back: until it has caught up, the time of this process goes on at half the speed; a restart follows it at once"
            );
        }
        is_told = ahead >= FAR;
    }
}

/// Why a process ends whose time has leapt so far.
fn set_forward(leapt: Duration) -> anyhow::Error {
    anyhow::anyhow!(
        "the system clock has been set forward by {} s, or this machine was suspended: what this process knows may be as old as that, and it has ended so that the next one begins with what is there now; start it again if nothing does so, and keep the clock synchronized",
        leapt.as_secs()
    )
}

/// Why a process ends that is so far ahead.
fn set_back(ahead: Duration) -> anyhow::Error {
    anyhow::anyhow!(
        "the system clock has been set back: this process is {} s ahead of it, and has ended so that the next one follows it at once; start it again if nothing does so, and keep the clock synchronized",
        ahead.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use jiff::{SignedDuration, Timestamp};
    use tokio::time::Instant;

    use super::*;

    /// A clock, and by how many seconds its machine's is off.
    fn machine() -> (SystemClock, Arc<AtomicI64>) {
        let (origin, off_seconds) = (Instant::now(), Arc::new(AtomicI64::new(0)));
        let off = off_seconds.clone();
        let system = move || {
            let off = SignedDuration::from_secs(off.load(Ordering::Relaxed));
            Timestamp::UNIX_EPOCH + SignedDuration::try_from(origin.elapsed()).unwrap() + off
        };
        (SystemClock::reading(system), off_seconds)
    }

    /// Invariant 38: the stores are as old as the leap is long, and only whoever begins anew knows what is there.
    #[tokio::test(start_paused = true)]
    async fn invariant_38_a_process_outlives_a_short_leap_forward_and_ends_after_a_long_one() {
        let (clock, off_seconds) = machine();
        let waiting = tokio::spawn(too_far_off(clock));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        off_seconds.store(50, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!waiting.is_finished(), "it follows");
        off_seconds.store(50 + 600, Ordering::Relaxed);
        let set = Instant::now();
        let said = waiting.await.unwrap().to_string();
        assert!(set.elapsed() <= LOOK, "{:?}", set.elapsed());
        assert!(
            said.starts_with("the system clock has been set forward by 600 s"),
            "{said}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_outlives_a_clock_that_is_set_back_by_a_little_and_ends_after_more() {
        let (clock, off_seconds) = machine();
        let waiting = tokio::spawn(too_far_off(clock));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        off_seconds.store(-240, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!waiting.is_finished(), "it has caught up");
        off_seconds.store(-240 - 3600, Ordering::Relaxed);
        let set = Instant::now();
        let said = waiting.await.unwrap().to_string();
        assert!(set.elapsed() <= LOOK, "{:?}", set.elapsed());
        assert!(
            said.starts_with("the system clock has been set back: this process is 3599 s ahead"),
            "{said}"
        );
    }
}
