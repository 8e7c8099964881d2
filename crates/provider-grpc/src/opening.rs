//! A stream that is opened again and again: what is said of its end, and how long it pauses.
//!
//! Owns the pauses and what was said last. Which stream it is, and what it brings, is the caller's.

use std::time::Duration;

use spokeshave_ports::SharedClock;
use tonic::{Code, Status};

/// Pause after the first stream that ends at once; doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause. A stream that has stood for longer works, though it may have had nothing to bring.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Openings of one stream since it last worked.
#[derive(Debug)]
pub(crate) struct Opening {
    call: &'static str,
    clock: SharedClock,
    /// When it was last opened.
    begun: Duration,
    pause: Duration,
    /// What was said of its end last.
    said: Option<Option<Code>>,
}

impl Opening {
    /// Of a stream that was not opened yet, by the name of its call.
    pub(crate) fn new(call: &'static str, clock: &SharedClock) -> Self {
        Self {
            call,
            clock: clock.clone(),
            begun: clock.elapsed(),
            pause: FIRST_PAUSE,
            said: None,
        }
    }

    /// It is opened now.
    pub(crate) fn begin(&mut self) {
        self.begun = self.clock.elapsed();
    }

    /// It has brought something.
    pub(crate) fn works(&mut self) {
        self.pause = FIRST_PAUSE;
        self.said = None;
    }

    /// It has ended, with or without an error: says so, unless it was said already, and waits until it may be opened again.
    pub(crate) async fn pause_after(&mut self, ended: Option<&Status>) {
        // A connection that breaks says nothing of the stream: it is told, and waited for, where it is kept.
        let is_broken = ended.is_some_and(|status| std::error::Error::source(status).is_some());
        if is_broken || self.clock.elapsed().saturating_sub(self.begun) > LONGEST_PAUSE {
            self.works();
        }
        if !is_broken && self.is_news(ended) {
            match ended {
                Some(status) => {
                    tracing::warn!(call = self.call, code = ?status.code(), error = status.message(), "the provider does not serve a stream; it is asked again");
                }
                None => tracing::warn!(
                    call = self.call,
                    "the provider has ended a stream; it is asked again"
                ),
            }
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        self.clock.sleep(pause).await;
    }

    /// Whether such an end was not told yet.
    fn is_news(&mut self, ended: Option<&Status>) -> bool {
        let end = Some(ended.map(Status::code));
        let is_news = self.said != end;
        self.said = end;
        is_news
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use spokeshave_ports::TokioClock;

    use super::*;

    fn opening() -> (Opening, SharedClock) {
        let clock = TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared();
        (Opening::new("Lead", &clock), clock)
    }

    #[tokio::test(start_paused = true)]
    async fn g_003_each_kind_of_end_is_said_once_until_the_stream_works() {
        let (mut opening, _) = opening();
        let (outdated, missing) = (Status::failed_precondition("older"), Status::unimplemented("no"));
        let ends = [
            Some(&outdated),
            Some(&outdated),
            None,
            None,
            Some(&missing),
            Some(&outdated),
        ];
        let news = ends.map(|end| opening.is_news(end));
        assert_eq!(news, [true, false, true, false, true, true]);
        opening.works();
        assert!(opening.is_news(Some(&outdated)));
    }

    #[tokio::test(start_paused = true)]
    async fn g_003_g_016_what_ends_at_once_is_opened_less_and_less_often() {
        let (mut opening, clock) = opening();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            opening.begin();
            let before = clock.now();
            opening.pause_after(None).await;
            pauses.push(clock.since(before).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        // One that has stood for a while has worked.
        opening.begin();
        clock.sleep(LONGEST_PAUSE + FIRST_PAUSE).await;
        let before = clock.now();
        opening.pause_after(None).await;
        assert_eq!(clock.since(before), FIRST_PAUSE);
        // So has one that has brought something, and one whose connection broke says nothing.
        opening.works();
        let broken = Status::from_error(std::io::Error::other("the connection broke").into());
        for end in [None, Some(&broken), Some(&broken)] {
            opening.begin();
            let before = clock.now();
            opening.pause_after(end).await;
            assert_eq!(clock.since(before), FIRST_PAUSE, "{end:?}");
        }
    }
}
