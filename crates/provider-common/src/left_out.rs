//! What has run out lately, and is left out until an instant.
//!
//! Owns the memory of it. What is left out, how wide and for how long is each cloud's: EC2 runs out of single offerings, Azure of a family of sizes from some
//! number of vCPUs on, both of everything that is bought in one way. A value: time comes in with each call.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry<W> {
    width: W,
    until: Timestamp,
}

/// What is left out, by key, each with how wide it is: of two widths the smaller one includes the larger. Where a key says all there is to say, the width is
/// `()`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut<K, W = ()> {
    entries: BTreeMap<K, Entry<W>>,
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
    /// Leaves something out from now on. What is left out already stays so at least as long, and as wide.
    pub fn leave_out(&mut self, key: K, width: W, lasts: SignedDuration, now: Timestamp) {
        let until = now.saturating_add(lasts).unwrap_or(Timestamp::MAX);
        let widened = match self.entries.get_mut(&key) {
            Some(entry) if now < entry.until => {
                let widened = width < entry.width;
                entry.width = entry.width.min(width);
                entry.until = entry.until.max(until);
                widened
            }
            // One that is over and not forgotten yet counts no more.
            _ => {
                self.entries.insert(key, Entry { width, until });
                true
            }
        };
        self.version += u64::from(widened);
    }

    /// How wide it is left out; `None` when it is not.
    #[must_use]
    pub fn get(&self, key: &K, now: Timestamp) -> Option<W> {
        let entry = self.entries.get(key).filter(|entry| now < entry.until)?;
        Some(entry.width)
    }

    /// Forgets what is over. Returns whether anything was, in which case the version is another one.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let before = self.entries.len();
        self.entries.retain(|_, entry| now < entry.until);
        let changed = self.entries.len() != before;
        self.version += u64::from(changed);
        changed
    }

    /// When something is over next.
    #[must_use]
    pub fn next_end(&self) -> Option<Timestamp> {
        self.entries.values().map(|entry| entry.until).min()
    }

    /// Changes whenever an answer of [`get`](Self::get) may: when something is left out, or wider, and when it is over. What is only left out for longer
    /// changes nothing now.
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

    #[test]
    fn a_055_z_036_d_284_what_is_left_out_stays_so_as_long_and_as_wide_as_was_ever_said() {
        let mut left_out: LeftOut<&str, i64> = LeftOut::default();
        let minutes = SignedDuration::from_mins;
        let mut versions = vec![left_out.version()];
        left_out.leave_out("d", 16, minutes(10), at(0));
        versions.push(left_out.version());
        assert_eq!(
            (left_out.get(&"d", at(599)), left_out.get(&"d", at(600))),
            (Some(16), None)
        );
        assert_eq!(left_out.get(&"e", at(0)), None);
        left_out.leave_out("d", 8, minutes(1), at(0));
        versions.push(left_out.version());
        assert_eq!(left_out.get(&"d", at(599)), Some(8), "wider, and not shorter");
        left_out.leave_out("d", 32, minutes(60), at(0));
        assert_eq!(
            left_out.version(),
            versions[2],
            "longer, and not narrower: nothing changes now"
        );
        assert_eq!(left_out.get(&"d", at(3599)), Some(8));
        assert_eq!(left_out.next_end(), Some(at(3600)));
        assert!(!left_out.expire(at(3599)));
        left_out.leave_out("d", 32, minutes(1), at(3600));
        versions.push(left_out.version());
        assert_eq!(
            left_out.get(&"d", at(3600)),
            Some(32),
            "what is over makes nothing wider"
        );
        assert!(left_out.expire(at(3660)));
        versions.push(left_out.version());
        versions.dedup();
        assert_eq!(versions.len(), 5);
        assert!(left_out.is_empty() && left_out.next_end().is_none());
    }
}
