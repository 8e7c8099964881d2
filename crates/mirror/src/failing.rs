//! A watch that fails: what is said of it, and how long it pauses.
//!
//! Owns the pauses and what was said last. It does not wait itself.

use std::time::Duration;

use kube::runtime::watcher::Error;
use spokeshave_ports::causes;

/// Pause after the first failure; doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Failures of one watch since it last worked.
#[derive(Debug)]
pub struct Failing {
    kind: String,
    /// What was said of it last.
    cause: Option<String>,
    pause: Duration,
}

impl Failing {
    /// A watch that has not failed yet.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        Failing {
            kind: kind.to_owned(),
            cause: None,
            pause: FIRST_PAUSE,
        }
    }

    /// The server answers well.
    pub fn works(&mut self) {
        self.cause = None;
        self.pause = FIRST_PAUSE;
    }

    /// Says what fails, unless it was said already, and returns how long to pause.
    pub fn failed(&mut self, error: &Error) -> Duration {
        let kind = &self.kind;
        let status = status_code(error);
        if status == Some(410) {
            // The server answers, and a list is what it asks for: this happens to every watch, and what failed before it is over.
            tracing::debug!(error = %causes(error), kind, "what the watch was to go on from is forgotten, listing again");
            self.works();
            return FIRST_PAUSE;
        }
        let cause = causes(error);
        if self.cause.as_deref() == Some(cause.as_str()) {
            tracing::debug!(error = cause, kind, "watch failed again, retrying");
        } else if status == Some(404) {
            tracing::warn!(
                kind,
                "the API server does not know this kind: install its CustomResourceDefinition; until then no such object is known"
            );
        } else {
            tracing::warn!(
                error = cause,
                kind,
                "watch failed, retrying: until it works, these objects are known as they were last, or not at all"
            );
        }
        self.cause = Some(cause);
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        pause
    }
}

/// What the API server has answered, where it has.
fn status_code(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => Some(status.code),
        _ => None,
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
        for expired in [
            Error::WatchError(refused(410, "too old")),
            Error::InitialListFailed(kube::Error::Api(refused(410, "too old"))),
        ] {
            failing.failed(&Error::NoResourceVersion);
            assert_eq!(failing.failed(&expired), FIRST_PAUSE);
            assert_eq!(failing.failed(&Error::NoResourceVersion), FIRST_PAUSE);
        }
    }

    #[test]
    fn a_connection_that_fails_is_told_with_its_cause() {
        let refused = std::io::Error::other("connection refused");
        // As a client wraps it: its own text says less than it knows.
        let error = Error::InitialListFailed(kube::Error::Service(Box::new(Unconnected(refused))));
        let mut failing = Failing::new("Node");
        failing.failed(&error);
        let told = failing.cause.unwrap();
        assert!(
            told.ends_with("client error (Connect): connection refused"),
            "{told}"
        );
        assert_eq!(told.matches("client error").count(), 1, "{told}");
    }

    /// The error of a client that says nothing of its cause.
    #[derive(Debug)]
    struct Unconnected(std::io::Error);

    impl std::fmt::Display for Unconnected {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("client error (Connect)")
        }
    }

    impl std::error::Error for Unconnected {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
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
