//! What operators, and providers that run apart, do when the system clock is set back.
//!
//! Owns when it is said, and when the process ends because of it. How its time follows the system clock is `ports`'.

use std::time::Duration;

use spokeshave_ports::{Clock as _, SystemClock};

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(60);
/// From here on it matters to deadlines and windows.
const FAR: Duration = Duration::from_secs(60);
/// From here on ages of what others make matter, too: the API server and the cloud write down when it was made, by clocks that are right. Catching up takes twice as long.
const TOO_FAR: Duration = Duration::from_secs(300);

/// Completes when the system clock has been set back too far to be caught up with, and says by how much this process is ahead of it. Where it has been set back
/// less far, but so far that this process will be ahead of it for a while, the log says so, once each time.
pub(crate) async fn too_far_ahead(clock: SystemClock) -> Duration {
    let mut is_told = false;
    loop {
        clock.sleep(LOOK).await;
        let ahead = clock.ahead();
        if ahead >= TOO_FAR {
            return ahead;
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

/// Why a process ends that is so far ahead.
pub(crate) fn set_back(ahead: Duration) -> anyhow::Error {
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

    #[tokio::test(start_paused = true)]
    async fn a_process_outlives_a_clock_that_is_set_back_by_a_little_and_ends_after_more() {
        let (origin, off_seconds) = (Instant::now(), Arc::new(AtomicI64::new(0)));
        let off = off_seconds.clone();
        let system = move || {
            let off = SignedDuration::from_secs(off.load(Ordering::Relaxed));
            Timestamp::UNIX_EPOCH + SignedDuration::try_from(origin.elapsed()).unwrap() + off
        };
        let waiting = tokio::spawn(too_far_ahead(SystemClock::reading(system)));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        off_seconds.store(-240, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!waiting.is_finished(), "it has caught up");
        off_seconds.store(-240 - 3600, Ordering::Relaxed);
        let set = Instant::now();
        let ahead = waiting.await.unwrap();
        assert!(set.elapsed() <= LOOK, "{:?}", set.elapsed());
        assert!(ahead >= Duration::from_secs(3500), "{ahead:?}");
        let said = set_back(ahead).to_string();
        assert!(said.contains(&format!("{} s ahead", ahead.as_secs())), "{said}");
    }
}
