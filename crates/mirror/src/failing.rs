//! A watch that fails: what is said of it, and how long it pauses.
//!
//! Owns the pauses and what was said last. It does not wait itself.

use std::time::Duration;

use kube::runtime::watcher::Error;

/// Pause after the first failure; doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Failures of one watch since it last worked.
#[derive(Debug)]
pub(crate) struct Failing {
    kind: String,
    /// What was said of it last.
    cause: Option<String>,
    pause: Duration,
}

impl Failing {
    /// A watch that has not failed yet.
    pub(crate) fn new(kind: &str) -> Self {
        Failing {
            kind: kind.to_owned(),
            cause: None,
            pause: FIRST_PAUSE,
        }
    }

    /// The server answers well.
    pub(crate) fn works(&mut self) {
        self.cause = None;
        self.pause = FIRST_PAUSE;
    }

    /// Says what fails, unless it was said already, and returns how long to pause.
    pub(crate) fn failed(&mut self, error: &Error) -> Duration {
        let kind = &self.kind;
        if is_expired(error) {
            // The server answers, and a list is what it asks for: this happens to every watch, and what failed before it is over.
            tracing::debug!(%error, kind, "what the watch was to go on from is forgotten, listing again");
            self.works();
            return FIRST_PAUSE;
        }
        let cause = error.to_string();
        if self.cause.as_deref() == Some(cause.as_str()) {
            tracing::debug!(%error, kind, "watch failed again, retrying");
        } else {
            tracing::warn!(%error, kind, "watch failed, retrying: until it works, the provider knows these objects as they were last, or not at all");
        }
        self.cause = Some(cause);
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        pause
    }
}

/// Whether a watch failed because what it was to go on from is forgotten.
fn is_expired(error: &Error) -> bool {
    match error {
        Error::WatchError(status) | Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16, message: &str) -> Box<Status> {
        Status::failure(message, "").with_code(code).boxed()
    }

    #[test]
    fn pauses_grow_up_to_half_a_minute_and_shrink_when_it_works() {
        let mut failing = Failing::new("Node");
        let pauses: Vec<u64> = (0..7)
            .map(|_| failing.failed(&Error::NoResourceVersion).as_secs())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        failing.works();
        assert_eq!(failing.failed(&Error::NoResourceVersion), FIRST_PAUSE);
        // The server asks for a list, which need not wait.
        failing.failed(&Error::NoResourceVersion);
        assert_eq!(
            failing.failed(&Error::WatchError(refused(410, "too old"))),
            FIRST_PAUSE
        );
        assert_eq!(failing.failed(&Error::NoResourceVersion), FIRST_PAUSE);
    }

    #[test]
    fn a_cause_is_said_once_and_another_one_again() {
        let mut failing = Failing::new("Node");
        let error = |code, message| Error::InitialListFailed(kube::Error::Api(refused(code, message)));
        let mut said = Vec::new();
        for error in [
            error(404, "not found"),
            error(404, "not found"),
            error(403, "forbidden"),
            error(403, "forbidden"),
            error(404, "not found"),
        ] {
            let before = failing.cause.clone();
            failing.failed(&error);
            said.push(failing.cause != before);
        }
        assert_eq!(said, [true, false, true, false, true]);
        failing.works();
        assert_eq!(failing.cause, None, "after it has worked it is said again");
    }
}
