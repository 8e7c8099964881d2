//! Lines that would be said again in every pass: at once when they are new, then at growing pauses for as long as they stay true.
//!
//! Owns no line: it only says whether one is due. Lost with the process, which costs one more line.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// Pause after the first line; each one after is twice as long.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_mins(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);
/// What has not been true for so long is new again.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug)]
struct Said {
    last: Timestamp,
    seen: Timestamp,
    pause: SignedDuration,
}

/// Lines that were said, by their text.
#[derive(Debug, Default)]
pub(crate) struct Repeats(BTreeMap<String, Said>);

impl Repeats {
    /// True when the line is due.
    pub(crate) fn is_due(&mut self, line: String, now: Timestamp) -> bool {
        self.0
            .retain(|_, said| now.duration_since(said.seen) < FORGOTTEN_AFTER);
        let Some(said) = self.0.get_mut(&line) else {
            let said = Said {
                last: now,
                seen: now,
                pause: FIRST_PAUSE,
            };
            self.0.insert(line, said);
            return true;
        };
        said.seen = now;
        if now.duration_since(said.last) < said.pause {
            return false;
        }
        said.last = now;
        said.pause = (said.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    #[test]
    fn a_line_is_said_when_it_is_new_and_then_ever_more_rarely() {
        let mut repeats = Repeats::default();
        let said: Vec<i64> = (0..1_200)
            .map(|pass| pass * 11)
            .filter(|seconds| repeats.is_due("a".to_owned(), at(*seconds)))
            .collect();
        assert_eq!(said, [0, 66, 187, 429, 913, 1_881, 3_806, 7_414, 11_022]);
        assert!(repeats.is_due("b".to_owned(), at(13_200)), "another line");
        assert!(!repeats.is_due("b".to_owned(), at(13_211)));
        assert!(repeats.is_due("b".to_owned(), at(13_511)), "forgotten meanwhile");
    }
}
