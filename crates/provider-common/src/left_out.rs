//! What has run out lately, and is left out until an instant.
//!
//! Owns the memory of it. What is left out, how wide and for how long is each cloud's: EC2 runs out of single offerings, Azure of a family of sizes from some
//! number of vCPUs on, both of everything that is bought in one way. A value: time comes in with each call.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// What is left out, by key, each with how wide it is: of two widths the smaller one includes the larger. Where a key says all there is to say, the width is
/// `()`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut<K, W = ()> {
    /// Until when, for each width. A wider one ends earlier: one that does not says all that the narrower ones say.
    entries: BTreeMap<K, BTreeMap<W, Timestamp>>,
    version: u64,
}

impl<K, W> Default for LeftOut<K, W> {
    fn default() -> Self {
        LeftOut {
            entries: BTreeMap::new(),
            version: 0,
        }
    }
}

impl<K: Ord, W: Ord + Copy> LeftOut<K, W> {
    /// Leaves something out from now on. What is left out already stays so at least as long, and as wide as long as that was said: neither lends its end to
    /// the other.
    pub fn leave_out(&mut self, key: K, width: W, lasts: SignedDuration, now: Timestamp) {
        let until = now.saturating_add(lasts).unwrap_or(Timestamp::MAX);
        let ends = self.entries.entry(key).or_default();
        let known = ends.len();
        // One that is over and not forgotten yet counts no more.
        ends.retain(|_, end| now < *end);
        let was_over = ends.len() != known;
        let widened = ends.keys().next().is_none_or(|widest| width < *widest);
        let is_said = ends.iter().any(|(known, end)| *known <= width && until <= *end);
        if !is_said {
            ends.retain(|known, end| *known < width || until < *end);
            ends.insert(width, until);
        }
        self.version += u64::from(was_over || widened);
    }

    /// How wide it is left out; `None` when it is not.
    #[must_use]
    pub fn get(&self, key: &K, now: Timestamp) -> Option<W> {
        let mut ends = self.entries.get(key)?.iter();
        ends.find_map(|(width, end)| (now < *end).then_some(*width))
    }

    /// Forgets what is over. Returns whether anything was, in which case the version is another one.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let mut changed = false;
        self.entries.retain(|_, ends| {
            let known = ends.len();
            ends.retain(|_, end| now < *end);
            changed |= ends.len() != known;
            !ends.is_empty()
        });
        self.version += u64::from(changed);
        changed
    }

    /// When something is over next.
    #[must_use]
    pub fn next_end(&self) -> Option<Timestamp> {
        self.entries.values().flat_map(BTreeMap::values).min().copied()
    }

    /// Changes whenever an answer of [`get`](Self::get) may: when something is left out, or wider, and when any of it is over. What is only left out for
    /// longer changes nothing now.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    const fn minutes(count: i64) -> SignedDuration {
        SignedDuration::from_mins(count)
    }

    #[test]
    fn a_055_z_036_d_284_what_is_left_out_stays_so_as_long_and_as_wide_as_was_ever_said() {
        let mut left_out: LeftOut<&str, i64> = LeftOut::default();
        let mut versions = vec![left_out.version()];
        left_out.leave_out("d", 16, minutes(10), at(0));
        versions.push(left_out.version());
        assert_eq!(
            (left_out.get(&"d", at(599)), left_out.get(&"d", at(600))),
            (Some(16), None)
        );
        assert_eq!(left_out.get(&"e", at(0)), None);
        left_out.leave_out("d", 8, minutes(20), at(0));
        versions.push(left_out.version());
        assert_eq!(left_out.get(&"d", at(1199)), Some(8), "wider, and longer");
        left_out.leave_out("d", 16, minutes(20), at(0));
        left_out.leave_out("d", 32, minutes(60), at(0));
        assert_eq!(
            left_out.version(),
            versions[2],
            "longer, and not wider: nothing changes now"
        );
        assert_eq!(left_out.get(&"d", at(1199)), Some(8));
        assert_eq!(
            left_out.get(&"d", at(1200)),
            Some(32),
            "what is wide for a while is not so for as long as what is narrow"
        );
        assert_eq!(left_out.next_end(), Some(at(1200)));
        assert!(!left_out.expire(at(1199)) && left_out.expire(at(1200)));
        versions.push(left_out.version());
        assert_eq!(left_out.next_end(), Some(at(3600)));
        left_out.leave_out("d", 64, minutes(1), at(3600));
        versions.push(left_out.version());
        assert_eq!(
            left_out.get(&"d", at(3600)),
            Some(64),
            "what is over makes nothing wider"
        );
        assert!(left_out.expire(at(3660)));
        versions.push(left_out.version());
        versions.dedup();
        assert_eq!(versions.len(), 6);
        assert!(left_out.is_empty() && left_out.next_end().is_none());
    }

    #[test]
    fn z_036_what_is_wide_for_a_short_time_leaves_the_end_of_what_is_narrow_alone() {
        let both = |first: (i64, i64), second: (i64, i64)| {
            let mut left_out: LeftOut<&str, i64> = LeftOut::default();
            for (width, lasts) in [first, second] {
                left_out.leave_out("d", width, minutes(lasts), at(0));
            }
            let seen = [599, 600, 23 * 3600].map(|second| left_out.get(&"d", at(second)));
            let version = left_out.version();
            assert!(left_out.expire(at(600)));
            assert_ne!(left_out.version(), version);
            seen
        };
        let (narrow, wide) = ((64, 23 * 60), (2, 10));
        let expected = [Some(2), Some(64), None];
        assert_eq!((both(narrow, wide), both(wide, narrow)), (expected, expected));
    }
}
